"""How a fault is contained where the policy says narrow: by what it takes away, and by who places the pods."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from checks.finding import Effect
from kube.nodehealth import HealthPart
from kube.policy import Mode
from kube.remediation import Phase
from tests import build as make
from tests.build import NOW, XID
from tests.controller.core.open_node import EVICTS, SICK, WAITS, degraded, narrow, narrow_policy, work
from tests.controller.core.stage import decide

OUT = make.reset_finding()
IDLE = degraded()
BUSY = {SICK: [work("holder")], "GPU-5": [work("neighbour")]}
STALE = {"observed_at": NOW - timedelta(minutes=6)}
UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}


def part(kind: str, effect: str, **changes: Any) -> Any:
    return msgspec.structs.replace(
        make.idle_finding(effect=effect, **changes), part=HealthPart(kind=kind, name="mlx5_0")
    )


@pytest.mark.parametrize(
    ("finding", "given", "phase"),
    [
        *(
            pytest.param(
                degraded(effect, urgency=urgency), {}, Phase.WAITING, id=f"{effect}, {urgency}: open"
            )
            for effect in (Effect.PREFER_NOT, Effect.NO_MULTI_NODE, Effect.NO_MULTI_GPU)
            for urgency in ("now", "when-idle", "person")
        ),
        *(
            pytest.param(
                make.reset_finding(urgency=urgency),
                {"withheld": [SICK]},
                Phase.WAITING,
                id=f"a sick GPU that kubelet withholds, {urgency}: open",
            )
            for urgency in ("now", "when-idle", "person")
        ),
        *(
            pytest.param(
                make.reset_finding(urgency=urgency),
                given,
                Phase.QUARANTINED,
                id=f"a sick GPU that kubelet {how}, {urgency}: the cordon",
            )
            for urgency in ("now", "when-idle", "person")
            for how, given in (("offers", {}), ("says nothing of", {"unknown": [SICK]}))
        ),
        *(
            pytest.param(
                make.finding(urgency=urgency),
                {"withheld": [SICK]},
                Phase.QUARANTINED,
                id=f"node-out, {urgency}",
            )
            for urgency in ("now", "when-idle", "person")
        ),
        pytest.param(
            make.reset_finding(index=40),
            {"withheld": [SICK]},
            Phase.QUARANTINED,
            id="a GPU that nobody reports",
        ),
        pytest.param(part("port", Effect.NO_MULTI_NODE), {}, Phase.WAITING, id="a slow port"),
        pytest.param(part("port", Effect.PART_OUT), {}, Phase.WAITING, id="a dead port is narrowed too"),
        pytest.param(part("nvswitch", Effect.PART_OUT), {}, Phase.WAITING, id="so is an NVSwitch"),
        pytest.param(part("disk", Effect.PART_OUT), {}, Phase.QUARANTINED, id="a disk is not"),
        pytest.param(part("gpu", "half-out"), {}, Phase.QUARANTINED, id="an effect that is not known"),
        pytest.param(IDLE, {"policy": make.policy()}, Phase.QUARANTINED, id="the policy says cordon"),
        pytest.param(
            IDLE,
            {"pods": [work("theirs", scheduler="default-scheduler")]},
            Phase.QUARANTINED,
            id="a GPU pod of another scheduler cannot read effects",
        ),
        pytest.param(
            IDLE,
            {"cards": {"GPU-5": [work("theirs", scheduler="default-scheduler", gpus=0)]}},
            Phase.QUARANTINED,
            id="nor one that has a GPU by a claim, as kubelet says",
        ),
        pytest.param(
            IDLE,
            {"pods": [work("theirs", scheduler="")]},
            Phase.QUARANTINED,
            id="nor one of no named scheduler",
        ),
        pytest.param(
            IDLE,
            {"pods": [work("theirs", scheduler="volcano", owner="DaemonSet")]},
            Phase.WAITING,
            id="a DaemonSet's GPU pod is no other scheduler's",
        ),
        pytest.param(
            IDLE,
            {"pods": [work("web", scheduler="volcano", gpus=0)]},
            Phase.WAITING,
            id="one without GPUs neither",
        ),
        pytest.param(
            IDLE,
            {"pods": [work("done", scheduler="volcano", phase="Succeeded")]},
            Phase.WAITING,
            id="nor one that ended",
        ),
        pytest.param(
            IDLE,
            {"pods": [work("kai", scheduler="kai-scheduler")]},
            Phase.WAITING,
            id="KAI's name is ours too",
        ),
        pytest.param(
            IDLE,
            {"pods": [work("half", gpus=0, annotations={"gpu-fraction": "0.5"})]},
            Phase.QUARANTINED,
            id="a share of a GPU is on a card that kubelet does not name",
        ),
        pytest.param(
            part("port", Effect.NO_MULTI_NODE),
            {"pods": [work("half", gpus=0, annotations={"gpu-fraction": "0.5"})]},
            Phase.WAITING,
            id="which does not matter to a port",
        ),
    ],
)
def test_how_a_fault_is_contained(finding: Any, given: dict[str, Any], phase: Phase) -> None:
    """The node is left open for what the scheduler can keep off it, and for nothing else."""
    found = decide(narrow(Phase.SUSPECTED, [finding], **given))
    assert (found.phase, found.held_by) == (phase, "")
    assert (found.status.before is None) == (phase is Phase.WAITING)


@pytest.mark.parametrize(
    ("given", "held_by"),
    [
        pytest.param({"health": STALE}, "evidence", id="a stale report"),
        pytest.param({"condition": "Unknown"}, "evidence", id="Unknown"),
        pytest.param({"health": {"boot_id": "boot-0"}}, "evidence", id="a report of another boot"),
        pytest.param({"policy": narrow_policy(mode=Mode.OBSERVE)}, "mode", id="Observe"),
        pytest.param({"policy": narrow_policy(paused=True)}, "policy", id="paused"),
        pytest.param({"policy": narrow_policy(default_wait="5m")}, "wait", id="the policy's wait"),
        pytest.param({"policies": []}, "policy", id="no policy"),
        pytest.param(
            {"node": {"labels": UPGRADE, "conditions": {XID: "True"}}}, "owner", id="a driver upgrade"
        ),
    ],
)
@pytest.mark.parametrize("phase", [Phase.SUSPECTED, Phase.WAITING])
@pytest.mark.parametrize("finding", [OUT, IDLE], ids=["out", "degraded"])
def test_what_holds(phase: Phase, finding: Any, given: dict[str, Any], held_by: str) -> None:
    """Nothing is done on what is not known, not owned, or not permitted."""
    drain = EVICTS if finding is OUT else WAITS
    fleet = narrow(phase, [finding], cards=BUSY, withheld=[SICK], drain=drain, **given)
    found = decide(fleet)
    assert (found.phase, found.held_by, found.effects) == (phase, held_by, ())
