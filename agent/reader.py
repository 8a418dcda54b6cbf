"""The thread that reads the kernel log, and the bounded box between it and the judging loop.

A full box makes the reader wait, so that the kernel's own ring buffers, and what it drops is counted there. The reader
never judges and the loop never reads: a read that hangs is seen by the loop as a reader whose heartbeat stands still.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import msgspec
import structlog

from agent.config import Config
from agent.host.kmsg import Cursor, KernelLog
from agent.pacing import Backoff
from checks.observation import KERNEL_LOG, Observation, SourceFailed
from kube.clock import Clock

POLL_S = 2.0
MOST_WAITING = 20_000
STALE_S = 60.0
TRIES_BEFORE_UNKNOWN = 3


class Source(Protocol):
    """What a reader reads: agent.host.kmsg.KernelLog, or a test's script."""

    @property
    def cursor(self) -> Cursor: ...

    def poll(self, timeout_s: float) -> list[Observation]: ...

    def close(self) -> None: ...


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one poll gave, and where the source stood after it."""

    observations: tuple[Observation, ...]
    cursor: Cursor | None = None


class Inbox:
    """A bounded queue of batches. `wake` is called after each that comes in."""

    def __init__(self, wake: Callable[[], None], limit: int = MOST_WAITING) -> None:
        self._wake = wake
        self._limit = limit
        self._changed = threading.Condition()
        self._batches: deque[Batch] = deque()
        self._waiting = 0

    def put(self, batch: Batch, *, timeout_s: float) -> bool:
        """Add a batch once there is room; False where there was none within `timeout_s` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting < self._limit, timeout_s):
                return False
            self._batches.append(batch)
            self._waiting += len(batch.observations)
        self._wake()
        return True

    def take(self) -> list[Batch]:
        """Take all that is there, oldest first."""
        with self._changed:
            taken = list(self._batches)
            self._batches.clear()
            self._waiting = 0
            self._changed.notify_all()
        return taken


class Reader:
    """Owns a source and the thread that polls it."""

    def __init__(self, source: Source, inbox: Inbox, clock: Clock, random: Random) -> None:
        self.heartbeat = clock.monotonic()
        self._source = source
        self._inbox = inbox
        self._clock = clock
        self._log = structlog.get_logger()
        self._backoff = Backoff(0.5, 15.0, random)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End the thread; False where it hangs in a read beyond `timeout_s` seconds and is left to itself."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.round()
        finally:
            self._source.close()

    def round(self) -> None:
        """Poll once and hand over what came."""
        self.heartbeat = self._clock.monotonic()
        try:
            observations = self._source.poll(POLL_S)
        except Exception as error:  # noqa: BLE001 - the reader's outermost edge: a defect in it is a source that failed
            if self._backoff.failures == 0:
                self._log.exception("source.broke")
            pause_s = self._backoff.failed()
            failed = f"{type(error).__name__}: {error}"
            self._hand_over([_failed(failed, self._backoff.failures, self._clock)])
            self._stop.wait(pause_s)
            return
        self._backoff.succeeded()
        if observations:
            self._hand_over(observations)

    def _hand_over(self, observations: Sequence[Observation]) -> None:
        batch = Batch(observations=tuple(observations), cursor=self._source.cursor)
        while not self._inbox.put(batch, timeout_s=1.0):
            self.heartbeat = self._clock.monotonic()
            if self._stop.is_set():
                return


class Feed(Protocol):
    """Where the judging loop takes its observations from, one boot after another."""

    @property
    def begun(self) -> bool:
        """Whether it is being read."""
        ...

    def begin(self, boot_id: str, cursor: Cursor | None) -> None:
        """Start to read, after `cursor` where one is given."""
        ...

    def end(self) -> None:
        """Stop reading; what was read and not yet taken is dropped, and so is read again from the cursor."""
        ...

    def take(self) -> tuple[list[Observation], Cursor | None]:
        """Give what came in and how far that reaches. A reader that hangs is a source that cannot be read."""
        ...

    def hangs_s(self, now: float) -> float:
        """Give the seconds since the reader last went round; 0 where none reads."""
        ...


class KernelLogFeed:
    """The real Feed: at most one reader at a time, each with a box of its own."""

    def __init__(
        self,
        open_log: Callable[[str, Cursor | None], Source],
        clock: Clock,
        random: Random,
        wake: Callable[[], None],
    ) -> None:
        self._open_log = open_log
        self._clock = clock
        self._random = random
        self._wake = wake
        self._inbox = Inbox(wake)
        self._reader: Reader | None = None
        self._said_stale_at = float("-inf")

    @property
    def begun(self) -> bool:
        return self._reader is not None

    def begin(self, boot_id: str, cursor: Cursor | None) -> None:
        self._reader = Reader(self._open_log(boot_id, cursor), self._inbox, self._clock, self._random)
        self._reader.start()

    def end(self) -> None:
        if self._reader is not None:
            self._reader.stop(timeout_s=2 * POLL_S)
            self._reader, self._inbox = None, Inbox(self._wake)

    def take(self) -> tuple[list[Observation], Cursor | None]:
        observations: list[Observation] = []
        cursor = None
        for batch in self._inbox.take():
            observations += batch.observations
            cursor = batch.cursor or cursor
        now = self._clock.monotonic()
        if self.hangs_s(now) > STALE_S and now - self._said_stale_at > STALE_S:
            self._said_stale_at = now
            said = f"reading it has not come back for {STALE_S:.0f} s"
            observations.append(_failed(said, TRIES_BEFORE_UNKNOWN, self._clock))
        return observations, cursor

    def hangs_s(self, now: float) -> float:
        return now - self._reader.heartbeat if self._reader is not None else 0.0


def _failed(error: str, tries: int, clock: Clock) -> SourceFailed:
    return SourceFailed(source=KERNEL_LOG, error=error, tries=tries, seen_at=clock.now())


def open_kernel_log(config: Config, clock: Clock) -> Callable[[str, Cursor | None], Source]:
    """Say how the configured kernel log is opened for a boot."""
    log = config.kernel_log
    return lambda boot_id, cursor: KernelLog(
        log.path,
        boot_id,
        cursor,
        admit_foreign=log.admit_foreign,
        after_sequence=log.after_sequence,
        clock=clock,
    )
