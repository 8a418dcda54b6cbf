"""Which job is next: the best queue at every level of the tree, then its best job. Pure.

Jobs of a queue: higher priority, then those below their minimum, then the older. Victims come in the opposite order, from
the queue that is over-served the most. Only the queues above a job that was taken change their place, so each level is a
heap whose top is put in its place again when it is next asked for: nothing is sorted again for each job.
Source: KAI Scheduler, actions/utils/job_order_by_queue.go, plugins priority and elastic; kai.md 2.2 and 3.4.
"""

from collections.abc import Iterable, Set
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, TypeAlias

from controller.scheduler import gangs, model_gates, queue_order
from controller.scheduler.amounts import GPU, NOTHING, Amounts, plus
from controller.scheduler.model import HOLDING, TaskStatus
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, QueueState, TaskState

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NOBODY: Final[frozenset[str]] = frozenset()

# What a job is sorted by: four ranks and a number that no other entry has; then the job, and which of its pods are out.
_Entry: TypeAlias = tuple[int, int, int, int, int, JobState, Set[str]]


def is_pending(job: JobState) -> bool:
    """Tell whether any of its pods waits for a node."""
    if len(job.tasks) == 1:
        return job.tasks[0].status is TaskStatus.PENDING
    return any(task.status is TaskStatus.PENDING for task in job.tasks)


def why_not_queued(job: JobState) -> str | None:
    """Say why a job's queue cannot serve it."""
    if job.queue is None:
        return f"queue {job.spec.queue} does not exist"
    if job.queue.children:
        return f"queue {job.spec.queue} has queues below it and takes no jobs"
    return None


class _Reversed:
    """A key that sorts the other way round, for victims."""

    __slots__ = ("key",)

    def __init__(self, key: queue_order.Key) -> None:
        self.key = key

    def __lt__(self, other: "_Reversed") -> bool:
        return other.key < self.key


_Level: TypeAlias = list[tuple[queue_order.Key | _Reversed, "_Place"]]


class _Place:
    """A queue in the tree, with a heap of its waiting jobs or of the queues below it that have some.

    `moved`: something was taken or put below it since it was last compared with its siblings.
    """

    __slots__ = ("below", "jobs", "moved", "queue", "standing", "up")

    def __init__(self, queue: QueueState, up: "_Place | None", total: Amounts) -> None:
        self.queue = queue
        self.standing = queue_order.Standing(queue, total)
        self.up = up
        self.jobs: list[_Entry] = []
        self.below: _Level = []
        self.moved = False


class JobsByQueue:
    """The waiting jobs (or, as `victims`, the running ones) of a session, to be taken one by one.

    Jobs whose queue does not exist or is no leaf are left out. `pop` gives the next, `push` puts one back (an elastic job
    that grows on, a victim of which only a part was chosen: `gone` are the ids that are out already).
    """

    def __init__(self, session: Session, jobs: Iterable[JobState], victims: bool = False) -> None:
        self._session = session
        self._victims = victims
        self._ranks = {job_id: rank for rank, job_id in enumerate(session.ledger.jobs)}
        self._places: dict[str, _Place] = {}
        self._roots: _Level = []
        self._taken: dict[str, Amounts] = {}
        self._count = 0
        self._entries = 0
        leaves: list[_Place] = []
        for job in jobs:
            if why_not_queued(job) is None and job.queue is not None:
                leaf = self._places.get(job.queue.name)
                if leaf is None:
                    leaf = self._link(job.queue)
                    leaves.append(leaf)
                leaf.jobs.append(self._entry(job, _NOBODY))
                self._count += 1
        for leaf in leaves:
            heapify(leaf.jobs)
            self._hang(leaf)

    def __len__(self) -> int:
        return self._count

    def pop(self) -> JobState | None:
        """Take the next job, or None where none is left."""
        if not self._roots:
            return None
        place = self._top(self._roots)
        while not place.jobs:
            place = self._top(place.below)
        job, gone = heappop(place.jobs)[-2:]
        self._count -= 1
        if self._victims:
            taken = self._taken.get(place.queue.name, NOTHING)
            self._taken[place.queue.name] = plus(taken, _held_amounts(job, gone))
        self._after_pop(place)
        return job

    def push(self, job: JobState, gone: Set[str] = _NOBODY) -> None:
        """Put a job back."""
        if job.queue is None or job.queue.children:
            return
        place = self._places.get(job.queue.name) or self._link(job.queue)
        new = not place.jobs
        heappush(place.jobs, self._entry(job, gone))
        self._count += 1
        if new:
            self._hang(place)
        _mark(place)

    def _link(self, queue: QueueState) -> _Place:
        """Make the place of a queue, and those above it that are not there yet."""
        up = None
        if queue.parent is not None:
            up = self._places.get(queue.parent.name) or self._link(queue.parent)
        place = _Place(queue, up, self._session.ledger.total)
        self._places[queue.name] = place
        return place

    def _hang(self, place: _Place) -> None:
        """Put a queue that got its first job among its siblings, and what was empty above it too, from below."""
        at: _Place | None = place
        while at is not None:
            first = at.up is not None and not at.up.below
            heappush(self._roots if at.up is None else at.up.below, (self._key(at), at))
            at = at.up if first else None

    def _top(self, level: _Level) -> _Place:
        """Give the best queue of a level, after those on top that changed found their place."""
        while True:
            place = level[0][1]
            if not place.moved:
                return place
            place.moved = False
            if len(level) > 1:
                heapreplace(level, (self._key(place), place))

    def _after_pop(self, place: _Place) -> None:
        at: _Place | None = place
        while at is not None and not at.jobs and not at.below:
            heappop(self._roots if at.up is None else at.up.below)
            del self._places[at.queue.name]
            at = at.up
        _mark(at)

    def _entry(self, job: JobState, gone: Set[str]) -> _Entry:
        rank = self._ranks.get(job.id, len(self._ranks))
        age = (job.spec.created_at - _EPOCH) // _MICROSECOND
        needs = gangs.elastic_rank(job, gone)
        priority = job.spec.priority
        self._entries += 1
        if self._victims:
            return (priority, -needs, -age, -rank, self._entries, job, gone)
        return (-priority, needs, age, rank, self._entries, job, gone)

    def _key(self, place: _Place) -> queue_order.Key | _Reversed:
        """Where a queue stands: with what its next job asks for, or without its victims up to the next."""
        leaf = place
        while not leaf.jobs:
            leaf = leaf.below[0][1]
        job, gone = leaf.jobs[0][-2:]
        if self._victims:
            lost = plus(self._taken.get(leaf.queue.name, NOTHING), _held_amounts(job, gone))
            return _Reversed(place.standing.key(NOTHING, lost))
        tasks = gangs.tasks_to_place(self._session, job, real=False)
        wants = gangs.amounts_of(tasks)
        return place.standing.key(wants, NOTHING, self._has_claim(place.queue, leaf.queue, tasks, wants))

    def _has_claim(self, at: QueueState, leaf: QueueState, tasks: list[TaskState], wants: Amounts) -> bool:
        """Tell whether these pods may only go where a queue has a claim for them, by a quota of the GPU model."""
        if not self._session.rules.quota_per_model or not leaf.counts_models:
            return False
        models = {self._session.fit.only_model(task) for task in tasks if task.spec.request.asks_for_gpu}
        return len(models) == 1 and model_gates.claims(at, leaf, models.pop(), wants[GPU])


def _mark(place: _Place | None) -> None:
    while place is not None:
        place.moved = True
        place = place.up


def _held_amounts(job: JobState, gone: Set[str]) -> Amounts:
    return gangs.amounts_of([task for task in job.tasks if task.status in HOLDING and task.id not in gone])
