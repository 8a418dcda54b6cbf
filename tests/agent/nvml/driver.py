"""A fake driver, the real child on it, and the real feed: what the tests with processes share."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

from agent.config import NvmlSection
from agent.nvml_feed import NvmlFeed
from agent.nvml_keeper import Wish
from agent.nvml_process import ChildProcess
from agent.nvml_watch import Timing
from agent.nvml_wire import CallBegins, FailedSaid, Order, RoundSaid, read
from agent.nvml_worker import Launch, launch
from checks.finding import Part, PartKind
from checks.observation import Observation
from kube.clock import SYSTEM
from sandbox.fake_nvml import FakeDriver, make_gpus
from tests.fakes import wait_until
from tests.sandbox.nvml_program import built_or_skip

H100 = "NVIDIA H100 80GB HBM3"
# A busy machine takes long to start a process, and no time to answer a call.
QUICK = Timing(
    period_s=0.3,
    deadline_s=1.0,
    start_s=20.0,
    init_s=1.0,
    event_wait_s=0.2,
    end_s=0.3,
    kill_s=1.0,
    back_off_s=0.2,
    hang_back_off_s=0.2,
)
WITHIN_S = 20.0
O = TypeVar("O", bound=Observation)  # noqa: E741 - a type of observation


def lay_out(root: Path, count: int = 2, model: str = H100) -> FakeDriver:
    """Lay out a driver root, or skip the test where the fake cannot be compiled."""
    return FakeDriver(root, make_gpus(count, model), built=built_or_skip())


def await_events(fake: FakeDriver) -> None:
    """Wait until somebody waits for events: those that happen before are delivered to nobody."""
    wait_until(lambda: ("nvmlEventSetWait_v2", None) in fake.calls(), WITHIN_S)


def parts(count: int = 2) -> tuple[Part, ...]:
    """Give what sysfs would show of so many GPUs."""
    return tuple(
        Part(kind=PartKind.GPU, pci=gpu.pci.partition(".")[0], index=gpu.index) for gpu in make_gpus(count)
    )


class Listening:
    """A feed with its children, and all that it handed over."""

    def __init__(self, feed: NvmlFeed, woken: threading.Event) -> None:
        self.feed = feed
        self.told: list[Observation] = []
        self._woken = woken
        self._from = 0

    def want(self, wish: Wish) -> None:
        self.feed.follow("boot-1", wish, may_begin=True)

    def until(self, kind: type[O], which: Callable[[O], bool] = lambda _: True) -> O:
        """Wait for an observation that nobody waited for yet; raises AssertionError with what came instead."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            self.told += self.feed.take()
            for place in range(self._from, len(self.told)):
                seen = self.told[place]
                if isinstance(seen, kind) and which(seen):
                    self._from = place + 1
                    return seen
            if time.monotonic() > deadline:
                raise AssertionError(f"no such {kind.__name__} within {WITHIN_S} s: {self.told[-5:]}")
            self._woken.wait(0.05)
            self._woken.clear()


@contextmanager
def listening(
    root: Path, *, count: int = 2, times: Timing = QUICK, start: Launch = launch, wish: Wish | None = None
) -> Iterator[Listening]:
    """Run a feed on a driver root, from before its first child until after its last."""
    woken = threading.Event()
    section = NvmlSection(driver_root=root)
    feed = NvmlFeed(section, SYSTEM, Random(1), woken.set, times=times, start=start)
    held = Listening(feed, woken)
    held.want(wish or Wish(gpus=parts(count)))
    try:
        yield held
    finally:
        feed.end()


class Asking:
    """The real child without a feed: orders go in, what it says comes out, nothing is decided."""

    def __init__(self, root: Path) -> None:
        self.process = ChildProcess(root)
        self.calls: list[CallBegins] = []
        self._rounds = 0

    def ask(
        self, *, known: tuple[tuple[int, str], ...] = (), quiet: tuple[str, ...] = (), by_pci: bool = False
    ) -> RoundSaid | FailedSaid:
        """Let it go round once."""
        self._rounds += 1
        self.calls = []
        self.process.send(Order(round=self._rounds, known=known, quiet=quiet, by_pci=by_pci))
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline and not self.process.at_end:
            for line in self.process.read():
                match read(line):
                    case CallBegins() as call:
                        self.calls.append(call)
                    case RoundSaid() | FailedSaid() as said:
                        return said
                    case other:
                        raise AssertionError(f"the child said {other}")
            time.sleep(0.001)
        raise AssertionError(f"no answer; the child ended by {self.process.how_ended(1.0)}")


@contextmanager
def asking(root: Path) -> Iterator[Asking]:
    """Have a child to ask; it is ended afterwards."""
    held = Asking(root)
    try:
        yield held
    finally:
        held.process.terminate()
        held.process.how_ended(1.0)
        held.process.kill()
        held.process.how_ended(1.0)
        held.process.close()
