"""Whose turn comes first in the next cycle: a victim's or its evictor's. Pure.

What is evicted is pending in the next cycle, and allocation goes by queues and jobs alone. A victim whose turn comes first
would take its place again and the evictor would evict it again, for ever; so it is placed first here too, as KAI does in its
simulations (TryToVirtuallyAllocatePreemptorAndGetVictims), and the evictor has to do with what is left.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, TypeAlias

from controller.scheduler import gangs, queue_order, reclaim_gates
from controller.scheduler.amounts import NOTHING, Amounts
from controller.scheduler.job_order import JobsByQueue, is_pending
from controller.scheduler.session import Session
from controller.scheduler.state import JobState

MOST_TURNS: Final = 32
"""How many turns of others are looked at; where neither came up until then the victim is taken to be first."""
MOST_WAITING: Final = 1000
"""Up to how many waiting jobs the whole tree is looked at where two queues have different parents."""

_Key: TypeAlias = tuple[int, int, datetime, str]


class Turns:
    """The order in which jobs are served, by what queues hold at the moment."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, list[tuple[_Key, JobState]]] = {}
        for job in session.ledger.jobs.values():
            if is_pending(job):
                self._waiting.setdefault(job.spec.queue, []).append((_key(job), job))
        self._count = sum(map(len, self._waiting.values()))
        for waiting in self._waiting.values():
            waiting.sort(key=lambda entry: entry[0], reverse=True)

    def is_first(self, victim: JobState, evictor: JobState, asked: Amounts) -> bool:
        """Tell whether an evicted job's turn comes before that of its evictor, which still asks for these amounts."""
        if victim.queue is None or evictor.queue is None:
            return False
        if victim.queue is evictor.queue:
            return _key(victim) < _key(evictor)
        ours, theirs = reclaim_gates.level(evictor.queue, victim.queue)
        if (ours is not evictor.queue or theirs is not victim.queue) and self._count <= MOST_WAITING:
            return self._is_popped_first(victim, evictor)
        mine, others = self._until(evictor), self._until(victim)
        my_next, their_next = next(mine), next(others)
        total = self._session.ledger.total
        for _ in range(MOST_TURNS):
            my_wants = asked if my_next is evictor else self._wants(my_next)
            order = queue_order.first(
                ours, theirs, my_wants, self._wants(their_next), NOTHING, NOTHING, total
            )
            if order == 0:
                order = -1 if (ours.spec.created, ours.name) < (theirs.spec.created, theirs.name) else 1
            if order < 0:
                if my_next is evictor:
                    return False
                my_next = next(mine)
            else:
                if their_next is victim:
                    return True
                their_next = next(others)
        return True

    def _is_popped_first(self, victim: JobState, evictor: JobState) -> bool:
        """Tell the same by the whole tree: between departments the best job of each decides, whoever's it is."""
        jobs = [job for waiting in self._waiting.values() for _, job in waiting if is_pending(job)]
        order = JobsByQueue(self._session, dict.fromkeys((*jobs, victim, evictor)))
        while (job := order.pop()) is not None:
            if job is victim or job is evictor:
                return job is victim
        return True

    def _until(self, job: JobState) -> Iterator[JobState]:
        """Give the jobs of its queue that wait before it, then the job itself."""
        waiting, key = self._waiting.get(job.spec.queue, []), _key(job)
        while waiting and not is_pending(waiting[-1][1]):
            waiting.pop()
        for before, other in reversed(waiting):
            if before >= key:
                break
            if other is not job and is_pending(other):
                yield other
        yield job

    def _wants(self, job: JobState) -> Amounts:
        return gangs.amounts_of(gangs.tasks_to_place(self._session, job, real=False))


def _key(job: JobState) -> _Key:
    return (-job.spec.priority, gangs.elastic_rank(job), job.spec.created_at, job.id)
