"""Why a job waits and why a pod is evicted, in words for people and codes for machines. Pure.

Codes of waits are KAI's (PodGroup v2alpha2): OverLimit, NonPreemptibleOverQuota, QueueDoesNotExist, PodSchedulingErrors,
PreemptionDelayNotElapsed; beside them NotReady, Pipelined and Reserved. Reasons are counted in kube-scheduler's phrasing:
"0/8 nodes are available: 6 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {key: value}."
"""

from collections import Counter

import msgspec

from controller.scheduler import fit_reasons, gangs, job_order
from controller.scheduler.model import TaskStatus
from controller.scheduler.plan import Reason, Wait
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, TaskState

NO_ROOM = "PodSchedulingErrors"
NO_QUEUE = "QueueDoesNotExist"
NOT_READY = "NotReady"
PIPELINED = "Pipelined"
_WAITING = (TaskStatus.PENDING, TaskStatus.GATED, TaskStatus.PIPELINED)


def wait_for_queue(session: Session, job: JobState, code: str, message: str) -> None:
    """Note that the job's queue, or one above it, does not let it in."""
    session.waits[job.id] = Wait(job=job.id, code=code, message=message)


def wait_for_topology(session: Session, job: JobState, why: str, inside: int) -> None:
    """Note that no topology domain can hold the job, or one of its subgroups; `inside` nodes are in the topology."""
    nodes = len(session.ledger.nodes)
    counts = Counter({"node(s) were in no topology domain that holds the pods": inside})
    counts["node(s) didn't have the labels of the topology"] = nodes - inside
    message, reasons = fit_reasons.answer_of(+counts, nodes)
    session.waits[job.id] = Wait(job=job.id, code=NO_ROOM, message=f"{why}; {message}", reasons=reasons)


def wait_for_room(session: Session, job: JobState, task: TaskState, placed: int) -> None:
    """Note that a pod found no node, after `placed` others of its group did."""
    message, reasons = fit_reasons.why_no_node(session, task)
    pod_set = job.pod_sets[task.spec.pod_set]
    if pod_set.min_available > 1 and pod_set.held - placed < pod_set.min_available:
        group = f"subgroup {pod_set.name}" if len(job.pod_sets) > 1 else "the group"
        needs = pod_set.min_available
        message = f"{placed} pods found a node where {group} needs {needs} together; the next one: {message}"
    kept = session.reservation
    if kept is not None and kept.holder != job.id:
        message += f" {len(kept.claims)} nodes keep room for job {kept.holder}, which waits longest."
    session.waits[job.id] = Wait(job=job.id, code=NO_ROOM, message=message, reasons=reasons, task=task.id)


def all_waits(session: Session) -> tuple[Wait, ...]:
    """Say for every job that has pods without a node why it waits, in the order of job ids."""
    return tuple(
        _counted(_wait(session, job), job)
        for job in session.ledger.jobs.values()
        if any(task.status in _WAITING for task in job.tasks)
    )


def _counted(wait: Wait, job: JobState) -> Wait:
    if wait.reasons:
        return wait
    pods = sum(task.status in _WAITING for task in job.tasks)
    return msgspec.structs.replace(wait, reasons=(Reason(text=wait.message, count=pods),))


def _wait(session: Session, job: JobState) -> Wait:
    no_queue = job_order.why_not_queued(job)
    if no_queue is not None:
        message = session.ledger.problems.get(job.spec.queue, no_queue)
        return Wait(job=job.id, code=NO_QUEUE, message=message)
    pipelined = [task for task in job.tasks if task.status is TaskStatus.PIPELINED]
    if pipelined and not job_order.is_pending(job):
        return _wait_pipelined(job, pipelined)
    known = session.waits.get(job.id)
    if known is not None:
        return known
    if pipelined:
        return _wait_pipelined(job, pipelined)
    if not gangs.is_ready(job) or not gangs.tasks_to_place(session, job, real=True):
        return Wait(job=job.id, code=NOT_READY, message=_why_not_ready(job))
    return Wait(job=job.id, code=NO_ROOM, message="no action of this cycle got to it")


def _wait_pipelined(job: JobState, pipelined: list[TaskState]) -> Wait:
    names = sorted({task.node.name for task in pipelined if task.node is not None})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    message = f"{len(pipelined)} pods have a place on {shown} and wait for what is being released there"
    return Wait(job=job.id, code=PIPELINED, message=message, task=pipelined[0].id)


def _why_not_ready(job: JobState) -> str:
    gated = sum(1 for task in job.tasks if task.status is TaskStatus.GATED)
    if gated:
        return f"{gated} of {len(job.tasks)} pods have scheduling gates"
    for pod_set in job.pod_sets.values():
        there = sum(task.status in gangs.READY for task in pod_set.tasks)
        if there < pod_set.min_available:
            group = f"subgroup {pod_set.name}" if len(job.pod_sets) > 1 else "the group"
            return f"{group} has {there} pods and needs {pod_set.min_available} together"
    known = {pod_set.name for pod_set in gangs.pod_sets(job, job.root)}
    strange = next((task for task in job.tasks if task.spec.pod_set not in known), None)
    if strange is not None:
        return f"pod {strange.id} is of subgroup {strange.spec.pod_set!r}, which its group does not have"
    return "the pod group is not ready"


def why_stale(job: JobState, seconds: int, grace: int) -> str:
    """Say why a gang that lost members is evicted."""
    running = sum(1 for task in job.tasks if task.status in gangs.IN_USE)
    needs = sum(pod_set.min_available for pod_set in job.pod_sets.values())
    return (
        f"stale gang: {running} pods of {job.id} are left where it needs {needs} together, for {seconds} s,"
        f" longer than the grace of {grace} s"
    )
