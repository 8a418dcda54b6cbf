"""Time as a value: shells are given a Clock, pure code is given `now`."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """Wall clock (UTC, for timestamps), monotonic clock (seconds, for intervals) and sleep (seconds)."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


SYSTEM = Clock(now=lambda: datetime.now(UTC), monotonic=time.monotonic, sleep=time.sleep)
