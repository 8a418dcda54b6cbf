"""controller.validation: a pod that kubelet refused says nothing about the node, and a failed one is heard first."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from controller.steps import RunValidation
from controller.view import Fleet
from kube.remediation import Attempt, Phase
from kube.types import Pod, PodStatus
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.stage import INCIDENT, VALIDATE, decide, stage, validation

PROVES = f"{VALIDATE} proves the node, by 2026-03-01T12:15:00Z"
FAILED = validation(submitted_at=SEEN, finished_at=SEEN, result="Failed", message="exit 1")


def pod_of(job: str, *, phase: str = "Failed", reason: str = "UnexpectedAdmissionError") -> Pod:
    """Build the pod of a revalidation, refused by kubelet unless said otherwise."""
    plain = make.pod("p", namespace="nodemend-repairs", owner="Job", owner_name=job)
    labels = {"batch.kubernetes.io/job-name": job}
    return msgspec.structs.replace(
        plain,
        metadata=msgspec.structs.replace(plain.metadata, labels=labels),
        status=PodStatus(phase=phase, reason=reason, message="no healthy devices"),
    )


def refusals(count: int, *, at: datetime) -> tuple[Attempt, ...]:
    """Build revalidations that kubelet refused, the last of them at this time."""
    return tuple(
        validation(
            number=number,
            job=f"validate-{INCIDENT}-{number}",
            submitted_at=SEEN,
            finished_at=at,
            result="Refused",
            message="kubelet refused its pod",
        )
        for number in range(1, count + 1)
    )


def test_a_pod_that_kubelet_refused_proves_nothing_and_costs_no_try() -> None:
    """The device plugin was just coming back: the last try that the policy gives is still there, a little later."""
    last = validation(number=2, job=f"validate-{INCIDENT}-2", submitted_at=SEEN)
    failed = make.job(last.job, failed="BackoffLimitExceeded")
    decision = decide(
        stage(
            Phase.REVALIDATING,
            attempts=(FAILED, last),
            jobs=[failed],
            pods=[pod_of(last.job)],
            message=PROVES,
        )
    )
    assert (decision.phase, decision.status.attempts[-1].result) == (Phase.REVALIDATING, "Refused")
    assert decision.message.startswith(f"{last.job} could not run (kubelet refused its pod")
    assert decision.recheck_at == NOW + timedelta(seconds=15)


@pytest.mark.parametrize(
    ("count", "after", "phase", "attempts"),
    [
        pytest.param(1, timedelta(seconds=14), Phase.REVALIDATING, 1, id="not yet"),
        pytest.param(1, timedelta(seconds=15), Phase.REVALIDATING, 2, id="once more after 15 s"),
        pytest.param(2, timedelta(seconds=29), Phase.REVALIDATING, 2, id="the next pause is longer"),
        pytest.param(2, timedelta(seconds=30), Phase.REVALIDATING, 3, id="once more after 30 s"),
        pytest.param(
            6, timedelta(minutes=4), Phase.REVALIDATING, 7, id="no pause is longer than four minutes"
        ),
        pytest.param(3, timedelta(minutes=15), Phase.ESCALATED, 3, id="for all of a revalidation's time"),
    ],
)
def test_a_refused_revalidation_is_tried_again(
    count: int, after: timedelta, phase: Phase, attempts: int
) -> None:
    """Ever more slowly, and not for ever: whoever keeps kubelet from handing out its GPUs is a person's to find."""
    now = NOW + after
    fleet = stage(Phase.REVALIDATING, attempts=refusals(count, at=NOW), leases=[make.lease(renewed=now)])
    decision = decide(fleet, now)
    assert (decision.phase, len(decision.status.attempts)) == (phase, attempts)


@pytest.mark.parametrize(
    ("after", "result"),
    [
        pytest.param(timedelta(seconds=59), "", id="its end may still be on its way"),
        pytest.param(timedelta(seconds=60), "Failed", id="it never came"),
    ],
)
def test_a_failed_job_waits_for_the_word_of_its_pod(after: timedelta, result: str) -> None:
    """Job and pod come by two watches; the pod says whether it ran at all."""
    job = make.job(VALIDATE, failed="x")
    (failed,) = job.status.conditions
    told = msgspec.structs.replace(failed, last_transition_time=NOW - after)
    job = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, conditions=(told,)))
    last = validation(submitted_at=SEEN)
    fleet = stage(
        Phase.REVALIDATING,
        attempts=(last,),
        jobs=[job],
        pods=[pod_of(VALIDATE, phase="Running", reason="")],
        message=PROVES,
    )
    assert decide(fleet).status.attempts[-1].result == result


SMALL, LARGE, WHOLE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu"


def cut_fleet(offered: dict[str, str], cut: int, pods: tuple[Pod, ...] = (), **status: Any) -> Fleet:
    """Build a node under revalidation with 8 GPUs, of which MIG cuts so many, and what kubelet offers."""
    fleet = stage(Phase.REVALIDATING, pods=pods, health={"validated": 8}, **status)
    node, health = fleet.nodes["gpu-1"], fleet.healths["gpu-1"]
    parts = tuple(
        msgspec.structs.replace(part, mig=part.index is not None and part.index < cut)
        for part in health.status.parts
    )
    node = msgspec.structs.replace(
        node, status=msgspec.structs.replace(node.status, allocatable=offered, capacity=offered)
    )
    health = msgspec.structs.replace(health, status=msgspec.structs.replace(health.status, parts=parts))
    return msgspec.structs.replace(
        fleet, nodes={**fleet.nodes, "gpu-1": node}, healths={**fleet.healths, "gpu-1": health}
    )


@pytest.mark.parametrize(
    ("offered", "cut", "devices"),
    [
        pytest.param({WHOLE: "8"}, 0, {}, id="no MIG"),
        pytest.param({WHOLE: "56"}, 8, {}, id="strategy single: MIG devices are called GPUs"),
        pytest.param({WHOLE: "0", SMALL: "56"}, 8, {SMALL: 56}, id="strategy mixed: all GPUs cut"),
        pytest.param(
            {WHOLE: "5", SMALL: "7", LARGE: "4"}, 3, {SMALL: 7, LARGE: 4, WHOLE: 5}, id="some GPUs are whole"
        ),
        pytest.param(
            {WHOLE: "4", SMALL: "21"}, 3, {SMALL: 21, WHOLE: 5}, id="a whole GPU is not offered: it is missed"
        ),
        pytest.param({WHOLE: "2", SMALL: "7"}, 0, {SMALL: 7, WHOLE: 2}, id="NVML did not say which are cut"),
        pytest.param({WHOLE: "8", SMALL: "0"}, 0, {}, id="a size that is gone"),
        pytest.param({WHOLE: "8", "other.example/mig-1g": "7"}, 0, {}, id="another vendor's resource"),
    ],
)
def test_on_a_node_that_mig_cuts_its_devices_are_asked_for(
    offered: dict[str, str], cut: int, devices: dict[str, int]
) -> None:
    """And the attempt says so; the hardware has to show its 8 GPUs all the same."""
    begun = decide(cut_fleet(offered, cut))
    (attempt,) = begun.status.attempts
    said = "since MIG cuts the GPUs"
    assert (said in attempt.message, said in begun.message) == (bool(devices), bool(devices))
    (step,) = decide(cut_fleet(offered, cut, attempts=(attempt,), message=begun.message)).steps
    assert isinstance(step, RunValidation)
    assert (step.gpus, step.gpu_resource, step.devices) == (8, WHOLE, devices)


def test_a_pod_on_a_mig_device_is_waited_for() -> None:
    """It holds a GPU as any other does."""
    pod = make.pod("notebook")
    (container,) = pod.spec.containers
    held = msgspec.structs.replace(container.resources, limits={SMALL: "1"}, requests={})
    container = msgspec.structs.replace(container, resources=held)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=(container,)))
    decision = decide(cut_fleet({WHOLE: "0", SMALL: "56"}, 8, pods=(pod,)))
    assert (decision.held_by, "jobs/notebook" in decision.message) == ("pods", True)


def test_mig_devices_that_are_not_offered_yet_are_waited_for_and_then_a_person() -> None:
    """The plugin is on its way back: a Job for whole GPUs would never start."""
    decision = decide(cut_fleet({WHOLE: "0"}, 8))
    assert (decision.held_by, "neither MIG devices" in decision.message) == ("evidence", True)
    held: dict[str, Any] = {"held_by": "evidence", "held_since": NOW - timedelta(minutes=16)}
    assert decide(cut_fleet({WHOLE: "0"}, 8, **held)).phase is Phase.ESCALATED
