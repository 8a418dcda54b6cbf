"""Fakes behind our own Protocols: a clock that moves when told to, and an API server in a dictionary (tests/fake_api.py)."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from kube.clock import Clock
from tests.fake_api import FakeApi, Request, request_to

__all__ = ["EPOCH", "FakeApi", "FakeClock", "Request", "request_to", "wait_until"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Both clocks in step; sleeping moves them. `.clock` is what the code under test is given."""

    def __init__(self, now: datetime = EPOCH, monotonic: float = 1000.0) -> None:
        self._lock = threading.Lock()
        self._now = now
        self._monotonic = monotonic
        self.slept: list[float] = []
        self.clock = Clock(now=self.now, monotonic=self.monotonic, sleep=self.sleep)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, as a time server's step does."""
        self._now += timedelta(seconds=seconds)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)


def wait_until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait for another thread, at most `timeout_s` seconds; raises AssertionError with the condition's name."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not become true within {timeout_s} s: {condition}")
        time.sleep(0.002)
