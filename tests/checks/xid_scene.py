"""One machine whose kernel log and NVML are judged step by step, with real lines, by the XID check."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from checks.check import Clearing, Context, Judgement
from checks.condition import Condition, Status, fold
from checks.finding import Finding, Part, PartKind
from checks.observation import KERNEL_LOG, GpuReading, NvmlEvent, NvmlRead, Observation, SourceRead
from checks.xid import CHECK, XidMemory
from tests.checks.kernel import BOOT, at, record

PCI, PEER = "0000:3b:00", "0000:5d:00"
CARD, OTHER = "GPU-00000000-0000-4000-8000-00000000003b", "GPU-00000000-0000-4000-8000-00000000005d"
PARTS = (
    Part(kind=PartKind.GPU, pci=PCI, uuid=CARD, index=0),
    Part(kind=PartKind.GPU, pci=PEER, uuid=OTHER, index=1),
)
TO = {
    "none": "0x0 (None)",
    "reset": "0x1 (GPU Reset Required)",
    "reboot": "0x2 (Node Reboot Required)",
    "p2p": "0x3 (Drain P2P)",
    "drain": "0x4 (Drain and Reset)",
    "imex": "0x5 (Recover IMEX Domain)",
}


class Machine:
    """Say lines at given seconds, then look at what stands."""

    def __init__(
        self, holders: Mapping[str, str] | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.sequence = 0
        self.memory: XidMemory | None = None
        self.now = 0.0
        self.holders = dict(holders or {})
        self.settings = dict(settings or {})
        self.cleared: tuple[Clearing, ...] = ()
        self.judgement = Judgement()
        self.condition: Condition | None = None
        self.judge(SourceRead(source=KERNEL_LOG, seen_at=at(0)))

    def judge(self, *observations: Observation) -> Judgement:
        """Judge now."""
        context = Context(
            now=at(self.now),
            boot_id=BOOT,
            parts=PARTS,
            holders=self.holders,
            clearings=self.cleared,
            settings=self.settings,
        )
        self.judgement = CHECK.judge(observations, self.memory, context)
        self.memory = self.judgement.memory
        if not self.judgement.not_yet or any(f.severity == "Fault" for f in self.judgement.findings):
            self.condition = fold(
                CHECK.condition,
                findings=self.judgement.findings,
                unreadable=self.judgement.unreadable,
                healthy=CHECK.healthy,
                previous=self.condition,
                now=at(self.now),
            )
        return self.judgement

    def say(self, seconds: float, text: str, *, drill: bool = False) -> "Machine":
        """Let the kernel write a line."""
        self.now, self.sequence = seconds, self.sequence + 1
        self.judge(record(self.sequence, text, seen_at=at(seconds), drill=drill, facility=int(drill)))
        return self

    def xid(
        self, seconds: float, code: int, text: str = "x", *, pci: str = PCI, drill: bool = False
    ) -> "Machine":
        return self.say(seconds, f"NVRM: Xid (PCI:{pci}): {code}, pid=9, name=trainer, {text}", drill=drill)

    def wants(
        self, seconds: float, to: str, frm: str = "none", *, pci: str = PCI, drill: bool = False
    ) -> "Machine":
        """Let the driver change its recovery action."""
        text = f"GPU recovery action changed from {TO[frm]} to {TO[to]}"
        return self.say(seconds, f"NVRM: Xid (PCI:{pci}): 154, {text}", drill=drill)

    def polls(self, seconds: float, value: int | None, *, pci: str = PCI) -> "Machine":
        """Let a round of NVML read field 230."""
        self.now = seconds
        return self.polls_at(seconds, value, pci=pci)

    def polls_at(self, seconds: float, value: int | None, *, pci: str = PCI) -> "Machine":
        """Hand in a round of NVML that was read then, whatever time it is now."""
        gpu = GpuReading(index=0, pci=pci, uuid=CARD, recovery=value)
        self.judge(NvmlRead(seen_at=at(seconds), child=1, driver="580", library="580", count=1, gpus=(gpu,)))
        return self

    def event(self, seconds: float, code: int, *, pci: str = PCI, uuid: str = "", kind: int = 8) -> "Machine":
        """Let NVML tell of an XID."""
        self.now = seconds
        self.judge(NvmlEvent(seen_at=at(seconds), boot_id=BOOT, kind=kind, data=code, pci=pci, uuid=uuid))
        return self

    def wait(self, seconds: float) -> "Machine":
        """Judge without news."""
        self.now = seconds
        self.judge()
        return self

    def restart(self) -> "Machine":
        """Let the agent be started anew: its memory is a file of JSON."""
        self.memory = msgspec.json.decode(msgspec.json.encode(self.memory), type=XidMemory)
        return self

    @property
    def faults(self) -> list[str]:
        return [finding.reason for finding in self.judgement.findings if finding.severity == "Fault"]

    @property
    def warnings(self) -> list[str]:
        return [finding.reason for finding in self.judgement.findings if finding.severity == "Warning"]

    @property
    def status(self) -> Status | None:
        return self.condition.status if self.condition is not None else None

    def the(self, reason: str) -> Finding:
        """Give the finding of this reason."""
        (found,) = [finding for finding in self.judgement.findings if finding.reason == reason]
        return found


def reasons_of(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    return {(finding.reason, finding.part.pci) for finding in findings}
