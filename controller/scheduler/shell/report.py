"""The reporter: one thread that writes status and Events after each cycle, behind binds, and only what differs. Shell.

Nothing is queued but what happened: all else is worked out anew from the newest report and the stores, so that a server that
was away for long is told what holds now, and no more. What happened is bounded; what does not fit is counted and lost.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec
import structlog

from controller.scheduler.plan import Evict
from controller.scheduler.shell import events
from controller.scheduler.shell.events import Voice
from controller.scheduler.shell.report_round import Rounds
from controller.scheduler.shell.reported import Happened as Happened
from controller.scheduler.shell.reported import Report as Report
from controller.scheduler.shell.round_writes import Held, Moment
from controller.scheduler.shell.status_writes import Kind, Write
from controller.scheduler.shell.steady_words import SETTLE_S
from controller.scheduler.shell.write_holds import WriteHolds
from kube.api import AlreadyExists, Api, ApiError, Forbidden, NotFound, NotLeader
from kube.clock import Clock
from kube.scheduling import PodGroup, Queue
from kube.store import Store
from kube.types import Pod

log = structlog.get_logger(__name__)

POOL_LABEL: Final = "kai.scheduler/node-pool"
ROUND_S: Final = 0.25
ROUND_BUSY_S: Final = 1.0
PAUSE_S: Final = 0.01
PAUSE_BUSY_S: Final = 0.05
LONGEST_S: Final = 30.0
SETTLE_BUSY_S: Final = 10.0
"""How long a job waits before anybody is told, while there are binds under way."""
MOST_HAPPENED: Final = 2000
MOST_BOUND: Final = 500
"""Of a burst of binds so many get their Event: a pod says itself where it is, and its Event is a third of what it costs."""
MOST_STARTED: Final = 20_000
MOST_EVICTIONS: Final = 5000
_HAPPENED_A_ROUND: Final = 40
_ENDING: Final = "NamespaceTerminating"


class Reporter:
    """`took` may be called from any thread and never blocks; `calm`: no bind is under way; `may_write`: we lead and plan.

    `written` and `failed` count by kind of object (`Kind`), `lost` what happened and was never told.
    """

    def __init__(
        self,
        *,
        api: Api,
        pods: Store[Pod],
        pod_groups: Store[PodGroup],
        queues: Store[Queue],
        clock: Clock,
        instance: str,
        scheduler_name: str,
        calm: Callable[[], bool],
        may_write: Callable[[], bool] = lambda: True,
        pool_label: str = POOL_LABEL,
    ) -> None:
        self.written: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.lost = 0
        self._api = api
        self._pods = pods
        self._groups = pod_groups
        self._queues = queues
        self._clock = clock
        self._calm = calm
        self._may_write = may_write
        self._voice = Voice(scheduler=scheduler_name, instance=instance)
        self._holds = WriteHolds()
        self._rounds = Rounds(self._voice, pool_label, self._may)
        self._lock = threading.Lock()
        self._report: Report | None = None
        self._happened: deque[Happened] = deque()
        self._bound: deque[Happened] = deque()
        self._started: dict[str, datetime] = {}
        self._evictions: dict[str, Evict] = {}
        self._news = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End after the write under way, at most `timeout_s` seconds from now; what was not told, the next leader tells."""
        self._ending.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether anything is still told."""
        return self._thread.is_alive()

    def took(self, report: Report) -> None:
        """Take what a cycle decided and what became of the last ones."""
        plan = report.plan
        with self._lock:
            self._report = report
            for one in report.happened:
                (self._bound if one.what == "bound" else self._happened).append(one)
            for held, most in ((self._happened, MOST_HAPPENED), (self._bound, MOST_BOUND)):
                while len(held) > most:
                    held.popleft()
                    self.lost += 1
            self._evictions.update((evict.task, evict) for evict in plan.evictions)
            _shorten(self._evictions, MOST_EVICTIONS)
            self._started.update(dict.fromkeys(plan.started, report.snapshot.now))
            _shorten(self._started, MOST_STARTED)
        self._news.set()

    def round(self) -> float:
        """Write what differs now; give for how many seconds there is nothing more to do, as far as is known."""
        with self._lock:
            report, started = self._report, dict(self._started)
        if report is None:
            return LONGEST_S
        if not self._may_write():  # what others schedule by now is theirs to tell of
            return ROUND_BUSY_S
        known, calm = dict(started), self._calm()
        moment = Moment(
            now=self._clock.now(),
            at=self._clock.monotonic(),
            calm=calm,
            settle_s=SETTLE_S if calm else SETTLE_BUSY_S,
        )
        held = Held(
            pods=self._pods.snapshot(), groups=self._groups.snapshot(), queues=self._queues.snapshot()
        )
        writes, due = self._rounds.plan(report, held, started, moment)
        with self._lock:
            for job in known.keys() - started.keys():
                if self._started.get(job) == known[job]:
                    del self._started[job]
        for event in self._tell(moment):
            if not self._ending.is_set() and not self._write(event):
                self.lost += 1
        for write in writes:
            if self._ending.is_set() or (self._report is not report and self._is_old(moment)):
                return 0.0
            self._write(write)
        self._holds.prune(moment.at)
        times = [at for at in (due, self._holds.next_at(moment.at)) if at is not None]
        return max(0.0, min(times, default=moment.at + LONGEST_S) - self._clock.monotonic())

    def _run(self) -> None:
        wait_s = LONGEST_S
        while not self._ending.is_set():
            self._news.wait(min(wait_s, LONGEST_S))
            if self._ending.wait(ROUND_S if self._calm() else ROUND_BUSY_S):
                return
            self._news.clear()
            try:
                wait_s = self.round()
            except Exception:
                # A defect here must not end all telling, nor fill the log with each cycle.
                log.exception("report.round_failed")
                self.failed["round"] += 1
                self._ending.wait(LONGEST_S)

    def _is_old(self, moment: Moment) -> bool:
        """Whether a round has gone on for long enough to be worked out anew."""
        return self._clock.monotonic() - moment.at > 2 * ROUND_BUSY_S

    def _may(self, write: Write) -> bool:
        return self._holds.may(write, self._clock.monotonic())

    def _tell(self, moment: Moment) -> list[Write]:
        """Make the Events of what happened; that pods were bound is told in peace only."""
        if not self._holds.may_any(Kind.EVENT, moment.at):
            return []
        told: list[Write] = []
        with self._lock:
            for held in (self._happened, self._bound) if moment.calm else (self._happened,):
                while held and len(told) < _HAPPENED_A_ROUND:
                    one = held.popleft()
                    event = events.of_happening(one, self._evictions.get(one.pod), self._voice)
                    if not self._rounds.was_said(event, moment.at):
                        told.append(event)
            if self._happened or (self._bound and moment.calm):
                self._news.set()
        return told

    def _write(self, write: Write) -> bool:
        """Tells whether the server has it now, or has no use for it any more."""
        at = self._clock.monotonic()
        if not self._holds.may(write, at):
            return False
        is_there = True
        try:
            self._send(write)
        except AlreadyExists:
            pass  # another leader said it, or we before a restart
        except ApiError as error:
            is_there = False
            if not (
                isinstance(error, NotFound) or (isinstance(error, Forbidden) and _ENDING in error.causes)
            ):
                self._note_failure(write, error)
                return False
        finally:
            self._ending.wait(PAUSE_S if self._calm() else PAUSE_BUSY_S)
        self._rounds.took(write, at)
        if is_there:
            self.written[write.kind.value] += 1
            if self._holds.worked(write):
                log.info("report.accepted_again", kind=write.kind.value)
        return True

    def _send(self, write: Write) -> None:
        if write.patch_type is None:
            self._api.create(write.path, write.body)
            return
        answer = self._api.patch(write.path, write.body, write.patch_type)
        try:
            match write.kind:
                case Kind.POD:
                    self._pods.offer(msgspec.json.decode(answer, type=Pod))
                case Kind.QUEUE:
                    self._queues.offer(msgspec.json.decode(answer, type=Queue))
                case _:
                    self._groups.offer(msgspec.json.decode(answer, type=PodGroup))
        except msgspec.MsgspecError as error:  # the watch brings it, or says so itself
            log.warning("report.answer_unreadable", kind=write.kind.value, name=write.key, error=str(error))

    def _note_failure(self, write: Write, error: ApiError) -> None:
        if not isinstance(error, NotLeader):
            self.failed[write.kind.value] += 1
        if self._holds.failed(write, error, self._clock.monotonic()):
            log.warning("report.refused", kind=write.kind.value, name=write.key, error=str(error))


def _shorten(known: dict[str, Evict] | dict[str, datetime], most: int) -> None:
    """Forget the oldest."""
    for key in list(known)[: max(0, len(known) - most)]:
        del known[key]
