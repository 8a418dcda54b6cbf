"""From a plan to what is sent: binds that belong together, and sets of victims. Pure.

A gang below its minimum is bound as one: every member is prepared and looked at again before the first Binding is sent, so
that what can be known beforehand never leaves half a gang. Pods beyond the minimum go alone. Victims that leave for the same
job are one set: all of them may go, or none is evicted, since a part of them helps nobody.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final

import msgspec

from controller.scheduler.model import HOLDING, Job, Snapshot, SubGroup, Task, TaskStatus
from controller.scheduler.plan import Bind, Evict, Plan
from controller.scheduler.queue_objects import started_at
from kube.nodehealth import NodeHealth
from kube.scheduling import PodGroup
from kube.types import Node, Pod


class BindOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One pod to bind: what was decided, with which annotations, and the objects that it was decided on. `alone`: no other
    pod depends on it, nor it on another."""

    bind: Bind
    pod: Pod
    node: Node
    health: NodeHealth | None
    annotations: Mapping[str, str]
    alone: bool = True

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


class GangOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Binds of one job that are sent together or not at all."""

    job: str
    members: tuple[BindOrder, ...]


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    evict: Evict
    uid: str


class VictimSet(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that leave together, for the job `gains` (or "" where nobody gains: the rest of a stale gang)."""

    gains: str
    victims: tuple[Victim, ...]

    @property
    def leaves_whole(self) -> bool:
        """Whether there are several who leave all or not at all."""
        return bool(self.gains) and len(self.victims) > 1


def least(group: SubGroup) -> int:
    """Give how many pods a job needs to start, over all its subgroups."""
    counts = sorted([least(one) for one in group.groups] + [leaf.min_available for leaf in group.pod_sets])
    needed = len(counts) if group.min_sub_group is None else min(group.min_sub_group, len(counts))
    return sum(counts[:needed])


ON_NODES: Final = frozenset({TaskStatus.BOUND, TaskStatus.RUNNING})
"""Pods that are there, and not only on their way."""
_HAD_PLACE: Final = HOLDING | {TaskStatus.SUCCEEDED}


def is_whole(job: Job, counted: Set[TaskStatus] = HOLDING) -> bool:
    """Tell whether a job has all that it needs to run, subgroup by subgroup, by its pods of these statuses."""
    counts: dict[str, int] = {}
    for task in job.tasks:
        if task.status in counted:
            counts[task.pod_set] = counts.get(task.pod_set, 0) + 1
    return _is_whole(job.root, counts)


def _is_whole(group: SubGroup, counts: Mapping[str, int]) -> bool:
    whole = [_is_whole(one, counts) for one in group.groups]
    whole += [counts.get(leaf.name, 0) >= leaf.min_available for leaf in group.pod_sets]
    return sum(whole) >= (len(whole) if group.min_sub_group is None else group.min_sub_group)


def held(job: Job) -> int:
    """Give how many of a job's pods hold a place already."""
    return sum(1 for task in job.tasks if task.status in HOLDING)


def needs_more(job: Job) -> bool:
    """Tell whether a job needs several pods together and does not have them: then none of its pods is one by itself."""
    return least(job.root) > 1 and not is_whole(job)


def together(plan: Plan, snapshot: Snapshot) -> tuple[tuple[str, tuple[Bind, ...], bool], ...]:
    """Part a plan's binds into those that are sent together, in the plan's order; True for a pod that stands by itself."""
    jobs = {job.id: job for job in snapshot.jobs}
    by_job: dict[str, list[Bind]] = {}
    for bind in plan.binds:
        by_job.setdefault(bind.job, []).append(bind)
    found: list[tuple[str, tuple[Bind, ...], bool]] = []
    for job_id, binds in by_job.items():
        job = jobs.get(job_id)
        is_gang = job is not None and needs_more(job)
        found += [(job_id, tuple(binds), False)] if is_gang else [(job_id, (bind,), True) for bind in binds]
    return tuple(found)


def victim_sets(evictions: Iterable[Evict], uids: Mapping[str, str]) -> tuple[VictimSet, ...]:
    """Part evictions into sets; a pod that is gone already needs none, and one that is named twice needs one."""
    sets: dict[tuple[str, str], list[Victim]] = {}
    seen: set[str] = set()
    for evict in evictions:
        uid = uids.get(evict.task)
        if uid is not None and evict.task not in seen:
            seen.add(evict.task)
            key = (evict.gains, "" if evict.gains else evict.job)
            sets.setdefault(key, []).append(Victim(evict=evict, uid=uid))
    return tuple(VictimSet(gains=gains, victims=tuple(found)) for (gains, _), found in sets.items())


def half_gangs(snapshot: Snapshot, pods: Mapping[str, Pod], groups: Mapping[str, PodGroup]) -> frozenset[str]:
    """Name the jobs of which some pods have a place and too few, though they never ran whole: a bind was lost on the way.

    What tells is the start that their group notes once it is whole. That some of its pods run tells nothing: they do so
    within a second. A note from before the pods that hold places were made is about a run before.
    """
    return frozenset(
        job.id
        for job in snapshot.jobs
        if held(job) and not is_whole(job, _HAD_PLACE) and not _ran_whole(job, pods, groups.get(job.id))
    )


def _ran_whole(job: Job, pods: Mapping[str, Pod], group: PodGroup | None) -> bool:
    noted = None if group is None else started_at(group)
    if noted is None:
        return False
    made = [
        pods[task.id].metadata.creation_timestamp
        for task in job.tasks
        if task.status in HOLDING and task.id in pods
    ]
    return any(one is None or one <= noted for one in made)


def tasks_of(snapshot: Snapshot) -> Mapping[str, Task]:
    """Key all tasks of a snapshot's jobs."""
    return {task.id: task for job in snapshot.jobs for task in job.tasks}
