"""Builders of kernel-log observations and contexts, with defaults of one healthy machine in one boot."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from checks.check import Context, Judgement
from checks.condition import Condition, fold
from checks.finding import Finding, Part, PartKind
from checks.observation import KERNEL_LOG, KernelRecord, Observation, RecordsLost, SourceFailed, SourceRead
from checks.xid import CHECK, XidMemory

BOOT = "11111111-aaaa-4aaa-8aaa-111111111111"
NEXT_BOOT = "22222222-bbbb-4bbb-8bbb-222222222222"
START = datetime(2026, 1, 1, tzinfo=UTC)
UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
GPU = Part(kind=PartKind.GPU, pci="0000:3b:00")


def at(seconds: float) -> datetime:
    """Give the instant `seconds` after the start."""
    return START + timedelta(seconds=seconds)


def record(
    sequence: int,
    text: str,
    *,
    facility: int = 0,
    drill: bool = False,
    boot_id: str = BOOT,
    seen_at: datetime | None = None,
    happened_at: datetime | None = None,
) -> KernelRecord:
    """Build a record seen `sequence` seconds after the start."""
    return KernelRecord(
        boot_id=boot_id,
        sequence=sequence,
        facility=facility,
        level=4,
        monotonic_us=sequence * 1_000_000,
        seen_at=at(sequence) if seen_at is None else seen_at,
        text=text,
        drill=drill,
        happened_at=happened_at,
    )


def xid(
    sequence: int, code: int, *, pci: str = "0000:3b:00", drill: bool = False, text: str = "Ch 00000008"
) -> KernelRecord:
    """Build the record of one XID."""
    return record(sequence, f"NVRM: Xid (PCI:{pci}): {code}, pid=9, name=trainer, {text}", drill=drill)


def was_read(seconds: float = 0) -> SourceRead:
    return SourceRead(source=KERNEL_LOG, seen_at=at(seconds))


def failed(tries: int, error: str = "/dev/kmsg: Operation not permitted") -> SourceFailed:
    return SourceFailed(source=KERNEL_LOG, error=error, tries=tries, seen_at=at(tries))


def lost(count: int, seconds: float = 0) -> RecordsLost:
    return RecordsLost(
        source=KERNEL_LOG, count=count, seen_at=at(seconds), why="the log ran over before it was read"
    )


def context(
    *,
    boot_id: str = BOOT,
    cleared_before: datetime | None = None,
    parts: Sequence[Part] = (),
    seconds: float = 100,
) -> Context:
    return Context(now=at(seconds), boot_id=boot_id, cleared_before=cleared_before, parts=tuple(parts))


def judged(
    observations: Sequence[Observation], memory: XidMemory | None = None, around: Context | None = None
) -> Judgement:
    """Judge with the XID check."""
    return CHECK.judge(observations, memory, around or context())


def condition(observations: Sequence[Observation], around: Context | None = None) -> Condition:
    """Judge and fold, as for a node that had no condition before."""
    judgement = judged(observations, None, around)
    return fold(
        CHECK.condition,
        findings=judgement.findings,
        unreadable=judgement.unreadable,
        healthy=CHECK.healthy,
        previous=None,
        now=at(100),
    )


def reasons(findings: Sequence[Finding]) -> list[str]:
    return [finding.reason for finding in findings]
