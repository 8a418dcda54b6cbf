"""The cards of a node: which there are, what each has, and how it is. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from checks.finding import EFFECT_RANK, Effect, PartKind, is_same_part
from controller.scheduler.model import Gpu, PartHealth
from controller.scheduler.node_findings import (
    GPU_CONDITIONS,
    Seen,
    faults,
    rank,
    unknown_of,
    unknown_words,
    worst_first,
)
from controller.scheduler.pod_request import GPU_RESOURCE
from kube import quantity
from kube.nodehealth import HealthFinding, PartState
from kube.types import Node as KubeNode

GPU_COUNT: Final = "nvidia.com/gpu.count"
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
LONGEST_MIB: Final = 1 << 24
"""GPU feature discovery gives MiB; a greater number is bytes (KAI reads it so too)."""


def cards_of(seen: Seen, now: datetime) -> tuple[Gpu, ...]:
    """Give the cards of a node: those that the agent names, else as many as the node says that it has.

    A card cut into MIG instances is none where instances are resources of their own (strategy mixed), and with the strategy
    single each instance is offered as a GPU of its own.
    """
    node, health = seen.node, seen.health
    labels = node.metadata.labels
    mib, model = _memory_mib(labels.get(GPU_MEMORY, "")), labels.get(GPU_PRODUCT, "")
    parts = () if health is None else tuple(part for part in health.status.parts if part.kind == PartKind.GPU)
    strategy = mig_strategy(node)
    given = quantity.whole(node.status.allocatable.get(GPU_RESOURCE, "0"))
    unknown = unknown_words(unknown_of(seen, now), GPU_CONDITIONS)
    if strategy == "mixed":
        parts = tuple(part for part in parts if not part.mig)
    if not parts or strategy == "single":
        count = 0 if strategy == "mixed" else given if strategy == "single" else _count(node, given)
        health_now, why = _worst_of_all(seen, unknown)
        return tuple(
            Gpu(
                uuid=f"{node.metadata.name}/{index}",
                index=index,
                memory_mib=mib,
                model=model,
                health=health_now,
                why=why,
            )
            for index in range(count)
        )
    found = faults(health)
    return tuple(
        _gpu(part, position, mib, part.model or model, found, unknown)
        for position, part in enumerate(sorted(parts, key=_in_order))
    )


def offers_gpus(node: KubeNode) -> bool:
    """Whether kubelet gives cards, and not a driver of resource claims alone."""
    return GPU_RESOURCE in node.status.allocatable or GPU_RESOURCE in node.status.capacity


def _in_order(part: PartState) -> tuple[int, str, str]:
    return (1 << 30 if part.index is None else part.index, part.pci, part.uuid)


def _count(node: KubeNode, given: int) -> int:
    """How many cards there are where no agent names them: what is offered, or more where the hardware has more."""
    label = node.metadata.labels.get(GPU_COUNT, "")
    capacity = quantity.whole(node.status.capacity.get(GPU_RESOURCE, "0"))
    return max(given, capacity, int(label) if label.isdecimal() else 0) if given or capacity else 0


def _worst_of_all(seen: Seen, unknown: str) -> tuple[PartHealth, str]:
    """Cards that nobody can tell apart are as sick as the sickest."""
    for fault in sorted(faults(seen.health), key=worst_first):
        if fault.part.kind == PartKind.GPU and rank(fault.effect) >= EFFECT_RANK[Effect.PART_OUT]:
            return PartHealth.SICK, fault.reason
    return (PartHealth.UNKNOWN, unknown) if unknown else (PartHealth.HEALTHY, "")


def _gpu(
    part: PartState, position: int, mib: int, model: str, found: Iterable[HealthFinding], unknown: str
) -> Gpu:
    mine = sorted((fault for fault in found if is_same_part(fault.part, part)), key=worst_first)
    sick = next((fault for fault in mine if rank(fault.effect) >= EFFECT_RANK[Effect.PART_OUT]), None)
    health, why = PartHealth.HEALTHY, ""
    if sick is not None:
        health, why = PartHealth.SICK, sick.reason
    elif unknown:
        health, why = PartHealth.UNKNOWN, unknown
    avoided = next((fault.reason for fault in mine if fault.effect == Effect.PREFER_NOT), "")
    return Gpu(
        uuid=part.uuid or part.pci or str(position),
        index=position if part.index is None else part.index,
        memory_mib=mib,
        model=model,
        health=health,
        why=why,
        offered=part.offered is not False,
        avoid=avoided,
    )


def _memory_mib(label: str) -> int:
    """Read GPU feature discovery's label.

    Raises: ValueError where it is no number.
    """
    if not label:
        return 0
    number = quantity.whole(label)
    return number >> 20 if number > LONGEST_MIB else number


def mig_strategy(node: KubeNode) -> str:
    """Give the MIG strategy of GPU feature discovery's label, "" = none."""
    strategy = node.metadata.labels.get(MIG_STRATEGY, "")
    return "" if strategy == "none" else strategy
