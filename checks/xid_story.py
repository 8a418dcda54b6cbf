"""One judgement of the kernel log under way: records, polled fields and events in, findings and what is kept out. Pure.

Each line is laid on a part and a reason; what lines mean together is for the modules that this one calls: the driver's
wishes (checks.xid_recovery), lines of one incident (checks.xid_incident), what waits for another word (checks.xid_waits),
what repeats (checks.xid_repeats), what NVIDIA lists for this product and driver (checks.xid_gate). Lines of a drill open
their own finding and take no part in any of that.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, assert_never

import msgspec

from checks.check import Context
from checks.finding import NODE, Action, Finding, Part, PartKind, Reason, Severity, Urgency, is_same_part
from checks.nvlink4 import is_harmless
from checks.nvlink4 import where_to_look as look_at
from checks.observation import KernelRecord, NvmlEvent, NvmlRead, Observation
from checks.recovery import CODE as RECOVERY_CODE
from checks.recovery import Recovery
from checks.xid_action import Decoded
from checks.xid_gate import Gates
from checks.xid_incident import WORDS, Incidents
from checks.xid_lately import Lately
from checks.xid_ledger import Ledger
from checks.xid_line import (
    IdentityLine,
    Line,
    OffBusLine,
    Pending,
    SxidLine,
    UnreadableLine,
    XidLine,
    read,
)
from checks.xid_meaning import decode, detail_of, reason_of, where_to_look
from checks.xid_reasons import (
    FALLEN_OFF_BUS,
    FINDINGS_OMITTED,
    NVLINK_CORRECTED,
    UNKNOWN_CODE,
    UNREADABLE_LINE,
    XID_REASONS,
    sxid_reason,
)
from checks.xid_recovery import FOLLOWERS, RECOVERY_CHANGED, RECOVERY_REASONS, Recoveries, Wish, wish_of_text
from checks.xid_repeats import ACROSS_PODS, Repeats, Sight
from checks.xid_repeats import CODES as REPEATING_CODES
from checks.xid_waits import PREEMPTED, UNKNOWN_NUMBER, Hold, Waits

MAX_IDENTITIES = 64
NO_CAUSE = FOLLOWERS | {RECOVERY_CODE}
OFF_BUS_DETAIL = "fell off the bus without an XID"
NVML_TOLD = "told by an NVML event, without a line of the kernel log"
XID_EVENT = 8
"""The bit of an XID among NVML's events (nvmlEventTypeXidCriticalError)."""

DEFAULT_SETTINGS: dict[str, Any] = {
    "join_seconds": 30,
    "hold_seconds": 30,
    "poll_settle_seconds": 10,
    "nvml_event_wait_seconds": 10,
    "nvml_event_same_seconds": 5,
    "repeat_window_hours": 24,
    "repeat_pods": 2,
}


class Joins(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept so that lines can be joined with those before them; all of it small and bounded."""

    lately: dict[str, dict[int, datetime]] = {}
    holds: tuple[Hold, ...] = ()
    told: tuple[Hold, ...] = ()
    sights: tuple[Sight, ...] = ()
    came_back: tuple[str, ...] = ()
    driver: str = ""
    models: dict[str, str] = {}


class Story:
    """Mutable only inside one judgement."""

    def __init__(
        self,
        *,
        boot_id: str,
        findings: tuple[Finding, ...],
        omitted: int,
        last_sequence: int,
        pending: Pending | None,
        identities: Iterable[Part],
        joins: Joins,
        context: Context,
    ) -> None:
        self._settings = {**DEFAULT_SETTINGS, **context.settings}
        self._context = context
        self._boot_id = boot_id
        self._omitted = omitted
        self._known = {part.pci: part for part in identities}
        self._present = {part.pci: part for part in context.parts if part.kind is PartKind.GPU and part.pci}
        self.last_sequence = last_sequence
        self.pending = pending
        self.ledger = Ledger(findings, boot_id, omitted)
        within = self._within = self._seconds("join_seconds")
        self._lately = Lately(joins.lately)
        self._recoveries = Recoveries(
            self.ledger,
            findings,
            self._lately,
            joins.came_back,
            within=within,
            settles=self._seconds("poll_settle_seconds"),
        )
        self._incidents = Incidents(self.ledger, findings, self._lately, within)
        self._waits = Waits(joins.holds, joins.told)
        self._gates = Gates(joins.driver, joins.models)
        self._window = timedelta(hours=int(self._settings["repeat_window_hours"]))
        self._repeats = Repeats(
            (sight for sight in joins.sights if not self._dealt_with(_gpu(sight.pci), sight.at)), self._window
        )

    @property
    def identities(self) -> tuple[Part, ...]:
        """What the driver's own lines told of the GPUs."""
        return tuple(self._known.values())

    def joins(self) -> Joins:
        """Give what is to be kept."""
        holds, told = self._waits.kept
        return Joins(
            lately=self._lately.kept(),
            holds=holds,
            told=told,
            sights=self._repeats.kept(),
            came_back=self._recoveries.came_back,
            driver=self._gates.driver,
            models=self._gates.models,
        )

    def learn(self, observation: Observation) -> None:
        """Take what NVML says of products and driver: it holds for lines that come in the same batch too."""
        self._gates.hear(observation)

    def take_record(self, record: KernelRecord) -> None:
        """Read one record, unless it is of another boot or was read before."""
        if record.boot_id != self._boot_id or record.sequence <= self.last_sequence:
            return
        self.last_sequence = record.sequence
        # Userspace cannot write with facility 0, so a container cannot forge a record that passes here.
        if record.facility != 0 and not record.drill:
            return
        line, self.pending = read(record.text, record.sequence, self.pending)
        if line is None:
            return
        when = record.seen_at if record.happened_at is None else min(record.happened_at, record.seen_at)
        if record.happened_at is None or not self._was_cleared(line, when):
            self._take_line(line, record, when)

    def take_round(self, heard: NvmlRead) -> None:
        """Take what the driver wants of each GPU, as NVML tells it: it covers lines that were lost or never written."""
        for gpu in heard.gpus:
            if gpu.pci and gpu.recovery is not None:
                part = _gpu(gpu.pci)
                if not self._dealt_with(part, heard.seen_at):
                    self._recoveries.polled(
                        part, gpu.recovery, heard.seen_at, self._holder(part), self._context.now
                    )
                    if self._recoveries.holds(part):
                        self._waits.release(gpu.pci)

    def take_event(self, event: NvmlEvent) -> None:
        """Take an XID that NVML told; the kernel's line of it is worth more."""
        if event.kind != XID_EVENT or event.boot_id != self._boot_id:
            return
        pci = event.pci or next(
            (p.pci for p in self._present.values() if event.uuid and p.uuid == event.uuid), ""
        )
        if not self._dealt_with(_gpu(pci), event.seen_at):
            same = self._seconds("nvml_event_same_seconds")
            self._waits.tell(pci, event.data, event.seen_at, self._lately, same)

    def finish(self) -> str:
        """Draw what only time decides; say for what is still waited, in words."""
        now = self._context.now
        over, telling = self._waits.telling(now, self._seconds("nvml_event_wait_seconds"))
        for told in over:
            self._count_told(told)
        for pci, when in self._recoveries.recovered.items():
            self._repeats.forget(pci, when)
        pods = int(self._settings["repeat_pods"])
        for sight, words in self._repeats.suspects(now, self._seconds("join_seconds"), pods):
            self._suspect(sight, words)
        if self.ledger.omitted > self._omitted:
            lost = self.ledger.omitted - self._omitted
            self.ledger.see(FINDINGS_OMITTED, NODE, now, "", count=lost)
        held = self._waits.holding(now, self._seconds("hold_seconds"))
        if held:
            return f"XID {held[0].code} of the GPU at {held[0].pci} waits for the line that explains it"
        grave = [hold.code for hold in telling if _may_be_a_fault(hold.code)]
        return f"NVML told of XID {grave[0]}, which waits for its line in the kernel log" if grave else ""

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

    def _was_cleared(self, line: Line, when: datetime) -> bool:
        """Tell what a repair or a person dealt with already, where a record is read that waited for us in the log."""
        part = _gpu(line.pci) if isinstance(line, XidLine | OffBusLine) else NODE
        return self._dealt_with(part, when)

    def _dealt_with(self, part: Part, when: datetime) -> bool:
        cleared = self._context.cleared_before
        if cleared is not None and when <= cleared:
            return True
        if part.kind is not PartKind.GPU or not self._context.clearings:
            return False
        gpu = self.identify(part)
        return any(is_same_part(one, gpu) and when <= one.before for one in self._context.clearings)

    def _take_line(self, line: Line, record: KernelRecord, when: datetime) -> None:
        text, drill = record.text, record.drill
        match line:
            case XidLine() if drill:
                self._play(line, when, text)
            case XidLine():
                self._take_xid(line, when, text)
            case OffBusLine():
                self._take_off_bus(line, when, text, drill=drill)
            case SxidLine(continuation=True):
                pass  # more data of the SXID before it
            case SxidLine():
                self._take_sxid(line, when, text, drill=drill)
            case IdentityLine():
                self._learn(line)
            case UnreadableLine():
                self.ledger.see(UNREADABLE_LINE, NODE, when, text, drill=drill)
            case _:
                assert_never(line)

    def _take_xid(self, line: XidLine, when: datetime, text: str) -> None:
        gpu, code = _gpu(line.pci), line.code
        self._lately.see(line.pci, code, when)
        self._waits.said(line.pci, code)
        if code not in FOLLOWERS:
            self._waits.explain(line.pci, code)
        holder = self._holder(gpu)
        if code == RECOVERY_CODE:
            self._waits.release(line.pci)
            if self._recoveries.told(gpu, when, line.text, text, holder) is Recovery.UNKNOWN:
                self.ledger.see(RECOVERY_CHANGED, gpu, when, text, detail=line.text, holder=holder)
            return
        leader = self._incidents.leader(line.pci, code, when)
        if leader != code:
            self.ledger.see(XID_REASONS[leader], gpu, when, text, holder=holder)
            self.ledger.note(XID_REASONS[leader], gpu, WORDS[code])
            self._recoveries.on_xid(gpu, code, XID_REASONS[leader], when)
            return
        decoded = decode(line)
        bits = self._gates.registers(line)
        reason = NVLINK_CORRECTED if bits and is_harmless(bits) else reason_of(line, decoded)
        is_first = self.ledger.seen(reason, gpu) is None
        self._see(line, reason, when, text, holder=holder, drill=False)
        words = where_to_look(line, decoded) if decoded is not None else look_at(bits) if bits else ""
        if words:
            self.ledger.note(reason, gpu, words)
        if is_first:
            self._doubt(code, reason, gpu)
        self._incidents.gather(gpu, code, when)
        if self._awaits(line, decoded, when):
            self._waits.hold(line.pci, code, when, line.caused_by)
        self._recoveries.on_xid(gpu, code, reason, when)
        if code in REPEATING_CODES:
            self._repeats.see(line.pci, code, line.text, holder, when)

    def _play(self, line: XidLine, when: datetime, text: str) -> None:
        """Take a drill's line by itself: nothing that was played changes what is real."""
        wish = wish_of_text(line.text) if line.code == RECOVERY_CODE else None
        reason = RECOVERY_REASONS[wish] if isinstance(wish, Wish) else reason_of(line, decode(line))
        self._see(line, reason, when, text, holder="", drill=True)

    def _see(
        self, line: XidLine, reason: Reason, when: datetime, text: str, *, holder: str, drill: bool
    ) -> None:
        gpu = _gpu(line.pci)
        if reason is UNKNOWN_CODE:
            words = f"code {line.code}"
            self.ledger.see(reason, gpu, when, text, detail=words, drill=drill, holder=holder)
            self.ledger.amend(reason, gpu, words)
            return
        detail = detail_of(line)
        told = line.code == FALLEN_OFF_BUS and self.ledger.reword(
            reason, gpu, OFF_BUS_DETAIL, detail, drill=drill
        )
        count = 0 if told else 1
        self.ledger.see(reason, gpu, when, text, detail=detail, count=count, drill=drill, holder=holder)

    def _take_off_bus(self, line: OffBusLine, when: datetime, text: str, *, drill: bool) -> None:
        """The driver often prints this right behind its XID 79: one event, not two."""
        gpu, reason = _gpu(line.pci), XID_REASONS[FALLEN_OFF_BUS]
        if not drill:
            self._lately.see(line.pci, FALLEN_OFF_BUS, when)
            self._waits.said(line.pci, FALLEN_OFF_BUS)
        if not self.ledger.holds(reason, gpu, drill=drill):
            holder = self._holder(gpu)
            self.ledger.see(reason, gpu, when, text, detail=OFF_BUS_DETAIL, drill=drill, holder=holder)
            if not drill:
                self._incidents.gather(gpu, FALLEN_OFF_BUS, when)
                self._recoveries.on_xid(gpu, FALLEN_OFF_BUS, reason, when)

    def _take_sxid(self, line: SxidLine, when: datetime, text: str, *, drill: bool) -> None:
        switch = Part(kind=PartKind.NVSWITCH, pci=line.pci, name=line.switch)
        storm = None if drill else self._incidents.link_of(switch, line.code, when)
        if storm is not None:
            gpu, xid = storm
            self.ledger.see(XID_REASONS[xid], gpu, when, text, count=0)
            self.ledger.note(XID_REASONS[xid], gpu, f"with SXID {line.code} of {switch.shown()}")
            return
        detail = f"SXID {line.code} {line.text}".rstrip()
        reason = sxid_reason(line.code, fatal=line.fatal)
        self.ledger.see(reason, switch, when, text, detail=detail, drill=drill)

    def _doubt(self, code: int, reason: Reason, gpu: Part) -> None:
        """Leave to a person what NVIDIA does not list for this product; the driver's own wish may decide otherwise."""
        words = self._gates.not_listed(code, gpu.pci)
        finding = self.ledger.find(reason, gpu) if words else None
        if finding is None:
            return
        destroys = finding.action in {Action.RESET_GPU, Action.REBOOT}
        self.ledger.ask(finding, finding.action, Urgency.PERSON if destroys else finding.urgency, words)

    def _awaits(self, line: XidLine, decoded: Decoded | None, when: datetime) -> bool:
        """Tell whether another line decides what this one means, and has not been seen yet."""
        if self._recoveries.holds(_gpu(line.pci)):
            return False
        if line.code == PREEMPTED:
            near_it = self._lately.codes(line.pci, when, self._within)
            return NO_CAUSE.issuperset(near_it) if line.caused_by is None else line.caused_by not in near_it
        return (
            decoded is not None
            and decoded.awaits_recovery
            and self._gates.recovery_follows(line.code) is not False
        )

    def _count_told(self, told: Hold) -> None:
        text = f"NVML event: XID {told.code}"
        if not told.pci:
            self.ledger.see(UNREADABLE_LINE, NODE, told.at, f"{text} of a GPU that it does not name")
        elif told.code == UNKNOWN_NUMBER or told.code < 1:
            self.ledger.see(UNKNOWN_CODE, _gpu(told.pci), told.at, text, detail="NVML does not tell the code")
        else:
            self._take_xid(XidLine(code=told.code, pci=told.pci, text=NVML_TOLD), told.at, text)

    def _suspect(self, sight: Sight, words: str) -> None:
        gpu = _gpu(sight.pci)
        line = self.ledger.find(XID_REASONS[sight.code], gpu)
        text = line.evidence[-1] if line is not None and line.evidence else words
        self.ledger.see(ACROSS_PODS, gpu, sight.at, text, detail=words, holder=self._holder(gpu))

    def _learn(self, line: IdentityLine) -> None:
        old = self._known.pop(line.pci, Part(kind=PartKind.GPU, pci=line.pci))
        self._known[line.pci] = msgspec.structs.replace(
            old, uuid=line.uuid or old.uuid, serial=line.serial or old.serial
        )
        if len(self._known) > MAX_IDENTITIES:
            del self._known[next(iter(self._known))]

    def _holder(self, gpu: Part) -> str:
        """Give the pod that has the GPU now, as far as kubelet says."""
        holders = self._context.holders
        return (holders.get(gpu.pci) or holders.get(self.identify(gpu).uuid) or "") if holders else ""

    def _seconds(self, setting: str) -> timedelta:
        return timedelta(seconds=int(self._settings[setting]))


def _gpu(pci: str) -> Part:
    return Part(kind=PartKind.GPU, pci=pci)


def _may_be_a_fault(code: int) -> bool:
    """Tell whether an XID takes something away, or nobody knows."""
    reason = XID_REASONS.get(code)
    return reason is None or reason.severity is Severity.FAULT
