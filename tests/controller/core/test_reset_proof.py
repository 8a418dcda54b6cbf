"""After a reset: who was taken off the driver is put back, the agent gives its half of the proof, the GPUs are cleared."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.gpu_clients import OFF
from controller.steps import StartClients, WriteSpec
from kube.nodehealth import ClearedPart, Released
from kube.remediation import Phase
from kube.types import Job, PodStatus
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.gpu_node import (
    APPLIED,
    ASKED,
    EXPORTER,
    JOB,
    LABELS,
    OFF_LABELS,
    PLUGIN,
    QUIET,
    RESET_AT,
    SICK,
    TARGET,
    quiet,
    report,
    reset,
    resetting,
)
from tests.controller.core.stage import decide

TRUE = {XID: "True"}
UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
HANDS = "the node is in the hands of the GPU Operator's driver upgrade (drain-required)"
SUBMITTED = reset(released_at=SEEN, submitted_at=SEEN)
CLEARED = ClearedPart(uuid="GPU-3", pci="0000:03:00", before=RESET_AT, by=JOB)
DONE = reset(
    released_at=SEEN, submitted_at=SEEN, targets=(msgspec.structs.replace(TARGET, reset_at=RESET_AT),)
)


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        pytest.param({}, ("StartClients", "WriteSpec"), id="both"),
        pytest.param(
            {"health": {"release": None, "cleared": [CLEARED]}},
            ("StartClients",),
            id="the agent has been told already",
        ),
        pytest.param(
            {"node": {"labels": LABELS, "conditions": TRUE}}, ("WriteSpec",), id="the labels are back already"
        ),
        pytest.param(
            {"policy": make.policy(paused=True)},
            ("StartClients", "WriteSpec"),
            id="paused: put back all the same",
        ),
        pytest.param({"policies": []}, ("StartClients", "WriteSpec"), id="without a policy"),
        pytest.param(
            {"node": {"labels": {**OFF_LABELS, **UPGRADE}, "conditions": TRUE}, "others_marker": HANDS},
            ("WriteSpec",),
            id="a driver upgrade has the labels in hand: they wait",
        ),
        pytest.param(
            {"node": {"labels": {**OFF_LABELS, PLUGIN: "false"}, "conditions": TRUE}},
            ("StartClients", "WriteSpec"),
            id="what somebody else set is left alone",
        ),
    ],
)
@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(DONE, id="after the Job's report"),
        pytest.param(reset(result="Failed", finished_at=SEEN, submitted_at=SEEN), id="after a failure"),
        pytest.param(reset(result="Refused", finished_at=SEEN), id="after a refusal"),
    ],
)
def test_what_was_switched_off_is_put_back(
    attempt: Any, given: dict[str, Any], steps: tuple[str, ...]
) -> None:
    """Before anything else, whatever holds the rest."""
    decision = decide(quiet(attempts=(attempt,), **given))
    assert decision.effects == steps
    for step in decision.steps:
        if isinstance(step, StartClients):
            assert {one.key for one in step.labels} <= {PLUGIN, EXPORTER}
            assert (
                not any(one.key == PLUGIN for one in step.labels)
                or given.get("node", {}).get("labels", {}).get(PLUGIN, OFF) == OFF
            )
        if isinstance(step, WriteSpec):
            assert step.spec.release is None


BACK: dict[str, Any] = {
    "node": {"labels": LABELS},
    "health": {"release": None, "released": None, "cleared": [CLEARED]},
    "reported": [],
}
DRIVER_FAULT = "GpuDriverFault"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        pytest.param({}, None, id="the agent reports the GPU well"),
        pytest.param(
            {"health": {"released": QUIET}}, "has not taken the driver up", id="the agent has not taken it up"
        ),
        pytest.param({"health": {"nvml": False}}, "cannot read NVML", id="NVML does not answer"),
        pytest.param({"health": {"gpus": 3}}, "does not report GPU-3", id="the GPU is gone"),
        pytest.param({"health": {"boot_id": "boot-0"}}, "does not count", id="a report of another boot"),
        pytest.param(
            {"node": {"labels": LABELS, "conditions": {XID: "True", DRIVER_FAULT: "Unknown"}}},
            "GpuDriverFault is Unknown",
            id="the driver has not been looked at",
        ),
        pytest.param(
            {"reported": [SICK]},
            "Xid95UncontainedEcc on GPU-3 is still reported",
            id="a report from before the clearing",
        ),
        pytest.param(
            {"reported": [make.reset_finding(last_seen=NOW + timedelta(minutes=1))]},
            "was seen after the reset",
            id="the fault came again",
        ),
        pytest.param(
            {
                "reported": [
                    make.finding("GpuLost", condition="GpuMissing", first_seen=SEEN - timedelta(hours=1))
                ]
            },
            "GpuLost on GPU-3",
            id="the GPU is lost, whenever it was first seen",
        ),
        pytest.param(
            {"reported": [make.reset_finding(index=5, last_seen=NOW + timedelta(minutes=1))]},
            None,
            id="a neighbour's fault says nothing about this GPU",
        ),
    ],
)
def test_the_agents_half_of_the_proof(given: dict[str, Any], missing: str | None) -> None:
    """The same UUID, in the same boot, with nothing against it since."""
    health = {**BACK["health"], **given.get("health", {})}
    decision = decide(
        resetting(**{**BACK, "attempts": (DONE,), "stopped": APPLIED, **given, "health": health})
    )
    if missing is not None:
        assert (decision.phase, decision.effects) == (Phase.REPAIRING, ())
        assert missing in decision.message
        return
    assert decision.phase is Phase.REVALIDATING
    attempt = decision.status.attempts[0]
    assert (attempt.result, attempt.boot_id_after) == ("Succeeded", "boot-1")
    assert decision.status.notifications[-1].summary.startswith(f"gpu-1: {JOB} is proven")


def test_a_reset_that_the_agent_never_confirms_fails() -> None:
    """The next rung follows; a Job that said so is not enough."""
    late = msgspec.structs.replace(DONE, deadline=NOW)
    given = {**BACK, "health": {**BACK["health"], "released": QUIET}}
    fleet = resetting(**{**given, "attempts": (late,), "stopped": APPLIED})
    decision = decide(fleet)
    assert (decision.phase, decision.status.attempts[0].result) == (Phase.REPAIRING, "Failed")
    assert "reset, but not proven by 2026-03-01T12:00:00Z" in decision.message


def test_a_label_that_somebody_else_took_over_is_said() -> None:
    """It is left as it is, and the story tells."""
    labels = {**LABELS, EXPORTER: "false"}
    decision = decide(
        resetting(**{**BACK, "node": {"labels": labels}, "attempts": (DONE,), "stopped": APPLIED})
    )
    assert decision.phase is Phase.REVALIDATING
    assert f"label {EXPORTER} was set to 'false' by somebody else, and is left as it is" in decision.message


PROVEN = msgspec.structs.replace(DONE, result="Succeeded", finished_at=SEEN)


def test_only_the_gpus_that_were_reset_are_cleared() -> None:
    """With the word to take the driver up again; what an earlier repair cleared stays, and so do all other findings."""
    old = ClearedPart(uuid="GPU-1", pci="0000:01:00", before=SEEN, by="reset-gpu-inc-0-1")
    fleet = quiet(attempts=(DONE,), node={"labels": LABELS}, health={"cleared": [old]})
    (step,) = decide(fleet).steps
    assert isinstance(step, WriteSpec)
    assert step.spec.release is None
    assert step.spec.cleared == (old, CLEARED)
    assert step.spec.cleared_before is None


def test_a_reset_that_did_not_happen_clears_nothing() -> None:
    fleet = quiet(
        attempts=(reset(result="Failed", finished_at=SEEN, submitted_at=SEEN),), node={"labels": LABELS}
    )
    (step,) = decide(fleet).steps
    assert isinstance(step, WriteSpec)
    assert step.spec.cleared == ()


def test_a_person_who_cancels_finds_the_faults_as_they_are() -> None:
    """The word to let go is taken back, and nothing is cleared."""
    fleet = quiet(
        phase=Phase.CANCELLED, closed_at=SEEN, attempts=(DONE,), node={"labels": LABELS}, marked=False
    )
    (step,) = decide(fleet).steps
    assert isinstance(step, WriteSpec)
    assert (step.spec.release, step.spec.cleared) == (None, ())


def test_a_neighbour_that_is_ill_is_not_given_back() -> None:
    """Its fault was not dealt with: the next rung is its own."""
    fleet = resetting(
        phase=Phase.REVALIDATING,
        marked=True,
        attempts=(PROVEN,),
        evidence=[SICK, make.reset_finding(index=5)],
        reported=[SICK, make.reset_finding(index=5)],
        condition="True",
        health={"cleared": [CLEARED]},
    )
    assert decide(fleet).phase is Phase.DRAINING


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        pytest.param([make.job(JOB)], (), id="its Job is at work: they stay off"),
        pytest.param([make.job(JOB, complete=True)], ("StartClients", "WriteSpec"), id="its Job ended"),
        pytest.param([make.job(JOB, failed="exit 1")], ("StartClients", "WriteSpec"), id="its Job failed"),
        pytest.param([], ("StartClients", "WriteSpec"), id="its Job is gone"),
    ],
)
def test_a_closed_incident_puts_back_what_it_took(job: list[Job], steps: tuple[str, ...]) -> None:
    """Whatever closed it; a Job that cannot be called back is let end first."""
    at_work = msgspec.structs.replace(report(), status=PodStatus(phase="Running"))
    fleet = quiet(
        phase=Phase.CANCELLED, closed_at=SEEN, attempts=(SUBMITTED,), jobs=job, pods=[at_work], marked=False
    )
    assert decide(fleet).effects == steps


def test_another_node_of_that_name_gets_on_what_somebody_copied_to_it() -> None:
    """The incident itself takes back its word to the agent alone; our word on a Node that it does not know is an orphan."""
    fleet = quiet(phase=Phase.SUPERSEDED, closed_at=SEEN, attempts=(SUBMITTED,), marked=False)
    node = msgspec.structs.replace(
        fleet.nodes["gpu-1"],
        metadata=msgspec.structs.replace(fleet.nodes["gpu-1"].metadata, uid="uid-new"),
    )
    fleet = msgspec.structs.replace(fleet, nodes={**fleet.nodes, "gpu-1": node})
    assert decide(fleet).effects == ("WriteSpec", "StartClients")


def test_a_release_of_somebody_else_is_left_alone() -> None:
    """It is the driver upgrade's, or a person's."""
    theirs = msgspec.structs.replace(ASKED, by="alice")
    fleet = quiet(
        phase=Phase.CANCELLED,
        closed_at=SEEN,
        attempts=(reset(),),
        health={"release": theirs, "released": Released(since=SEEN, why="a driver upgrade")},
        node={"labels": LABELS},
        marked=False,
    )
    assert decide(fleet).effects == ()
