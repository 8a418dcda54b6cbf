"""`kubectl nodemend queues`: the fair-share table, from departments down to projects. Pure.

Quota, limit and weight are what the Queue says; fair share, allocated, requested and shortage are worked out by the very
functions of the scheduler. Amounts are in the scheduler's integers (milli-GPU, millicores, bytes); -1 is no bound.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from cli.scheduling_view import UNKNOWN_HERE, View
from controller.scheduler.amounts import RESOURCE_NAMES, RESOURCES, UNLIMITED
from controller.scheduler.capacity import written
from controller.scheduler.cycle import run_cycle
from controller.scheduler.plan import Plan, Share
from controller.scheduler.queue_objects import QUEUE_PRIORITY
from controller.scheduler.rules import Rules
from controller.scheduler.shell import queue_conditions
from controller.scheduler.shell.queue_conditions import Condition
from controller.scheduler.state import QueueState

RESOURCE_WORDS = tuple(name.lower() for name in RESOURCE_NAMES)


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one queue. `worth`: what the quota is worth where capacity is short of all quotas together."""

    resource: str
    quota: int
    worth: int
    limit: int
    weight_milli: int
    fair_share: int
    allocated: int
    non_preemptible: int
    requested: int
    shortage: int


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A quota for one GPU model, in milli-GPU."""

    model: str
    quota: int
    limit: int
    allocated: int
    non_preemptible: int


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue; `depth` 0 = no parent. One that is left out of the shares has no amounts, and a condition that says why."""

    queue: str
    parent: str
    depth: int
    priority: int
    amounts: tuple[Amounts, ...] = ()
    models: tuple[ModelRow, ...] = ()
    conditions: tuple[Condition, ...] = ()


class QueuesReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that `queues` shows; its fields are the keys of `-o json`."""

    at: datetime
    total: Mapping[str, int]
    queues: tuple[QueueRow, ...]
    reserved_for: str = ""
    note: str = UNKNOWN_HERE
    incomplete: tuple[str, ...] = ()


def report_queues(view: View, rules: Rules, incomplete: tuple[str, ...], now: datetime) -> QueuesReport:
    """Work out the table. Numbers are as things stand; shortage is what the next cycle would leave open."""
    session = view.session(rules)
    plan = run_cycle(view.snapshot, rules)
    holding = _conditions(view, plan)
    states = session.ledger.queues
    after = {share.queue: share for share in plan.shares}
    rows = [_row(state, after[state.name], holding.get(state.name, ())) for state in _tree(states)]
    rows += [
        QueueRow(
            queue=queue.metadata.name,
            parent=queue.spec.parent_queue,
            depth=0,
            priority=QUEUE_PRIORITY if queue.spec.priority is None else queue.spec.priority,
            conditions=holding.get(queue.metadata.name, ()),
        )
        for queue in sorted(view.queues, key=lambda queue: queue.metadata.name)
        if queue.metadata.name not in states
    ]
    return QueuesReport(
        at=now,
        total=dict(zip(RESOURCE_WORDS, session.ledger.total, strict=True)),
        queues=tuple(rows),
        reserved_for=plan.reserved_for,
        incomplete=incomplete,
    )


def _conditions(view: View, plan: Plan) -> dict[str, tuple[Condition, ...]]:
    """Give the conditions that hold of each queue, by the functions that write them into its status."""
    parents = {one.metadata.name: one.spec.parent_queue for one in view.reading.objects.queues}
    known = {queue.name for queue in view.snapshot.queues}
    odd = queue_conditions.unreadable(view.problems)
    short = queue_conditions.shortages(plan, view.snapshot)
    shares = {share.queue: share for share in plan.shares}
    found = {}
    for queue in view.queues:
        name = queue.metadata.name
        invalid = Condition(type=queue_conditions.INVALID, reason="NotReadable", message=odd.get(name, ""))
        over = queue_conditions.over_quota(shares[name]) if name in shares else None
        held = (
            invalid if name in odd else None,
            queue_conditions.of_place(name, parents, known),
            over,
            short.get(name),
        )
        found[name] = tuple(one for one in held if one is not None)
    return found


def _tree(states: Mapping[str, QueueState]) -> Iterator[QueueState]:
    """Give parents before their children, siblings by name."""
    open_ = sorted((state for state in states.values() if state.parent is None), key=_by_name, reverse=True)
    while open_:
        state = open_.pop()
        yield state
        open_ += sorted(state.children, key=_by_name, reverse=True)


def _by_name(state: QueueState) -> str:
    return state.name


def _row(state: QueueState, after: Share, conditions: tuple[Condition, ...]) -> QueueRow:
    return QueueRow(
        queue=state.name,
        parent=state.spec.parent,
        depth=len(state.path) - 1,
        priority=state.spec.priority,
        amounts=tuple(
            Amounts(
                resource=RESOURCE_WORDS[r],
                quota=state.deserved[r],
                worth=state.quota[r],
                limit=state.limit[r],
                weight_milli=state.weight[r],
                fair_share=state.fair_share[r],
                allocated=state.allocated[r],
                non_preemptible=state.allocated_np[r],
                requested=state.requested[r],
                shortage=after.shortage[r],
            )
            for r in RESOURCES
        ),
        models=tuple(_models(state)),
        conditions=conditions,
    )


def _models(state: QueueState) -> Iterator[ModelRow]:
    for model, quota in state.spec.models:
        held = state.by_model[model]
        yield ModelRow(
            model=model,
            quota=quota.deserved,
            limit=quota.limit,
            allocated=held[0],
            non_preemptible=held[1],
        )


def amount_words(amount: int, resource: str) -> str:
    """Write an amount for people; `unlimited` for no bound."""
    if amount == UNLIMITED:
        return "unlimited"
    return written(amount, RESOURCE_WORDS.index(resource))
