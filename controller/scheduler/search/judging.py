"""Whether a set of victims may go: fair shares, quotas and minimum run times. Pure.

Every judge is asked on a ledger on which nothing of the scenario has happened yet. Source: KAI Scheduler, plugins proportion
(reclaimableFn, splitVictimTasks) and minruntime; kai.md 3.5 and 3.7.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal

from controller.scheduler import gangs, min_runtime, model_gates, reclaim_gates
from controller.scheduler.amounts import GPU, Amounts
from controller.scheduler.model import ACTIVE_USED
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, QueueState, TaskState


def by_job(victims: Iterable[TaskState]) -> dict[str, list[TaskState]]:
    """Group pods by job, in the order in which they come."""
    found: dict[str, list[TaskState]] = {}
    for task in victims:
        if task.job is not None:
            found.setdefault(task.job.id, []).append(task)
    return found


def is_active(job: JobState) -> bool:
    """Tell whether any of its pods counts as allocated to its queue."""
    return any(pod_set.held for pod_set in job.pod_sets.values())


def is_elastic(job: JobState) -> bool:
    """Tell whether it has more pods than it needs."""
    return any(pod_set.min_available < len(pod_set.tasks) for pod_set in job.pod_sets.values())


# --- minimum run time ------------------------------------------------------------------------------------------------


def is_protected(
    session: Session, kind: Literal["preempt", "reclaim"], victim: JobState, evictor: JobState
) -> bool:
    """Tell whether the victim has not run for its minimum time yet."""
    started = victim.spec.started_at
    if started is None or victim.queue is None or evictor.queue is None:
        return False
    seconds = min_runtime.protected_s(kind, victim.queue, evictor.queue, session.settings)
    return seconds > 0 and session.snapshot.now < started + timedelta(seconds=seconds)


def keeps_minimum(
    session: Session, kind: Literal["preempt", "reclaim"], evictor: JobState, victims: list[TaskState]
) -> bool:
    """Tell whether elastic victims within their minimum run time only lose what they do not need."""
    for job_id, tasks in by_job(victims).items():
        job = session.ledger.jobs[job_id]
        if not is_elastic(job) or not is_protected(session, kind, job, evictor):
            continue
        lost: dict[str, int] = {}
        for task in tasks:
            lost[task.spec.pod_set] = lost.get(task.spec.pod_set, 0) + 1
        for pod_set in job.pod_sets.values():
            if pod_set.name in lost and pod_set.held - lost[pod_set.name] < pod_set.min_available:
                return False
    return True


# --- reclaim ---------------------------------------------------------------------------------------------------------


def losses(
    session: Session, victims: list[TaskState], gone: set[str]
) -> list[tuple[QueueState, list[list[TaskState]]]]:
    """Give what each queue loses: surplus pods one by one, what a job needs to run in one piece.

    With `allow_consolidating_reclaim` only pods in `gone` count: the others find a new place.
    """
    by_queue: dict[str, tuple[QueueState, list[list[TaskState]]]] = {}
    counts_all = not session.settings.allow_consolidating_reclaim
    for job_id, tasks in by_job(victims).items():
        job = session.ledger.jobs[job_id]
        if job.queue is None:
            continue
        surplus, core = _split(job, tasks)
        pieces = [[task] for task in surplus if counts_all or task.id in gone]
        needed = [task for task in core if counts_all or task.id in gone]
        if needed:
            pieces.append(needed)
        if pieces:
            by_queue.setdefault(job.queue.name, (job.queue, []))[1].extend(pieces)
    return list(by_queue.values())


def _split(job: JobState, tasks: list[TaskState]) -> tuple[list[TaskState], list[TaskState]]:
    by_set: dict[str, list[TaskState]] = {}
    for task in tasks:
        by_set.setdefault(task.spec.pod_set, []).append(task)
    surplus: list[TaskState] = []
    core: list[TaskState] = []
    for name, pods in by_set.items():
        least = job.pod_sets[name].min_available
        core += pods[:least]
        surplus += pods[least:]
    return surplus, core


def may_reclaim_with(
    session: Session,
    job: JobState,
    victims: list[TaskState],
    gone: set[str],
    tasks: list[TaskState],
    spare_quota: bool,
    model: str = "",
) -> bool:
    """Tell whether reclaim may take these victims for these pods of the job: fair shares, quotas, minimum run times.

    `model`: of the node on which room is made, if the job may have a claim to it by name.
    """
    if job.queue is None or not keeps_minimum(session, "reclaim", job, victims):
        return False
    lost = losses(session, victims, gone)
    return may_lose(session, job, gangs.amounts_of(tasks), lost, spare_quota, model)


def may_lose(
    session: Session,
    job: JobState,
    asked: Amounts,
    lost: list[tuple[QueueState, list[list[TaskState]]]],
    spare_quota: bool,
    model: str,
) -> bool:
    """Tell whether queues may lose these pieces to a job, by fair share and quota or by a claim to a GPU model."""
    queue = job.queue
    if queue is None:
        return False
    amounts = [(loser, [gangs.amounts_of(piece) for piece in pieces]) for loser, pieces in lost]
    saturation, rules = session.settings.saturation_milli, session.rules
    is_fair = reclaim_gates.scenario_allowed(
        queue, asked, job.spec.preemptible, amounts, saturation, rules, spare_quota
    )
    if not rules.quota_per_model or not (model or [1 for loser, _ in lost if loser.counts_models]):
        return is_fair
    by_model = [
        (loser, [(gangs.amounts_of(piece), model_gates.held_by(piece)) for piece in pieces])
        for loser, pieces in lost
    ]
    if is_fair and model_gates.spares(queue, by_model):
        return True
    return bool(model) and model_gates.may_take_back(queue, model, asked[GPU], by_model, spare_quota)


# --- who may be a victim ---------------------------------------------------------------------------------------------


def may_reclaim_from(session: Session, evictor: JobState, victim: JobState, amounts: Amounts) -> bool:
    """Tell whether reclaim may look at the victim for a job that asks for these amounts."""
    queue, own = victim.queue, evictor.queue
    if queue is None or own is None or queue is own or not _may_lose(session, victim):
        return False
    if not reclaim_gates.may_be_victim(own, amounts, queue) and not _may_be_claimed(
        session, own, amounts, victim
    ):
        return False
    return is_elastic(victim) or not is_protected(session, "reclaim", victim, evictor)


def _may_be_claimed(session: Session, own: QueueState, amounts: Amounts, victim: JobState) -> bool:
    """Tell whether the victim may be looked at for a claim to a GPU model by name."""
    if victim.queue is None or not session.rules.quota_per_model or not own.counts_models:
        return False
    held = model_gates.held_by(task for task in victim.tasks if task.status in ACTIVE_USED)
    return model_gates.may_be_victim(own, amounts[GPU], victim.queue, held)


def may_preempt(session: Session, evictor: JobState, victim: JobState) -> bool:
    """Tell whether preemption may look at the victim: same queue, strictly lower priority."""
    if victim.queue is not evictor.queue or victim.spec.priority >= evictor.spec.priority:
        return False
    if not _may_lose(session, victim):
        return False
    return is_elastic(victim) or not is_protected(session, "preempt", victim, evictor)


def may_move(session: Session, evictor: JobState, victim: JobState) -> bool:
    """Tell whether consolidation may move the victim."""
    return victim is not evictor and _may_lose(session, victim)


def _may_lose(session: Session, victim: JobState) -> bool:
    """Tell whether a job may lose pods to anybody: it has some, may be preempted, and no doubt protects it."""
    is_movable = session.movable is None or victim.id in session.movable
    return is_movable and victim.spec.preemptible and is_active(victim)
