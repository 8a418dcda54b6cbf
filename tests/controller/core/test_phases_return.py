"""Revalidating and Escalated: the node is given back only when it is proven, exactly as it was found."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from controller.steps import RunValidation
from kube.policy import Mode, RevalidationPolicy, Rung
from kube.remediation import CANCEL, Phase
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import INCIDENT, VALIDATE, decide, reboot, stage, validation

TRUE = {XID: "True"}


PROVES = f"{VALIDATE} proves the node, by 2026-03-01T12:15:00Z"


SILENT = {"observed_at": NOW - timedelta(minutes=6)}


UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}


REBOOTED = reboot(submitted_at=SEEN, finished_at=SEEN, result="Succeeded")


NEW = make.finding(first_seen=NOW, boot_id="boot-1", index=5)


ONCE = make.policy(revalidation=RevalidationPolicy(attempts=1))


TWICE = make.policy(ladder=(Rung(repair="reboot", attempts=2),))


FAILED = validation(submitted_at=SEEN, finished_at=SEEN, result="Failed", message="exit 1")


@pytest.mark.parametrize(
    ("given", "phase", "held_by", "message"),
    [
        pytest.param({}, Phase.REVALIDATING, "", PROVES, id="clean: a revalidation is written down"),
        pytest.param(
            {"condition": "Unknown"},
            Phase.REVALIDATING,
            "evidence",
            "GpuXidError is Unknown",
            id="Unknown is not clean",
        ),
        pytest.param(
            {"reported": [], "condition": "True"},
            Phase.REVALIDATING,
            "evidence",
            "GpuXidError is True",
            id="True is not clean",
        ),
        pytest.param(
            {"node": {"conditions": {XID: "False", "GpuMissing": "Unknown"}}},
            Phase.REVALIDATING,
            "evidence",
            "GpuMissing is Unknown",
            id="another class that could not be read",
        ),
        pytest.param(
            {"health": SILENT},
            Phase.REVALIDATING,
            "evidence",
            "the agent was last heard at",
            id="a silent agent proves nothing",
        ),
        pytest.param(
            {"health": {"boot_id": "boot-0"}},
            Phase.REVALIDATING,
            "evidence",
            "reported in boot boot-0",
            id="a report of another boot",
        ),
        pytest.param(
            {"reported": [make.finding(effect="none")], "condition": "True"},
            Phase.REVALIDATING,
            "",
            PROVES,
            id="a fault that takes nothing away",
        ),
        pytest.param(
            {"reported": [make.finding(drill=True, index=6)], "condition": "True"},
            Phase.REVALIDATING,
            "",
            PROVES,
            id="a drill",
        ),
        pytest.param(
            {"pods": [make.pod(gpus=2)]},
            Phase.REVALIDATING,
            "pods",
            "the revalidation needs all GPUs, and jobs/train-0 still holds some",
            id="running work holds GPUs",
        ),
        pytest.param(
            {"pods": [make.pod()]},
            Phase.REVALIDATING,
            "",
            PROVES,
            id="running work without GPUs does not matter",
        ),
        pytest.param(
            {"pods_synced": False},
            Phase.REVALIDATING,
            "",
            "the pods of the node are not known yet",
            id="the pods are not known",
        ),
        pytest.param(
            {"node": {"gpus": 0}, "health": {"gpus": 0}},
            Phase.REVALIDATING,
            "evidence",
            "how many nvidia.com/gpu the hardware has is not known",
            id="nobody knows how many GPUs there are",
        ),
        pytest.param(
            {"node": {"labels": UPGRADE}},
            Phase.REVALIDATING,
            "owner",
            "the GPU Operator's driver upgrade",
            id="a driver upgrade",
        ),
        pytest.param(
            {"policy": make.policy(paused=True)},
            Phase.REVALIDATING,
            "",
            PROVES,
            id="recoveries go on while paused",
        ),
        pytest.param(
            {"policies": []}, Phase.REVALIDATING, "", PROVES, id="recoveries go on without a policy"
        ),
        pytest.param(
            {"policy": make.policy(mode=Mode.OBSERVE)},
            Phase.REVALIDATING,
            "",
            PROVES,
            id="recoveries go on under Observe",
        ),
        pytest.param(
            {"others": [make.node(f"out-{n}", ready=False) for n in range(9)]},
            Phase.REVALIDATING,
            "",
            PROVES,
            id="recoveries go on over budget",
        ),
        pytest.param(
            {"held_by": "evidence", "held_since": NOW - timedelta(minutes=15), "condition": "Unknown"},
            Phase.ESCALATED,
            "",
            "no clear report since 2026-03-01T11:45:00Z: GpuXidError is Unknown",
            id="no clear report for as long as a revalidation may take",
        ),
        pytest.param(
            {"held_by": "pods", "held_since": NOW - timedelta(hours=24), "pods": [make.pod(gpus=2)]},
            Phase.ESCALATED,
            "",
            "the GPUs were not free",
            id="running work that holds GPUs for a day",
        ),
        pytest.param(
            {"reported": [NEW], "policy": TWICE, "attempts": (REBOOTED,)},
            Phase.DRAINING,
            "",
            "running pods are evicted",
            id="a fault after the repair: the next rung",
        ),
        pytest.param(
            {"reported": [NEW], "attempts": (REBOOTED,)},
            Phase.ESCALATED,
            "",
            "Xid79FallenOffBus stands and there is no other repair",
            id="a fault after the last repair",
        ),
        pytest.param(
            {"reported": [NEW]}, Phase.DRAINING, "", "", id="a fault that came back before any repair"
        ),
        pytest.param(
            {"reported": [NEW], "policy": make.policy(default_wait="1m")},
            Phase.REVALIDATING,
            "evidence",
            "Xid79FallenOffBus stands, the policy waits until 2026-03-01T12:01:00Z",
            id="a fault that came back has its wait as well",
        ),
        pytest.param(
            {"reported": [make.person_finding()]},
            Phase.ESCALATED,
            "",
            "needs a person",
            id="a fault for a person came up",
        ),
        pytest.param(
            {"reported": [NEW], "policy": make.policy(mode=Mode.OBSERVE)},
            Phase.ESCALATED,
            "",
            "no other repair",
            id="no repair under Observe",
        ),
        pytest.param(
            {"annotations": {CANCEL: "2026-03-01T12:00:00Z"}},
            Phase.CANCELLED,
            "",
            "a person cancelled it",
            id="a person cancels",
        ),
        pytest.param(
            {"attempts": (FAILED,), "policy": ONCE},
            Phase.ESCALATED,
            "",
            f"{VALIDATE} failed: exit 1",
            id="its only revalidation failed",
        ),
    ],
)
def test_revalidating(given: dict[str, Any], phase: Phase, held_by: str, message: str) -> None:
    """A node is proven when everything is False, the agent is heard, and its GPUs can be asked for."""
    decision = decide(stage(Phase.REVALIDATING, **given))
    assert (decision.phase, decision.held_by, decision.effects) == (phase, held_by, ())
    assert message in decision.message


@pytest.mark.parametrize(
    ("attempt", "jobs", "now", "result", "phase"),
    [
        pytest.param(
            {}, [make.job(VALIDATE)], NOW, "", Phase.REVALIDATING, id="its Job exists: that is written down"
        ),
        pytest.param(
            {"submitted_at": SEEN},
            [make.job(VALIDATE, complete=True)],
            NOW,
            "Succeeded",
            Phase.REVALIDATING,
            id="it succeeded",
        ),
        pytest.param(
            {"submitted_at": SEEN},
            [make.job(VALIDATE, failed="x")],
            NOW,
            "Failed",
            Phase.REVALIDATING,
            id="it failed: once more",
        ),
        pytest.param(
            {"submitted_at": SEEN},
            [],
            NOW + timedelta(minutes=15),
            "Failed",
            Phase.REVALIDATING,
            id="it never ended: its deadline",
        ),
        pytest.param(
            {"number": 2, "job": f"validate-{INCIDENT}-2", "submitted_at": SEEN},
            [make.job(f"validate-{INCIDENT}-2", failed="x")],
            NOW,
            "Failed",
            Phase.ESCALATED,
            id="the last one failed: a person's turn",
        ),
    ],
)
def test_a_revalidation_is_judged_by_its_job(
    attempt: dict[str, Any], jobs: list[Any], now: datetime, result: str, phase: Phase
) -> None:
    """Only a Job that succeeded gives a node back; the policy says how often it is tried."""
    last = validation(**attempt)
    attempts = (last,) if last.number == 1 else (FAILED, last)
    fleet = stage(
        Phase.REVALIDATING, attempts=attempts, jobs=jobs, message=PROVES, leases=[make.lease(renewed=now)]
    )
    decision = decide(fleet, now)
    assert (decision.phase, decision.status.attempts[-1].result) == (phase, result)
    assert decision.status.attempts[-1].submitted_at is not None


@pytest.mark.parametrize(
    ("capacity", "health", "gpus"),
    [
        pytest.param(7, {"gpus": 7, "expected": 8}, 8, id="somebody says that one is missing"),
        pytest.param(7, {"gpus": 7, "validated": 8}, 8, id="capacity shrank below what was once validated"),
        pytest.param(7, {"gpus": 8, "validated": 7}, 8, id="the bus holds one more than was ever validated"),
        pytest.param(8, {"gpus": 7}, 8, id="kubelet still counts one that nobody else shows"),
        pytest.param(
            7, {"gpus": 8, "validated": 8, "expected": 7}, 7, id="the driver leaves one alone, as said"
        ),
        pytest.param(8, {"gpus": 8, "validated": 8, "expected": 7}, 7, id="what is said decides alone"),
        pytest.param(56, {"gpus": 8, "validated": 8, "mig": True}, 8, id="kubelet counts MIG devices"),
        pytest.param(32, {"gpus": 8, "validated": 8}, 8, id="kubelet counts each card four times"),
    ],
)
def test_a_revalidation_asks_for_every_gpu_of_the_hardware(
    capacity: int, health: dict[str, Any], gpus: int
) -> None:
    """spec.expected decides; without it the largest hardware count, not what the plugin still offers or makes of it."""
    fleet = stage(
        Phase.REVALIDATING,
        attempts=(validation(),),
        message=PROVES,
        node={"gpus": capacity},
        health=health,
    )
    (step,) = decide(fleet).steps
    assert step == RunValidation(
        node="gpu-1",
        incident=INCIDENT,
        attempt=1,
        job=VALIDATE,
        gpu_resource="nvidia.com/gpu",
        gpus=gpus,
        timeout_s=905,
    )


def test_a_revalidation_that_is_under_way_waits_for_doubt_to_end() -> None:
    """Nothing is submitted while a condition is Unknown."""
    decision = decide(
        stage(Phase.REVALIDATING, attempts=(validation(),), message=PROVES, condition="Unknown")
    )
    assert (decision.held_by, decision.effects) == ("evidence", ())


def test_revalidations_of_an_earlier_stay_do_not_count() -> None:
    """After a person's repair the node has all its tries again."""
    old = validation(started_at=NOW - timedelta(hours=5), result="Failed")
    status = decide(stage(Phase.REVALIDATING, attempts=(old,), since=SEEN)).status
    assert [attempt.job for attempt in status.attempts] == [VALIDATE, f"validate-{INCIDENT}-2"]


def test_a_fault_that_comes_and_goes_ends_with_a_person() -> None:
    """The sixth time that the same part shows the same fault, no repair of ours will end it."""
    flaps = [make.finding(first_seen=SEEN + timedelta(milliseconds=n)) for n in range(6)]
    decision = decide(stage(Phase.REVALIDATING, evidence=flaps[:5], reported=[flaps[5]]))
    assert decision.phase is Phase.ESCALATED
    assert "Xid79FallenOffBus comes and goes" in decision.message
