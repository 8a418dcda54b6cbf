"""What becomes of a plan with phantoms (`replacements`): their room is promised, and they are taken out of it. Pure.

A phantom takes room that others would have had, and whoever finds none may look for victims. So where a plan with phantoms
evicts, the same cycle is decided once more without them, and if anybody is evicted only for their sake that one counts: the
phantoms get nothing in this cycle.

Moved as one: where the domain has no room for the replacement, the gang cannot stay. Healthy members are not evicted for
that: until the drain has taken the member they still work, a drain may be held or end early, and room that exists now may
be gone. Once the member is gone, a gang that found no replacement within its grace is evicted whole (`actions.stale`) and
starts as one wherever a domain has room for all of it; `could_move` says beforehand whether there is such a domain, and the
wait names it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from controller.scheduler import doubt, explain
from controller.scheduler.actions import allocate
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Snapshot, TaskStatus
from controller.scheduler.plan import Plan, Promise, Wait
from controller.scheduler.rules import DEFAULT, Rules
from controller.scheduler.shell.replacements import (
    MARK,
    THERE,
    Leaving,
    Phantom,
    claims_for,
    phantom_of,
    with_replacements,
)
from controller.scheduler.values import Value

REPLACEMENT: Final = "ReplacementPending"
"""The code of the wait of a running gang whose replacement finds no room."""


class Warm(Value, frozen=True, kw_only=True):
    """A plan without phantoms; `promises` for the next cycle and `phantoms`, which it is given too."""

    plan: Plan
    promises: tuple[Promise, ...]
    phantoms: tuple[Phantom, ...]


def plan_with_replacements(
    snapshot: Snapshot,
    leaving: Mapping[str, Leaving],
    before: Collection[Phantom],
    run: Callable[[Snapshot], Plan],
    elsewhere: Callable[[Snapshot, str], Collection[str]] = lambda _snapshot, _job: (),
) -> Warm:
    """Decide a cycle by `run` with room for members that leave. `before`: the last cycle's phantoms.

    `elsewhere` is asked where the first gang that found no room could start as a whole: `could_move`, when it is time.
    """
    changed, phantoms = with_replacements(snapshot, leaving, before)
    plan = run(changed)
    if changed is snapshot:
        return Warm(plan=plan, promises=plan.promises, phantoms=())
    if plan.evictions:
        without = run(snapshot)
        if not doubt.evicts_only(plan, without):
            return Warm(plan=without, promises=without.promises, phantoms=phantoms)
    lacking = without_room(plan, phantoms)[:1]
    places = {job: elsewhere(changed, job) for job in lacking}
    return Warm(plan=strip(plan, phantoms, places), promises=held(plan, phantoms), phantoms=phantoms)


def held(plan: Plan, phantoms: Collection[Phantom]) -> tuple[Promise, ...]:
    """Give the promises for the next cycle: those of the plan (before `strip`), and the room that phantoms got."""
    ids, jobs = _ids(phantoms), {phantom.task.job for phantom in phantoms}
    nodes: dict[str, list[str]] = {}
    for bind in plan.binds:
        if bind.task in ids:
            nodes.setdefault(bind.job, []).append(bind.node)
    for pipeline in plan.pipelined:
        if pipeline.job in jobs:
            nodes.setdefault(pipeline.job, []).append(pipeline.node)
    others = tuple(one for one in plan.promises if one.job not in nodes)
    return others + tuple(
        Promise(job=job, nodes=tuple(sorted(found))) for job, found in sorted(nodes.items())
    )


def without_room(plan: Plan, phantoms: Collection[Phantom]) -> tuple[str, ...]:
    """Name the jobs whose phantoms found no room in a plan (before `strip`), in order."""
    placed = {*(one.task for one in plan.binds), *(one.task for one in plan.pipelined)}
    return tuple(sorted({one.task.job for one in phantoms if one.task.id not in placed}))


def strip(
    plan: Plan, phantoms: Collection[Phantom], elsewhere: Mapping[str, Collection[str]] | None = None
) -> Plan:
    """Take the phantoms out of a plan. A gang whose replacement has its room waits for nothing; of one that found none the
    wait says so. `elsewhere`: by job where the whole gang would have room (`could_move`)."""
    if not phantoms:
        return plan
    ids = _ids(phantoms)
    by_job: dict[str, list[Phantom]] = {}
    for phantom in phantoms:
        by_job.setdefault(phantom.task.job, []).append(phantom)
    waits: list[Wait] = []
    for wait in plan.waits:
        mine = by_job.get(wait.job)
        if mine is None:
            waits.append(wait)
        elif not mine[0].alone:
            waits.append(wait if wait.task not in ids else msgspec.structs.replace(wait, task=""))
        elif wait.code != explain.PIPELINED:
            waits.append(_told(wait, mine, (elsewhere or {}).get(wait.job, ())))
    return msgspec.structs.replace(
        plan,
        binds=tuple(bind for bind in plan.binds if bind.task not in ids),
        pipelined=tuple(one for one in plan.pipelined if one.task not in ids),
        waits=tuple(waits),
    )


def _told(wait: Wait, phantoms: list[Phantom], elsewhere: Collection[str]) -> Wait:
    first = phantoms[0]
    more = f" and {len(phantoms) - 1} more of its pods" if len(phantoms) > 1 else ""
    message = (
        f"{first.member}{more} will leave {first.node} ({first.why}), and no room for a replacement was found yet: "
        f"{wait.message}"
    )
    if elsewhere:
        names = sorted(elsewhere)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        message += (
            f"; the whole gang would have room on {shown}, where it may start again once it is lost here"
        )
    return Wait(job=wait.job, code=REPLACEMENT, message=message, reasons=wait.reasons)


def could_move(snapshot: Snapshot, job_id: str, rules: Rules = DEFAULT) -> tuple[str, ...]:
    """Give nodes on which the whole gang would start, as if all its pods had ended and nobody else waited; () = none.

    It costs a cycle: ask for the few gangs that `without_room` names, and not in every cycle.
    """
    job = next((one for one in snapshot.jobs if one.id == job_id), None)
    if job is None:
        return ()
    members = [task for task in job.tasks if not task.id.endswith(MARK)]
    copies = tuple(phantom_of(task) for task in members if task.status in THERE)
    ended = tuple(
        msgspec.structs.replace(task, status=TaskStatus.RELEASING) for task in members if task.status in THERE
    )
    trial = msgspec.structs.replace(job, tasks=ended + copies)
    plan = run_cycle(
        msgspec.structs.replace(
            snapshot,
            jobs=tuple(
                trial if one is job else msgspec.structs.replace(one, ready=False) for one in snapshot.jobs
            ),
            claims=tuple(claims_for(snapshot.claims, copies)),
            promises=(),
            reserved_for="",
        ),
        rules,
        actions=(allocate.run,),
    )
    ids = {copy.id for copy in copies}
    placed = [(one.task, one.node) for one in plan.binds] + [(one.task, one.node) for one in plan.pipelined]
    nodes = {task: node for task, node in placed if task in ids}
    return tuple(sorted(set(nodes.values()))) if len(nodes) == len(copies) else ()


def _ids(phantoms: Iterable[Phantom]) -> frozenset[str]:
    return frozenset(phantom.task.id for phantom in phantoms)
