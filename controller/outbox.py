"""Outbox: the messages that an incident or a breaker owes its receivers, as rows in persisted status. Pure.

At least once, in order for each receiver, always under the same id. A `resolve` is never owed to a receiver that accepted
nothing before it (prometheus/alertmanager#4108). A row that ran out of tries is dead: it stays, with its error, for people
to see. The shell sends what `due` gives and reports each try as a Delivery; `settle` writes it down.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from controller.view import Delivery
from kube.remediation import Notification

OPEN = "open"
UPDATE = "update"
RESOLVE = "resolve"

ROWS_LIMIT = 40
_TEXT = 1024
_NEVER_OPENED = "not sent: the receiver never accepted anything of this incident"
_NO_SINK = "not sent: the controller's configuration has no sink of this name"

Schedules = Mapping[str, Sequence[timedelta]]
"""For each configured sink the waits before its tries; their number bounds the tries."""


def is_waiting(row: Notification) -> bool:
    return row.sent_at is None and not row.dead


def page(
    rows: tuple[Notification, ...],
    owner: str,
    summary: str,
    sinks: Iterable[str],
    schedules: Schedules,
    now: datetime,
) -> tuple[Notification, ...]:
    """Owe every sink a message: `open` where none was owed yet or the last one died, `update` afterwards."""
    new = []
    for sink in sinks:
        mine = _of(rows, owner, sink)
        opened = any(row.transition == OPEN and not row.dead for row in mine)
        accepted = any(row.sent_at is not None for row in mine)
        new.append((sink, UPDATE if opened or accepted else OPEN))
    return _with(rows, owner, summary, new, schedules, now)


def resolve(
    rows: tuple[Notification, ...], owner: str, summary: str, schedules: Schedules, now: datetime
) -> tuple[Notification, ...]:
    """Owe a `resolve` to every sink that accepted something, or is still owed its `open`."""
    new = []
    for sink in dict.fromkeys(row.sink for row in rows):
        mine = _of(rows, owner, sink)
        known = any(row.sent_at is not None or is_waiting(row) for row in mine)
        resolved = any(row.transition == RESOLVE for row in mine)
        if known and not resolved:
            new.append((sink, RESOLVE))
    return _with(rows, owner, summary, new, schedules, now)


def was_told(rows: Iterable[Notification], owner: str) -> bool:
    """Tell whether anything was ever owed to anybody about this owner."""
    return any(_owner_of(row) == owner for row in rows)


def due(rows: Iterable[Notification], now: datetime) -> tuple[Notification, ...]:
    """Give what to send now: for each sink its oldest waiting row, if its time has come."""
    return tuple(row for row in _heads(rows) if row.next_try is None or row.next_try <= now)


def next_due(rows: Iterable[Notification], now: datetime) -> datetime | None:
    """Say when the next row falls due that is not due yet."""
    times = [row.next_try for row in _heads(rows) if row.next_try is not None and row.next_try > now]
    return min(times, default=None)


def settle(
    rows: tuple[Notification, ...], deliveries: Mapping[str, Delivery], schedules: Schedules
) -> tuple[Notification, ...]:
    """Write down what became of the tries, bury what cannot be sent any more, and open anew where the open died.

    A Delivery counts once: only the one of the row's next attempt.
    """
    if not any(is_waiting(row) for row in rows):
        return rows
    return _turned([_settled(row, deliveries.get(row.id), schedules.get(row.sink)) for row in rows])


def _settled(row: Notification, delivery: Delivery | None, waits: Sequence[timedelta] | None) -> Notification:
    if not is_waiting(row):
        return row
    if waits is None:
        return msgspec.structs.replace(row, dead=True, next_try=None, error=_NO_SINK)
    if delivery is None or delivery.attempt != row.attempts + 1:
        return row
    if not delivery.error:
        return msgspec.structs.replace(
            row, attempts=delivery.attempt, sent_at=delivery.at, next_try=None, error=""
        )
    last = delivery.gone or delivery.attempt >= len(waits)
    next_try = None if last else delivery.at + waits[delivery.attempt]
    if next_try is not None and delivery.not_before is not None:
        next_try = max(next_try, delivery.not_before)
    return msgspec.structs.replace(
        row,
        attempts=delivery.attempt,
        dead=last,
        next_try=next_try,
        error=delivery.error[:_TEXT],
    )


def _turned(rows: Sequence[Notification]) -> tuple[Notification, ...]:
    """Look at each receiver that has nothing before a waiting row, neither accepted nor on its way.

    To it an `update` is the first that it hears, so it opens; a `resolve` is of something it never heard of, and is buried.
    """
    known: set[tuple[str, str]] = set()
    kept = []
    for row in rows:
        receiver = (_owner_of(row), row.sink)
        if is_waiting(row) and receiver not in known:
            if row.transition == RESOLVE:
                row = msgspec.structs.replace(row, dead=True, next_try=None, error=_NEVER_OPENED)
            elif row.transition == UPDATE:
                row = msgspec.structs.replace(row, transition=OPEN)
        if row.sent_at is not None or is_waiting(row):
            known.add(receiver)
        kept.append(row)
    return tuple(kept)


def _with(
    rows: tuple[Notification, ...],
    owner: str,
    summary: str,
    new: Sequence[tuple[str, str]],
    schedules: Schedules,
    now: datetime,
) -> tuple[Notification, ...]:
    if not new:
        return rows
    sequence = 1 + max((row.sequence for row in rows), default=0)
    added = []
    for sink, transition in new:
        waits = schedules.get(sink)
        row = Notification(
            id=f"{owner}-{sequence}-{sink}",
            sink=sink,
            transition=transition,
            sequence=sequence,
            summary=summary[:_TEXT],
            created_at=now,
        )
        if waits is None:
            row = msgspec.structs.replace(row, dead=True, error=_NO_SINK)
        elif waits:
            row = msgspec.structs.replace(row, next_try=now + waits[0])
        added.append(row)
    return _compacted((*rows, *added))


def _of(rows: Iterable[Notification], owner: str, sink: str) -> list[Notification]:
    return [row for row in rows if row.sink == sink and _owner_of(row) == owner]


def _owner_of(row: Notification) -> str:
    return row.id.removesuffix(f"-{row.sequence}-{row.sink}")


def _compacted(rows: tuple[Notification, ...]) -> tuple[Notification, ...]:
    """Keep at most ROWS_LIMIT rows: finished ones go first, oldest first, but never the only trace of an acceptance.

    Without that trace its `resolve` would never be owed. Where nothing but waiting rows is left, the oldest waiting updates
    are given up: the newest say what counts now. Only breakers of many pools at once can still be more.
    """
    kept = list(rows)
    ended = {(_owner_of(row), row.sink) for row in rows if row.transition == RESOLVE and not is_waiting(row)}
    accepted = {(_owner_of(row), row.sink): row.id for row in rows if row.sent_at is not None}
    traces = {id_ for receiver, id_ in accepted.items() if receiver not in ended}
    for row in rows:
        if len(kept) > ROWS_LIMIT and not is_waiting(row) and row.id not in traces:
            kept.remove(row)
    for row in rows:
        if len(kept) > ROWS_LIMIT and is_waiting(row) and row.transition == UPDATE:
            kept.remove(row)
    return tuple(kept)


def _heads(rows: Iterable[Notification]) -> list[Notification]:
    heads: dict[str, Notification] = {}
    for row in rows:
        if is_waiting(row):
            heads.setdefault(row.sink, row)
    return list(heads.values())
