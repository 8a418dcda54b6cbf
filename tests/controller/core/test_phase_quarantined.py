"""Quarantined: the cordon, and what follows it or holds it."""

from datetime import timedelta
from typing import Any

import pytest

from controller.plan import plan
from controller.steps import Quarantine, Restore, Save
from kube.policy import BudgetPolicy, DrainPolicy, Mode
from kube.remediation import CANCEL, Phase
from kube.types import Taint
from tests import build as make
from tests.build import NOW, XID
from tests.controller.core.stage import INCIDENT, LOST, decide, stage

IDLE = make.idle_finding()


PERSON = make.person_finding()


DRILL = make.finding(drill=True)


SILENT = {"observed_at": NOW - timedelta(minutes=6)}


@pytest.mark.parametrize(
    ("given", "phase", "held_by", "effects"),
    [
        pytest.param({}, Phase.QUARANTINED, "", ("Quarantine",), id="written down, and nothing holds it"),
        pytest.param(
            {"condition": "False", "reported": []},
            Phase.CLEARED,
            "",
            (),
            id="gone before the node was touched",
        ),
        pytest.param(
            {"condition": "Unknown"},
            Phase.QUARANTINED,
            "evidence",
            (),
            id="Unknown before the node was touched",
        ),
        pytest.param(
            {"policy": make.policy(paused=True)}, Phase.QUARANTINED, "policy", (), id="paused just now"
        ),
        pytest.param(
            {"annotations": {CANCEL: "2026-03-01T12:00:00Z"}},
            Phase.CANCELLED,
            "",
            (),
            id="cancelled before it was touched",
        ),
        pytest.param(
            {"node": {"unschedulable": True}, "recipe": make.before(applied=False)},
            Phase.QUARANTINED,
            "",
            (),
            id="somebody cordoned it in between: the recipe is corrected first",
        ),
    ],
)
def test_quarantined_before_the_node_is_touched(
    given: dict[str, Any], phase: Phase, held_by: str, effects: tuple[str, ...]
) -> None:
    """The Node is patched from the stored state, if everything still agrees."""
    message = "Xid79FallenOffBus on GPU 3 at 0000:03:00: the node takes no new work"
    decision = decide(stage(Phase.QUARANTINED, message=message, **given))
    assert (decision.phase, decision.held_by, decision.effects) == (phase, held_by, effects)


def test_the_patch_carries_the_identity_that_was_judged() -> None:
    """UID and resourceVersion are those of the Node that was looked at."""
    message = "Xid79FallenOffBus on GPU 3 at 0000:03:00: the node takes no new work"
    (step,) = decide(stage(Phase.QUARANTINED, message=message)).steps
    assert isinstance(step, Quarantine)
    assert (step.node_uid, step.resource_version, step.incident) == ("uid-gpu-1", "100", INCIDENT)


def test_a_recipe_is_corrected_when_somebody_cordoned_meanwhile() -> None:
    """What a person did just before us is what has to be found again afterwards."""
    given = stage(Phase.QUARANTINED, node={"unschedulable": True}, recipe=make.before(applied=False))
    recipe = decide(given).status.before
    assert recipe is not None
    assert (recipe.unschedulable, recipe.cordoned) == (True, False)


ROOM = BudgetPolicy(max_unavailable="2")


FULL = [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")]


@pytest.mark.parametrize(
    ("given", "phase", "held_by", "message"),
    [
        pytest.param(
            {},
            Phase.DRAINING,
            "",
            "running pods are evicted, until 2026-03-01T12:30:00Z",
            id="urgent: by eviction",
        ),
        pytest.param(
            {"evidence": [IDLE]},
            Phase.DRAINING,
            "",
            "running work is waited for, until 2026-03-02T12:00:00Z",
            id="when idle: by waiting",
        ),
        pytest.param(
            {"policy": make.policy(drain=DrainPolicy(deadline="5m"))},
            Phase.DRAINING,
            "",
            "12:05:00Z",
            id="the policy's deadline",
        ),
        pytest.param(
            {"evidence": [PERSON]},
            Phase.ESCALATED,
            "",
            "Xid62InternalHalt needs a person (CONTACT_SUPPORT); running work is left alone",
            id="a fault for a person",
        ),
        pytest.param(
            {"evidence": [make.finding(urgency="person")]},
            Phase.ESCALATED,
            "",
            "needs a person",
            id="an urgency for a person",
        ),
        pytest.param(
            {"evidence": [LOST, make.person_finding(index=1)]},
            Phase.ESCALATED,
            "",
            "Xid62InternalHalt needs a person",
            id="a fault for a person beside one for a reboot: the reboot must not wash it away",
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.QUARANTINE)},
            Phase.ESCALATED,
            "",
            "policy gpus is in mode Quarantine",
            id="mode Quarantine stops here, with a page",
        ),
        pytest.param(
            {"policy": make.policy(ladder=())},
            Phase.ESCALATED,
            "",
            "has no repair for Xid79FallenOffBus",
            id="no ladder",
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.OBSERVE)},
            Phase.QUARANTINED,
            "mode",
            "is in mode Observe",
            id="Observe meanwhile",
        ),
        pytest.param(
            {"policy": make.policy(paused=True)},
            Phase.QUARANTINED,
            "policy",
            "is paused",
            id="paused meanwhile",
        ),
        pytest.param({"policies": []}, Phase.QUARANTINED, "policy", "no policy", id="the policy is gone"),
        pytest.param(
            {"health": SILENT},
            Phase.QUARANTINED,
            "evidence",
            "was last confirmed at",
            id="no drain starts on stale evidence",
        ),
        pytest.param(
            {"condition": "Unknown"},
            Phase.QUARANTINED,
            "evidence",
            "is Unknown",
            id="no drain starts on Unknown",
        ),
        pytest.param(
            {"evidence": [DRILL]}, Phase.QUARANTINED, "drill", "a drill", id="no drain starts for a drill"
        ),
        pytest.param(
            {"others": FULL},
            Phase.QUARANTINED,
            "budget",
            "at its limit of 10% out of service",
            id="no drain starts over budget",
        ),
        pytest.param(
            {"others": FULL, "policy": make.policy(budget=ROOM)},
            Phase.DRAINING,
            "",
            "",
            id="a budget with room for two",
        ),
        pytest.param(
            {"condition": "False", "reported": []},
            Phase.REVALIDATING,
            "",
            "reported as gone before any repair",
            id="a newer False before the repair",
        ),
        pytest.param(
            {"annotations": {CANCEL: "2026-03-01T12:00:00Z"}},
            Phase.CANCELLED,
            "",
            "a person cancelled it",
            id="a person cancels",
        ),
        pytest.param(
            {"annotations": {CANCEL: "now"}},
            Phase.CANCELLED,
            "",
            "a person cancelled it",
            id="a word without a time is a word all the same",
        ),
        pytest.param(
            {"condition": "Unknown", "held_by": "evidence", "held_since": NOW - timedelta(minutes=30)},
            Phase.ESCALATED,
            "",
            "could not be confirmed since 2026-03-01T11:30:00Z",
            id="a fault that nobody can confirm ends with a person",
        ),
    ],
)
def test_quarantined(given: dict[str, Any], phase: Phase, held_by: str, message: str) -> None:
    """Once the Node carries our mark, the drain starts, or is held for a named reason, or a person's turn comes."""
    decision = decide(stage(Phase.QUARANTINED, marked=True, **given))
    assert (decision.phase, decision.held_by, decision.effects) == (phase, held_by, ())
    assert message in decision.message


def test_the_first_sight_of_the_mark_is_noted() -> None:
    """From then on a missing cordon is somebody's doing, unless the view is older than this version."""
    status = decide(stage(Phase.QUARANTINED, marked=True, before=make.before(applied=False))).status
    assert status.before is not None
    assert (status.before.applied_at, status.before.applied_version) == (NOW, "100")


def test_a_foreign_mark_is_waited_for() -> None:
    """A node that still carries an earlier incident's cordon does not look like it did before."""
    earlier = make.remediation(phase=Phase.CANCELLED, closed_at=NOW, name="inc-earlier", before=make.before())
    node = make.quarantined(make.node(conditions={XID: "True"}), "inc-earlier")
    given = stage(Phase.SUSPECTED, other_remediations=[earlier])
    fleet = make.fleet(
        node,
        *make.idle_nodes(9),
        healths=[make.health(node, [LOST])],
        remediations=given.remediations.values(),
    )
    steps = [step for step in plan(fleet, NOW).steps if step.node == "gpu-1"]
    saved = next(step for step in steps if isinstance(step, Save))
    assert (saved.status.phase, saved.status.held_by) == (Phase.SUSPECTED, "owner")
    assert [step.incident for step in steps if isinstance(step, Restore)] == ["inc-earlier"]


def test_a_mark_whose_remediation_was_deleted_still_holds_the_truth() -> None:
    """The Node is cordoned by us: what it looked like before stands in its mark, not in its present state."""
    recipe = make.before(unschedulable=False)
    node = make.quarantined(make.node(conditions={XID: "True"}), "inc-deleted", recipe)
    fleet = make.fleet(node, *make.idle_nodes(9), healths=[make.health(node, [LOST])])
    decision = decide(fleet)
    assert decision.phase is Phase.QUARANTINED
    assert decision.status.before is not None
    assert (decision.status.before.unschedulable, decision.status.before.cordoned) == (False, True)


def test_a_node_whose_mark_cannot_be_read_is_left_alone() -> None:
    """Somebody edited it: a person has to say what is right."""
    node = {"annotations": {"nodemend.dev/quarantine": "{"}, "conditions": {XID: "True"}}
    decision = decide(stage(Phase.SUSPECTED, node=node))
    assert (decision.phase, decision.held_by) == (Phase.SUSPECTED, "owner")


def test_other_taints_do_not_matter() -> None:
    """Somebody else's taints are neither owners nor ours."""
    node = {"taints": [Taint(key="nvidia.com/gpu", effect="NoSchedule")], "conditions": {XID: "True"}}
    assert decide(stage(Phase.SUSPECTED, node=node)).phase is Phase.QUARANTINED
