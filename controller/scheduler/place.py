"""Give the pods of a job their nodes and cards, all or none. Pure.

A try goes down the tree of subgroups with the nodes that each may use (`topology`), and takes for every pod the best node
that has room now or, failing that, will have room when what is being released is gone (then the pod is pipelined). In a
trial (`real` False) everything is pipelined, and an evicted pod that comes back to its own place is simply not evicted.
Source: KAI Scheduler, actions/common/allocate.go and gpu_sharing; kai.md 2.2.
"""

from itertools import chain

from controller.scheduler import capacity, counting, explain, gangs, job_order, topology
from controller.scheduler.amounts import NOTHING, plus
from controller.scheduler.model import PodSet, SubGroup, TaskStatus
from controller.scheduler.requests import Request
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeSet, NodeState, TaskState


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
    if not tasks or job.queue is None:
        return False
    refusal = why_not_queue(session, job, tasks)
    if refusal is not None:
        if real:
            explain.wait_for_queue(session, job, *refusal)
        return False
    mark = session.ledger.mark()
    for nodes in chain((only,), session.fit.narrow.homes(job, only, not real)):
        if _place_group(session, job, job.root, tasks, real, nodes):
            return True
        session.ledger.undo_to(mark)
    return False


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
) -> bool:
    if not group.groups and len(group.pod_sets) == 1 and group.topology is None:
        return _place_pod_set(session, job, group.pod_sets[0], tasks, real, only)
    ledger = session.ledger
    for nodes in topology.node_sets(session, job, group, tasks, only):
        mark = ledger.mark()
        if _place_members(session, job, group, tasks, real, nodes):
            return True
        ledger.undo_to(mark)
    return False


def _place_members(
    session: Session, job: JobState, group: SubGroup, tasks: list[TaskState], real: bool, only: NodeSet | None
) -> bool:
    for below in gangs.in_order(job, group.groups):
        chosen = _of(job, below, tasks)
        if chosen and not _place_group(session, job, below, chosen, real, only):
            return False
    for pod_set in gangs.in_order(job, group.pod_sets):
        chosen = _of(job, pod_set, tasks)
        if chosen and not _place_pod_set(session, job, pod_set, chosen, real, only):
            return False
    return True


def _of(job: JobState, member: gangs.Member, tasks: list[TaskState]) -> list[TaskState]:
    names = {pod_set.name for pod_set in gangs.pod_sets(job, member)}
    return [task for task in tasks if task.spec.pod_set in names]


def _place_pod_set(
    session: Session, job: JobState, pod_set: PodSet, tasks: list[TaskState], real: bool, only: NodeSet | None
) -> bool:
    if pod_set.topology is None:
        return _place_tasks(session, job, tasks, real, only)
    ledger = session.ledger
    for nodes in topology.node_sets(session, job, pod_set, tasks, only):
        mark = ledger.mark()
        if _place_tasks(session, job, tasks, real, nodes):
            return True
        ledger.undo_to(mark)
    return False


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
