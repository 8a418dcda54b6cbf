"""What lets the loop turn: at once, or within a second. Thread-safe.

A pod that waits and room that is free are news for at once. That a PodGroup of ours stands in the API now, or that a bind
was taken, changes no decision by itself: a thousand of them are looked at together.
"""

import threading
import time
from typing import Final

SOON_S: Final = 1.0


class Bell:
    """`wait` is the loop's; anybody may ring."""

    def __init__(self) -> None:
        self._at_once = threading.Event()
        self._soon = threading.Event()

    def ring(self) -> None:
        """Let the loop turn now."""
        self._at_once.set()

    def ring_soon(self) -> None:
        """Let the loop turn within `SOON_S`."""
        self._soon.set()

    def clear(self) -> None:
        """Everything that was rung for is being looked at."""
        self._soon.clear()
        self._at_once.clear()

    def wait(self, timeout_s: float) -> None:
        """Return after so many seconds, at a ring, or within `SOON_S` of a soft one."""
        until = time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0:
            if self._at_once.wait(min(left, SOON_S)) or self._soon.is_set():
                return
