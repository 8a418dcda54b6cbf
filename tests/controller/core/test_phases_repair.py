"""Repairing: one Job for each attempt, and proof that does not come from the Job."""

from datetime import timedelta
from typing import Any

import pytest

from controller.steps import RunRepair
from controller.view import Failure
from kube.policy import BudgetPolicy, Mode, Rung
from kube.remediation import CANCEL, Phase
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import INCIDENT, LOST, REBOOT, decide, drain_record, reboot, stage

TRUE = {XID: "True"}
RUNS = f"{REBOOT} is to end boot boot-1, by 2026-03-01T12:45:00Z"
SILENT = {"observed_at": NOW - timedelta(minutes=6)}
UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
SUBMITTED = reboot(submitted_at=SEEN)
TWICE = make.policy(ladder=(Rung(repair="reboot", attempts=2),))


@pytest.mark.parametrize(
    ("given", "phase", "held_by", "effects"),
    [
        pytest.param({}, Phase.REPAIRING, "", ("RunRepair",), id="written down: its Job is asked for"),
        pytest.param(
            {"jobs": [make.job(REBOOT)]},
            Phase.REPAIRING,
            "",
            (),
            id="its Job exists: only that is written down",
        ),
        pytest.param(
            {"condition": "False", "reported": []}, Phase.REVALIDATING, "", (), id="a newer False: withdrawn"
        ),
        pytest.param({"condition": "Unknown"}, Phase.REPAIRING, "evidence", (), id="Unknown starts nothing"),
        pytest.param(
            {"reported": [], "condition": "True"},
            Phase.REPAIRING,
            "evidence",
            (),
            id="a condition without a finding",
        ),
        pytest.param({"health": SILENT}, Phase.REPAIRING, "evidence", (), id="stale evidence starts nothing"),
        pytest.param(
            {"health": {"boot_id": "boot-0"}}, Phase.REPAIRING, "evidence", (), id="a report of another boot"
        ),
        pytest.param(
            {"policy": make.policy(paused=True)}, Phase.REPAIRING, "policy", (), id="paused just now"
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.OBSERVE)}, Phase.REPAIRING, "mode", (), id="Observe just now"
        ),
        pytest.param({"policies": []}, Phase.REPAIRING, "policy", (), id="the policy is gone"),
        pytest.param(
            {"policy": make.policy(mode=Mode.QUARANTINE)},
            Phase.ESCALATED,
            "",
            (),
            id="Quarantine just now: a person's turn",
        ),
        pytest.param(
            {"node": {"labels": UPGRADE, "conditions": TRUE}},
            Phase.REPAIRING,
            "owner",
            (),
            id="a driver upgrade began",
        ),
        pytest.param({"pods": [make.pod()]}, Phase.REPAIRING, "pods", (), id="a pod came back"),
        pytest.param({"pods_synced": False}, Phase.REPAIRING, "pods", (), id="the pods are not known"),
        pytest.param(
            {"others": [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")]},
            Phase.REPAIRING,
            "budget",
            (),
            id="the budget is full",
        ),
        pytest.param(
            {"policy": make.policy(budget=BudgetPolicy(max_repairs_in_flight=0))},
            Phase.REPAIRING,
            "budget",
            (),
            id="no repair allowed",
        ),
        pytest.param(
            {"annotations": {CANCEL: "2026-03-01T12:00:00Z"}}, Phase.CANCELLED, "", (), id="a person cancels"
        ),
        pytest.param(
            {"node": {"boot_id": "", "conditions": TRUE}},
            Phase.REPAIRING,
            "evidence",
            (),
            id="the boot id vanished",
        ),
        pytest.param(
            {"evidence": [LOST, make.person_finding(index=1)]},
            Phase.ESCALATED,
            "",
            (),
            id="a fault for a person appeared",
        ),
        pytest.param(
            {"failures": {"gpu-1": Failure(step="RunRepair", at=NOW, tries=1, why="forbidden")}},
            Phase.REPAIRING,
            "",
            (),
            id="the last try failed a moment ago",
        ),
        pytest.param(
            {
                "failures": {
                    "gpu-1": Failure(
                        step="RunRepair", at=NOW - timedelta(seconds=1), tries=1, why="forbidden"
                    )
                }
            },
            Phase.REPAIRING,
            "",
            ("RunRepair",),
            id="the pause after the failure is over",
        ),
    ],
)
def test_an_attempt_that_is_written_down(
    given: dict[str, Any], phase: Phase, held_by: str, effects: tuple[str, ...]
) -> None:
    """Its Job is asked for from the stored row, when every guard agrees once more."""
    decision = decide(stage(Phase.REPAIRING, **{"message": RUNS, **given}))
    assert (decision.phase, decision.held_by, decision.effects) == (phase, held_by, effects)


def test_the_job_is_told_which_boot_it_must_end() -> None:
    """The name follows from incident and attempt, so that a second create finds the first."""
    (step,) = decide(stage(Phase.REPAIRING, message=RUNS)).steps
    assert step == RunRepair(
        node="gpu-1",
        incident=INCIDENT,
        repair="reboot",
        attempt=1,
        job=REBOOT,
        boot_id="boot-1",
        timeout_s=2705,
    )


def test_a_job_that_exists_is_written_down_and_never_created_again() -> None:
    """Also where the leader crashed right after creating it, and where the Job vanished later."""
    status = decide(stage(Phase.REPAIRING, message=RUNS, jobs=[make.job(REBOOT)])).status
    assert status.attempts[0].submitted_at == NOW
    vanished = decide(stage(Phase.REPAIRING, message=RUNS, attempts=(SUBMITTED,)))
    assert (vanished.phase, vanished.effects) == (Phase.REPAIRING, ())


def test_a_withdrawn_attempt_is_ended() -> None:
    """What was never submitted does not stay in flight."""
    status = decide(stage(Phase.REPAIRING, condition="False", reported=[])).status
    assert (status.attempts[0].result, status.attempts[0].submitted_at) == ("Failed", None)
    assert "withdrawn" in status.attempts[0].message


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({"policy": make.policy(paused=True)}, "policy gpus is paused", id="held all the time"),
        pytest.param(
            {"failures": {"gpu-1": Failure(step="RunRepair", at=SEEN, tries=9, why="denied by admission")}},
            "denied by admission",
            id="refused all the time",
        ),
        pytest.param({}, "its Job was not created", id="for no reason that is known"),
    ],
)
def test_an_attempt_that_could_not_be_submitted_fails_at_its_deadline(
    given: dict[str, Any], why: str
) -> None:
    """It never stays in progress for ever (NVIDIA/NVSentinel#1808)."""
    decision = decide(stage(Phase.REPAIRING, attempts=(reboot(deadline=NOW),), **given))
    assert decision.phase is Phase.ESCALATED
    assert f"not submitted by 2026-03-01T12:00:00Z: {why}" in decision.message


BOOTED = {"boot_id": "boot-2", "conditions": {XID: "False"}}


@pytest.mark.parametrize(
    ("given", "phase", "message"),
    [
        pytest.param({}, Phase.REPAIRING, RUNS, id="nothing happened yet"),
        pytest.param(
            {"node": BOOTED, "reported": []},
            Phase.REVALIDATING,
            "boot boot-1 ended, boot boot-2 runs",
            id="proven",
        ),
        pytest.param(
            {"node": BOOTED, "reported": [], "jobs": [make.job(REBOOT, failed="node went down")]},
            Phase.REVALIDATING,
            "is proven",
            id="proven, although its Job failed with the machine",
        ),
        pytest.param(
            {"jobs": [make.job(REBOOT, complete=True)]},
            Phase.REPAIRING,
            RUNS,
            id="a Job's success proves nothing",
        ),
        pytest.param(
            {"node": {"ready": False, "conditions": TRUE}},
            Phase.REPAIRING,
            RUNS,
            id="NotReady proves nothing",
        ),
        pytest.param(
            {"node": {"boot_id": "", "conditions": TRUE}},
            Phase.REPAIRING,
            RUNS,
            id="an empty boot id is no new one",
        ),
        pytest.param(
            {"node": BOOTED, "health": {"boot_id": "boot-1"}},
            Phase.REPAIRING,
            "boot boot-2 runs, its agent has not reported yet",
            id="the agent has not seen the new boot",
        ),
        pytest.param(
            {"node": BOOTED, "health": {"boot_id": ""}},
            Phase.REPAIRING,
            "its agent has not reported yet",
            id="the agent reports no boot",
        ),
        pytest.param(
            {"node": {**BOOTED, "ready": False}, "reported": []},
            Phase.REPAIRING,
            "boot boot-2 runs, the node is not Ready yet",
            id="booted, and not Ready",
        ),
        pytest.param(
            {"jobs": [make.job(REBOOT, failed="exit 1")]},
            Phase.REPAIRING,
            "its Job failed (BackoffLimitExceeded exit 1); the machine may still be going down",
            id="its Job failed: the machine may be going down",
        ),
        pytest.param({"health": SILENT}, Phase.REPAIRING, RUNS, id="silence does not stop a running repair"),
        pytest.param(
            {"condition": "False", "reported": []},
            Phase.REPAIRING,
            RUNS,
            id="False before the proof is no proof",
        ),
        pytest.param({"condition": "Unknown"}, Phase.REPAIRING, RUNS, id="Unknown while it reboots"),
        pytest.param(
            {"policy": make.policy(paused=True)}, Phase.REPAIRING, RUNS, id="paused: what runs is watched"
        ),
        pytest.param(
            {"attempts": (reboot(submitted_at=SEEN, deadline=NOW),)},
            Phase.ESCALATED,
            "not proven by 2026-03-01T12:00:00Z: the node still runs boot boot-1",
            id="the deadline",
        ),
        pytest.param(
            {"attempts": (reboot(submitted_at=SEEN, deadline=NOW),), "policy": TWICE},
            Phase.REPAIRING,
            "failed: not proven by",
            id="the deadline, with another attempt left",
        ),
    ],
)
def test_a_submitted_attempt(given: dict[str, Any], phase: Phase, message: str) -> None:
    """It is watched until it is proven or its time is over, and nothing else is done meanwhile."""
    decision = decide(stage(Phase.REPAIRING, **{"message": RUNS, "attempts": (SUBMITTED,), **given}))
    assert (decision.phase, decision.effects, decision.held_by) == (phase, (), "")
    assert message in decision.message


FELL = reboot(submitted_at=SEEN, job_failed_at=NOW - timedelta(minutes=2), message="its Job failed: exit 1")


@pytest.mark.parametrize(
    ("attempt", "ready", "phase"),
    [
        pytest.param(FELL, True, Phase.ESCALATED, id="two minutes later the node is Ready in the old boot"),
        pytest.param(
            FELL, False, Phase.REPAIRING, id="a node that is not Ready may be on its way through the firmware"
        ),
        pytest.param(
            reboot(submitted_at=SEEN, job_failed_at=NOW - timedelta(seconds=119)),
            True,
            Phase.REPAIRING,
            id="not yet two minutes",
        ),
    ],
)
def test_a_failed_job_fails_the_attempt_only_where_the_machine_stays_up(
    attempt: Any, ready: bool, phase: Phase
) -> None:
    """The kubelet ends pods on a machine's way down, so a failed Job alone says nothing."""
    jobs = [make.job(REBOOT, failed="exit 1")]
    node = {"ready": ready, "conditions": TRUE}
    assert decide(stage(Phase.REPAIRING, attempts=(attempt,), jobs=jobs, node=node)).phase is phase


def test_the_proof_is_written_down_and_paged() -> None:
    """Both boots stand in the attempt, and on-call is told."""
    status = decide(stage(Phase.REPAIRING, attempts=(SUBMITTED,), node=BOOTED, reported=[])).status
    proven = status.attempts[0]
    assert (proven.result, proven.boot_id_before, proven.boot_id_after) == ("Succeeded", "boot-1", "boot-2")
    assert status.notifications[-1].summary.startswith(f"gpu-1: {REBOOT} is proven")


FAILED = reboot(submitted_at=SEEN, finished_at=SEEN, result="Failed")


@pytest.mark.parametrize(
    ("given", "phase", "held_by"),
    [
        pytest.param({}, Phase.REPAIRING, "", id="the next attempt is written down"),
        pytest.param({"pods": [make.pod()]}, Phase.DRAINING, "", id="pods came meanwhile: drained again"),
        pytest.param(
            {"condition": "False", "reported": []}, Phase.REVALIDATING, "", id="the fault is gone after all"
        ),
        pytest.param(
            {"health": SILENT}, Phase.REPAIRING, "evidence", id="no second repair on stale evidence"
        ),
        pytest.param({"policy": make.policy()}, Phase.ESCALATED, "", id="the ladder has no other"),
        pytest.param(
            {"policy": make.policy(paused=True)}, Phase.ESCALATED, "", id="no other, whatever holds"
        ),
    ],
)
def test_after_a_failed_attempt(given: dict[str, Any], phase: Phase, held_by: str) -> None:
    """The next rung is asked for the same way, or a person's turn comes."""
    decision = decide(stage(Phase.REPAIRING, **{"attempts": (FAILED,), "policy": TWICE, **given}))
    assert (decision.phase, decision.held_by) == (phase, held_by)


def test_the_second_attempt_has_a_name_of_its_own() -> None:
    """It is told the boot that runs now."""
    node = {"boot_id": "boot-2", "conditions": TRUE}
    status = decide(stage(Phase.REPAIRING, attempts=(FAILED,), policy=TWICE, node=node)).status
    second = status.attempts[1]
    assert (second.number, second.job, second.boot_id_before) == (2, f"reboot-{INCIDENT}-2", "boot-2")


def test_a_cancel_cannot_call_back_a_job_that_runs() -> None:
    """The story says that the machine may still reboot; nothing follows it."""
    fleet = stage(Phase.REPAIRING, attempts=(SUBMITTED,), annotations={CANCEL: "2026-03-01T12:00:00Z"})
    decision = decide(fleet)
    assert decision.phase is Phase.CANCELLED
    assert (
        f"{REBOOT} was already started and may still reboot the machine"
        in decision.status.timeline[-1].message
    )


def test_a_drain_record_is_kept_through_the_repair() -> None:
    """The incident's turn in its pool is the one of its drain."""
    status = decide(stage(Phase.REPAIRING, message=RUNS, jobs=[make.job(REBOOT)])).status
    assert status.drain == drain_record()
