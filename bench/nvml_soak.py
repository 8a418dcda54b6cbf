"""`nodemend-bench nvml`: whether thousands of rounds of NVML leave anything behind, in the child or in the agent.

The real feed and its real child, on the fake driver with eight GPUs, one round right after the other. While they run the
driver does what costs something to clean up after: calls of single GPUs fail with every code, events come, sets of events
are made anew, MIG is switched on and off. Afterwards children are ended in every way they can end, and replaced.
"""

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from random import Random

import msgspec
import structlog

from agent.config import NvmlSection
from agent.nvml_feed import NvmlFeed
from agent.nvml_keeper import Wish
from agent.nvml_process import ChildProcess
from agent.nvml_watch import Timing
from agent.nvml_worker import Process
from bench.figures import Figure
from bench.footprint import memory
from bench.outcome import NotMeasured, Say
from checks.finding import Part, PartKind
from checks.observation import NvmlEvent, NvmlRead, Observation
from kube.clock import SYSTEM
from sandbox.fake_nvml import FakeDriver, make_gpus

ROUNDS = 10_000
FEWEST = 100
GROWN_KIB = 512
GPUS = 8
_PARTS = tuple(
    Part(kind=PartKind.GPU, pci=gpu.pci.partition(".")[0], index=gpu.index) for gpu in make_gpus(GPUS)
)
# No pause between rounds, and events waited for so shortly that a set is made anew soon.
_TIMING = Timing(period_s=0.0, event_wait_s=0.05, back_off_s=0.05)
_NEXT_WITHIN_S = 60.0
# Nothing that ends the child, and nothing that lets it leave a GPU alone or never ask it again.
_CODES = (2, 4, 6, 7, 8, 10, 11, 12, 14, 16, 17, 19, 20, 21, 23, 25, 26, 27, 28, 29, 30, 999, 777)
_CALLS = (
    *("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetUUID", "nvmlDeviceGetSerial"),
    *("nvmlDeviceGetName", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetMigMode", "nvmlDeviceGetFieldValues"),
    *("nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"),
)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What a process holds: open files, threads, children, and kB of memory; `private` is what no other process shares.

    PSS says what a process costs, and moves with what others share: growth is judged by `private`.
    """

    files: int
    threads: int
    children: int
    pss: int
    private: int


class Soaked(msgspec.Struct, frozen=True, kw_only=True):
    """What child and agent held after each tenth of the rounds, and the agent after so many `children` more."""

    rounds: int
    took_s: float
    events: int
    child: tuple[Held, ...]
    agent: tuple[Held, ...]
    children: int
    agent_after_children: Held

    def grown(self) -> list[tuple[str, Held, Held]]:
        """Give what must not grow, before and after: the first tenth is for what is fetched once."""
        return [
            ("child", self.child[0], self.child[-1]),
            ("agent", self.agent[0], self.agent[-1]),
            ("agent_with_children", self.agent[-1], self.agent_after_children),
        ]


def measure(say: Say, *, rounds: int = ROUNDS) -> list[Figure]:
    """Run it. Raises NotMeasured where rounds do not come, and MissingProgramError without gcc."""
    if rounds < FEWEST:
        raise NotMeasured(f"{rounds} rounds are too few to see anything grow; {FEWEST} is the least")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="nodemend-bench-") as folder:
        soaked = soak(Path(folder), rounds, say)
    figures = [
        Figure(name="nvml_rounds", value=soaked.rounds),
        Figure(name="nvml_round_ms", value=1000 * soaked.took_s / soaked.rounds),
        Figure(name="nvml_events", value=soaked.events),
        Figure(name="nvml_children_replaced", value=soaked.children),
        Figure(name="nvml_child_pss_mib", value=soaked.child[-1].pss / 1024),
    ]
    for who, before, after in soaked.grown():
        for what in ("files", "threads", "children"):
            grown = getattr(after, what) - getattr(before, what)
            figures.append(Figure(name=f"nvml_{who}_{what}_grown", value=grown, aim=0))
        grown = after.private - before.private
        figures.append(Figure(name=f"nvml_{who}_memory_grown_kib", value=grown, aim=GROWN_KIB))
    return figures


def soak(root: Path, rounds: int, say: Say) -> Soaked:
    """Let there be so many rounds of one child on a driver laid out at `root`, then a hundredth as many children."""
    run = _Run(FakeDriver(root, make_gpus(GPUS)))
    child: list[Held] = []
    agent: list[Held] = []
    try:
        began = SYSTEM.monotonic()
        for tenth in range(1, 11):
            run.rounds_until(rounds * tenth // 10)
            child.append(held(run.pids[-1]))
            agent.append(held(os.getpid()))
            say(f"after {run.done} rounds the child holds {_words(child[-1])}, the agent {_words(agent[-1])}")
        done, took_s = run.done, SYSTEM.monotonic() - began
        if len(run.pids) != 1:
            raise NotMeasured(f"{len(run.pids) - 1} children ended by themselves")
        ended = max(len(run.endings), rounds // 100)
        for _ in range(ended):
            run.replace()
        return Soaked(
            rounds=done,
            took_s=took_s,
            events=run.events,
            child=tuple(child),
            agent=tuple(agent),
            children=ended,
            agent_after_children=held(os.getpid()),
        )
    finally:
        run.end()


def held(pid: int) -> Held:
    """Look at a process that lives."""
    about = Path(f"/proc/{pid}")
    tasks = list((about / "task").iterdir())
    used = memory([pid])
    return Held(
        files=len(list((about / "fd").iterdir())),
        threads=len(tasks),
        children=sum(len((task / "children").read_text().split()) for task in tasks),
        pss=used.pss,
        private=used.private,
    )


def _words(one: Held) -> str:
    return f"{one.files} files, {one.threads} threads, {one.pss} kB PSS, {one.private} kB private"


class _Run:
    """One feed with its children, and the driver under it."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.done = 0
        self.events = 0
        self.pids: list[int] = []
        self._woken = threading.Event()
        section = NvmlSection(driver_root=driver.root)
        random = Random(1)  # noqa: S311 - jitter, not a secret
        wake = self._woken.set
        self._feed = NvmlFeed(section, SYSTEM, random, wake, times=_TIMING, start=self._start)
        self._trouble = cycle((call, code) for code in _CODES for call in _CALLS)
        self.endings: Sequence[Callable[[], None]] = (self._kill, self._crash, driver.mismatch, self._unload)
        self._endings = cycle(self.endings)

    def _start(self, root: Path) -> Process:
        child = ChildProcess(root)
        self.pids.append(child.pid)
        return child

    def rounds_until(self, end: int) -> None:
        """Let there be rounds in every mood that leaves the child alive."""
        while self.done < end:
            step = self.done // 5
            if step % 2:
                self.driver.heal()
            else:
                call, code = next(self._trouble)
                self.driver.answer(call, code, gpu=None if call.startswith("nvmlEvent") else step % GPUS)
            self.driver.event(step % GPUS, data=1000 + step)
            self.driver.mig(0, on=step % 4 == 0)
            self._want(sick=step % 3 == 0)
            self._hear(5)
        self.driver.heal()
        self._want(sick=False)
        self._hear(5)

    def _want(self, *, sick: bool) -> None:
        """Let a GPU be left alone, or not any more: then other events are listened to, with another set."""
        wish = Wish(gpus=_PARTS, sick={_PARTS[-1].pci: "a rehearsal"} if sick else {})
        self._feed.follow("boot-1", wish, may_begin=True)

    def replace(self) -> None:
        """End the child in the next way there is, and wait for a round of another."""
        before = len(self.pids)
        next(self._endings)()
        while len(self.pids) == before:
            self._hear(1)
        self.driver.heal()
        self._hear(2)

    def _kill(self) -> None:
        os.kill(self.pids[-1], signal.SIGKILL)

    def _crash(self) -> None:
        os.kill(self.pids[-1], signal.SIGSEGV)

    def _unload(self) -> None:
        self.driver.unload()
        before = len(self.pids)
        deadline = SYSTEM.monotonic() + _NEXT_WITHIN_S
        while len(self.pids) == before and SYSTEM.monotonic() < deadline:
            self._woken.wait(0.1)
            self._woken.clear()
        self.driver.load()

    def _hear(self, rounds: int) -> None:
        end = self.done + rounds
        deadline = SYSTEM.monotonic() + _NEXT_WITHIN_S
        while self.done < end:
            self._woken.wait(1.0)
            self._woken.clear()
            self._count(self._feed.take())
            if SYSTEM.monotonic() > deadline:
                raise NotMeasured(f"{rounds} rounds did not come within {_NEXT_WITHIN_S:.0f} s")

    def _count(self, seen: Sequence[Observation]) -> None:
        self.done += sum(isinstance(one, NvmlRead) for one in seen)
        self.events += sum(isinstance(one, NvmlEvent) for one in seen)

    def end(self) -> None:
        self._feed.end()
