"""Ten thousand kernel lines a second over the real agent: is a line lost, is a fault among them found, what does it cost.

The program runs as its DaemonSet's pod would, with eight GPUs that NVML answers for and eight HCAs, on a Python of its own
(bench.own_python). Its kernel log is a named pipe as large as the kernel's ring, with a writer that never waits: what finds
no room is lost, and the sequence numbers go on. Afterwards the agent is stopped for a second (SIGSTOP) while the writer goes
on, and a GPU falls off the bus in that second, of which no line tells.
"""

import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import msgspec
import structlog

from bench.agents_metrics import count, scrape
from bench.audit import asked
from bench.checks_lines import fallen, record, text
from bench.checks_machine import BenchMachine
from bench.checks_sights import Sights
from bench.figures import Figure
from bench.floor import agent_pod
from bench.footprint import family, memory
from bench.node_watch import Outside
from bench.outcome import NotMeasured, Say
from bench.own_python import copy_python
from checks.check import discover
from checks.observation import KERNEL_LOG
from checks.xid_reasons import RECORDS_LOST
from kube import paths
from kube.clock import SYSTEM
from kube.nodehealth import NodeHealth, NodeHealthStatus
from kube.types import Node
from sandbox.actors import AGENT, SYSTEM_NAMESPACE
from sandbox.agent_files import write_config
from sandbox.cluster import Sandbox
from sandbox.fake_nvml import FakeDriver
from sandbox.install import install
from sandbox.nodes import SimulatedNode, create
from sandbox.processes import Process

LINES_PER_S = 10_000
RING = 256 * 1024
"""What the pipe holds: CONFIG_LOG_BUF_SHIFT=18, the ring of common distributions' kernels; big machines have more."""
XID, MISSING = "GpuXidError", "GpuMissing"
WRITES_PER_S, PSS_MIB, FOUND_S = 2, 80, 2.0
STOPPED_S = 1.0
_SICK, _LOST = 2, 5  # the GPU that the storm's fault is of, and the one that is lost while nobody reads
_TICK_S = 0.005
_AFTER_S, _AFTER_PER_S = 2, 100
_SETTLE_S = 3.0
_WELL_WITHIN_S = 180.0
_JUDGED_WITHIN_S, _FOUND_WITHIN_S = 60.0, 120.0
_LOOK_S = 0.25
_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT}"


def measure(say: Say, *, seconds: int) -> list[Figure]:
    """Run it. Raises NotMeasured, MissingProgramError, and what the sandbox raises."""
    with Sandbox(progress=say, audit=True) as sandbox:
        log = (sandbox.state_dir / "bench.log").open("w")
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
        install(sandbox, overlay="observe")
        (node,) = create(sandbox, ["gpu-0"])
        driver = FakeDriver(node.root / "driver", node.gpus)
        machine = BenchMachine(node.root / "bench", node.gpus)
        sights = Sights(node.name, [check.condition for check in discover() if check.condition])
        with Outside(sandbox.admin, paths.nodes(), Node, sights.see), _ring(node):
            agent = _start(say, sandbox, node, driver, machine)
            try:
                storm = _Storm(say, sandbox, node, agent, sights)
                storm.wait(storm.is_well, _WELL_WITHIN_S, "conditions that are all False")
                return [*storm.pour_over(seconds), *storm.stop(driver)]
            finally:
                agent.stop()


@contextmanager
def _ring(node: SimulatedNode) -> Iterator[None]:
    """Make the pipe anew with all that is kept, as large as a kernel's ring."""
    node.machine.kernel_log.rewind()
    file = os.open(node.machine.kmsg, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, RING)
        yield
    finally:
        os.close(file)


def _start(
    say: Say, sandbox: Sandbox, node: SimulatedNode, driver: FakeDriver, machine: BenchMachine
) -> Process:
    say("copying a Python for the agent, and compiling it")
    python = copy_python(sandbox.state_dir / "python")
    token = sandbox.token_file(SYSTEM_NAMESPACE, AGENT, pod=agent_pod(sandbox, node))
    more: dict[str, Any] = {
        "kube": {"server": sandbox.server, "token_file": str(token), "ca_file": str(sandbox.ca_file)},
        "roots": {"sys": str(machine.sys)},
        "nvml": {"enabled": True, "driver_root": str(driver.root)},
    }
    config = node.root / "etc" / "nodemend" / "agent.toml"
    write_config(config, node, kmsg=node.machine.kmsg, state_dir=node.machine.state_dir, more=more)
    argv = [str(python.program), "-m", "agent", "--config", str(config)]
    return sandbox.spawn("agent", argv, {**python.environment, "NODE_NAME": node.name})


class _Storm:
    """What is done to one agent, and what is seen of it."""

    def __init__(
        self, say: Say, sandbox: Sandbox, node: SimulatedNode, agent: Process, sights: Sights
    ) -> None:
        self._say = say
        self._sandbox = sandbox
        self._node = node
        self._agent = agent
        self._sights = sights
        self._log = node.machine.kernel_log
        self._gpus = tuple(gpu.pci.partition(".")[0] for gpu in node.gpus)
        self._sequence = self._log.write("the benchmark begins")
        self._began = SYSTEM.monotonic()

    def is_well(self) -> bool:
        """Whether the agent shows every GPU there and no XID."""
        shown = self._sights.shown
        return {XID, MISSING} <= set(shown) and all(one.status == "False" for one in shown.values())

    def wait(self, is_so: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until it is so. Raises NotMeasured with what is shown and the end of the agent's log."""
        deadline = SYSTEM.monotonic() + within_s
        while not is_so():
            if SYSTEM.monotonic() > deadline or not self._agent.alive:
                shown = ", ".join(
                    f"{one.type} {one.status} {one.reason}" for one in self._sights.shown.values()
                )
                log = self._sandbox.logs("agent")[-2000:]
                raise NotMeasured(f"waited {within_s:g} s for {what}; shown are {shown or 'none'}:\n{log}")
            SYSTEM.sleep(_LOOK_S)

    # The storm

    def pour_over(self, seconds: int) -> list[Figure]:
        """Write so many seconds of lines, a GPU's fall from the bus in their middle. Raises NotMeasured."""
        at_rest = memory(family(self._agent.pid)).pss
        before, since = self._metrics(), SYSTEM.now()
        written, lost = self._log.lines_written, self._log.lines_lost
        self._say(f"{LINES_PER_S} lines a second for {seconds} s, XID 79 in the middle of them")
        with _Peak(self._agent.pid) as peak:
            began = SYSTEM.monotonic()
            self._pour(seconds * LINES_PER_S // 2, LINES_PER_S)
            fell_at = SYSTEM.monotonic()
            self._write(fallen(self._gpus[_SICK]))
            self._pour(seconds * LINES_PER_S // 2, LINES_PER_S)
            took_s = SYSTEM.monotonic() - began
            written, lost = self._log.lines_written - written, self._log.lines_lost - lost
            judged_s = self._await_judged(before, written) - began
        found_at = self._sights.true_since(XID, fell_at)
        if found_at is None:
            raise NotMeasured(f"XID 79 was not found: {self._sights.shown.get(XID)}")
        SYSTEM.sleep(_SETTLE_S)  # what the storm gave cause to is written by then, or held by a limit
        after = self._metrics()
        writes = _added(before, after, "nodemend_agent_writes_total")
        audit = asked(self._sandbox.audit_events(), _USER, since, SYSTEM.now())
        self._say(f"the API server's audit record, which leaves Events and Leases out: {audit.words()}")
        judged = _added(before, after, "nodemend_source_records_total")
        return [
            Figure(name="storm_lines_per_s", value=(written + lost) / took_s),
            Figure(name="storm_lines_written", value=written),
            Figure(
                name="storm_lines_judged",
                value=judged,
                aim=written,
                at_least=True,
                beside=f"{written} lines that were written; {lost} more found no room in the ring",
            ),
            Figure(name="storm_lines_lost", value=max(lost, written + lost - judged), aim=0),
            Figure(name="storm_behind_s", value=judged_s - took_s),
            Figure(
                name="storm_fault_to_condition_s",
                value=found_at - fell_at,
                aim=FOUND_S,
                beside="the aim of detect's storm of 100 lines a second",
            ),
            Figure(
                name="storm_writes_per_s",
                value=writes / took_s,
                aim=WRITES_PER_S,
                beside=f"{writes} writes of all kinds, Events and Leases too, from {written} lines",
            ),
            Figure(
                name="storm_pss_mib",
                value=peak.kib / 1024,
                aim=PSS_MIB,
                beside=f"{peak.kib / at_rest:.2f} x the same before the storm ({at_rest / 1024:.4g} MiB)",
            ),
        ]

    def _await_judged(self, before: Mapping[str, float], written: int) -> float:
        """Wait until so many lines were judged, or until no more are; give when that was."""
        deadline = SYSTEM.monotonic() + _JUDGED_WITHIN_S
        while SYSTEM.monotonic() < deadline:
            if _added(before, self._metrics(), "nodemend_source_records_total") >= written:
                break
            SYSTEM.sleep(_LOOK_S)
        return SYSTEM.monotonic()

    # The second without a reader

    def stop(self, driver: FakeDriver) -> list[Figure]:
        """Stop the agent for a second while lines come and a GPU is lost; see what it makes of that. Raises NotMeasured."""
        before, lost = self._metrics(), self._log.lines_lost
        self._say(
            f"the agent is stopped for {STOPPED_S:g} s, the lines go on, and a GPU is lost without a line"
        )
        stopped_at = SYSTEM.monotonic()
        os.kill(self._agent.pid, signal.SIGSTOP)
        try:
            driver.lose(_LOST)
            self._pour(round(STOPPED_S * LINES_PER_S), LINES_PER_S)
        finally:
            os.kill(self._agent.pid, signal.SIGCONT)
        going_at = SYSTEM.monotonic()
        lost = self._log.lines_lost - lost
        self._pour(_AFTER_S * _AFTER_PER_S, _AFTER_PER_S)
        if not lost:
            raise NotMeasured(
                f"the ring took all that was written in {STOPPED_S:g} s: there is no gap to count"
            )
        self.wait(lambda: self._lost(before) >= lost, _JUDGED_WITHIN_S, f"{lost} lost lines to be counted")
        counted = self._lost(before)
        self.wait(lambda: self._reported() >= counted, _JUDGED_WITHIN_S, "the gap in NodeHealth")
        self.wait(
            lambda: self._sights.true_since(MISSING, going_at) is not None,
            _FOUND_WITHIN_S,
            "what NVML says of the lost GPU",
        )
        SYSTEM.sleep(_SETTLE_S)
        turned = [turn for turn in self._sights.turns(stopped_at) if turn.status == "False"]
        for turn in turned:
            self._say(f"{turn.type} turned from {turn.before or 'nothing'} to False: {turn.reason}")
        told = sum(finding.reason == RECORDS_LOST.name for finding in self._status().findings)
        found_s = (self._sights.true_since(MISSING, going_at) or going_at) - going_at
        return [
            Figure(name="gap_lines_lost", value=lost),
            Figure(
                name="gap_lines_counted",
                value=counted,
                aim=lost,
                at_least=True,
                beside=f"{lost} that the ring dropped; NodeHealth says {self._reported()}",
            ),
            Figure(
                name="gap_to_nvml_fault_s",
                value=found_s,
                beside="NVML's period of 30 s",
            ),
            Figure(
                name="gap_findings_told",
                value=told,
                beside=f"{RECORDS_LOST.name} in NodeHealth, 1 where it is",
            ),
            Figure(name="gap_turned_false", value=len(turned), aim=0),
        ]

    def _lost(self, before: Mapping[str, float]) -> int:
        return _added(before, self._metrics(), "nodemend_source_lost_total")

    def _reported(self) -> int:
        """Give how many lines NodeHealth says were lost."""
        sources = self._status().sources
        return sum(source.lost for source in sources if source.name == KERNEL_LOG)

    def _status(self) -> NodeHealthStatus:
        raw = self._sandbox.admin.get(paths.node_health(self._node.name))
        return msgspec.json.decode(raw, type=NodeHealth).status

    # Lines

    def _write(self, words: str) -> None:
        self._sequence += 1
        microseconds = round((SYSTEM.monotonic() - self._began) * 1e6)
        self._log.write_raw(record(self._sequence, microseconds, words))

    def _pour(self, lines: int, per_s: int) -> None:
        """Write so many lines at an even pace; one that comes late is followed by the rest at once."""
        began = SYSTEM.monotonic()
        done = 0
        while done < lines:
            due = min(lines, int((SYSTEM.monotonic() - began + _TICK_S) * per_s))
            for _ in range(due - done):
                self._write(text(self._sequence, self._gpus))
            done = due
            SYSTEM.sleep(_TICK_S)

    def _metrics(self) -> dict[str, float]:
        return scrape([(self._node.machine.state_dir / "listen").read_text().strip()])


class _Peak:
    """The most that a program and its children had in memory at one look, while the block lasts."""

    def __init__(self, pid: int) -> None:
        self.kib = 0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="peak", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self.kib = max(self.kib, memory(family(self._pid)).pss)


def _added(before: Mapping[str, float], after: Mapping[str, float], name: str) -> int:
    return count(after, name) - count(before, name)
