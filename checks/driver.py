"""The NVIDIA driver cannot be used: not loaded, without its user space, of two versions, or a call that does not return.

**What it means.** Whoever starts a program on a GPU of this node fails, the device plugin included. Running programs may go
on (LibraryMismatch, NvmlUnusable) or not (DriverNotLoaded, ProbeHung); the reason's row says so. Errors of a single GPU that
say something about it stand here too, except that it is lost, which is GpuMissing.

**How it is detected.** A process of its own asks NVML every half minute. An error of NVML as a whole is a fault only when it
comes from a process that was started after the trouble began (older ones keep the old library through a driver upgrade), and
after `grace_seconds` (10 minutes). A call that hangs is one when its process hangs for `hung_seconds`, when a second process
hangs on it as well, or when the GPU is left alone since. Errors of a GPU that name no cause must last for
`gpu_errors_seconds`. Waits count only while the agent watches, so that no clock that is set ends one.

Nothing is latched: once NVML, or the GPU, has answered for `settle_seconds`, the finding ends. A single good answer between
bad ones does not end it, and does not let a wait begin anew. While the driver is released, waits stand still.

**What nodemend does.** What the reason's row says. Only the reasons with urgency `now` cost running work.

**What on-call does.** Read the message and the kernel log; the reason's text says more (`kubectl-nodemend runbook REASON`).

**Unknown** has a reason of its own for each cause, and ends no work; it comes after `unknown_after_seconds`, DriverUpgrade
at once. Not evaluated where NVML is switched off (`[nvml] enabled = false`) or the GPUs are passed through to virtual
machines.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement, NotEvaluated
from checks.clearing import Applied, acted_on, newly_cleared, read_back
from checks.condition import Healthy, Unreadable
from checks.driver_reasons import (
    DRIVER_STARTING,
    DRIVER_UPGRADE,
    GPU_CALLS_FAIL,
    GPU_CALLS_REFUSED,
    GPU_REASONS,
    NVML_SILENT,
    PROBE_HUNG,
    PROBE_OVERDUE,
    REASONS,
    UNKNOWN_OF_WHOLE,
    UNKNOWN_REASONS,
    WHOLE_REASONS,
)
from checks.finding import NODE, Finding, Part, PartKind, Reason, Severity, has_gpu
from checks.nvml_error import OnGpu, meaning, told
from checks.nvml_word import (
    Kind,
    NvmlObservation,
    Word,
    gpu_part,
    in_order,
    not_asked,
    spoken,
    watched_ms,
    why_not_asked,
)
from checks.observation import (
    GpuReading,
    NvmlError,
    NvmlFailed,
    NvmlHung,
    NvmlRead,
    NvmlReleased,
    Observation,
)
from checks.standing import Standing
from checks.suspicion import Suspicion, Suspicions

NAME = "driver"
WHOLE = "nvml"
BY_NAME = {reason.name: reason for reason in REASONS}
NOT_SUPPORTED = 3


class DriverMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements; all of it ends with the boot.

    `failed` is the error of the last word, where that was one. `blind_ms`: for how long health could not be confirmed.
    `not_shown` is what the last round could not show.
    """

    boot_id: str = ""
    at: datetime | None = None
    word: Word = Word()
    failed: NvmlError | None = None
    suspicions: tuple[tuple[str, Suspicion], ...] = ()
    findings: tuple[Finding, ...] = ()
    not_shown: tuple[NotEvaluated, ...] = ()
    blind_ms: int = 0
    applied: Applied = Applied()


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge whether the driver can be used. Never raises for any observation."""
    if why_not_asked(context):
        return Judgement(exists=False, not_evaluated=not_asked(NAME, context), memory=memory)
    judging = _Judging(_adopt(memory, context), context)
    for heard in in_order(observations):
        judging.hear(heard)
    judging.conclude()
    return judging.judgement()


def restore(findings: Sequence[Finding], memory: Any) -> DriverMemory:
    """Let findings stand again that the agent read back, until the driver answers."""
    kept = memory if isinstance(memory, DriverMemory) else DriverMemory()
    boot_id = kept.boot_id or (findings[0].boot_id if findings else "")
    known = [finding for finding in findings if finding.reason in BY_NAME]
    standing = read_back(kept.findings, known, boot_id, kept.applied)
    return msgspec.structs.replace(kept, boot_id=boot_id, findings=standing)


def _adopt(memory: Any, context: Context) -> DriverMemory:
    """Take up the memory of this boot, without what was cleared since; each finding keeps what may end it."""
    kept = memory if isinstance(memory, DriverMemory) else DriverMemory(boot_id=context.boot_id)
    if context.boot_id and kept.boot_id and kept.boot_id != context.boot_id:
        return DriverMemory(boot_id=context.boot_id)
    is_cleared = newly_cleared(kept.applied, context)
    held = dict(kept.suspicions)
    for finding in kept.findings:
        slot = _slot(BY_NAME[finding.reason], finding.part)
        if is_cleared(finding):
            held.pop(slot, None)
        else:
            held.setdefault(slot, _suspicion_of(finding))
    return msgspec.structs.replace(
        kept,
        boot_id=kept.boot_id or context.boot_id,
        suspicions=tuple(held.items()),
        findings=tuple(finding for finding in kept.findings if not is_cleared(finding)),
        applied=acted_on(kept.applied, context),
    )


def _suspicion_of(finding: Finding) -> Suspicion:
    """Give what a finding that was read back goes on as: it was proven once, and stands until there is a good word."""
    return Suspicion(
        reason=finding.reason, part=finding.part, since=finding.first_seen, detail=finding.detail, sure=False
    )


def _slot(reason: Reason, part: Part) -> str:
    """Give what a suspicion is about: NVML as a whole has one trouble at a time, whatever its name is now."""
    return WHOLE if reason in WHOLE_REASONS.values() else f"{reason.name} {part.key()}"


class _Judging:
    """One judgement under way."""

    def __init__(self, before: DriverMemory, context: Context) -> None:
        self._before = before
        self._context = context
        self._elapsed_ms = watched_ms(before.at, context)
        self._word = msgspec.structs.replace(before.word, silent_ms=before.word.silent_ms + self._elapsed_ms)
        paused = before.word.kind is Kind.RELEASED
        self._suspicions = Suspicions(before.suspicions, 0 if paused else self._elapsed_ms)
        self._standing = Standing(before.findings, before.boot_id, context.now)
        self._failed = before.failed
        self._not_shown = before.not_shown
        self._known = {part.pci: part for part in context.parts if part.pci}

    def hear(self, heard: NvmlObservation) -> None:
        """Take one word of NVML."""
        self._word, self._failed = spoken(heard), None
        match heard:
            case NvmlRead():
                self._take_round(heard)
            case NvmlFailed():
                self._take_failure(heard)
            case NvmlHung():
                self._take_hang(heard)
            case NvmlReleased():
                self._pause()

    def _take_round(self, read: NvmlRead) -> None:
        self._suspicions.trust(WHOLE)
        self._suspicions.trust(_slot(PROBE_HUNG, NODE))
        self._not_shown = tuple(row for gpu in read.gpus for row in self._take_gpu(gpu, read))

    def _take_gpu(self, gpu: GpuReading, read: NvmlRead) -> list[NotEvaluated]:
        part = gpu_part(gpu, self._known, {})
        if gpu.quiet:
            hang = self._suspicions.get(_slot(PROBE_HUNG, part))
            if hang is not None:
                # It is not asked again, so a good word cannot come: the one hang is all that there will be.
                self._suspicions.suspect(_slot(PROBE_HUNG, part), msgspec.structs.replace(hang, sure=True))
            return [NotEvaluated(check=NAME, part=part.shown(), why=f"it is not asked: {gpu.quiet}")]
        answered = bool(gpu.uuid or gpu.model or gpu.serial)
        if answered:
            self._suspicions.trust(_slot(PROBE_HUNG, part))
        errors = {meaning(error).gpu: error for error in reversed(gpu.errors)}
        for kind, reason in GPU_REASONS.items():
            error = errors.get(kind)
            if error is None:
                if answered:
                    self._suspicions.trust(_slot(reason, part))
                continue
            detail = f"{meaning(error).says} ({told(error)})"
            new = Suspicion(
                reason=reason.name, part=part, since=read.seen_at, detail=detail, child=read.child
            )
            self._suspicions.suspect(_slot(reason, part), new)
        return [
            NotEvaluated(check=NAME, part=part.shown(), why=told(error))
            for error in gpu.errors
            if meaning(error).gpu is OnGpu.NOT_SHOWN and error.code != NOT_SUPPORTED
        ]

    def _take_failure(self, failed: NvmlFailed) -> None:
        self._failed = failed.error
        reason = WHOLE_REASONS.get(meaning(failed.error).whole)
        if reason is None:
            return
        new = Suspicion(
            reason=reason.name,
            part=NODE,
            since=min(failed.since, failed.seen_at),
            detail=told(failed.error),
            sure=failed.fresh,
            child=failed.child,
        )
        self._suspicions.suspect(WHOLE, new)

    def _take_hang(self, hung: NvmlHung) -> None:
        part = self._known.get(hung.pci) if hung.pci else None
        if part is None:
            on_gpu = bool(hung.pci or hung.uuid)
            part = Part(kind=PartKind.GPU, pci=hung.pci, uuid=hung.uuid) if on_gpu else NODE
        slot = _slot(PROBE_HUNG, part)
        held = self._suspicions.get(slot)
        again = held is not None and held.child not in (0, hung.child)
        new = Suspicion(
            reason=PROBE_HUNG.name,
            part=part,
            since=min(hung.since, hung.seen_at),
            detail=f"{hung.call} does not come back",
            sure=again or not hung.child_gone,
            bad_ms=self._setting_ms("hung_seconds") if again else 0,
            child=hung.child,
        )
        self._suspicions.suspect(slot, new)

    def _pause(self) -> None:
        """Forget what was only suspected: whoever works on the driver may do all of that to it."""
        for slot, suspicion in self._suspicions.all():
            if self._standing.get(BY_NAME[suspicion.reason], suspicion.part) is None:
                self._suspicions.drop(slot)

    def _setting_ms(self, name: str) -> int:
        return 1000 * max(0, int(self._context.settings[name]))

    def conclude(self) -> None:
        """Make findings of what has lasted, and end those that are well again."""
        for _, over in self._suspicions.settle(self._setting_ms("settle_seconds")):
            self._standing.end(BY_NAME[over.reason], over.part)
        for slot, suspicion in self._suspicions.all():
            reason = BY_NAME[suspicion.reason]
            if suspicion.bad and suspicion.sure and suspicion.bad_ms >= self._needed_ms(reason):
                if slot == WHOLE:
                    self._rename(reason)
                self._standing.see(reason, suspicion.part, suspicion.detail, first_seen=suspicion.since)

    def _needed_ms(self, reason: Reason) -> int:
        if reason in WHOLE_REASONS.values():
            return self._setting_ms("grace_seconds")
        if reason is PROBE_HUNG:
            return self._setting_ms("hung_seconds")
        return self._setting_ms("gpu_errors_seconds") if reason in (GPU_CALLS_FAIL, GPU_CALLS_REFUSED) else 0

    def _rename(self, reason: Reason) -> None:
        """End the other names of the one trouble that NVML as a whole has."""
        for other in WHOLE_REASONS.values():
            if other is not reason:
                self._standing.end(other, NODE)

    def judgement(self) -> Judgement:
        """Say what stands, and whether the rest is known to be well."""
        blind = self._why_not_well()
        blind_ms = 0
        if blind is not None:
            # Counted from this word on, since the one before was good; 1: it has just begun.
            blind_ms = self._before.blind_ms + self._elapsed_ms if self._before.blind_ms else 1
        patient = self._word.kind is not Kind.RELEASED and blind_ms < self._setting_ms(
            "unknown_after_seconds"
        )
        memory = DriverMemory(
            boot_id=self._before.boot_id,
            at=self._context.now,
            word=self._word,
            failed=self._failed,
            suspicions=self._suspicions.all(),
            findings=self._standing.findings(),
            not_shown=self._not_shown,
            blind_ms=blind_ms,
            applied=self._before.applied,
        )
        return Judgement(
            findings=memory.findings,
            unreadable=blind,
            not_yet=blind.message if blind is not None and patient else "",
            not_evaluated=memory.not_shown if self._word.reads else (),
            memory=memory,
        )

    def _why_not_well(self) -> Unreadable | None:
        """Say why nobody can say that all is well; a finding that stands says so by itself."""
        if self._word.kind is Kind.RELEASED:
            return _unreadable(DRIVER_UPGRADE, f"the driver was released: {self._word.why}")
        if self._failed is not None:
            return _unreadable(
                UNKNOWN_OF_WHOLE.get(meaning(self._failed).whole, DRIVER_STARTING), self._word.why
            )
        if self._word.kind is Kind.HUNG:
            return _unreadable(PROBE_OVERDUE, self._word.why)
        if not self._word.reads:
            return _unreadable(NVML_SILENT, "no round of NVML has come so far, or none for a while")
        for slot, suspicion in self._suspicions.all():
            if slot == WHOLE:
                return _unreadable(
                    DRIVER_STARTING, f"NVML answers again, but not for long ({suspicion.detail})"
                )
            if BY_NAME[suspicion.reason].severity is Severity.FAULT:
                return _unreadable(PROBE_OVERDUE, f"{suspicion.part.shown()}: {suspicion.detail}")
        return None


def _unreadable(reason: Reason, message: str) -> Unreadable:
    return Unreadable(reason=reason.name, message=message[:1024])


CHECK = Check(
    name=NAME,
    condition="GpuDriverFault",
    healthy=Healthy(reason="DriverUsable", message="NVML answers, and no GPU asks for anything"),
    reasons=REASONS,
    judge=judge,
    applies=has_gpu,
    memory_type=DriverMemory,
    runbook=__doc__,
    default_settings={
        "grace_seconds": 600,
        "hung_seconds": 60,
        "settle_seconds": 60,
        "gpu_errors_seconds": 180,
        "unknown_after_seconds": 90,
    },
    why_settings={
        "grace_seconds": "A driver that is upgraded, or loaded at boot, is away for minutes, with GPU Operator up to ten: "
        "no node is taken out for that.",
        "hung_seconds": "A call of NVML returns within a second, on a sick GPU in tens of them; the probe's own deadline is "
        "shorter. After a minute, or in a second process, it does not return.",
        "settle_seconds": "Two rounds, half a minute apart: one good answer between bad ones ends nothing.",
        "gpu_errors_seconds": "Errors that name no cause (Unknown, InUse, Timeout) pass with the load that brings them; six "
        "rounds in a row are no accident.",
        "unknown_after_seconds": "Three rounds of half a minute: Unknown comes after three failed tries, as everywhere.",
    },
    unknown_reasons=UNKNOWN_REASONS,
    restore=restore,
    single_look={"unknown_after_seconds": 0},
)
