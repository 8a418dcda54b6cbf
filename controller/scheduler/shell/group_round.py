"""Which pod groups differ from what they should say after a cycle: their notes, conditions, what their pods hold. Pure.

A group is written at most once in a round, since a patch holds only for the group as it was read. Times are monotonic
seconds.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from controller.scheduler.model import Job
from controller.scheduler.shell import group_status
from controller.scheduler.shell.orders import ON_NODES, is_whole
from controller.scheduler.shell.reported import Report
from controller.scheduler.shell.round_writes import Moment, RoundWrites
from controller.scheduler.shell.steady_words import Told
from kube.scheduling import STALE_SINCE, GroupCondition, PodGroup, ResourcesStatus

SINGLE_S: Final = 10.0
"""How long a single pod waits before its group repeats what the pod says already."""
NUMBERS_EVERY_S: Final = 5.0
_START_KEPT: Final = timedelta(minutes=10)

Notes = dict[str, str | None]
Groups = Mapping[str, PodGroup]


class GroupRounds:
    """Remembers which groups were found in order, and when the numbers of each were added up last."""

    def __init__(self, pool_label: str) -> None:
        self._pool_label = pool_label
        self._done: dict[str, tuple[Told, PodGroup]] = {}
        self._numbers: dict[str, tuple[int, float]] = {}
        self._report: Report | None = None
        self._serial = 0

    def notes(
        self,
        report: Report,
        jobs: Mapping[str, Job],
        groups: Groups,
        started: dict[str, datetime],
        moment: Moment,
    ) -> dict[str, Notes]:
        """Give what groups are to note that the next cycles decide by. Takes out of `started` what is noted."""
        found: dict[str, Notes] = {}
        stale = frozenset(report.plan.stale)
        noted = [key for key, group in groups.items() if STALE_SINCE in group.metadata.annotations]
        for key in dict.fromkeys((*noted, *report.plan.stale)):
            if key in groups and key in jobs:
                suspected, now = report.snapshot.suspected, report.snapshot.now
                if note := group_status.stale_note(groups[key], key in stale, suspected, now):
                    found.setdefault(key, {}).update(note)
        for key, at in list(started.items()):
            group = groups.get(key)
            if group is None:
                if moment.now - at > _START_KEPT:
                    del started[key]
            elif _is_half(jobs.get(key)):
                # Binds are under way, or were lost: what a gang notes is that it ran whole.
                if moment.now - at > _START_KEPT:
                    del started[key]
            elif note := group_status.start_note(group, jobs.get(key), at):
                found.setdefault(key, {}).update(note)
            else:
                del started[key]
        return found

    def add(
        self,
        report: Report,
        jobs: Mapping[str, Job],
        groups: Groups,
        told: Mapping[str, Told],
        moment: Moment,
        writes: RoundWrites,
    ) -> None:
        """Add the status of groups that differ."""
        if report is not self._report:
            self._report, self._serial = report, self._serial + 1
        numbers = self._due_numbers(jobs, groups, moment, writes)
        for key, words in told.items():
            group = groups.get(key)
            if group is not None:
                self._add_waiting(key, group, jobs.get(key), words, numbers.pop(key, None), moment, writes)
        for key, group in groups.items():
            if group.status.scheduling_conditions and key not in told:
                wanted = group_status.conditions_wanted(
                    group, jobs.get(key), None, self._pool_label, moment.now
                )
                self._add(key, group, wanted, numbers.pop(key, None), moment, writes)
        for key, resources in numbers.items():
            group = groups[key]
            self._add(key, group, group.status.scheduling_conditions, resources, moment, writes)
        self._done = {key: done for key, done in self._done.items() if key in told}
        self._numbers = {key: seen for key, seen in self._numbers.items() if key in jobs}

    def _add_waiting(
        self,
        key: str,
        group: PodGroup,
        job: Job | None,
        told: Told,
        resources: ResourcesStatus | None,
        moment: Moment,
        writes: RoundWrites,
    ) -> None:
        single = job is not None and len(job.tasks) <= 1
        due_at = told.since + (max(SINGLE_S, moment.settle_s) if single else moment.settle_s)
        conditions = group.status.scheduling_conditions
        if moment.at < due_at:
            writes.due(due_at)
        else:
            done = self._done.get(key)
            if resources is None and done is not None and done[0] is told and done[1] is group:
                return
            conditions = group_status.conditions_wanted(group, job, told, self._pool_label, moment.now)
        if not self._add(key, group, conditions, resources, moment, writes) and moment.at >= due_at:
            self._done[key] = (told, group)

    def _add(
        self,
        key: str,
        group: PodGroup,
        conditions: tuple[GroupCondition, ...],
        resources: ResourcesStatus | None,
        moment: Moment,
        writes: RoundWrites,
    ) -> bool:
        """Add the write that a group needs; tells whether it needs one. Numbers that were in order are for this report."""
        write = group_status.status_write(group, conditions, resources)
        if resources is not None:
            self._numbers[key] = (self._serial if write is None else 0, moment.at)
        writes.add(write)
        return write is not None

    def _due_numbers(
        self, jobs: Mapping[str, Job], groups: Groups, moment: Moment, writes: RoundWrites
    ) -> dict[str, ResourcesStatus]:
        """Add up, now and then, what the pods of each group hold; a single pod says that itself."""
        found: dict[str, ResourcesStatus] = {}
        for key, job in jobs.items():
            if len(job.tasks) <= 1 or key not in groups:
                continue
            serial, at = self._numbers.get(key, (0, float("-inf")))
            if serial == self._serial:
                continue
            if moment.at < at + NUMBERS_EVERY_S:
                writes.due(at + NUMBERS_EVERY_S)
            else:
                found[key] = group_status.resources_wanted(job)
        return found


def _is_half(job: Job | None) -> bool:
    return job is not None and len(job.tasks) > 1 and not is_whole(job, ON_NODES)
