"""The whole chain on a real node: a kernel record, the product's DaemonSet pod, condition, quarantine, eviction of real
pods, the repair's Job on the kubelet, proof, revalidation by the product's own program, and everything as it was found.

The controller is a process under its own ServiceAccount's token; who wrote what is read in the API server's audit record.
Simulated are the machine below the node (boot, PCI bus, NVIDIA driver) and its reboot.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.repairs import INCIDENT_LABEL
from kube.remediation import Phase
from sandbox.acts import loop_milestones
from sandbox.cluster import Sandbox
from sandbox.gpu_operator import DEPLOY_DEVICE_PLUGIN
from sandbox.kubelet_node import KubeletNode
from sandbox.story import Milestone, Scene
from tests.cluster.real_node import (
    AGENT,
    GPUS_A_POD,
    PLUGIN,
    REPAIRS,
    SYSTEM_NAMESPACE,
    WORK_PODS,
    Stage,
    pods,
    standing,
)

SICK = 3
AGENT_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:nodemend-agent"
CONTROLLER_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:nodemend-controller"
NODE_CLAIM, POD_CLAIM = "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/pod-name"


@pytest.fixture(scope="module")
def stage(
    kubelet_sandbox: Sandbox, kubelet_node: KubeletNode, tell_chain: Callable[[str], None]
) -> Iterator[Stage]:
    """The node with its agent, device plugin and team's pods, and a controller that leads."""
    with standing(kubelet_sandbox, kubelet_node) as stage:
        tell_chain(f"faults written to {stage.log}")
        yield stage


def _writes(stage: Stage, user: str, since: int = 0) -> list[dict[str, Any]]:
    return [event for event in stage.sandbox.audit_events()[since:] if event["user"]["username"] == user]


def _done(events: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """Give verb, resource with subresource, and name of what was written; a made-up name is left out."""
    found = set()
    for event in events:
        about = event["objectRef"]
        resource = "/".join(filter(None, (about["resource"], about.get("subresource", ""))))
        found.add((event["verb"], resource, about.get("name", "")))
    return found


def test_a_kernel_record_takes_a_real_node_out_and_a_reboot_brings_it_back(stage: Stage) -> None:
    """XID 79: condition, cordon and taint, the pods evicted and kept waiting, Jobs on the kubelet, the node as found."""
    stage.set_policy(taint="always")
    work = {pod.metadata.uid: f"team-a/{pod.metadata.name}" for pod in stage.await_work()}
    stage.until(
        lambda: sorted(stage.holders()) == sorted([*work.values()] * GPUS_A_POD), "their GPUs to be held"
    )
    stage.until(lambda: len(pods(stage.sandbox, *AGENT)) == 1, "an earlier agent's pod to be gone")
    before, boot_id, since = stage.before(), stage.node.boot_id, len(stage.sandbox.audit_events())
    agent = pods(stage.sandbox, *AGENT)[0].metadata

    def replacements_wait(scene: Scene) -> str | None:
        """Look once the node is empty: the replacements must wait, unbound."""
        drained = scene.remediation is not None and scene.remediation.status.drain is not None
        if not drained or scene.work_pods:
            return None
        unbound = [pod.status.phase for pod in stage.watching.pods.values() if not pod.spec.node_name]
        return "Pending" if unbound == ["Pending"] * WORK_PODS else None

    told = stage.play(
        [
            *loop_milestones(boot_id, WORK_PODS),
            Milestone(name="waits", title="replacements wait", seen=replacements_wait),
        ],
        lambda: stage.write_xid(79, "GPU has fallen off the bus.", SICK),
    )

    order = [one.name for one in told]
    assert (
        order.index("condition") < order.index("quarantined") < order.index("drained") < order.index("repair")
    )
    assert (
        order.index("rebooted")
        < order.index("proven")
        < order.index("revalidated")
        <= order.index("returned")
    )
    assert next(one.words for one in told if one.name == "quarantined") == "unschedulable, tainted"
    assert stage.attempts() == [("reboot", "Succeeded"), ("revalidate", "Succeeded")], stage.story()
    assert "8 found, 8 answer, 8 demanded" in stage.validation()
    assert stage.before() == before
    assert stage.node.read().status.node_info.boot_id == stage.node.boot_id != boot_id
    assert work.keys().isdisjoint(pod.metadata.uid for pod in stage.await_work())
    _assert_who_wrote_what(stage, since, agent.name)


def _assert_who_wrote_what(stage: Stage, since: int, agent_pod: str) -> None:
    """The agent wrote of its own node alone, by its pod's own token; the controller did the rest, and nobody was denied."""
    name = stage.node.name
    agent, controller = _writes(stage, AGENT_USER, since), _writes(stage, CONTROLLER_USER, since)
    assert _done(agent) <= {
        ("patch", "nodes/status", name),
        ("create", "nodehealths", name),
        ("patch", "nodehealths/status", name),
        ("update", "nodehealths/status", name),
    }
    assert ("patch", "nodes/status", name) in _done(agent)
    claims = {
        (event["user"]["extra"][NODE_CLAIM][0], event["user"]["extra"][POD_CLAIM][0]) for event in agent
    }
    assert claims == {(name, agent_pod)}
    lease = stage.sandbox.kubectl(
        "get", "lease", name, "-n", SYSTEM_NAMESPACE, "-o", "jsonpath={.metadata.managedFields[*].manager}"
    )
    assert set(lease.split()) == {"nodemend-agent"}
    evicted = [event for event in controller if event["objectRef"].get("subresource") == "eviction"]
    assert len([event for event in evicted if event["responseStatus"]["code"] == 201]) == WORK_PODS
    denied = [event for event in (*agent, *controller) if event["responseStatus"]["code"] in (401, 403)]
    assert denied == []
    jobs = [
        e
        for e in stage.sandbox.audit_events()[since:]
        if e["verb"] == "create" and e["objectRef"]["resource"] == "jobs"
    ]
    assert {e["user"]["username"] for e in jobs} == {CONTROLLER_USER}
    one = stage.incident()
    assert one is not None
    ran = pods(stage.sandbox, REPAIRS, f"{INCIDENT_LABEL}={one.metadata.name}")
    assert {pod.spec.node_name for pod in ran} == {name}


def test_one_gpu_of_a_real_node_is_reset_while_the_node_runs_on(stage: Stage) -> None:
    """XID 95: the driver is let go of, GPU Operator's device plugin leaves and comes back, nvidia-smi resets one GPU."""
    stage.set_policy(taint="auto")
    stage.await_work()
    before, boot_id = stage.before(), stage.node.boot_id
    plugin = [pod.metadata.uid for pod in pods(stage.sandbox, *PLUGIN)]
    uuid = stage.node.gpus[SICK].uuid

    def let_go(scene: Scene) -> str | None:
        """The agent says so only when its child is gone; then nobody has the library open."""
        released = scene.health.status.released if scene.health is not None else None
        if released is not None and not stage.driver.clients():
            return f"by {released.by}"
        return None

    def returned(scene: Scene) -> str | None:
        one = scene.remediation
        return "the same boot" if one is not None and one.status.phase is Phase.RETURNED else None

    def begin() -> None:
        stage.driver.require_reset(SICK)
        stage.write_xid(95, "Uncontained ECC error", SICK)

    milestones = [
        Milestone(name="released", title="driver let go of", seen=let_go),
        Milestone(name="returned", title="node given back", seen=returned),
    ]
    stage.until(lambda: bool(stage.driver.clients()), "the agent to hold the driver")
    stage.play(milestones, begin)

    assert stage.attempts() == [("reset-gpu", "Succeeded"), ("revalidate", "Succeeded")], stage.story()
    assert [stage.driver.resets(number) for number in range(8)] == [
        int(number == SICK) for number in range(8)
    ]
    one = stage.incident()
    assert one is not None
    assert [target.uuid for target in one.status.attempts[0].targets] == [uuid]
    assert stage.node.boot_id == boot_id == stage.node.read().status.node_info.boot_id
    stage.until(lambda: stage.before() == before, "the Node as it was found")
    assert stage.before()["labels"][DEPLOY_DEVICE_PLUGIN] == "true"
    again = [pod.metadata.uid for pod in pods(stage.sandbox, *PLUGIN)]
    assert len(again) == 1
    assert again != plugin
    health = stage.watching.healths.get(stage.node.name)
    assert health is not None
    assert (health.spec.release, health.status.released, health.status.findings) == (None, None, ())
    stage.await_work()


def test_a_gpu_that_nvml_has_lost_takes_the_node_out_and_a_reboot_brings_it_back(stage: Stage) -> None:
    """No kernel line at all: GpuMissing by NVML alone; the boot finds the GPU again, and all eight are validated."""
    stage.await_work()
    before, boot_id = stage.before(), stage.node.boot_id

    stage.play(loop_milestones(boot_id, WORK_PODS, "GpuMissing"), lambda: stage.driver.lose(SICK))

    assert stage.attempts() == [("reboot", "Succeeded"), ("revalidate", "Succeeded")], stage.story()
    assert "8 found, 8 answer, 8 demanded" in stage.validation()
    assert stage.before() == before
