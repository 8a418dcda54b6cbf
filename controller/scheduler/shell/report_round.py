"""What is to be written after a cycle: from a report and what the stores hold to the writes that differ. Pure.

First the notes that next cycles decide by (stale, started, nominated), then queues, then by turns groups and pods with their
Events. Where nothing changed since the last round, a job costs a few comparisons. Times are monotonic seconds.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from datetime import datetime
from itertools import chain, islice, zip_longest
from operator import is_
from typing import Final

import msgspec

from controller.scheduler.model import Job
from controller.scheduler.shell import events
from controller.scheduler.shell.events import Voice
from controller.scheduler.shell.group_round import GroupRounds
from controller.scheduler.shell.group_status import note_write
from controller.scheduler.shell.nominations import Nominations
from controller.scheduler.shell.pod_status import condition_write
from controller.scheduler.shell.queue_status import QueueStatuses
from controller.scheduler.shell.reported import Report
from controller.scheduler.shell.round_writes import Held, Moment, RoundWrites
from controller.scheduler.shell.status_writes import Kind, Write
from controller.scheduler.shell.steady_words import SteadyWords, Told, unreadable_groups
from controller.scheduler.snapshot import POD_GROUP
from kube.scheduling import PodGroup
from kube.types import Pod

MOST_WRITES: Final = 500
MOST_NOMINATED: Final = 200
"""In one round, so that a gang of thousands does not keep all others waiting for their word."""
MOST_SAID: Final = 20_000
SAY_AGAIN_S: Final = 3660.0
"""A little more than the hour for which a server keeps an Event, unless it was set up otherwise."""
_SHOWN_WITHIN_S: Final = 10.0


class _Done(msgspec.Struct, frozen=True):
    """A job of which there was nothing to write at that time, as long as these are the objects."""

    told: Told
    pods: tuple[Pod | None, ...]
    at: float


class _Stray(msgspec.Struct, frozen=True):
    """A pod that takes part in nothing, and the Event that says so."""

    uid: str
    words: str
    event: Write


class Rounds:
    """Owned by the reporter's thread. `may` tells whether a write's time has come."""

    def __init__(self, voice: Voice, pool_label: str, may: Callable[[Write], bool]) -> None:
        self._voice = voice
        self._may = may
        self._words = SteadyWords()
        self._queues = QueueStatuses()
        self._groups = GroupRounds(pool_label)
        self._nominations = Nominations(voice.scheduler)
        self._report: Report | None = None
        self._jobs: dict[str, Job] = {}
        self._done: dict[str, _Done] = {}
        self._strays: dict[str, _Stray] = {}
        self._said: dict[str, float] = {}
        self._recent: dict[tuple[Kind, str], tuple[float, Write]] = {}

    def plan(
        self, report: Report, held: Held, started: dict[str, datetime], moment: Moment
    ) -> tuple[list[Write], float | None]:
        """Give the writes of this round, and when there may be more. Takes out of `started` what is noted."""
        if report is not self._report:
            self._report = report
            self._jobs = {job.id: job for job in report.snapshot.jobs}
        told = self._words.update(report, moment.at)
        first, groups = RoundWrites(self._allows), RoundWrites(self._allows)
        notes = self._groups.notes(report, self._jobs, held.groups, started, moment)
        first.extend(note_write(held.groups[key], note) for key, note in notes.items())
        nominated = self._nominate(report, held, moment, first)
        queue_writes, due = self._queues.writes(report, held.queues, moment.now, moment.at)
        first.extend(queue_writes)
        first.due(due)
        first.due(self._words.due_at)
        # What is noted now changes the object, and no patch of what was read before would hold.
        pods = RoundWrites(
            lambda one: not (one.kind is Kind.POD and one.key in nominated) and self._allows(one)
        )
        others = (
            {key: group for key, group in held.groups.items() if key not in notes} if notes else held.groups
        )
        self._groups.add(report, self._jobs, others, told, moment, groups)
        self._tell_jobs(report, told, held, moment, pods)
        self._tell_strays(report, held, moment, pods)
        self._forget(told, moment)
        dues = [one.due_at for one in (first, groups, pods) if one.due_at is not None]
        dues += [moment.at] if notes or nominated else []
        turns = chain.from_iterable(zip_longest(groups.found, pods.found))
        return [*first.found, *(one for one in turns if one is not None)], min(dues, default=None)

    def took(self, write: Write, at: float) -> None:
        """Remember what was written: the store may take a moment to show it."""
        if write.kind is not Kind.EVENT:
            self._recent[write.kind, write.key] = (at, write)
            return
        self._said.pop(write.key, None)
        self._said[write.key] = at
        if len(self._said) > MOST_SAID:
            for key in list(self._said)[: MOST_SAID // 10]:
                del self._said[key]

    def was_said(self, event: Write, at: float) -> bool:
        """Tell whether this Event was written before, and so lately that the server still has it."""
        said_at = self._said.get(event.key)
        return said_at is not None and at < said_at + SAY_AGAIN_S

    def _allows(self, write: Write) -> bool:
        recent = self._recent.get((write.kind, write.key))
        return (recent is None or recent[1].body != write.body) and self._may(write)

    def _nominate(self, report: Report, held: Held, moment: Moment, writes: RoundWrites) -> Set[str]:
        """Add what pods are to show that room is made for; give their names."""
        wanted = self._nominations.writes(report, self._jobs, held.pods)
        found = {write.key for write in islice(filter(writes.add, wanted), MOST_NOMINATED)}
        if next(wanted, None) is not None:
            writes.due(moment.at)
        return found

    def _tell_jobs(
        self, report: Report, told: Mapping[str, Told], held: Held, moment: Moment, writes: RoundWrites
    ) -> None:
        bound = {bind.task for bind in report.plan.binds}
        for key, words in told.items():
            if moment.at < words.since + moment.settle_s:
                writes.due(words.since + moment.settle_s)
                continue
            names = report.waiting_pods.get(key, ())
            pods = tuple(map(held.pods.get, names))
            done = self._done.get(key)
            is_known = done is not None and done.told is words and _same(done.pods, pods)
            if is_known and done is not None and moment.at < done.at + SAY_AGAIN_S:
                continue
            if len(writes.found) >= MOST_WRITES:
                writes.due(moment.at)
                return
            before = writes.count
            for write in self._of_job(key, words, held.groups.get(key), names, pods, bound, moment):
                writes.add(write)
            if before == writes.count and bound.isdisjoint(names):
                self._done[key] = _Done(words, pods, moment.at)

    def _of_job(
        self,
        key: str,
        told: Told,
        group: PodGroup | None,
        names: tuple[str, ...],
        pods: tuple[Pod | None, ...],
        bound: set[str],
        moment: Moment,
    ) -> Iterator[Write]:
        """Give the Events of a job, of a single pod's only the pod's, and what its pods lack."""
        waiting = [
            pod for name, pod in zip(names, pods, strict=True) if pod is not None and name not in bound
        ]
        first = next((pod for pod in waiting if not pod.spec.node_name), None)
        job = self._jobs.get(key)
        several = job is None or len(job.tasks) > 1
        for event in events.of_wait(group if several else None, first, told, self._voice, moment.now):
            if not self.was_said(event, moment.at):
                yield event
        if group is None or group.spec.mark_unschedulable is not False:
            for pod in waiting:
                if (write := condition_write(pod, told.message, moment.now)) is not None:
                    yield write

    def _tell_strays(self, report: Report, held: Held, moment: Moment, writes: RoundWrites) -> None:
        """Let pods say that they have no group, or that they or their group cannot be read."""
        strays = dict(report.group_problems)
        for problem in report.problems:
            if problem.startswith("Pod "):
                key, _, words = problem.removeprefix("Pod ").partition(": ")
                strays[key] = f"the pod cannot be read: {words}"
        if groups := unreadable_groups(report.problems):
            for key, pod in held.pods.items():
                meta = pod.metadata
                words = groups.get(f"{meta.namespace}/{meta.annotations.get(POD_GROUP, '')}", "")
                if words:
                    strays.setdefault(key, words)
        before, self._strays = self._strays, {}
        for key, words in strays.items():
            if (found := held.pods.get(key)) is None:
                continue
            stray = before.get(key)
            if stray is None or (stray.uid, stray.words) != (found.metadata.uid, words):
                event = events.of_stray(found, words, self._voice, moment.now)
                stray = _Stray(found.metadata.uid, words, event)
            self._strays[key] = stray
            condition = condition_write(found, words, moment.now)
            writes.add(condition)
            if not self.was_said(stray.event, moment.at) and not found.spec.node_name:
                writes.add(stray.event)

    def _forget(self, told: Mapping[str, Told], moment: Moment) -> None:
        self._done = {key: done for key, done in self._done.items() if key in told}
        if self._recent:
            oldest = moment.at - _SHOWN_WITHIN_S
            self._recent = {key: seen for key, seen in self._recent.items() if seen[0] > oldest}


def _same(some: tuple[Pod | None, ...], others: tuple[Pod | None, ...]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))
