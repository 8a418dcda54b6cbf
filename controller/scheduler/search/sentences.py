"""Why this pod goes: the sentence that stands in its eviction, its event and its pod group. Pure."""

from controller.scheduler.amounts import GPU, UNLIMITED
from controller.scheduler.queues import models_of
from controller.scheduler.reclaim_gates import level
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, QueueState, TaskState


def gpus(milli: int) -> str:
    """Write milli-GPU for people."""
    whole, rest = divmod(milli, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def _share(queue: QueueState) -> str:
    deserved = queue.deserved[GPU]
    quota = "an unlimited quota" if deserved == UNLIMITED else f"a quota of {gpus(deserved)}"
    held, fair = gpus(queue.allocated[GPU]), _bound(queue.fair_share[GPU])
    return f"queue {queue.name} holds {held} GPUs with {quota} and a fair share of {fair}"


def _bound(milli: int) -> str:
    return "everything" if milli == UNLIMITED else gpus(milli)


def reclaimed(evictor: JobState, task: TaskState, by_model: bool = False) -> str:
    """Say why reclaim takes a pod, by the numbers of its queue before anything was taken, `by_model` of its model too."""
    queue = task.job.queue if task.job is not None else None
    if queue is None:
        return f"reclaimed for job {evictor.id} of queue {evictor.spec.queue}"
    named = _named(evictor.queue, queue, task) if by_model and evictor.queue is not None else ""
    return f"reclaimed for job {evictor.id} of queue {evictor.spec.queue}: {_share(queue)}{named}"


def _named(reclaimer: QueueState, queue: QueueState, task: TaskState) -> str:
    """Say whose the cards are by name, where the queues that stand where the paths part have quotas of their model."""
    ours, theirs = level(reclaimer, queue)
    found = [model for model, _ in models_of(task) if model in ours.model_quota]
    if not found:
        return ""
    model = found[0]
    mine, held = gpus(ours.model_quota[model]), gpus(ours.by_model[model][0])
    has = f"; queue {ours.name} has a quota of {mine} {model} and holds {held}"
    if model not in theirs.model_quota:
        return f"{has}, queue {theirs.name} has none of them by quota"
    mine, held = gpus(theirs.model_quota[model]), gpus(theirs.by_model[model][0])
    return f"{has}, queue {theirs.name} has a quota of {mine} and holds {held}"


def preempted(evictor: JobState, task: TaskState) -> str:
    """Say why preemption takes a pod."""
    priority = task.job.spec.priority if task.job is not None else 0
    return (
        f"preempted for job {evictor.id} of priority {evictor.spec.priority} in queue {evictor.spec.queue}: "
        f"this job's priority is {priority}"
    )


def moved(evictor: JobState, task: TaskState) -> str:
    """Say why consolidation moves a pod."""
    node = task.node.name if task.node is not None else "its node"
    return f"moved from {node} to make room in one piece for job {evictor.id}"


def price(session: Session, milli_seconds: int) -> str:
    """Say what an eviction costs, and that nothing cheaper was found."""
    found = "nothing cheaper was found" + (" before time ran out" if session.exhausted else "")
    return f"; costs {milli_seconds // 1000} GPU-seconds, {found}"
