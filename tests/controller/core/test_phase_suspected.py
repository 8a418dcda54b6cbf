"""Suspected: when a node is taken out, and when it is not."""

from datetime import timedelta
from typing import Any

import pytest

from controller.view import Settings
from kube.policy import Mode, Rule, TaintUse
from kube.remediation import CANCEL, NodeBefore, Phase
from kube.types import Toleration
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import INCIDENT, LOST, decide, stage

IDLE = make.idle_finding()


PERSON = make.person_finding()


DRILL = make.finding(drill=True)


LATER = NOW + timedelta(minutes=1)


SILENT = {"observed_at": NOW - timedelta(minutes=6)}


@pytest.mark.parametrize(
    ("given", "phase", "held_by", "message"),
    [
        pytest.param(
            {},
            Phase.QUARANTINED,
            "",
            "the node takes no new work",
            id="a proven fault that waits for nothing",
        ),
        pytest.param(
            {"policy": make.policy(default_wait="1m")},
            Phase.SUSPECTED,
            "wait",
            "the policy waits until 2026-03-01T12:00:55Z",
            id="the policy's wait runs from the first-seen time",
        ),
        pytest.param(
            {"policy": make.policy(default_wait="5s")},
            Phase.QUARANTINED,
            "",
            "",
            id="a wait that is over to the second",
        ),
        pytest.param(
            {"policy": make.policy(rules=(Rule(reasons=(LOST.reason,), wait="2m"),))},
            Phase.SUSPECTED,
            "wait",
            "the policy waits until 2026-03-01T12:01:55Z",
            id="a rule's own wait",
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.OBSERVE)},
            Phase.SUSPECTED,
            "mode",
            "would cordon the node for Xid79FallenOffBus on GPU 3 at 0000:03:00, drain it, reboot, and revalidate",
            id="Observe only says what it would do",
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.OBSERVE), "evidence": [IDLE]},
            Phase.SUSPECTED,
            "mode",
            "wait until it is idle, reboot, and revalidate",
            id="Observe of what can wait",
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.OBSERVE), "evidence": [PERSON]},
            Phase.SUSPECTED,
            "mode",
            "hand it to a person",
            id="Observe of what needs a person",
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.QUARANTINE)},
            Phase.QUARANTINED,
            "",
            "",
            id="Quarantine takes it out as well",
        ),
        pytest.param(
            {"policy": make.policy(paused=True)}, Phase.SUSPECTED, "policy", "is paused", id="a paused policy"
        ),
        pytest.param(
            {"policies": []},
            Phase.SUSPECTED,
            "policy",
            "no policy selects this node",
            id="the policy was deleted",
        ),
        pytest.param(
            {"policies": [make.policy(), make.policy("other")]},
            Phase.SUSPECTED,
            "policy",
            "policies gpus and other both select this node",
            id="two policies of the same priority",
        ),
        pytest.param(
            {"policy": make.policy(default_wait="soon")},
            Phase.SUSPECTED,
            "policy",
            "policy gpus is invalid",
            id="a policy that cannot be read",
        ),
        pytest.param(
            {"settings": Settings(dry_run=True)},
            Phase.SUSPECTED,
            "mode",
            "mode Observe",
            id="dry_run reads as Observe",
        ),
        pytest.param(
            {"evidence": [DRILL]},
            Phase.SUSPECTED,
            "drill",
            "a drill",
            id="a drill is shown and reaches no further",
        ),
        pytest.param(
            {"evidence": [DRILL], "policy": make.policy(drills_are_real=True)},
            Phase.QUARANTINED,
            "",
            "",
            id="a drill that the policy calls real",
        ),
        pytest.param(
            {"health": SILENT},
            Phase.SUSPECTED,
            "evidence",
            "was last confirmed at 2026-03-01T11:54:00Z",
            id="a silent agent",
        ),
        pytest.param(
            {"health": SILENT, "leases": [make.lease()]},
            Phase.QUARANTINED,
            "",
            "",
            id="an old report whose agent lives",
        ),
        pytest.param(
            {"condition": "Unknown"},
            Phase.SUSPECTED,
            "evidence",
            "GpuXidError is Unknown",
            id="Unknown causes nothing",
        ),
        pytest.param(
            {"reported": [], "condition": "True"},
            Phase.SUSPECTED,
            "evidence",
            "NodeHealth holds no standing finding",
            id="a condition without a finding",
        ),
        pytest.param(
            {"health": {"boot_id": "boot-0"}},
            Phase.SUSPECTED,
            "evidence",
            "NodeHealth was reported in boot boot-0",
            id="evidence of an earlier boot",
        ),
        pytest.param(
            {
                "node": {
                    "conditions": {XID: "True"},
                    "labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"},
                }
            },
            Phase.SUSPECTED,
            "owner",
            "the GPU Operator's driver upgrade",
            id="another automation has the node",
        ),
        pytest.param(
            {
                "others": [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")],
                "evidence": [IDLE],
            },
            Phase.SUSPECTED,
            "budget",
            "budget: pool default is at its limit of 10% out of service",
            id="no room in the budget",
        ),
        pytest.param(
            {"others": [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")]},
            Phase.QUARANTINED,
            "",
            "",
            id="a lost GPU may exceed the budget",
        ),
        pytest.param(
            {"others": [make.node(f"out-{n}", ready=False) for n in range(3)] + make.idle_nodes(6)},
            Phase.SUSPECTED,
            "budget",
            "",
            id="a lost GPU may not exceed the second limit",
        ),
        pytest.param(
            {"condition": "False", "reported": []},
            Phase.CLEARED,
            "",
            "nothing was changed on the node",
            id="the fault went away in time",
        ),
        pytest.param(
            {"condition": ("False", SEEN - timedelta(hours=1)), "reported": []},
            Phase.SUSPECTED,
            "evidence",
            "is not reported as standing now",
            id="a False from before the fault is an old view",
        ),
        pytest.param(
            {"annotations": {CANCEL: "2026-03-01T12:00:00Z"}},
            Phase.CANCELLED,
            "",
            "a person cancelled it",
            id="a person cancels before anything happened",
        ),
    ],
)
def test_suspected(given: dict[str, Any], phase: Phase, held_by: str, message: str) -> None:
    """Suspected holds for a named reason, or takes the node out, or ends."""
    decision = decide(stage(Phase.SUSPECTED, **given))
    assert (decision.phase, decision.held_by) == (phase, held_by)
    assert message in decision.message


def test_suspected_ends_when_the_node_is_another_one() -> None:
    """A Node of another UID is not the one that the evidence is about; nothing is done to it."""
    fleet = stage(Phase.SUSPECTED)
    new = make.node(uid="uid-new", conditions={XID: "True"})
    replaced = make.fleet(new, healths=[make.health(new)], remediations=fleet.remediations.values())
    decision = decide(replaced)
    assert (decision.phase, decision.effects) == (Phase.SUPERSEDED, ())
    assert "another one now (UID uid-new)" in decision.message


def test_the_wait_is_looked_at_again_when_it_is_over() -> None:
    """The plan says when the clock alone changes the answer."""
    decision = decide(stage(Phase.SUSPECTED, policy=make.policy(default_wait="1m"), message="x"))
    assert decision.recheck_at == NOW + timedelta(seconds=55)


def test_a_node_that_flaps_is_cleared_only_once_it_is_quiet() -> None:
    """After three Cleared incidents within an hour the next one is watched for ten minutes."""
    flaps = [
        make.remediation(phase=Phase.CLEARED, closed_at=NOW - timedelta(minutes=n), name=f"inc-{n}")
        for n in (1, 2, 3)
    ]
    decision = decide(stage(Phase.SUSPECTED, condition="False", reported=[], other_remediations=flaps))
    assert (decision.phase, decision.held_by) == (Phase.SUSPECTED, "wait")
    assert "as often before: watched until 2026-03-01T12:09:55Z" in decision.message


def test_what_the_node_looked_like_is_recorded_before_it_is_touched() -> None:
    """The recipe stands in the Remediation before the Node is patched, and the page is owed."""
    status = decide(stage(Phase.SUSPECTED, node={"unschedulable": True})).status
    assert status.before == NodeBefore(unschedulable=True, cordoned=False, tainted=True, at=NOW)
    assert [(row.transition, row.id) for row in status.notifications] == [("open", f"{INCIDENT}-1-pager")]


@pytest.mark.parametrize(
    ("use", "tolerates", "tainted"),
    [
        pytest.param(
            TaintUse.AUTO,
            (Toleration(operator="Exists"),),
            True,
            id="auto, and every DaemonSet tolerates all",
        ),
        pytest.param(
            TaintUse.AUTO,
            (Toleration(key="nodemend.dev/quarantine", operator="Exists", effect="NoSchedule"),),
            True,
            id="auto, and every DaemonSet tolerates ours",
        ),
        pytest.param(
            TaintUse.AUTO, (Toleration(key="other", operator="Exists"),), False, id="auto, and one does not"
        ),
        pytest.param(
            TaintUse.AUTO,
            (Toleration(operator="Exists", effect="NoExecute"),),
            False,
            id="auto, for another effect only",
        ),
        pytest.param(TaintUse.ALWAYS, (), True, id="always"),
        pytest.param(TaintUse.NEVER, (Toleration(operator="Exists"),), False, id="never"),
    ],
)
def test_the_taint_is_set_where_every_daemonset_could_come_back(
    use: TaintUse, tolerates: tuple[Toleration, ...], tainted: bool
) -> None:
    """A DaemonSet's pod that does not tolerate the taint could not start again on the node."""
    exporter = make.pod(
        "exporter-x",
        owner="DaemonSet",
        owner_name="exporter",
        owner_uid="ds-exporter",
        namespace="monitoring",
    )
    status = decide(
        stage(
            Phase.SUSPECTED,
            policy=make.policy(taint=use),
            pods=[exporter],
            daemonsets=[make.daemonset(tolerations=tolerates)],
        )
    ).status
    assert status.before is not None
    assert status.before.tainted == tainted
