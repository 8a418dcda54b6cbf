"""What a person stopped before it began must not begin an hour later, on a node that works again (NVIDIA/NVSentinel#141)."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.advance import closed
from controller.callback import called_back
from controller.steps import CallBack, Restore
from controller.survey import survey
from controller.view import Failure, Fleet
from kube.policy import BudgetPolicy
from kube.remediation import CANCEL, Attempt, Phase, Remediation
from kube.types import Job, Pod
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.stage import INCIDENT, REBOOT, VALIDATE, decide, reboot, stage, validation
from tests.controller.core.world import World

SUBMITTED = reboot(submitted_at=SEEN)


def job_pod(
    phase: str, job: str = REBOOT, node: str = "gpu-1", *, namespace: str = "nodemend-repairs"
) -> Pod:
    """Build the pod of a Job of ours."""
    pod = make.pod(f"{job}-x", node, namespace=namespace, phase=phase, owner="Job")
    labelled = msgspec.structs.replace(pod.metadata, labels={"batch.kubernetes.io/job-name": job})
    return msgspec.structs.replace(pod, metadata=labelled)


def over(phase: Phase = Phase.CANCELLED, attempt: Attempt = SUBMITTED, **given: Any) -> Fleet:
    """Build the fleet after an incident ended while this attempt was under way."""
    return stage(phase, attempts=(attempt,), closed_at=NOW, before=make.before(), **given)


def the(fleet: Fleet) -> Remediation:
    (one,) = fleet.remediations.values()
    return one


@pytest.mark.parametrize("phase", [Phase.CANCELLED, Phase.SUPERSEDED])
@pytest.mark.parametrize(
    ("given", "jobs"),
    [
        pytest.param({"jobs": [make.job(REBOOT)]}, [REBOOT], id="no pod was placed yet"),
        pytest.param(
            {"jobs": [make.job(REBOOT)], "pods": [job_pod("Pending")]}, [REBOOT], id="its image is not there"
        ),
        pytest.param({"jobs": [make.job(REBOOT)], "pods": [job_pod("Running")]}, [], id="it runs"),
        pytest.param(
            {"jobs": [make.job(REBOOT)], "pods": [job_pod("Running", namespace="tenant")]},
            [REBOOT],
            id="what runs is a tenant's, labelled like its pod",
        ),
        pytest.param({"jobs": [make.job(REBOOT)], "pods": [job_pod("Failed")]}, [], id="its pod ended"),
        pytest.param({"jobs": [make.job(REBOOT, complete=True)]}, [], id="it is complete"),
        pytest.param({"jobs": [make.job(REBOOT, failed="x")]}, [], id="it failed"),
        pytest.param({"jobs": []}, [], id="there is no Job"),
        pytest.param({"jobs": [make.job(REBOOT)], "pods_synced": False}, [], id="the pods are not known"),
        pytest.param(
            {"jobs": [make.job(REBOOT)], "attempt": reboot()},
            [REBOOT],
            id="created, and killed before that was written down",
        ),
        pytest.param(
            {"jobs": [make.job(REBOOT)], "attempt": reboot(result="Succeeded")}, [], id="the attempt is over"
        ),
        pytest.param(
            {"jobs": [make.job(VALIDATE)], "attempt": validation()}, [VALIDATE], id="a revalidation"
        ),
    ],
)
def test_what_is_called_back(phase: Phase, given: dict[str, Any], jobs: list[str]) -> None:
    """Only what is there and has not begun."""
    fleet = over(phase, **given)
    assert [step.job for step in called_back(fleet, the(fleet))] == jobs


@pytest.mark.parametrize("phase", [Phase.RETURNED, Phase.CLEARED])
def test_an_incident_that_ended_by_itself_has_nothing_to_call_back(phase: Phase) -> None:
    """All its attempts have a result."""
    fleet = over(phase, reboot(submitted_at=SEEN, result="Succeeded"), jobs=[make.job(REBOOT)])
    assert called_back(fleet, the(fleet)) == ()


def test_the_job_goes_before_the_node_is_given_back() -> None:
    """New work comes the moment that the cordon goes."""
    fleet = over(jobs=[make.job(REBOOT)], marked=True)
    (step,) = closed(survey(fleet, NOW), the(fleet)).steps
    assert step == CallBack(node="gpu-1", incident=INCIDENT, job=REBOOT, job_uid="")


def test_where_it_fails_the_node_is_given_back_all_the_same() -> None:
    """A right that is missing must not keep a node out."""
    failed = Failure(step="CallBack", at=NOW - timedelta(minutes=5), tries=1, why="forbidden")
    fleet = over(jobs=[make.job(REBOOT)], marked=True, failures={"gpu-1": failed})
    (step,) = closed(survey(fleet, NOW), the(fleet)).steps
    assert isinstance(step, Restore)


@pytest.mark.parametrize(
    ("pods", "beside"),
    [
        pytest.param([], f"{REBOOT} is called back, since it has not begun", id="it waits"),
        pytest.param(
            [job_pod("Running")],
            f"{REBOOT} was already started and may still reboot the machine, nothing follows it",
            id="it runs",
        ),
    ],
)
def test_the_story_says_what_becomes_of_the_job(pods: list[Pod], beside: str) -> None:
    """A person who cancels has to know whether the machine may still go down."""
    word = {CANCEL: "2026-03-01T12:00:00Z"}
    fleet = stage(
        Phase.REPAIRING, attempts=(SUBMITTED,), jobs=[make.job(REBOOT)], pods=pods, annotations=word
    )
    assert decide(fleet).message == f"a person cancelled it (at 2026-03-01T12:00:00Z); {beside}"


@pytest.mark.parametrize("synced", [True, False])
def test_a_job_that_nobody_had_seen_yet_is_known_to_the_closed_incident(*, synced: bool) -> None:
    """Created, then a crash, then a person's word before its row was written: it runs all the same, and is waited for."""
    word = {CANCEL: "2026-03-01T12:00:00Z"}
    pods = [job_pod("Running")]
    fleet = stage(
        Phase.REPAIRING,
        attempts=(reboot(),),
        jobs=[make.job(REBOOT)],
        pods=pods,
        pods_synced=synced,
        annotations=word,
    )
    decision = decide(fleet)
    assert decision.phase is Phase.CANCELLED
    assert decision.status.attempts[0].submitted_at == NOW
    assert "may still reboot the machine" in decision.message


def test_an_uncordon_while_the_job_waits_for_its_image_reboots_nothing() -> None:
    """The whole story: the Job is gone, the node is as the person wants it, and nothing comes after it."""
    world = World(make.node(), *make.idle_nodes(9))
    world.fault()
    world.settle()
    assert list(world.jobs) == [REBOOT.replace(INCIDENT, world.only().metadata.name)]
    world.cordon(on=False)
    world.settle()
    world.after(hours=2)
    assert world.only().status.phase is Phase.CANCELLED
    assert world.jobs == dict[str, Job]()
    assert world.kinds()[-2:] == ["CallBack", "Restore"]
    (attempt,) = world.only().status.attempts
    assert (attempt.result, attempt.message) == ("Failed", "called back before it began")


def test_a_revalidation_that_was_called_back_is_over_too() -> None:
    """It asked for all GPUs, which the person gave to others; nobody may take it for running."""
    world = World(make.node(), *make.idle_nodes(9))
    world.fault()
    world.settle()
    world.reboot()
    world.settle()
    world.cordon(on=False)
    world.settle()
    last = world.only().status.attempts[-1]
    assert (last.kind, last.result, last.job in world.jobs) == ("revalidate", "Failed", False)


def test_a_repair_that_was_called_back_keeps_no_other_waiting() -> None:
    """Its place is free once its Job is gone, not at the deadline that it would have had."""
    policy = make.policy(budget=BudgetPolicy(max_unavailable="50%", max_repairs_in_flight=1))
    world = World(make.node(), make.node("gpu-2"), *make.idle_nodes(18), policies=[policy])
    world.fault()
    world.settle()
    world.fault("gpu-2")
    world.settle()
    assert world.of("gpu-2").status.held_by == "budget"
    world.cordon(on=False)
    world.settle()
    assert world.of("gpu-2").status.phase is Phase.REPAIRING
