"""Sources that are looked at every so often (sysfs, procfs, mounts), for the judging loop: one thread each, none waited for.

A read of sysfs can block in the kernel, where a device is dying. So each source has a thread of its own, and a look that
has not come back within its deadline is a source that cannot be read. No second look is begun while one is away.
"""

import threading
from collections.abc import Callable, Sequence
from random import Random

import msgspec
import structlog

from agent.nvml_feed import Box
from checks.observation import Observation, SourceFailed, SourceRead
from kube.clock import Clock

JITTER = 0.1
MOST_WAITING = 64


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One source. `read` gives one observation or raises OSError or ValueError with what is wrong, naming the file."""

    source: str
    read: Callable[[], Observation]
    period_s: float
    deadline_s: float


class _Looker:
    """One probe's thread, from a `begin` to its `end`."""

    def __init__(
        self, probe: Probe, box: Box, clock: Clock, random: Random, wake: Callable[[], None]
    ) -> None:
        self.probe = probe
        self._box = box
        self._clock = clock
        self._random = random
        self._wake = wake
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told = 0
        self._tries = 0

    def begin(self) -> None:
        threading.Thread(target=self._run, name=f"probe-{self.probe.source}", daemon=True).start()

    def end(self) -> None:
        self._stop.set()

    def overdue(self, now: float) -> list[Observation]:
        """Say once a deadline that the look which is under way has not come back."""
        with self._lock:
            since, told = self._since, self._told
            late_s = 0.0 if since is None else now - since
            if late_s < self.probe.deadline_s * (told + 1):
                return []
            self._told = told + 1
            self._tries += 1
            tries = self._tries
        error = f"the look at it has not come back within {self.probe.deadline_s:g} s"
        return [SourceFailed(source=self.probe.source, error=error, tries=tries, seen_at=self._clock.now())]

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                self._since, self._told = self._clock.monotonic(), 0
            observations = self._look()
            with self._lock:
                self._since = None
            if self._stop.is_set():
                return
            for observation in observations:
                self._box.put(observation)
            self._wake()
            self._stop.wait(self.probe.period_s * (1 + JITTER * (2 * self._random.random() - 1)))

    def _look(self) -> list[Observation]:
        source = self.probe.source
        try:
            seen = self.probe.read()
        except (OSError, ValueError) as error:
            return [self._failed(str(error))]
        except Exception as error:  # noqa: BLE001 - the thread's outermost edge: a defect here is a source that fails
            structlog.get_logger().exception("probe.broke", source=source)
            return [self._failed(f"{type(error).__name__}: {error}")]
        self._tries = 0
        return [seen, SourceRead(source=source, seen_at=self._clock.now())]

    def _failed(self, error: str) -> SourceFailed:
        self._tries += 1
        return SourceFailed(
            source=self.probe.source, error=error[:1024], tries=self._tries, seen_at=self._clock.now()
        )


class Probes:
    """All probes of one machine. `follow` starts them for a boot, `take` gives what came in, `end` waits for nothing."""

    def __init__(
        self, probes: Sequence[Probe], clock: Clock, random: Random, wake: Callable[[], None]
    ) -> None:
        self._probes = tuple(probes)
        self._clock = clock
        self._random = random
        self._wake = wake
        self._boot_id = ""
        self._box = Box(MOST_WAITING)
        self._lookers: list[_Looker] = []

    def follow(self, boot_id: str, *, may_begin: bool) -> None:
        """Take which boot this is; what an earlier boot's looks still bring is dropped."""
        if boot_id != self._boot_id:
            self.end()
            self._boot_id = boot_id
        if not self._lookers and boot_id and may_begin:
            self._lookers = [
                _Looker(probe, self._box, self._clock, self._random, self._wake) for probe in self._probes
            ]
            for looker in self._lookers:
                looker.begin()

    def take(self) -> list[Observation]:
        """Give what came in since the last time, and which looks are overdue."""
        now = self._clock.monotonic()
        overdue = [late for looker in self._lookers for late in looker.overdue(now)]
        return self._box.take(self._clock) + overdue

    def end(self) -> None:
        """End the threads; one whose look hangs ends with the process."""
        for looker in self._lookers:
            looker.end()
        self._lookers = []
        self._box = Box(MOST_WAITING)


def look_once(probes: Sequence[Probe], clock: Clock) -> list[Observation]:
    """Look at every source once, beside each other, for `--once` and `validate`: no longer than the longest deadline."""
    woken = threading.Event()
    box = Probes(probes, clock, Random(0), woken.set)  # noqa: S311 - jitter, not a secret
    box.follow("once", may_begin=True)
    seen: list[Observation] = []
    wanted = {probe.source for probe in probes}
    deadline = clock.monotonic() + max((probe.deadline_s for probe in probes), default=0.0) + 1.0
    try:
        while wanted and clock.monotonic() < deadline:
            woken.wait(0.2)
            woken.clear()
            seen += box.take()
            wanted -= {o.source for o in seen if isinstance(o, SourceRead | SourceFailed)}
    finally:
        box.end()
    return seen
