"""What a Node takes, by its own conditions and by what the agent knows of its parts. Pure.

Degraded is not dead: each finding takes away what its effect says, and no more. A part that is Unknown takes nothing new and
stays capacity; a part proven sick is no capacity. What the hardware cannot show (not evaluated) blocks nothing.

Kubelet picks the card: the rest of a node stays in use only while every sick card is fenced, which is when kubelet offers it
to nobody any more (NodeHealth, `offered`). Where that is not known the card counts as not fenced.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from checks.condition import Status
from checks.finding import EFFECT_RANK, Effect, PartKind, Severity, is_same_part
from controller.scheduler.model import Gpu, Node, PartHealth, Taint
from controller.scheduler.pod_request import GPU_RESOURCE, MIG_PREFIX, is_other
from controller.scheduler.rules import Rules
from kube import quantity
from kube.nodehealth import HealthFinding, NodeHealth, PartState
from kube.types import Lease
from kube.types import Node as KubeNode

GPU_COUNT: Final = "nvidia.com/gpu.count"
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
LONGEST_MIB: Final = 1 << 24
"""GPU feature discovery gives MiB; a greater number is bytes (KAI reads it so too)."""

GPU_CONDITIONS: Final = frozenset(
    {
        "GpuXidError",
        "GpuRowRemapFault",
        "GpuEccFault",
        "GpuNvLinkDegraded",
        "GpuPcieDegraded",
        "GpuMissing",
        "GpuThrottled",
        "GpuDriverFault",
    }
)
PORT_CONDITION: Final = "InfinibandPortDegraded"
STORAGE_CONDITIONS: Final = frozenset({"SharedStorageFault", "LocalStorageFault"})
PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
AGENT_SILENT: Final = "AgentSilent"
SILENT_AFTER: Final = timedelta(minutes=5)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A Node, and what its agent says. `health` None = no agent ever reported it: nothing is known to be ill.

    `lease` None = the agent's lease is gone, which is silence; `leases_known` False = nobody looked.
    """

    node: KubeNode
    health: NodeHealth | None = None
    lease: Lease | None = None
    leases_known: bool = False


def node_of(seen: Seen, now: datetime, rules: Rules) -> Node:
    """Give a node as the cycle sees it.

    Raises: ValueError for a quantity or a label that cannot be read.
    """
    node = seen.node
    allocatable = node.status.allocatable
    gpus = cards_of(seen, now) if _offers_gpus(node) else ()
    effects = _Effects(faults(seen.health))
    closed, out = _closed(node, rules)
    unknown = _unknown(seen, now)
    memory = node.metadata.labels.get(GPU_MEMORY, "")
    return Node(
        name=node.metadata.name,
        labels=dict(sorted(node.metadata.labels.items())),
        taints=tuple(Taint(key=one.key, value=one.value, effect=one.effect) for one in node.spec.taints),
        cordoned=node.spec.unschedulable,
        closed=closed or effects.node_out or _storage_unknown(unknown),
        out=out or bool(effects.node_out),
        no_new_gpu=_unfenced(gpus),
        no_multi_gpu=effects.no_multi_gpu,
        no_multi_node=effects.no_multi_node or _condition_words(unknown, (PORT_CONDITION,)),
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
        mig_strategy=_strategy(node),
        gpu_memory_known=bool(memory),
    )


def faults(health: NodeHealth | None) -> tuple[HealthFinding, ...]:
    """Give the findings that take something away: a warning never does."""
    if health is None:
        return ()
    return tuple(finding for finding in health.status.findings if finding.severity == Severity.FAULT)


def _strategy(node: KubeNode) -> str:
    strategy = node.metadata.labels.get(MIG_STRATEGY, "")
    return "" if strategy == "none" else strategy


def _whole_gpus(allocatable: Mapping[str, str], count: int) -> int | None:
    """How many GPUs kubelet gives, where that is fewer than there are."""
    given = quantity.whole(allocatable.get(GPU_RESOURCE, "0"))
    return given if given < count else None


# --- the Node's own conditions ---------------------------------------------------------------------------------------


def _closed(node: KubeNode, rules: Rules) -> tuple[str, bool]:
    """Say why Kubernetes itself takes no new pod there, and whether it is no capacity.

    A kubelet that went silent (Ready Unknown) takes no new pod and stays capacity: nothing is evicted because nobody knows.
    KAI takes such a node, and one under pressure, off the total.
    """
    kai = not rules.silence_keeps_capacity
    ready = node.condition("Ready")
    if ready is not None and ready.status != Status.TRUE:
        silent = ready.status == Status.UNKNOWN
        return f"node(s) {'were unreachable' if silent else 'were not ready'}", kai or not silent
    for name in PRESSURES:
        found = node.condition(name)
        if found is not None and found.status != Status.FALSE:
            return f"node(s) had condition: {name}", kai or node.spec.unschedulable
    return "", node.spec.unschedulable


# --- what is Unknown -------------------------------------------------------------------------------------------------


def _unknown(seen: Seen, now: datetime) -> dict[str, str]:
    """Give the fault classes that nobody can judge now, with the reason."""
    found = {
        condition.type: condition.reason
        for condition in seen.node.status.conditions
        if condition.status == Status.UNKNOWN
        and condition.type in GPU_CONDITIONS | STORAGE_CONDITIONS | {PORT_CONDITION}
    }
    if _is_silent(seen, now):
        published = seen.health.status.published_conditions if seen.health is not None else ()
        found.update({name: AGENT_SILENT for name in published if name not in found})
    return found


def _is_silent(seen: Seen, now: datetime) -> bool:
    """An agent that reported once and whose lease is stale: the controller may not have said so yet."""
    if seen.health is None or not seen.leases_known:
        return False
    renewed = None if seen.lease is None else seen.lease.spec.renew_time
    return renewed is None or now - renewed >= SILENT_AFTER


def _storage_unknown(unknown: Mapping[str, str]) -> str:
    # Which pods use the mount is not known here, so none comes; what runs stays.
    return _condition_words(unknown, STORAGE_CONDITIONS)


def _condition_words(unknown: Mapping[str, str], conditions: Iterable[str]) -> str:
    first = next((name for name in sorted(conditions) if name in unknown), "")
    return f"node(s) had Unknown {first}: {unknown[first]}" if first else ""


# --- effects ---------------------------------------------------------------------------------------------------------


class _Effects:
    """What the faults of a node take away from it as a whole, the worst of each kind in words."""

    def __init__(self, found: Iterable[HealthFinding]) -> None:
        self.node_out = self.no_multi_gpu = self.no_multi_node = self.avoid = ""
        for fault in sorted(found, key=_worst_first):
            said = f"node(s) had {fault.condition}: {fault.reason}"
            match _effect_on_node(fault):
                case Effect.NODE_OUT:
                    self.node_out = self.node_out or said
                case Effect.NO_MULTI_GPU:
                    self.no_multi_gpu = self.no_multi_gpu or said
                case Effect.NO_MULTI_NODE:
                    self.no_multi_node = self.no_multi_node or said
                case Effect.PREFER_NOT:
                    self.avoid = self.avoid or said


def _worst_first(fault: HealthFinding) -> tuple[int, str, str, str]:
    return (-_rank(fault.effect), fault.reason, fault.part.uuid, fault.part.name)


def _rank(effect: str) -> int:
    """An effect that a newer agent knows and this scheduler does not counts as the worst."""
    return EFFECT_RANK.get(Effect(effect), 0) if effect in set(Effect) else len(EFFECT_RANK)


def _effect_on_node(fault: HealthFinding) -> Effect:
    """What a fault does to the node: a part that is out takes of it what only that part gave."""
    if fault.effect not in set(Effect):
        return Effect.NODE_OUT
    effect, kind = Effect(fault.effect), fault.part.kind
    if effect is Effect.PREFER_NOT and kind == PartKind.GPU:
        return Effect.NONE  # that card alone is taken last
    if effect is not Effect.PART_OUT:
        return effect
    match kind:
        case PartKind.GPU:
            return Effect.NONE
        case PartKind.PORT:
            return Effect.NO_MULTI_NODE
        case PartKind.NVSWITCH:
            return Effect.NO_MULTI_GPU
        case _:
            return Effect.NODE_OUT


# --- cards -----------------------------------------------------------------------------------------------------------


def cards_of(seen: Seen, now: datetime) -> tuple[Gpu, ...]:
    """Give the cards of a node: those that the agent names, else as many as the node says that it has.

    A card cut into MIG instances is none where instances are resources of their own (strategy mixed), and with the strategy
    single each instance is offered as a GPU of its own.
    """
    node, health = seen.node, seen.health
    labels = node.metadata.labels
    mib, model = _memory_mib(labels.get(GPU_MEMORY, "")), labels.get(GPU_PRODUCT, "")
    parts = () if health is None else tuple(part for part in health.status.parts if part.kind == PartKind.GPU)
    strategy = _strategy(node)
    given = quantity.whole(node.status.allocatable.get(GPU_RESOURCE, "0"))
    unknown = _condition_words(_unknown(seen, now), GPU_CONDITIONS)
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


def _offers_gpus(node: KubeNode) -> bool:
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
    for fault in sorted(faults(seen.health), key=_worst_first):
        if fault.part.kind == PartKind.GPU and _rank(fault.effect) >= EFFECT_RANK[Effect.PART_OUT]:
            return PartHealth.SICK, fault.reason
    return (PartHealth.UNKNOWN, unknown) if unknown else (PartHealth.HEALTHY, "")


def _gpu(
    part: PartState, position: int, mib: int, model: str, found: Iterable[HealthFinding], unknown: str
) -> Gpu:
    mine = sorted((fault for fault in found if is_same_part(fault.part, part)), key=_worst_first)
    sick = next((fault for fault in mine if _rank(fault.effect) >= EFFECT_RANK[Effect.PART_OUT]), None)
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


def _unfenced(gpus: Iterable[Gpu]) -> str:
    """Say which sick card kubelet might still give to a pod."""
    loose = next(_loose(gpus), None)
    return "" if loose is None else f"node(s) had a sick GPU that kubelet still offers: {loose.why}"


def _loose(gpus: Iterable[Gpu]) -> Iterator[Gpu]:
    return (gpu for gpu in gpus if gpu.offered and gpu.health is PartHealth.SICK)


def _memory_mib(label: str) -> int:
    """Read GPU feature discovery's label.

    Raises: ValueError where it is no number.
    """
    if not label:
        return 0
    number = quantity.whole(label)
    return number >> 20 if number > LONGEST_MIB else number
