"""The optional components: which queues a namespace may use, and namespaces whose GPU pods go through the scheduler."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from kube import paths
from kube.api import PatchType
from sandbox.cluster import Sandbox
from sandbox.install import install_scheduler
from tests.fakes import wait_until
from tests.manifests.deeds import named
from tests.manifests.verdicts import SCHEDULER_ACCOUNT, Verdict, judged, pod, pod_group

QUEUE = "kai.scheduler/queue"
POLICIES = ("nodemend-namespace-queues", "nodemend-gpu-namespaces")
OPEN = "default"


@pytest.fixture(scope="module")
def team(scheduled: Sandbox) -> Iterator[str]:
    """A namespace that may use two queues and whose GPU pods are the scheduler's, while both components are there."""
    name = f"team-{secrets.token_hex(4)}"
    scheduled.create_namespace(name)
    body = {
        "metadata": {
            "annotations": {"nodemend.dev/queues": "team-a, team-b,pooled-h200"},
            "labels": {"nodemend.dev/gpu-scheduler": "nodemend-scheduler"},
        }
    }
    scheduled.admin.patch(paths.namespace(name), body, PatchType.MERGE)
    install_scheduler(scheduled, ["namespace-queues", "gpu-namespaces"])
    wrong = (pod(namespace=name, labels={QUEUE: "x"}), pod(namespace=name, gpus=1, schedulerName="other"))
    wait_until(lambda: not any(judged(scheduled, body).taken for body in wrong), 30)
    yield name
    for policy in POLICIES:
        kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
        scheduled.kubectl("delete", kinds, policy)
    scheduled.kubectl("delete", "namespace", name, "--wait=false")


def job(**labels: str) -> dict[str, Any]:
    container = {"name": "main", "image": "main:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    made = named("verdict", "Job", "batch/v1", spec={"template": template})
    made["metadata"]["labels"] = labels
    return made


def sent(sandbox: Sandbox, namespace: str, body: dict[str, Any], account: str = "") -> Verdict:
    return judged(
        sandbox, {**body, "metadata": {**body["metadata"], "namespace": namespace}}, "create", account
    )


POOL = {"project": "pooled", "kai.scheduler/node-pool": "h200"}


@pytest.mark.parametrize(
    ("body", "queue"),
    [
        pytest.param(pod(labels={QUEUE: "team-c"}), "team-c", id="a pod of another queue"),
        pytest.param(pod(labels={"project": "team-c"}), "team-c", id="a pod of another project"),
        pytest.param(pod(labels={"project": "pooled"}), "pooled", id="a project without its pool"),
        pytest.param(job(**{QUEUE: "team-c"}), "team-c", id="a Job of another queue"),
        pytest.param(pod_group(queue="team-c", minMember=1), "team-c", id="a PodGroup of another queue"),
        pytest.param(pod_group(queue="default-queue"), "default-queue", id="the default queue"),
    ],
)
def test_a_namespace_keeps_to_its_queues(
    scheduled: Sandbox, team: str, body: dict[str, Any], queue: str
) -> None:
    """The refusal names what is allowed; elsewhere the same is taken."""
    refused = sent(scheduled, team, body)

    assert not refused.taken
    assert f"namespace {team} may not use queue {queue}; " in refused.words
    assert "allows team-a, team-b, pooled-h200" in refused.words
    assert sent(scheduled, OPEN, body).taken


def test_the_scheduler_keeps_to_them_too(scheduled: Sandbox, team: str) -> None:
    """A workload whose kind nobody looked at is seen when its PodGroup is made."""
    refused = sent(scheduled, team, pod_group(queue="team-c", minMember=1), SCHEDULER_ACCOUNT)

    assert not refused.taken


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(pod(labels={QUEUE: "team-a"}), id="a pod of its queue"),
        pytest.param(pod(labels={QUEUE: "team-b", "project": "x"}), id="the queue goes before the project"),
        pytest.param(pod(labels=POOL), id="a project with its pool"),
        pytest.param(pod(), id="a pod that names none"),
        pytest.param(job(**{QUEUE: "team-b"}), id="a Job of its queue"),
        pytest.param(pod_group(queue="team-a", minMember=1), id="a PodGroup of its queue"),
        pytest.param(pod(gpus=8), id="GPUs by the scheduler"),
        pytest.param(pod(schedulerName="other"), id="no GPU, by another scheduler"),
        pytest.param(
            pod(labels={"project": "website"}, schedulerName="other"), id="a project that is no queue"
        ),
    ],
)
def test_what_a_namespace_may_is_taken(scheduled: Sandbox, team: str, body: dict[str, Any]) -> None:
    """In silence."""
    assert sent(scheduled, team, body) == Verdict(taken=True)


def test_what_was_there_before_the_list_lives_on(scheduled: Sandbox, team: str) -> None:
    """A Job's pods are written when they end: a list that came later must not hold that up."""
    api = scheduled.admin
    at = paths.namespace(team)
    api.patch(at, {"metadata": {"annotations": {"nodemend.dev/queues": "gone"}}}, PatchType.MERGE)
    stored = pod(name="before", namespace=team, labels={QUEUE: "gone"})
    api.create(paths.pods(team), stored)
    api.patch(
        at,
        {"metadata": {"annotations": {"nodemend.dev/queues": "team-a, team-b,pooled-h200"}}},
        PatchType.MERGE,
    )
    wait_until(lambda: not sent(scheduled, team, pod(labels={QUEUE: "gone"})).taken, 30)

    api.patch(paths.pod(team, "before"), {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE)
    api.delete(paths.pod(team, "before"), {"gracePeriodSeconds": 0})


def asking(key: str, where: str = "limits", **spec: Any) -> dict[str, Any]:
    return pod(
        containers=[
            {"name": "main", "image": "main:1", "resources": {"limits": {key: "1"}, where: {key: "1"}}}
        ],
        schedulerName="default-scheduler",
        **spec,
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(asking("nvidia.com/gpu"), "not through default-scheduler", id="GPUs past it"),
        pytest.param(asking("nvidia.com/mig-1g.10gb"), "not through default-scheduler", id="a MIG slice"),
        pytest.param(asking("nvidia.com/gpu.shared", "requests"), "not through", id="a replica of a GPU"),
        pytest.param(pod({"gpu-memory": "1024"}, schedulerName="other"), "not through other", id="a part"),
        pytest.param(pod(gpus=1, nodeName="n"), "leave out spec.nodeName", id="a node by its name"),
    ],
)
def test_gpu_pods_of_such_a_namespace_go_through_the_scheduler(
    scheduled: Sandbox, team: str, body: dict[str, Any], words: str
) -> None:
    """Elsewhere they go where they like."""
    refused = sent(scheduled, team, body)

    assert not refused.taken
    assert words in refused.words
    assert sent(scheduled, OPEN, body).taken
