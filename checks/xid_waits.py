"""What is held back for a while, because another word decides what it means. Pure, small, kept over restarts.

- XID 45, and an XID 144 to 150 that only an XID 154 explains: each is shown at once as the warning that it is alone. For
  half a minute its companion may follow (the XID 154; for 45 the XID that it names, or any that is a cause); until then
  nobody says that all is well. A GPU that goes on like that (45 comes by the thousand when jobs end) is waited for once.
- An XID that NVML's event told: the kernel's line is the same event and says more. An event whose line does not come (the
  log cannot be read, records were lost) counts by itself.

Waits go by the records' own dates. A clock that is set back by more than a wait ends it: ending one never hides anything,
since a companion that comes later is joined all the same.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from checks.xid_lately import Lately, near

MOST_HELD = 64
AGAIN_AFTER = timedelta(minutes=10)
"""A GPU that says the same within this was waited for already."""
TICK = timedelta(seconds=1)
PREEMPTED = 45
UNKNOWN_NUMBER = 999
"""NVML's number for an XID that it cannot tell."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A line that waits for its companion, or did.

    `last` is when the GPU said the same since, `cause` what 45 names; `over`: the companion came.
    """

    pci: str
    code: int
    at: datetime
    last: datetime | None = None
    cause: int | None = None
    over: bool = False

    @property
    def latest(self) -> datetime:
        """When the GPU said it last."""
        return self.at if self.last is None else self.last


class Waits:
    """Mutable only inside one judgement. `holds` wait for a companion, `told` for the kernel's line."""

    def __init__(self, holds: Iterable[Hold], told: Iterable[Hold]) -> None:
        self._holds = list(holds)
        self._told = list(told)

    def hold(self, pci: str, code: int, when: datetime, cause: int | None = None) -> None:
        """Wait for the companion of a line, unless this GPU said the same lately and was waited for."""
        held = next((hold for hold in self._holds if hold.code == code and hold.pci == pci), None)
        if held is not None and near(held.latest, when, TICK):
            return  # a storm costs no more than this
        others = [hold for hold in self._holds if hold is not held]
        if held is not None and near(held.latest, when, AGAIN_AFTER):
            new = msgspec.structs.replace(held, last=when)
        else:
            new = Hold(pci=pci, code=code, at=when, cause=cause)
        self._holds = [*others, new][-MOST_HELD:]

    def explain(self, pci: str, code: int) -> None:
        """Wait no longer for the cause of a 45: it came."""
        self._holds = [
            _over(hold) if (hold.pci, hold.code) == (pci, PREEMPTED) and hold.cause in {None, code} else hold
            for hold in self._holds
        ]

    def release(self, pci: str) -> None:
        """Wait no longer for a GPU: its companion came."""
        self._holds = [_over(hold) if hold.pci == pci else hold for hold in self._holds]

    def holding(self, now: datetime, lasts: timedelta) -> list[Hold]:
        """Give what still waits, and forget what may be waited for anew."""
        self._holds = [hold for hold in self._holds if near(hold.latest, now, AGAIN_AFTER)]
        return [hold for hold in self._holds if not hold.over and abs(now - hold.at) < lasts]

    def tell(self, pci: str, code: int, when: datetime, lately: Lately, same: timedelta) -> None:
        """Take an XID from NVML, unless the kernel said it already."""
        codes = lately.codes(pci, when, same)
        known = bool(codes) if code == UNKNOWN_NUMBER else code in codes
        again = any((hold.pci, hold.code) == (pci, code) for hold in self._told)
        if not known and not again:
            self._told = [*self._told, Hold(pci=pci, code=code, at=when)][-MOST_HELD:]

    def said(self, pci: str, code: int) -> None:
        """Take that the kernel said it: NVML's copy has done its work. An event without an address fits any GPU."""
        if self._told:
            self._told = [
                hold
                for hold in self._told
                if hold.pci not in {pci, ""} or hold.code not in {code, UNKNOWN_NUMBER}
            ]

    def telling(self, now: datetime, lasts: timedelta) -> tuple[list[Hold], list[Hold]]:
        """Give what NVML alone has told for so long, which then counts, and what still waits for its line."""
        over = [hold for hold in self._told if abs(now - hold.at) >= lasts]
        self._told = [hold for hold in self._told if abs(now - hold.at) < lasts]
        return over, list(self._told)

    @property
    def kept(self) -> tuple[tuple[Hold, ...], tuple[Hold, ...]]:
        """Give what is to be kept: holds, then what NVML told."""
        return tuple(self._holds), tuple(self._told)


def _over(hold: Hold) -> Hold:
    return hold if hold.over else msgspec.structs.replace(hold, over=True)
