"""What a job's queues let it take: quota, limit, fair share at every level, its place in line, who might make room. Pure."""

import msgspec

from controller.scheduler import gangs, job_order, model_gates, reclaim_gates
from controller.scheduler.amounts import GPU, RESOURCE_NAMES, RESOURCES, UNLIMITED, Amounts, within
from controller.scheduler.capacity import written
from controller.scheduler.model import HOLDING
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, QueueState


class LevelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One resource at one queue on the way up, from the root down; `asks`: what the job's next pods would add."""

    queue: str
    resource: str
    quota: int
    limit: int
    fair_share: int
    allocated: int
    non_preemptible: int
    asks: int
    verdict: str


def levels_of(session: Session, job: JobState) -> tuple[LevelRow, ...]:
    """Hold the job against each queue on its way, for every resource that it asks for or holds; nothing without a queue."""
    if job.queue is None:
        return ()
    asked = next_amounts(session, job)
    holds = gangs.amounts_of([task for task in job.tasks if task.status in HOLDING])
    return tuple(
        LevelRow(
            queue=state.name,
            resource=RESOURCE_NAMES[r],
            quota=state.deserved[r],
            limit=state.limit[r],
            fair_share=state.fair_share[r],
            allocated=state.allocated[r],
            non_preemptible=state.allocated_np[r],
            asks=asked[r],
            verdict=_verdict(state, r, asked[r], job.spec.preemptible),
        )
        for state in job.queue.path
        for r in RESOURCES
        if _matters(state, r, asked[r], holds[r])
    )


def _matters(state: QueueState, r: int, asked: int, holds: int) -> bool:
    """GPUs matter always; cores and memory where the queue has a bound for them."""
    if r == GPU:
        return bool(asked or holds)
    return bool(asked) and not (state.deserved[r] == UNLIMITED and state.limit[r] == UNLIMITED)


def next_amounts(session: Session, job: JobState) -> Amounts:
    """Give what the pods ask for that would be placed together next."""
    return gangs.amounts_of(gangs.tasks_to_place(session, job, real=False))


def _verdict(state: QueueState, r: int, asked: int, preemptible: bool) -> str:
    then = state.allocated[r] + asked
    if asked and not within(then, state.limit[r]):
        return f"over its limit by {written(then - state.limit[r], r)}"
    quota = state.deserved[r]
    if asked and not preemptible and not within(state.allocated_np[r] + asked, quota):
        return f"not preemptible, and over quota by {written(state.allocated_np[r] + asked - quota, r)}"
    if quota != UNLIMITED and then > quota:
        fair = "over" if then > state.fair_share[r] else "within"
        return f"over quota by {written(then - quota, r)}, {fair} fair share"
    return "within quota"


def position_of(session: Session, job: JobState) -> str:
    """Say which place the job has among those that wait, as the queues stand now."""
    if job.queue is None or job.queue.children:
        return ""
    waiting = [
        one for one in session.ledger.jobs.values() if job_order.is_pending(one) and gangs.is_ready(one)
    ]
    if job not in waiting:
        return "not in line: it is not ready"
    line = job_order.JobsByQueue(session, waiting)
    mine = sum(one.queue is job.queue for one in waiting)
    here = 0
    for place in range(1, len(waiting) + 1):
        at = line.pop()
        if at is None:
            break
        here += at.queue is job.queue
        if at is job:
            return (
                f"{here} of {mine} jobs that wait in queue {job.queue.name}, {place} of {len(waiting)} in all"
            )
    return "not in line: its queue serves no jobs"


def why_no_victims(session: Session, job: JobState) -> str:
    """Say why nobody would be evicted for it."""
    queue = job.queue
    if queue is None or queue.children:
        return ""
    amounts = next_amounts(session, job)
    same = any(
        other.queue is queue and other.spec.preemptible and other.spec.priority < job.spec.priority
        for other in session.ledger.jobs.values()
        if any(task.status in HOLDING for task in other.tasks)
    )
    preempt = (
        "no set of lower-priority jobs of its queue would make room"
        if same
        else ("no job of lower priority that may be evicted runs in its queue")
    )
    by_name = session.rules.quota_per_model and model_gates.may_start(queue, amounts[GPU])
    if not by_name and not reclaim_gates.may_reclaim(queue, amounts, job.spec.preemptible):
        over = [
            f"{RESOURCE_NAMES[r]} {written(queue.allocated[r] + amounts[r], r)} of {written(queue.fair_share[r], r)}"
            for r in RESOURCES
            if amounts[r] and not within(queue.allocated[r] + amounts[r], queue.fair_share[r])
        ]
        with_it = (
            f"with it queue {queue.name} would be above its fair share ({', '.join(over)})"
            if over
            else (f"with it queue {queue.name} would hold more that is not preemptible than its quota")
        )
        return f"it may take nothing back from other queues: {with_it}; {preempt}"
    return f"no set of pods that may be evicted from other queues would make room; {preempt}"
