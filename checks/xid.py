"""XID and SXID errors in the kernel log: the NVIDIA driver says that a GPU or an NVSwitch needs something done.

**What it means.** The driver writes a numbered line (`NVRM: Xid (PCI:0000:3b:00): 79, ...`) for each error of a GPU, and
`SXid` lines for switches. Most numbers are about a program, not about the hardware; only those whose number takes
something away turn this condition True. The message names each sick part with its reason.

**How it is detected.** From the kernel log as it is written. A reason stands from its first line until the node boots
again or a person or a proven repair clears it (`spec.clearedBefore` of the node's NodeHealth, `spec.cleared` for a GPU
that was reset alone); silence of the log does not heal. Lines of programs (XID 13, 31, 43, 45 and their like), of codes
that nobody knows and of lines that cannot be placed are shown in NodeHealth as warnings and never take a node out.

**What nodemend does.** What the reason's row says: its effect, its urgency and its action. Lines that did not come from
the kernel itself never count, except in a drill, which is marked as one.

**What on-call does.** Read the evidence with `kubectl get nodehealth NODE -o yaml`, then the reason's own text
(`kubectl-nodemend runbook REASON`). After a repair by hand: `kubectl-nodemend repaired NODE`.

**Unknown** means that the kernel log cannot be read: see KernelLogUnreadable.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_never

import msgspec

from checks.check import Check, Clearing, Context, Judgement
from checks.clearing import Applied, acted_on, newly_cleared, was_cleared
from checks.condition import Healthy, Unreadable
from checks.finding import Finding, Part, PartKind
from checks.observation import KERNEL_LOG, KernelRecord, Observation, RecordsLost, SourceFailed, SourceRead
from checks.xid_ledger import MAX_FINDINGS, Ledger
from checks.xid_line import (
    IdentityLine,
    Line,
    OffBusLine,
    Pending,
    SxidLine,
    UnreadableLine,
    XidLine,
    printable,
    read,
)
from checks.xid_reasons import (
    FINDINGS_OMITTED,
    LOG_NOT_READ,
    LOG_UNREADABLE,
    RECORDS_LOST,
    UNKNOWN_CODE,
    UNKNOWN_REASONS,
    UNREADABLE_LINE,
    XID_REASONS,
    all_reasons,
    sxid_reason,
)

TRIES_BEFORE_UNKNOWN = 3
MAX_IDENTITIES = 64
FALLEN_OFF_BUS = 79
OFF_BUS_DETAIL = "fell off the bus without an XID"
NODE = Part(kind=PartKind.NODE)


class XidMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements and over restarts of the agent; all of it ends with the boot.

    `last_sequence` makes reading the log again harmless. `applied` is the newest clearing that was acted on, so that a
    fault seen after it stands even where this machine's clock lags behind the one that cleared; `applied_clearings` are
    those of single parts.
    """

    boot_id: str = ""
    last_sequence: int = -1
    findings: tuple[Finding, ...] = ()
    identities: tuple[Part, ...] = ()
    pending: Pending | None = None
    was_read: bool = False
    failed_tries: int = 0
    failure: str = ""
    omitted: int = 0
    applied: datetime | None = None
    applied_clearings: tuple[Clearing, ...] = ()


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge what the kernel log said. Never raises for any observation; the same records judged twice change nothing."""
    before = _adopt(memory, context)
    is_cleared = newly_cleared(_applied(before), context)
    judging = _Judging(before, context)
    # By sequence, so that a batch that arrives shuffled loses none; whether the log can be read goes by what came last.
    for record in sorted((o for o in observations if isinstance(o, KernelRecord)), key=lambda r: r.sequence):
        judging.take_record(record)
    for observation in observations:
        judging.take_state(observation)
    if judging.ledger.omitted > before.omitted:
        lost = judging.ledger.omitted - before.omitted
        judging.ledger.see(FINDINGS_OMITTED, NODE, context.now, "", count=lost)
    findings = judging.ledger.findings(judging.identify)
    findings = tuple(finding for finding in findings if not is_cleared(finding))
    after = judging.memory(findings)
    unreadable, not_yet = _why_unreadable(after)
    return Judgement(findings=findings, unreadable=unreadable, not_yet=not_yet, memory=after)


def restore(findings: Sequence[Finding], memory: Any) -> XidMemory:
    """Latch findings again that the agent read back: of two accounts of one fault the real and newer one goes first.

    What a clearing ended that this memory acted on stays ended: the account is older than the clearing.
    """
    kept = memory if isinstance(memory, XidMemory) else XidMemory()
    boot_id = kept.boot_id or (findings[0].boot_id if findings else "")
    accounts = {finding.key(): finding for finding in kept.findings}
    ours = [f for f in findings if f.boot_id == boot_id and not was_cleared(_applied(kept), f)]
    for finding in ours[:MAX_FINDINGS]:
        held = accounts.get(finding.key())
        if held is None or (not held.drill, held.last_seen) < (not finding.drill, finding.last_seen):
            accounts[finding.key()] = finding
    return msgspec.structs.replace(kept, boot_id=boot_id, findings=tuple(accounts.values()))


def _adopt(memory: Any, context: Context) -> XidMemory:
    """Take up the memory of this boot; a new boot starts afresh, an unreadable boot id starts nothing."""
    kept = memory if isinstance(memory, XidMemory) else XidMemory(boot_id=context.boot_id)
    if context.boot_id and kept.boot_id and kept.boot_id != context.boot_id:
        return XidMemory(boot_id=context.boot_id)
    return msgspec.structs.replace(
        kept,
        boot_id=kept.boot_id or context.boot_id,
        findings=_without_cleared(kept, context),
    )


def _without_cleared(memory: XidMemory, context: Context) -> tuple[Finding, ...]:
    is_cleared = newly_cleared(_applied(memory), context)
    return tuple(finding for finding in memory.findings if not is_cleared(finding))


def _applied(memory: XidMemory) -> Applied:
    return Applied(before=memory.applied, parts=memory.applied_clearings)


class _Judging:
    """One judgement under way."""

    def __init__(self, before: XidMemory, context: Context) -> None:
        self.ledger = Ledger(before.findings, before.boot_id, before.omitted)
        self._before = before
        self._context = context
        self._last_sequence = before.last_sequence
        self._pending = before.pending
        self._known = {part.pci: part for part in before.identities}
        self._present = {part.pci: part for part in context.parts if part.kind is PartKind.GPU and part.pci}
        self._was_read = before.was_read
        self._failed_tries = before.failed_tries
        self._failure = before.failure

    def take_state(self, observation: Observation) -> None:
        """Note whether the log can be read, and what of it is lost."""
        match observation:
            case KernelRecord(boot_id=boot_id) if boot_id == self._before.boot_id:
                self._readable()
            case RecordsLost(source=source) if source == KERNEL_LOG:
                # No sign that the log can be read: where it can, a record or a SourceRead comes with it.
                why = printable(observation.why)
                self.ledger.see(RECORDS_LOST, NODE, observation.seen_at, why, count=max(1, observation.count))
            case SourceRead(source=source) if source == KERNEL_LOG:
                self._readable()
            case SourceFailed(source=source) if source == KERNEL_LOG:
                # A restarted reader counts its tries anew; until something was read, the source has not recovered.
                self._failed_tries = max(self._failed_tries, observation.tries)
                self._failure = printable(observation.error)
            case _:
                pass

    def identify(self, part: Part) -> Part:
        """Fill in what is known of a GPU by now; what was known when the fault was seen is never overwritten."""
        known = self._present.get(part.pci) or self._known.get(part.pci)
        if part.kind is not PartKind.GPU or known is None:
            return part
        told = self._known.get(part.pci, known)
        return Part(
            kind=part.kind,
            pci=part.pci,
            uuid=part.uuid or known.uuid or told.uuid,
            index=known.index if part.index is None else part.index,
            serial=part.serial or known.serial or told.serial,
            name=part.name or known.name,
        )

    def memory(self, findings: tuple[Finding, ...]) -> XidMemory:
        applied = acted_on(_applied(self._before), self._context)
        return XidMemory(
            boot_id=self._before.boot_id,
            last_sequence=self._last_sequence,
            findings=findings,
            identities=tuple(self._known.values()),
            pending=self._pending,
            was_read=self._was_read,
            failed_tries=self._failed_tries,
            failure=self._failure,
            omitted=self.ledger.omitted,
            applied=applied.before,
            applied_clearings=applied.parts,
        )

    def _readable(self) -> None:
        self._was_read, self._failed_tries, self._failure = True, 0, ""

    def take_record(self, record: KernelRecord) -> None:
        """Read one record, unless it is of another boot or was read before."""
        if record.boot_id != self._before.boot_id or record.sequence <= self._last_sequence:
            return
        self._last_sequence = record.sequence
        # Userspace cannot write with facility 0, so a container cannot forge a record that passes here.
        if record.facility != 0 and not record.drill:
            return
        line, self._pending = read(record.text, record.sequence, self._pending)
        if line is None:
            return
        when = record.seen_at if record.happened_at is None else min(record.happened_at, record.seen_at)
        if record.happened_at is None or not self._was_cleared(line, when):
            self._take_line(line, record, when)

    def _was_cleared(self, line: Line, when: datetime) -> bool:
        """Tell what a repair or a person dealt with already, where a record is read that waited for us in the log."""
        cleared = self._context.cleared_before
        if cleared is not None and when <= cleared:
            return True
        if not isinstance(line, XidLine | OffBusLine):
            return False
        gpu = self.identify(_gpu(line.pci))
        return any(one.covers(gpu) and when <= one.before for one in self._context.clearings)

    def _take_line(self, line: Line, record: KernelRecord, when: datetime) -> None:
        text, drill = record.text, record.drill
        match line:
            case XidLine():
                self._take_xid(line, when, text, drill=drill)
            case OffBusLine():
                # The driver often prints this right behind its XID 79: one event, not two.
                gpu, reason = _gpu(line.pci), XID_REASONS[FALLEN_OFF_BUS]
                if not self.ledger.holds(reason, gpu, drill=drill):
                    self.ledger.see(reason, gpu, when, text, detail=OFF_BUS_DETAIL, drill=drill)
            case SxidLine(continuation=True):
                pass  # more data of the SXID before it
            case SxidLine():
                switch = Part(kind=PartKind.NVSWITCH, pci=line.pci, name=line.switch)
                detail = f"SXID {line.code} {line.text}".rstrip()
                reason = sxid_reason(line.code, fatal=line.fatal)
                self.ledger.see(reason, switch, when, text, detail=detail, drill=drill)
            case IdentityLine():
                self._learn(line)
            case UnreadableLine():
                self.ledger.see(UNREADABLE_LINE, NODE, when, text, drill=drill)
            case _:
                assert_never(line)

    def _take_xid(self, line: XidLine, when: datetime, text: str, *, drill: bool) -> None:
        gpu = _gpu(line.pci)
        reason = XID_REASONS.get(line.code)
        if reason is None:
            self.ledger.see(UNKNOWN_CODE, gpu, when, text, detail=f"code {line.code}", drill=drill)
            self.ledger.amend(UNKNOWN_CODE, gpu, f"code {line.code}")
            return
        detail = _detail(line)
        told = line.code == FALLEN_OFF_BUS and self.ledger.reword(
            reason, gpu, OFF_BUS_DETAIL, detail, drill=drill
        )
        self.ledger.see(reason, gpu, when, text, detail=detail, count=0 if told else 1, drill=drill)

    def _learn(self, line: IdentityLine) -> None:
        old = self._known.pop(line.pci, Part(kind=PartKind.GPU, pci=line.pci))
        self._known[line.pci] = msgspec.structs.replace(
            old, uuid=line.uuid or old.uuid, serial=line.serial or old.serial
        )
        if len(self._known) > MAX_IDENTITIES:
            del self._known[next(iter(self._known))]


def _gpu(pci: str) -> Part:
    return Part(kind=PartKind.GPU, pci=pci)


def _detail(line: XidLine) -> str:
    """Say what the finding's first line said; later lines do not change it, so the condition's message stands still."""
    if line.gpu_instance is None:
        return line.text
    instance = f"MIG GI {line.gpu_instance}"
    if line.compute_instance is not None:
        instance += f" CI {line.compute_instance}"
    return f"{instance}: {line.text}" if line.text else instance


def _why_unreadable(memory: XidMemory) -> tuple[Unreadable | None, str]:
    if memory.failed_tries >= TRIES_BEFORE_UNKNOWN:
        message = f"the kernel log cannot be read: {memory.failure}"
        return Unreadable(reason=LOG_UNREADABLE.name, message=message), ""
    if not memory.was_read:
        message = "the kernel log has not been read yet"
        return Unreadable(reason=LOG_NOT_READ.name, message=message), message
    return None, ""


CHECK = Check(
    name="xid",
    condition="GpuXidError",
    healthy=Healthy(reason="NoXidError", message="no XID or SXID that needs action since the node booted"),
    reasons=tuple(all_reasons()),
    judge=judge,
    applies=lambda parts: any(part.kind is PartKind.GPU for part in parts),
    memory_type=XidMemory,
    runbook=__doc__,
    unknown_reasons=UNKNOWN_REASONS,
    restore=restore,
)
