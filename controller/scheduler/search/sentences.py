"""Why this pod goes: the sentence that stands in its eviction, its event and its pod group. Pure."""

from controller.scheduler.amounts import GPU, UNLIMITED
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


def reclaimed(evictor: JobState, task: TaskState) -> str:
    """Say why reclaim takes a pod, by the numbers of its queue before anything was taken."""
    queue = task.job.queue if task.job is not None else None
    share = f": {_share(queue)}" if queue is not None else ""
    return f"reclaimed for job {evictor.id} of queue {evictor.spec.queue}{share}"


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
