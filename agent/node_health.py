"""NodeHealth.status from what was judged, and latched findings back from it. Pure.

The object stays within 32 KiB: warnings go first, then older lines of evidence, then what is not evaluated, last the
least faults; `omitted` counts all that was left out. Every text is cut to what the CRD's schema admits, because one text
too long would make the server refuse the whole report.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from agent.host.kmsg import Cursor
from checks.check import NotEvaluated
from checks.condition import worst_first
from checks.finding import Action, Effect, Finding, Part, PartKind, Severity, Urgency
from checks.observation import KERNEL_LOG
from kube.nodehealth import (
    FabricPorts,
    HealthFinding,
    HealthPart,
    LastValidated,
    NodeHealthStatus,
    NotEvaluatedPart,
    OtherDevice,
    PartState,
    Released,
    SourceState,
)

LIMIT_BYTES = 32 * 1024

# The schema's own limits (manifests/crds/nodehealths.yaml).
_MOST_FINDINGS = 512
_MOST_EVIDENCE = 64
_MOST_PARTS = 1024
_LINE = 1024


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that NodeHealth says, at one instant. `findings` carry the type of the condition they belong to."""

    node_uid: str
    boot_id: str
    agent_version: str
    driver: str = ""
    parts: tuple[PartState, ...] = ()
    findings: tuple[tuple[str, Finding], ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    sources: tuple[SourceState, ...] = ()
    published: tuple[str, ...] = ()
    released: Released | None = None
    last_validated: LastValidated | None = None
    other_devices: tuple[OtherDevice, ...] = ()
    fabric_ports: FabricPorts | None = None


class Change(StrEnum):
    """What a new report brings over the one before, the most urgent of it: facts may not wait, counters and pods may.

    HELD is which pods hold what: it changes as often as pods come and go.
    """

    NOTHING = "nothing"
    HELD = "held"
    COUNTERS = "counters"
    FACTS = "facts"


def change(before: Report | None, after: Report) -> Change:
    """Compare two reports. Warnings are counters: an application that crashes all day must not cost a write each time.

    How far the kernel log was read is no change at all, or every kernel message would be one.
    """
    if before is None or _facts(before) != _facts(after):
        return Change.FACTS
    if _counters(before) != _counters(after):
        return Change.COUNTERS
    return Change.NOTHING if _held(before) == _held(after) else Change.HELD


def _held(report: Report) -> tuple[Any, ...]:
    return (report.other_devices, tuple((part.held, part.held_by) for part in report.parts))


def _counters(report: Report) -> tuple[Any, ...]:
    return (report.findings, tuple((source.name, source.lost) for source in report.sources))


def _facts(report: Report) -> tuple[Any, ...]:
    faults = tuple(
        (condition, f.key(), f.effect, f.urgency, f.action, f.drill, f.detail, f.first_seen)
        for condition, f in report.findings
        if f.severity is Severity.FAULT
    )
    sources = tuple((source.name, source.readable, source.error) for source in report.sources)
    parts = tuple(msgspec.structs.replace(part, held=None, held_by="") for part in report.parts)
    identity = (report.node_uid, report.boot_id, report.agent_version, report.driver, parts)
    held, fabric = report.last_validated, report.fabric_ports
    nvml = (report.released, (held.gpus, held.ports, held.rate_mbps) if held is not None else None)
    ports = (fabric.active, fabric.rate_mbps) if fabric is not None else None
    return (faults, sources, identity, nvml, ports, report.not_evaluated, report.published)


def status(report: Report, now: datetime, limit: int = LIMIT_BYTES) -> NodeHealthStatus:
    """Write the status, worst fault first, at most `limit` bytes as JSON."""
    conditions = {id(finding): condition for condition, finding in report.findings}
    faults = worst_first(f for _, f in report.findings if f.severity is Severity.FAULT)
    warnings = sorted(
        (f for _, f in report.findings if f.severity is Severity.WARNING),
        # What is about the node itself, such as records that nobody read, is not crowded out by a storm about its parts.
        key=lambda f: (f.part.kind is PartKind.NODE, f.last_seen, f.reason, f.part),
        reverse=True,
    )
    whole = NodeHealthStatus(
        observed_at=now,
        node_uid=report.node_uid,
        boot_id=report.boot_id,
        agent_version=report.agent_version[:64],
        driver=report.driver[:64],
        parts=tuple(_cut(part) for part in report.parts[:_MOST_PARTS]),
        not_evaluated=tuple(
            NotEvaluatedPart(check=row.check[:63], part=row.part[:253], why=row.why[:_LINE])
            for row in report.not_evaluated[:_MOST_FINDINGS]
        ),
        sources=tuple(msgspec.structs.replace(s, error=s.error[:_LINE]) for s in report.sources),
        published_conditions=report.published,
        released=report.released,
        last_validated=report.last_validated,
        other_devices=report.other_devices,
        fabric_ports=report.fabric_ports,
    )
    return _fitted(
        whole,
        tuple(_finding(conditions[id(finding)], finding) for finding in faults),
        tuple(_finding(conditions[id(finding)], finding) for finding in warnings),
        limit,
    )


def _fitted(
    whole: NodeHealthStatus,
    faults: tuple[HealthFinding, ...],
    warnings: tuple[HealthFinding, ...],
    limit: int,
) -> NodeHealthStatus:
    """Take as much as fits, the most important first; each further candidate says less and needs less room."""
    bare = tuple(_with_evidence(fault, 0) for fault in faults)
    short = msgspec.structs.replace(whole, not_evaluated=())
    candidates = (
        (whole, faults, warnings),
        (whole, tuple(_with_evidence(fault, 1) for fault in faults), ()),
        (whole, bare, ()),
        (short, bare, ()),
        (msgspec.structs.replace(short, parts=(), other_devices=()), bare, ()),
    )
    frame, taken = whole, faults[:0]
    for frame, chosen, rest in candidates:
        room = limit - _size(msgspec.structs.replace(frame, omitted=10**9))
        taken = _as_many((*chosen, *rest), room)
        if len(taken) >= min(len(chosen), _MOST_FINDINGS):
            break
    before = _things(whole, (*faults, *warnings))
    return msgspec.structs.replace(frame, findings=taken, omitted=before - _things(frame, taken))


def _as_many(findings: tuple[HealthFinding, ...], room: int) -> tuple[HealthFinding, ...]:
    taken = 0
    for finding in findings[:_MOST_FINDINGS]:
        room -= _size(finding) + 1
        if room < 0:
            break
        taken += 1
    return findings[:taken]


def _with_evidence(finding: HealthFinding, lines: int) -> HealthFinding:
    """Keep the newest lines of evidence only."""
    newest = finding.evidence[-lines:] if lines else ()
    return msgspec.structs.replace(finding, evidence=newest)


def _things(frame: NodeHealthStatus, findings: Iterable[HealthFinding]) -> int:
    """Count what a report says: findings, lines of evidence, parts, classes not evaluated, devices on no part."""
    said = sum(1 + len(finding.evidence) for finding in findings)
    return said + len(frame.parts) + len(frame.not_evaluated) + len(frame.other_devices)


def _size(value: msgspec.Struct) -> int:
    return len(msgspec.json.encode(value))


def _cut(part: PartState) -> PartState:
    """Cut every text to what the schema admits."""
    return msgspec.structs.replace(
        part,
        pci=part.pci[:32],
        uuid=part.uuid[:128],
        serial=part.serial[:128],
        name=part.name[:253],
        model=part.model[:128],
        held_by=part.held_by[:317],
    )


def _part(part: Part) -> HealthPart:
    return HealthPart(
        kind=part.kind.value,
        pci=part.pci[:32],
        uuid=part.uuid[:128],
        index=part.index,
        serial=part.serial[:128],
        name=part.name[:253],
    )


def _finding(condition: str, finding: Finding) -> HealthFinding:
    return HealthFinding(
        condition=condition,
        reason=finding.reason,
        severity=finding.severity.value,
        effect=finding.effect.value,
        urgency=finding.urgency.value,
        action=finding.action.value,
        part=_part(finding.part),
        first_seen=finding.first_seen,
        last_seen=finding.last_seen,
        count=finding.count,
        boot_id=finding.boot_id,
        drill=finding.drill,
        detail=finding.detail[:_LINE],
        evidence=tuple(line[:_LINE] for line in finding.evidence[-_MOST_EVIDENCE:]),
        holder=finding.holder[:317],
    )


def latched(status: NodeHealthStatus, *, boot_id: str, node_uid: str) -> tuple[tuple[str, Finding], ...]:
    """Read back the findings that stood when the status was written, each with its condition's type.

    Only those of this boot on this Node object: evidence of an earlier boot, or of another machine that had the name, is
    void. What an older or newer agent wrote in words that we do not know is left out.
    """
    if not boot_id or status.boot_id != boot_id or status.node_uid != node_uid:
        return ()
    read = ((row.condition, _read_back(row)) for row in status.findings if row.boot_id == boot_id)
    return tuple((condition, finding) for condition, finding in read if finding is not None)


def _read_back(row: HealthFinding) -> Finding | None:
    try:
        return Finding(
            reason=row.reason,
            severity=Severity(row.severity),
            effect=Effect(row.effect),
            urgency=Urgency(row.urgency),
            action=Action(row.action),
            part=Part(
                kind=PartKind(row.part.kind),
                pci=row.part.pci,
                uuid=row.part.uuid,
                index=row.part.index,
                serial=row.part.serial,
                name=row.part.name,
            ),
            boot_id=row.boot_id,
            first_seen=row.first_seen,
            last_seen=row.last_seen,
            count=row.count,
            evidence=row.evidence,
            drill=row.drill,
            detail=row.detail,
            holder=row.holder,
        )
    except ValueError:
        return None


def kernel_log_position(status: NodeHealthStatus, source: str, *, boot_id: str) -> int | None:
    """Give the number of the last record that an earlier run had judged in this boot, None where that is not known.

    Where faults had to be left out of the status it is of no use: they must be read in the log again.
    """
    if not boot_id or status.boot_id != boot_id:
        return None
    if status.omitted and all(row.severity == Severity.FAULT for row in status.findings):
        return None
    return next((state.sequence for state in status.sources if state.name == source), None)


def is_newer(
    status: NodeHealthStatus,
    saved_at: datetime | None,
    cursor: Cursor | None,
    *,
    boot_id: str,
    node_uid: str,
) -> bool:
    """Tell whether this is a whole account of this boot that was written after our state was saved: the disk took none.

    By the dates, and where the clock was set between them, by how far the kernel log had been read.
    """
    ours = status.boot_id == boot_id and status.node_uid == node_uid and not status.omitted
    if not boot_id or not ours or status.observed_at is None or saved_at is None:
        return False
    position = kernel_log_position(status, KERNEL_LOG, boot_id=boot_id)
    held = cursor.sequence if cursor is not None else -1
    return status.observed_at > saved_at and (-1 if position is None else position) >= held


def status_body(status: NodeHealthStatus) -> Mapping[str, Any]:
    """Write the merge patch: every field is named, so that nothing of an older status shines through.

    Inside lists an unknown value is left out, since the schema admits no null there.
    """
    body: dict[str, Any] = msgspec.to_builtins(status)
    return {"status": {name: _without_null(value) for name, value in body.items()}}


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_null(item) for item in value]
    return value
