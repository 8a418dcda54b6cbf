"""Evict gangs that lost members: what still runs of them is of no use to anybody. Pure.

A gang may be below its minimum for its grace (its own, else the cycle's; negative = for ever). Source: KAI Scheduler,
actions/stalegangeviction; kai.md 2.5.
"""

from datetime import timedelta

from controller.scheduler import explain, gangs
from controller.scheduler.model import ACTIVE_USED, Job
from controller.scheduler.session import Session

NAME = "stalegangeviction"


def run(session: Session) -> None:
    """Evict all pods of gangs that are stale for longer than their grace."""
    for job in session.ledger.jobs.values():
        if not gangs.is_stale(job, session.rules):
            continue
        grace = _grace_s(session, job.spec)
        stale_s = _stale_s(session, job.spec)
        if grace < 0 or stale_s < grace:
            continue
        why = explain.why_stale(job, stale_s, grace)
        for task in job.tasks:
            if task.status in ACTIVE_USED:
                session.ledger.evict(task, why)


def _grace_s(session: Session, job: Job) -> int:
    return session.settings.staleness_grace_s if job.staleness_grace_s is None else job.staleness_grace_s


def _stale_s(session: Session, job: Job) -> int:
    """For how long it is stale: from now on, where nobody noted it yet."""
    return (
        (session.snapshot.now - job.stale_since) // timedelta(seconds=1) if job.stale_since is not None else 0
    )
