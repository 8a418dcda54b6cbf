"""Incident: the values inside a Remediation, and how they are named, latched, told and kept small. Pure.

An incident's name follows from its evidence alone, so that two leaders, or one before and after a crash, can only ever open
the same object. Nothing here decides; `advance` does.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from controller.assess import Key, key, order, part_key
from kube.nodehealth import HealthFinding
from kube.remediation import (
    CLOSED,
    QUARANTINE,
    Attempt,
    NodeBefore,
    Phase,
    Remediation,
    RemediationStatus,
    TimelineEntry,
)
from kube.timestamps import rfc3339
from kube.types import Node, Struct

REVALIDATE = "revalidate"  # the kind of an attempt that proves and repairs nothing
SUCCEEDED = "Succeeded"
FAILED = "Failed"
REFUSED = (
    "Refused"  # not done: it is not for this node, or could not be prepared; it takes its rung all the same
)

EVIDENCE_LIMIT = 20
TIMELINE_LIMIT = 50
ATTEMPTS_LIMIT = 40
_KEPT_FROM_THE_START = 10
_RAW_LINES = 3
_RAW_LENGTH = 512
_TEXT = 1024

# A node whose fault comes and goes would open and clear incidents without end. After this many Cleared in an hour the next
# one is only cleared once the condition has been False for the whole of _SETTLE.
_CLEARED_OFTEN = 3
_OFTEN_WITHIN = timedelta(hours=1)
_SETTLE = timedelta(minutes=10)


class Mark(Struct, frozen=True, kw_only=True):
    """The Node's annotation `nodemend.dev/quarantine`: who holds it, and the recipe for the exact restore."""

    incident: str
    node_uid: str = msgspec.field(name="nodeUID")
    unschedulable_before: bool
    cordoned: bool
    tainted: bool
    at: datetime


class BadMark(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation that somebody edited so that it cannot be read; `why` says what is wrong."""

    why: str


def name_of(node_uid: str, finding: HealthFinding, occurrence: int = 0) -> str:
    """Name the incident that this evidence opens: `inc-` and 12 hex digits, short enough for a taint's value.

    `occurrence` counts incidents of the very same evidence that were Cleared before: the only ones it may open again.
    """
    words = [
        node_uid,
        finding.condition,
        finding.reason,
        part_key(finding.part),
        finding.first_seen.isoformat(),
        finding.boot_id,
    ]
    if occurrence:
        words.append(str(occurrence))
    return f"inc-{hashlib.sha256('|'.join(words).encode()).hexdigest()[:12]}"


def write_mark(incident: str, node_uid: str, before: NodeBefore) -> str:
    """Write the Node's annotation."""
    mark = Mark(
        incident=incident,
        node_uid=node_uid,
        unschedulable_before=before.unschedulable,
        cordoned=before.cordoned,
        tainted=before.tainted,
        at=before.at,
    )
    return msgspec.json.encode(mark).decode()


def read_mark(node: Node) -> Mark | BadMark | None:
    """Read the Node's annotation; None where there is none."""
    text = node.metadata.annotations.get(QUARANTINE)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.DecodeError as error:
        return BadMark(why=f"annotation {QUARANTINE} cannot be read ({error})")


def holds(node: Node, incident: str) -> bool:
    """Tell whether this incident's mark is on this Node object."""
    mark = read_mark(node)
    return isinstance(mark, Mark) and mark.incident == incident and mark.node_uid == node.metadata.uid


def has_taint(node: Node, incident: str) -> bool:
    return any(taint.key == QUARANTINE and taint.value == incident for taint in node.spec.taints)


def is_open(remediation: Remediation) -> bool:
    return remediation.status.phase not in CLOSED


def latched(findings: Iterable[HealthFinding]) -> tuple[HealthFinding, ...]:
    """Keep evidence as it stands now: worst first, at most EVIDENCE_LIMIT, each with its newest raw lines."""
    kept = sorted(findings, key=order)[:EVIDENCE_LIMIT]
    return tuple(
        msgspec.structs.replace(
            finding,
            evidence=tuple(line[:_RAW_LENGTH] for line in finding.evidence[-_RAW_LINES:]),
            detail=finding.detail[:_TEXT],
        )
        for finding in kept
    )


def with_evidence(
    status: RemediationStatus, standing: Sequence[HealthFinding]
) -> tuple[RemediationStatus, tuple[HealthFinding, ...]]:
    """Attach what is new, and give what was attached. What is known stays as it was latched: counts do not move it."""
    known = {key(finding) for finding in status.evidence}
    if all(key(finding) in known for finding in standing):
        return status, ()
    merged = latched([*status.evidence, *(f for f in standing if key(f) not in known)])
    attached = tuple(finding for finding in merged if key(finding) not in known)
    if not attached:
        return status, ()
    return msgspec.structs.replace(status, evidence=merged), attached


def dealt_with(
    remediations: Iterable[Remediation], node_uid: str, finding: HealthFinding
) -> Remediation | None:
    """Give the closed incident that this evidence belongs to, if there is one: it never opens another.

    A Cleared incident does not count: its evidence was gone, and now it stands again. Where a cancelled incident could not
    hold all of its evidence, whatever was first seen before the person's word counts as known to them.
    """
    for one in remediations:
        status = one.status
        if one.spec.node_uid != node_uid or status.phase not in CLOSED or status.phase is Phase.CLEARED:
            continue
        if key(finding) in _keys(one):
            return one
        full = len(status.evidence) >= EVIDENCE_LIMIT and status.phase is Phase.CANCELLED
        if full and status.closed_at is not None and finding.first_seen <= status.closed_at:
            return one
    return None


def occurrence_of(remediations: Iterable[Remediation], node_uid: str, finding: HealthFinding) -> int:
    """Count the Cleared incidents that the very same evidence opened."""
    names = {one.metadata.name for one in remediations if one.status.phase is Phase.CLEARED}
    number = 0
    while name_of(node_uid, finding, number) in names:
        number += 1
    return number


def settle_time(remediations: Iterable[Remediation], now: datetime) -> timedelta:
    """Say how long a condition has to be False before an incident of a node with these remediations is Cleared."""
    recent = [
        one
        for one in remediations
        if one.status.phase is Phase.CLEARED
        and one.status.closed_at is not None
        and now - one.status.closed_at < _OFTEN_WITHIN
    ]
    return _SETTLE if len(recent) >= _CLEARED_OFTEN else timedelta(0)


def told(
    timeline: tuple[TimelineEntry, ...], at: datetime, phase: Phase, message: str
) -> tuple[TimelineEntry, ...]:
    """Add a line to the story. It is kept short by leaving out its middle, and says so."""
    entries = (*timeline, TimelineEntry(at=at, phase=phase.value, message=message[:_TEXT]))
    if len(entries) <= TIMELINE_LIMIT:
        return entries
    tail = entries[-(TIMELINE_LIMIT - _KEPT_FROM_THE_START - 1) :]
    gap = TimelineEntry(at=tail[0].at, phase=tail[0].phase, message="(lines before this one are left out)")
    return (*entries[:_KEPT_FROM_THE_START], gap, *tail)


def next_number(status: RemediationStatus, *, validation: bool) -> int:
    """Number the next attempt; repairs and revalidations count apart, from 1."""
    numbers = [a.number for a in status.attempts if (a.kind == REVALIDATE) == validation]
    return max(numbers, default=0) + 1


def repairs(status: RemediationStatus) -> tuple[Attempt, ...]:
    return tuple(a for a in status.attempts if a.kind != REVALIDATE)


def last_repair(status: RemediationStatus) -> Attempt | None:
    return max(repairs(status), key=lambda a: a.number, default=None)


def validations_since(status: RemediationStatus, since: datetime | None) -> tuple[Attempt, ...]:
    """Give the revalidations that were started at or after `since`, in order."""
    return tuple(
        a for a in status.attempts if a.kind == REVALIDATE and (since is None or a.started_at >= since)
    )


def with_attempt(status: RemediationStatus, attempt: Attempt) -> RemediationStatus:
    """Put an attempt in, or in place of the one of its job. The oldest revalidations give way to a full list."""
    others = [a for a in status.attempts if a.job != attempt.job]
    position = next((i for i, a in enumerate(status.attempts) if a.job == attempt.job), len(others))
    attempts = [*others[:position], attempt, *others[position:]]
    for old in [a for a in attempts if a.kind == REVALIDATE][:-1]:
        if len(attempts) <= ATTEMPTS_LIMIT:
            break
        attempts.remove(old)
    return msgspec.structs.replace(status, attempts=tuple(attempts))


def running(remediation: Remediation, now: datetime) -> Attempt | None:
    """Give the repair that may still be acting on the node, also after the incident was closed over it."""
    open_now = is_open(remediation)
    for attempt in repairs(remediation.status):
        alone = attempt.submitted_at is not None and now < attempt.deadline
        if not attempt.result and (open_now or alone):
            return attempt
    return None


def clock(at: datetime) -> str:
    """Write a time as it stands in messages."""
    return rfc3339(at)


def _keys(remediation: Remediation) -> set[Key]:
    return {key(f) for f in (*remediation.spec.evidence, *remediation.status.evidence)}
