"""From a plan to what is sent: binds that belong together, and sets of victims. Pure.

A gang below its minimum is bound as one: every member is prepared and looked at again before the first Binding is sent, so
that what can be known beforehand never leaves half a gang. Pods beyond the minimum go alone. Victims that leave for the same
job are one set: all of them may go, or none is evicted, since a part of them helps nobody.
"""

from collections.abc import Iterable, Mapping

import msgspec

from controller.scheduler.model import HOLDING, Job, Snapshot, SubGroup, Task
from controller.scheduler.plan import Bind, Evict, Plan
from controller.scheduler.queue_objects import started_at
from kube.nodehealth import NodeHealth
from kube.scheduling import PodGroup
from kube.types import Node, Pod


class BindOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One pod to bind: what was decided, with which annotations, and the objects that it was decided on."""

    bind: Bind
    pod: Pod
    node: Node
    health: NodeHealth | None
    annotations: Mapping[str, str]

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


def least(group: SubGroup) -> int:
    """Give how many pods a job needs to start, over all its subgroups."""
    counts = sorted([least(one) for one in group.groups] + [leaf.min_available for leaf in group.pod_sets])
    needed = len(counts) if group.min_sub_group is None else min(group.min_sub_group, len(counts))
    return sum(counts[:needed])


def held(job: Job) -> int:
    """Give how many of a job's pods hold a place already."""
    return sum(1 for task in job.tasks if task.status in HOLDING)


def together(plan: Plan, snapshot: Snapshot) -> tuple[tuple[str, tuple[Bind, ...]], ...]:
    """Part a plan's binds into those that are sent together, in the plan's order."""
    jobs = {job.id: job for job in snapshot.jobs}
    by_job: dict[str, list[Bind]] = {}
    for bind in plan.binds:
        by_job.setdefault(bind.job, []).append(bind)
    found: list[tuple[str, tuple[Bind, ...]]] = []
    for job_id, binds in by_job.items():
        job = jobs.get(job_id)
        is_gang = job is not None and len(binds) > 1 and held(job) < least(job.root)
        found += [(job_id, tuple(binds))] if is_gang else [(job_id, (bind,)) for bind in binds]
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
        if 0 < held(job) < least(job.root) and not _ran_whole(job, pods, groups.get(job.id))
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
