"""The bell: a ring lets the loop turn at once, a soft one within a second, none at the time that was asked for."""

import threading
import time
from collections.abc import Callable

import pytest

from controller.scheduler.shell.bell import SOON_S, Bell

LONG_S = 10.0


@pytest.mark.parametrize(
    ("ring", "most_s"), [(Bell.ring, 0.5), (Bell.ring_soon, SOON_S + 0.5)], ids=["a ring", "a soft ring"]
)
@pytest.mark.parametrize("after_s", [0.0, 0.2], ids=["before the wait", "during the wait"])
def test_a_ring_ends_the_wait(ring: Callable[[Bell], None], most_s: float, after_s: float) -> None:
    """Whether it came before or meanwhile."""
    bell = Bell()
    if after_s:
        threading.Timer(after_s, ring, args=(bell,)).start()
    else:
        ring(bell)
    began = time.monotonic()
    bell.wait(LONG_S)
    assert time.monotonic() - began < most_s + after_s


def test_what_was_rung_for_is_over_once_cleared() -> None:
    """And without a ring the whole time passes."""
    bell = Bell()
    bell.ring()
    bell.ring_soon()
    bell.clear()
    began = time.monotonic()
    bell.wait(0.3)
    assert time.monotonic() - began >= 0.3
