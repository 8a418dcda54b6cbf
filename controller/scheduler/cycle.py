"""One scheduling cycle: from a snapshot to a plan. Pure.

The actions work on the ledger one after the other; the plan is read from where every pod ended up, so that what one action
evicted and a later one took back is not in it. Source: kai.md 2.1 and 2.3.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from controller.scheduler import (
    doubt,
    explain,
    fairshare,
    gangs,
    ledger,
    model_gates,
    numa_books,
    promises,
    reservation,
)
from controller.scheduler.actions import allocate, consolidate, preempt, reclaim, stale
from controller.scheduler.amounts import RESOURCES, Amounts
from controller.scheduler.candidates import Candidates
from controller.scheduler.fit import Fit
from controller.scheduler.model import Snapshot, TaskStatus
from controller.scheduler.plan import Bind, Evict, Pipeline, Plan, Share
from controller.scheduler.rules import DEFAULT, Rules
from controller.scheduler.session import Session
from controller.scheduler.state import QueueState, TaskState

Action: TypeAlias = Callable[[Session], None]

ALL: Final[tuple[Action, ...]] = (allocate.run, consolidate.run, reclaim.run, preempt.run, stale.run)
"""The actions in KAI's order: what needs no eviction first."""
NAMES: Final[dict[Action, str]] = {
    allocate.run: allocate.NAME,
    consolidate.run: "consolidation",
    reclaim.run: "reclaim",
    preempt.run: "preempt",
    stale.run: stale.NAME,
}


def _stands_still() -> int:
    return 0


def open_session(snapshot: Snapshot, rules: Rules, ms: Callable[[], int] = _stands_still) -> Session:
    """Load a snapshot and work out everybody's fair share."""
    books = ledger.build(snapshot, rules)
    fairshare.divide(books.queues, books.total, snapshot.settings, rules)
    if rules.quota_per_model:
        fairshare.divide_models(books.queues, model_gates.cards_of(books.nodes), rules)
    session = Session(snapshot, rules, books, ms)
    session.fit = Fit(snapshot, books, rules)
    session.candidates = Candidates(session)
    return session


def run_cycle(
    snapshot: Snapshot,
    rules: Rules = DEFAULT,
    ms: Callable[[], int] = _stands_still,
    actions: Sequence[Action] = ALL,
) -> Plan:
    """Decide what to bind, to pipeline and to evict, and say why the rest waits.

    `ms` counts milliseconds and bounds searches only; by default it stands still, and steps alone bound them.
    """
    if snapshot.suspected:
        # Who saw so much fail at once may be the one that fails: nobody is evicted on its word.
        return _decide(snapshot, rules, ms, [action for action in actions if action is allocate.run])
    plan = _decide(snapshot, rules, ms, actions)
    seen = doubt.all_in_sight(snapshot) if plan.evictions else None
    if seen is None:
        return plan
    sure = _decide(seen, rules, ms, actions)
    if doubt.evicts_only(plan, sure):
        return plan
    movable = frozenset(one.job for one in sure.evictions)
    plan = _decide(snapshot, rules, ms, actions, movable)
    return plan if doubt.evicts_only(plan, sure) else _decide(snapshot, rules, ms, actions, frozenset())


def _decide(
    snapshot: Snapshot,
    rules: Rules,
    ms: Callable[[], int],
    actions: Sequence[Action],
    movable: frozenset[str] | None = None,
) -> Plan:
    session = open_session(snapshot, rules, ms)
    session.movable = movable
    evicted_by: dict[str, str] = {}
    for action in actions:
        action(session)
        name = NAMES.get(action, action.__name__)
        tasks = session.ledger.tasks
        # A later action may have taken an eviction back.
        kept = {task_id: by for task_id, by in evicted_by.items() if tasks[task_id].evicted}
        evicted_by = kept | {task.id: name for task in tasks.values() if task.evicted and task.id not in kept}
    return _plan(session, evicted_by)


def _plan(session: Session, evicted_by: dict[str, str]) -> Plan:
    books = session.ledger
    placed = [
        task for task in books.tasks.values() if task.status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
    ]
    return Plan(
        binds=tuple(_bind(session, task) for task in placed if _is_bound_now(task)),
        pipelined=tuple(_pipeline(task) for task in placed if _is_pipelined_now(task)),
        evictions=tuple(_evictions(session, evicted_by)),
        waits=explain.all_waits(session),
        shares=tuple(_share(queue) for queue in books.queues.values()),
        total=books.total,
        reserved_for=reservation.holder_after(session),
        promises=promises.made(session),
        started=tuple(session.started),
        stale=tuple(job.id for job in books.jobs.values() if gangs.is_stale(job, session.rules)),
        exhausted=tuple(session.exhausted),
    )


def _is_bound_now(task: TaskState) -> bool:
    return task.status is TaskStatus.ALLOCATED and task.spec.status is TaskStatus.PENDING


def _is_pipelined_now(task: TaskState) -> bool:
    return task.status is TaskStatus.PIPELINED and (
        task.spec.status is TaskStatus.PENDING or task.evicted != ""
    )


def _bind(session: Session, task: TaskState) -> Bind:
    return Bind(
        task=task.id,
        job=task.spec.job,
        node=task.node.name if task.node is not None else "",
        gpus=tuple([device.uuid for device in task.devices]),
        milli=task.milli,
        mib=task.mib,
        devices=task.claim_devices,
        requests=session.fit.claims.requests_of(task.claim_devices) if task.claim_devices else (),
        zones=numa_books.by_id(task),
    )


def _pipeline(task: TaskState) -> Pipeline:
    node = task.node.name if task.node is not None else ""
    return Pipeline(
        task=task.id,
        job=task.spec.job,
        node=node,
        gpus=tuple(device.uuid for device in task.devices),
        zones=numa_books.by_id(task),
    )


def _evictions(session: Session, evicted_by: dict[str, str]) -> Iterator[Evict]:
    for task_id, action in evicted_by.items():
        task = session.ledger.tasks[task_id]
        moved_to = task.node.name if task.status is TaskStatus.PIPELINED and task.node is not None else ""
        yield Evict(
            task=task.id,
            job=task.spec.job,
            node=task.spec.node,
            action=action,
            why=task.evicted,
            gains=session.gains.get(task.id, ""),
            moved_to=moved_to,
        )


def _share(queue: QueueState) -> Share:
    allocated, fair = queue.allocated, queue.fair_share
    short = [_shortage(queue, resource) for resource in RESOURCES]
    return Share(
        queue=queue.name,
        deserved=_amounts(queue.deserved),
        fair_share=_amounts(fair),
        allocated=_amounts(allocated),
        allocated_non_preemptible=_amounts(queue.allocated_np),
        requested=_amounts(queue.requested),
        shortage=_amounts(short),
    )


def _shortage(queue: QueueState, resource: int) -> int:
    """What its fair share, as far as it asks for it, is above what it holds."""
    return max(min(queue.fair_share[resource], queue.requested[resource]) - queue.allocated[resource], 0)


def _amounts(amounts: list[int]) -> Amounts:
    return (amounts[0], amounts[1], amounts[2])
