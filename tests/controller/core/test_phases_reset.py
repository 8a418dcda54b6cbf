"""Repairing by a reset: what the controller does at each persisted stage, and what ends it."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.gpu_clients import OFF
from controller.steps import RunRepair, StopClients, WriteSpec
from controller.view import Failure
from kube.policy import Mode
from kube.remediation import CANCEL, Phase
from kube.types import Job
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.gpu_node import (
    ASKED,
    DEPLOY,
    DRIVER,
    INCIDENT,
    JOB,
    LABELS,
    OFF_LABELS,
    PLUGIN,
    QUIET,
    RESET_AT,
    SICK,
    STOPPED,
    TARGET,
    client,
    quiet,
    report,
    reset,
    resetting,
    stopped,
)
from tests.controller.core.stage import decide, drain_record, stage

TRUE = {XID: "True"}
UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
BEGUN = reset(released_at=SEEN)
SUBMITTED = reset(released_at=SEEN, submitted_at=SEEN)
LONG_ENDED = Job(
    metadata=make.job(JOB).metadata,
    status=msgspec.structs.replace(
        make.job(JOB, complete=True).status, completion_time=NOW - timedelta(minutes=3)
    ),
)


def effects(fleet: Any) -> tuple[Phase, str, tuple[str, ...]]:
    decision = decide(fleet)
    return decision.phase, decision.held_by, decision.effects


@pytest.mark.parametrize(
    ("given", "steps", "said"),
    [
        pytest.param(
            {}, ("WriteSpec",), "the agent is asked", id="nothing done yet: the agent is asked first"
        ),
        pytest.param(
            {"health": {"release": ASKED}}, (), "the agent is asked", id="asked: it has not answered"
        ),
        pytest.param(
            {"health": {"release": ASKED, "released": msgspec.structs.replace(QUIET, by="reset-gpu-inc-0")}},
            (),
            "the agent is asked",
            id="an answer to somebody else's word is none",
        ),
        pytest.param(
            {"health": {"release": msgspec.structs.replace(ASKED, by="reset-gpu-inc-0")}},
            ("WriteSpec",),
            "the agent is asked",
            id="a word that an earlier incident left behind is replaced",
        ),
        pytest.param(
            {"health": {"release": ASKED, "released": QUIET}, "attempts": (BEGUN,)},
            ("StopClients",),
            "the clients of the GPUs are switched off",
            id="it let go: the other clients are switched off",
        ),
        pytest.param(
            {
                "health": {"release": ASKED, "released": QUIET},
                "attempts": (BEGUN,),
                "node": {"labels": {**LABELS, PLUGIN: OFF}, "conditions": TRUE},
            },
            ("StopClients",),
            "the clients of the GPUs are switched off",
            id="killed in the middle: the rest is switched off",
        ),
    ],
)
def test_everybody_is_taken_off_the_driver_in_order(
    given: dict[str, Any], steps: tuple[str, ...], said: str
) -> None:
    """Each step follows from what is stored, so after a crash the plan goes on where it was."""
    decision = decide(resetting(**{"message": said, **given}))
    if not decision.effects and steps:
        decision = decide(resetting(**{**given, "message": decision.message}))
    assert (decision.phase, decision.held_by, decision.effects) == (Phase.REPAIRING, "", steps)
    assert decision.message.startswith(said)


def test_the_agent_is_asked_by_the_name_of_the_attempt() -> None:
    """So an answer to the attempt before is never taken for one to this, whatever the clocks say."""
    (step,) = decide(resetting(message="the agent is asked to let go of the driver")).steps
    assert isinstance(step, WriteSpec)
    assert step.spec.release is not None
    assert (step.spec.release.by, step.spec.release.since) == (JOB, SEEN)


def test_only_labels_that_let_a_client_run_are_switched_off() -> None:
    """The driver itself stays, and so does what nobody had switched on."""
    fleet = resetting(
        health={"release": ASKED, "released": QUIET},
        attempts=(BEGUN,),
        message="the clients of the GPUs are switched off",
    )
    (step,) = decide(fleet).steps
    assert isinstance(step, StopClients)
    assert step.labels == STOPPED
    assert DRIVER not in [one.key for one in step.labels]


def test_what_the_labels_were_is_written_down_before_anything_is_asked() -> None:
    """A leader that dies right after it leaves everything that the next one needs."""
    labels = {**LABELS, f"{DEPLOY}mig-manager": "false", f"{DEPLOY}nvsm": "", f"{DEPLOY}dcgm": "true"}
    given: dict[str, Any] = {"evidence": [SICK], "drain": drain_record(finished_at=SEEN), "attempts": ()}
    status = decide(stage(Phase.REPAIRING, node={"labels": labels}, **given)).status
    assert status.stopped is not None
    assert [(one.key.removeprefix(DEPLOY), one.before) for one in status.stopped.labels] == [
        ("dcgm", "true"),
        ("dcgm-exporter", "true"),
        ("device-plugin", "true"),
    ]
    (attempt,) = status.attempts
    assert (attempt.job, attempt.targets, attempt.submitted_at) == (JOB, (TARGET,), None)
    assert attempt.deadline == NOW + timedelta(minutes=15)


def test_an_answer_and_labels_that_are_off_are_written_down() -> None:
    """From then on a label that reads otherwise was somebody else's doing."""
    answered = decide(resetting(health={"release": ASKED, "released": QUIET})).status
    assert answered.attempts[0].released_at == NOW
    off = decide(quiet(stopped=stopped())).status.stopped
    assert off is not None
    assert (off.applied_at, off.applied_version) == (NOW, "100")


@pytest.mark.parametrize(
    ("given", "phase", "held_by", "steps"),
    [
        pytest.param(
            {}, Phase.REPAIRING, "", ("RunRepair",), id="nobody is at the GPUs: its Job is asked for"
        ),
        pytest.param(
            {"jobs": [make.job(JOB)]}, Phase.REPAIRING, "", (), id="its Job exists: only that is written down"
        ),
        pytest.param(
            {"pods": [client(PLUGIN)]}, Phase.REPAIRING, "", (), id="a client's pod is still on the node"
        ),
        pytest.param(
            {"pods": [client(DRIVER)]},
            Phase.REPAIRING,
            "",
            ("RunRepair",),
            id="the driver's own pod may stay",
        ),
        pytest.param(
            {"health": {"released": None}}, Phase.REPAIRING, "", (), id="the agent took the driver up again"
        ),
        pytest.param(
            {"node": {"labels": OFF_LABELS, "conditions": TRUE, "version": "94"}},
            Phase.REPAIRING,
            "",
            (),
            id="a view of the Node from before proves nothing",
        ),
        pytest.param(
            {"node": {"labels": {**OFF_LABELS, PLUGIN: "true"}, "conditions": TRUE}},
            Phase.REPAIRING,
            "",
            (),
            id="somebody switched a client on again: refused",
        ),
        pytest.param(
            {"condition": "False", "reported": []}, Phase.REVALIDATING, "", (), id="a newer False: withdrawn"
        ),
        pytest.param({"condition": "Unknown"}, Phase.REPAIRING, "evidence", (), id="Unknown starts nothing"),
        pytest.param(
            {"health": {"observed_at": NOW - timedelta(minutes=6)}},
            Phase.REPAIRING,
            "evidence",
            (),
            id="stale evidence starts nothing",
        ),
        pytest.param(
            {"policy": make.policy(paused=True)}, Phase.REPAIRING, "policy", (), id="paused just now"
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.QUARANTINE)}, Phase.ESCALATED, "", (), id="Quarantine just now"
        ),
        pytest.param(
            {"node": {"labels": {**OFF_LABELS, **UPGRADE}, "conditions": TRUE}},
            Phase.REPAIRING,
            "owner",
            (),
            id="a driver upgrade began",
        ),
        pytest.param({"pods": [make.pod()]}, Phase.REPAIRING, "pods", (), id="a pod came back"),
        pytest.param(
            {"annotations": {CANCEL: "2026-03-01T12:00:00Z"}}, Phase.CANCELLED, "", (), id="a person cancels"
        ),
        pytest.param(
            {"evidence": [SICK, make.person_finding(index=1)]},
            Phase.ESCALATED,
            "",
            (),
            id="a fault for a person appeared",
        ),
        pytest.param(
            {"health": {"mig": True}}, Phase.REPAIRING, "", (), id="MIG was switched on meanwhile: refused"
        ),
        pytest.param(
            {"evidence": [SICK, make.finding(index=5)]}, Phase.REPAIRING, "", (), id="a GPU fell off: refused"
        ),
    ],
)
def test_before_its_job_everything_is_looked_at_once_more(
    given: dict[str, Any], phase: Phase, held_by: str, steps: tuple[str, ...]
) -> None:
    """The same guards as for a reboot, and nobody on the driver."""
    fleet = quiet(**{"message": f"{JOB} is to reset GPU-3, by 2026-03-01T12:15:00Z", **given})
    assert effects(fleet) == (phase, held_by, steps)


def test_the_job_is_asked_for_from_the_stored_row() -> None:
    (step,) = decide(quiet(message=f"{JOB} is to reset GPU-3, by 2026-03-01T12:15:00Z")).steps
    assert isinstance(step, RunRepair)
    assert (step.job, step.repair, step.boot_id, step.incident) == (JOB, "reset-gpu", "boot-1", INCIDENT)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param(
            {"pods": [client(PLUGIN)]},
            "waiting for gpu-operator/nvidia-device-plugin",
            id="a client that stays",
        ),
        pytest.param({"health": {"released": None}}, "the agent has not let go", id="an agent that holds on"),
        pytest.param({"policy": make.policy(paused=True)}, "policy gpus is paused", id="held all the time"),
        pytest.param(
            {"failures": {"gpu-1": Failure(step="RunRepair", at=SEEN, tries=9, why="denied by admission")}},
            "denied by admission",
            id="refused all the time",
        ),
    ],
)
def test_what_cannot_be_prepared_in_five_minutes_takes_its_rung(given: dict[str, Any], why: str) -> None:
    """The GPUs of a node are not kept from everybody for ever, and a rung that cannot be begun is not tried for ever."""
    late = reset(released_at=SEEN, started_at=NOW - timedelta(minutes=5))
    decision = decide(quiet(attempts=(late,), **given))
    assert decision.phase is Phase.REPAIRING
    (attempt,) = decision.status.attempts
    assert (attempt.result, attempt.submitted_at) == ("Refused", None)
    assert f"not begun by 2026-03-01T12:00:00Z: {why}" in attempt.message


@pytest.mark.parametrize(
    ("given", "result", "message"),
    [
        pytest.param({}, "", "is to reset GPU-3", id="its Job runs"),
        pytest.param({"jobs": []}, "", "is to reset GPU-3", id="its Job vanished: never created again"),
        pytest.param(
            {"jobs": [make.job(JOB, complete=True)], "pods": [report()]},
            "",
            "has reset GPU-3",
            id="it says so",
        ),
        pytest.param(
            {"jobs": [make.job(JOB, complete=True)]},
            "",
            "its report is not here yet",
            id="the report is late",
        ),
        pytest.param(
            {"jobs": [LONG_ENDED]}, "Failed", "its report is not here yet", id="the report never comes"
        ),
        pytest.param(
            {"jobs": [make.job(JOB, complete=True)], "pods": [report(uuids=("GPU-1",))]},
            "Failed",
            "does not say that GPU-3 was reset",
            id="a report on another GPU",
        ),
        pytest.param(
            {"jobs": [make.job(JOB, complete=True)], "pods": [report(boot="boot-0")]},
            "Failed",
            "its report is about boot boot-0",
            id="a report on another boot",
        ),
        pytest.param(
            {"jobs": [make.job(JOB, complete=True)], "pods": [report(text="done")]},
            "Failed",
            "its report cannot be read",
            id="a report in other words",
        ),
        pytest.param(
            {"jobs": [make.job(JOB, failed="exit 1")], "pods": [report(result="Refused")]},
            "Failed",
            "its Job failed: Refused: GPU-3: Refused",
            id="its Job refused",
        ),
        pytest.param(
            {"attempts": (msgspec.structs.replace(SUBMITTED, deadline=NOW),)},
            "Failed",
            "its Job did not end by 2026-03-01T12:00:00Z",
            id="the deadline",
        ),
        pytest.param(
            {"node": {"labels": OFF_LABELS, "boot_id": "boot-2"}, "reported": []},
            "Failed",
            "the node was booted again (boot boot-2) before the reset was proven",
            id="somebody booted the node",
        ),
        pytest.param(
            {"policy": make.policy(paused=True)}, "", "is to reset GPU-3", id="paused: it is watched"
        ),
        pytest.param({"condition": "Unknown"}, "", "is to reset GPU-3", id="Unknown while it is reset"),
    ],
)
def test_a_submitted_reset(given: dict[str, Any], result: str, message: str) -> None:
    """A Job's success alone proves nothing: its report has to name every GPU, in this boot."""
    decision = decide(quiet(**{"attempts": (SUBMITTED,), "jobs": [make.job(JOB)], **given}))
    assert (decision.phase, decision.effects) == (Phase.REPAIRING, ())
    assert decision.status.attempts[0].result == result
    assert message in decision.message


@pytest.mark.parametrize("at", [RESET_AT - timedelta(days=1), NOW + timedelta(days=1)])
def test_the_reset_is_dated_by_the_machines_clock_and_never_in_the_future(at: Any) -> None:
    """Findings are dated by the same clock; beyond the moment in which it was heard nothing can be cleared."""
    fleet = quiet(attempts=(SUBMITTED,), jobs=[make.job(JOB, complete=True)], pods=[report(at=at)])
    assert decide(fleet).status.attempts[0].targets[0].reset_at == min(at, NOW)
