"""PCIe links of GPUs and NVSwitches that run narrow, slow or noisy, and devices that left the bus.

**What it means.** Copies between host, network and GPU are slow, and everything that waits for that GPU waits longer; a job
over many GPUs runs at the pace of the worst link. PcieDeviceUnresponsive is more: the device does not answer at all.

**How it is detected.** Every half minute sysfs is read for GPUs, NVSwitches and the bridges above them (no driver needed),
and NVML for GPUs. Expected is what both ends of a link can do, so a card that is better than its slot is a warning
(PcieSlotLimited) and no fault. The width always counts. The speed of a GPU's own link counts only while the GPU is awake
(performance state 0 before and after), since it drops while idle; the speed of all other links always does. Where the narrow
link is one between bridges above the device, the message names it, and every GPU below it has the finding. Errors (AER by
name, NVML's replays) count by their growth within `window_seconds`; replays and mended errors are measured against what the
link's specified error rate allows, by generation and width.

**What nodemend does.** New work prefers other GPUs; once the node is idle it is rebooted, which trains the links anew. A
device that does not answer takes the node out at once. Errors that were counted end after `calm_seconds` without new ones.

**What on-call does.** `lspci -vvv -s ADDRESS` for the addresses in the message, `nvidia-smi -q -d PCIE`, `lspci -t`. What
comes back after a reboot is a seat, a riser, a cable or a card.

**Unknown** means that for three looks sysfs or NVML could not be read (PcieUnreadable). Not evaluated: GPUs attached by
NVLink-C2C (GH200, GB200, GB300), whose PCIe registers say nothing; in virtual machines the bridges above, which are made up,
so that a link counts as narrow or slow there only beside a better one of another GPU of the same kind;
errors where the kernel has no AER; what `[pci] enabled = false` or `[nvml] enabled = false` switches off. Links of HCAs
are judged by InfinibandPortDegraded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement
from checks.condition import Healthy, worst_first
from checks.finding import NODE, Finding, PartKind, has_gpu
from checks.growth import Growth
from checks.nvml_look import Answered, hear_whole_rounds
from checks.nvml_word import not_asked, why_not_asked
from checks.observation import Observation, SourceFailed
from checks.pci_reading import PCI, PciRead
from checks.pcie_bus import C2C, NOT_JUDGED, BusLook
from checks.pcie_nvml import beside, is_by_c2c, nvml_words
from checks.pcie_reasons import (
    BUS_REASONS,
    CORRECTABLE_STORM,
    FATAL_ERRORS,
    NON_FATAL_ERRORS,
    NVML_REASONS,
    REASONS,
    REPLAY_STORM,
    SLOT_LIMITED,
    SPEED_REDUCED,
    UNREADABLE,
    UNRESPONSIVE,
    WIDTH_REDUCED,
)
from checks.polled import Polled, PolledMemory, Rule, Word, nobody_looks, restored
from checks.rates import Rates, Series

NAME = "pcie"
DEFAULTS: dict[str, Any] = {
    "unresponsive_seconds": 60,
    "degraded_seconds": 120,
    "window_seconds": 600,
    "calm_seconds": 3000,
    "replay_percent": 100,
    "correctable_percent": 100,
    "fatal_errors": 1,
    "nonfatal_errors": 1,
    "sysfs_speed": True,
}
WHY = {
    "unresponsive_seconds": "three looks: a GPU that is being reset answers all ones for some seconds",
    "degraded_seconds": "links train anew within seconds of a reset; one that is still worse after four looks stays so",
    "window_seconds": "DCGM allows so many replays a minute; ten minutes of that tell noise from one bad minute",
    "calm_seconds": "with the window an hour: errors of one job stay in sight while it runs",
    "replay_percent": "100 = DCGM's limit for the generation and width of the link, which its specified error rate allows",
    "correctable_percent": "as replays: nearly every error that a link mends costs it one",
    "fatal_errors": "the kernel's AER documentation: a fatal error makes the link unreliable, so the first counts",
    "nonfatal_errors": "a transaction was lost; requests that software should not have made are not counted",
    "sysfs_speed": "true, since no NVSwitch, HCA or switch lowers its speed by itself; false where firmware does by load",
}


class BusMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one source. `told`: as `checks.growth` keeps it."""

    polled: PolledMemory = PolledMemory()
    rates: dict[str, Series] = {}
    told: dict[str, int] = {}


class PcieMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Both sources are folded by themselves, so that neither's silence hides behind the other.

    `c2c`: GPUs that NVML said are attached that way. `is_guest`: the last look at sysfs saw a virtual machine.
    """

    bus: BusMemory = BusMemory()
    nvml: BusMemory = BusMemory()
    c2c: tuple[str, ...] = ()
    is_guest: bool = False


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge the links of all GPUs and NVSwitches. Never raises for any observation."""
    held = memory if isinstance(memory, PcieMemory) else PcieMemory()
    looks = [seen for seen in _of_bus(observations) if isinstance(seen, PciRead)]
    if looks:
        held = msgspec.structs.replace(held, is_guest=looks[-1].virtual_machine)
    nvml, c2c = _judge_nvml(observations, held, context)
    held = msgspec.structs.replace(held, nvml=nvml.memory, c2c=c2c)
    bus = _judge_bus(observations, held, context)
    gpus = sum(part.kind is PartKind.GPU for part in context.parts)
    return _together(bus, nvml, msgspec.structs.replace(held, bus=bus.memory), gpus)


def restore(findings: Sequence[Finding], memory: Any) -> PcieMemory:
    """Let findings stand again that the agent read back: each with the source that will say when it is over."""
    held = memory if isinstance(memory, PcieMemory) else PcieMemory()
    by_nvml = [finding for finding in findings if _is_told_by_nvml(finding)]
    by_bus = [finding for finding in findings if finding not in by_nvml and finding.part != NODE]
    bus = restored(by_bus, held.bus.polled, BUS_REASONS)
    nvml = restored(by_nvml, held.nvml.polled, NVML_REASONS)
    return msgspec.structs.replace(
        held,
        bus=msgspec.structs.replace(held.bus, polled=bus),
        nvml=msgspec.structs.replace(held.nvml, polled=nvml),
    )


def _is_told_by_nvml(finding: Finding) -> bool:
    own_speed = finding.reason == SPEED_REDUCED.name and finding.part.kind is PartKind.GPU
    return own_speed or finding.reason == REPLAY_STORM.name


def _judge_bus(observations: Sequence[Observation], held: PcieMemory, context: Context) -> Judgement:
    if nothing := nobody_looks(NAME, PCI, held.bus, context):
        return nothing
    fold = _Fold(held.bus, BUS_REASONS, context)
    known = {part.pci: part for part in context.parts if part.pci and part.kind is PartKind.GPU}
    look = BusLook(known, held.c2c, fold.growth, fold.rates, context.settings)
    for seen in _of_bus(observations):
        if not isinstance(seen, PciRead):
            fold.polled.fail(f"the PCI bus cannot be read: {seen.error}", seen.tries)
        elif words := look.words(seen):
            fold.polled.hear(fold.polled.keep_standing(words, ends=(C2C, NOT_JUDGED)))
        else:
            fold.polled.fail("the look at the PCI bus showed no GPU and no NVSwitch")
    return fold.judgement()


def _judge_nvml(
    observations: Sequence[Observation], held: PcieMemory, context: Context
) -> tuple[Judgement, tuple[str, ...]]:
    if why_not_asked(context):
        rows = not_asked(NAME, context)
        return Judgement(exists=False, not_evaluated=rows, memory=held.nvml), held.c2c
    fold = _Fold(held.nvml, NVML_REASONS, context)
    c2c = set(held.c2c)

    def words_of(answered: Sequence[Answered]) -> Iterator[Word]:
        for gpu, health, part in ((one.gpu, one.health, one.part) for one in answered):
            if health.pcie is not None and is_by_c2c(health.pcie) and gpu.pci:
                c2c.add(gpu.pci)
            others = beside(gpu.model, answered) if held.is_guest else None
            words = nvml_words(health, part, fold.growth, fold.rates, context.settings, beside=others)
            yield from fold.polled.keep_standing(words, ends=(C2C,))

    hear_whole_rounds(observations, fold.polled, context, words_of, NAME)
    return fold.judgement(), tuple(sorted(c2c))


class _Fold:
    """One source's fold, rates and growth, from its memory."""

    def __init__(self, held: BusMemory, reasons: Sequence[Any], context: Context) -> None:
        self.polled = Polled(NAME, reasons, _rules(context.settings), held.polled, context)
        if held.polled.boot_id not in {"", self.polled.before.boot_id}:
            held = BusMemory()
        window_ms = 1000 * max(1, context.settings["window_seconds"])
        self.rates = Rates(held.rates, self.polled.clock_ms, window_ms)
        self.growth = Growth(self.rates, held.told)
        # Bridges are shared, so what is dealt with for one GPU is for all that is counted above it.
        if any(self.polled.is_just_cleared(part) for part in (NODE, *context.parts)):
            self.growth.forget(lambda _: True)

    def judgement(self) -> Judgement:
        memory = BusMemory(polled=self.polled.memory(), rates=self.rates.memory(), told=self.growth.memory())
        return self.polled.judgement(UNREADABLE, memory)


def _rules(settings: Mapping[str, Any]) -> dict[str, Rule]:
    degraded = Rule(raise_after_s=settings["degraded_seconds"])
    counted = Rule(clear_after_s=settings["calm_seconds"])
    return {
        UNRESPONSIVE.name: Rule(raise_after_s=settings["unresponsive_seconds"]),
        **{reason.name: degraded for reason in (WIDTH_REDUCED, SPEED_REDUCED, SLOT_LIMITED)},
        **{
            reason.name: counted
            for reason in (FATAL_ERRORS, NON_FATAL_ERRORS, REPLAY_STORM, CORRECTABLE_STORM)
        },
    }


def _of_bus(observations: Sequence[Observation]) -> list[PciRead | SourceFailed]:
    seen = [
        one
        for one in observations
        if isinstance(one, PciRead) or (isinstance(one, SourceFailed) and one.source == PCI)
    ]
    return sorted(seen, key=lambda one: one.seen_at)


def _together(bus: Judgement, nvml: Judgement, memory: PcieMemory, gpus: int) -> Judgement:
    """Put both accounts together: a finding that both have is one, and who cannot tell outweighs who can."""
    findings = {finding.key(): finding for finding in nvml.findings}
    for finding in bus.findings:
        other = findings.get(finding.key(), finding)
        began = min(finding.first_seen, other.first_seen)
        findings[finding.key()] = msgspec.structs.replace(finding, first_seen=began)
    blind = [one for one in (bus, nvml) if one.exists is not False and one.unreadable is not None]
    worst = min(blind, key=lambda one: bool(one.not_yet), default=Judgement())
    return Judgement(
        findings=tuple(worst_first(_of_the_machine(list(findings.values()), gpus))),
        unreadable=worst.unreadable,
        not_yet=worst.not_yet,
        exists=False if bus.exists is False and nvml.exists is False else None,
        not_evaluated=tuple(
            {(row.part, row.why): row for row in (*bus.not_evaluated, *nvml.not_evaluated)}.values()
        ),
        memory=memory,
    )


def _of_the_machine(findings: list[Finding], gpus: int) -> list[Finding]:
    """Say once of the machine that all its GPUs are better than their slots: so it was built, or so its firmware is set."""
    limited = [one for one in findings if one.reason == SLOT_LIMITED.name and one.part.kind is PartKind.GPU]
    if len(limited) < 2 or len(limited) < gpus:
        return findings
    first = min(limited, key=lambda one: one.part)
    of_all = msgspec.structs.replace(
        first,
        part=NODE,
        detail=f"all {len(limited)} GPUs, such as {first.part.shown()}: {first.detail}",
        first_seen=min(one.first_seen for one in limited),
        last_seen=max(one.last_seen for one in limited),
    )
    return [*(one for one in findings if one not in limited), of_all]


CHECK = Check(
    name=NAME,
    condition="GpuPcieDegraded",
    healthy=Healthy(
        reason="PcieLinksHealthy", message="PCIe links are as wide and fast as both their ends can"
    ),
    reasons=REASONS,
    judge=judge,
    applies=has_gpu,
    memory_type=PcieMemory,
    runbook=__doc__,
    default_settings=DEFAULTS,
    why_settings=WHY,
    unknown_reasons=(UNREADABLE,),
    restore=restore,
    single_look={"unresponsive_seconds": 0, "degraded_seconds": 0},
)
