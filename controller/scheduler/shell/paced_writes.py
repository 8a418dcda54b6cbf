"""Writes of the grouper: each key at most once under way, a few side by side, what is not urgent when there is room. Shell.

One thread wants and turns; only the requests run in others. A write that fails comes again with growing pauses; when its
turn comes it is made anew from what is wanted by then, so that nothing stale is ever sent.
"""

import heapq
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

import structlog

from kube.api import Api, ApiError, Conflict, Forbidden, Invalid, NotFound, NotLeader
from kube.clock import Clock

log = structlog.get_logger(__name__)

WORKERS: Final = 4
PATIENCE_S: Final = 30.0
POLL_S: Final = 0.25
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 60.0
FOLLOWER_PAUSE_S: Final = 1.0
SAY_AGAIN_S: Final = 60.0
SAID_LIMIT: Final = 64

Request: TypeAlias = Callable[[Api], None]
"""One write, with whatever it must read for it. Raises ApiError."""


class PacedWrites:
    """`make` gives the request for a key when its turn comes, None where nothing is left to do; `ring` is called at its end.

    `may_write`: whether this replica leads. `calm`: whether nothing more urgent is under way.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        hands: Executor,
        *,
        make: Callable[[str], Request | None],
        ring: Callable[[], None],
        may_write: Callable[[], bool],
        calm: Callable[[], bool],
    ) -> None:
        self._api = api
        self._clock = clock
        self._hands = hands
        self._make = make
        self._ring = ring
        self._may_write = may_write
        self._calm = calm
        self._urgent: dict[str, None] = {}
        self._patient: dict[str, float] = {}
        self._later: list[tuple[float, str]] = []
        self._pausing: dict[str, float] = {}
        self._flying: dict[str, bool] = {}
        self._again: set[str] = set()
        self._tries: dict[str, int] = {}
        self._done: SimpleQueue[tuple[str, ApiError | None]] = SimpleQueue()
        self._said: dict[str, float] = {}
        self._quiet_until = 0.0

    def want(self, key: str, *, urgent: bool) -> None:
        """Ask for a write. One that pauses after a failure goes on pausing; one under way is followed by another."""
        if key in self._flying:
            self._again.add(key)
        elif key in self._pausing or key in self._urgent:
            return
        elif urgent:
            self._patient.pop(key, None)
            self._urgent[key] = None
        else:
            self._patient.setdefault(key, self._clock.monotonic() + PATIENCE_S)

    def drop(self, key: str) -> None:
        """Nothing is to be written any more; what is under way goes on."""
        self._urgent.pop(key, None)
        self._patient.pop(key, None)
        self._pausing.pop(key, None)
        self._tries.pop(key, None)
        self._again.discard(key)

    def is_wanted(self, key: str) -> bool:
        return key in self._urgent or key in self._patient or key in self._pausing or key in self._flying

    def turn(self) -> list[str]:
        """Take what ended, start what may go, and name what succeeded."""
        ended = self._collect()
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due, key = heapq.heappop(self._later)
            if self._pausing.get(key) == due:
                del self._pausing[key]
                self._urgent[key] = None
        if now < self._quiet_until or not self._may_write():
            return ended
        while self._urgent and len(self._flying) < WORKERS:
            self._start(_first(self._urgent), True)
        # What nobody waits for holds up no bind: while there are any, it goes out late and one at a time.
        calm = self._calm()
        while self._patient and len(self._flying) < WORKERS:
            key = _first(self._patient)
            overdue = self._patient[key] <= now and False not in self._flying.values()
            if not calm and not overdue:
                break
            self._start(key, False)
        return ended

    def next_due(self) -> float | None:
        """Say when `turn` may have something to start, on the monotonic clock."""
        now = self._clock.monotonic()
        dues = [self._later[0][0]] if self._later else []
        if self._patient or self._urgent:
            dues.append(now + POLL_S)
        return min(dues, default=None)

    def _start(self, key: str, urgent: bool) -> None:
        self._urgent.pop(key, None)
        self._patient.pop(key, None)
        request = self._make(key)
        if request is None:
            self._tries.pop(key, None)
            return
        self._flying[key] = urgent
        self._hands.submit(self._carry_out, key, request)

    def _carry_out(self, key: str, request: Request) -> None:
        error: ApiError | None = None
        try:
            request(self._api)
        except ApiError as failed:
            error = failed
        except Exception as failed:
            log.exception("group.write_failed", key=key)
            error = ApiError(f"a defect of the scheduler: {failed!r}")
        self._done.put((key, error))
        self._ring()

    def _collect(self) -> list[str]:
        ended: list[str] = []
        while True:
            try:
                key, error = self._done.get_nowait()
            except Empty:
                return ended
            urgent = self._flying.pop(key)
            again = key in self._again
            self._again.discard(key)
            if error is None:
                self._tries.pop(key, None)
                ended.append(key)
                if again:
                    self.want(key, urgent=urgent)
            elif isinstance(error, NotLeader):
                self._quiet_until = self._clock.monotonic() + FOLLOWER_PAUSE_S
                self.want(key, urgent=urgent)
            else:
                self._pause(key, error)

    def _pause(self, key: str, error: ApiError) -> None:
        count = self._tries[key] = self._tries.get(key, 0) + 1
        pause = max(min(FIRST_PAUSE_S * 2.0 ** (count - 1), LAST_PAUSE_S), error.retry_after_s or 0.0)
        if isinstance(error, Forbidden | Invalid):
            pause = LAST_PAUSE_S  # only a person can change it
        due = self._clock.monotonic() + pause
        self._pausing[key] = due
        heapq.heappush(self._later, (due, key))
        self._say(key, error)

    def _say(self, key: str, error: ApiError) -> None:
        """Log what failed, each sort once a minute. What went or changed under our hands is everyday life."""
        now = self._clock.monotonic()
        sort = f"{type(error).__name__} {error.reason}"
        if isinstance(error, Conflict | NotFound) or now - self._said.get(sort, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return
        self._said.pop(sort, None)
        self._said[sort] = now
        while len(self._said) > SAID_LIMIT:
            del self._said[_first(self._said)]
        log.warning("group.not_written", key=key, error=str(error) or repr(error))


def _first(held: Mapping[str, object]) -> str:
    return next(iter(held))
