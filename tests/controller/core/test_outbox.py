"""Messages are owed in order, sent at least once, and never resolved to one who heard nothing."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.outbox import ROWS_LIMIT, due, is_waiting, next_due, page, resolve, settle
from controller.view import Delivery
from kube.remediation import Notification
from tests.build import NOW

WAITS = {
    "pager": (timedelta(0), timedelta(seconds=5), timedelta(minutes=5)),
    "chat": (timedelta(seconds=30),),
}
Rows = tuple[Notification, ...]


def told(rows: Rows, *lines: str, sinks: Sequence[str] = ("pager",)) -> Rows:
    for line in lines:
        rows = page(rows, "inc-1", line, sinks, WAITS, NOW)
    return rows


def accept(rows: Rows, *ids: str) -> Rows:
    for id_ in ids:
        rows = settle(rows, {id_: Delivery(attempt=1, at=NOW)}, WAITS)
    return rows


def shape(rows: Rows) -> list[tuple[str, str]]:
    return [(row.id, row.transition) for row in rows]


def test_the_first_message_opens_and_later_ones_update() -> None:
    """Ids are stable: incident, sequence, sink."""
    rows = told((), "quarantined", "rebooted", sinks=("pager", "chat"))
    assert shape(rows) == [
        ("inc-1-1-pager", "open"),
        ("inc-1-1-chat", "open"),
        ("inc-1-2-pager", "update"),
        ("inc-1-2-chat", "update"),
    ]


def test_the_schedule_says_when_the_first_try_is() -> None:
    """The first wait of a sink runs from the moment that the message is owed."""
    rows = told((), "x", sinks=("pager", "chat"))
    assert [row.next_try for row in rows] == [NOW, NOW + timedelta(seconds=30)]


def test_a_resolve_goes_to_those_who_heard_or_will_hear() -> None:
    """Not to one whose open died, and not twice."""
    rows = told((), "x", sinks=("pager", "chat"))
    dead = settle(rows, {"inc-1-1-chat": Delivery(attempt=1, at=NOW, error="500")}, WAITS)
    once = resolve(dead, "inc-1", "returned", WAITS, NOW)
    assert shape(once)[2:] == [("inc-1-2-pager", "resolve")]
    assert resolve(once, "inc-1", "returned", WAITS, NOW) == once


def test_nothing_is_resolved_where_nothing_was_owed() -> None:
    """An incident that was never paged ends in silence."""
    assert resolve((), "inc-1", "cleared", WAITS, NOW) == ()


def test_a_resolve_is_buried_where_its_open_died_after_all() -> None:
    """The open was on its way when the incident closed, and then ran out of tries."""
    rows = resolve(told((), "x"), "inc-1", "returned", WAITS, NOW)
    for attempt in (1, 2, 3):
        rows = settle(rows, {"inc-1-1-pager": Delivery(attempt=attempt, at=NOW, error="refused")}, WAITS)
    assert [(row.dead, row.error) for row in rows] == [
        (True, "refused"),
        (True, "not sent: the receiver never accepted anything of this incident"),
    ]


def test_a_message_after_a_dead_open_opens_anew() -> None:
    """The receiver heard nothing yet, so what comes next is news."""
    rows = told((), "x", sinks=("chat",))
    rows = settle(rows, {"inc-1-1-chat": Delivery(attempt=1, at=NOW, error="500")}, WAITS)
    assert shape(told(rows, "escalated", sinks=("chat",)))[-1] == ("inc-1-2-chat", "open")


@pytest.mark.parametrize(
    ("delivery", "attempts", "sent", "dead", "next_in"),
    [
        pytest.param(None, 0, False, False, 0, id="not tried yet"),
        pytest.param(Delivery(attempt=1, at=NOW), 1, True, False, None, id="accepted"),
        pytest.param(
            Delivery(attempt=1, at=NOW, error="500"),
            1,
            False,
            False,
            5,
            id="refused: the schedule's next wait",
        ),
        pytest.param(
            Delivery(attempt=2, at=NOW), 0, False, False, 0, id="the answer of another try does not count"
        ),
    ],
)
def test_each_try_is_written_down_once(
    delivery: Delivery | None, attempts: int, sent: bool, dead: bool, next_in: int | None
) -> None:
    """A Delivery counts for the row's next attempt only."""
    deliveries = {} if delivery is None else {"inc-1-1-pager": delivery}
    (row,) = settle(told((), "x"), deliveries, WAITS)
    expected = None if next_in is None else NOW + timedelta(seconds=next_in)
    assert (row.attempts, row.sent_at is not None, row.dead, row.next_try) == (attempts, sent, dead, expected)
    assert settle((row,), deliveries, WAITS) == (row,)


def test_a_message_dies_after_its_last_try_and_stays_visible() -> None:
    """The number of waits bounds the tries."""
    rows = told((), "x")
    for attempt in (1, 2, 3):
        assert not rows[0].dead
        rows = settle(rows, {"inc-1-1-pager": Delivery(attempt=attempt, at=NOW, error="no route")}, WAITS)
    assert (rows[0].dead, rows[0].attempts, rows[0].error, rows[0].next_try) == (True, 3, "no route", None)


def test_a_sink_that_is_not_configured_is_said() -> None:
    """The row is dead at once, and when the sink is taken out of the configuration later."""
    (row,) = told((), "x", sinks=("gone",))
    assert (row.dead, row.error) == (
        True,
        "not sent: the controller's configuration has no sink of this name",
    )
    (later,) = settle(told((), "x"), {}, {})
    assert later.dead


def test_messages_of_one_sink_go_in_order() -> None:
    """Only the oldest waiting row of each sink is due; a slow sink holds up no other."""
    rows = told((), "a", "b", sinks=("pager", "chat"))
    assert [row.id for row in due(rows, NOW)] == ["inc-1-1-pager"]
    assert next_due(rows, NOW) == NOW + timedelta(seconds=30)
    rows = accept(rows, "inc-1-1-pager")
    assert [row.id for row in due(rows, NOW + timedelta(seconds=30))] == ["inc-1-1-chat", "inc-1-2-pager"]


def test_breakers_of_one_policy_share_an_outbox() -> None:
    """What one tripping opened is not resolved by another."""
    rows = page((), "breaker-a", "tripped", ["pager"], WAITS, NOW)
    rows = accept(rows, "breaker-a-1-pager")
    rows = resolve(rows, "breaker-a", "over", WAITS, NOW)
    rows = page(rows, "breaker-b", "tripped again", ["pager"], WAITS, NOW)
    assert shape(rows) == [
        ("breaker-a-1-pager", "open"),
        ("breaker-a-2-pager", "resolve"),
        ("breaker-b-3-pager", "open"),
    ]


actions = st.lists(st.sampled_from(["page", "resolve", "accept", "refuse"]), max_size=120)


@given(actions)
def test_whatever_happens_the_outbox_stays_small_and_in_order(history: list[str]) -> None:
    """Rows are bounded, sequences grow, ids are never used twice, and no resolve precedes an acceptance."""
    rows: Rows = ()
    used: set[str] = set()
    accepted: list[str] = []
    for number, action in enumerate(history):
        before = {row.id for row in rows}
        if action == "page":
            rows = told(rows, f"line {number}", sinks=("pager", "chat"))
        elif action == "resolve":
            rows = resolve(rows, "inc-1", "over", WAITS, NOW)
        else:
            error = "" if action == "accept" else "500"
            for row in due(rows, NOW + timedelta(hours=1)):
                if row.transition == "resolve" and not error:
                    assert row.sink in accepted
                accepted += [] if error else [row.sink]
                rows = settle(rows, {row.id: Delivery(attempt=row.attempts + 1, at=NOW, error=error)}, WAITS)
        new = {row.id for row in rows} - before
        assert not new & used
        used |= new
        assert len(rows) <= ROWS_LIMIT
        assert [row.sequence for row in rows] == sorted(row.sequence for row in rows)


def test_a_full_outbox_keeps_the_newest() -> None:
    """Nothing sends, and the incident goes on: the oldest waiting updates give way, the open never does."""
    rows = told((), *(f"line {number}" for number in range(100)))
    assert len(rows) == ROWS_LIMIT
    assert rows[0].transition == "open"
    assert rows[-1].summary == "line 99"
    assert all(map(is_waiting, rows))


def test_long_texts_are_cut() -> None:
    """A row's text and error are bounded."""
    (row,) = told((), "x" * 5000)
    (failed,) = settle((row,), {row.id: Delivery(attempt=1, at=NOW, error="y" * 5000)}, WAITS)
    assert (len(row.summary), len(failed.error)) == (1024, 1024)
    assert msgspec.structs.replace(failed, error="", attempts=0, next_try=NOW) == row
