"""What is held back for a while, because another word decides what it means. Pure, small, kept over restarts.

- XID 45, and an XID 144 to 150 that only an XID 154 explains: each is shown at once as the warning that it is alone. For
  half a minute its companion may follow; until then nobody says that all is well. A GPU that goes on like that (45 comes
  by the thousand when jobs end) is waited for once.
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
UNKNOWN_NUMBER = 999
"""NVML's number for an XID that it cannot tell."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A line that waits for its companion."""

    pci: str
    code: int
    at: datetime


class Waits:
    """Mutable only inside one judgement. `holds` wait for a companion, `told` for the kernel's line."""

    def __init__(self, holds: Iterable[Hold], told: Iterable[Hold]) -> None:
        self._holds = list(holds)
        self._told = list(told)

    def hold(self, pci: str, code: int, when: datetime, last: datetime | None) -> None:
        """Wait for the companion of a line; `last` is when this GPU said the same before."""
        if last is not None and near(last, when, AGAIN_AFTER):
            return
        self._holds = [*self._holds, Hold(pci=pci, code=code, at=when)][-MOST_HELD:]

    def release(self, pci: str) -> None:
        """Wait no longer for a GPU: its companion came."""
        if self._holds:
            self._holds = [hold for hold in self._holds if hold.pci != pci]

    def holding(self, now: datetime, lasts: timedelta) -> list[Hold]:
        """Give what still waits, and forget the rest."""
        self._holds = [hold for hold in self._holds if abs(now - hold.at) < lasts]
        return list(self._holds)

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
