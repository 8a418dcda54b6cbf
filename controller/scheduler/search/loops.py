"""Whether an eviction would come back: the victim, pending again, could evict its evictor by the same rules. Pure.

KAI tests that a cluster is quiet for five rounds; here it is a condition of every eviction (rule `no_eviction_loop`). It is
asked on a ledger on which the scenario has happened: the evictor has its place, the victim waits.
"""

from controller.scheduler import gangs, model_gates, reclaim_gates
from controller.scheduler.amounts import GPU
from controller.scheduler.search import judging
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, TaskState


def could_preempt(evictor: JobState, victim: JobState) -> bool:
    """Tell whether preemption could turn round: same queue, and the victim has the higher priority."""
    return (
        victim.queue is evictor.queue
        and evictor.spec.preemptible
        and victim.spec.priority > evictor.spec.priority
    )


def could_reclaim(session: Session, evictor: JobState, victim: JobState, lost: list[TaskState]) -> bool:
    """Tell whether reclaim could turn round: the victim's queue may take back what its `lost` pods held.

    The evictor's job is taken to go whole, as it would have to where it is a gang.
    """
    if (
        victim.queue is None
        or evictor.queue is None
        or victim.queue is evictor.queue
        or not evictor.spec.preemptible
    ):
        return False
    wanted = gangs.amounts_of(lost)
    held = [task for pod_set in evictor.pod_sets.values() for task in pod_set.tasks]
    pieces = [(evictor.queue, [held])]
    if (
        reclaim_gates.may_reclaim(victim.queue, wanted, victim.spec.preemptible)
        and reclaim_gates.may_be_victim(victim.queue, wanted, evictor.queue)
        and judging.may_lose(session, victim, wanted, pieces, False, "")
    ):
        return True
    if not session.rules.quota_per_model or not victim.queue.counts_models:
        return False
    by_model = [(evictor.queue, [(gangs.amounts_of(held), model_gates.held_by(held))])]
    return any(
        model_gates.may_take_back(victim.queue, model, wanted[GPU], by_model)
        for model in model_gates.held_by(lost)
    )


def why_not_evict(session: Session, evictor: JobState, victim: JobState, lost: list[TaskState]) -> str | None:
    """Say why these pods may not be evicted for this job, where that would turn in a circle."""
    if not session.rules.no_eviction_loop:
        return None
    if could_preempt(evictor, victim) or could_reclaim(session, evictor, victim, lost):
        return f"job {victim.id} could evict {evictor.id} in turn"
    return None
