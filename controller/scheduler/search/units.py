"""What leaves together, and what that costs: work that is lost, in GPU-seconds. Pure.

A pod that its job does not need leaves alone, a subgroup that it does not need in one piece, else the whole job. Any surplus
pod will do, not only the last: so a pod on the node where the room is wanted can be the one.

The cost of a pod is its GPUs times the seconds of work that it loses. An interruption counts as an hour whatever was done
(drain, image, start, warm-up, somebody who looks at it), and a quarter more for each time that the job was evicted before.
Work counts since the last known checkpoint; where none is known, since the start but an hour at most, since whoever runs for
longer without a checkpoint loses everything to the next failed GPU anyway. So between jobs without checkpoints fewer GPUs
always cost less, and among as many the one that began last. A pod without a GPU counts one GPU for each 16 cores.

What costs the same comes from the queue that is served most beyond its fair share, and in one queue from the newest job.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from controller.scheduler import gangs, model_gates
from controller.scheduler.amounts import CPU, GPU, MEMORY, Amounts
from controller.scheduler.model import ACTIVE_USED, PodSet, SubGroup, TaskStatus
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeState, QueueState, TaskState

INTERRUPTION_S: Final = 3600
UNKNOWN_CHECKPOINT_S: Final = 3600
RESTART_S: Final = 900
MOST_RESTARTS: Final = 4
PRIORITY_BITS: Final = 6
LIKE_BITS: Final = 5
NO_SHARE: Final = 1 << 80
Over: TypeAlias = tuple[int, ...]
_SECOND: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Prices:
    """What evictions cost in this cycle: seconds of each job, and how much more its priority weighs.

    Among the jobs of a queue each priority weighs more than a gang of the next lower one: else a job would be evicted that
    evicts those below it as soon as it waits again, and both had lost.
    """

    def __init__(self, session: Session) -> None:
        self.now = session.snapshot.now
        self._changes = session.ledger.changes
        self._over: dict[tuple[str, bool, str], Over] = {}
        self._over_at = 0
        self._by_model = session.rules.quota_per_model
        self._seconds: dict[str, int] = {}
        levels: dict[str, set[int]] = {}
        for job in session.ledger.jobs.values():
            if job.spec.preemptible:
                levels.setdefault(job.spec.queue, set()).add(job.spec.priority)
        self._factors = {
            (queue, priority): 1 << PRIORITY_BITS * level
            for queue, priorities in levels.items()
            for level, priority in enumerate(sorted(priorities))
        }

    def seconds(self, job: JobState) -> int:
        """Give the seconds that an eviction costs this job, for each of its GPUs."""
        found = self._seconds.get(job.id)
        if found is None:
            found = self._seconds[job.id] = seconds_lost(job, self.now)
        return found

    def factor(self, job: JobState) -> int:
        """Give the weight of the job's priority in its queue."""
        return self._factors.get((job.spec.queue, job.spec.priority), 1)

    def over(self, job: JobState, by_gpu: bool, node: NodeState) -> Over:
        """Say how its queue is served at the moment (`over_service`), as to what it has on this node."""
        if self._over_at != len(self._changes):
            self._over_at = len(self._changes)
            self._over.clear()
        model = ""
        if self._by_model and by_gpu and job.queue is not None and job.queue.counts_models:
            model = model_gates.model_of(node)
        key = (job.spec.queue, by_gpu, model)
        found = self._over.get(key)
        if found is None:
            found = self._over[key] = over_service(job.queue, by_gpu, model)
        return found

    def unit(self, job: JobState, tasks: Iterable[TaskState], *, surplus: bool = False) -> "Unit":
        """Price pods of a job that leave together; without its surplus it goes on."""
        chosen = tuple(tasks)
        cost = self.seconds(job) * sum(map(weight, chosen))
        return Unit(job, chosen, cost, cost * self.factor(job), surplus)


class Unit:
    """Pods of one job that leave together. `cost` in milli-GPU-seconds, `rank` is that times the weight of the priority."""

    __slots__ = ("amounts", "cost", "job", "rank", "surplus", "tasks", "version")

    def __init__(
        self, job: JobState, tasks: tuple[TaskState, ...], cost: int, rank: int, surplus: bool
    ) -> None:
        self.job = job
        self.tasks = tasks
        self.cost = cost
        self.rank = rank
        self.surplus = surplus
        self.amounts: Amounts = gangs.amounts_of(list(tasks))
        self.version = job.version

    @property
    def order(self) -> tuple[int, int, str]:
        """Cheapest first, and of equals of one queue the newest job; pods of one job stay as they are."""
        return (self.rank, newness(self.job), self.job.id)


def over_service(queue: QueueState | None, by_gpu: bool, model: str = "") -> Over:
    """Say how far a queue is served beyond its fair share, for each queue from the root down: so two are compared where
    their paths part. The smallest is the most over-served.

    In GPUs, or for pods without any in CPU or memory, whichever is more. Who has no fair share comes first. A queue with a
    quota of the `model` is measured by that.
    """
    path = queue.path if queue is not None else ()
    if by_gpu:
        return tuple([-_beyond(*_held_and_share(state, model)) for state in path])
    return tuple(
        [
            -max(_beyond(state.allocated[resource], state.fair_share[resource]) for resource in (CPU, MEMORY))
            for state in path
        ]
    )


def _held_and_share(state: QueueState, model: str) -> tuple[int, int]:
    if model in state.model_quota:
        return state.by_model[model][0], state.model_quota[model]
    return state.allocated[GPU], state.fair_share[GPU]


def _beyond(held: int, share: int) -> int:
    """Give what is held in thousandths of a share, by its first bits alone: within some 5 % all are alike. That is as exact
    as a fair share, and one eviction does not put all nodes of a queue in a new order."""
    if share < 0:
        return 0
    beyond = held * 1000 // share if share else held
    bits = max(beyond.bit_length() - LIKE_BITS, 0)
    return (beyond >> bits << bits) + (0 if share or not held else NO_SHARE)


def newness(job: JobState) -> int:
    """Give a number that is smaller for newer jobs."""
    return (_EPOCH - job.spec.created_at) // _SECOND


def seconds_lost(job: JobState, now: datetime) -> int:
    """Give the seconds that an eviction costs this job, for each of its GPUs."""
    spec = job.spec
    lost = INTERRUPTION_S + RESTART_S * min(spec.restarts, MOST_RESTARTS)
    if spec.checkpoint_at is not None and (spec.started_at is None or spec.checkpoint_at >= spec.started_at):
        return lost + max(0, (now - spec.checkpoint_at) // _SECOND)
    if spec.started_at is None:
        return lost
    return lost + min(max(0, (now - spec.started_at) // _SECOND), UNKNOWN_CHECKPOINT_S)


def weight(task: TaskState) -> int:
    """Give the milli-GPU that a pod holds; one without any counts by its cores."""
    return task.amounts[0] or task.amounts[1] // 16 + 1


def may_leave(task: TaskState) -> bool:
    """Tell whether a pod can be chosen to go: it has a place, not only since this cycle, and nobody forbade it.

    What this cycle has placed was served before whoever evicts now, and would be again.
    """
    return (
        task.status in ACTIVE_USED and task.spec.status is not TaskStatus.PENDING and not task.spec.protected
    )


def stays(task: TaskState) -> bool:
    """Tell whether a pod keeps those in their places that would have to leave with it; what stands in for a pod does not."""
    return not (may_leave(task) or task.spec.stand_in)


def units_on(node: NodeState, job: JobState, prices: Prices) -> list[Unit]:
    """List the units of a job that give room on a node: surplus pods one by one, then what leaves in one piece."""
    here = [task for task in node.tasks.values() if task.job is job and may_leave(task)]
    if len(job.tasks) == 1:
        return [prices.unit(job, here)] if here else []
    found: list[Unit] = []
    rest: dict[str, None] = {}
    for name in dict.fromkeys(task.spec.pod_set for task in here):
        pod_set = job.pod_sets[name]
        # The pods of a set are kept in the order in which they start, so the last go first.
        pods = [task for task in reversed(pod_set.tasks) if task.node is node and may_leave(task)]
        surplus = max(pod_set.held - pod_set.min_available, 0)
        found += [prices.unit(job, (task,), surplus=True) for task in pods[:surplus]]
        if len(pods) > surplus:
            rest[name] = None
    pieces = {tuple(_leaving_with(job, name)) for name in rest}
    # One that is whole only by what this cycle has placed would leave that behind, and start in part.
    pieces = {piece for piece in pieces if not any(map(stays, piece))}
    found += [prices.unit(job, tasks) for tasks in sorted(pieces, key=lambda tasks: tasks[0].id)]
    return found


def _leaving_with(job: JobState, pod_set: str) -> list[TaskState]:
    """Give the pods of the smallest subgroup around a pod set that the job can do without, or else all of them."""
    chosen: SubGroup | PodSet = job.root
    group: SubGroup | PodSet = job.root
    while isinstance(group, SubGroup):
        complete = sum(1 for below in gangs.members(group) if _is_complete(job, below))
        path = next(below for below in gangs.members(group) if _holds(below, pod_set))
        if complete > gangs.needed(group):
            chosen = path
        group = path
    return [
        task
        for each in gangs.pod_sets(job, chosen)
        for task in reversed(each.tasks)
        if task.status in ACTIVE_USED
    ]


def _holds(member: SubGroup | PodSet, pod_set: str) -> bool:
    if isinstance(member, PodSet):
        return member.name == pod_set
    return any(_holds(below, pod_set) for below in gangs.members(member))


def _is_complete(job: JobState, member: SubGroup | PodSet) -> bool:
    if isinstance(member, PodSet):
        return job.pod_sets[member.name].held >= member.min_available
    return sum(1 for below in gangs.members(member) if _is_complete(job, below)) >= gangs.needed(member)
