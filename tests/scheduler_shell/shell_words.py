"""Short words for the shell's tests: pods, nodes and orders as the stores and plans have them."""

from collections.abc import Iterable

from controller.outcome import Result
from controller.scheduler.plan import Bind, Evict
from controller.scheduler.shell.effects import Answer
from controller.scheduler.shell.orders import BindOrder, GangOrder, Victim, VictimSet
from kube.types import (
    Container,
    Node,
    NodeCondition,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from tests.fakes import EPOCH

OURS = "nodemend-scheduler"


def waiting_pod(name: str, *, uid: str = "", node: str = "", gpus: int = 1, phase: str = "Pending") -> Pod:
    """Give a pod of ours in the namespace `ns`."""
    asked = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=uid or f"uid-{name}",
            resource_version="1",
            creation_timestamp=EPOCH,
        ),
        spec=PodSpec(
            scheduler_name=OURS,
            node_name=node,
            containers=(
                Container(name="main", resources=ResourceRequirements(requests=asked, limits=asked)),
            ),
        ),
        status=PodStatus(phase=phase),
    )


def ready_node(name: str = "a", *, uid: str = "node-uid", ready: str = "True", version: str = "1") -> Node:
    """Give a Node of eight GPUs."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return Node(
        metadata=ObjectMeta(name=name, uid=uid, resource_version=version),
        status=NodeStatus(
            conditions=(NodeCondition(type="Ready", status=ready),), allocatable=amounts, capacity=amounts
        ),
    )


def order(name: str, *, job: str = "ns/gang", node: Node | None = None, alone: bool = True) -> BindOrder:
    """Give the bind of one waiting pod."""
    target = node or ready_node()
    return BindOrder(
        bind=Bind(task=f"ns/{name}", job=job, node=target.metadata.name),
        pod=waiting_pod(name),
        node=target,
        health=None,
        annotations={},
        alone=alone,
    )


def gang(*names: str, job: str = "ns/gang") -> GangOrder:
    """Give binds that go together."""
    return GangOrder(job=job, members=tuple(order(name, job=job, alone=len(names) == 1) for name in names))


def victims(*names: str, gains: str = "ns/asks", namespace: str = "ns") -> VictimSet:
    """Give pods that leave together."""
    return VictimSet(
        gains=gains,
        victims=tuple(
            Victim(
                evict=Evict(
                    task=f"{namespace}/{name}",
                    job=f"{namespace}/lent",
                    node="a",
                    action="reclaim",
                    why="lent",
                    gains=gains,
                ),
                uid=f"uid-{name}",
            )
            for name in names
        ),
    )


def answer(result: Result, why: str = "") -> Answer:
    return Answer(result=result, why=why)


def keyed(pods: Iterable[Pod]) -> dict[str, Pod]:
    """Key pods as the stores do."""
    return {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods}
