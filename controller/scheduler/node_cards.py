"""The cards of a node: which there are, what each has, and how it is. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from checks.finding import EFFECT_RANK, Effect, PartKind, is_same_part
from controller.scheduler.node_findings import (
    GPU_CONDITIONS,
    Seen,
    faults,
    rank,
    unknown_class,
    unknown_of,
    worst_first,
)
from controller.scheduler.nodes import Gpu, PartHealth
from controller.scheduler.pod_request import GPU_RESOURCE
from controller.scheduler.rules import DEFAULT, Rules
from kube import quantity
from kube.nodehealth import HealthFinding, PartState
from kube.types import Node as KubeNode

GPU_COUNT: Final = "nvidia.com/gpu.count"
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
MIG_PRODUCT: Final = "-MIG-"
LONGEST_MIB: Final = 1 << 24
"""GPU feature discovery gives MiB; a greater number is bytes (KAI reads it so too)."""


def cards_of(seen: Seen, now: datetime, rules: Rules = DEFAULT) -> tuple[Gpu, ...]:
    """Give the cards of a node: those that the agent names, else as many as the node says that it has.

    A card cut into MIG instances is none where instances are resources of their own (strategy mixed), and with the strategy
    single each instance is offered as a GPU of its own. What pods may use of a card's memory is what its driver leaves them,
    where the agent could read that, else the label of GPU feature discovery, which is all that KAI knows.
    Raises: ValueError for a quantity or a label that cannot be read.
    """
    node = seen.node
    labels = node.metadata.labels
    mib, model = _memory_mib(labels.get(GPU_MEMORY, "")), labels.get(GPU_PRODUCT, "")
    parts, strategy = _parts(seen), mig_strategy(seen)
    given = quantity.whole(node.status.allocatable.get(GPU_RESOURCE, "0"))
    unknown = unknown_class(unknown_of(seen, now), GPU_CONDITIONS)
    found = faults(seen.health)
    whole = parts if strategy != "mixed" else tuple(part for part in parts if not part.mig)
    if strategy == "single" or not parts:
        count = given if strategy else _count(node, given)
        sick = _sick_ones(found, parts, count)
        return tuple(
            _unnamed(f"{node.metadata.name}/{index}", index, mib, model, sick, unknown)
            for index in range(count)
        )
    return tuple(
        _gpu(
            part,
            f"{node.metadata.name}/{position}",
            position,
            mib if part.memory_mib is None or not rules.exact_gpu_memory else part.memory_mib,
            part.model or model,
            found,
            unknown,
        )
        for position, part in enumerate(sorted(whole, key=_in_order))
    )


def why_unfenced(seen: Seen) -> str:
    """Say which sick card kubelet might still give to a pod, "" = none. A card that nobody names counts as offered."""
    for fault in sorted(faults(seen.health), key=worst_first):
        if _takes_card(fault) and not any(
            part.offered is False and is_same_part(fault.part, part) for part in _parts(seen)
        ):
            return f"node(s) had a sick GPU that kubelet still offers: {fault.reason}"
    return ""


def _parts(seen: Seen) -> tuple[PartState, ...]:
    if seen.health is None:
        return ()
    return tuple(part for part in seen.health.status.parts if part.kind == PartKind.GPU)


def _takes_card(fault: HealthFinding) -> bool:
    return fault.part.kind == PartKind.GPU and rank(fault.effect) >= EFFECT_RANK[Effect.PART_OUT]


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


def _sick_ones(found: Iterable[HealthFinding], parts: tuple[PartState, ...], count: int) -> list[str]:
    """Give a reason for each card that is proven sick, where nobody can tell which it is; the worst first.

    Of instances, all that a sick card would have if the cards were cut alike; what kubelet withdrew is not in `count`.
    """
    sick: dict[str, str] = {}
    for fault in sorted(found, key=worst_first):
        withdrawn = any(part.offered is False and is_same_part(fault.part, part) for part in parts)
        if _takes_card(fault) and not withdrawn:
            sick.setdefault(fault.part.uuid or fault.part.pci or str(fault.part.index), fault.reason)
    offered = sum(part.offered is not False for part in parts)
    each = -(-count // offered) if offered else 1
    return [why for why in sick.values() for _ in range(each)][:count]


def _unnamed(uuid: str, index: int, mib: int, model: str, sick: list[str], unknown: str) -> Gpu:
    """Give a card that no agent names: the first of them stand for those that are sick."""
    health, why = PartHealth.HEALTHY, ""
    if index < len(sick):
        health, why = PartHealth.SICK, sick[index]
    elif unknown:
        health, why = PartHealth.UNKNOWN, unknown
    return Gpu(uuid=uuid, index=index, memory_mib=mib, model=model, health=health, why=why)


def _gpu(
    part: PartState,
    name: str,
    position: int,
    mib: int,
    model: str,
    found: Iterable[HealthFinding],
    unknown: str,
) -> Gpu:
    """Give a card that the agent names; `name` is for one that has neither a UUID nor an address."""
    mine = sorted((fault for fault in found if is_same_part(fault.part, part)), key=worst_first)
    sick = next((fault for fault in mine if rank(fault.effect) >= EFFECT_RANK[Effect.PART_OUT]), None)
    health, why = PartHealth.HEALTHY, ""
    if sick is not None:
        health, why = PartHealth.SICK, sick.reason
    elif unknown:
        health, why = PartHealth.UNKNOWN, unknown
    avoided = next((fault.reason for fault in mine if fault.effect == Effect.PREFER_NOT), "")
    return Gpu(
        uuid=part.uuid or part.pci or name,
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


def mig_strategy(seen: Seen) -> str:
    """Give the MIG strategy by which a node's cards are cut, "" = they are not.

    GPU feature discovery's label says how instances would be offered, and single is GPU Operator's default on cards that are
    whole: then its name of the product names no instance.
    """
    labels, parts = seen.node.metadata.labels, _parts(seen)
    strategy = labels.get(MIG_STRATEGY, "")
    is_cut = any(part.mig for part in parts)
    if strategy == "single":
        return strategy if is_cut or MIG_PRODUCT in labels.get(GPU_PRODUCT, "") else ""
    return strategy if strategy == "mixed" and (is_cut or not parts) else ""
