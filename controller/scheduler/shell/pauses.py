"""Growing pauses after failures, one row for each key: who failed again and again goes back, and others go on. Pure.

Without them a pod whose bind an admission webhook refuses for ever wins the same GPU in every cycle and starves all others
(KAI Scheduler issue 2074). Bounded: beyond `most` keys the one that failed longest ago is forgotten.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

MOST: Final = 10_000
FORGET_AFTER: Final = timedelta(minutes=30)
"""A row of failures that stood still for so long is over."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """`tries` failures in a row, the last at `at`; not before `until`."""

    tries: int
    at: datetime
    until: datetime
    why: str


class Pauses:
    """`steps_s`: the pauses after the first, second, ... failure in a row; the last one repeats."""

    def __init__(self, steps_s: tuple[float, ...], most: int = MOST) -> None:
        self._steps = tuple(timedelta(seconds=seconds) for seconds in steps_s)
        self._most = most
        self._held: dict[str, Pause] = {}

    def failed(self, key: str, why: str, now: datetime, wait_s: float | None = None) -> None:
        """Note a failure. `wait_s`: the server's own wish, which counts where it is longer. Once a pause is one failure."""
        held = self._held.pop(key, None)
        if held is not None and now < held.until:
            self._held[key] = msgspec.structs.replace(held, why=why)
            return
        tries = held.tries + 1 if held is not None else 1
        pause = self._steps[min(tries, len(self._steps)) - 1]
        if wait_s is not None:
            pause = max(pause, timedelta(seconds=wait_s))
        self._held[key] = Pause(tries=tries, at=now, until=now + pause, why=why)
        while len(self._held) > self._most:
            del self._held[next(iter(self._held))]

    def succeeded(self, key: str) -> None:
        """End the row."""
        self._held.pop(key, None)

    def keep(self, keys: Iterable[str]) -> None:
        """Forget everybody else."""
        wanted = set(keys)
        for key in [key for key in self._held if key not in wanted]:
            del self._held[key]

    def holding(self, now: datetime) -> Mapping[str, Pause]:
        """Give the pauses that last."""
        for key in [key for key, held in self._held.items() if now - held.until > FORGET_AFTER]:
            del self._held[key]
        return {key: held for key, held in self._held.items() if now < held.until}

    def next_until(self, now: datetime) -> datetime | None:
        """Give when the next pause ends."""
        return min((held.until for held in self._held.values() if held.until > now), default=None)
