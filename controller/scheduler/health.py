"""What a Node takes, by its own conditions and by what the agent knows of its parts. Pure.

Degraded is not dead: each finding takes away what its effect says, and no more. A part that is Unknown takes nothing new and
stays capacity; a part proven sick is no capacity. What the hardware cannot show (not evaluated) blocks nothing.

Kubelet picks the card: the rest of a node stays in use only while every sick card is fenced, which is when kubelet offers it
to nobody any more (NodeHealth, `offered`). Where that is not known the card counts as not fenced.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from checks.condition import Status
from controller.scheduler.node_cards import GPU_MEMORY, cards_of, mig_strategy, offers_gpus, why_unfenced
from controller.scheduler.node_findings import (
    GPU_CONDITIONS,
    PORT_CONDITION,
    STORAGE_CONDITIONS,
    Effects,
    Seen,
    faults,
    unknown_of,
    unknown_words,
)
from controller.scheduler.nodes import Gpu, Node
from controller.scheduler.pod_request import GPU_RESOURCE, MIG_PREFIX, is_other
from controller.scheduler.requests import Taint
from controller.scheduler.rules import Rules
from kube import quantity
from kube.nodehealth import NodeHealth
from kube.types import Node as KubeNode

PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def node_of(seen: Seen, now: datetime, rules: Rules) -> Node:
    """Give a node as the cycle sees it.

    Raises: ValueError for a quantity or a label that cannot be read.
    """
    node = seen.node
    allocatable = node.status.allocatable
    gpus = cards_of(seen, now, rules) if offers_gpus(node) else ()
    effects = Effects(faults(seen.health))
    closed, out = _closed(node, rules)
    unknown = unknown_of(seen, now)
    # Which pods use a mount is not known here, so none comes; what runs stays.
    storage_unknown = unknown_words(unknown, STORAGE_CONDITIONS)
    ports_unknown = unknown_words(unknown, (PORT_CONDITION,))
    gpus_unknown = unknown_words(unknown, GPU_CONDITIONS)
    memory = node.metadata.labels.get(GPU_MEMORY, "")
    return Node(
        name=node.metadata.name,
        labels=dict(sorted(node.metadata.labels.items())),
        taints=tuple(Taint(key=one.key, value=one.value, effect=one.effect) for one in node.spec.taints),
        cordoned=node.spec.unschedulable,
        closed=closed or effects.node_out or storage_unknown,
        out=out or bool(effects.node_out),
        no_new_gpu=why_unfenced(seen),
        no_multi_gpu=effects.no_multi_gpu,
        no_multi_node=effects.no_multi_node or ports_unknown,
        unseen=_unseen(
            closed=not out and not effects.node_out and bool(closed or storage_unknown),
            no_multi_node=not effects.no_multi_node and bool(ports_unknown),
            no_new_mig=bool(gpus_unknown),
        ),
        avoid=effects.avoid,
        cpu_milli=quantity.milli(allocatable.get("cpu", "0")),
        memory_bytes=quantity.whole(allocatable.get("memory", "0")),
        pods=quantity.whole(allocatable.get("pods", "110")),
        other={name: quantity.whole(text) for name, text in sorted(allocatable.items()) if is_other(name)},
        gpus=gpus,
        whole_gpus=_whole_gpus(allocatable, len(gpus)),
        mig={
            name.removeprefix(MIG_PREFIX): quantity.whole(text)
            for name, text in sorted(allocatable.items())
            if name.startswith(MIG_PREFIX)
        },
        mig_strategy=mig_strategy(seen),
        no_new_mig=gpus_unknown,
        gpu_memory_known=bool(memory) or _is_memory_known(gpus, rules),
    )


def told_of(node: KubeNode, health: NodeHealth | None) -> NodeHealth | None:
    """Give what the agent of this very node says: another machine's of the same name is none of its business.

    What it said before the node was booted again still makes a part sick, but nobody knows what kubelet offers now.
    """
    uid = node.metadata.uid
    if health is None or (health.status.node_uid and uid and health.status.node_uid != uid):
        return None
    told, boot = health.status.boot_id, node.status.node_info.boot_id
    if not told or not boot or told == boot:
        return health
    parts = tuple(
        msgspec.structs.replace(part, offered=None, held=None, held_by="") for part in health.status.parts
    )
    return msgspec.structs.replace(health, status=msgspec.structs.replace(health.status, parts=parts))


def _whole_gpus(allocatable: Mapping[str, str], count: int) -> int | None:
    """How many GPUs kubelet gives, where that is fewer than there are."""
    given = quantity.whole(allocatable.get(GPU_RESOURCE, "0"))
    return given if given < count else None


def _closed(node: KubeNode, rules: Rules) -> tuple[str, bool]:
    """Say why Kubernetes itself takes no new pod there, and whether it is no capacity.

    A kubelet that went silent (Ready Unknown) takes no new pod and stays capacity: nothing is evicted because nobody knows.
    KAI takes such a node, and one under pressure, off the total.
    """
    kai, cordoned = not rules.silence_keeps_capacity, node.spec.unschedulable
    ready = node.condition("Ready")
    if ready is not None and ready.status != Status.TRUE:
        silent = ready.status == Status.UNKNOWN
        return f"node(s) {'were unreachable' if silent else 'were not ready'}", kai or cordoned or not silent
    for name in PRESSURES:
        found = node.condition(name)
        if found is not None and found.status != Status.FALSE:
            return f"node(s) had condition: {name}", kai or cordoned
    return "", cordoned


def _is_memory_known(gpus: Iterable[Gpu], rules: Rules) -> bool:
    """Whether the agent read what KAI knows by a label alone."""
    sizes = [gpu.memory_mib for gpu in gpus]
    return rules.exact_gpu_memory and bool(sizes) and all(sizes)


def _unseen(**limits: bool) -> tuple[str, ...]:
    return tuple(name for name, is_unseen in limits.items() if is_unseen)
