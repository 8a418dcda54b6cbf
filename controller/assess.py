"""Assess: from one Node and its NodeHealth to a Verdict. Pure.

The condition on the Node is the contract, NodeHealth is the proof. A fault counts only where both say so, for this Node
object and for the boot that runs now. What could not be read, or does not fit together, is doubt: it is said, nothing is
done because of it, and it is never taken for health.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from checks.condition import Status
from checks.finding import EFFECT_RANK, Action, Effect, PartKind, Severity, Urgency, is_same_part
from checks.pod_starts import FAULT_CLASS as POD_STARTS
from controller.view import Fleet, Settings
from kube.nodehealth import HealthFinding, HealthPart, NodeHealth
from kube.types import Lease, Node, NodeCondition

# The public table of condition types (one for each fault class). Others may come: NodeHealth says what its agent publishes.
CONDITION_TYPES = frozenset(
    {
        "GpuXidError",
        "GpuRowRemapFault",
        "GpuEccFault",
        "GpuNvLinkDegraded",
        "GpuPcieDegraded",
        "GpuMissing",
        "GpuThrottled",
        "GpuDriverFault",
        "InfinibandPortDegraded",
        "SharedStorageFault",
        "LocalStorageFault",
    }
)

# Never an agent's, whatever a NodeHealth claims to have published: Kubernetes' own, and what our scheduler says. That pods
# fail to start proves nothing about a part, so it is shown and opens no incident.
KUBERNETES_TYPES = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
SCHEDULER_TYPES = frozenset({POD_STARTS.condition})

Key = tuple[str, str, str, datetime, str]
"""Condition, reason, part, first seen, boot id: the same in all five is the same evidence, however often it is seen."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a node's health now.

    `standing` are the faults that take something away, worst first; warnings, effects of `none` and what was cleared are
    not among them. `unproven` are True conditions without such a fault, `doubt` says why. `usable` tells whether
    NodeHealth speaks about this Node object and this boot. `confirmed_at` is when the agent last gave a sign of life.
    """

    node: str
    standing: tuple[HealthFinding, ...] = ()
    unproven: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    usable: bool = False
    doubt: str = ""
    confirmed_at: datetime | None = None
    fresh: bool = False


def assess(
    node: Node, health: NodeHealth | None, lease: Lease | None, settings: Settings, now: datetime
) -> Verdict:
    """Judge one node."""
    confirmed = confirmed_at(node, health, lease, now)
    fresh = confirmed is not None and now - confirmed < settings.evidence_max_age
    doubt = why_not_usable(node, health)
    ill = [c for c in our_conditions(node, health) if c.status != Status.FALSE]
    if not ill:
        return Verdict(
            node=node.metadata.name, usable=not doubt, doubt=doubt, confirmed_at=confirmed, fresh=fresh
        )
    true = {c.type for c in ill if c.status == Status.TRUE}
    faults = _faults(health) if health is not None and not doubt else []
    # A True condition whose only findings have the effect `none`, or were cleared a moment ago, is explained by them.
    explained = {f.condition for f in faults} | (
        _cleared(health) if health is not None and not doubt else set()
    )
    unproven = tuple(sorted(true - explained))
    missing = f"{unproven[0]} is True but NodeHealth holds no standing finding for it" if unproven else ""
    return Verdict(
        node=node.metadata.name,
        standing=tuple(sorted((f for f in faults if f.condition in true and rank(f) > 0), key=order)),
        unproven=unproven,
        unknown=tuple(sorted(c.type for c in ill if c.status != Status.TRUE)),
        usable=not doubt,
        doubt=doubt or missing,
        confirmed_at=confirmed,
        fresh=fresh,
    )


def assess_in(fleet: Fleet, node: Node, now: datetime) -> Verdict:
    """Judge one node of the fleet."""
    name = node.metadata.name
    return assess(node, fleet.healths.get(name), fleet.leases.get(name), fleet.settings, now)


def our_conditions(node: Node, health: NodeHealth | None) -> list[NodeCondition]:
    """Give the conditions on the Node that an agent of ours publishes."""
    published = health.status.published_conditions if health is not None else ()
    others = KUBERNETES_TYPES | SCHEDULER_TYPES
    return [
        c
        for c in node.status.conditions
        if c.type in CONDITION_TYPES or (c.type in published and c.type not in others)
    ]


def shown_conditions(node: Node, health: NodeHealth | None) -> list[NodeCondition]:
    """Give all that nodemend says of a Node: what its agent publishes, and what our scheduler says."""
    return [
        *our_conditions(node, health),
        *(one for one in node.status.conditions if one.type in SCHEDULER_TYPES),
    ]


def why_not_usable(node: Node, health: NodeHealth | None) -> str:
    """Say why NodeHealth proves nothing about this Node; empty where it does."""
    if health is None:
        return "there is no NodeHealth for this node"
    status = health.status
    if status.node_uid != node.metadata.uid:
        return "NodeHealth was reported for another Node object of this name"
    boot_id = node.status.node_info.boot_id
    if status.boot_id and boot_id and status.boot_id != boot_id:
        return f"NodeHealth was reported in boot {status.boot_id}, the node runs boot {boot_id} now"
    return ""


def confirmed_at(
    node: Node, health: NodeHealth | None, lease: Lease | None, now: datetime
) -> datetime | None:
    """Give the last sign of life of this Node's agent: its report, or the renewal of its Lease.

    The Lease is dated by our own clock (controller.renewals), a report by the node's: one from the future proves nothing,
    or a clock that is wrong would let the agent live for ever.
    """
    uid = node.metadata.uid
    signs = []
    reported = health.status.observed_at if health is not None and health.status.node_uid == uid else None
    if reported is not None and reported <= now:
        signs.append(reported)
    if lease is not None and lease.spec.renew_time is not None:
        owners = lease.metadata.owner_references
        if not owners or any(owner.uid == uid for owner in owners):
            signs.append(min(lease.spec.renew_time, now))
    return max(signs, default=None)


def key(finding: HealthFinding) -> Key:
    """Identify evidence; see Key."""
    return (finding.condition, finding.reason, part_key(finding.part), finding.first_seen, finding.boot_id)


def part_key(part: HealthPart) -> str:
    """Identify a part as checks.finding.Part.key does."""
    if part.kind == PartKind.PORT and part.name:
        return f"{part.kind}/{part.name}"
    return f"{part.kind}/{part.pci or part.uuid or part.name}"


def rank(finding: HealthFinding) -> int:
    """Order effects from 0 (none) upwards. An effect that this version does not know counts as part-out: it takes work
    off the node, but gets none of the rights of node-out."""
    try:
        return EFFECT_RANK[Effect(finding.effect)]
    except ValueError:
        return EFFECT_RANK[Effect.PART_OUT]


def order(finding: HealthFinding) -> tuple[int, str, str, datetime, str]:
    """Sort worst first, then in a fixed order."""
    return (-rank(finding), finding.reason, part_key(finding.part), finding.first_seen, finding.condition)


def takes_node(finding: HealthFinding) -> bool:
    """Tell a lost GPU or anything else that takes the entire node."""
    return finding.effect == Effect.NODE_OUT


def needs_person(finding: HealthFinding) -> bool:
    """Tell what no repair of ours may hide: a person has to look. An unknown urgency is one that we cannot judge."""
    return finding.action == Action.CONTACT_SUPPORT or finding.urgency not in (Urgency.NOW, Urgency.WHEN_IDLE)


def name_parts(findings: Iterable[HealthFinding], most: int = 3) -> str:
    """Name findings for people: `Xid79FallenOffBus on GPU 3 at 0000:3b:00`; at most `most`, then how many more."""
    found = list(findings)
    words = [f"{f.reason} on {_part(f.part)}{' (drill)' if f.drill else ''}" for f in found[:most]]
    left = len(found) - most
    return ", ".join(words) + (f" and {left} more" if left > 0 else "")


def _part(part: HealthPart) -> str:
    words = ["GPU" if part.kind == "gpu" else part.kind]
    words += [str(part.index)] if part.index is not None else []
    words += [part.name] if part.name else []
    words += [f"at {part.pci}"] if part.pci else []
    return " ".join(words)


def _faults(health: NodeHealth) -> list[HealthFinding]:
    """Give what stands: a fault that was dealt with does not, the agent has just not said so yet."""
    found = health.status.findings
    return [f for f in found if f.severity == Severity.FAULT and not _was_cleared(health, f)]


def _cleared(health: NodeHealth) -> set[str]:
    found = health.status.findings
    return {f.condition for f in found if f.severity == Severity.FAULT and _was_cleared(health, f)}


def _was_cleared(health: NodeHealth, finding: HealthFinding) -> bool:
    """Tell a fault seen no later than NodeHealth.spec says that everything, or this very part, was dealt with."""
    spec = health.spec
    if spec.cleared_before is not None and finding.last_seen <= spec.cleared_before:
        return True
    return any(is_same_part(finding.part, one) and finding.last_seen <= one.before for one in spec.cleared)
