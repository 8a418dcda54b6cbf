"""When each GPU said which XID last, as far as that still matters for what comes near it in time. Pure, bounded."""

from collections.abc import Mapping
from datetime import datetime, timedelta

MOST_GPUS = 64
MOST_CODES = 64
KEPT = timedelta(minutes=2)
"""Longer than any wait for a companion: what is further off than this from the last line is near nothing any more."""

Seen = Mapping[str, Mapping[int, datetime]]


def near(one: datetime, other: datetime, within: timedelta) -> bool:
    """Tell whether two instants lie so close together, whichever came first."""
    return abs(one - other) <= within


class Lately:
    """Mutable only inside one judgement; by PCI address and code."""

    def __init__(self, seen: Seen) -> None:
        self._seen = {pci: dict(codes) for pci, codes in seen.items()}
        self._latest: datetime | None = None

    def see(self, pci: str, code: int, when: datetime) -> None:
        """Note a line of the kernel log."""
        codes = self._seen.get(pci)
        if codes is None:
            if len(self._seen) >= MOST_GPUS:
                del self._seen[next(iter(self._seen))]
            codes = self._seen[pci] = {}
        elif len(codes) >= MOST_CODES and code not in codes:
            del codes[next(iter(codes))]
        codes[code] = when
        self._latest = when

    def at(self, pci: str, code: int) -> datetime | None:
        """Give when this GPU said this code last."""
        return self._seen.get(pci, {}).get(code)

    def was(self, pci: str, code: int, when: datetime, within: timedelta) -> bool:
        """Tell whether this GPU said this code near `when`."""
        at = self.at(pci, code)
        return at is not None and near(at, when, within)

    def codes(self, pci: str, when: datetime, within: timedelta) -> list[int]:
        """Give the codes that this GPU said near `when`, in order."""
        return sorted(code for code, at in self._seen.get(pci, {}).items() if near(at, when, within))

    def gpus(self, codes: frozenset[int], when: datetime, within: timedelta) -> list[tuple[str, int]]:
        """Give the GPUs that said one of `codes` near `when`, each with the code; the newest first."""
        found = [
            (at, pci, code)
            for pci, said in self._seen.items()
            for code, at in said.items()
            if code in codes and near(at, when, within)
        ]
        return [(pci, code) for _, pci, code in sorted(found, reverse=True)]

    def kept(self) -> dict[str, dict[int, datetime]]:
        """Give what may still matter, by the line that came last: one dated in the future by a wrong clock goes."""
        latest = self._latest
        if latest is None:
            return {pci: dict(codes) for pci, codes in self._seen.items()}
        young = {
            pci: {code: at for code, at in codes.items() if near(at, latest, KEPT)}
            for pci, codes in self._seen.items()
        }
        return {pci: codes for pci, codes in young.items() if codes}
