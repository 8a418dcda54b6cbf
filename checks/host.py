"""The host itself: what makes GPU work slow, fail at its start or hard to look into. Warnings alone.

**What it means.** None of this takes a node out of use by itself, and no Node condition is published. It is shown in
NodeHealth, in Events and metrics, and explains faults that stand beside it.

**How it is detected.** By procfs and sysfs, every `[host] period`: processes in uninterruptible sleep in two looks in a
row, errors that the memory controllers counted (EDAC), the kernel's word on its clock (adjtimex), the sockets of
kubelet and container runtime, nv-fabricmanager where the PCI bus shows NVSwitches, redirection by PCIe switches (ACS)
on bare metal where HCAs are, nvidia_peermem where `peermem_expected` says so. NVML says whether persistence mode is on.
The kernel's own lines about hardware errors and lockups (facility 0 alone) count for `kernel_line_seconds`.

**What nodemend does.** Nothing but to show it.

**What on-call does.** Read the reason's own text.

**Unknown** there is not, since there is no condition: what could not be read is listed as not evaluated.

**Not evaluated**: ACS in virtual machines; fabric manager without NVSwitches on the PCI bus; peermem unless it is expected;
counts of memory errors where no driver watches the controllers; services that left no socket; GPUs whose driver does not
tell; all of it where `[host] enabled = false`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement, NotEvaluated
from checks.condition import Healthy
from checks.finding import NODE, Finding, Part, PartKind, Reason
from checks.gpu_health import GpuHealth
from checks.host_lines import HostLines, Line
from checks.host_reading import FABRIC_MANAGER, HOST, KUBELET, RUNTIMES, HostRead
from checks.host_reasons import (
    ACS_REDIRECTS,
    CLOCK_UNSYNCHRONISED,
    FABRIC_MANAGER_DOWN,
    FROM_KERNEL,
    KUBELET_DOWN,
    MEMORY_CORRECTED,
    MEMORY_UNCORRECTED,
    PEERMEM_MISSING,
    PERSISTENCE_OFF,
    PROCESSES_STUCK,
    REASONS,
    RUNTIME_DOWN,
)
from checks.nvml_look import group_missing, hear_rounds
from checks.nvml_word import why_not_asked
from checks.observation import GpuReading, KernelRecord, Observation, SourceFailed
from checks.pci_reading import PciRead
from checks.polled import Polled, PolledMemory, Rule, Said, Word, nobody_looks, restored
from checks.rates import Rates, Series

NAME = "host"
ON_GPUS = (PERSISTENCE_OFF,)
ON_NODE = tuple(reason for reason in REASONS if reason not in ON_GPUS)
PEERMEM = "nvidia_peermem"
NAMED = 8


class Bus(msgspec.Struct, frozen=True, kw_only=True):
    """What the PCI bus last showed of the machine."""

    virtual_machine: bool
    hcas: int
    nvswitches: int


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements: one fold for the node and one for its GPUs, which NVML tells of."""

    node: PolledMemory | None = None
    gpus: PolledMemory | None = None
    rates: dict[str, Series] = {}
    bus: Bus | None = None
    lines: dict[str, Line] = {}


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge the host. Never raises for any observation."""
    if nothing := nobody_looks(NAME, HOST, memory, context):
        return nothing
    judging = _Judging(memory if isinstance(memory, HostMemory) else HostMemory(), context)
    # What is on the bus says which questions there are, also where both came at once.
    for seen in sorted(observations, key=lambda one: not isinstance(one, PciRead)):
        match seen:
            case KernelRecord():
                judging.lines.take(seen)
            case PciRead():
                judging.bus = _bus(seen)
            case HostRead():
                judging.take(seen)
            case SourceFailed(source=source, error=error, tries=tries) if source == HOST:
                judging.node.fail(error, tries)
            case _:
                pass
    if not why_not_asked(context):
        hear_rounds(observations, judging.gpus, context, _persistence, NAME)
    return judging.judgement()


def restore(findings: Sequence[Finding], memory: Any) -> HostMemory:
    """Let findings stand again that the agent read back."""
    kept = memory if isinstance(memory, HostMemory) else HostMemory()
    return msgspec.structs.replace(
        kept, node=restored(findings, kept.node, ON_NODE), gpus=restored(findings, kept.gpus, ON_GPUS)
    )


def _bus(read: PciRead) -> Bus:
    roles = [device.role for device in read.devices]
    return Bus(
        virtual_machine=read.virtual_machine, hcas=roles.count("hca"), nvswitches=roles.count("nvswitch")
    )


def _persistence(_: GpuReading, health: GpuHealth, part: Part) -> Iterator[Word]:
    on = health.clocks.persistence if health.clocks is not None else None
    if on is None:
        yield group_missing(health, "clocks", PERSISTENCE_OFF, part, "its persistence mode")
    else:
        yield _word(not on, PERSISTENCE_OFF, "persistence mode is off", part=part)


class _Judging:
    """One judgement under way."""

    def __init__(self, kept: HostMemory, context: Context) -> None:
        self._settings = settings = context.settings
        self.node = Polled(NAME, ON_NODE, _rules(settings), kept.node, context)
        self.gpus = Polled(NAME, ON_GPUS, _rules(settings), kept.gpus, context)
        if kept.node is not None and kept.node.boot_id not in ("", self.node.before.boot_id):
            kept = HostMemory()
        self.bus = kept.bus
        self._window_ms = settings["memory_window_seconds"] * 1000
        # What was counted up to a clearing was dealt with.
        anew = context.cleared_before not in (None, self.node.before.applied.before)
        self._rates = Rates({} if anew else kept.rates, self.node.clock_ms, self._window_ms)
        window_ms = settings["kernel_line_seconds"] * 1000
        self.lines = HostLines(kept.lines, self.node.clock_ms, context, window_ms)

    def judgement(self) -> Judgement:
        """Say what stands; there is no condition, so nothing of it is Unknown."""
        memory = HostMemory(
            node=self.node.memory(),
            gpus=self.gpus.memory(),
            rates=self._rates.memory(),
            bus=self.bus,
            lines=self.lines.kept(),
        )
        both = [fold.judgement(REASONS[0], None) for fold in (self.node, self.gpus)]
        return Judgement(
            findings=tuple(finding for one in both for finding in one.findings),
            not_evaluated=tuple(row for one in both for row in one.not_evaluated),
            exists=True,
            memory=memory,
        )

    def take(self, read: HostRead) -> None:
        """Take one look; what could not be read is listed, and what stood of it stands."""
        words = [
            *self._processes(read),
            *self._memory(read),
            *self._clock(read),
            *self._services(read),
            *self._gpu_direct(read),
            *self._lines(),
        ]
        unread = [
            NotEvaluated(check=NAME, part="node", why=f"{name} could not be read: {read.errors[name]}")
            for name in sorted(read.errors)
        ]
        self.node.hear(words, unread)

    def _processes(self, read: HostRead) -> Iterator[Word]:
        if read.stuck is None:
            yield from _silent(read, "d_state", PROCESSES_STUCK, "uninterruptible sleep is not shown")
            return
        limit = self._settings["stuck_processes"]
        named = tuple(f"{name} (pid {pid})" for pid, name in (read.d_state or ())[:NAMED])
        detail = f"{limit} processes or more stay in uninterruptible sleep"
        yield _word(read.stuck >= limit, PROCESSES_STUCK, detail, *named)

    def _memory(self, read: HostRead) -> Iterator[Word]:
        hours = self._window_ms // 3_600_000
        for field, reason, limit in (
            ("edac_corrected", MEMORY_CORRECTED, self._settings["memory_corrected"]),
            ("edac_uncorrected", MEMORY_UNCORRECTED, 1),
        ):
            value: int | None = getattr(read, field)
            if value is None:
                yield from _silent(read, field, reason, "no driver watches the memory controllers (EDAC)")
                continue
            self._rates.count(field, value)
            detail = f"{limit} or more within {hours} hours"
            is_bad = self._rates.grown(field, self._window_ms) >= limit
            yield _word(is_bad, reason, detail, f"{field} {value}")

    def _clock(self, read: HostRead) -> Iterator[Word]:
        if read.clock_synchronised is None:
            yield from _silent(read, "clock_synchronised", CLOCK_UNSYNCHRONISED, "the kernel does not tell")
        else:
            yield _word(not read.clock_synchronised, CLOCK_UNSYNCHRONISED, "adjtimex says STA_UNSYNC")

    def _services(self, read: HostRead) -> Iterator[Word]:
        services = read.services or {}
        runtimes = [name for name in RUNTIMES if name in services]
        if runtimes:
            down = not any(services[name] for name in runtimes)
            yield _word(down, RUNTIME_DOWN, f"{', '.join(runtimes)}: the socket takes no connection")
        else:
            yield from _silent(read, "services", RUNTIME_DOWN, "no container runtime has a socket")
        if KUBELET in services:
            yield _word(not services[KUBELET], KUBELET_DOWN, "its socket takes no connection")
        else:
            yield from _silent(read, "services", KUBELET_DOWN, "kubelet has no socket")
        if self.bus is None or not self.bus.nvswitches:
            yield _not_shown(FABRIC_MANAGER_DOWN, "no NVSwitch was seen on the PCI bus")
        elif FABRIC_MANAGER in services:
            yield _word(not services[FABRIC_MANAGER], FABRIC_MANAGER_DOWN, "it does not run")

    def _gpu_direct(self, read: HostRead) -> Iterator[Word]:
        if self.bus is None or not self.bus.hcas:
            yield _not_shown(ACS_REDIRECTS, "no HCA was seen on the PCI bus")
        elif self.bus.virtual_machine:
            yield _not_shown(ACS_REDIRECTS, "this is a virtual machine, whose bridges are not the real ones")
        elif read.acs is None:
            yield from _silent(read, "acs", ACS_REDIRECTS, "no PCIe switch is above a GPU or HCA")
        else:
            count = f"{len(read.acs)} bridges redirect"
            yield _word(bool(read.acs), ACS_REDIRECTS, count, *read.acs[:NAMED])
        if not self._settings["peermem_expected"]:
            yield _not_shown(PEERMEM_MISSING, "nobody says that nvidia_peermem is needed (peermem_expected)")
        elif read.modules is None:
            yield from _silent(read, "modules", PEERMEM_MISSING, "the kernel shows no modules")
        else:
            yield _word(PEERMEM not in read.modules, PEERMEM_MISSING, f"{PEERMEM} is not loaded")

    def _lines(self) -> Iterator[Word]:
        lines = self.lines.kept()
        for reason in FROM_KERNEL:
            line = lines.get(reason.name)
            yield _word(line is not None, reason, "the kernel says so", line.text if line is not None else "")


def _silent(read: HostRead, field: str, reason: Reason, why: str) -> Iterator[Word]:
    """Say that it is not shown, unless it could not be read: then what stood stands."""
    if field in read.errors:
        yield Word(said=Said.UNREADABLE, reason=reason, part=NODE, detail=read.errors[field])
    else:
        yield _not_shown(reason, why)


def _not_shown(reason: Reason, why: str) -> Word:
    return Word(said=Said.NOT_SHOWN, reason=reason, part=NODE, detail=f"{reason.name}: {why}")


def _word(is_bad: bool, reason: Reason, detail: str, *evidence: str, part: Part = NODE) -> Word:
    if not is_bad:
        return Word(said=Said.GOOD, reason=reason, part=part)
    return Word(
        said=Said.BAD, reason=reason, part=part, detail=detail, evidence=tuple(filter(None, evidence))
    )


def _rules(settings: dict[str, Any]) -> dict[str, Rule]:
    raise_s, clear_s = settings["raise_seconds"], settings["clear_seconds"]
    at_once = {MEMORY_CORRECTED, MEMORY_UNCORRECTED, *FROM_KERNEL}
    rules = {
        reason.name: Rule(raise_after_s=0 if reason in at_once else raise_s, clear_after_s=clear_s)
        for reason in REASONS
    }
    clock = Rule(raise_after_s=settings["clock_seconds"], clear_after_s=clear_s)
    return rules | {CLOCK_UNSYNCHRONISED.name: clock}


CHECK = Check(
    name=NAME,
    condition="",
    healthy=Healthy(reason="", message=""),
    reasons=REASONS,
    judge=judge,
    applies=lambda _: True,
    memory_type=HostMemory,
    runbook=__doc__,
    default_settings={
        "raise_seconds": 240,
        "clear_seconds": 120,
        "clock_seconds": 900,
        "stuck_processes": 16,
        "memory_corrected": 100,
        "memory_window_seconds": 86400,
        "kernel_line_seconds": 3600,
        "peermem_expected": False,
    },
    why_settings={
        "raise_seconds": "two looks more: services restart and drivers are loaded within minutes",
        "clear_seconds": "a second good look",
        "clock_seconds": "a time service takes minutes after a boot until the kernel's clock counts as kept",
        "stuck_processes": "one job's workers on one dead mount are more, a burst of writes is less",
        "memory_corrected": "mcelog's own default at which a module is reported: 100 corrected errors a day",
        "memory_window_seconds": "the day of that default",
        "kernel_line_seconds": "long enough to be seen, and lines that come again keep it standing",
        "peermem_expected": "false: drivers and kernels of today do GPUDirect RDMA by DMA-BUF without it",
    },
    restore=restore,
    single_look={"raise_seconds": 0, "clock_seconds": 0},
    part_kind=PartKind.NODE,
)
