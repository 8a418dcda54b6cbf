"""Simulated nodes on the real API server, and that KWOK plays only what our stages tell it to."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kube import paths
from kube.api import NotFound, PatchType
from sandbox import nodes as simulated
from sandbox.cluster import Sandbox
from sandbox.nodes import SimulatedNode
from sandbox.platforms import PlatformDefect, platform

T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = 30.0) -> T:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:g} s for {what}")


@pytest.mark.parametrize(
    ("kind", "resources", "arch"),
    [
        pytest.param(
            "HGX H100 8-GPU", {"nvidia.com/gpu": "8", "rdma/ib": "8"}, "amd64", id="8 GPUs and 8 ports"
        ),
        pytest.param("GCP a3-highgpu-8g", {"nvidia.com/gpu": "8"}, "amd64", id="no RDMA device, no resource"),
        pytest.param("GB200 NVL72 tray", {"nvidia.com/gpu": "4", "rdma/ib": "4"}, "arm64", id="an Arm host"),
    ],
)
def test_a_node_shows_its_platform(tmp_path: Path, kind: str, resources: dict[str, str], arch: str) -> None:
    """Capacity, labels and identity are those of the platform; the boot id is the machine's."""
    node = SimulatedNode("n1", platform(kind), tmp_path / "n1", number=300)
    body = node.body()
    node.close()

    devices = {key: value for key, value in body["status"]["capacity"].items() if "/" in key}
    labels = body["metadata"]["labels"]
    assert devices == resources
    assert labels["nvidia.com/gpu.product"] == platform(kind).gpu_product
    assert (labels["kubernetes.io/arch"], labels["nvidia.com/gpu.count"]) == (
        arch,
        resources["nvidia.com/gpu"],
    )
    assert body["status"]["nodeInfo"]["bootID"] == node.boot_id
    assert body["status"]["addresses"][0]["address"] == "10.64.1.44"


@pytest.fixture(scope="module")
def node(sandbox: Sandbox) -> Iterator[SimulatedNode]:
    (made,) = simulated.create(sandbox, ["kwok-node"])
    yield made
    made.delete(sandbox.admin)
    made.close()


def conditions(sandbox: Sandbox, node: SimulatedNode) -> dict[str, str]:
    return {c.type: c.status for c in node.read(sandbox.admin).status.conditions}


def test_a_created_node_is_ready_and_keeps_what_it_registered(sandbox: Sandbox, node: SimulatedNode) -> None:
    """KWOK adds conditions and nothing else: capacity, nodeInfo and addresses are ours."""
    raw = json.loads(sandbox.kubectl("get", "node", node.name, "-o", "json"))
    registered = node.body()["status"]

    assert conditions(sandbox, node)["Ready"] == "True"
    assert raw["status"]["nodeInfo"].items() >= registered["nodeInfo"].items()
    assert raw["status"]["addresses"] == registered["addresses"]
    assert raw["status"]["capacity"]["nvidia.com/gpu"] == "8"


def test_kwok_leaves_our_conditions_and_a_ready_that_is_false(sandbox: Sandbox, node: SimulatedNode) -> None:
    """A reboot is ours to show: Ready=False stays for as long as we say, and a new boot id stays for ever."""
    body: dict[str, Any] = {
        "status": {
            "nodeInfo": {"bootID": "another-boot"},
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "boots"},
                {"type": "GpuXidError", "status": "True", "reason": "Xid79FallenOffBus", "message": "m"},
            ],
        }
    }
    sandbox.admin.patch(paths.node_status(node.name), body, PatchType.STRATEGIC)
    time.sleep(3.0)
    after = node.read(sandbox.admin)
    seen = conditions(sandbox, node)
    body["status"]["conditions"][0]["status"] = "True"
    sandbox.admin.patch(paths.node_status(node.name), body, PatchType.STRATEGIC)
    simulated.wait_ready(sandbox.admin, node, 30)

    assert (seen["Ready"], seen["GpuXidError"]) == ("False", "True")
    assert after.status.node_info.boot_id == "another-boot"


def test_a_ready_that_turned_unknown_is_taken_back_by_the_kubelet(
    sandbox: Sandbox, node: SimulatedNode
) -> None:
    """After the API server or KWOK was away, the controller manager's Unknown does not stay."""
    body = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    sandbox.admin.patch(paths.node_status(node.name), body, PatchType.STRATEGIC)

    eventually(lambda: conditions(sandbox, node)["Ready"] == "True" or None, "Ready to be True again")
    simulated.wait_ready(sandbox.admin, node, 30)


def pod(name: str, node: SimulatedNode, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": node.name, "containers": [{"name": "c", "image": "i"}]},
    }


def phase(sandbox: Sandbox, namespace: str, name: str) -> str:
    try:
        raw = sandbox.admin.get(paths.pod(namespace, name))
    except NotFound:
        return "gone"
    found = json.loads(raw)
    return "ending" if "deletionTimestamp" in found["metadata"] else str(found["status"]["phase"])


def test_a_pod_runs_until_it_is_evicted_and_takes_its_time_to_end(
    sandbox: Sandbox, node: SimulatedNode, namespace: str
) -> None:
    """It is Running at once, Terminating for as long as its annotation says, then gone."""
    slow = {"sandbox.nodemend.dev/exits-after": "2s"}
    sandbox.admin.create(paths.pods(namespace), pod("slow", node, annotations=slow))
    eventually(lambda: phase(sandbox, namespace, "slow") == "Running" or None, "the pod to run")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "slow"}}
    sandbox.admin.create(paths.eviction(namespace, "slow"), eviction)
    time.sleep(1.0)
    meanwhile = phase(sandbox, namespace, "slow")
    eventually(lambda: phase(sandbox, namespace, "slow") == "gone" or None, "the pod to go")

    assert meanwhile == "ending"


def test_a_jobs_pod_does_not_end_by_itself(sandbox: Sandbox, node: SimulatedNode, namespace: str) -> None:
    """Training runs until somebody ends it; an evicted pod of a Job is replaced by another one."""
    template = {
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node.name},
            "containers": [{"name": "c", "image": "i"}],
        }
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "training"},
        "spec": {"template": template},
    }
    sandbox.admin.create(paths.jobs(namespace), job)

    def active() -> bool | None:
        status = json.loads(sandbox.admin.get(paths.job(namespace, "training")))["status"]
        return status.get("ready") == 1 or None

    eventually(active, "the Job's pod to run")
    time.sleep(2.0)

    assert active()


def test_a_node_of_an_unknown_platform_is_refused(sandbox: Sandbox) -> None:
    """Before anything is made."""
    with pytest.raises(PlatformDefect, match="known are"):
        simulated.create(sandbox, ["x"], "DGX Z9000")


def test_a_node_that_does_not_become_ready_is_named(sandbox: Sandbox) -> None:
    """The error says which node and what is wrong with it."""
    with pytest.raises(TimeoutError, match=r"node never-there after 0\.2 s: there is no such Node"):
        simulated.wait_ready(sandbox.admin, never_there(sandbox), 0.2)


def never_there(sandbox: Sandbox) -> SimulatedNode:
    node = SimulatedNode("never-there", platform("HGX H200"), sandbox.state_dir / "nodes" / "never-there")
    node.close()
    return node


def test_a_node_made_anew_is_played_by_kwok(sandbox: Sandbox, node: SimulatedNode) -> None:
    """It has a Lease of its own, renewed as before, and a pod that is deleted there ends."""
    api, namespace = sandbox.admin, "made-anew"
    sandbox.create_namespace(namespace)
    simulated.await_calm(api, node)
    node.delete(api)
    node.register(api)
    eventually(lambda: simulated.why_not_played(api, node) is None, "KWOK to play the new Node")
    pod = {
        "metadata": {"name": "work"},
        "spec": {"nodeName": node.name, "containers": [{"name": "c", "image": "example.invalid/work:1"}]},
    }
    api.create(paths.pods(namespace), pod)
    path = paths.pod(namespace, "work")
    eventually(lambda: json.loads(api.get(path))["status"]["phase"] == "Running", "the pod to run")
    api.delete(path)

    def gone() -> bool:
        try:
            api.get(path)
        except NotFound:
            return True
        return False

    assert eventually(gone, "the pod to end")
    simulated.await_calm(api, node)
    sandbox.kubectl("delete", "namespace", namespace, "--wait=false")
