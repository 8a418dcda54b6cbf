"""Pairs: when each thing that is measured began and when its end was first seen. Pure but for its lock.

Nothing that began is ever dropped: what has no end yet is `missing`, and a benchmark with anything missing has not measured.
"""

import threading
from collections.abc import Mapping


class Pairs:
    """Keys are any names. Times are monotonic seconds. May be used from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begun: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def begin(self, key: str, at: float) -> None:
        """Note the beginning. Raises ValueError for a key that began before: two samples under one name are none."""
        with self._changed:
            if key in self._begun:
                raise ValueError(f"sample {key} began twice")
            self._begun[key] = at

    def begin_once(self, key: str, at: float) -> None:
        """Note the first sight of a beginning; later sights of the same change nothing."""
        with self._changed:
            self._begun.setdefault(key, at)

    def end(self, key: str, at: float) -> None:
        """Note the first sight of the end; later sights of the same change nothing."""
        with self._changed:
            if key not in self._ended:
                self._ended[key] = at
                self._changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> bool:
        """Wait until `count` keys have both; False when the time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._both()) >= count, timeout_s)

    def seconds(self) -> Mapping[str, float]:
        """Give how long each took that has both, in the order in which they began."""
        with self._changed:
            return {key: self._ended[key] - self._begun[key] for key in self._both()}

    def missing(self) -> tuple[str, ...]:
        """Name what began and has no end."""
        with self._changed:
            return tuple(key for key in self._begun if key not in self._ended)

    def last_end(self) -> float:
        """When the last end was seen. Raises ValueError where there is none."""
        with self._changed:
            if not self._ended:
                raise ValueError("nothing has ended")
            return max(self._ended.values())

    def ends(self) -> tuple[float, ...]:
        """Give when each end was seen."""
        with self._changed:
            return tuple(self._ended.values())

    def ended_by(self, at: float) -> int:
        """Count the ends seen no later than `at`."""
        with self._changed:
            return sum(1 for end in self._ended.values() if end <= at)

    def _both(self) -> list[str]:
        return [key for key in self._begun if key in self._ended]
