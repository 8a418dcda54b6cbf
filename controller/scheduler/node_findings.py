"""What is known of a node's parts: who said it, what faults take away, what nobody can judge now. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from checks.condition import Status
from checks.finding import EFFECT_RANK, Effect, PartKind, Severity
from controller.assess import CONDITION_TYPES
from controller.silence import AGENT_SILENT
from controller.view import Settings
from kube.nodehealth import HealthFinding, NodeHealth
from kube.types import Lease
from kube.types import Node as KubeNode

GPU_CONDITIONS: Final = frozenset(name for name in CONDITION_TYPES if name.startswith("Gpu"))
PORT_CONDITION: Final = "InfinibandPortDegraded"
STORAGE_CONDITIONS: Final = CONDITION_TYPES - GPU_CONDITIONS - {PORT_CONDITION}
SILENT_AFTER: Final = Settings().silent_after


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A Node, and what its agent says. `health` None = no agent ever reported it: nothing is known to be ill.

    `lease` None = the agent's lease is gone, which is silence; `leases_known` False = nobody looked.
    """

    node: KubeNode
    health: NodeHealth | None = None
    lease: Lease | None = None
    leases_known: bool = False


def faults(health: NodeHealth | None) -> tuple[HealthFinding, ...]:
    """Give the findings that take something away: a warning never does.

    A drill proves nothing, so it takes no capacity and nobody is evicted for it: its class counts as Unknown (`unknown_of`).
    """
    if health is None:
        return ()
    return tuple(
        finding
        for finding in health.status.findings
        if finding.severity == Severity.FAULT and not finding.drill
    )


def unknown_of(seen: Seen, now: datetime) -> dict[str, str]:
    """Give the fault classes that nobody can judge now, with the reason.

    One that is said to be ill without a finding is among them: which part it is, and how bad, stands nowhere (NodeHealth is
    gone, another machine's, or had no room for it), or the finding is a drill.
    """
    told = {fault.condition for fault in faults(seen.health)}
    found = {
        condition.type: condition.reason
        for condition in seen.node.status.conditions
        if condition.type in CONDITION_TYPES
        and (
            condition.status == Status.UNKNOWN
            or (condition.status == Status.TRUE and condition.type not in told)
        )
    }
    if _is_silent(seen, now):
        published = seen.health.status.published_conditions if seen.health is not None else ()
        found.update({name: AGENT_SILENT for name in published if name not in found})
    return found


def _is_silent(seen: Seen, now: datetime) -> bool:
    """An agent that reported once and whose lease is stale: the controller may not have said so yet."""
    if seen.health is None or not seen.leases_known:
        return False
    lease, uid = seen.lease, seen.node.metadata.uid
    if lease is None or lease.spec.renew_time is None:
        return True
    owners = lease.metadata.owner_references
    is_of_another = bool(owners and uid) and all(owner.uid != uid for owner in owners)
    return is_of_another or now - lease.spec.renew_time >= SILENT_AFTER


def unknown_words(unknown: Mapping[str, str], conditions: Iterable[str]) -> str:
    """Say which of these classes is Unknown, "" = none."""
    first = unknown_class(unknown, conditions)
    return f"node(s) had Unknown {first}" if first else ""


def unknown_class(unknown: Mapping[str, str], conditions: Iterable[str]) -> str:
    """Name the first of these classes that is Unknown and why, "" = none."""
    first = next((name for name in sorted(conditions) if name in unknown), "")
    return f"{first}: {unknown[first]}" if first else ""


class Effects:
    """What the faults of a node take away from it as a whole, the worst of each kind in words."""

    def __init__(self, found: Iterable[HealthFinding]) -> None:
        self.node_out = self.no_multi_gpu = self.no_multi_node = self.avoid = ""
        for fault in sorted(found, key=worst_first):
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


def worst_first(fault: HealthFinding) -> tuple[int, str, str, str]:
    """Order faults by what they take away."""
    return (-rank(fault.effect), fault.reason, fault.part.uuid, fault.part.name)


def rank(effect: str) -> int:
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
