"""What leaves together, and what that costs: work that is lost, in GPU-seconds. Pure.

A pod that its job does not need leaves alone, a subgroup that it does not need in one piece, else the whole job. Any surplus
pod will do, not only the last: so a pod on the node where the room is wanted can be the one.

The cost of a pod is its GPUs times the seconds of work that it loses. An interruption counts as an hour whatever was done
(drain, image, start, warm-up, somebody who looks at it), and a quarter more for each time that the job was evicted before.
Work counts since the last known checkpoint; where none is known, since the start but an hour at most, since whoever runs for
longer without a checkpoint loses everything to the next failed GPU anyway. So between jobs without checkpoints fewer GPUs
always cost less, and among as many the one that began last. A pod without a GPU counts one GPU for each 16 cores.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from controller.scheduler import gangs
from controller.scheduler.amounts import Amounts
from controller.scheduler.model import ACTIVE_USED, PodSet, SubGroup
from controller.scheduler.state import JobState, NodeState, TaskState

INTERRUPTION_S: Final = 3600
UNKNOWN_CHECKPOINT_S: Final = 3600
RESTART_S: Final = 900
MOST_RESTARTS: Final = 4
_SECOND: Final = timedelta(seconds=1)


class Unit:
    """Pods of one job that leave together. `cost` in milli-GPU-seconds, `versions` of the job when this was so."""

    __slots__ = ("amounts", "cost", "ids", "job", "tasks", "version")

    def __init__(self, job: JobState, tasks: tuple[TaskState, ...], cost: int) -> None:
        self.job = job
        self.tasks = tasks
        self.cost = cost
        self.amounts: Amounts = gangs.amounts_of(list(tasks))
        self.ids = frozenset(task.id for task in tasks)
        self.version = job.version


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


def cost_of(job: JobState, tasks: Iterable[TaskState], now: datetime) -> int:
    """Give the cost of evicting these pods of a job, in milli-GPU-seconds."""
    return seconds_lost(job, now) * sum(map(weight, tasks))


def units_on(node: NodeState, job: JobState, now: datetime) -> list[Unit]:
    """List the smallest units of a job that give room on a node, surplus pods first."""
    here = [task for task in node.tasks.values() if task.job is job and task.status in ACTIVE_USED]
    if len(job.tasks) == 1:
        return [Unit(job, tuple(here), cost_of(job, here, now))] if here else []
    surplus: list[Unit] = []
    spare: dict[str, int] = {}
    for task in sorted(here, key=lambda each: (each.spec.leader, each.id)):
        pod_set = job.pod_sets[task.spec.pod_set]
        left = spare.get(pod_set.name, pod_set.held - pod_set.min_available)
        if left > 0:
            spare[pod_set.name] = left - 1
            surplus.append(Unit(job, (task,), cost_of(job, (task,), now)))
    if surplus:
        return surplus
    found: dict[str, Unit] = {}
    for name in dict.fromkeys(task.spec.pod_set for task in here):
        tasks = tuple(_leaving_with(job, name))
        unit = Unit(job, tasks, cost_of(job, tasks, now))
        found.setdefault(min(unit.ids), unit)
    return list(found.values())


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
