"""GPU nodes that no agent ever reported: nobody knows whether they are ill. Pure.

A pool without the agent must go on working, so by default such nodes count as healthy, and that is said as long as the pool
has no report at all: from the first one on, a node without is new, and its agent is on its way. A pool may refuse instead.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from controller.scheduler.nodes import Device, Node
from kube.policy import Unseen as Unseen

NEVER_REPORTED: Final = "node(s) had GPUs that no agent ever reported"


def gpu_nodes(nodes: Iterable[Node], devices: Iterable[Device]) -> frozenset[str]:
    """Name the nodes with GPUs, be it that kubelet gives them or a driver of claims (whose class says so in its name)."""
    claimed = {device.node for device in devices if "gpu" in device.device_class.lower()}
    return frozenset(node.name for node in nodes if node.gpus or node.mig or node.name in claimed)


def without_new_gpus(node: Node) -> Node:
    """Give a node that takes no new pod with a GPU for want of knowledge alone, so that nobody is evicted for it."""
    if node.no_new_gpu:
        return node
    return msgspec.structs.replace(node, no_new_gpu=NEVER_REPORTED, unseen=(*node.unseen, "no_new_gpu"))


def warning(pool: str, unreported: Collection[str]) -> str:
    """Say that GPU nodes of a pool without any report count as healthy."""
    return (
        f'NodeHealth: no agent reported any node of the pool "{pool}" yet, so that its GPU nodes ({len(unreported)}) '
        "count as healthy; with unseen: refuse they would take no new GPU pods"
    )
