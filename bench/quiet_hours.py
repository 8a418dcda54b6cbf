"""Hours in which nothing happens, in minutes: the product's own Agent on a clock that runs ahead, before a real API server.

What is the product's: the kernel log's reader, the checks, the fold, the pacing of every write, the requests themselves.
What is not: the threads, and the clock, which is set forward a second at a time once both loops went round. NVML gives the
same reading every 30 s, as its child would, and kubelet is asked as often over its real API. What was written is what the
server's audit record counts for this node.
"""

from datetime import timedelta
from pathlib import Path

from agent.config import parse
from agent.host.kmsg import Cursor
from agent.host.pod_resources import read_pod_resources
from agent.kubelet_feed import Answer
from agent.runtime import Agent
from bench.outcome import NotMeasured
from checks.check import discover
from checks.observation import NVML, GpuReading, NvmlRead, Observation, SourceRead
from kube.api import Api
from kube.clock import SYSTEM, Clock
from sandbox.agent_files import merged, settings, toml
from sandbox.agents import PolledFeed
from sandbox.machine import DRIVER
from sandbox.nodes import SimulatedNode

_STEP_S = 1.0
_ASK_S = 30.0
_READY_WITHIN_S = 300.0


class FastClock:
    """Both clocks begin with this machine's and then move only when told to; sleeping moves them."""

    def __init__(self) -> None:
        self._wall, self._monotonic = SYSTEM.now(), SYSTEM.monotonic()
        self._ahead_s = 0.0
        self.clock = Clock(
            now=lambda: self._wall + timedelta(seconds=self._ahead_s),
            monotonic=lambda: self._monotonic + self._ahead_s,
            sleep=self.advance,
        )

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


class _Calm:
    """The kernel log as it is, and beside it NVML's reading of healthy GPUs every 30 s."""

    def __init__(self, node: SimulatedNode, log: PolledFeed, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._next_at = clock.monotonic()
        self._gpus = tuple(
            GpuReading(
                index=gpu.index,
                pci=gpu.pci.rpartition(".")[0],
                uuid=gpu.uuid,
                serial=f"{1320000000000 + gpu.index}",
                model=gpu.model,
                minor=gpu.index,
                mig=False,
            )
            for gpu in node.gpus
        )

    @property
    def begun(self) -> bool:
        return self._log.begun

    def begin(self, boot_id: str, cursor: Cursor | None) -> None:
        self._log.begin(boot_id, cursor)

    def end(self) -> None:
        self._log.end()

    def take(self) -> tuple[list[Observation], Cursor | None]:
        observations, cursor = self._log.take()
        if self._log.begun and self._clock.monotonic() >= self._next_at:
            self._next_at = self._clock.monotonic() + _ASK_S
            now = self._clock.now()
            read = NvmlRead(
                seen_at=now,
                child=1,
                driver=DRIVER,
                library=f"13.{DRIVER}",
                count=len(self._gpus),
                gpus=self._gpus,
            )
            observations = [*observations, read, SourceRead(source=NVML, seen_at=now)]
        return observations, cursor

    def hangs_s(self, now: float) -> float:
        return self._log.hangs_s(now)


class _AskedKubelet:
    """The product's own client, asked in turn instead of by a thread."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.begun = False
        self._path = path
        self._clock = clock
        self._next_at = clock.monotonic()

    def begin(self) -> None:
        self.begun = True

    def end(self) -> None:
        self.begun = False

    def take(self) -> Answer | None:
        if self._clock.monotonic() < self._next_at:
            return None
        self._next_at = self._clock.monotonic() + _ASK_S
        return read_pod_resources(self._path)

    def soon(self) -> None:
        self._next_at = min(self._next_at, self._clock.monotonic() + 10.0)


class QuietHours:
    """One node's agent, ready and told nothing."""

    def __init__(self, api: Api, node: SimulatedNode, pod_resources: Path) -> None:
        """Begin, and go on until everything was published for the first time. Raises NotMeasured."""
        self._fast = FastClock()
        clock = self._fast.clock
        checks = discover()
        machine = node.machine
        table = merged(
            settings(node, kmsg=machine.kmsg, state_dir=machine.state_dir),
            {"listen": "", "kubelet": {"enabled": True}, "nvml": {"enabled": False}},
        )
        config = parse(toml(table), f"the settings of {node.name}", checks, {})
        machine.kernel_log.rewind()
        feed = _Calm(node, PolledFeed(config, clock), clock)
        kubelet = _AskedKubelet(pod_resources, clock)
        self._agent = Agent(config, api, clock, checks=checks, feed=feed, kubelet=kubelet, probes=())
        self._agent.load()
        self.pass_by(_READY_WITHIN_S)
        if why := self._agent.why_not_ready():
            raise NotMeasured(f"the agent of {node.name} is not ready after {_READY_WITHIN_S:g} s: {why}")

    def pass_by(self, seconds: float) -> None:
        """Let time pass, both loops going round every second."""
        for _ in range(int(seconds / _STEP_S)):
            self._fast.advance(_STEP_S)
            self._agent.tick()
            self._agent.write()

    def end(self) -> None:
        self._agent.feed.end()
        self._agent.save()
