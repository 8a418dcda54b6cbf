"""Whole rounds of all checks, one right after the other: what one costs, and whether ten thousand leave memory behind.

The real NVML child on the fake driver, the real feed, the readers of `agent.probing` on files, and the judging of every
check, in this process; only the pace is ours: the child begins a round when the one before was judged. Each round is half a
minute by the clock that the checks are told, so that ten thousand are three and a half days of windows and counters.
"""

import os
import queue
import resource
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from agent.config import load
from agent.host.inventory import read_inventory
from agent.judging import Judging
from agent.nvml_feed import NvmlFeed, wish_of
from agent.nvml_process import ChildProcess
from agent.nvml_watch import Timing
from agent.nvml_wire import Order
from agent.nvml_worker import Process
from agent.probes import Probe
from agent.probing import probes_of
from bench.checks_machine import BenchMachine
from bench.outcome import NotMeasured
from checks.check import discover
from checks.condition import Status
from checks.infiniband_reading import INFINIBAND
from checks.observation import KERNEL_LOG, KernelRecord, NvmlRead, Observation, SourceRead
from checks.pci_reading import PCI
from kube.clock import SYSTEM
from kube.types import Node
from sandbox.agent_files import toml
from sandbox.fake_nvml import FakeDriver, make_gpus
from sandbox.nodes import DEFAULT_PLATFORM, body
from sandbox.platforms import platform

GPUS = 8
SYSFS = (PCI, INFINIBAND)
"""What belongs to a round, beside NVML; the other sources have slower periods, and children of their own."""
ROUND = timedelta(seconds=30)
_BOOT = "00000000-0000-4000-8000-000000000001"
_BEGAN = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
_SLOW_EVERY, _LIVE_EVERY, _LINE_EVERY = 4, 5, 100  # rounds
_NEXT_WITHIN_S = 60.0
_TIMING = Timing(period_s=0.0)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Processor time of one round in nanoseconds, by who spent it. `reporting` is what follows a judgement, not in `whole`.

    `decoding` is all that is done in this process about the child: waiting for it, its lines, their reading.
    """

    child: int
    decoding: int
    pci: int
    infiniband: int
    judging: int
    reporting: int

    @property
    def whole(self) -> int:
        return self.child + self.decoding + self.pci + self.infiniband + self.judging


class Rounds:
    """One machine under `root` and what judges it, until `end`. Raises MissingProgramError without gcc."""

    def __init__(self, root: Path) -> None:
        gpus = make_gpus(GPUS)
        driver = FakeDriver(root / "driver", gpus)
        self.machine = BenchMachine(root / "machine", gpus, driver)
        self.config_file = root / "agent.toml"
        self.config_file.write_text(toml(_settings(self.machine, driver.root)))
        checks = discover()
        config = load(self.config_file, checks, {})
        self.probes = probes_of(config)
        self.judging = Judging(checks, config, looked_at=[probe.source for probe in self.probes])
        self.judging.count_parts(read_inventory(config.roots.sys, config.roots.proc))
        self.judging.begin_boot(_BOOT)
        self.judging.see(_node())
        self.done = 0
        self._woken = threading.Event()
        self._children: queue.SimpleQueue[_TurnByTurn] = queue.SimpleQueue()
        random = Random(1)  # noqa: S311 - jitter, not a secret
        wake = self._woken.set
        self._feed = NvmlFeed(config.nvml, SYSTEM, random, wake, times=_TIMING, start=self._start)
        self._feed.follow(_BOOT, wish_of(self.judging), may_begin=True)
        self._child = self._children.get(timeout=_NEXT_WITHIN_S)
        self._slow = [self._read(probe) for probe in self.probes if probe.source not in SYSFS]

    def _start(self, driver_root: Path) -> Process:
        child = _TurnByTurn(driver_root)
        self._children.put(child)
        return child

    @property
    def child_pid(self) -> int:
        return self._child.pid

    @property
    def said(self) -> list[bytes]:
        """What the child wrote in the last round, line by line."""
        return self._child.said

    @property
    def now(self) -> datetime:
        """What time it is for the checks."""
        return _BEGAN + self.done * ROUND

    def go(self) -> Cost:
        """Let one round pass. Raises NotMeasured where it does not come, and OSError or ValueError as a reader does."""
        self.done += 1
        if self.done % _LIVE_EVERY == 0:
            self.machine.live(self.done // _LIVE_EVERY)
        seen: list[Observation] = [SourceRead(source=KERNEL_LOG, seen_at=self.now)]
        seen += [] if self.done % _LINE_EVERY else [self._line()]
        seen += [] if self.done % _SLOW_EVERY else [one for pair in self._slow for one in pair]
        child, whole = _spent_ns(self.child_pid), time.process_time_ns()
        self._begin_nvml()
        marks = [time.thread_time_ns()]
        for source in SYSFS:
            seen += [one for probe in self.probes if probe.source == source for one in self._read(probe)]
            marks.append(time.thread_time_ns())
        seen += self._end_nvml()
        self.judging.judge(self._dated(seen), None, self.now, round(1000 * ROUND.total_seconds()))
        marks.append(time.thread_time_ns())
        whole = time.process_time_ns() - whole
        self.judging.report("bench", ())
        msgspec.json.encode(self.judging.state(self.now))
        marks.append(time.thread_time_ns())
        pci, infiniband, judging, reporting = (later - earlier for earlier, later in pairwise(marks))
        return Cost(
            child=_spent_ns(self.child_pid) - child,
            decoding=whole - pci - infiniband - judging,
            pci=pci,
            infiniband=infiniband,
            judging=judging,
            reporting=reporting,
        )

    def look_ns(self, probe: Probe) -> int:
        """Give the processor time of one look at a source, with that of the children it starts."""
        before = _with_children_ns()
        probe.read()
        return _with_children_ns() - before

    def why_not_well(self) -> str | None:
        """Say what a sound machine's rounds would not end in: a check that broke, a class that is not known to be well."""
        for name, state in self.judging.states.items():
            if state.broken:
                return f"checks/{name} broke: {state.broken}"
        of_the_bench = [
            one for one in self.judging.conditions() if one.type.startswith(("Gpu", "Infiniband"))
        ]
        ill = [
            f"{one.type} {one.status} {one.reason}: {one.message}"
            for one in of_the_bench
            if one.status is not Status.FALSE
        ]
        return "; ".join(ill) or (None if of_the_bench else "no condition came of it")

    def end(self) -> None:
        """End the child."""
        self._feed.end()

    def _begin_nvml(self) -> None:
        """Let the child have its turn; sysfs is read beside it, as in the agent."""
        if not self._children.empty():
            raise NotMeasured("the child of NVML ended by itself")
        self._child.go(_NEXT_WITHIN_S)

    def _end_nvml(self) -> list[Observation]:
        seen: list[Observation] = []
        deadline = time.monotonic() + _NEXT_WITHIN_S
        while not any(isinstance(one, NvmlRead) for one in seen):
            if time.monotonic() > deadline:
                raise NotMeasured(f"no round of NVML came within {_NEXT_WITHIN_S:.0f} s: {seen[-1:]}")
            self._woken.wait(1.0)
            self._woken.clear()
            seen += self._feed.take()
        return seen

    def _read(self, probe: Probe) -> list[Observation]:
        return [probe.read(), SourceRead(source=probe.source, seen_at=self.now)]

    def _dated(self, seen: Sequence[Observation]) -> list[Observation]:
        changes: dict[str, Any] = {"seen_at": self.now}
        return [msgspec.structs.replace(one, **changes) for one in seen]

    def _line(self) -> KernelRecord:
        number = self.done // _LINE_EVERY
        pci = self.machine.gpus[number % GPUS].pci.partition(".")[0]
        return KernelRecord(
            boot_id=_BOOT,
            sequence=number,
            facility=0,
            level=4,
            monotonic_us=number,
            seen_at=self.now,
            text=f"NVRM: Xid (PCI:{pci}): 43, pid={4000 + number}, name=python, Ch 00000010",
        )


class _TurnByTurn(ChildProcess):
    """The real child; what it is ordered to do is kept from it until it is its turn."""

    def __init__(self, driver_root: Path) -> None:
        super().__init__(driver_root)
        self.said: list[bytes] = []
        self._ordered: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def send(self, order: Order) -> None:
        self._ordered.put(order)

    def go(self, within_s: float) -> None:
        """Let it begin the round that it was ordered to. Raises queue.Empty where it was ordered to nothing in time."""
        self.said.clear()
        super().send(self._ordered.get(timeout=within_s))

    def read(self) -> list[bytes]:
        lines = super().read()
        self.said += lines
        return lines


class Floor:
    """The least that reading takes: the same files, and the child's lines out of a pipe; nothing is made of either."""

    def __init__(self, reads: Sequence[str]) -> None:
        self.reads = tuple(reads)

    def go(self, said: Sequence[bytes]) -> int:
        """Read it all once; give the nanoseconds of processor time."""
        lines = b"".join(line + b"\n" for line in said)
        out, into = os.pipe()
        try:
            writer = threading.Thread(target=_write, args=(into, lines), name="lines", daemon=True)
            writer.start()
            before = time.thread_time_ns()
            while os.read(out, 65536).split(b"\n") != [b""]:
                pass
            for path in self.reads:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                os.read(file, 65536)
                os.close(file)
            spent = time.thread_time_ns() - before
            writer.join()
        finally:
            os.close(out)
        return spent


def _write(into: int, lines: bytes) -> None:
    with open(into, "wb", buffering=0) as pipe:
        while lines:
            lines = lines[pipe.write(lines) or 0 :]


def _spent_ns(pid: int) -> int:
    """Give the processor time of another process: its clock's id is made of its pid, as clock_getcpuclockid(3) does it."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def _with_children_ns() -> int:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + round((ended.ru_utime + ended.ru_stime) * 1e9)


def _settings(machine: BenchMachine, driver_root: Path) -> dict[str, Any]:
    return {
        "node_name": "bench",
        "roots": {"proc": str(machine.proc), "sys": str(machine.sys)},
        "nvml": {"driver_root": str(driver_root)},
    }


def _node() -> Node:
    described = body("bench", platform(DEFAULT_PLATFORM), _BOOT)
    described["metadata"] |= {"uid": "bench", "resourceVersion": "1"}
    return msgspec.convert(described, type=Node)
