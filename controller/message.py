"""What a page says: a CloudEvents 1.0 event in structured JSON, made of persisted state alone. Pure.

The event's id is the outbox row's and stays the same over every try and every leader; the state it tells is that of the
moment of sending. At most `LARGEST` bytes (Standard Webhooks advises less than 20 kB): raw lines are left out first, then
findings, and the number of those left out is said.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from controller.budget import BREAKER
from controller.case import WORKLOAD
from kube.nodehealth import HealthFinding
from kube.policy import RemediationPolicy
from kube.remediation import Attempt, Notification, Phase, Remediation

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
LARGEST = 19_000
_TEXT = 1024
_MOST_ATTEMPTS = 12
_MOST_PODS = 10
_MOST_WORKLOADS, _MOST_HELD = 3, 5
# What is told of the findings, from most to least: findings, raw lines of each, characters of each raw line.
_LEVELS = ((8, 5, 400), (8, 2, 200), (4, 1, 160), (4, 0, 0), (1, 0, 0))


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """The two texts that the table of reasons has for one reason."""

    summary: str
    runbook: str


def of_incident(
    row: Notification, remediation: Remediation, *, cluster: str, meanings: Mapping[str, Meaning]
) -> bytes:
    """Write the event of one outbox row of a Remediation."""
    for findings, lines, characters in _LEVELS:
        data = _incident_data(row, remediation, cluster)
        told = _told(remediation, findings)
        data["findings"] = [_finding(finding, lines, characters) for finding in told]
        data["findingsOmitted"] = len(_evidence(remediation)) - len(told)
        data["reasons"] = _reasons(told, meanings)
        body = _event(row, kind="remediation", subject=remediation.spec.node_name, cluster=cluster, data=data)
        if len(body) <= LARGEST:
            return body
    data["reasons"] = {}
    data["tried"] = []
    return _event(row, kind="remediation", subject=remediation.spec.node_name, cluster=cluster, data=data)


def of_policy(row: Notification, policy: RemediationPolicy, *, cluster: str) -> bytes:
    """Write the event of one outbox row of a policy: a breaker tripped or a workload is suspected, or let go again."""
    name = policy.metadata.name
    kind = WORKLOAD if row.id.startswith(f"{WORKLOAD}-") else BREAKER
    held = [pool for pool in policy.status.pools if pool.breaker or pool.budget]
    data = {
        "cluster": cluster,
        "incident": f"{kind}/{name}",
        "policy": name,
        "transition": row.transition,
        "sequence": row.sequence,
        "severity": "info" if row.transition == "resolve" else "critical",
        "summary": row.summary[:_TEXT],
        "pools": [
            {
                "pool": pool.pool,
                "nodes": pool.nodes,
                "outOfService": pool.out_of_service,
                "quarantined": pool.quarantined,
                "breaker": pool.breaker[:_TEXT],
                "breakerSince": _time(pool.breaker_since),
                "budget": pool.budget[:_TEXT],
            }
            for pool in held[:_MOST_PODS]
        ],
        "poolsOmitted": max(0, len(held) - _MOST_PODS),
        "workloads": [
            {
                "owner": one.owner,
                "cause": one.cause,
                "held": list(one.held[:_MOST_HELD]),
                "since": _time(one.since),
            }
            for one in policy.status.workloads[:_MOST_WORKLOADS]
        ],
        "commands": {
            "look": f"kubectl get remediationpolicy {name} -o yaml",
            "all": "kubectl nodemend status",
        },
    }
    return _event(row, kind=kind, subject=name, cluster=cluster, data=data)


def _event(row: Notification, *, kind: str, subject: str, cluster: str, data: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": row.id,
            "source": f"//nodemend.dev/clusters/{quote(cluster or 'unnamed', safe='')}",
            "type": f"dev.nodemend.{kind}.{row.transition}",
            "subject": subject,
            "time": _time(row.created_at),
            "datacontenttype": "application/json",
            "sequence": f"{row.sequence:08d}",  # CloudEvents' sequence extension: ordered as text
            "data": data,
        }
    )


def _incident_data(row: Notification, remediation: Remediation, cluster: str) -> dict[str, Any]:
    spec, status = remediation.spec, remediation.status
    node = spec.node_name
    blocked = status.drain.blocked if status.drain is not None else ()
    before = status.before
    return {
        "cluster": cluster,
        "incident": remediation.metadata.name,
        "node": node,
        "nodeUID": spec.node_uid,
        "providerID": spec.provider_id,
        "policy": spec.policy,
        "transition": row.transition,
        "sequence": row.sequence,
        "severity": _severity(row, status.phase),
        "summary": row.summary[:_TEXT],
        "phase": status.phase.value,
        "phaseSince": _time(status.phase_since),
        "message": status.message[:_TEXT],
        "openedAt": _time(spec.opened_at),
        "changedOnNode": None
        if before is None
        else {
            "cordoned": before.cordoned,
            "tainted": before.tainted,
            "unschedulableBefore": before.unschedulable,
        },
        "tried": [_attempt(attempt) for attempt in status.attempts[-_MOST_ATTEMPTS:]],
        "blockedPods": [
            {"namespace": pod.namespace, "name": pod.name, "why": pod.why[:200]}
            for pod in blocked[:_MOST_PODS]
        ],
        "commands": {
            "look": f"kubectl nodemend explain {node}",
            "stop": f"kubectl nodemend cancel {node}",
            "afterRepair": f"kubectl nodemend repaired {node}",
        },
    }


def _severity(row: Notification, phase: Phase) -> str:
    if row.transition == "resolve":
        return "info"
    return "critical" if phase is Phase.ESCALATED else "warning"


def _evidence(remediation: Remediation) -> tuple[HealthFinding, ...]:
    return remediation.status.evidence or remediation.spec.evidence


def _told(remediation: Remediation, most: int) -> tuple[HealthFinding, ...]:
    return _evidence(remediation)[:most]


def _reasons(findings: Iterable[HealthFinding], meanings: Mapping[str, Meaning]) -> dict[str, Any]:
    known = {finding.reason: meanings.get(finding.reason) for finding in findings}
    return {
        reason: {"meaning": meaning.summary[:_TEXT], "runbook": meaning.runbook[: 2 * _TEXT]}
        for reason, meaning in sorted(known.items())
        if meaning is not None
    }


def _finding(finding: HealthFinding, lines: int, characters: int) -> dict[str, Any]:
    part = finding.part
    told = finding.evidence[len(finding.evidence) - min(lines, len(finding.evidence)) :]
    return {
        "condition": finding.condition,
        "reason": finding.reason,
        "effect": finding.effect,
        "urgency": finding.urgency,
        "action": finding.action,
        "part": {
            "kind": part.kind,
            "index": part.index,
            "uuid": part.uuid,
            "pci": part.pci,
            "serial": part.serial,
            "name": part.name,
        },
        "firstSeen": _time(finding.first_seen),
        "lastSeen": _time(finding.last_seen),
        "count": finding.count,
        "bootID": finding.boot_id,
        "drill": finding.drill,
        "detail": finding.detail[:300],
        "rawLines": [line[:characters] for line in told],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "kind": attempt.kind,
        "number": attempt.number,
        "job": attempt.job,
        "startedAt": _time(attempt.started_at),
        "finishedAt": _time(attempt.finished_at),
        "result": attempt.result or "running",
        "message": attempt.message[:300],
        "bootIDBefore": attempt.boot_id_before,
        "bootIDAfter": attempt.boot_id_after,
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
