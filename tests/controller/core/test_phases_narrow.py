"""Narrow containment: what keeps a node open, who is evicted from it, and when it is cordoned all the same."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from checks.finding import Effect
from controller.guards import why_not_evict
from controller.incident import name_of
from controller.steps import Evict, Quarantine
from controller.survey import survey
from controller.view import Fleet
from kube.policy import BudgetPolicy, Mode, Rung
from kube.remediation import CANCEL, Phase
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.open_node import EVICTS, SICK, WAITS, degraded, narrow, narrow_policy, work
from tests.controller.core.stage import decide

OUT = make.reset_finding()
IDLE = degraded()
HOLDER, NEIGHBOUR = work("holder"), work("neighbour")
BUSY = {SICK: [HOLDER], "GPU-5": [NEIGHBOUR]}
FREE = {"GPU-5": [NEIGHBOUR]}
STALE = {"observed_at": NOW - timedelta(minutes=6)}
UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
NO_ROOM = {"others": [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")]}
HALF = [make.node(f"ill-{number}", conditions={XID: ("True", SEEN)}) for number in range(4)]
BURST = {
    "others": [*HALF, *make.idle_nodes(5)],
    "other_healths": [make.health(node, [make.finding()]) for node in HALF],
}


def dry(fleet: Fleet) -> tuple[Phase, str, list[str]]:
    """Give phase, hold, and the pods that are evicted."""
    found = decide(fleet)
    return found.phase, found.held_by, [step.name for step in found.steps if isinstance(step, Evict)]


@pytest.mark.parametrize(
    ("finding", "given", "expected"),
    [
        pytest.param(
            IDLE, {"cards": BUSY}, (Phase.WAITING, "", []), id="degraded and busy: nobody is evicted"
        ),
        pytest.param(
            degraded(Effect.NO_MULTI_GPU, urgency="now"),
            {"cards": BUSY},
            (Phase.WAITING, "", []),
            id="degraded and urgent: nobody either",
        ),
        pytest.param(
            IDLE,
            {"cards": FREE},
            (Phase.QUARANTINED, "", []),
            id="degraded and idle: the cordon for its repair",
        ),
        pytest.param(
            make.reset_finding(urgency="when-idle"),
            {"cards": BUSY, "withheld": [SICK]},
            (Phase.WAITING, "", []),
            id="out when idle: running work ends by itself",
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "withheld": [SICK], "drain": EVICTS},
            (Phase.WAITING, "", ["holder"]),
            id="out: its pod goes, and no other",
        ),
        pytest.param(
            OUT,
            {
                "cards": {SICK: [HOLDER, work("second")], "GPU-5": [NEIGHBOUR]},
                "withheld": [SICK],
                "drain": EVICTS,
            },
            (Phase.WAITING, "", ["holder", "second"]),
            id="all that have it go, as on a card of MIG or of replicas",
        ),
        pytest.param(
            OUT,
            {"cards": FREE, "withheld": [SICK]},
            (Phase.QUARANTINED, "", []),
            id="out and free: the cordon for its repair",
        ),
        pytest.param(
            IDLE, {"unknown": [SICK]}, (Phase.WAITING, "", []), id="nobody says who has it: it is not idle"
        ),
        pytest.param(
            IDLE,
            {"cards": FREE, "pods": [work("fresh")]},
            (Phase.WAITING, "", []),
            id="a pod whose card is not known yet may have it",
        ),
        pytest.param(
            OUT,
            {"cards": FREE, "pods": [work("fresh")], "withheld": [SICK]},
            (Phase.QUARANTINED, "", []),
            id="but not a card that kubelet gives to nobody",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "pods_synced": False},
            (Phase.WAITING, "", []),
            id="the pods are not known yet",
        ),
        pytest.param(
            IDLE, {"cards": FREE, "pods_synced": False}, (Phase.WAITING, "", []), id="nor that there is none"
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "withheld": []},
            (Phase.QUARANTINED, "", []),
            id="kubelet offers it again: the cordon",
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "unknown": [SICK]},
            (Phase.QUARANTINED, "", []),
            id="nobody knows any more: the cordon",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "evidence": [make.finding(index=1), IDLE]},
            (Phase.QUARANTINED, "", []),
            id="something worse came",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "pods": [work("theirs", scheduler="volcano")]},
            (Phase.QUARANTINED, "", []),
            id="another scheduler came",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "policy": make.policy()},
            (Phase.QUARANTINED, "", []),
            id="the policy says cordon by now",
        ),
        pytest.param(
            degraded(urgency="person", action="CONTACT_SUPPORT"),
            {"cards": BUSY},
            (Phase.ESCALATED, "", []),
            id="degraded and for a person",
        ),
        pytest.param(
            make.person_finding(),
            {"cards": BUSY, "withheld": [SICK]},
            (Phase.ESCALATED, "", []),
            id="out and for a person: its pods are left alone",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "policy": narrow_policy(mode=Mode.QUARANTINE)},
            (Phase.ESCALATED, "", []),
            id="mode Quarantine: a person's turn",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "condition": "False", "reported": []},
            (Phase.CLEARED, "", []),
            id="the fault went away",
        ),
        pytest.param(
            OUT,
            {
                "cards": FREE,
                "condition": "False",
                "reported": [],
                "drain": msgspec.structs.replace(EVICTS, evicted=1),
            },
            (Phase.REVALIDATING, "", []),
            id="it went away after a pod was evicted for it",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "annotations": {CANCEL: "now"}},
            (Phase.CANCELLED, "", []),
            id="a person cancels",
        ),
        pytest.param(
            IDLE,
            {"cards": BUSY, "node": {"unschedulable": True, "conditions": {XID: "True"}}},
            (Phase.WAITING, "", []),
            id="a person's cordon changes nothing",
        ),
        pytest.param(
            IDLE,
            {"cards": FREE, **NO_ROOM},
            (Phase.WAITING, "budget", []),
            id="no room for the cordon: it works on",
        ),
        pytest.param(
            IDLE, {"cards": FREE, **BURST}, (Phase.WAITING, "breaker", []), id="the breaker holds the cordon"
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "withheld": [SICK], "drain": EVICTS, **BURST},
            (Phase.WAITING, "breaker", []),
            id="and evictions",
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "withheld": [SICK], "drain": EVICTS, **NO_ROOM},
            (Phase.WAITING, "budget", []),
            id="no drain at the limit either",
        ),
        pytest.param(
            IDLE,
            {"cards": FREE, "policy": narrow_policy(budget=BudgetPolicy(max_repairs_in_flight=0))},
            (Phase.WAITING, "budget", []),
            id="no cordon before its repair may follow",
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "withheld": [SICK], "drain": msgspec.structs.replace(EVICTS, deadline=NOW)},
            (Phase.ESCALATED, "", []),
            id="the drain's deadline: a person, never force",
        ),
        pytest.param(
            OUT,
            {"cards": {SICK: [work("holder", owner=None)]}, "withheld": [SICK], "drain": EVICTS},
            (Phase.WAITING, "", []),
            id="a pod that nothing would start again is not evicted",
        ),
    ],
)
def test_while_it_waits(finding: Any, given: dict[str, Any], expected: tuple[Phase, str, list[str]]) -> None:
    """Each plan asks the same again."""
    evidence = given.pop("evidence", [finding])
    first = {"drain": WAITS, "message": "x", **given}
    fleet = narrow(Phase.WAITING, evidence, **first)
    found = decide(fleet)
    held = fleet.remediations[name_of("uid-gpu-1", evidence[0])]
    if found.phase is Phase.WAITING and not found.effects and not found.held_by:
        # What is saved first is acted upon in the next plan.
        again = msgspec.structs.replace(held, status=found.status)
        fleet = msgspec.structs.replace(fleet, remediations={again.metadata.name: again})
    assert dry(fleet) == expected


def test_the_limit_pages_and_goes_on_waiting() -> None:
    """Nothing was taken from the node, so nobody has to give it back: a page, and the next limit."""
    over = msgspec.structs.replace(WAITS, deadline=NOW)
    found = decide(narrow(Phase.WAITING, [IDLE], cards=BUSY, drain=over))
    assert found.phase is Phase.WAITING
    (row,) = found.status.notifications
    assert row.summary == (
        "gpu-1: Xid63RowRemapPending on GPU 3 at 0000:03:00: still not idle at 2026-03-01T12:00:00Z: "
        "jobs/holder. It is repaired once it is"
    )
    assert found.status.drain is not None
    assert found.status.drain.deadline == NOW + timedelta(hours=24)


def test_the_words_of_waiting_say_for_what_and_until_when() -> None:
    """They are what `status` shows, and do not change while nothing does."""
    waits = decide(narrow(Phase.SUSPECTED, [IDLE], cards=BUSY))
    assert waits.message == (
        "Xid63RowRemapPending on GPU 3 at 0000:03:00: the node stays open until GPU-3 is idle, "
        "with a page at 2026-03-02T12:00:00Z"
    )
    assert waits.status.notifications == ()
    evicts = decide(narrow(Phase.SUSPECTED, [OUT], cards=BUSY, withheld=[SICK]))
    assert evicts.message == (
        "Xid95UncontainedEcc on GPU 3 at 0000:03:00: the node stays open, only the pods on GPU-3 are evicted, "
        "until 2026-03-01T12:30:00Z at the latest"
    )
    assert len(evicts.status.notifications) == 1


def test_why_a_node_is_cordoned_all_the_same_is_said() -> None:
    """The reason stands in the incident and in the page."""
    theirs = work("theirs", scheduler="volcano")
    found = decide(narrow(Phase.SUSPECTED, [IDLE], pods=[theirs]))
    assert found.message.endswith(
        "(jobs/theirs of volcano holds GPUs, and only nodemend-scheduler reads what a fault leaves)"
    )
    assert "jobs/theirs of volcano" in found.status.notifications[0].summary


def test_a_hold_does_not_count_against_the_deadline() -> None:
    """What was held for an hour waits an hour longer."""
    hour = timedelta(hours=1)
    found = decide(
        narrow(Phase.WAITING, [IDLE], cards=BUSY, drain=WAITS, held_by="policy", held_since=NOW - hour)
    )
    assert found.status.drain is not None
    assert found.status.drain.deadline == WAITS.deadline + hour


def test_a_node_left_open_to_a_person_is_cordoned_once_that_is_not_enough() -> None:
    """It stays with the person; a page says what became of it."""
    fleet = narrow(Phase.ESCALATED, [make.person_finding()], cards=BUSY, withheld=[SICK])
    assert decide(fleet).steps == ()
    fleet = narrow(Phase.ESCALATED, [make.person_finding()], cards=BUSY)
    found = decide(fleet)
    assert (found.phase, found.status.before is None, len(found.status.notifications)) == (
        Phase.ESCALATED,
        False,
        1,
    )
    name = next(iter(fleet.remediations))
    saved = msgspec.structs.replace(fleet.remediations[name], status=found.status)
    again = decide(msgspec.structs.replace(fleet, remediations={name: saved}))
    assert [type(step) for step in again.steps] == [Quarantine]


def test_an_incident_left_open_to_a_person_takes_no_place_in_the_budget() -> None:
    """Nothing is out of service."""
    fleet = narrow(Phase.ESCALATED, [make.person_finding()], withheld=[SICK])
    pool = survey(fleet, NOW).pool_on("gpu-1")
    assert pool is not None
    assert pool.out == set()


def guarded(phase: Phase, **given: Any) -> str | None:
    fleet = narrow(
        phase, [given.pop("finding", OUT)], drain=EVICTS, **{"cards": BUSY, "withheld": [SICK], **given}
    )
    return why_not_evict(fleet, next(iter(fleet.remediations.values())), NOW)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        pytest.param({}, None, id="nothing changed"),
        pytest.param({"withheld": []}, "cordoned first", id="kubelet offers it again"),
        pytest.param({"finding": IDLE}, "no GPU is out", id="it is degraded only"),
        pytest.param(
            {"finding": make.reset_finding(index=5), "withheld": ["GPU-5"]},
            "GPU-3 is not out any more",
            id="another GPU is sick by now",
        ),
        pytest.param({"condition": "Unknown"}, "without proof", id="Unknown"),
        pytest.param({"health": STALE}, "last confirmed", id="a stale report"),
        pytest.param({"policy": narrow_policy(paused=True)}, "paused", id="paused"),
        pytest.param({"policy": make.policy()}, "contains by cordon", id="the policy says cordon by now"),
        pytest.param({"annotations": {CANCEL: "now"}}, "cancelled", id="a person cancelled"),
    ],
)
def test_evictions_are_asked_for_once_more(given: dict[str, Any], word: str | None) -> None:
    """Right before the request, on what was read that moment."""
    why = guarded(Phase.WAITING, **given)
    assert why is None if word is None else word in (why or "")


def test_no_pod_is_evicted_from_an_open_node_in_any_other_phase() -> None:
    """A drain needs the cordon."""
    assert "cordon" in (guarded(Phase.DRAINING) or "")


def test_a_repair_of_the_whole_node_waits_for_the_sick_gpu_first() -> None:
    """Then it is cordoned, and all of it is drained."""
    reboots = narrow_policy(ladder=(Rung(repair="reboot"),))
    assert (
        decide(narrow(Phase.WAITING, [IDLE], cards=BUSY, policy=reboots, drain=WAITS)).phase is Phase.WAITING
    )
    assert (
        decide(narrow(Phase.WAITING, [IDLE], cards=FREE, policy=reboots, drain=WAITS)).phase
        is Phase.QUARANTINED
    )
