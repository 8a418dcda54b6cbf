"""Draining: who is evicted, who holds it up, when it is done, and when a person's turn comes."""

from datetime import timedelta
from typing import Any

import pytest

from controller.drain import EVICTIONS_AT_ONCE
from controller.steps import Evict
from controller.view import Eviction
from kube.policy import BudgetPolicy, DrainPolicy, Mode
from kube.remediation import CANCEL, BlockedPod, Phase
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import (
    DEADLINE,
    INCIDENT,
    LOST,
    REBOOT,
    decide,
    drain_record,
    reboot,
    stage,
    validation,
)

IDLE = make.idle_finding()
EVICTING = "running pods are evicted, until 2026-03-01T12:30:00Z at the latest"
SILENT = {"observed_at": NOW - timedelta(minutes=6)}
MANY = [make.pod(f"train-{number:02}") for number in range(25)]
UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
HALF = [make.node(f"ill-{number}", conditions={XID: ("True", SEEN)}) for number in range(4)]
HALF_HEALTHS = [make.health(node, [LOST]) for node in HALF]


@pytest.mark.parametrize(
    ("given", "phase", "held_by", "effects"),
    [
        pytest.param({"pods": [make.pod()]}, Phase.DRAINING, "", ("Evict",), id="a pod is evicted"),
        pytest.param(
            {"pods": MANY},
            Phase.DRAINING,
            "",
            ("Evict",) * EVICTIONS_AT_ONCE,
            id="so many at once and no more",
        ),
        pytest.param(
            {"pods": [make.pod(deleted=NOW)]}, Phase.DRAINING, "", (), id="a pod on its way out is waited for"
        ),
        pytest.param({}, Phase.REPAIRING, "", (), id="an empty node: the repair is written down"),
        pytest.param(
            {"pods_synced": False, "message": "the pods of the node are not known yet"},
            Phase.DRAINING,
            "",
            (),
            id="an empty list that is not complete proves nothing",
        ),
        pytest.param(
            {"pods": [make.pod()], "health": SILENT},
            Phase.DRAINING,
            "",
            ("Evict",),
            id="silence does not stop a drain that began",
        ),
        pytest.param(
            {"health": SILENT}, Phase.DRAINING, "evidence", (), id="but no repair starts on stale evidence"
        ),
        pytest.param(
            {"pods": [make.pod()], "condition": "Unknown"},
            Phase.DRAINING,
            "evidence",
            (),
            id="Unknown stops evictions",
        ),
        pytest.param(
            {"pods": [make.pod()], "health": {"boot_id": "boot-0"}},
            Phase.DRAINING,
            "evidence",
            (),
            id="a report of another boot stops evictions",
        ),
        pytest.param(
            {"pods": [make.pod()], "condition": "False", "reported": []},
            Phase.REVALIDATING,
            "",
            (),
            id="a newer False stops evictions (planetlabs/draino#50)",
        ),
        pytest.param(
            {"pods": [make.pod()], "policy": make.policy(paused=True)},
            Phase.DRAINING,
            "policy",
            (),
            id="paused stops evictions",
        ),
        pytest.param(
            {"pods": [make.pod()], "policy": make.policy(mode=Mode.OBSERVE)},
            Phase.DRAINING,
            "mode",
            (),
            id="Observe meanwhile",
        ),
        pytest.param(
            {"pods": [make.pod()], "policy": make.policy(mode=Mode.QUARANTINE)},
            Phase.ESCALATED,
            "",
            (),
            id="Quarantine meanwhile: a person's turn",
        ),
        pytest.param(
            {"pods": [make.pod()], "policies": []}, Phase.DRAINING, "policy", (), id="the policy is gone"
        ),
        pytest.param(
            {"pods": [make.pod()], "node": {"labels": UPGRADE, "conditions": {XID: "True"}}},
            Phase.DRAINING,
            "owner",
            (),
            id="a driver upgrade began",
        ),
        pytest.param(
            {"pods": [make.pod()], "others": [*HALF, *make.idle_nodes(5)], "other_healths": HALF_HEALTHS},
            Phase.DRAINING,
            "breaker",
            (),
            id="the breaker stops the evictions of its burst",
        ),
        pytest.param(
            {
                "pods": [make.pod()],
                "others": [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")],
            },
            Phase.DRAINING,
            "",
            ("Evict",),
            id="a budget that filled up meanwhile does not stop a drain that began",
        ),
        pytest.param(
            {"others": [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")]},
            Phase.DRAINING,
            "budget",
            (),
            id="but no repair starts over budget",
        ),
        pytest.param(
            {"policy": make.policy(budget=BudgetPolicy(max_repairs_in_flight=0))},
            Phase.DRAINING,
            "budget",
            (),
            id="no repair where none may be in flight",
        ),
        pytest.param(
            {"node": {"boot_id": "", "conditions": {XID: "True"}}},
            Phase.DRAINING,
            "evidence",
            (),
            id="no repair without a boot id",
        ),
        pytest.param(
            {"pods": [make.pod()], "annotations": {CANCEL: "2026-03-01T12:00:00Z"}},
            Phase.CANCELLED,
            "",
            (),
            id="a person cancels",
        ),
        pytest.param(
            {"pods": [make.pod()], "evidence": [LOST, make.person_finding(index=1)]},
            Phase.ESCALATED,
            "",
            (),
            id="a fault for a person appeared: running work is left alone from here",
        ),
        pytest.param(
            {"pods": [make.pod()], "drain": drain_record(deadline=NOW)},
            Phase.ESCALATED,
            "",
            (),
            id="the deadline: a person, never force",
        ),
        pytest.param(
            {"pods": [make.pod(owner=None)], "drain": drain_record(deadline=NOW)},
            Phase.ESCALATED,
            "",
            (),
            id="the deadline with a pod that nothing would start again",
        ),
        pytest.param(
            {
                "pods": [make.pod()],
                "evidence": [IDLE],
                "drain": drain_record(urgency="when-idle"),
                "message": "x",
            },
            Phase.DRAINING,
            "",
            (),
            id="when idle: nothing is evicted",
        ),
        pytest.param(
            {
                "pods": [make.pod()],
                "evidence": [IDLE],
                "drain": drain_record(urgency="when-idle", deadline=NOW),
            },
            Phase.ESCALATED,
            "",
            (),
            id="when idle, and its limit is over",
        ),
        pytest.param(
            {"evidence": [IDLE], "drain": drain_record(urgency="when-idle")},
            Phase.REPAIRING,
            "",
            (),
            id="when idle, and it is idle",
        ),
    ],
)
def test_draining(given: dict[str, Any], phase: Phase, held_by: str, effects: tuple[str, ...]) -> None:
    """Evictions go on while everything agrees; else the drain holds, ends with a person, or is done."""
    decision = decide(stage(Phase.DRAINING, **{"message": EVICTING, **given}))
    assert (decision.phase, decision.held_by) == (phase, held_by)
    if given.get("message") != "x":
        assert decision.effects == effects


def test_an_eviction_names_the_pod_by_its_uid() -> None:
    """A pod of the same name elsewhere is another pod (kubernetes/kubernetes#138229)."""
    (step,) = decide(stage(Phase.DRAINING, message=EVICTING, pods=[make.pod(uid="uid-7")])).steps
    assert step == Evict(node="gpu-1", incident=INCIDENT, namespace="jobs", name="train-0", uid="uid-7")


def test_the_repair_is_written_down_before_it_is_asked_for() -> None:
    """The attempt names its Job, the boot that it must end, and its deadline; it is not submitted yet."""
    status = decide(stage(Phase.DRAINING)).status
    assert status.attempts == (reboot(started_at=NOW),)
    assert status.drain is not None
    assert status.drain.finished_at == NOW
    assert status.attempts[0].job == REBOOT


def test_a_fault_that_cannot_wait_turns_waiting_into_evicting() -> None:
    """An urgent fault that joins one for an idle node gets its own deadline."""
    waiting = stage(
        Phase.DRAINING,
        evidence=[IDLE],
        reported=[IDLE, make.finding(index=1)],
        drain=drain_record(urgency="when-idle"),
        pods=[make.pod()],
    )
    status = decide(waiting).status
    assert status.drain == drain_record(started_at=NOW, deadline=NOW + timedelta(minutes=30), urgency="now")
    assert [f.reason for f in status.evidence] == ["Xid79FallenOffBus", "Xid63RowRemapPending"]


REFUSED = Eviction(
    incident=INCIDENT, at=NOW - timedelta(seconds=4), refused="its PodDisruptionBudget allows none", tries=1
)


def test_a_refused_eviction_pauses_and_is_shown() -> None:
    """Who holds the drain up stands in the record, and the next try waits."""
    pod = make.pod()
    decision = decide(stage(Phase.DRAINING, pods=[pod], evictions={pod.metadata.uid: REFUSED}))
    assert decision.effects == ()
    assert decision.status.drain is not None
    assert decision.status.drain.blocked == (
        BlockedPod(
            namespace="jobs", name="train-0", uid=pod.metadata.uid, why="its PodDisruptionBudget allows none"
        ),
    )
    assert decision.message == (
        "held up by jobs/train-0 (its PodDisruptionBudget allows none), until 2026-03-01T12:30:00Z at the latest"
    )


def test_a_refused_eviction_is_tried_again_after_its_pause() -> None:
    """The pause after the first refusal is five seconds."""
    pod = make.pod()
    fleet = stage(Phase.DRAINING, pods=[pod], evictions={pod.metadata.uid: REFUSED})
    saved = decide(fleet).status
    again = stage(
        Phase.DRAINING,
        pods=[pod],
        evictions={pod.metadata.uid: REFUSED},
        **{f: getattr(saved, f) for f in ("message", "drain", "timeline")},
    )
    assert (decide(again).effects, decide(again).recheck_at) == ((), NOW + timedelta(seconds=1))
    assert decide(again, NOW + timedelta(seconds=1)).effects == ("Evict",)


def test_the_deadline_names_who_held_the_drain_up() -> None:
    """On-call reads the pod and the reason, not just that time ran out."""
    pod = make.pod(owner=None)
    decision = decide(stage(Phase.DRAINING, pods=[pod], drain=drain_record(deadline=NOW)))
    assert (
        "the drain did not end by 2026-03-01T12:00:00Z: jobs/train-0 (nothing would start" in decision.message
    )
    assert decision.status.notifications[-1].transition == "open"


def test_time_in_which_something_else_held_the_drain_does_not_count() -> None:
    """A drain that was held for ten minutes has ten minutes more."""
    held = stage(
        Phase.DRAINING,
        pods=[make.pod()],
        held_by="breaker",
        held_since=NOW - timedelta(minutes=10),
        drain=drain_record(deadline=NOW - timedelta(minutes=1)),
    )
    decision = decide(held)
    assert decision.phase is Phase.DRAINING
    assert decision.status.drain is not None
    assert decision.status.drain.deadline == NOW + timedelta(minutes=9)
    assert decision.status.held_by == ""


def test_a_node_that_filled_again_is_drained_again() -> None:
    """Pods that tolerate everything may arrive while the repair waits for its turn."""
    record = drain_record(finished_at=NOW - timedelta(minutes=5))
    status = decide(stage(Phase.DRAINING, pods=[make.pod()], drain=record)).status
    assert status.drain is not None
    assert (status.drain.finished_at, status.drain.deadline) == (None, DEADLINE + timedelta(minutes=5))


def test_evidence_that_cannot_be_confirmed_ends_with_a_person() -> None:
    """A drained node whose agent stays silent is not held for ever."""
    held = stage(
        Phase.DRAINING,
        health=SILENT,
        held_by="evidence",
        held_since=NOW - timedelta(minutes=30),
        drain=drain_record(finished_at=NOW - timedelta(minutes=30)),
    )
    assert decide(held).phase is Phase.ESCALATED


def test_one_repair_at_a_time_in_a_pool() -> None:
    """The second node waits, drained, until the first is done."""
    other = make.node("gpu-2", conditions={XID: ("True", SEEN - timedelta(hours=1))})
    theirs = make.remediation(
        other,
        phase=Phase.REPAIRING,
        before=make.before(),
        drain=drain_record(),
        opened_at=SEEN - timedelta(hours=1),
        attempts=(reboot(job="reboot-inc-other-1", submitted_at=SEEN),),
    )
    others = [make.quarantined(other, theirs.metadata.name), *make.idle_nodes(28)]
    decision = decide(
        stage(
            Phase.DRAINING,
            others=others,
            other_remediations=[theirs],
            other_healths=[make.health(other, [LOST])],
            policy=make.policy(budget=BudgetPolicy(max_unavailable="5")),
        )
    )
    assert (decision.phase, decision.held_by) == (Phase.DRAINING, "budget")
    assert decision.message == "budget: pool default may have 1 repair(s) in flight and has them"


def test_the_ladder_ends_with_a_person() -> None:
    """A fault that stands after the last repair of the ladder is handed over."""
    failed = reboot(result="Failed", submitted_at=SEEN, finished_at=SEEN)
    decision = decide(stage(Phase.DRAINING, attempts=(failed, validation(result="Failed"))))
    assert decision.phase is Phase.ESCALATED
    assert "1 repair(s) did not help and the ladder has no other" in decision.message


def test_the_policys_own_deadline_counts() -> None:
    """Where a drain record is missing (a Remediation edited by hand), the drain starts anew."""
    policy = make.policy(drain=DrainPolicy(deadline="7m"))
    status = decide(stage(Phase.DRAINING, pods=[make.pod()], drain=None, policy=policy)).status
    assert status.drain is not None
    assert status.drain.deadline == NOW + timedelta(minutes=7)
