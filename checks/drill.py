"""Drills: findings that a person asked for (NodeHealth.spec.drills), so that people and programs can rehearse. Pure.

A drill is a finding like any other, marked as one in its condition's message, in NodeHealth, in pages and in metrics; it
reaches no step that takes anything from anybody unless the RemediationPolicy says `drillsAreReal`. It stands from its
beginning to its end and no longer, whatever the check itself finds, and a real finding of the same reason on the same part
takes its place. Nothing is read, written or touched on the machine for it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from checks.check import Check, Context, Drill, Judgement
from checks.condition import worst_first
from checks.finding import Finding, Part, PartKind, Reason

LONGEST = timedelta(hours=1)
MOST = 8
CLOCK_SKEW = timedelta(minutes=5)
"""A person's clock may be ahead of the machine's by this much."""
EVIDENCE = "NodeHealth.spec.drills: "


def with_drills(check: Check, judgement: Judgement, context: Context) -> Judgement:
    """Give the judgement with the drills of this class that are under way; the same one where there are none."""
    asked = [drill for drill in context.drills[:MOST] if _why_not(drill, context.now) is None]
    reasons = {reason.name: reason for reason in check.reasons}
    real = {finding.key() for finding in judgement.findings}
    found: dict[tuple[str, str], Finding] = {}
    for drill in asked:
        reason = reasons.get(drill.reason)
        if reason is not None:
            finding = _finding(drill, reason, context)
            if finding.key() not in real:
                found.setdefault(finding.key(), finding)
    if not found:
        return judgement
    findings = tuple(worst_first([*judgement.findings, *found.values()]))
    return msgspec.structs.replace(judgement, findings=findings, exists=True)


def asked_for(finding: Finding) -> bool:
    """Tell a finding that a drill of NodeHealth.spec made: it is never latched, since the spec says it again."""
    return finding.drill and finding.evidence[:1] != () and finding.evidence[0].startswith(EVIDENCE)


def default_part(kind: PartKind, parts: Sequence[Part]) -> Part:
    """Give the first part of this kind that the machine holds, else one that is only named."""
    fitting = sorted(part for part in parts if part.kind is kind)
    return fitting[0] if fitting else Part(kind=kind, name="" if kind is PartKind.NODE else "drill")


def _why_not(drill: Drill, now: datetime) -> str | None:
    if now >= drill.until:
        return "it is over"
    if now < drill.since - CLOCK_SKEW:
        return "it has not begun"
    if drill.until - drill.since > LONGEST:
        return "it is longer than an hour"
    return None


def _finding(drill: Drill, reason: Reason, context: Context) -> Finding:
    part = next((part for part in context.parts if _names(drill.part, part)), drill.part)
    finding = reason.found_on(
        part,
        context.boot_id,
        first_seen=min(drill.since, context.now),
        last_seen=min(drill.since, context.now),
        drill=True,
        detail=f"drill {drill.id}",
    )
    return msgspec.structs.replace(finding, evidence=(f"{EVIDENCE}{drill.id}",))


def _names(wanted: Part, part: Part) -> bool:
    if wanted.kind is not part.kind:
        return False
    if wanted.uuid or wanted.pci:
        return wanted.uuid in ("", part.uuid) and wanted.pci in ("", part.pci)
    return bool(wanted.name) and wanted.name == part.name
