"""The scheduler on a real control plane while GPUs fall ill: agents report it, and the next cycle knows.

The agents are the product's own, reading simulated kernel logs; the controller is the real process.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from kube import paths
from kube.api import ApiError, NotFound, PatchType
from sandbox.actors import start_agent, start_controller
from sandbox.agents import AgentHost
from sandbox.identities import AgentIdentities
from sandbox.nodes import SimulatedNode
from sandbox.pod_resources import PodResourcesServer, allocatable
from tests.agent.pod_resources_server import socket_path
from tests.cluster.scheduler_stage import POOL_LABEL, QUICK_LEASE, Raw, SchedulerStage

A_CYCLE_S = 1.0
GPU = "nvidia.com/gpu"
RACK = "sandbox.nodemend.dev/rack"


@contextmanager
def reporting(stage: SchedulerStage, machines: Sequence[SimulatedNode]) -> Iterator[None]:
    """Give each machine its agent; begins when all have looked and found nothing."""
    identities = AgentIdentities(stage.sandbox)
    host = AgentHost(identities, machines)
    host.start()
    try:
        stage.until(lambda: all(is_told(stage, one.name, "False") for one in machines), "all agents to look")
        yield
    finally:
        host.stop()
        identities.close()
        for one in machines:
            with suppress(ApiError):
                stage.admin.delete(paths.node_health(one.name))


def is_told(stage: SchedulerStage, node: str, status: str) -> bool:
    """Tell whether condition and NodeHealth of a node are in."""
    conditions = stage.read(paths.node(node))["status"]["conditions"]
    if not any(one["type"] == "GpuXidError" and one["status"] == status for one in conditions):
        return False
    with suppress(ApiError):
        told = stage.read(paths.node_health(node)).get("status", {})
        return bool(told.get("nodeUID")) and (status == "False" or bool(told.get("findings")))
    return False


def test_from_the_next_cycle_on_a_sick_node_takes_no_pod_and_shares_follow(stage: SchedulerStage) -> None:
    """Pods come all the while; what runs there stays. Quotas beyond what is left are told to be short, and why."""
    sick, healthy = stage.add_machines(2)
    one, other = stage.queue("one", quota=8), stage.queue("other", quota=8)
    with reporting(stage, [sick, healthy]), ThreadPoolExecutor(1) as creator:
        stage.start(placement={"gpu": "spread"})
        for number in range(4):
            selector = {"kubernetes.io/hostname": (sick, healthy)[number % 2].name}
            stage.create_pod(f"before-{number}", one, nodeSelector=selector)
        stage.until(lambda: len(stage.running("before")) == 4, "four to run")
        before = stage.running("before")
        coming = creator.submit(keep_coming, stage, other, 12)
        sick.write_xid(79, "GPU has fallen off the bus.", gpu=3)
        stage.until(lambda: is_told(stage, sick.name, "True"), "the agent to report it")
        told_at = time.monotonic()
        coming.result()
        stage.until(
            lambda: list(stage.running("").values()).count(healthy.name) == 8, "the other node to fill"
        )
        stage.until(lambda: all(stage.why(name) for name in stage.waiting("after")), "the rest to say why")
        late = [
            pod.metadata.name
            for pod in stage.alive("").values()
            if pod.spec.node_name == sick.name and stage.bound_at[pod.metadata.uid] > told_at + A_CYCLE_S
        ]
        assert late == []
        assert len(stage.waiting("after")) >= 2
        assert "1 node(s) had GpuXidError: Xid79FallenOffBus" in stage.why(stage.waiting("after")[0])
        assert stage.running("before") == before
        assert stage.disrupted == {}
        stage.until(
            lambda: "out of service" in stage.queue_condition(other, "Shortage"), "the shortage to be told"
        )
        told = stage.queue_condition(other, "Shortage")
        assert "its share is 6 GPUs of a quota of 8 GPUs: the pool has 8 GPUs" in told
        assert f"node {sick.name} (8 GPUs, node(s) had GpuXidError: Xid79FallenOffBus)" in told
        assert stage.metric("nodemend_scheduler_queue_gpus", queue=other, amount="fair_share") == 6
        stage.until(
            lambda: stage.gpus_of(one)[0] == 2, "what runs on the sick node to leave the books with it"
        )
    stage.check_books()


def keep_coming(stage: SchedulerStage, queue: str, count: int) -> None:
    for number in range(count):
        stage.create_pod(f"after-{number:02}", queue)
        time.sleep(0.15)


def test_a_sick_gpu_that_kubelet_withholds_is_avoided_alone(stage: SchedulerStage) -> None:
    """The other seven of its node are given away, and the pool has one less."""
    (machine,) = stage.add_machines(1)
    queue = stage.queue("team", quota=8)
    sick = machine.gpus[3].uuid
    withheld: set[str] = set()

    def kubelet(method: str, _context: Any) -> bytes:
        """Offer what is not withheld; nobody has any."""
        offered = (one.uuid for one in machine.gpus if one.uuid not in withheld)
        return b"" if method == "List" else allocatable(GPU, *offered)

    with socket_path() as path:
        server = PodResourcesServer(path)
        server.answer_by(kubelet)
        settings = {"kubelet": {"enabled": True, "interval": "5s", "pod_resources": str(path)}}
        with server:
            agent = start_agent(stage.sandbox, machine, settings=settings)
            try:
                stage.until(
                    lambda: part(stage, machine.name, sick).get("offered") is True, "the agent to ask kubelet"
                )
                withheld.add(sick)
                less = {"status": {"allocatable": {GPU: "7"}}}
                stage.admin.patch(paths.node_status(machine.name), less, PatchType.MERGE)
                machine.write_xid(95, "Uncontained ECC error", gpu=3)
                stage.until(
                    lambda: (
                        is_told(stage, machine.name, "True")
                        and part(stage, machine.name, sick).get("offered") is False
                    ),
                    "the agent to report it, and that kubelet offers it to nobody",
                )
                stage.start()
                for number in range(8):
                    stage.create_pod(f"pod-{number}", queue)
                stage.until(lambda: len(stage.running("")) == 7, "seven to run")
                stage.until(lambda: bool(stage.why((stage.waiting("") or [""])[0])), "the eighth to say why")
                assert len(stage.running("")) == 7
                assert "Xid95UncontainedEcc" in stage.why(stage.waiting("")[0])
                stage.until(
                    lambda: sick in stage.queue_condition(queue, "Shortage"), "the missing part to be named"
                )
            finally:
                agent.stop()
                stage.admin.delete(paths.node_health(machine.name))
    stage.check_books()


def part(stage: SchedulerStage, node: str, uuid: str) -> Raw:
    """Give what a NodeHealth says of a GPU; empty where it says nothing."""
    with suppress(NotFound):
        parts = stage.read(paths.node_health(node)).get("status", {}).get("parts", ())
        return next((one for one in parts if one.get("uuid") == uuid), {})
    return {}


def test_a_gang_that_loses_a_node_to_quarantine_starts_again_in_its_domain(stage: SchedulerStage) -> None:
    """The controller drains the member; its room beside the others is kept for the successor, whoever else wants it."""
    machines = stage.add_machines(4)
    for machine, rack in zip(machines, ("a", "a", "a", "b"), strict=True):
        stage.label(machine.name, RACK, f"{stage.pool}-{rack}")
    racks = {machine.name: rack for machine, rack in zip(machines, "aaab", strict=True)}
    queue = stage.queue("research", quota=32)
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": stage.pool},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    topologies = paths.collection("kai.scheduler", "v1alpha1", "topologies")
    stage.admin.create(topologies, topology)
    stage.others.append(paths.member(topologies, stage.pool))
    with reporting(stage, machines), containing(stage):
        stage.start()
        placement = {"kai.scheduler/topology": stage.pool, "kai.scheduler/topology-required-placement": RACK}
        stage.create_job("gang", queue, pods=2, gpus=8, least=2, annotations=placement)
        stage.until(lambda: len(stage.running("gang")) == 2, "the gang to run")
        first = stage.running("gang")
        assert {racks[node] for node in first.values()} == {"a"}
        (lost, node), (stays, _) = first.items()
        next(one for one in machines if one.name == node).write_xid(79, "GPU has fallen off the bus.", gpu=3)
        stage.until(lambda: lost not in stage.running("gang"), "the member to be drained")
        for number in range(2):
            stage.create_pod(f"thief-{number}", queue, 8)
        stage.until(lambda: len(stage.running("gang")) == 2, "the gang to be whole again", timeout_s=90)
        assert stays in stage.running("gang")
        assert {racks[node] for node in stage.running("gang").values()} == {"a"}
        assert node not in stage.running("gang").values()
        assert [racks[node] for node in stage.running("thief").values()] == ["b"]
    stage.check_books()


@contextmanager
def containing(stage: SchedulerStage) -> Iterator[None]:
    """Let the controller govern this pool."""
    policy = {
        "apiVersion": "nodemend.dev/v1alpha1",
        "kind": "RemediationPolicy",
        "metadata": {"name": stage.pool},
        "spec": {
            "mode": "Enforce",
            "priority": 100,
            "containment": "narrow",
            "nodeSelector": {POOL_LABEL: stage.pool},
            "budget": {"maxUnavailable": "50%", "maxQuarantined": "50%"},
            "ladder": [{"repair": "reboot", "timeout": "5m"}],
            "drain": {"deadline": "10m", "unmanagedPods": "evict"},
        },
    }
    stage.admin.create(paths.policies(), policy)
    (controller,) = start_controller(stage.sandbox, settings={"leader": QUICK_LEASE})
    try:
        yield
    except AssertionError:
        print(controller.logs[-3000:])
        raise
    finally:
        controller.stop()
        stage.admin.delete(paths.policy(stage.pool))
        for one in stage.read(paths.remediations())["items"]:
            if one["spec"]["nodeName"] in stage.nodes:
                stage.admin.delete(paths.remediation(one["metadata"]["name"]))
