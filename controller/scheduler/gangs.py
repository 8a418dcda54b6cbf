"""Which pods of a pod group start together, and which leave together. Pure.

A pod group is a tree of subgroups whose leaves are pod sets. A pod set has what it needs with `min_available` pods that hold
or will hold a place; a subgroup with `min_sub_group` members that have what they need (all of them, where it says nothing).
Pods that succeeded are done: by `gang_survives_success` the minimum that a PodSetState has is without them.
Below its minimum a group grows in one piece, above it one member or pod at a time; it shrinks in the opposite order.
Source: KAI Scheduler, api/podgroup_info and the plugins subgrouporder, taskorder, kubeflow and ray; kai.md 1.8.

The ledger keeps the tasks of a pod set in the order of `task_order.key`, so that nothing is sorted here for pods.
"""

from collections.abc import Iterable, Iterator, Set
from fractions import Fraction
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from controller.scheduler.amounts import NOTHING, Amounts
from controller.scheduler.model import ACTIVE_USED, HOLDING, PodSet, SubGroup, TaskStatus
from controller.scheduler.rules import Rules
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, PodSetState, TaskState

Member: TypeAlias = SubGroup | PodSet
M = TypeVar("M", SubGroup, PodSet, Member)

_NOBODY: Final[frozenset[str]] = frozenset()
READY: Final = ACTIVE_USED | {TaskStatus.PENDING}
"""Pods that count where it is asked whether a group is complete enough to start (KAI: alive and not gated)."""
IN_USE: Final = ACTIVE_USED | {TaskStatus.RELEASING}
"""Pods that still run: one that is being deleted does not make its gang stale (KAI: active used)."""


# --- what a group needs and has --------------------------------------------------------------------------------------


def members(group: SubGroup) -> Iterator[Member]:
    """Yield the direct members of a subgroup, subgroups first."""
    yield from group.groups
    yield from group.pod_sets


def pod_sets(job: JobState, member: Member) -> Iterator[PodSetState]:
    """Yield the pod sets at or below a member of the job's tree."""
    if isinstance(member, PodSet):
        yield job.pod_sets[member.name]
        return
    for below in members(member):
        yield from pod_sets(job, below)


def needed(group: SubGroup) -> int:
    """Tell how many direct members make this subgroup complete."""
    if group.min_sub_group is not None:
        return group.min_sub_group
    return len(group.groups) + len(group.pod_sets)


def _needs(job: JobState, member: Member) -> int:
    """Tell how many pods, or direct members, make this member complete."""
    return job.pod_sets[member.name].min_available if isinstance(member, PodSet) else needed(member)


def _held(pod_set: PodSetState, gone: Set[str]) -> int:
    if not gone:
        return pod_set.held
    return sum(1 for task in pod_set.tasks if task.status in ACTIVE_USED and task.id not in gone)


def _has(job: JobState, member: Member, gone: Set[str] = _NOBODY) -> int:
    if isinstance(member, PodSet):
        return _held(job.pod_sets[member.name], gone)
    return sum(1 for below in members(member) if _has(job, below, gone) >= _needs(job, below))


def in_order(job: JobState, some: Iterable[M], gone: Set[str] = _NOBODY) -> list[M]:
    """Sort members of one subgroup: those below their minimum, then the least filled, then those that need nothing."""
    found = list(some)
    if len(found) > 1:
        found.sort(key=lambda member: _order_key(_has(job, member, gone), _needs(job, member), member.name))
    return found


def _order_key(has: int, needs: int, name: str) -> tuple[int, Fraction, str]:
    if has < needs:
        return (0, Fraction(0), name)
    return (1, Fraction(has, needs), name) if needs > 0 else (2, Fraction(has), name)


# --- states of a whole job -------------------------------------------------------------------------------------------


def is_ready(job: JobState) -> bool:
    """Tell whether enough of its pods exist and are not gated for it to start at all."""
    if not job.spec.ready:
        return False
    lone = job.lone
    if lone is not None and job.root.min_sub_group is None:
        return lone.min_available <= (1 if job.tasks[0].status in READY else 0)
    return _is_ready(job, job.root)


def _ready_pods(job: JobState, pod_set: PodSet) -> int:
    return sum(1 for task in job.pod_sets[pod_set.name].tasks if task.status in READY)


def _is_ready(job: JobState, member: Member) -> bool:
    if isinstance(member, PodSet):
        pod_set = job.pod_sets[member.name]
        least = pod_set.min_available
        return pod_set.held >= least or _ready_pods(job, member) >= least
    return sum(1 for below in members(member) if _is_ready(job, below)) >= needed(member)


def is_satisfied(job: JobState) -> bool:
    """Tell whether it holds, or has a claim on, all that it needs to run."""
    return _has(job, job.root) >= needed(job.root)


def is_stale(job: JobState, rules: Rules) -> bool:
    """Tell whether it runs without all that it needs to run, so that what still runs is of no use.

    In KAI one pod that succeeded ends the question; by `gang_survives_success` it merely counts as done.
    """
    if job.lone is not None and (
        job.tasks[0].status not in IN_USE or (job.root.min_sub_group is None and job.lone.min_available <= 1)
    ):
        return False
    statuses = [task.status for task in job.tasks]
    if not any(status in IN_USE for status in statuses):
        return False
    counted = IN_USE
    if TaskStatus.SUCCEEDED in statuses:
        if not rules.gang_survives_success:
            return False
        counted = IN_USE | {TaskStatus.SUCCEEDED}
    return not _is_whole(job, job.root, counted)


def _is_whole(job: JobState, member: Member, counted: Set[TaskStatus]) -> bool:
    if isinstance(member, PodSet):
        return (
            sum(1 for task in job.pod_sets[member.name].tasks if task.status in counted)
            >= member.min_available
        )
    return sum(1 for below in members(member) if _is_whole(job, below, counted)) >= needed(member)


def should_pipeline(job: JobState) -> bool:
    """Tell whether a pod set waits for room and cannot start with the pods that have theirs already: then none starts."""
    if len(job.tasks) == 1 and job.tasks[0].status is not TaskStatus.PIPELINED:
        return False
    for pod_set in job.pod_sets.values():
        statuses = [task.status for task in pod_set.tasks]
        if (
            TaskStatus.PIPELINED in statuses
            and sum(status in HOLDING for status in statuses) < pod_set.min_available
        ):
            return True
    return False


def elastic_rank(job: JobState, gone: Set[str] = _NOBODY) -> int:
    """Rank by need: 0 where some pod set is below its minimum, 1 where all are exactly there, 2 above (KAI's elastic)."""
    rank = 1
    for pod_set in job.pod_sets.values():
        held = _held(pod_set, gone)
        if held < pod_set.min_available:
            return 0
        if held > pod_set.min_available:
            rank = 2
    return rank


# --- what to place ---------------------------------------------------------------------------------------------------


def may_be_placed(task: TaskState, real: bool) -> bool:
    """Tell whether it is to be placed: it is pending, or, in a trial, evicted in this cycle and looks for a new place."""
    status = task.status
    return status is TaskStatus.PENDING or (
        not real and status is TaskStatus.RELEASING and task.evicted != ""
    )


def tasks_to_place(session: Session, job: JobState, real: bool) -> list[TaskState]:
    """Choose the pods that are placed together next, in the order in which they are placed.

    `real` = for binding; else in a trial, where evicted pods look for a place again. Empty where nothing is left, or where
    what is left cannot complete a pod set that is still below its minimum. The list belongs to the session: copy to change.
    """
    tasks = job.tasks
    if job.lone is not None:
        return tasks if may_be_placed(tasks[0], real) else []
    key = (job.id, real)
    known = session.to_place.get(key)
    if known is not None and known[0] == job.version:
        return known[1]
    chosen = _grow_group(job, job.root, real)
    session.to_place[key] = (job.version, chosen)
    return chosen


def other_tasks(job: JobState, without: Set[str]) -> list[TaskState]:
    """Choose as `tasks_to_place` does for binding, but without these members; empty where the job needs one of them."""
    return _grow_group(job, job.root, real=True, without=without)


def path_to(group: SubGroup, name: str) -> tuple[str, ...]:
    """Name the members on the way from a subgroup down to one below it, that one last; empty where there is none."""
    for member in members(group):
        if member.name == name:
            return (name,)
        below = path_to(member, name) if isinstance(member, SubGroup) else ()
        if below:
            return (member.name, *below)
    return ()


def _grow_group(job: JobState, group: SubGroup, real: bool, without: Set[str] = _NOBODY) -> list[TaskState]:
    if real and not _is_ready(job, group):
        return []
    ordered = [member for member in in_order(job, members(group)) if member.name not in without]
    lacking = needed(group) - _has(job, group)
    if lacking <= 0:
        for member in ordered:
            tasks = _grow(job, member, real, without)
            if tasks:
                return tasks
        return []
    chosen: list[TaskState] = []
    for member in ordered:
        if _has(job, member) >= _needs(job, member):
            continue
        tasks = _grow(job, member, real, without)
        chosen.extend(tasks)
        lacking -= 1 if tasks else 0
        if not lacking:
            break
    return [] if without and lacking else chosen


def _grow(job: JobState, member: Member, real: bool, without: Set[str]) -> list[TaskState]:
    if isinstance(member, SubGroup):
        return _grow_group(job, member, real, without)
    pod_set = job.pod_sets[member.name]
    lacking = pod_set.min_available - pod_set.held
    wanted = max(lacking, 1)
    # Status by status rather than by `may_be_placed`: an elastic job comes by here once for each pod.
    pending, evicted = TaskStatus.PENDING, None if real else TaskStatus.RELEASING
    waiting = (
        task for task in pod_set.tasks if task.status is pending or (task.status is evicted and task.evicted)
    )
    found = list(islice(waiting, wanted))
    return found if lacking <= 0 or len(found) == wanted or not real else []


def amounts_of(tasks: list[TaskState]) -> Amounts:
    """Sum what these tasks count for their queue."""
    if len(tasks) == 1:
        return tasks[0].amounts
    gpu = cpu = memory = 0
    for task in tasks:
        amounts = task.amounts
        gpu += amounts[0]
        cpu += amounts[1]
        memory += amounts[2]
    return (gpu, cpu, memory) if tasks else NOTHING


# --- what to evict ---------------------------------------------------------------------------------------------------


def tasks_to_evict(job: JobState, gone: Set[str] = _NOBODY) -> tuple[list[TaskState], bool]:
    """Choose what leaves together next, and tell whether anything is left after that.

    One surplus pod first, then a surplus subgroup, at last the whole; before all of them the pods of subgroups that the
    group does not have. `gone` are ids of pods that were chosen before.
    """
    tasks = _strays(job, gone)[:1] or _shrink_group(job, job.root, gone) or _leave(job, job.root, gone)
    held = sum(_held(pod_set, gone) for pod_set in job.pod_sets.values())
    return tasks, len(tasks) < held


def _strays(job: JobState, gone: Set[str]) -> list[TaskState]:
    leaves = {pod_set.name for pod_set in pod_sets(job, job.root)}
    if len(leaves) == len(job.pod_sets):
        return []
    return [
        task
        for name, pod_set in job.pod_sets.items()
        if name not in leaves
        for task in _leaving(pod_set, gone)
    ]


def _shrink_group(job: JobState, group: SubGroup, gone: Set[str]) -> list[TaskState]:
    complete = _has(job, group, gone)
    if not complete:
        return []
    backwards = in_order(job, members(group), gone)[::-1]
    for member in backwards:
        tasks = _shrink(job, member, gone)
        if tasks:
            return tasks
    if needed(group) < complete:
        for member in backwards:
            tasks = _leave(job, member, gone)
            if tasks:
                return tasks
    return []


def _shrink(job: JobState, member: Member, gone: Set[str]) -> list[TaskState]:
    if isinstance(member, SubGroup):
        return _shrink_group(job, member, gone)
    pod_set = job.pod_sets[member.name]
    if _held(pod_set, gone) <= pod_set.min_available:
        return []
    return _leaving(pod_set, gone)[:1]


def _leave(job: JobState, member: Member, gone: Set[str]) -> list[TaskState]:
    found: list[TaskState] = []
    for pod_set in pod_sets(job, member):
        found += _leaving(pod_set, gone)
    return found


def _leaving(pod_set: PodSetState, gone: Set[str]) -> list[TaskState]:
    return [task for task in reversed(pod_set.tasks) if task.status in ACTIVE_USED and task.id not in gone]
