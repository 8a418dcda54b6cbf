"""What NVML says, for the judging loop: one worker a boot, and the bounded box between it and the loop.

Nothing that kubelet asks about hangs on the worker: a driver that hangs is a condition of the node, not a sick agent.
"""

import threading
from collections import deque
from collections.abc import Callable
from random import Random

from agent.config import NvmlSection
from agent.judging import Judging
from agent.metrics import Metrics
from agent.nvml_keeper import LIB_RM_VERSION_MISMATCH, Keeper, Wish
from agent.nvml_quiet import sick_of
from agent.nvml_watch import Timing
from agent.nvml_worker import Launch, Worker, launch
from agent.release import wanted
from checks.observation import KERNEL_LOG, NVML, NvmlFailed, NvmlRead, Observation, RecordsLost, SourceFailed
from kube.clock import Clock
from kube.nodehealth import Released

MOST_WAITING = 2000


def timing(section: NvmlSection) -> Timing:
    """Give the times that the configuration asks for."""
    return Timing(period_s=section.period.total_seconds(), deadline_s=section.call_deadline.total_seconds())


def wish_of(judging: Judging) -> Wish:
    """Say what the agent's knowledge asks of NVML."""
    findings = (finding for _, finding in judging.findings())
    return Wish(
        gpus=judging.inventory.parts,
        sick=sick_of(findings, judging.boot_id),
        release=wanted(judging.labels, judging.release, judging.settled),
        cleared_before=judging.cleared_before,
        clearings=judging.clearings,
        lost=log.lost if (log := judging.sources.get(KERNEL_LOG)) is not None else 0,
    )


class Box:
    """A bounded queue of observations; where nobody takes them the oldest go, and are counted."""

    def __init__(self, limit: int = MOST_WAITING) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Observation] = deque()
        self._limit = limit
        self._lost = 0

    def put(self, observation: Observation) -> None:
        with self._lock:
            if len(self._waiting) >= self._limit:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(observation)

    def take(self, clock: Clock) -> list[Observation]:
        with self._lock:
            taken, lost = list(self._waiting), self._lost
            self._waiting.clear()
            self._lost = 0
        if lost:
            why = f"more than {self._limit} waited to be judged"
            taken.append(RecordsLost(source=NVML, count=lost, seen_at=clock.now(), why=why))
        return taken


class NvmlFeed:
    """Hands over what NVML says, one boot after another. `follow` starts and steers it; `end` leaves no process behind."""

    def __init__(
        self,
        section: NvmlSection,
        clock: Clock,
        random: Random,
        wake: Callable[[], None],
        metrics: Metrics | None = None,
        *,
        times: Timing | None = None,
        start: Launch = launch,
    ) -> None:
        self.enabled = section.enabled
        self.released: Released | None = None
        """Set while no handle is held because somebody asked."""
        self._section = section
        self._clock = clock
        self._random = random
        self._wake = wake
        self._metrics = metrics
        self._times = times or timing(section)
        self._start = start
        self._box = Box()
        self._boot_id = ""
        self._worker: Worker | None = None

    @property
    def begun(self) -> bool:
        """Whether NVML is being asked, or kept released."""
        return self._worker is not None

    def follow(self, boot_id: str, wish: Wish, *, may_begin: bool) -> None:
        """Take which boot this is and what is wanted in it. A machine without GPUs gets no child at all."""
        if boot_id != self._boot_id:
            self.end()
            self._boot_id = boot_id
        if self._worker is not None:
            self._worker.want(wish)
        elif self.enabled and may_begin and boot_id and wish.gpus:
            root = self._section.driver_root
            self._worker = Worker(self._keeper, root, self._box.put, self._told, self._clock, self._start)
            self._worker.begin(wish)
        else:
            self._hold_nothing(wish)

    def _keeper(self) -> Keeper:
        return Keeper(self._times, self._boot_id, self._random)

    def _hold_nothing(self, wish: Wish) -> None:
        """Without a child there is nothing to drop: who asks is answered at once."""
        asked = wish.release
        if asked is None:
            self.released = None
        elif self.released is None or (self.released.why, self.released.by) != (asked.why, asked.by):
            self.released = Released(since=self._clock.now(), why=asked.why, by=asked.by)

    def _told(self, keeper: Keeper) -> None:
        self.released = keeper.released
        if self._metrics is not None:
            self._metrics.nvml(keeper.spent_us, keeper.started, keeper.left, len(keeper.quiet))
        self._wake()

    def take(self) -> list[Observation]:
        """Give what came in since the last time."""
        return self._box.take(self._clock)

    def end(self) -> None:
        """End the worker and its child; a process that the kernel does not let go is left after a few seconds."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()
        self._box = Box()
        self.released = None


def one_round(
    section: NvmlSection, clock: Clock, boot_id: str, wish: Wish, times: Timing | None = None
) -> list[Observation]:
    """Ask NVML once, without an agent: for `--once` and `validate`. It takes no longer than a hung call and its ending.

    An out-of-date library is this process's own, so only what a fresh child says counts.
    """
    woken = threading.Event()
    feed = NvmlFeed(section, clock, Random(), woken.set, times=times)  # noqa: S311 - jitter, not a secret
    times = times or timing(section)
    longest_s = times.start_s + times.init_s + times.deadline_s + times.end_s + times.kill_s
    deadline = clock.monotonic() + longest_s
    seen: list[Observation] = []
    try:
        feed.follow(boot_id, wish, may_begin=True)
        while feed.begun and not _is_told(seen):
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                error = f"no round ended within {longest_s:.0f} s"
                seen.append(SourceFailed(source=NVML, error=error, tries=1, seen_at=clock.now()))
                break
            woken.wait(min(left_s, 1.0))
            woken.clear()
            seen += feed.take()
    finally:
        feed.end()
    return seen


def _is_told(seen: list[Observation]) -> bool:
    """Tell whether a verdict is among these; the word of a child that may be out of date is none."""
    stale = any(isinstance(one, NvmlFailed) and one.error.code == LIB_RM_VERSION_MISMATCH for one in seen)
    fresh = any(isinstance(one, NvmlFailed) and one.fresh for one in seen)
    failed = any(isinstance(one, SourceFailed) for one in seen) and (not stale or fresh)
    return failed or any(isinstance(one, NvmlRead) for one in seen)
