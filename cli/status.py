"""`kubectl nodemend status`: the fleet on one screen. Pure: a `Reading` and the time in, a `StatusReport` out.

Nodes that need a person stand first. A healthy node is counted, never listed; a node that could not be judged is not
healthy. What the controller itself holds back (budget, breaker) is shown in its own words, by name.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from cli.cluster import Reading, by_name
from cli.text import age, table
from kube.nodehealth import NodeHealth
from kube.policy import PoolStatus, RemediationPolicy
from kube.remediation import CLOSED, QUARANTINE, Phase, Remediation
from kube.types import Lease, Node, NodeCondition

CONTROLLER_LEASE = "nodemend-controller"

# The controller's default (`[agents] silent_after`): from then on it turns False conditions Unknown.
SILENT_AFTER = timedelta(minutes=5)

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


def report_status(reading: Reading, condition_types: frozenset[str], now: datetime) -> StatusReport:
    """Judge the fleet for the eye: `condition_types` are the Node conditions that this version's checks publish."""
    condition_types |= published_types(reading.healths)
    healths = by_name(reading.healths, lambda health: health.metadata.name)
    incidents = open_incidents(reading.remediations)
    leases = by_name(reading.leases or (), lambda lease: lease.metadata.name)
    watched = [node for node in reading.nodes if _is_watched(node, healths, incidents, condition_types)]
    rows = [
        row
        for node in watched
        if (row := _node_row(node, healths, incidents, leases, condition_types, now)) is not None
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


def published_types(healths: Sequence[NodeHealth]) -> frozenset[str]:
    """Give every condition type that an agent says it wrote: agents may be newer than this program."""
    return frozenset(kind for health in healths for kind in health.status.published_conditions)


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
    if (now - heard).total_seconds() > max(lease.spec.lease_duration_seconds, 1):
        return f"nobody leads ({holder} was last heard {age(heard, now)} ago): nothing is being done"
    return f"{holder} leads, heard {age(heard, now)} ago"


def _is_watched(
    node: Node,
    healths: Mapping[str, NodeHealth],
    incidents: Mapping[str, list[Remediation]],
    condition_types: frozenset[str],
) -> bool:
    name = node.metadata.name
    return (
        name in healths
        or name in incidents
        or QUARANTINE in node.metadata.annotations
        or any(condition.type in condition_types for condition in node.status.conditions)
    )


def _node_row(
    node: Node,
    healths: Mapping[str, NodeHealth],
    incidents: Mapping[str, list[Remediation]],
    leases: Mapping[str, Lease],
    condition_types: frozenset[str],
    now: datetime,
) -> NodeRow | None:
    name = node.metadata.name
    conditions = [word for c in node.status.conditions if (word := _ill(c, condition_types))]
    if (silence := _silence(leases.get(name), now)) is not None:
        conditions.append(silence)
    standing = incidents.get(name, [])
    if standing:
        return _incident_row(name, tuple(conditions), standing)
    if QUARANTINE in node.metadata.annotations:
        return NodeRow(node=name, conditions=tuple(conditions), next="quarantined, but no incident is open")
    if node.spec.unschedulable:
        return NodeRow(node=name, conditions=(*conditions, "cordoned"), next="cordoned, not by nodemend")
    if conditions:
        since = _since(node, condition_types)
        return NodeRow(node=name, conditions=tuple(conditions), since=since, next="no incident is open")
    if name not in healths:
        return NodeRow(node=name, conditions=(), next="no agent has reported")
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


def _ill(condition: NodeCondition, condition_types: frozenset[str]) -> str:
    """Write a condition that is not fine as `GpuXidError=True (Xid79FallenOffBus)`; empty where it is fine or not ours."""
    if condition.type == "Ready":
        fine = condition.status == "True"
    elif condition.type in condition_types:
        fine = condition.status == "False"
    else:
        return ""
    reason = f" ({condition.reason})" if condition.reason else ""
    return "" if fine else f"{condition.type}={condition.status}{reason}"


def _since(node: Node, condition_types: frozenset[str]) -> datetime | None:
    times = [
        c.last_transition_time
        for c in node.status.conditions
        if c.last_transition_time is not None and _ill(c, condition_types)
    ]
    return min(times, default=None)


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


def status_lines(report: StatusReport) -> list[str]:
    """Lay the report out for a terminal. The strings in it are expected to be clean already."""
    lines = [f"controller: {report.controller}", ""]
    if report.pools:
        lines += table(
            ("POLICY", "POOL", "MODE", "NODES", "OUT", "QUARANTINED", "REPAIRS", "BUDGET", "BREAKER"),
            [_pool_cells(pool) for pool in report.pools],
        )
    else:
        lines.append("No RemediationPolicy exists: conditions are published, and nothing is done about them.")
    lines.append("")
    if report.nodes:
        lines += table(
            ("NODE", "CONDITIONS", "PHASE", "SINCE", "HELD BY", "NEXT"),
            [_node_cells(row, report.at) for row in report.nodes],
        )
        lines.append("")
    lines.append(_summary(report))
    lines += [f"PROBLEM: {problem}" for problem in report.problems]
    lines += [f"NOT READ: {what}" for what in report.not_read]
    return lines


def _pool_cells(row: PoolRow) -> tuple[str, ...]:
    numbers = (row.nodes, row.out_of_service, row.quarantined, row.repairs_in_flight)
    return (row.policy, row.pool, row.mode, *(str(n) for n in numbers), row.budget, row.breaker)


def _node_cells(row: NodeRow, now: datetime) -> tuple[str, ...]:
    conditions = ", ".join(row.conditions)
    return (row.node, conditions, row.phase, age(row.since, now), row.held_by, row.next)


def _summary(report: StatusReport) -> str:
    words = f"{report.healthy} of {report.watched} watched nodes are healthy"
    if report.with_warnings:
        words += f"; {report.with_warnings} with warnings, which take nothing out of service"
    return f"{words}."
