"""Which GPUs are left alone, and why: every further call to a GPU that is lost or whose firmware is stuck can hang. Pure.

After XID 79, 119 and 120, after GpuIsLost and after a call that never came back no call is made to that GPU, while the
others go on. It ends with the boot, or with a clearing: of the node by a person, of the part by our own proven repair.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from checks.check import Clearing
from checks.driver_reasons import PROBE_HUNG
from checks.finding import Finding, Part, PartKind
from checks.xid_reasons import XID_REASONS

GPU_IS_LOST = 15
XID = 8
"""The bit of an XID among NVML's events."""
STUCK = frozenset({79, 119, 120})
"""Fallen off the bus, GSP RPC timeout, GSP error: NVML's own calls block or fail from then on."""

# A hang is remembered by its finding, so that an agent that is started anew does not lose another process to it.
_WHY = {XID_REASONS[code].name: f"XID {code}" for code in sorted(STUCK)} | {
    PROBE_HUNG.name: "a call to it has not come back"
}


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """Why a GPU is left alone, since when."""

    part: Part
    why: str
    since: datetime


def sick_of(findings: Iterable[Finding], boot_id: str) -> dict[str, str]:
    """Give the GPUs, by PCI address, that a finding of this boot says to leave alone, each with the words for it."""
    return {
        finding.part.pci: _WHY[finding.reason]
        for finding in findings
        if finding.reason in _WHY
        and finding.boot_id == boot_id
        and finding.part.kind is PartKind.GPU
        and finding.part.pci
    }


def lifted(
    quiets: Mapping[str, Quiet], cleared_before: datetime | None, clearings: Iterable[Clearing]
) -> dict[str, Quiet]:
    """Give what is left of `quiets` once all that a clearing covers is asked again."""
    clearings = tuple(clearings)
    return {pci: quiet for pci, quiet in quiets.items() if not _is_cleared(quiet, cleared_before, clearings)}


def _is_cleared(quiet: Quiet, cleared_before: datetime | None, clearings: tuple[Clearing, ...]) -> bool:
    if cleared_before is not None and quiet.since <= cleared_before:
        return True
    return any(one.covers(quiet.part) and quiet.since <= one.before for one in clearings)
