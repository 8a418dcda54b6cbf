"""The writes of one round, as they are found. Pure. Times are monotonic seconds."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from controller.scheduler.shell.status_writes import Write
from kube.scheduling import PodGroup, Queue
from kube.types import Pod


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the stores hold, by namespace/name or name."""

    pods: Mapping[str, Pod]
    groups: Mapping[str, PodGroup]
    queues: Mapping[str, Queue]


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """`calm`: no bind is under way. `settle_s`: how long a job waits before anybody is told."""

    now: datetime
    at: float
    calm: bool
    settle_s: float


class RoundWrites:
    """Collects what may be written now. `left_out` counts the rest, whose turn comes; `due_at`: when there may be more."""

    def __init__(self, may: Callable[[Write], bool]) -> None:
        self.found: list[Write] = []
        self.left_out = 0
        self.due_at: float | None = None
        self._may = may

    @property
    def count(self) -> int:
        """How many there are in all."""
        return len(self.found) + self.left_out

    def add(self, write: Write | None) -> bool:
        """Take a write, None = there is none; tells whether it goes now."""
        if write is None:
            return False
        if self._may(write):
            self.found.append(write)
            return True
        self.left_out += 1
        return False

    def extend(self, writes: Iterable[Write]) -> None:
        for write in writes:
            self.add(write)

    def due(self, at: float | None) -> None:
        """There may be more at that time; None = there will not."""
        if at is not None and (self.due_at is None or at < self.due_at):
            self.due_at = at
