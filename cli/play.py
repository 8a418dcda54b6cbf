"""Cycle after cycle until nothing changes any more, on a snapshot of its own. Pure.

What a plan decides is done at once: binds hold, evicted pods are gone, what ends has ended. A pod that somebody makes again
waits anew under its name.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Job, Snapshot, Task, TaskStatus
from controller.scheduler.nodes import Claim
from controller.scheduler.plan import Bind, Evict, Plan, Wait
from controller.scheduler.rules import Rules

MOST_CYCLES: Final = 20


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it ends. `placed`: pods that got a place on the way and have it in the end; `evicted`: each pod's first eviction;
    `waits`: jobs that wait in the end. `settled` False: it was still changing after the last cycle."""

    placed: Mapping[str, Bind]
    evicted: Mapping[str, Evict]
    waits: Mapping[str, Wait]
    cycles: int
    settled: bool

    def node_of(self, pod: str) -> str:
        """Name the node on which a pod got its place, "" = it got none."""
        place = self.placed.get(pod)
        return "" if place is None else place.node


def play(snapshot: Snapshot, rules: Rules, made_again: AbstractSet[str]) -> Outcome:
    """Let cycles pass, at most MOST_CYCLES. `made_again`: pods that come back after an eviction."""
    placed: dict[str, Bind] = {}
    evicted: dict[str, Evict] = {}
    waits: dict[str, Wait] = {}
    for number in range(1, MOST_CYCLES + 1):
        plan = run_cycle(snapshot, rules)
        waits = {wait.job: wait for wait in plan.waits}
        for one in plan.evictions:
            evicted.setdefault(one.task, one)
            placed.pop(one.task, None)
        placed.update({bind.task: bind for bind in plan.binds})
        ending = any(task.status is TaskStatus.RELEASING for task in _tasks(snapshot))
        if not plan.binds and not plan.evictions and not ending:
            return Outcome(placed=placed, evicted=evicted, waits=waits, cycles=number, settled=True)
        snapshot = after(snapshot, plan, made_again)
    return Outcome(placed=placed, evicted=evicted, waits=waits, cycles=MOST_CYCLES, settled=False)


def _tasks(snapshot: Snapshot) -> Iterator[Task]:
    yield from snapshot.others
    for job in snapshot.jobs:
        yield from job.tasks


def after(snapshot: Snapshot, plan: Plan, made_again: AbstractSet[str]) -> Snapshot:
    """Give the world in which a plan was carried out."""
    binds = {bind.task: bind for bind in plan.binds}
    gone = {one.task for one in plan.evictions}
    started = frozenset(plan.started)
    jobs = []
    for job in snapshot.jobs:
        tasks = tuple(_after(task, binds, gone, made_again) for task in job.tasks)
        kept = tuple(task for task in tasks if task is not None)
        if kept != job.tasks:
            jobs.append(_changed(job, kept, snapshot, job.id in started, gone))
        else:
            jobs.append(job)
    return msgspec.structs.replace(
        snapshot,
        jobs=tuple(jobs),
        others=tuple(task for task in snapshot.others if task.status is not TaskStatus.RELEASING),
        claims=tuple(_claim(claim, binds, gone) for claim in snapshot.claims),
        reserved_for=plan.reserved_for,
        promises=plan.promises,
    )


def _after(
    task: Task, binds: Mapping[str, Bind], gone: AbstractSet[str], made_again: AbstractSet[str]
) -> Task | None:
    bind = binds.get(task.id)
    if bind is not None:
        return msgspec.structs.replace(
            task, status=TaskStatus.RUNNING, node=bind.node, gpus=bind.gpus, zones=bind.zones
        )
    if task.id in gone:
        if task.id not in made_again:
            return None
        return msgspec.structs.replace(
            task, status=TaskStatus.PENDING, node="", gpus=(), zones=(), nominated_node=""
        )
    return None if task.status is TaskStatus.RELEASING else task


def _changed(
    job: Job, tasks: tuple[Task, ...], snapshot: Snapshot, started: bool, gone: AbstractSet[str]
) -> Job:
    was_evicted = any(task.id in gone for task in job.tasks)
    waits = any(task.status is TaskStatus.PENDING for task in tasks)
    return msgspec.structs.replace(
        job,
        tasks=tasks,
        started_at=snapshot.now if started else job.started_at,
        restarts=job.restarts + was_evicted,
        pending_since=(job.pending_since or snapshot.now) if waits else None,
    )


def _claim(claim: Claim, binds: Mapping[str, Bind], gone: AbstractSet[str]) -> Claim:
    """Give a claim to whom it was bound, and free it of whom was evicted; what nobody holds is free again."""
    users = tuple(user for user in claim.reserved_for if user not in gone)
    devices = claim.devices if users or not claim.reserved_for else ()
    for bind in binds.values():
        for name, given in bind.devices:
            if name == claim.id:
                users, devices = (*users, bind.task), given
    if users == claim.reserved_for and devices == claim.devices:
        return claim
    return msgspec.structs.replace(claim, reserved_for=users, devices=devices)
