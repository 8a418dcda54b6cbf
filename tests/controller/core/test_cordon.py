"""Whose cordon it is: people's words stop everything, other automations' doings are put right, our own is never doubted."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.ownership import Cordon, cordon_of, why_not_act
from controller.steps import Quarantine, Restore
from kube.remediation import CANCEL, Phase
from kube.types import Node, Taint
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import INCIDENT, REBOOT, TOUCHED, decide, reboot, stage

LABEL = "nvidia.com/gpu-driver-upgrade-state"


@pytest.mark.parametrize(
    ("node", "owner"),
    [
        pytest.param(make.node(), None, id="nobody"),
        pytest.param(make.node(unschedulable=True), None, id="a plain cordon is no owner"),
        pytest.param(make.node(labels={LABEL: "upgrade-done"}), None, id="a driver upgrade that is done"),
        pytest.param(
            make.node(labels={LABEL: "upgrade-required"}), None, id="a driver upgrade that waits for its turn"
        ),
        pytest.param(
            make.node(labels={LABEL: "drain-required"}),
            "the GPU Operator's driver upgrade (drain-required)",
            id="a driver upgrade under way",
        ),
        pytest.param(
            make.node(labels={LABEL: "upgrade-failed"}),
            "the GPU Operator's driver upgrade (upgrade-failed)",
            id="a driver upgrade that failed",
        ),
        pytest.param(
            make.node(labels={"dgxc.nvidia.com/nvsentinel-state": "draining"}),
            "NVSentinel (draining)",
            id="NVSentinel at work",
        ),
        pytest.param(
            make.node(labels={"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}),
            None,
            id="NVSentinel, long done",
        ),
        pytest.param(
            make.node(taints=[Taint(key="medik8s.io/drain", effect="NoSchedule")]),
            "medik8s node maintenance",
            id="medik8s",
        ),
        pytest.param(
            make.node(taints=[Taint(key="remediation.medik8s.io/self-node-remediation")]),
            "a medik8s remediation",
            id="medik8s repair",
        ),
        pytest.param(
            make.node(labels={"remediation.medik8s.io/exclude-from-remediation": "true"}),
            "medik8s, which excludes it from remediation",
            id="excluded from remediation",
        ),
        pytest.param(
            make.node(taints=[Taint(key="karpenter.sh/disrupted")]), "a Karpenter disruption", id="Karpenter"
        ),
        pytest.param(
            make.node(taints=[Taint(key="ToBeDeletedByClusterAutoscaler")]),
            "a cluster-autoscaler deletion",
            id="cluster-autoscaler",
        ),
        pytest.param(
            make.node(taints=[Taint(key="DeletionCandidateOfClusterAutoscaler")]),
            None,
            id="only a candidate of cluster-autoscaler",
        ),
        pytest.param(
            make.node(taints=[Taint(key="node.cloudprovider.kubernetes.io/shutdown")]),
            "the cloud provider, which says the machine is shut down",
            id="shut down by the cloud",
        ),
        pytest.param(
            make.node(annotations={"weave.works/kured-reboot-in-progress": "x"}), "a kured reboot", id="kured"
        ),
        pytest.param(
            make.node(annotations={"machineconfiguration.openshift.io/state": "Working"}),
            "the machine-config operator (Working)",
            id="machine-config operator",
        ),
        pytest.param(
            make.node(annotations={"machineconfiguration.openshift.io/state": "Done"}),
            None,
            id="machine-config operator at rest",
        ),
    ],
)
def test_other_automations_are_known_by_their_marks(node: Node, owner: str | None) -> None:
    """A node in other hands is left alone, and the reason names them."""
    assert why_not_act(node) == (None if owner is None else f"the node is in the hands of {owner}")


def test_a_node_that_is_being_deleted_is_left_alone() -> None:
    """Karpenter and people delete Nodes through a finalizer, which takes a while."""
    assert why_not_act(make.node(deleted=NOW)) == "the Node is being deleted"


def recent(minutes: int) -> dict[str, Any]:
    return {"others_seen_at": NOW - timedelta(minutes=minutes)}


@pytest.mark.parametrize(
    ("node", "marked", "status", "cordon"),
    [
        pytest.param({}, False, {"before": None}, Cordon.NOT_YET, id="nothing was decided yet"),
        pytest.param(
            {}, False, {"before": make.before(applied=False)}, Cordon.NOT_YET, id="decided, not yet applied"
        ),
        pytest.param(
            {}, True, {"before": make.before(applied=False)}, Cordon.STANDS, id="applied a moment ago"
        ),
        pytest.param(
            {"unschedulable": True}, False, {}, Cordon.STANDS, id="the mark is gone, the cordon stands"
        ),
        pytest.param({}, False, {}, Cordon.TAKEN_BY_PERSON, id="a schedulable node: a person"),
        pytest.param({"version": "89"}, False, {}, Cordon.UNSEEN, id="a view older than our own write"),
        pytest.param(
            {}, False, recent(9), Cordon.TAKEN_BY_OTHERS, id="another's mark stood nine minutes ago"
        ),
        pytest.param(
            {}, False, recent(10), Cordon.TAKEN_BY_PERSON, id="another's mark stood ten minutes ago"
        ),
        pytest.param(
            {},
            False,
            {"others_marker": "x"},
            Cordon.TAKEN_BY_OTHERS,
            id="another's mark stood at the last look",
        ),
    ],
)
def test_a_missing_cordon_has_an_author(
    node: dict[str, Any], marked: bool, status: dict[str, Any], cordon: Cordon
) -> None:
    """Beside another automation's mark it was theirs, else a person's; an old view says nothing."""
    found = make.node(**node)
    one = make.remediation(found, phase=Phase.DRAINING, **{"before": make.before(), **status})
    if marked:
        found = make.quarantined(found, one.metadata.name)
    assert cordon_of(found, one, NOW) is cordon


def uncordoned(fleet: Any) -> Any:
    """Take the cordon off gpu-1, as kubectl uncordon does: taint and annotation stay."""
    node = fleet.nodes["gpu-1"]
    bare = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=False))
    return msgspec.structs.replace(fleet, nodes={**fleet.nodes, "gpu-1": bare})


@pytest.mark.parametrize("phase", sorted(TOUCHED | {Phase.QUARANTINED}))
def test_a_persons_uncordon_cancels_in_every_phase(phase: Phase) -> None:
    """Nothing destructive follows it (NVIDIA/NVSentinel#141); the page says so and is closed."""
    paged = decide(stage(Phase.SUSPECTED)).status.notifications
    decision = decide(uncordoned(stage(phase, marked=True, pods=[make.pod()], notifications=paged)))
    assert (decision.phase, decision.effects) == (Phase.CANCELLED, ())
    assert decision.message == "a person uncordoned the node"
    assert [row.transition for row in decision.status.notifications] == ["open", "update", "resolve"]
    assert decision.status.before is not None
    assert not decision.status.before.cordoned


@pytest.mark.parametrize(
    ("given", "uncordon"),
    [
        pytest.param(
            {"before": msgspec.structs.replace(make.before(), cordoned=False)},
            False,
            id="a person uncordoned it",
        ),
        pytest.param({"before": make.before()}, True, id="cancelled by annotation: the exact restore"),
        pytest.param({"before": make.before(unschedulable=True)}, False, id="cordoned by somebody before us"),
    ],
)
def test_a_cancelled_incident_takes_its_change_off_the_node(given: dict[str, Any], uncordon: bool) -> None:
    """Taint and mark go; a cordon goes only where it is ours."""
    (step,) = decide(stage(Phase.CANCELLED, marked=True, closed_at=NOW, **given)).steps
    assert isinstance(step, Restore)
    assert (step.uncordon, step.untaint, step.incident) == (uncordon, True, INCIDENT)


def test_a_cancelled_incident_waits_for_other_hands() -> None:
    """The cordon is not taken off under another automation's feet."""
    node = {"labels": {LABEL: "drain-required"}, "conditions": {XID: "True"}}
    fleet = stage(Phase.CANCELLED, marked=True, closed_at=NOW, before=make.before(), node=node)
    assert decide(fleet).effects == ()


@pytest.mark.parametrize("phase", sorted(TOUCHED))
def test_another_automations_uncordon_is_put_right(phase: Phase) -> None:
    """A driver upgrade uncordons at its end, whatever stood before: we cordon again, with the same recipe."""
    message = "another automation took the cordon off: it is put back"
    given = stage(phase, others_seen_at=NOW - timedelta(minutes=1), message=message)
    (step,) = decide(uncordoned(given)).steps
    assert isinstance(step, Quarantine)
    assert step.before == make.before()


@pytest.mark.parametrize("phase", sorted(TOUCHED))
def test_a_node_in_other_hands_is_left_alone(phase: Phase) -> None:
    """While their mark stands nothing is done, with the cordon or without it, and it is remembered."""
    node = {
        "labels": {LABEL: "drain-required"},
        "conditions": {XID: "False" if phase is Phase.REVALIDATING else "True"},
    }
    given = stage(phase, node=node, pods=[make.pod()], evidence=[make.finding()])
    for fleet in (given, uncordoned(given)):
        decision = decide(fleet)
        assert decision.effects == ()
        assert (
            decision.status.others_marker
            == "the node is in the hands of the GPU Operator's driver upgrade (drain-required)"
        )


def test_the_end_of_another_automation_is_remembered() -> None:
    """From then on ten minutes run."""
    status = decide(stage(Phase.DRAINING, others_marker="x", pods=[make.pod()])).status
    assert (status.others_marker, status.others_seen_at) == ("", NOW)


@pytest.mark.parametrize("phase", sorted(TOUCHED))
def test_an_old_view_of_the_node_decides_nothing(phase: Phase) -> None:
    """A new leader may see the incident before it sees the cordon."""
    old = {"version": "89", "conditions": {XID: "True"}}
    decision = decide(stage(phase, marked=False, node=old, before=make.before(), message="x"))
    assert (decision.phase, decision.effects) == (phase, ())


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.REPAIRING])
def test_nothing_destructive_happens_on_a_node_without_its_cordon(phase: Phase) -> None:
    """A Remediation that somebody edited may claim what never was."""
    decision = decide(stage(phase, marked=False, pods=[make.pod()]))
    assert (decision.phase, decision.held_by, decision.effects) == (phase, "owner", ())


def test_a_mark_that_somebody_removed_is_put_back() -> None:
    """The cordon stands, so it is no uncordon; the exact restore needs the mark."""
    node = {"unschedulable": True, "conditions": {XID: "True"}}
    message = "our mark is gone from the node: it is put back"
    given = stage(Phase.DRAINING, marked=False, node=node, before=make.before(), message=message)
    (step,) = decide(given).steps
    assert isinstance(step, Quarantine)
    assert step.before == make.before()


@pytest.mark.parametrize("phase", sorted(TOUCHED | {Phase.SUSPECTED, Phase.QUARANTINED}))
@pytest.mark.parametrize("replaced", [True, False])
def test_a_node_that_is_another_one_supersedes(phase: Phase, replaced: bool) -> None:
    """Neither the Node that is gone nor the new one under its name is touched."""
    given = stage(phase, pods=[make.pod()])
    others = {name: node for name, node in given.nodes.items() if name != "gpu-1"}
    new = {"gpu-1": make.node(uid="uid-new")} if replaced else {}
    decision = decide(msgspec.structs.replace(given, nodes={**others, **new}))
    assert (decision.phase, decision.effects) == (Phase.SUPERSEDED, ())
    assert decision.status.closed_at == NOW


def test_a_superseded_node_whose_repair_runs_says_so() -> None:
    """The machine may still reboot under its new name."""
    given = stage(Phase.REPAIRING, attempts=(reboot(submitted_at=SEEN),))
    decision = decide(msgspec.structs.replace(given, nodes={}))
    beside = f"{REBOOT} was already started and may still reboot the machine, nothing follows it"
    assert decision.message == f"the Node is gone from the cluster; {beside}"


def test_a_word_of_cancel_counts_in_every_phase() -> None:
    """Any phase ends at once."""
    for phase in TOUCHED:
        fleet = stage(phase, annotations={CANCEL: "2026-03-01T12:00:00+00:00"}, pods=[make.pod()])
        assert decide(fleet).phase is Phase.CANCELLED
