"""What a watch of the pods shows while the schedulers are measured: when each was first seen on a node."""

import threading
from collections.abc import Sequence

from bench.outcome import NotMeasured
from kube.types import Pod


class Landing:
    """Times are monotonic seconds. `see` is called by the watch's thread, all else by whoever measures."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._missing: set[str] = set()
        self._landed: dict[str, float] = {}

    def follow(self, names: Sequence[str]) -> None:
        """Look out for these pods from now on, and for no others."""
        with self._changed:
            self._missing = set(names)
            self._landed = {}

    def see(self, pod: Pod, at: float) -> None:
        """Note the first sight of a pod that we look out for and that is on a node."""
        if not pod.spec.node_name:
            return
        with self._changed:
            name = pod.metadata.name
            if name in self._missing:
                self._missing.remove(name)
                self._landed[name] = at
                if not self._missing:
                    self._changed.notify_all()

    def wait(self, within_s: float) -> float:
        """Wait until all are on nodes; give when the last was seen there. Raises NotMeasured."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._missing, within_s):
                raise NotMeasured(
                    f"{len(self._missing)} of {len(self._missing) + len(self._landed)} pods were on no node after "
                    f"{within_s:g} s: {', '.join(sorted(self._missing)[:5])}"
                )
            return max(self._landed.values())

    def spread(self, names: Sequence[str]) -> float:
        """Give the seconds from the first sight of one of these pods to that of the last. Raises KeyError."""
        with self._changed:
            times = [self._landed[name] for name in names]
        return max(times) - min(times)
