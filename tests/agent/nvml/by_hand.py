"""The agent's NVML side driven by hand: the real worker, its real children on the fake driver, and the real checks.

Nothing waits: while a child works its pipe is waited for, and in between the clock moves to whatever is due next. So
periods, deadlines, back-offs and grace periods have their real lengths and cost no time, and a call that hangs is given up
as soon as it hangs.
"""

import os
import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from agent.config import Config
from agent.host.inventory import Gpu, Inventory
from agent.judging import Judging
from agent.nvml_feed import wish_of
from agent.nvml_keeper import Keeper
from agent.nvml_process import ChildProcess
from agent.nvml_watch import Action, Kill, Terminate, Timing
from agent.nvml_worker import Launch, Process, Worker
from checks.check import discover
from checks.finding import Finding, Part
from checks.observation import NvmlFailed, NvmlHung, NvmlRead, NvmlReleased, Observation, SourceFailed
from kube.types import Node, ObjectMeta
from sandbox.fake_nvml import FakeDriver
from tests.agent.nvml.driver import H100, lay_out, parts
from tests.agent.nvml.nursery import Nursery, WatchedChild
from tests.fakes import FakeClock

BOOT = "boot-1"
CHECKS = discover()
# Others judge the GPUs' health, and what field 230 asks for: neither is what these tests are about.
CONDITIONS = ("GpuDriverFault", "GpuMissing", "GpuXidError")
QUIET_EVENTS = Timing(event_wait_s=0.0)
"""Nobody listens to events, which would be waited for in real time."""
EVENTS = Timing(event_wait_s=0.005)
# A child that is silent for so long, without being in a call that is to hang, is a hang of the test.
PATIENCE_S = 20.0
# A child that hangs says nothing more; what it said before is in the pipe by then.
SILENCE_S = 0.03
JUDGE_S = 60.0
MOST_STEPS = 2000
Verdict = NvmlRead | NvmlFailed | NvmlHung | NvmlReleased


class HandWorker(Worker):
    """The worker without its thread: `go` is one round of its loop."""

    def __init__(self, timing: Timing, root: Path, time_of: FakeClock, launch: Launch) -> None:
        self.told: list[Observation] = []
        self.launch = launch
        self.hung: tuple[str, int] | None = None
        """The call that is to hang, and the index of its GPU (-1: none)."""
        self.ignores_sigterm = False
        self._with_events = timing.event_wait_s > 0
        self._signalled: dict[int, type[Action]] = {}
        self._silent: set[tuple[int, type[Action] | None]] = set()
        self._time = time_of

        def make_keeper() -> Keeper:
            return Keeper(timing, BOOT, Random(1))

        super().__init__(make_keeper, root, self._hear, lambda _: None, time_of.clock, self._launch)

    @property
    def keeper(self) -> Keeper:
        return self._keeper

    @property
    def child(self) -> ChildProcess:
        """The one child there is."""
        (child,) = self._processes.values()
        assert isinstance(child, ChildProcess)
        return child

    @property
    def processes(self) -> int:
        return len(self._processes)

    @property
    def owed(self) -> bool:
        """Whether an answer is outstanding."""
        return any(child.owes_answer for child in self._watched())

    def go(self) -> None:
        self._round()

    def close(self) -> None:
        self._end_all()
        os.close(self._wake_fd)

    def _hear(self, observation: Observation) -> None:
        self.told.append(observation)

    def _launch(self, root: Path) -> Process:
        return self.launch(root)

    def _do(self, action: Action) -> None:
        super()._do(action)
        if isinstance(action, Terminate | Kill):
            self._signalled[action.child] = type(action)

    def _listen(self) -> None:
        """Hand over at once what was heard, so that nothing new is asked before it was judged."""
        super()._listen()
        self._signalled = {n: signal for n, signal in self._signalled.items() if n in self._processes}
        self._hand_over()

    def _wait(self, seconds: float) -> None:
        """Wait for every word that is outstanding, and where there is none let the time pass."""
        poll = select.poll()
        for process in self._processes.values():
            if not process.at_end:
                poll.register(process.fd, select.POLLIN)
        patience_s = max(map(self._patience_s, self._processes), default=0.0) if seconds else 0.0
        heard = poll.poll(patience_s * 1000)
        assert heard or patience_s < PATIENCE_S, (
            f"silent for {PATIENCE_S:g} s: {[child.inside for child in self._watched()]}"
        )
        if not heard or not (self.owed or self._signalled or self._prepares()):
            self._time.advance(seconds)

    def _prepares(self) -> bool:
        """Whether the other thread of a child is on its way to its wait for events, in which it reports again and again."""
        calls = [child.inside.get("events", ("", -1))[0] for child in self._watched()]
        return self._with_events and any(call != "nvmlEventSetWait_v2" for call in calls)

    def _watched(self) -> list[WatchedChild]:
        return [child for child in self._processes.values() if isinstance(child, WatchedChild)]

    def _patience_s(self, number: int) -> float:
        """Give how long a word of this child is waited for: until it comes, but for one that hangs, and one at rest."""
        child = self._processes[number]
        if not isinstance(child, WatchedChild):  # an odd one of a test's own, which does something at once
            return 0.0 if child.at_end else PATIENCE_S
        signal = self._signalled.get(number)
        by_round = self.hung == child.inside.get("round")
        by_events = self.hung == child.inside.get("events") and not (child.owes_answer and signal is None)
        if self.hung is None or signal is Kill or not (by_round or by_events):
            owes = child.owes_answer or signal is not None
            return PATIENCE_S if owes else self._events_patience_s(child)
        if signal is Terminate and not by_round and not self.ignores_sigterm:
            return PATIENCE_S
        was_silent = (number, signal) in self._silent
        self._silent.add((number, signal))
        return 0.0 if was_silent else SILENCE_S

    def _events_patience_s(self, child: WatchedChild) -> float:
        """Give the same for its other thread, which is in a call, or pauses, or did not begin yet."""
        if not self._with_events:
            return 0.0
        return SILENCE_S if child.pauses and child.inside.get("events") == ("", -1) else PATIENCE_S


class Hand:
    """One machine: its driver, the worker and the judging of its agent."""

    def __init__(self, fake: FakeDriver, parts: Sequence[Part], timing: Timing, launch: Launch) -> None:
        self.fake = fake
        self.time = FakeClock()
        self.parts = tuple(parts)
        self.worker = HandWorker(timing, fake.root, self.time, launch)
        self._heard = 0
        self._judged_at = self.time.monotonic()
        self.begin_judging()

    def begin_judging(self) -> None:
        """Let nothing be known of this machine but what its sysfs shows."""
        self.judging = Judging(CHECKS, Config())
        self.judging.begin_boot(BOOT)
        self.show(*self.parts)

    def show(self, *parts: Part) -> None:
        """Let sysfs show these GPUs and no others."""
        self.judging.count_parts(Inventory(gpus=tuple(Gpu(part=part) for part in parts), driver="580"))
        self.judge()

    def label(self, name: str, value: str) -> None:
        """Let the Node carry this label and no other."""
        self.judging.see(Node(metadata=ObjectMeta(name="gpu-0", labels={name: value})))
        self.judge()

    def hang(self, call: str, gpu: int | None = None, *, blocks_sigterm: bool = False) -> None:
        """Let a call hang."""
        self.fake.hang(call, gpu, blocks_sigterm=blocks_sigterm)
        self.worker.hung = (call, -1 if gpu is None else gpu)
        self.worker.ignores_sigterm = blocks_sigterm

    def heal(self) -> None:
        self.fake.heal()
        self.worker.hung = None

    # Time

    def judge(self, *observations: Observation) -> None:
        """Judge what was told since the last time, and let NVML's side know what follows from it."""
        heard = [*observations, *self.worker.told[self._heard :]]
        self._heard = len(self.worker.told)
        watched_s, self._judged_at = self.time.monotonic() - self._judged_at, self.time.monotonic()
        self.judging.judge(heard, None, self.time.now(), round(watched_s * 1000))
        self.worker.want(wish_of(self.judging))

    def next(self, *kinds: type[Verdict]) -> Verdict:
        """Let NVML be asked until there is a verdict (of these kinds), and judge all that was told."""
        wanted = kinds or (NvmlRead, NvmlFailed, NvmlHung, NvmlReleased)
        for _ in range(MOST_STEPS):
            for seen in self._step():
                if isinstance(seen, Verdict) and isinstance(seen, wanted):
                    return seen
        raise AssertionError(f"no {wanted} in {MOST_STEPS} steps: {self.worker.told[-5:]}")

    def _step(self) -> list[Observation]:
        before = len(self.worker.told)
        self.worker.go()
        new = self.worker.told[before:]
        if new or self.time.monotonic() - self._judged_at >= JUDGE_S:
            self.judge()
        return new

    def read(self) -> NvmlRead:
        """Let there be a round."""
        seen = self.next(NvmlRead)
        assert isinstance(seen, NvmlRead)
        return seen

    def until_failed(self) -> SourceFailed:
        """Let NVML be asked until that fails by a fault of the child itself."""
        for _ in range(MOST_STEPS):
            for seen in self._step():
                if isinstance(seen, SourceFailed):
                    return seen
        raise AssertionError(f"nothing failed: {self.worker.told[-5:]}")

    def until_events(self, trouble: tuple[str, int] | None) -> None:
        """Let time pass until the child has said that no events come (the call and its code), or that they come again."""
        for _ in range(MOST_STEPS):
            error = self.worker.keeper.events_error
            said = None if error is None else (error.call, error.code)
            if said == trouble and not self.worker.owed:
                return
            self._step()
        raise AssertionError(f"the child says {error} about events, and not {trouble}")

    def live(self, seconds: float) -> None:
        """Let time pass in which NVML is asked as it always is."""
        end = self.time.monotonic() + seconds
        while self.time.monotonic() < end or self.worker.owed:
            self._step()

    def wait(self, seconds: float) -> None:
        """Let time pass in which nothing is heard of NVML."""
        while seconds > 0:
            self.time.advance(min(seconds, JUDGE_S))
            seconds -= JUDGE_S
            self.judge()

    # What is said

    @property
    def shown(self) -> dict[str, str]:
        """The conditions of NVML's two checks, as `Status Reason`; those that are not published are left out."""
        return {
            condition.type: f"{condition.status} {condition.reason}"
            for condition in self.judging.conditions()
            if condition.type in ("GpuDriverFault", "GpuMissing")
        }

    def message(self, condition_type: str) -> str:
        return next(one.message for one in self.judging.conditions() if one.type == condition_type)

    @property
    def findings(self) -> dict[str, list[Finding]]:
        """The findings by where they are: the PCI address of the GPU, or `node`; of health, none."""
        found: dict[str, list[Finding]] = {}
        for condition, finding in self.judging.findings():
            if condition in CONDITIONS and not finding.reason.startswith("Recovery"):
                found.setdefault(finding.part.pci or finding.part.kind.value, []).append(finding)
        return found

    def reasons(self) -> dict[str, list[str]]:
        return {where: sorted(one.reason for one in found) for where, found in self.findings.items()}

    def not_shown(self, check: str = "driver") -> list[str]:
        """What stands open as not evaluated, each as `PART: WHY`."""
        return [
            f"{row.part}: {row.why}"
            for state in self.judging.states.values()
            for row in state.not_evaluated
            if row.check == check
        ]


SOUND = {"GpuDriverFault": "False DriverUsable", "GpuMissing": "False AllGpusPresent"}


@contextmanager
def by_hand(
    root: Path, nursery: Nursery, count: int = 2, *, timing: Timing = QUIET_EVENTS, model: str = H100
) -> Iterator[Hand]:
    """Have a machine of `count` GPUs on a new driver root; its processes are ended afterwards."""
    hand = Hand(lay_out(root, count, model), parts(count), timing, nursery.start)
    try:
        yield hand
    finally:
        hand.worker.close()
