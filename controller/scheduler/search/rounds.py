"""One action over all jobs that wait: each in its turn looks for victims, by KAI's search or by ours. Pure."""

from collections.abc import Iterator
from functools import partial

from controller.scheduler import reservation
from controller.scheduler.job_order import JobsByQueue
from controller.scheduler.model import SubGroup
from controller.scheduler.search.budget import Budget
from controller.scheduler.search.cheapest import Cheapest
from controller.scheduler.search.kinds import Kind
from controller.scheduler.search.scenario import Search
from controller.scheduler.search.solver import solve
from controller.scheduler.search.waiting import Failures, evictors
from controller.scheduler.session import Session
from controller.scheduler.state import JobState


def run(session: Session, kind: Kind) -> None:
    """Try every waiting job once. What succeeds stays in the ledger; a search that ran out leaves the rest for next time."""
    if kind.moves and session.settings.max_consolidation_preemptees == 0:
        return
    waiting = evictors(session, kind.only_preemptible)
    if not len(waiting):
        return
    budget = Budget(session, kind.name)
    failures: dict[str, Failures] = {}
    cheapest = Cheapest(budget, kind) if session.rules.victims_by_cost else None
    while not budget.exhausted and (job := waiting.pop()) is not None:
        if not kind.may_start(job):
            continue
        failed = failures.setdefault(job.spec.queue if kind.by_queue else "", Failures(session))
        if failed.rules_out(job):
            continue
        if not reservation.search(session, job, partial(_make_room, budget, kind, cheapest, job)):
            failed.add(job)


def _make_room(budget: Budget, kind: Kind, cheapest: Cheapest | None, job: JobState) -> bool:
    if cheapest is None:
        return solve(_search(budget, kind, job, spare_quota=False))
    if cheapest.make_room(job):
        return True
    if not any(_inner_topologies(job.root)):
        return False
    # Pod by pod does not foresee that a subgroup must fit into one domain: there whole scenarios are tried besides.
    return any(solve(_search(budget, kind, job, spare_quota)) for spare_quota in (True, False))


def _inner_topologies(group: SubGroup) -> Iterator[bool]:
    for below in group.groups:
        yield below.topology is not None
        yield from _inner_topologies(below)
    if group.groups or len(group.pod_sets) > 1:
        yield any(pod_set.topology is not None for pod_set in group.pod_sets)


def _search(budget: Budget, kind: Kind, job: JobState, spare_quota: bool) -> Search:
    return Search(
        budget,
        job,
        victims=lambda: JobsByQueue(budget.session, kind.candidates(job), victims=True),
        valid=lambda victims, gone, tasks: kind.allows(job, victims, gone, tasks, spare_quota),
        why=lambda task: kind.why(job, task),
    )
