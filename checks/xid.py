"""XID and SXID errors in the kernel log: the NVIDIA driver says that a GPU or an NVSwitch needs something done.

**What it means.** The driver writes a numbered line (`NVRM: Xid (PCI:0000:3b:00): 79, ...`) for each error of a GPU, and
`SXid` lines for switches. Most numbers are about a program, not about the hardware; only those whose number takes
something away turn this condition True. The message names each sick part with its reason.

**How it is detected.** From the kernel log as it is written. A reason stands from its first line until the node boots
again, a person or a proven repair clears it (`spec.clearedBefore` of the node's NodeHealth, `spec.cleared` for a GPU that
was reset alone), or the driver says that the GPU has recovered; silence of the log does not heal. Lines of programs (XID
13, 31, 43, 45 and their like), of codes that nobody knows and of lines that cannot be placed are shown in NodeHealth as
warnings and never take a node out. What lines mean together:

- XID 154 and NVML's polled recovery action say what the driver itself wants of a GPU: a Recovery reason of its own, which
  names the XIDs within half a minute and takes the place of their action. "None" after that ends what a reset ends on that
  GPU; XID 64 and 79 stay, and so do 48 and 119 where they came back after such a recovery.
- XID 48 with 63, 64, 171 or 172 is one finding, and so is SXID 20034 with XID 74 or 79. XID 144 to 150 are decoded by
  unit, sub-code and status; where the peer is the source, this GPU is only warned about. 94 with `RST: Yes` is a reset now.
- The registers of XID 74 are read where the GPU is known to be Hopper: corrected errors alone are a warning there.
- XID 45, and NVLink errors that only an XID 154 explains, are held for half a minute: nobody says meanwhile that all is
  well. An XID that NVML told and whose line does not come within ten seconds counts by itself. Nobody waits for an XID 154
  that this driver is too old to write.
- A code that NVIDIA's catalogue does not list for the GPU's product says so; its effect stays, and its reset or reboot is
  left to a person unless the driver asks for it. Where product or driver is not known, nothing changes.
- XID 13 or 31 on one GPU for different workloads within a day makes the GPU suspect (XidRepeatsAcrossPods).

**What nodemend does.** What the reason's row says: its effect, its urgency and its action. Lines that did not come from
the kernel itself never count, except in a drill, which is marked as one.

**What on-call does.** Read the evidence with `kubectl get nodehealth NODE -o yaml`, then the reason's own text
(`kubectl-nodemend runbook REASON`). After a repair by hand: `kubectl-nodemend repaired NODE`.

**Unknown** means that the kernel log cannot be read: see KernelLogUnreadable. Lost records are counted and shown; what the
driver wants of each GPU is polled beside the log, so an XID 154 among them is not missed.

**Not evaluated** is nothing here: what NVML cannot tell, the log still does.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from checks.check import Check, Clearing, Context, Judgement
from checks.clearing import Applied, acted_on, newly_cleared, was_cleared
from checks.condition import Healthy, Unreadable
from checks.finding import NODE, Finding, Part, has_gpu
from checks.nvml_word import in_order
from checks.observation import (
    KERNEL_LOG,
    KernelRecord,
    NvmlEvent,
    NvmlRead,
    Observation,
    RecordsLost,
    SourceFailed,
    SourceRead,
)
from checks.xid_ledger import MAX_FINDINGS
from checks.xid_line import Pending, printable
from checks.xid_reasons import (
    HELD_BACK,
    LOG_NOT_READ,
    LOG_UNREADABLE,
    RECORDS_LOST,
    UNKNOWN_REASONS,
    all_reasons,
)
from checks.xid_recovery import RECOVERY_REASONS
from checks.xid_repeats import ACROSS_PODS
from checks.xid_story import DEFAULT_SETTINGS, Joins, Story

TRIES_BEFORE_UNKNOWN = 3
WHY_SETTINGS = {
    "join_seconds": "Lines of one fault come within seconds; half a minute is what NVIDIA's flow for XID 48 with 63 and 64 "
    "and the programs that read XID 154 use, whichever line comes first.",
    "hold_seconds": "NVIDIA's decode table for XID 144 to 150 says to wait for the XID 154 of the same GPU; half a minute "
    "is the wait in use, else the program is restarted. XID 45 waits as long for its cause.",
    "poll_settle_seconds": "A round of NVML asks all GPUs one after the other, on a busy node for seconds: a value that was "
    "read just before an XID 154 came must not contradict it.",
    "nvml_event_wait_seconds": "A kernel line is read within a second of being written, and NVML's event comes at about the "
    "same time; one that is alone for ten seconds stays alone: the log cannot be read, or records were lost.",
    "nvml_event_same_seconds": "Line and event of one XID lie within milliseconds; a few seconds allow for a busy machine.",
    "repeat_window_hours": "XID 13 or 31 twice within a day on one GPU is what the field reads as a pattern.",
    "repeat_pods": "One program fails for its own reasons; two that have nothing to do with each other, on one GPU, do not.",
}


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
    joins: Joins = Joins()


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge what the kernel log said. Never raises for any observation; the same records judged twice change nothing."""
    before = _adopt(memory, context)
    story = Story(
        boot_id=before.boot_id,
        findings=before.findings,
        omitted=before.omitted,
        last_sequence=before.last_sequence,
        pending=before.pending,
        identities=before.identities,
        joins=before.joins,
        context=context,
    )
    for heard in in_order(observations):
        story.learn(heard)
    # By sequence, so that a batch that arrives shuffled loses none; whether the log can be read goes by what came last.
    for record in sorted((o for o in observations if isinstance(o, KernelRecord)), key=lambda r: r.sequence):
        story.take_record(record)
    source = _Source(before, story)
    for observation in observations:
        source.take(observation)
    for heard in in_order(observations):
        if isinstance(heard, NvmlRead):
            story.take_round(heard)
    waits_for = story.finish()
    is_cleared = newly_cleared(_applied(before), context)
    findings = tuple(f for f in story.ledger.findings(story.identify) if not is_cleared(f))
    applied = acted_on(_applied(before), context)
    after = msgspec.structs.replace(
        before,
        last_sequence=story.last_sequence,
        findings=findings,
        identities=story.identities,
        pending=story.pending,
        was_read=source.was_read,
        failed_tries=source.failed_tries,
        failure=source.failure,
        omitted=story.ledger.omitted,
        applied=applied.before,
        applied_clearings=applied.parts,
        joins=story.joins(),
    )
    unreadable, not_yet = _why_unreadable(after, waits_for)
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


class _Source:
    """Whether the log can be read, what of it is lost, and what NVML told beside it."""

    def __init__(self, before: XidMemory, story: Story) -> None:
        self._boot_id = before.boot_id
        self._story = story
        self.was_read = before.was_read
        self.failed_tries = before.failed_tries
        self.failure = before.failure

    def take(self, observation: Observation) -> None:
        match observation:
            case KernelRecord(boot_id=boot_id) if boot_id == self._boot_id:
                self._readable()
            case RecordsLost(source=source) if source == KERNEL_LOG:
                # No sign that the log can be read: where it can, a record or a SourceRead comes with it.
                why, count = printable(observation.why), max(1, observation.count)
                self._story.ledger.see(RECORDS_LOST, NODE, observation.seen_at, why, count=count)
            case SourceRead(source=source) if source == KERNEL_LOG:
                self._readable()
            case SourceFailed(source=source) if source == KERNEL_LOG:
                # A restarted reader counts its tries anew; until something was read, the source has not recovered.
                self.failed_tries = max(self.failed_tries, observation.tries)
                self.failure = printable(observation.error)
            case NvmlEvent():
                self._story.take_event(observation)
            case _:
                pass

    def _readable(self) -> None:
        self.was_read, self.failed_tries, self.failure = True, 0, ""


def _why_unreadable(memory: XidMemory, waits_for: str) -> tuple[Unreadable | None, str]:
    if memory.failed_tries >= TRIES_BEFORE_UNKNOWN:
        message = f"the kernel log cannot be read: {memory.failure}"
        return Unreadable(reason=LOG_UNREADABLE.name, message=message), ""
    if not memory.was_read:
        message = "the kernel log has not been read yet"
        return Unreadable(reason=LOG_NOT_READ.name, message=message), message
    if waits_for:
        return Unreadable(reason=HELD_BACK.name, message=waits_for), waits_for
    return None, ""


CHECK = Check(
    name="xid",
    condition="GpuXidError",
    healthy=Healthy(reason="NoXidError", message="no XID or SXID that needs action since the node booted"),
    reasons=(*all_reasons(), *RECOVERY_REASONS.values(), ACROSS_PODS),
    judge=judge,
    applies=has_gpu,
    memory_type=XidMemory,
    runbook=__doc__,
    default_settings=DEFAULT_SETTINGS,
    why_settings=WHY_SETTINGS,
    single_look={"hold_seconds": 0, "nvml_event_wait_seconds": 0},
    unknown_reasons=UNKNOWN_REASONS,
    restore=restore,
)
