"""What a dry run has in place of an election: it plans from the start, holds no Lease, and may never write. Shell.

Under the Lease of the real scheduler it would only plan after that one's death, and then keep the lead from the next one.
"""

import threading
from collections.abc import Callable

import structlog

from kube.leader import unique_identity

log = structlog.get_logger(__name__)


class Unelected:
    """Has what the runtime uses of a `kube.leader.LeaderElection`."""

    def __init__(self) -> None:
        self.identity = unique_identity()
        self._stopped = threading.Event()

    def write_budget(self) -> float:
        """Give 0: the write guard of every session stays shut."""
        return 0.0

    def run(self, on_started: Callable[[], None], _on_lost: Callable[[str], None]) -> None:
        """Let planning begin; block until `stop`."""
        log.info("dry_run.started", identity=self.identity)
        on_started()
        self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def release(self) -> None:
        """There is nothing to hand over."""
        self.stop()
