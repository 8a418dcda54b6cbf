"""`kubectl nodemend explain NODE`: everything that is known about one node, and what comes next. Pure.

It tells the story in the order in which on-call asks: what is wrong, how is that known, what was done, what holds it, what
will happen, what can I do. What could not be read or is not evaluated is said, never left out.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cli.cluster import Reading
from cli.intent import unknown_node
from cli.status import open_incidents, who_leads
from cli.text import age
from controller.assess import SCHEDULER_TYPES, shown_conditions
from kube.nodehealth import HealthFinding, HealthPart, NodeHealth
from kube.remediation import (
    CLOSED,
    QUARANTINE,
    Attempt,
    BlockedPod,
    Notification,
    Phase,
    Remediation,
    TimelineEntry,
)
from kube.types import Lease, Node, NodeCondition, Taint


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One Remediation, told: latched evidence, what was tried, what was said to whom."""

    name: str
    phase: str
    since: datetime | None
    opened_at: datetime
    closed_at: datetime | None
    policy: str
    message: str
    held_by: str
    held_since: datetime | None
    evidence: tuple[HealthFinding, ...]
    timeline: tuple[TimelineEntry, ...]
    attempts: tuple[Attempt, ...]
    evicted: int
    blocked: tuple[BlockedPod, ...]
    drain_deadline: datetime | None
    drain_ends: str = "it escalates"
    notifications: tuple[Notification, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """All that `explain` shows; its fields are the keys of `-o json`."""

    at: datetime
    node: str
    exists: bool
    uid: str = ""
    provider_id: str = ""
    boot_id: str = ""
    cordon: str = ""
    taints: tuple[str, ...] = ()
    controller: str = ""
    agent: str = ""
    reported_at: datetime | None = None
    driver: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    findings: tuple[HealthFinding, ...] = ()
    not_evaluated: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    incidents: tuple[Incident, ...] = ()
    earlier: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


def explain_node(reading: Reading, name: str, judged: tuple[str, ...], now: datetime) -> Explanation:
    """Tell the story of one node. `judged` is the controller's own judgement of what holds it and comes next.

    Raises Failure where neither a Node nor a Remediation has that name.
    """
    node = next((one for one in reading.nodes if one.metadata.name == name), None)
    mine = [r for r in reading.remediations if r.spec.node_name == name]
    if node is None and not mine:
        raise unknown_node(name, [one.metadata.name for one in reading.nodes])
    health = next((one for one in reading.healths if one.metadata.name == name), None)
    lease = next((one for one in reading.leases or () if one.metadata.name == name), None)
    standing = open_incidents(mine).get(name, [])
    closed = sorted(
        (r for r in mine if r.status.phase in CLOSED), key=lambda r: r.spec.opened_at, reverse=True
    )
    shown = standing or closed[:1]
    return Explanation(
        at=now,
        node=name,
        exists=node is not None,
        uid=node.metadata.uid if node else "",
        provider_id=node.spec.provider_id if node else "",
        boot_id=node.status.node_info.boot_id if node else "",
        cordon=_cordon(node),
        taints=tuple(_taint(t) for t in node.spec.taints) if node else (),
        controller=who_leads(reading.leases, now),
        agent=_agent(lease, health, reading.leases is not None, now),
        reported_at=health.status.observed_at if health else None,
        driver=health.status.driver if health else "",
        conditions=_conditions(node, health),
        findings=health.status.findings if health else (),
        not_evaluated=_not_evaluated(health),
        unreadable=_unreadable(health),
        incidents=tuple(_incident(one) for one in shown),
        earlier=tuple(f"{r.metadata.name} ended as {r.status.phase.value}" for r in closed if r not in shown),
        judged=judged,
        commands=_commands(name, node, health, shown),
        not_read=reading.not_read,
    )


def _conditions(node: Node | None, health: NodeHealth | None) -> tuple[NodeCondition, ...]:
    if node is None:
        return ()
    ready = node.condition("Ready")
    return (*((ready,) if ready is not None else ()), *shown_conditions(node, health))


def _cordon(node: Node | None) -> str:
    if node is None:
        return "the Node is gone from the cluster"
    ours = QUARANTINE in node.metadata.annotations
    if not node.spec.unschedulable:
        return (
            "schedulable"
            if not ours
            else "schedulable, although nodemend's quarantine stands (somebody uncordoned it)"
        )
    return "cordoned (nodemend's quarantine stands)" if ours else "cordoned, not by nodemend"


def _taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _agent(lease: Lease | None, health: NodeHealth | None, leases_read: bool, now: datetime) -> str:
    if not leases_read:
        return "unknown: the Leases could not be read"
    heard = lease.spec.renew_time if lease else None
    if heard is None:
        return "never heard" if health is None else "has no Lease, though it reported before"
    return f"heard {age(heard, now)} ago"


def _not_evaluated(health: NodeHealth | None) -> tuple[str, ...]:
    return tuple(f"{n.check}, {n.part}: {n.why}" for n in health.status.not_evaluated) if health else ()


def _unreadable(health: NodeHealth | None) -> tuple[str, ...]:
    if health is None:
        return ()
    words = [f"{s.name}: {s.error or 'not readable'}" for s in health.status.sources if not s.readable]
    words += [
        f"{s.name}: {s.lost} records were lost before they could be read"
        for s in health.status.sources
        if s.lost
    ]
    if health.status.omitted:
        words.append(f"{health.status.omitted} entries left out of NodeHealth, which holds 32 KiB at most")
    return tuple(words)


def _incident(one: Remediation) -> Incident:
    """Tell one Remediation. What a drain waited for is news only while it drains, or waits on an open node."""
    drain = one.status.drain
    drains = drain is not None and one.status.phase in (Phase.DRAINING, Phase.WAITING)
    only_waits = drain is not None and one.status.phase is Phase.WAITING and drain.urgency != "now"
    return Incident(
        name=one.metadata.name,
        phase=one.status.phase.value,
        since=one.status.phase_since,
        opened_at=one.spec.opened_at,
        closed_at=one.status.closed_at,
        policy=one.spec.policy,
        message=one.status.message,
        held_by=one.status.held_by,
        held_since=one.status.held_since,
        evidence=one.status.evidence or one.spec.evidence,
        timeline=one.status.timeline,
        attempts=one.status.attempts,
        evicted=drain.evicted if drain else 0,
        blocked=drain.blocked if drain and drains else (),
        drain_deadline=drain.deadline if drain and drains and drain.finished_at is None else None,
        drain_ends="a page says so" if only_waits else "it escalates",
        notifications=one.status.notifications,
    )


def _commands(
    name: str, node: Node | None, health: NodeHealth | None, shown: Sequence[Remediation]
) -> tuple[str, ...]:
    """Name what a person can do from here, the most likely first."""
    words: list[str] = []
    for one in shown:
        if one.status.phase is Phase.ESCALATED:
            words.append(f"kubectl nodemend repaired {name}   # it was mended: test it, then give it back")
        if one.status.phase not in CLOSED:
            words.append(f"kubectl nodemend cancel {name}   # stop, and give the node back as it was found")
        words += _about_blocked(_incident(one).blocked)
        running = [
            a.job for a in one.status.attempts if a.job and not a.result and a.submitted_at is not None
        ]
        words += [f"kubectl -n nodemend-repairs logs job/{job}" for job in running]
    reasons = {f.reason for one in shown for f in one.spec.evidence}
    reasons |= {f.reason for f in health.status.findings} if health else set()
    said = node.status.conditions if node else ()
    reasons |= {c.reason for c in said if c.type in SCHEDULER_TYPES and c.status == "True"}
    words += [f"kubectl nodemend runbook {reason}" for reason in sorted(reasons)]
    words += [f"kubectl get remediation {one.metadata.name} -o yaml" for one in shown]
    words.append(f"kubectl get nodehealth {name} -o yaml")
    return tuple(dict.fromkeys(words))


def _about_blocked(blocked: Sequence[BlockedPod]) -> list[str]:
    """Name where to look: the budgets of a namespace once, however many pods they hold, and any other pod by itself."""
    budgets: dict[str, list[str]] = {}
    words = []
    for pod in blocked:
        if "PodDisruptionBudget" in pod.why:
            budgets.setdefault(pod.namespace, []).append(pod.name)
        else:
            words.append(f"kubectl -n {pod.namespace} describe pod {pod.name}   # holds the drain")
    for namespace, names in budgets.items():
        holders = f"{names[0]} holds" if len(names) == 1 else f"{len(names)} pods hold"
        words.append(f"kubectl -n {namespace} get pdb   # {holders} the drain")
    return words


def part_words(part: HealthPart) -> str:
    """Name a part as its condition's message does: `GPU 3 GPU-5d... at 0000:3b:00`."""
    words = ["GPU" if part.kind == "gpu" else part.kind]
    words += [str(part.index)] if part.index is not None else []
    words += [word for word in (part.name, part.uuid) if word]
    words += [f"at {part.pci}"] if part.pci else []
    words += [f"serial {part.serial}"] if part.serial else []
    return " ".join(words)
