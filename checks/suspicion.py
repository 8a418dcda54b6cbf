"""A fault that is not sure yet, or that seems over and is not settled yet. Pure.

A suspicion has to last before it becomes a finding, and good words have to last before it goes; in between it neither is a
fault nor lets anybody say that all is well. So what comes and goes is found in the end, and a finding does not blink.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from checks.finding import Part


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is the name of what it would become, on `part`, since `since`.

    `bad`: the last word about it. `bad_ms` and `good_ms`: watched in that state, in milliseconds; `good_ms` begins anew with
    each good word after a bad one. `sure`: nothing but time is missing. `child` is the process that said so last.
    """

    reason: str
    part: Part
    since: datetime
    detail: str
    bad: bool = True
    sure: bool = True
    bad_ms: int = 0
    good_ms: int = 0
    child: int = 0


class Suspicions:
    """Mutable only inside one judgement. `slot` is what a suspicion is about; each slot holds one."""

    def __init__(self, held: Iterable[tuple[str, Suspicion]], elapsed_ms: int) -> None:
        self._held = {slot: _later(suspicion, elapsed_ms) for slot, suspicion in held}

    def get(self, slot: str) -> Suspicion | None:
        return self._held.get(slot)

    def suspect(self, slot: str, new: Suspicion) -> None:
        """Take a bad word: it goes on under its first date, in the newest words."""
        held = self._held.get(slot)
        if held is not None:
            bad_ms = max(held.bad_ms, new.bad_ms)
            new = msgspec.structs.replace(new, since=min(held.since, new.since), bad_ms=bad_ms)
        self._held[slot] = new

    def trust(self, slot: str) -> None:
        """Take a good word."""
        held = self._held.get(slot)
        if held is not None and held.bad:
            self._held[slot] = msgspec.structs.replace(held, bad=False, good_ms=0)

    def settle(self, settled_ms: int) -> list[tuple[str, Suspicion]]:
        """Take away and give what has been well for so long."""
        over = [(slot, s) for slot, s in self._held.items() if not s.bad and s.good_ms >= settled_ms]
        for slot, _ in over:
            del self._held[slot]
        return over

    def drop(self, slot: str) -> None:
        self._held.pop(slot, None)

    def all(self) -> tuple[tuple[str, Suspicion], ...]:
        return tuple(sorted(self._held.items()))


def _later(suspicion: Suspicion, elapsed_ms: int) -> Suspicion:
    if suspicion.bad:
        return msgspec.structs.replace(suspicion, bad_ms=suspicion.bad_ms + elapsed_ms)
    return msgspec.structs.replace(suspicion, good_ms=suspicion.good_ms + elapsed_ms)
