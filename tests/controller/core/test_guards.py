"""The guards that the shell asks once more, on what it read right before a request that cannot be taken back."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.guards import why_not_evict, why_not_repair, why_not_validate
from controller.survey import survey
from controller.view import Fleet, refreshed
from kube.policy import Mode
from kube.remediation import CANCEL, Phase, Remediation
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import INCIDENT, LOST, REBOOT, reboot, stage, validation

UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}


def the(fleet: Fleet) -> Remediation:
    return fleet.remediations[INCIDENT]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({}, None, id="nothing speaks against it"),
        pytest.param(
            {"condition": "False", "reported": []}, "nothing is done without proof", id="the fault is gone"
        ),
        pytest.param({"condition": "Unknown"}, "GpuXidError is Unknown", id="Unknown"),
        pytest.param({"policy": make.policy(paused=True)}, "policy gpus is paused", id="paused"),
        pytest.param({"policy": make.policy(mode=Mode.OBSERVE)}, "is in mode Observe", id="Observe"),
        pytest.param({"policies": []}, "no policy selects this node", id="no policy"),
        pytest.param(
            {"node": {"labels": UPGRADE, "conditions": {XID: "True"}}}, "driver upgrade", id="in other hands"
        ),
        pytest.param({"marked": False}, "the cordon of incident inc-", id="the cordon is not there"),
        pytest.param(
            {"marked": False, "before": make.before()},
            "taken by a person",
            id="a person uncordoned it this moment (NVIDIA/NVSentinel#141)",
        ),
        pytest.param(
            {"annotations": {CANCEL: "x"}},
            "a person cancelled the incident",
            id="a word of cancel, however written",
        ),
        pytest.param({"pods": [make.pod()]}, "pods are on the node again: jobs/train-0", id="a pod is there"),
        pytest.param({"pods_synced": False}, "not known yet", id="the pods are not known"),
        pytest.param(
            {"node": {"boot_id": "boot-2", "conditions": {XID: "True"}}},
            "booted again",
            id="booted meanwhile",
        ),
        pytest.param({"attempts": ()}, "no repair that is written down", id="nothing is written down"),
        pytest.param({"attempts": (reboot(submitted_at=SEEN),)}, "not yet submitted", id="submitted before"),
        pytest.param({"attempts": (reboot(result="Failed"),)}, "not yet submitted", id="ended"),
        pytest.param(
            {"attempts": (reboot(deadline=NOW),)}, f"the time of {REBOOT} ran out", id="its time is over"
        ),
        pytest.param(
            {"health": {"observed_at": NOW - timedelta(minutes=6)}}, "last confirmed at", id="stale evidence"
        ),
        pytest.param({"evidence": [make.finding(drill=True)]}, "a drill", id="a drill"),
    ],
)
def test_why_not_repair(given: dict[str, Any], why: str | None) -> None:
    """Every guard of the plan is asked again, and the identity."""
    fleet = stage(Phase.REPAIRING, **given)
    (one,) = fleet.remediations.values()
    said = why_not_repair(fleet, one, NOW)
    assert (said is None) == (why is None)
    assert (why or "") in (said or "")


@pytest.mark.parametrize(
    ("phase", "guard"),
    [
        (Phase.DRAINING, why_not_evict),
        (Phase.REPAIRING, why_not_repair),
        (Phase.REVALIDATING, why_not_validate),
    ],
)
def test_every_guard_knows_phase_and_identity(phase: Phase, guard: Any) -> None:
    """An incident that moved on, or whose Node is another one, is refused by all of them."""
    fleet = stage(phase, marked=True)
    assert guard(fleet, the(fleet), NOW) is None
    moved = msgspec.structs.replace(
        the(fleet), status=msgspec.structs.replace(the(fleet).status, phase=Phase.ESCALATED)
    )
    assert "the incident is Escalated" in guard(fleet, moved, NOW)
    new = refreshed(fleet, "gpu-1", node=make.node(uid="uid-new"), health=None)
    assert "is another one now" in guard(new, the(fleet), NOW)
    gone = refreshed(fleet, "gpu-1", node=None, health=None)
    assert "is another one now" in guard(gone, the(fleet), NOW)


def test_a_fresh_read_counts_and_not_the_plan() -> None:
    """What was just read of node, health and pods is put in place of the stores' view."""
    fleet = stage(Phase.REPAIRING)
    node = fleet.nodes["gpu-1"]
    well = make.node(conditions={XID: "False"})
    assert why_not_repair(fleet, the(fleet), NOW) is None
    read = refreshed(fleet, "gpu-1", node=node, health=make.health(), remediation=the(fleet))
    assert "holds no standing finding" in (why_not_repair(read, the(fleet), NOW) or "")
    read = refreshed(fleet, "gpu-1", node=node, health=make.health(findings=[LOST]), pods=[make.pod()])
    assert "pods are on the node again" in (why_not_repair(read, the(fleet), NOW) or "")
    read = refreshed(fleet, "gpu-1", node=well, health=make.health())
    assert "the cordon of incident" in (why_not_repair(read, the(fleet), NOW) or "")


def test_one_survey_serves_many_guards() -> None:
    """Evictions of one round need not survey the fleet each."""
    fleet = stage(Phase.DRAINING, pods=[make.pod()])
    looked = survey(fleet, NOW)
    assert why_not_evict(fleet, the(fleet), NOW, looked) is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({"node": {"labels": UPGRADE}}, "driver upgrade", id="in other hands"),
        pytest.param(
            {"marked": False, "before": make.before()}, "taken by a person", id="a person uncordoned it"
        ),
    ],
)
def test_why_not_validate(given: dict[str, Any], why: str) -> None:
    """A revalidation takes all GPUs of the node, so it is not started on somebody else's."""
    fleet = stage(Phase.REVALIDATING, attempts=(validation(),), **given)
    assert why in (why_not_validate(fleet, the(fleet), NOW) or "")
