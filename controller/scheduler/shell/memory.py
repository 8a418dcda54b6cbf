"""What the loop knows from one cycle to the next, all of it lost at a restart without harm. Pure: every method takes `now`.

A restart costs one early retry. What is bound, evicted and grouped stands in the API, and the last plan's promises do, too
(`nominations`). Who held the reservation does not, and need not: what it had gathered is idle, nobody was evicted for it
(whoever had others evicted has a promise), and the first cycle gives the reservation to the first job in line that finds no
room, which is the same one, or one whose turn it is by now.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from controller.outcome import Result
from controller.scheduler.model import HOLDING, Snapshot
from controller.scheduler.plan import Evict, Plan, Promise
from controller.scheduler.shell.assumed import Assumed
from controller.scheduler.shell.config import GracesSection
from controller.scheduler.shell.effects import has_left
from controller.scheduler.shell.orders import (
    ON_NODES,
    GangOrder,
    VictimSet,
    held,
    is_whole,
    least,
    needs_more,
)
from controller.scheduler.shell.outcomes import Bound, Evicted, Looked
from controller.scheduler.shell.pauses import Pauses
from controller.scheduler.shell.refusals import Refusals
from controller.scheduler.shell.reported import Happened
from controller.scheduler.shell.sight import Known
from kube.types import Pod

BIND_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
PREPARE_AGAIN_S: Final = 1.0
DOUBT_ENDS: Final = timedelta(seconds=5)
"""A bind without an answer may still be on its way: only after so long a pod that shows no node counts as not bound."""
HALF_GANG: Final = "half-gang"
_FAILED: Final = frozenset({Result.INVALID, Result.FORBIDDEN, Result.THROTTLED, Result.BLOCKED})


class Unready(msgspec.Struct, frozen=True, kw_only=True):
    """A gang whose claims or volumes are not there yet; its places are kept."""

    gang: GangOrder
    next_try: datetime


class Memory:
    """Owned by the loop's thread."""

    def __init__(self, graces: GracesSection) -> None:
        self._graces = graces
        self._assumed = Assumed()
        self._jobs = Pauses(BIND_PAUSES_S)
        self._pods = Pauses(BIND_PAUSES_S)  # who stands by itself in its job
        self._failed_pods: dict[str, tuple[str, str]] = {}  # its UID and its job
        self._refusals = Refusals()
        self._gangs: dict[str, GangOrder] = {}  # by each member's task, as long as it is assumed
        self._unready: dict[str, Unready] = {}  # by the gang's first task
        self._half: dict[str, datetime] = {}
        self._whole: set[str] = set()
        self._reserved_for = ""
        self._promises: tuple[Promise, ...] | None = None
        self._happened: list[Happened] = []

    # Towards the snapshot

    def settle(self, pods: Mapping[str, Pod]) -> None:
        """Take what the store shows by now."""
        self._assumed.settle(pods)
        self._refusals.settle(pods)
        if self._failed_pods:
            self._failed_pods = {
                task: held
                for task, held in self._failed_pods.items()
                if (pod := pods.get(task)) is not None and pod.metadata.uid == held[0]
            }
            self._pods.keep(self._failed_pods)
        self._gangs = {task: gang for task, gang in self._gangs.items() if self._assumed.holds(task)}
        self._unready = {
            task: one
            for task, one in self._unready.items()
            if any(self._assumed.holds(member.bind.task) for member in one.gang.members)
        }

    def known(self, now: datetime) -> Known:
        """Give what a snapshot is told besides the stores.

        A job that room was made for is not held back, or its room would go to others: its binds are kept back (`planned`).
        """
        promised = {promise.job for promise in self._promises or ()}
        return Known(
            binding=self._assumed.bindings(),
            evicting=self._assumed.evicting_now(now),
            protected=self._refusals.protected(now),
            held_back={
                job: _held_back(held.why)
                for job, held in self._jobs.holding(now).items()
                if job not in promised
            },
            held_pods={
                task: _held_back(held.why)
                for task, held in self._pods.holding(now).items()
                if self._failed_pods[task][1] not in promised
            },
            reserved_for=self._reserved_for,
            promises=self._promises,
        )

    def planned(self, plan: Plan, promises: tuple[Promise, ...], snapshot: Snapshot, now: datetime) -> Plan:
        """Keep what the plan says to the next cycle; give it without the binds of whoever pauses, who keeps the room."""
        self._reserved_for = plan.reserved_for
        waits = self._refusals.explained(plan.waits, now)
        plan = plan if waits is plan.waits else msgspec.structs.replace(plan, waits=waits)
        jobs, pods = self._jobs.holding(now).keys(), self._paused_pods(snapshot, now)
        sent = tuple(bind for bind in plan.binds if bind.job not in jobs and bind.task not in pods)
        unsent: dict[str, list[str]] = {}
        for bind in plan.binds:
            if bind.job in jobs or bind.task in pods:
                unsent.setdefault(bind.job, []).append(bind.node)
        for promise in promises:
            if promise.job in unsent:
                unsent[promise.job] += promise.nodes
        kept = tuple(Promise(job=job, nodes=tuple(sorted(nodes))) for job, nodes in unsent.items())
        self._promises = tuple(promise for promise in promises if promise.job not in unsent) + kept
        if not unsent:
            return plan
        return msgspec.structs.replace(
            plan,
            binds=sent,
            promises=tuple(promise for promise in plan.promises if promise.job not in unsent) + kept,
        )

    def _paused_pods(self, snapshot: Snapshot, now: datetime) -> frozenset[str]:
        """Name the pods that pause by themselves, without those that their gang needs by now."""
        pods = self._pods.holding(now)
        of_pods = {self._failed_pods[task][1] for task in pods}
        gangs = {job.id for job in snapshot.jobs if job.id in of_pods and needs_more(job)} if pods else set()
        return frozenset(task for task in pods if self._failed_pods[task][1] not in gangs)

    # Binds

    def ordered(self, gangs: Iterable[GangOrder], now: datetime) -> None:
        """Take what is about to be sent."""
        for gang in gangs:
            for member in gang.members:
                self._assumed.assume(member.bind, member.uid, now)
                self._gangs[member.bind.task] = gang

    def to_prepare_again(self, now: datetime) -> list[GangOrder]:
        """Give the gangs whose claims and volumes are looked at again."""
        due = [task for task, one in self._unready.items() if one.next_try <= now]
        # Its answer puts it back: until then it is under way, and is not prepared a second time beside itself.
        return [self._unready.pop(task).gang for task in due]

    def took_bind(self, outcome: Bound, now: datetime) -> None:
        """Learn what came of a bind."""
        task, answer = outcome.order.bind.task, outcome.answer
        if outcome.waits:
            gang = self._gangs.get(task)
            if gang is not None:
                next_try = now + timedelta(seconds=PREPARE_AGAIN_S)
                self._unready[gang.members[0].bind.task] = Unready(gang=gang, next_try=next_try)
            return
        gang = self._gangs.pop(task, None)
        if gang is not None:
            self._unready.pop(gang.members[0].bind.task, None)
        if answer.result is Result.DONE:
            self._assumed.sent(task, now)
            if outcome.order.alone:  # a gang's row of failures ends where it is whole
                self._jobs.succeeded(outcome.job)
                self._pods.succeeded(task)
            self._tell(outcome, "bound", now)
        elif answer.result in (Result.UNAVAILABLE, Result.CONFLICT):
            self._assumed.doubt(task, now)
            self._bind_failed(outcome, now)
        else:
            self._assumed.forget(task)
            if answer.result in _FAILED:
                self._bind_failed(outcome, now)
                self._tell(outcome, "bind-failed", now)

    def _bind_failed(self, outcome: Bound, now: datetime) -> None:
        """Let the pod pause where it stands by itself, else the whole job."""
        order, answer = outcome.order, outcome.answer
        if order.alone:
            self._failed_pods[order.bind.task] = (order.uid, outcome.job)
            self._pods.failed(order.bind.task, answer.why, now, answer.wait_s)
        else:
            self._jobs.failed(outcome.job, answer.why, now, answer.wait_s)

    def doubtful(self, now: datetime) -> tuple[str, ...]:
        """Name the pods that have to be read."""
        return tuple(held.bind.task for held in self._assumed.doubtful(now))

    def looked(self, outcome: Looked, now: datetime) -> None:
        """Learn what a pod that was read shows; where it is bound, the store shows it by now."""
        since = self._assumed.since(outcome.task)
        if since is None or not outcome.was_read:
            return
        pod = outcome.pod
        if pod is None or (not pod.spec.node_name and now - since >= DOUBT_ENDS):
            self._assumed.forget(outcome.task)

    # Evictions

    def evicting(self, sets: Sequence[VictimSet], now: datetime) -> list[VictimSet]:
        """Give what is to be sent: no set that has a member under way already, nor one that was refused (`refusals`)."""
        found = []
        for one in self._refusals.to_send(sets, now):
            if any(self._assumed.is_evicted(victim.evict.task, now) for victim in one.victims):
                continue
            for victim in one.victims:
                self._assumed.evicting(victim.evict.task, victim.uid)
            found.append(one)
        return found

    def took_eviction(self, outcome: Evicted, now: datetime) -> None:
        """Learn what came of an eviction."""
        task = outcome.victim.evict.task
        if outcome.tried or not has_left(outcome.answer):
            self._assumed.not_evicted(task)
        else:
            self._assumed.evicted(task, now)
        happened = self._refusals.took(outcome, now)
        if happened is not None:
            self._happened.append(happened)

    def lost_gangs(self, half: frozenset[str], snapshot: Snapshot, now: datetime) -> tuple[Evict, ...]:
        """Give the evictions of gangs of which some were bound and the others could not follow.

        For its grace the cycle tries to place the others. Not while binds of it are under way or the observer is suspected,
        nor of one that ran whole once: that is a stale gang, which has a grace of its own.
        """
        jobs = {job.id: job for job in snapshot.jobs}
        self._note_whole(snapshot)
        if snapshot.suspected:
            return ()
        self._half = {
            job: self._half.get(job, now)
            for job in half
            if job not in self._whole and not any(self._assumed.holds(task.id) for task in jobs[job].tasks)
        }
        found: list[Evict] = []
        for job_id, since in self._half.items():
            if now - since < self._graces.half_gang:
                continue
            job = jobs[job_id]
            why = (
                f"{held(job)} of the {least(job.root)} pods that {job_id} needs were bound, and the others could not "
                "follow: it gives its places back and starts whole later"
            )
            found += [
                Evict(task=task.id, job=job_id, node=task.node, action=HALF_GANG, why=why)
                for task in job.tasks
                if task.status in HOLDING
            ]
        return tuple(found)

    def _note_whole(self, snapshot: Snapshot) -> None:
        """Note which gangs run whole, for as long as any of their pods holds a place: the next run is another one."""
        whole = set()
        for job in snapshot.jobs:
            if len(job.tasks) < 2:
                continue
            if job.id in self._whole:
                if held(job):
                    whole.add(job.id)
            elif is_whole(job, ON_NODES):
                whole.add(job.id)
                self._jobs.succeeded(job.id)
        self._whole = whole

    # Towards the outside

    def happened(self) -> tuple[Happened, ...]:
        """Give what happened since the last time."""
        happened, self._happened = tuple(self._happened), []
        return happened

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way that a later cycle has to look after."""
        return bool(len(self._assumed) or self._unready or self._half)

    def next_until(self, now: datetime) -> datetime | None:
        """Give when the next pause ends."""
        times = (held.next_until(now) for held in (self._jobs, self._pods, self._refusals))
        return min((one for one in times if one is not None), default=None)

    def _tell(self, outcome: Bound, what: Literal["bound", "bind-failed"], now: datetime) -> None:
        bind = outcome.order.bind
        self._happened.append(
            Happened(
                pod=bind.task,
                uid=outcome.order.uid,
                what=what,
                node=bind.node,
                message=outcome.answer.why,
                at=now,
            )
        )


def _held_back(why: str) -> str:
    return f"its last bind failed, and it waits before the next try: {why}"
