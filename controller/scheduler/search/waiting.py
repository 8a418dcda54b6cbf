"""Which waiting jobs may have others evicted, and which need not be tried since one like them just failed. Pure.

Source: KAI Scheduler, actions/utils/input_jobs.go (JobsOrderInitOptions) and actions/common/minimal_job_comparison.go.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeAlias

from controller.scheduler import gangs
from controller.scheduler.amounts import Amounts
from controller.scheduler.job_order import JobsByQueue, is_pending, why_not_queued
from controller.scheduler.model import SubGroup, TaskStatus, TopologyConstraint
from controller.scheduler.plan import Wait
from controller.scheduler.requests import Constraints
from controller.scheduler.session import Session
from controller.scheduler.state import JobState

_Likeness: TypeAlias = tuple[frozenset[Constraints], tuple[TopologyConstraint, ...]]


def evictors(session: Session, only_preemptible: bool = False) -> JobsByQueue:
    """Choose the jobs that wait and may evict, in the order of queues and jobs.

    A job whose preemption delay has not passed is left out and told so (kai.md 1.2: spec.preemptionDelay).
    """
    found = []
    for job in session.ledger.jobs.values():
        if only_preemptible and not job.spec.preemptible:
            continue
        if not is_pending(job) or why_not_queued(job) is not None or not gangs.is_ready(job):
            continue
        if job.spec.preemption_delay_s > 0 and _is_delayed(session, job):
            continue
        found.append(job)
    return JobsByQueue(session, found)


def _is_delayed(session: Session, job: JobState) -> bool:
    spec = job.spec
    ends = (spec.pending_since or spec.created_at) + timedelta(seconds=spec.preemption_delay_s)
    if session.snapshot.now >= ends:
        return False
    message = (
        f"may evict nobody before {ends.isoformat()}: its preemption delay is {spec.preemption_delay_s} s"
    )
    session.waits.setdefault(job.id, Wait(job=job.id, code="PreemptionDelayNotElapsed", message=message))
    return True


class Failures:
    """The smallest jobs of each kind that found no room in this action (KAI's MinimalJobRepresentatives).

    A kind is the constraints of the pods that wait and the topologies that they want. A job that is not easier than one that
    failed is not tried. `settings.skip_like_failed` off: nothing is remembered.
    """

    def __init__(self, session: Session) -> None:
        self._on = session.settings.skip_like_failed
        self._smallest: dict[_Likeness, list[Amounts]] = {}

    def rules_out(self, job: JobState) -> bool:
        """Tell whether trying is of no use."""
        if not self._smallest:
            return False
        smallest = self._smallest.get(self._likeness(job))
        return smallest is not None and not _is_easier(_sizes(job), smallest)

    def add(self, job: JobState) -> None:
        """Remember that this job found no room."""
        if not self._on:
            return
        sizes = _sizes(job)
        known = self._smallest.get(self._likeness(job))
        if known is None or _is_smaller(sizes, known):
            self._smallest[self._likeness(job)] = sizes

    def _likeness(self, job: JobState) -> _Likeness:
        constraints = frozenset(
            task.spec.constraints for task in job.tasks if task.status is TaskStatus.PENDING
        )
        return (constraints, tuple(_topologies(job.root)))


def _topologies(group: SubGroup) -> Iterator[TopologyConstraint]:
    for constraint in (group.topology, *(pod_set.topology for pod_set in group.pod_sets)):
        if constraint is not None:
            yield constraint
    for below in group.groups:
        yield from _topologies(below)


def _sizes(job: JobState) -> list[Amounts]:
    return sorted(task.amounts for task in job.tasks if task.status is TaskStatus.PENDING)


def _fits_in(small: Amounts, large: Amounts) -> bool:
    return small[0] <= large[0] and small[1] <= large[1] and small[2] <= large[2]


def _is_easier(sizes: list[Amounts], failed: list[Amounts]) -> bool:
    if not sizes or not failed:
        return False
    if len(failed) > len(sizes):
        return True
    return any(_fits_in(mine, theirs) and mine != theirs for mine, theirs in zip(sizes, failed, strict=False))


def _is_smaller(sizes: list[Amounts], known: list[Amounts]) -> bool:
    if not sizes or len(sizes) > len(known):
        return False
    return all(_fits_in(mine, theirs) for mine, theirs in zip(sizes, known, strict=False))
