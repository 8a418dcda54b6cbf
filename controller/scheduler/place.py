"""Give the pods of a job their nodes and cards, all or none. Pure.

A try goes down the tree of subgroups with the nodes that each may use (`topology`), and takes for every pod the best node
that has room now or, failing that, will have room when what is being released is gone (then the pod is pipelined). In a
trial (`real` False) everything is pipelined, and an evicted pod that comes back to its own place is simply not evicted.

A job may have subgroups that it does not need all, or not at once. Where one finds no room KAI stops; by `other_subgroups`
the choice is made again without it, and, should that fail too, without the first that it chose.
Source: KAI Scheduler, actions/common/allocate.go and gpu_sharing; kai.md 2.2.
"""

from itertools import chain
from typing import Final

from controller.scheduler import capacity, counting, explain, gangs, job_order, topology
from controller.scheduler.amounts import NOTHING, plus
from controller.scheduler.model import PodSet, SubGroup, TaskStatus
from controller.scheduler.requests import Request
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeSet, NodeState, TaskState

MOST_CHOICES: Final = 32
"""How many choices of subgroups are tried for one job at a time."""
_NOBODY: Final[frozenset[str]] = frozenset()


def place_job(
    session: Session,
    job: JobState,
    real: bool,
    only: NodeSet | None = None,
    tasks: list[TaskState] | None = None,
) -> bool:
    """Place what the job needs next, or these tasks; on failure everything is as before and `session.waits` says why.

    `real` = to bind what fits now; else a trial for which evicted pods left their room. `only` bounds the nodes.
    """
    if tasks is None:
        tasks = gangs.tasks_to_place(session, job, real)
        if real and may_choose(session, job):
            return _place_some(session, job, tasks, only)
    return _place_these(session, job, tasks, real, only) is None


def may_choose(session: Session, job: JobState) -> bool:
    """Tell whether other subgroups of the job are tried where one finds no room."""
    return not job.is_flat and session.rules.other_subgroups


def _place_some(session: Session, job: JobState, tasks: list[TaskState], only: NodeSet | None) -> bool:
    """Place the first choice of subgroups for which there is room; the wait speaks of the first of all that found none.

    What found no room in this action is passed over from then on, so that a job that grows pod by pod does not try it anew
    for each.
    """
    without = session.passed_over.get(job.id, _NOBODY) if only is None else _NOBODY
    choices = [(without, gangs.other_tasks(job, without) if without else tasks)]
    seen = {without}
    wait = None
    for _ in range(MOST_CHOICES):
        if not choices:
            break
        without, tasks = choices.pop()
        stuck = _place_these(session, job, tasks, True, only)
        if wait is not None:
            session.waits[job.id] = wait
        wait = session.waits.get(job.id)
        if stuck is None:
            if only is None:
                session.passed_over[job.id] = without
            return True
        for name in (tasks[0].spec.pod_set, stuck) if tasks else ():
            other = _without(job, without, name)
            if other is not None and other[0] not in seen:
                seen.add(other[0])
                choices.append(other)
    return False


def _without(
    job: JobState, without: frozenset[str], name: str
) -> tuple[frozenset[str], list[TaskState]] | None:
    """Choose without a member, or the smallest around it that the job can do without; None where there is none."""
    for passed in reversed(gangs.path_to(job.root, name)):
        more = without | {passed}
        tasks = gangs.other_tasks(job, more)
        if tasks:
            return more, tasks
    return None


def _place_these(
    session: Session, job: JobState, tasks: list[TaskState], real: bool, only: NodeSet | None
) -> str | None:
    """Place these pods. None: all found room; else nothing changed, and the name of the member that found none."""
    stuck: str | None = job.root.name
    if not tasks or job.queue is None:
        return stuck
    refusal = why_not_queue(session, job, tasks)
    if refusal is not None:
        if real:
            explain.wait_for_queue(session, job, *refusal)
        return stuck
    mark = session.ledger.mark()
    for nodes in chain((only,), session.fit.narrow.homes(job, only, not real)):
        stuck = _place_group(session, job, job.root, tasks, real, nodes)
        if stuck is None:
            return None
        session.ledger.undo_to(mark)
    return stuck


def why_not_queue(session: Session, job: JobState, tasks: list[TaskState]) -> tuple[str, str] | None:
    """Say why the job's queue may not take these tasks, whatever is free; memory of a card counts by the largest card."""
    no_queue = job_order.why_not_queued(job)
    if no_queue is not None or job.queue is None:
        return (explain.NO_QUEUE, no_queue or "")
    if len(tasks) == 1 and not tasks[0].spec.request.gpu_memory_mib:
        asked = tasks[0].amounts
    else:
        largest = session.ledger.max_gpu_mib
        asked = NOTHING
        for task in tasks:
            request = task.spec.request
            by_memory = request.gpu_memory_mib > 0
            asked = plus(
                asked,
                counting.amounts_of(request, largest, largest, session.rules) if by_memory else task.amounts,
            )
    return capacity.why_not(job.queue, asked, job.spec.preemptible)


def _place_group(
    session: Session, job: JobState, group: SubGroup, tasks: list[TaskState], real: bool, only: NodeSet | None
) -> str | None:
    """Place pods of a subgroup. None: all found room; else the name of the member that found none, in the last try."""
    if not group.groups and len(group.pod_sets) == 1 and group.topology is None:
        return _place_pod_set(session, job, group.pod_sets[0], tasks, real, only)
    ledger = session.ledger
    stuck: str | None = group.name
    for nodes in topology.node_sets(session, job, group, tasks, only):
        mark = ledger.mark()
        stuck = _place_members(session, job, group, tasks, real, nodes)
        if stuck is None:
            return None
        ledger.undo_to(mark)
    return stuck


def _place_members(
    session: Session, job: JobState, group: SubGroup, tasks: list[TaskState], real: bool, only: NodeSet | None
) -> str | None:
    stuck: str | None = None
    for below in gangs.in_order(job, group.groups):
        chosen = _of(job, below, tasks)
        if chosen and (stuck := _place_group(session, job, below, chosen, real, only)) is not None:
            return stuck
    for pod_set in gangs.in_order(job, group.pod_sets):
        chosen = _of(job, pod_set, tasks)
        if chosen and (stuck := _place_pod_set(session, job, pod_set, chosen, real, only)) is not None:
            return stuck
    return None


def _of(job: JobState, member: gangs.Member, tasks: list[TaskState]) -> list[TaskState]:
    names = {pod_set.name for pod_set in gangs.pod_sets(job, member)}
    return [task for task in tasks if task.spec.pod_set in names]


def _place_pod_set(
    session: Session, job: JobState, pod_set: PodSet, tasks: list[TaskState], real: bool, only: NodeSet | None
) -> str | None:
    ledger = session.ledger
    for nodes in topology.node_sets(session, job, pod_set, tasks, only):
        mark = ledger.mark()
        if _place_tasks(session, job, tasks, real, nodes):
            return None
        ledger.undo_to(mark)
    return pod_set.name


def _place_tasks(
    session: Session, job: JobState, tasks: list[TaskState], real: bool, only: NodeSet | None
) -> bool:
    for placed, task in enumerate(tasks):
        if not place_task(session, task, real, only):
            if real:
                explain.wait_for_room(session, job, task, placed)
            return False
    return True


def place_task(session: Session, task: TaskState, real: bool, only: NodeSet | None = None) -> bool:
    """Place one pod on the best node that takes it."""
    kept = session.reservation
    if kept is not None and (task.job is None or task.job.id == kept.holder):
        kept = None
    if kept is not None:
        only = kept.bound(only, task)
    for node in session.candidates.best(task, not real, only):
        if kept is not None and kept.keeps(task, node):
            continue
        if _is_over_limit_there(session, task, node):
            continue
        if _place_on(session, task, node, real):
            return True
    return False


def may_be_over_limit_there(session: Session, job: JobState, request: Request) -> bool:
    """Tell whether it depends on the node what a pod costs its queue: memory is a larger share of a smaller card, and there
    may be quotas for GPU models."""
    if request.gpu_memory_mib:
        return True
    return (
        session.rules.quota_per_model
        and job.queue is not None
        and job.queue.counts_models
        and request.asks_for_gpu
    )


def _is_over_limit_there(session: Session, task: TaskState, node: NodeState) -> bool:
    """Tell whether its queue may not take a pod on this node."""
    job = task.job
    if job is None or not may_be_over_limit_there(session, job, task.spec.request):
        return False
    return capacity.why_not_there(session.ledger, task, node) is not None


def _place_on(session: Session, task: TaskState, node: NodeState, real: bool) -> bool:
    """Bind or pipeline the pod, and give its ResourceClaims their devices."""
    claims = task.spec.request.claims
    if not _hold_or_claim(session, task, node, real):
        return False
    if claims and task.status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED):
        session.fit.claims.take(task, node, later=task.status is TaskStatus.PIPELINED)
    return True


def _hold_or_claim(session: Session, task: TaskState, node: NodeState, real: bool) -> bool:
    ledger = session.ledger
    if real and session.fit.why_not(task, node, later=False) is None:
        devices = ledger.choose_devices(task, node, later=False)
        if devices is not None:
            ledger.allocate(task, node, devices)
            return True
    # A pod that comes back to its own place is not moved but unevicted: the ledger knows where it was.
    later = ledger.choose_devices(task, node, later=True) if task.spec.request.is_shared else ()
    if later is None:
        return False
    ledger.pipeline(task, node, later)
    return True
