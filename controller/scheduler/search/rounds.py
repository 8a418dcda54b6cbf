"""One action over all jobs that wait: each in its turn looks for victims, by KAI's search or by ours. Pure."""

from controller.scheduler.job_order import JobsByQueue
from controller.scheduler.search.budget import Budget
from controller.scheduler.search.kinds import Kind
from controller.scheduler.search.scenario import Search
from controller.scheduler.search.solver import solve
from controller.scheduler.search.waiting import Failures, evictors
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, TaskState


def run(session: Session, kind: Kind) -> None:
    """Try every waiting job once. What succeeds stays in the ledger; a search that ran out leaves the rest for next time."""
    budget = Budget(session, kind.name)
    failures: dict[str, Failures] = {}
    waiting = evictors(session, kind.only_preemptible)
    while not budget.exhausted and (job := waiting.pop()) is not None:
        if not kind.may_start(session, job):
            continue
        failed = failures.setdefault(job.spec.queue if kind.by_queue else "", Failures(session))
        if failed.rules_out(job):
            continue
        if not _make_room(budget, kind, job):
            failed.add(job)


def _make_room(budget: Budget, kind: Kind, job: JobState) -> bool:
    session = budget.session

    def victims() -> JobsByQueue:
        return JobsByQueue(session, kind.candidates(session, job), victims=True)

    def valid(tasks: list[TaskState], gone: set[str], placed: list[TaskState]) -> bool:
        return kind.allows(session, job, tasks, gone, placed, session.rules)

    return solve(Search(budget, job, victims, valid, lambda task: kind.why(job, task)))
