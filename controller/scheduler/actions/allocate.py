"""Give waiting jobs what is free, in the order of their queues. Pure.

Fair share does not bound this: what is idle goes to whoever is next and below its limit. A job that fits only on what is
still being released is pipelined as a whole: it binds nothing, but nobody else is promised the same. An elastic job takes
its minimum at once and then stands in the queue again for each further pod. Source: KAI Scheduler, actions/allocate.

Inside this action room only shrinks, so a job whose pods are like those of a job that found no room is not tried again:
that changes nothing but the time. Pods that depend on where other pods are, or on claims, are always tried.
"""

from functools import partial
from typing import TypeAlias

from controller.scheduler import explain, gangs, place, promises, reservation
from controller.scheduler.job_order import JobsByQueue, is_pending
from controller.scheduler.model import ACTIVE_USED, HOLDING, TaskStatus
from controller.scheduler.plan import Wait
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeSet

NAME = "allocate"


def run(session: Session) -> None:
    """Place as many waiting jobs as fit."""
    waiting = [job for job in session.ledger.jobs.values() if is_pending(job) and gangs.is_ready(job)]
    queue = JobsByQueue(session, waiting)
    failed = _Failed(session)
    promises.keep(session, partial(_allocate, session))
    reservation.resume(session)
    while (job := queue.pop()) is not None:
        if not is_pending(job):  # served before its turn, as it was promised
            continue
        if failed.is_like(job) or not _allocate(session, job):
            failed.add(job)
            continue
        if reservation.placed(session, job):
            failed.forget()
            session.passed_over.clear()
        if is_pending(job):
            queue.push(job)


def _allocate(session: Session, job: JobState, only: NodeSet | None = None) -> bool:
    mark = session.ledger.mark()
    held_before = _holds(job)
    if not place.place_job(session, job, real=True, only=only):
        return False
    if gangs.should_pipeline(job):
        session.ledger.to_pipelined(job, mark)
    if not held_before and _holds(job):
        session.started.append(job.id)
    return True


def _holds(job: JobState) -> bool:
    """Tell whether any of its pods holds a place."""
    if len(job.tasks) == 1:
        return job.tasks[0].status in HOLDING
    return any(task.status in HOLDING for task in job.tasks)


_Likeness: TypeAlias = tuple[object, ...]


class _Failed:
    """The kinds of jobs that found no room, and the words in which the first of each was told so."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waits: dict[_Likeness, Wait] = {}
        self._too_large: set[_Likeness] = set()

    def is_like(self, job: JobState) -> bool:
        """Tell whether a job like this found no room; then this one is told the same."""
        kept = self._session.reservation
        if not self._waits or (kept is not None and kept.holder == job.id):
            return False
        likeness = self._likeness(job)
        wait = self._waits.get(likeness) if likeness is not None else None
        if wait is None:
            return False
        tasks = gangs.tasks_to_place(self._session, job, real=True)
        refusal = place.why_not_queue(self._session, job, tasks)
        if refusal is not None:
            explain.wait_for_queue(self._session, job, *refusal)
        else:
            task = tasks[0].id if len(tasks) == 1 else ""
            self._session.waits[job.id] = Wait(
                job=job.id, code=wait.code, message=wait.message, reasons=wait.reasons, task=task
            )
        return True

    def forget(self) -> None:
        """Begin anew, for there is more room than before."""
        self._waits.clear()

    def add(self, job: JobState) -> None:
        """Remember a job that was not placed, unless its queue refused it."""
        wait = self._session.waits.get(job.id)
        if wait is None or wait.code != explain.NO_ROOM:
            return
        likeness = self._likeness(job)
        if likeness is None:
            reservation.hold(self._session, job)
            return
        # Every node is looked at: thousands of jobs that no node could ever take must not cost that each.
        kind = (*likeness, job.spec.queue)
        if kind not in self._too_large and not reservation.hold(self._session, job):
            self._too_large.add(kind)
        self._waits.setdefault(likeness, wait)

    def _likeness(self, job: JobState) -> _Likeness | None:
        """What decides where a job fits; None where others' pods or its own running ones decide too."""
        if len(job.tasks) > 1 and any(task.status in ACTIVE_USED for task in job.tasks):
            return None
        found: list[object] = [job.root]
        tasks = gangs.tasks_to_place(self._session, job, real=True)
        if place.may_choose(self._session, job):
            # Any of its pods may be the ones that are placed, as far as its queue lets it.
            tasks = [task for task in job.tasks if task.status is TaskStatus.PENDING]
            found.append(job.spec.queue)
        for task in tasks:
            shape, is_dynamic = self._session.fit.of(task)
            request = task.spec.request
            if is_dynamic:
                return None
            found += (shape.key, request, task.spec.pod_set)
            if place.may_be_over_limit_there(self._session, job, request):
                found.append(job.spec.queue)
        return tuple(found)
