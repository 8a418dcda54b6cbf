"""GPUs that should be there and are not: fewer than expected on the PCI bus or in NVML, or one that cannot be reached.

**What it means.** A GPU that is gone takes its node: the device plugin then fails pods on the other GPUs as well. The
message says which GPU, or how many are there, how many are expected and who says so.

**How it is detected.** GPUs are counted on the PCI bus (sysfs, which needs no driver) and by NVML, and each is asked to
identify itself. How many there should be is said, in this order, by `spec.expected` of the node's NodeHealth, by the
instance type, by the label nvidia.com/gpu.count and by the count that was last validated; `spec.expected` decides alone,
of the others the largest counts, since each of them can only be too small. A GPU more than expected is no fault. MIG changes
nothing: GPUs are counted, not their instances.

A GPU that was lost stands until it answers again, until a person or a proven repair clears it, or until the node boots. A
GPU that was on the bus in this boot and is not now is lost, and so is one that only the bus or only NVML shows for
`confirm_seconds`, unless `spec.expected` is met without one that NVML does not count. Silence of NVML (a driver that is
away, a call that hangs, handles that were given up) neither raises nor ends a finding.

**What nodemend does.** It takes the node out, drains it and reboots it. If the GPU is still missing, a person is needed.

**What on-call does.** `nvidia-smi -L`, `lspci -d 10de:` and the kernel log of the boot. Reseat or replace the card. If the
node is to run with fewer GPUs, say so: `kubectl patch nodehealth NODE --type merge -p
'{"spec":{"expected":{"gpus":7,"source":"card 3 removed, ticket 1234"}}}'`. `kubectl-nodemend repaired NODE` ends the
findings and accepts the number that is there as validated; it does not overrule an instance type.

**Unknown** means that for `unknown_after_seconds` the bus could not be read (PciBusUnread) or a GPU could not be asked
(GpusNotAsked); until then what stood stands. Not evaluated where NVML is switched off (`[nvml] enabled = false`) or the GPUs
are passed through to virtual machines.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement, NotEvaluated
from checks.clearing import Applied, acted_on, newly_cleared, read_back
from checks.condition import Healthy, Unreadable
from checks.expected import Expectation, expectation
from checks.finding import NODE, Finding, Part, PartKind, has_gpu
from checks.gpu_missing_reasons import BUS_UNREAD, COUNT_BELOW, GPU_LOST, NOT_ASKED
from checks.nvml_error import OnGpu, meaning, told
from checks.nvml_word import (
    NvmlObservation,
    Word,
    gpu_part,
    in_order,
    not_asked,
    spoken,
    watched_ms,
    why_not_asked,
)
from checks.observation import GpuReading, NvmlRead, Observation
from checks.standing import Standing

NAME = "gpu_missing"
MOST_NAMED = 8
NOBODY_SAYS = (
    "nobody says how many GPUs there should be: neither spec.expected nor the instance type, the label "
    "nvidia.com/gpu.count or a validated count"
)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU in the last round. `silent` says why it did not answer, empty where it did."""

    part: Part
    silent: str = ""


class GpuMissingMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements; all of it ends with the boot.

    `bus`: every address that held a GPU in this boot. `counted` and `asked` are NVML's last round. `apart_ms`: for how
    long only one of bus and NVML has shown the GPU at an address. `blind_ms`: for how long health was not confirmed.
    """

    boot_id: str = ""
    at: datetime | None = None
    word: Word = Word()
    counted: int | None = None
    asked: tuple[Asked, ...] = ()
    bus: tuple[str, ...] = ()
    apart_ms: dict[str, int] = {}
    findings: tuple[Finding, ...] = ()
    blind_ms: int = 0
    applied: Applied = Applied()


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge which GPUs are there. Never raises for any observation."""
    if why_not_asked(context):
        return Judgement(exists=False, not_evaluated=not_asked(NAME, context), memory=memory)
    judging = _Judging(_adopt(memory, context), context)
    for heard in in_order(observations):
        judging.hear(heard)
    judging.look_at_bus()
    judging.count()
    return judging.judgement()


def restore(findings: Sequence[Finding], memory: Any) -> GpuMissingMemory:
    """Let findings stand again that the agent read back, unless a clearing that was acted on ended them."""
    kept = memory if isinstance(memory, GpuMissingMemory) else GpuMissingMemory()
    boot_id = kept.boot_id or (findings[0].boot_id if findings else "")
    standing = read_back(kept.findings, findings, boot_id, kept.applied)
    return msgspec.structs.replace(kept, boot_id=boot_id, findings=standing)


def _adopt(memory: Any, context: Context) -> GpuMissingMemory:
    """Take up the memory of this boot, without what was cleared since."""
    kept = memory if isinstance(memory, GpuMissingMemory) else GpuMissingMemory(boot_id=context.boot_id)
    if context.boot_id and kept.boot_id and kept.boot_id != context.boot_id:
        return GpuMissingMemory(boot_id=context.boot_id)
    is_cleared = newly_cleared(kept.applied, context)
    findings = tuple(finding for finding in kept.findings if not is_cleared(finding))
    anew = context.cleared_before not in (None, kept.applied.before)
    return msgspec.structs.replace(
        kept,
        boot_id=kept.boot_id or context.boot_id,
        findings=findings,
        bus=() if anew else kept.bus,
        applied=acted_on(kept.applied, context),
    )


class _Judging:
    """One judgement under way."""

    def __init__(self, before: GpuMissingMemory, context: Context) -> None:
        self._before = before
        self._context = context
        self._elapsed_ms = watched_ms(before.at, context)
        silent_ms = before.word.silent_ms + self._elapsed_ms
        self._word = msgspec.structs.replace(before.word, silent_ms=silent_ms)
        self._counted, self._asked = before.counted, before.asked
        self._standing = Standing(before.findings, before.boot_id, context.now)
        self._bus = frozenset(context.bus or ())
        self._apart_ms: dict[str, int] = {}
        self._expected: Expectation = expectation(context)
        self._known = {part.pci: part for part in context.parts if part.pci}

    def hear(self, heard: NvmlObservation) -> None:
        """Take one word of NVML."""
        self._word = spoken(heard)
        if isinstance(heard, NvmlRead):
            self._take_round(heard)

    def _take_round(self, read: NvmlRead) -> None:
        earlier = {one.part.index: one.part for one in self._asked}
        asked = []
        for gpu in read.gpus:
            part = gpu_part(gpu, self._known, earlier)
            lost = next((error for error in gpu.errors if meaning(error).gpu is OnGpu.LOST), None)
            if lost is not None:
                self._lose(part, "NVML says that it is lost", (told(lost),))
            asked.append(Asked(part=part, silent=why_silent(gpu)))
        self._counted, self._asked = read.count, tuple(asked)
        for one in asked:
            # The driver may go on answering from memory for a GPU that left the bus.
            on_bus = one.part.pci in self._bus or not one.part.pci or not self._comparable()
            if not one.silent and on_bus:
                self._standing.end(GPU_LOST, one.part)
                self._standing.end(GPU_LOST, _nameless(one.part.index))

    def _lose(self, part: Part, detail: str, evidence: tuple[str, ...] = ()) -> None:
        """Let a GPU be lost; the first word about it stays, so that the message stands still."""
        held = self._standing.get(GPU_LOST, part)
        if held is not None:
            detail, evidence = held.detail, held.evidence or evidence
        self._standing.see(GPU_LOST, part, detail, evidence)

    def _addresses(self) -> frozenset[str]:
        return frozenset(one.part.pci for one in self._asked if one.part.pci)

    def _comparable(self) -> bool:
        """Say whether bus and NVML name GPUs alike: where not one address agrees, they do not."""
        addresses = self._addresses()
        return not self._bus or not addresses or bool(self._bus & addresses)

    def look_at_bus(self) -> None:
        """Find what left the bus, and what only the bus shows."""
        if self._context.bus is None:
            return
        for pci in sorted(set(self._before.bus) - self._bus):
            self._lose(self._at(pci), "it was on the PCI bus in this boot and is not now")
        if not self._word.reads or not self._comparable():
            self._apart_ms = dict(self._before.apart_ms)
            return
        missed = self._bus - self._addresses()
        if self._context.expected is not None and (self._counted or 0) >= self._context.expected:
            for pci in missed:
                self._standing.end(GPU_LOST, self._at(pci))
        elif len(missed) > sum(not one.part.pci for one in self._asked):
            self._doubt(missed, "it is on the PCI bus, and NVML does not count it")
        self._doubt(self._addresses() - self._bus, "NVML counts it, and the PCI bus does not show it")

    def _doubt(self, addresses: Iterable[str], detail: str) -> None:
        """Lose GPUs that only one of the two shows, once that has lasted: one of them was read before the other."""
        confirm_ms = 1000 * max(0, self._context.settings["confirm_seconds"])
        for pci in sorted(addresses):
            held = self._before.apart_ms.get(pci)
            self._apart_ms[pci] = 0 if held is None else held + self._elapsed_ms
            if self._apart_ms[pci] >= confirm_ms:
                self._lose(self._at(pci), detail)

    def _at(self, pci: str) -> Part:
        return self._known.get(pci, Part(kind=PartKind.GPU, pci=pci))

    def count(self) -> None:
        """Hold the numbers against what is expected."""
        expected = self._expected.gpus
        on_bus = len(self._bus) if self._context.bus is not None else None
        lost = {finding.part.pci for finding in self._standing.of(GPU_LOST)}
        # A GPU that is lost already, or waits to be, is not missing a second time.
        counted = (self._counted or 0) + len((lost | set(self._apart_ms)) - self._addresses())
        if expected is not None and on_bus is not None and on_bus < expected:
            self._standing.see(COUNT_BELOW, NODE, self._short(on_bus, "on the PCI bus"))
        elif expected is not None and self._word.reads and counted < expected:
            self._standing.see(COUNT_BELOW, NODE, self._short(self._counted or 0, "in NVML"))
        elif self._bus_is_fresh() and self._word.reads and not set(self._apart_ms) - lost:
            self._standing.end(COUNT_BELOW, NODE)

    def _bus_is_fresh(self) -> bool:
        return self._context.bus is not None and not self._context.bus_error

    def _short(self, found: int, where: str) -> str:
        expected = self._expected
        words = f"{found} of {expected.gpus} GPUs {where}; {expected.gpus} are expected ({expected.source})"
        gone = sorted({*self._context.last_validated_pci, *self._before.bus} - self._bus)
        if gone and self._context.bus is not None:
            more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
            words += f"; gone since last time: {', '.join(gone[:MOST_NAMED])}{more}"
        return words

    def judgement(self) -> Judgement:
        """Say what stands, and whether the rest is known to be well."""
        blind = self._why_not_well()
        blind_ms = self._before.blind_ms + self._elapsed_ms if blind is not None else 0
        patience_ms = 1000 * max(0, self._context.settings["unknown_after_seconds"])
        memory = GpuMissingMemory(
            boot_id=self._before.boot_id,
            at=self._context.now,
            word=self._word,
            counted=self._counted,
            asked=self._asked,
            bus=tuple(sorted({*self._before.bus, *self._bus})),
            apart_ms=self._apart_ms,
            findings=self._standing.findings(),
            blind_ms=blind_ms,
            applied=self._before.applied,
        )
        return Judgement(
            findings=memory.findings,
            unreadable=blind,
            not_yet=blind.message if blind is not None and blind_ms < patience_ms else "",
            exists=self._exists(memory),
            not_evaluated=self._not_evaluated(),
            memory=memory,
        )

    def _exists(self, memory: GpuMissingMemory) -> bool | None:
        if memory.findings or memory.bus or self._expected.gpus:
            return True
        return None if self._context.bus is None else False

    def _not_evaluated(self) -> tuple[NotEvaluated, ...]:
        whys = list(self._expected.others)
        if self._expected.gpus is None and (self._bus or self._counted):
            whys.append(NOBODY_SAYS)
        if not self._comparable():
            whys.append("PCI bus and NVML name no GPU alike, so one that only one of them shows is not found")
        return tuple(NotEvaluated(check=NAME, part="node", why=why) for why in whys)

    def _why_not_well(self) -> Unreadable | None:
        """Say why nobody can say that all is well; a finding that stands says so by itself."""
        if not self._bus_is_fresh():
            why = self._context.bus_error or "it has not been read yet"
            return Unreadable(reason=BUS_UNREAD.name, message=f"the PCI bus cannot be read: {why}"[:1024])
        why = (
            self._why_not_asked()
            if self._word.reads
            else self._word.why or "no round of NVML has come so far, or none for a while"
        )
        return Unreadable(reason=NOT_ASKED.name, message=why[:1024]) if why else None

    def _why_not_asked(self) -> str:
        silent = [f"{one.part.shown()}: {one.silent}" for one in self._asked if one.silent]
        if silent:
            return "; ".join(silent)
        if self._counted != len(self._asked):
            return f"NVML counts {self._counted} GPUs and {len(self._asked)} were asked"
        return f"PCI bus and NVML do not agree about {', '.join(self._apart_ms)}" if self._apart_ms else ""


def _nameless(index: int | None) -> Part:
    """Give the part that a GPU without any name was lost as."""
    return gpu_part(GpuReading(index=index or 0), {}, {})


def why_silent(gpu: GpuReading) -> str:
    """Say why a GPU did not answer; one that gives any name of itself does."""
    if gpu.quiet:
        return f"it is not asked: {gpu.quiet}"
    lost = [error for error in gpu.errors if meaning(error).gpu is OnGpu.LOST]
    if lost or not (gpu.uuid or gpu.model or gpu.serial):
        return ", ".join(told(error) for error in (lost or gpu.errors)[:1]) or "it says nothing of itself"
    return ""


CHECK = Check(
    name=NAME,
    condition="GpuMissing",
    healthy=Healthy(reason="AllGpusPresent", message="every GPU that should be there is there and answers"),
    reasons=(COUNT_BELOW, GPU_LOST),
    judge=judge,
    applies=has_gpu,
    memory_type=GpuMissingMemory,
    runbook=__doc__,
    default_settings={
        "confirm_seconds": 90,
        "unknown_after_seconds": 180,
    },
    why_settings={
        "confirm_seconds": "The bus is read once a minute and NVML every half minute: after 90 seconds both were read anew, "
        "so that a GPU which only one of them shows is no matter of who looked first.",
        "unknown_after_seconds": "Three readings of the bus, one a minute: Unknown comes after three failed tries.",
    },
    unknown_reasons=(BUS_UNREAD, NOT_ASKED),
    restore=restore,
    # The bus is read right before NVML is asked, so there is nothing to wait for.
    single_look={"confirm_seconds": 0, "unknown_after_seconds": 0},
)
