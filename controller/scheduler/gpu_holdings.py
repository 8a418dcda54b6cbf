"""Which cards the pods of a node hold, as far as anybody knows. Pure.

Pods that share a card carry its group's name (KAI's label); the group's reservation pod knows the card. Of pods with whole
GPUs the agent knows from kubelet (NodeHealth, `heldBy`), by their names alone: what it said before a pod was created is of
an earlier one of that name, such as a StatefulSet's that was evicted from a sick card. Where nobody knows, no card is named:
the ledger then takes a free one for it, so that the numbers are right.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final

from kube.nodehealth import NodeHealth
from kube.types import Pod

GPU_GROUP: Final = "runai-gpu-group"
GPU_GROUP_PREFIX: Final = "runai-gpu-group/"
RESERVED_UUID: Final = "run.ai/reserve_for_gpu_index"
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"


def is_reservation(pod: Pod) -> bool:
    """Tell whether a pod only keeps a card for those that share it: it counts for nobody besides them."""
    return pod.metadata.namespace == RESERVATION_NAMESPACE and GPU_GROUP in pod.metadata.labels


def groups_of(pod: Pod) -> tuple[str, ...]:
    """Give the groups of cards that a pod shares, in order of name."""
    labels = pod.metadata.labels
    several = sorted(value for key, value in labels.items() if key.startswith(GPU_GROUP_PREFIX))
    if several:
        return tuple(several)
    return (labels[GPU_GROUP],) if labels.get(GPU_GROUP) else ()


def lonely_reservations(pods: Iterable[Pod], bound: Container[str]) -> frozenset[str]:
    """Name the reservation pods whose card nobody shares, on a node or (`bound`, by UUID) in a bind that does not show yet.

    They hold the card for kubelet all the same, until somebody deletes them.
    """
    every = tuple(pods)
    shared = {
        (pod.spec.node_name, group) for pod in every if not is_reservation(pod) for group in groups_of(pod)
    }
    return frozenset(
        _name(pod)
        for pod in every
        if is_reservation(pod)
        and (pod.spec.node_name, pod.metadata.labels[GPU_GROUP]) not in shared
        and pod.metadata.annotations.get(RESERVED_UUID, "") not in bound
    )


def holdings(
    pods: Iterable[Pod], health: NodeHealth | None, cards: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Give the cards of each pod of a node, by namespace/name.

    A group whose card nobody knows is given one that no other is known to hold, in the cards' order: its pods share it. So
    is one whose card is none of `cards`, as on a node that no agent reported: one card is held, whichever it is.
    """
    cards = tuple(cards)
    here = frozenset(cards)
    every = sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    held = _held(health)
    for pod in every:
        if held and _is_younger(pod, health):
            held.pop(_name(pod), None)
    of_group = {
        pod.metadata.labels[GPU_GROUP]: uuid
        for pod in every
        if is_reservation(pod)
        for uuid in (pod.metadata.annotations.get(RESERVED_UUID) or next(iter(held.get(_name(pod), ())), ""),)
        if uuid in here
    }
    known = {*of_group.values(), *(uuid for uuids in held.values() for uuid in uuids)}
    free = [uuid for uuid in cards if uuid not in known]
    for group in sorted({group for pod in every for group in groups_of(pod)} - of_group.keys()):
        if free:
            of_group[group] = free.pop(0)
    found: dict[str, tuple[str, ...]] = {}
    for pod in every:
        shared = tuple(of_group[group] for group in groups_of(pod) if group in of_group)
        found[_name(pod)] = shared or held.get(_name(pod), ())
    return found


def _held(health: NodeHealth | None) -> dict[str, tuple[str, ...]]:
    """Give the cards of each pod that kubelet named; a card with several holders is no pod's alone."""
    found: dict[str, list[str]] = {}
    for part in () if health is None else health.status.parts:
        if part.uuid and part.held and "/" in part.held_by and " " not in part.held_by:
            found.setdefault(part.held_by, []).append(part.uuid)
    return {name: tuple(sorted(uuids)) for name, uuids in found.items()}


def _is_younger(pod: Pod, health: NodeHealth | None) -> bool:
    """Tell whether a pod was created after what the agent says; a pod's age is known to the second."""
    told = None if health is None else health.status.observed_at
    created = pod.metadata.creation_timestamp
    return told is not None and created is not None and created >= told.replace(microsecond=0)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
