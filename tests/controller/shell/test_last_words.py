"""controller.last_words: the reason why a Job ended, in the words of its own pod."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.last_words import last_words, refusal
from kube.types import ContainerState, ContainerStatus, Job, ObjectMeta, Pod, PodStatus, TerminatedState
from tests.controller.shell.samples import NOW

JOB = Job(metadata=ObjectMeta(name="j", namespace="repairs"))
VERDICT = {
    "result": "Failed",
    "node": "gpu-7",
    "bootID": "b",
    "checks": [
        {"name": "gpus", "result": "Failed", "message": "7 found, 8 demanded"},
        {"name": "GpuXidError", "result": "Passed", "message": "NoXidError: none"},
    ],
}


def pod(
    message: str,
    *,
    job: str = "j",
    exit_code: int = 1,
    age_s: int = 0,
    label: str = "batch.kubernetes.io/job-name",
    namespace: str = "repairs",
) -> Pod:
    """Build an ended pod of a Job."""
    ended = TerminatedState(exit_code=exit_code, reason="Error", message=message)
    return Pod(
        metadata=ObjectMeta(
            name="p",
            namespace=namespace,
            labels={label: job},
            creation_timestamp=NOW - timedelta(seconds=age_s),
        ),
        status=PodStatus(
            container_statuses=(ContainerStatus(name="c", state=ContainerState(terminated=ended)),)
        ),
    )


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], "", id="no pod"),
        pytest.param([pod("x", job="other")], "", id="another Job's pod"),
        pytest.param(
            [pod(msgspec.json.encode(VERDICT).decode())],
            "Failed: gpus: 7 found, 8 demanded",
            id="the agent's verdict",
        ),
        pytest.param(
            [pod('{"result":"Passed","checks":[{"name":"gpus","result":"Passed","message":"8 found"}]}')],
            "Passed: gpus: 8 found",
            id="a verdict that passed",
        ),
        pytest.param([pod("nccl: 12 GB/s\n< 400")], "nccl: 12 GB/s < 400", id="any other text, on one line"),
        pytest.param([pod("\x1b[31mred\x00")], "[31mred", id="without control characters"),
        pytest.param([pod("", exit_code=137)], "exit code 137 (Error)", id="nothing but an exit code"),
        pytest.param([pod('{"result": 1}')], '{"result": 1}', id="JSON of another shape is text"),
        pytest.param([pod("old", age_s=60), pod("new")], "new", id="the newest pod counts"),
        pytest.param([pod("x", label="job-name")], "x", id="the older label"),
        pytest.param([pod("x", namespace="tenant")], "", id="a pod of a tenant, labelled like the Job's"),
    ],
)
def test_the_reason_is_the_pods_own(pods: list[Pod], expected: str) -> None:
    """In one bounded line."""
    assert last_words(JOB, pods) == expected


def test_it_is_bounded() -> None:
    """Whatever a program prints."""
    assert len(last_words(JOB, [pod("x" * 5000)])) == 512


def test_a_pod_that_still_runs_has_said_nothing() -> None:
    """Only what ended counts."""
    changes: dict[str, Any] = {"status": PodStatus(container_statuses=(ContainerStatus(name="c"),))}
    assert last_words(JOB, [msgspec.structs.replace(pod("x"), **changes)]) == ""


def refused(reason: str, *, job: str = "j", phase: str = "Failed", age_s: int = 0) -> Pod:
    """Build a pod that never ran."""
    metadata = pod("", job=job, age_s=age_s).metadata
    return Pod(
        metadata=metadata, status=PodStatus(phase=phase, reason=reason, message="no healthy devices present")
    )


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        pytest.param([], "", id="no pod"),
        pytest.param(
            [refused("UnexpectedAdmissionError")],
            "kubelet refused its pod: UnexpectedAdmissionError: no healthy devices present",
            id="its devices could not be handed out",
        ),
        pytest.param(
            [refused("OutOfnvidia.com/gpu")],
            "kubelet refused its pod: OutOfnvidia.com/gpu: no healthy devices present",
            id="there were fewer devices than the Node said",
        ),
        pytest.param([refused("Evicted")], "", id="it was evicted: nobody refused it"),
        pytest.param([refused("DeadlineExceeded")], "", id="its time was up"),
        pytest.param([refused("UnexpectedAdmissionError", phase="Pending")], "", id="not over yet"),
        pytest.param([refused("UnexpectedAdmissionError", job="other")], "", id="another Job's pod"),
        pytest.param([refused("UnexpectedAdmissionError", age_s=9), pod("x")], "", id="a newer pod did run"),
    ],
)
def test_a_pod_that_kubelet_refused(pods: list[Pod], why: str) -> None:
    """It never ran, so it says nothing about the node."""
    assert refusal(JOB, pods) == why
