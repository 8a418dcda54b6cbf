"""Queue status: what each holds and asks for, its children, and the conditions that stand. Pure.

What begins or ends is written within a second, numbers every few seconds for each queue, and nothing where nothing differs.
Conditions of types that are not ours stay as they are.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from controller.scheduler.plan import Share
from controller.scheduler.shell import queue_conditions, resource_lists
from controller.scheduler.shell.queue_conditions import Condition
from controller.scheduler.shell.reported import Report
from controller.scheduler.shell.status_writes import Kind, Write
from controller.scheduler.shell.steady_words import limited
from kube import paths
from kube.scheduling import Queue
from kube.timestamps import rfc3339

NEWS_EVERY_S: Final = 1.0
NUMBERS_EVERY_S: Final = 5.0
_CHILDREN: Final = 1000

Raw = dict[str, Any]


class _Seen(msgspec.Struct, frozen=True):
    """What a queue's status was held against; equal ones give the same answer."""

    queue: Queue
    children: tuple[str, ...]
    share: Share | None
    conditions: tuple[Condition, ...]


class QueueStatuses:
    """Remembers when each queue was written, and what was found in order. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._written_at: dict[str, float] = {}
        self._in_order: dict[str, _Seen] = {}

    def writes(
        self, report: Report, queues: Mapping[str, Queue], now: datetime, at: float
    ) -> tuple[list[Write], float | None]:
        """Give the writes that are due, and when others will be; None = never, as far as is known now."""
        shares = {share.queue: share for share in report.plan.shares}
        odd = queue_conditions.unreadable(report.problems)
        known = {queue.name for queue in report.snapshot.queues}
        parents = {name: queue.spec.parent_queue for name, queue in queues.items()}
        children = _children(parents)
        short = queue_conditions.shortages(report.plan, report.snapshot)
        writes: list[Write] = []
        due: list[float] = []
        for name in sorted((known | odd.keys()) & queues.keys()):
            share = shares.get(name)
            found = (
                None if name not in odd else _invalid(odd[name]),
                None if name in odd else queue_conditions.of_place(name, parents, known),
                None if share is None else queue_conditions.over_quota(share),
                short.get(name),
            )
            standing = tuple(one for one in found if one is not None)
            seen = _Seen(queues[name], children.get(name, ()), share, standing)
            if self._in_order.get(name) == seen:
                continue
            self._add(name, seen, now, at, writes, due)
        self._in_order = {name: seen for name, seen in self._in_order.items() if name in queues}
        self._written_at = {name: when for name, when in self._written_at.items() if name in queues}
        return writes, min(due, default=None)

    def _add(
        self, name: str, seen: _Seen, now: datetime, at: float, writes: list[Write], due: list[float]
    ) -> None:
        status = words(seen.queue, seen.children, seen.conditions, now)
        figures = {} if seen.share is None else numbers(seen.queue, seen.share)
        if not status and not figures:
            self._in_order[name] = seen
            return
        every_s = NEWS_EVERY_S if is_news(seen.queue, seen.children, seen.conditions) else NUMBERS_EVERY_S
        next_at = self._written_at.get(name, float("-inf")) + every_s
        if at < next_at:
            due.append(next_at)
            return
        self._written_at[name] = at
        writes.append(_write(seen.queue, {**status, **figures}))


def is_news(queue: Queue, children: tuple[str, ...], standing: tuple[Condition, ...]) -> bool:
    """Tell what is not to wait: a condition that begins or ends, another child. Its words change with the numbers."""
    held = {
        str(raw.get("type", ""))
        for raw in queue.status.conditions
        if raw.get("type") in queue_conditions.TYPES and raw.get("status") == "True"
    }
    return held != {one.type for one in standing} or queue.status.child_queues != children


def words(queue: Queue, children: tuple[str, ...], standing: tuple[Condition, ...], now: datetime) -> Raw:
    """Give what of children and conditions differs from what the queue says."""
    status: Raw = {}
    if queue.status.child_queues != children:
        status["childQueues"] = list(children) or None
    conditions = _merged(queue.status.conditions, standing, now)
    if conditions != list(queue.status.conditions):
        status["conditions"] = conditions
    return status


def numbers(queue: Queue, share: Share) -> Raw:
    """Give what of the amounts differs from what the queue says."""
    held = queue.status
    lists = {
        "allocated": resource_lists.change(held.allocated, resource_lists.of_amounts(share.allocated)),
        "allocatedNonPreemptible": resource_lists.change(
            held.allocated_non_preemptible, resource_lists.of_amounts(share.allocated_non_preemptible)
        ),
        "requested": resource_lists.change(held.requested, resource_lists.of_amounts(share.requested)),
    }
    return {name: patch for name, patch in lists.items() if patch}


def _merged(
    held: tuple[dict[str, object], ...], standing: tuple[Condition, ...], now: datetime
) -> list[dict[str, object]]:
    """Put ours in: those that stand as True, those that stood before as False, in the places that they have."""
    ours = {one.type: one for one in standing}
    merged: list[dict[str, object]] = []
    for raw in held:
        kind = str(raw.get("type", ""))
        if kind not in queue_conditions.TYPES:
            merged.append(raw)
            continue
        merged.append(_renewed(raw, ours.pop(kind, None), now))
    merged += [_new(one, now) for one in standing if one.type in ours]
    return merged


def _renewed(raw: dict[str, object], standing: Condition | None, now: datetime) -> dict[str, object]:
    if standing is None:
        if raw.get("status") == "False":
            return raw
        over = {"status": "False", "reason": "NotSo", "message": "", "lastTransitionTime": rfc3339(now)}
        return {name: value for name, value in {**raw, **over}.items() if value != ""}
    wanted: dict[str, object] = {
        **raw,
        "status": "True",
        "reason": standing.reason,
        "message": limited(standing.message),
    }
    if raw.get("status") != "True":
        wanted["lastTransitionTime"] = rfc3339(now)
    return wanted


def _new(standing: Condition, now: datetime) -> dict[str, object]:
    return {
        "type": standing.type,
        "status": "True",
        "reason": standing.reason,
        "message": limited(standing.message),
        "lastTransitionTime": rfc3339(now),
    }


def _invalid(message: str) -> Condition:
    words = f"{message}; its jobs wait until this is put right"
    return Condition(type=queue_conditions.INVALID, reason="CannotBeRead", message=words)


def _children(parents: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in sorted(parents):
        if parents[name]:
            found.setdefault(parents[name], []).append(name)
    return {name: tuple(below[:_CHILDREN]) for name, below in found.items()}


def _write(queue: Queue, status: Raw) -> Write:
    meta = queue.metadata
    return Write(
        kind=Kind.QUEUE,
        key=meta.name,
        path=paths.queue_status(meta.name),
        body={"metadata": {"resourceVersion": meta.resource_version}, "status": status},
    )
