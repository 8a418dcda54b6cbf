"""Incidents are named by their evidence, latch it, and stay small."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.assess import key
from controller.incident import (
    ATTEMPTS_LIMIT,
    EVIDENCE_LIMIT,
    TIMELINE_LIMIT,
    BadMark,
    Mark,
    dealt_with,
    holds,
    latched,
    name_of,
    next_number,
    occurrence_of,
    read_mark,
    running,
    settle_time,
    told,
    with_attempt,
    with_evidence,
    write_mark,
)
from kube.remediation import QUARANTINE, Attempt, Phase, RemediationStatus, TimelineEntry
from tests import build as make
from tests.build import NOW, SEEN

LOST = make.finding()


def test_the_name_follows_from_the_evidence_alone() -> None:
    """Two leaders name the same incident alike; it fits into a taint's value and a Job's name."""
    name = name_of("uid-gpu-1", LOST)
    assert name == name_of("uid-gpu-1", make.finding(count=7, last_seen=NOW))
    assert len(name) <= 20
    assert name.startswith("inc-")
    others = {
        name_of("uid-gpu-2", LOST),
        name_of("uid-gpu-1", make.finding(index=4)),
        name_of("uid-gpu-1", make.finding(first_seen=NOW)),
        name_of("uid-gpu-1", make.finding(boot_id="boot-2")),
        name_of("uid-gpu-1", LOST, 1),
    }
    assert len(others | {name}) == 6


@given(st.booleans(), st.booleans(), st.booleans())
def test_the_mark_is_read_as_it_was_written(unschedulable: bool, cordoned: bool, tainted: bool) -> None:
    """The recipe of the restore survives on the Node itself."""
    recipe = msgspec.structs.replace(
        make.before(unschedulable=unschedulable, tainted=tainted), cordoned=cordoned
    )
    node = make.node(annotations={QUARANTINE: write_mark("inc-1", "uid-gpu-1", recipe)})
    assert read_mark(node) == Mark(
        incident="inc-1",
        node_uid="uid-gpu-1",
        unschedulable_before=unschedulable,
        cordoned=cordoned,
        tainted=tainted,
        at=SEEN,
    )
    assert holds(node, "inc-1")
    assert not holds(node, "inc-2")


@pytest.mark.parametrize("text", ["", "{}", "yes", '{"incident": 3}', '["inc-1"]'])
def test_a_mark_that_somebody_edited_is_said_to_be_unreadable(text: str) -> None:
    """It is neither taken for none nor for another's."""
    assert isinstance(read_mark(make.node(annotations={QUARANTINE: text})), BadMark)


def test_a_mark_for_the_node_of_before_is_not_held() -> None:
    """A Node restored from a copy carries a mark of another UID."""
    node = make.node(annotations={QUARANTINE: write_mark("inc-1", "uid-of-before", make.before())})
    assert not holds(node, "inc-1")


def test_further_evidence_is_attached_once() -> None:
    """The same fault seen again changes nothing, so that a counting fault causes no writes."""
    status = RemediationStatus(evidence=latched([LOST]))
    same, none = with_evidence(status, [make.finding(count=9, last_seen=NOW)])
    more, attached = with_evidence(status, [LOST, make.idle_finding(index=1)])
    assert (same, none) == (status, ())
    assert [f.reason for f in attached] == ["Xid63RowRemapPending"]
    assert [f.reason for f in more.evidence] == ["Xid79FallenOffBus", "Xid63RowRemapPending"]


def test_evidence_is_bounded_and_keeps_the_worst() -> None:
    """At most twenty findings are latched; a full list comes to rest."""
    many = [make.idle_finding(index=number) for number in range(40)]
    status, _ = with_evidence(RemediationStatus(evidence=latched(many)), [LOST])
    assert len(status.evidence) == EVIDENCE_LIMIT
    assert status.evidence[0].reason == LOST.reason
    again, attached = with_evidence(status, [LOST, *many])
    assert (again, attached) == (status, ())


def test_latched_evidence_keeps_its_newest_raw_lines() -> None:
    """Raw lines are cut in number and length."""
    noisy = msgspec.structs.replace(LOST, evidence=tuple(str(n) * 1000 for n in range(9)))
    (kept,) = latched([noisy])
    assert [(line[0], len(line)) for line in kept.evidence] == [("6", 512), ("7", 512), ("8", 512)]


@pytest.mark.parametrize(
    ("phase", "known"),
    [
        pytest.param(Phase.CANCELLED, True, id="what a person cancelled"),
        pytest.param(Phase.RETURNED, True, id="what was repaired"),
        pytest.param(Phase.SUPERSEDED, True, id="what belonged to a closed incident of this Node"),
        pytest.param(Phase.CLEARED, False, id="what went away by itself may open another"),
        pytest.param(Phase.ESCALATED, False, id="what is still open is not dealt with"),
    ],
)
def test_the_same_evidence_opens_nothing_twice(phase: Phase, known: bool) -> None:
    """Closed incidents remember; Cleared ones do not count."""
    closed = make.remediation(phase=phase, closed_at=NOW)
    again = make.finding(count=100, last_seen=NOW)
    assert (dealt_with([closed], "uid-gpu-1", again) is not None) == known
    assert dealt_with([closed], "uid-gpu-1", make.finding(first_seen=NOW)) is None
    assert dealt_with([closed], "uid-of-another", again) is None


def test_a_cancel_that_could_not_hold_all_evidence_covers_what_was_seen_before_it() -> None:
    """A person who stopped forty faults is not asked about the twenty that were left out."""
    many = [make.finding(index=number) for number in range(40)]
    closed = make.remediation(evidence=many, phase=Phase.CANCELLED, closed_at=NOW)
    assert all(dealt_with([closed], "uid-gpu-1", finding) for finding in many)
    assert dealt_with([closed], "uid-gpu-1", make.finding(first_seen=NOW + timedelta(seconds=1))) is None


def test_an_incident_that_was_cleared_may_open_again_under_another_name() -> None:
    """The same finding that comes back after it was gone is worth an incident, once for each time."""
    first = make.remediation(phase=Phase.CLEARED, closed_at=NOW)
    second = make.remediation(phase=Phase.CLEARED, closed_at=NOW, name=name_of("uid-gpu-1", LOST, 1))
    assert occurrence_of([], "uid-gpu-1", LOST) == 0
    assert occurrence_of([first], "uid-gpu-1", LOST) == 1
    assert occurrence_of([first, second], "uid-gpu-1", LOST) == 2


def test_a_node_that_flaps_is_watched_longer() -> None:
    """Three Cleared within an hour make the next one wait, so that a flapping fault does not flood the API server."""
    cleared = [
        make.remediation(phase=Phase.CLEARED, closed_at=NOW - timedelta(minutes=m), name=f"inc-{m}")
        for m in (1, 20, 59, 200)
    ]
    assert settle_time(cleared[1:], NOW) == timedelta(0)
    assert settle_time(cleared, NOW) == timedelta(minutes=10)


def test_the_story_is_kept_short_by_leaving_out_its_middle() -> None:
    """Its beginning and its end stay, and the gap is said."""
    timeline: tuple[TimelineEntry, ...] = ()
    for number in range(200):
        timeline = told(timeline, NOW + timedelta(seconds=number), Phase.DRAINING, f"line {number}")
    assert len(timeline) == TIMELINE_LIMIT
    assert [entry.message for entry in timeline[:10]] == [f"line {n}" for n in range(10)]
    assert timeline[10].message == "(lines before this one are left out)"
    assert timeline[-1].message == "line 199"


def attempt(number: int, kind: str = "reboot", **fields: Any) -> Attempt:
    base = Attempt(
        number=number, kind=kind, job=f"{kind}-{number}", started_at=NOW, deadline=NOW + timedelta(minutes=45)
    )
    return msgspec.structs.replace(base, **fields)


def test_attempts_are_numbered_by_kind_and_replaced_in_place() -> None:
    """Repairs and revalidations count apart; a full list lets go of old revalidations only."""
    status = RemediationStatus(attempts=(attempt(1), attempt(1, "revalidate")))
    assert next_number(status, validation=False) == 2
    assert next_number(status, validation=True) == 2
    ended = attempt(1, result="Failed")
    assert with_attempt(status, ended).attempts == (ended, attempt(1, "revalidate"))
    for number in range(2, 80):
        status = with_attempt(status, attempt(number, "revalidate"))
    assert len(status.attempts) == ATTEMPTS_LIMIT
    assert status.attempts[0] == attempt(1)
    assert next_number(status, validation=True) == 80


@pytest.mark.parametrize(
    ("phase", "fields", "acting"),
    [
        pytest.param(Phase.REPAIRING, {}, True, id="written down"),
        pytest.param(Phase.REPAIRING, {"submitted_at": NOW}, True, id="submitted"),
        pytest.param(Phase.REPAIRING, {"result": "Failed"}, False, id="ended"),
        pytest.param(Phase.CANCELLED, {}, False, id="cancelled before it was submitted"),
        pytest.param(Phase.CANCELLED, {"submitted_at": NOW}, True, id="cancelled while its Job runs"),
        pytest.param(
            Phase.CANCELLED,
            {"submitted_at": NOW, "deadline": NOW},
            False,
            id="cancelled, and its time is over",
        ),
    ],
)
def test_a_repair_acts_until_it_is_known_to_have_ended(
    phase: Phase, fields: dict[str, Any], acting: bool
) -> None:
    """A Job that nobody can call back counts as in flight also after its incident was closed over it."""
    one = make.remediation(phase=phase, attempts=(attempt(1, **fields),))
    assert (running(one, NOW) is not None) == acting


def test_keys_are_whole() -> None:
    """Evidence is told apart by condition, reason, part, first-seen time and boot."""
    assert key(LOST) == ("GpuXidError", "Xid79FallenOffBus", "gpu/0000:03:00", SEEN, "boot-1")
