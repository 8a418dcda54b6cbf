"""`kubectl nodemend status`: the fleet on one screen. Pure: a `Reading` and the time in, a `StatusReport` out.

Nodes that need a person stand first. A healthy node is counted, never listed; a node that could not be judged is not
healthy. What the controller itself holds back (budget, breaker) is shown in its own words, by name.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from cli.cluster import Reading, by_name
from cli.text import age
from controller.assess import SCHEDULER_TYPES, our_conditions, shown_conditions
from kube.nodehealth import NodeHealth
from kube.policy import PoolStatus, RemediationPolicy
from kube.remediation import CLOSED, QUARANTINE, Phase, Remediation
from kube.types import Lease, Node, NodeCondition

CONTROLLER_LEASE = "nodemend-controller"

# The controller's default (`[agents] silent_after`): from then on it turns False conditions Unknown.
SILENT_AFTER = timedelta(minutes=5)

# The Lease holds the leader's clock, `now` is that of a person's machine: so far apart they may be.
CLOCKS_APART_S = 30

# Who needs a person first, who is furthest along next.
_PHASE_ORDER = (
    Phase.ESCALATED,
    Phase.REVALIDATING,
    Phase.REPAIRING,
    Phase.DRAINING,
    Phase.QUARANTINED,
    Phase.WAITING,
    Phase.SUSPECTED,
)


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of one policy; `budget` and `breaker` are empty or say why they hold."""

    policy: str
    pool: str
    mode: str
    nodes: int
    out_of_service: int
    quarantined: int
    repairs_in_flight: int
    budget: str
    breaker: str


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node that is not healthy, and why."""

    node: str
    conditions: tuple[str, ...]
    phase: str = ""
    since: datetime | None = None
    held_by: str = ""
    next: str = ""
    incident: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One node with all that was read of it; `explanation` is the controller's, empty where it has nothing to say."""

    node: Node
    health: NodeHealth | None
    lease: Lease | None
    incidents: tuple[Remediation, ...]
    explanation: str

    @property
    def ill(self) -> tuple[NodeCondition, ...]:
        """Give the conditions that are not fine: ours that are not False, and a Ready that is not True."""
        ours = shown_conditions(self.node, self.health)
        ready = self.node.condition("Ready")
        not_ready = [ready] if ready is not None and ready.status != "True" else []
        return (*not_ready, *(c for c in ours if c.status != "False"))


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that `status` shows; its fields are the keys of `-o json`."""

    at: datetime
    controller: str
    pools: tuple[PoolRow, ...]
    nodes: tuple[NodeRow, ...]
    watched: int
    healthy: int
    with_warnings: int
    problems: tuple[str, ...]
    not_read: tuple[str, ...]


def report_status(reading: Reading, explanations: Mapping[str, str], now: datetime) -> StatusReport:
    """Lay the fleet out for the eye. `explanations` are the controller's, for nodes without an open incident."""
    healths = by_name(reading.healths, lambda health: health.metadata.name)
    incidents = open_incidents(reading.remediations)
    leases = by_name(reading.leases or (), lambda lease: lease.metadata.name)
    watched = [node for node in reading.nodes if _is_watched(node, healths, incidents)]
    rows = [
        row
        for node in watched
        if (
            row := _node_row(
                Seen(
                    node=node,
                    health=healths.get(node.metadata.name),
                    lease=leases.get(node.metadata.name),
                    incidents=tuple(incidents.get(node.metadata.name, ())),
                    explanation=explanations.get(node.metadata.name, ""),
                ),
                now,
            )
        )
        is not None
    ]
    gone = sorted(set(incidents) - {node.metadata.name for node in reading.nodes})
    rows += [_gone_row(name, incidents[name]) for name in gone]
    return StatusReport(
        at=now,
        controller=who_leads(reading.leases, now),
        pools=tuple(pool for policy in _in_order(reading.policies) for pool in _pool_rows(policy)),
        nodes=tuple(sorted(rows, key=_urgency)),
        watched=len(watched),
        healthy=len(watched) + len(gone) - len(rows),
        with_warnings=sum(any(f.severity == "Warning" for f in h.status.findings) for h in reading.healths),
        problems=tuple(
            f"policy {policy.metadata.name}: {problem}"
            for policy in _in_order(reading.policies)
            for problem in policy.status.problems
        ),
        not_read=reading.not_read,
    )


def open_incidents(remediations: Sequence[Remediation]) -> dict[str, list[Remediation]]:
    """Group the Remediations that are not closed by node, oldest first. More than one on a node is a fault of ours."""
    found: dict[str, list[Remediation]] = {}
    for one in sorted(remediations, key=lambda r: (r.spec.opened_at, r.metadata.name)):
        if one.status.phase not in CLOSED:
            found.setdefault(one.spec.node_name, []).append(one)
    return found


def who_leads(leases: Sequence[Lease] | None, now: datetime) -> str:
    """Say whether a controller is at work: without one nothing is quarantined, repaired or given back."""
    if leases is None:
        return "unknown: its Lease could not be read"
    lease = next((one for one in leases if one.metadata.name == CONTROLLER_LEASE), None)
    if lease is None:
        return f"none has ever led here (no Lease {CONTROLLER_LEASE}): nothing is being done"
    heard, holder = lease.spec.renew_time, lease.spec.holder_identity
    if not holder or heard is None:
        return "nobody leads: nothing is being done"
    if (now - heard).total_seconds() > max(lease.spec.lease_duration_seconds, 1) + CLOCKS_APART_S:
        return f"nobody leads ({holder} was last heard {age(heard, now)} ago): nothing is being done"
    return f"{holder} leads, heard {age(heard, now)} ago"


def _is_watched(
    node: Node, healths: Mapping[str, NodeHealth], incidents: Mapping[str, list[Remediation]]
) -> bool:
    name = node.metadata.name
    return (
        name in healths
        or name in incidents
        or QUARANTINE in node.metadata.annotations
        or bool(our_conditions(node, None))
        or bool(_starts_fail(node))
    )


def _starts_fail(node: Node) -> str:
    """Say what the scheduler says of pods that fail to start on a node now, "" = nothing."""
    said = (c for c in node.status.conditions if c.type in SCHEDULER_TYPES and c.status == "True")
    return next((c.message for c in said), "")


def _node_row(seen: Seen, now: datetime) -> NodeRow | None:
    node = seen.node
    ill = seen.ill
    conditions = tuple(_words(condition) for condition in ill)
    if (silence := _silence(seen.lease, now)) is not None:
        conditions += (silence,)
    if seen.incidents:
        return _incident_row(node.metadata.name, conditions, seen.incidents)
    since = min((c.last_transition_time for c in ill if c.last_transition_time is not None), default=None)
    if node.spec.unschedulable:
        conditions += ("cordoned",)
    row = NodeRow(node=node.metadata.name, conditions=conditions, since=since)
    if seen.explanation:
        return msgspec.structs.replace(row, next=seen.explanation)
    if QUARANTINE in node.metadata.annotations:
        return msgspec.structs.replace(row, next="quarantined, but no incident is open (`explain` says more)")
    if node.spec.unschedulable:
        return msgspec.structs.replace(row, next="cordoned, not by nodemend")
    if conditions:
        only_starts = all(c.type in SCHEDULER_TYPES for c in ill) and _starts_fail(node)
        return msgspec.structs.replace(row, next=only_starts or "no incident is open")
    if seen.health is None:
        return msgspec.structs.replace(row, next="no agent has reported")
    return None


def _incident_row(name: str, conditions: tuple[str, ...], standing: Sequence[Remediation]) -> NodeRow:
    first = standing[0]
    more = f" ({len(standing)} incidents are open, one was expected)" if len(standing) > 1 else ""
    return NodeRow(
        node=name,
        conditions=conditions,
        phase=first.status.phase.value,
        since=first.status.phase_since or first.spec.opened_at,
        held_by=first.status.held_by,
        next=first.status.message + more,
        incident=first.metadata.name,
    )


def _gone_row(name: str, standing: Sequence[Remediation]) -> NodeRow:
    row = _incident_row(name, (), standing)
    return msgspec.structs.replace(row, next=f"the Node is gone from the cluster. {row.next}".strip())


def _words(condition: NodeCondition) -> str:
    """Write a condition as `GpuXidError=True (Xid79FallenOffBus)`."""
    reason = f" ({condition.reason})" if condition.reason else ""
    return f"{condition.type}={condition.status}{reason}"


def _silence(lease: Lease | None, now: datetime) -> str | None:
    heard = lease.spec.renew_time if lease is not None else None
    if heard is None or now - heard <= SILENT_AFTER:
        return None
    return f"agent silent for {age(heard, now)}"


def _urgency(row: NodeRow) -> tuple[int, str]:
    ranks = {phase.value: rank for rank, phase in enumerate(_PHASE_ORDER)}
    return (ranks.get(row.phase, len(ranks)), row.node)


def _in_order(policies: Sequence[RemediationPolicy]) -> list[RemediationPolicy]:
    return sorted(policies, key=lambda p: p.metadata.name)


def _pool_rows(policy: RemediationPolicy) -> list[PoolRow]:
    mode = policy.spec.mode.value + (", paused" if policy.spec.paused else "")
    pools = policy.status.pools or (PoolStatus(pool="(not reported yet)"),)
    return [
        PoolRow(
            policy=policy.metadata.name,
            pool=pool.pool,
            mode=mode,
            nodes=pool.nodes,
            out_of_service=pool.out_of_service,
            quarantined=pool.quarantined,
            repairs_in_flight=pool.repairs_in_flight,
            budget=pool.budget,
            breaker=_breaker_words(pool),
        )
        for pool in pools
    ]


def _breaker_words(pool: PoolStatus) -> str:
    if not pool.breaker or pool.breaker_since is None:
        return pool.breaker
    return f"{pool.breaker} (since {pool.breaker_since:%Y-%m-%d %H:%MZ})"
