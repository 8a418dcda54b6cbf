"""Lines that belong to one incident are one finding. Pure.

- XID 48 with 63 or 64 near it in time on one GPU: a double-bit error, and what became of its row. With 63 the finding is
  48's, whose reset activates the remap. With 64 it is 64's: the remap failed or no spare row is left, which stays until a
  person replaces the board, whatever a reset does. 171 and 172 only say where the error of a 48 was.
- SXID 20034 (a switch port lost its link) near XID 74 or 79 of a GPU: the link's two ends tell of the same storm; the
  GPU's finding goes on and keeps the switch's line.

Source: NVIDIA's flow for XID 48, the catalogue's rows 171 and 172, and the Fabric Manager guide.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from checks.finding import Finding, Part, PartKind
from checks.xid_lately import Lately, near
from checks.xid_ledger import Ledger
from checks.xid_reasons import FALLEN_OFF_BUS, SXID_FATAL, XID_REASONS

DOUBLE_BIT, REMAPPED, REMAP_FAILED = 48, 63, 64
LINK_LOST = 20034
MOST_SWITCHES = 32
LINK_CODES = frozenset({74, FALLEN_OFF_BUS})
WORDS: Mapping[int, str] = MappingProxyType(
    {
        DOUBLE_BIT: "with XID 48, the double-bit error",
        REMAPPED: "with XID 63: a row remap is recorded",
        171: "with XID 171: in DRAM",
        172: "with XID 172: in SRAM",
    }
)
"""The codes that may be part of another one's finding, with what they add to it."""
_MEMORY = frozenset({*WORDS, REMAP_FAILED})


class Incidents:
    """Mutable only inside one judgement."""

    def __init__(
        self, ledger: Ledger, standing: Iterable[Finding], lately: Lately, within: timedelta
    ) -> None:
        self._ledger = ledger
        self._lately = lately
        self._within = within
        self._switches = {f.part.pci: f.part for f in standing if f.reason == SXID_FATAL.name}

    def leader(self, pci: str, code: int, when: datetime) -> int:
        """Give the code whose finding this line goes into: its own where it leads or stands alone."""
        if code not in WORDS:
            return code
        was_48 = code == DOUBLE_BIT or self._lately.was(pci, DOUBLE_BIT, when, self._within)
        if was_48 and self._leads(pci, REMAP_FAILED, when):
            return REMAP_FAILED
        return DOUBLE_BIT if code != DOUBLE_BIT and self._leads(pci, DOUBLE_BIT, when) else code

    def _leads(self, pci: str, code: int, when: datetime) -> bool:
        if not self._lately.was(pci, code, when, self._within):
            return False
        return self._ledger.seen(XID_REASONS[code], Part(kind=PartKind.GPU, pci=pci)) is not None

    def gather(self, gpu: Part, code: int, when: datetime) -> None:
        """Take into the finding of `code`, which was just seen, what came before it and belongs to it."""
        if code in _MEMORY:
            self._gather_memory(gpu, code, when)
        elif code in LINK_CODES:
            self._gather_links(gpu, code, when)

    def link_of(self, switch: Part, code: int, when: datetime) -> tuple[Part, int] | None:
        """Give the GPU and the XID whose storm a switch's line belongs to; None where it stands alone."""
        if code != LINK_LOST:
            return None
        if len(self._switches) < MOST_SWITCHES:
            self._switches[switch.pci] = switch
        for pci, xid in self._lately.gpus(LINK_CODES, when, self._within):
            gpu = Part(kind=PartKind.GPU, pci=pci)
            if self._ledger.seen(XID_REASONS[xid], gpu) is not None:
                return gpu, xid
        return None

    def _gather_memory(self, gpu: Part, code: int, when: datetime) -> None:
        if code in {DOUBLE_BIT, REMAP_FAILED}:
            for other, words in WORDS.items():
                standing = self._ledger.find(XID_REASONS[other], gpu) if other != code else None
                needs_48 = other != DOUBLE_BIT and not self._lately.was(
                    gpu.pci, DOUBLE_BIT, when, self._within
                )
                if standing is not None and not needs_48 and self._is_new(standing, when):
                    self._ledger.absorb(XID_REASONS[code], gpu, standing, words)

    def _gather_links(self, gpu: Part, code: int, when: datetime) -> None:
        for switch in self._switches.values():
            finding = self._ledger.find(SXID_FATAL, switch)
            if finding is None:
                continue
            only = all(f"): {LINK_LOST}" in line for line in finding.evidence)
            if only and self._is_new(finding, when):
                words = f"with SXID {LINK_LOST} of {finding.part.shown()}"
                self._ledger.absorb(XID_REASONS[code], gpu, finding, words)

    def _is_new(self, finding: Finding, when: datetime) -> bool:
        """Tell whether all that a finding holds came near `when`: an older fault of its own is not part of this one."""
        return near(finding.first_seen, when, self._within) and near(finding.last_seen, when, self._within)
