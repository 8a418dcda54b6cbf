"""The story of `explain NODE`, laid out for a terminal. The strings in it are expected to be clean already."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from cli.explain import Explanation, Incident, part_words
from cli.text import age, clock_time, table
from kube.nodehealth import HealthFinding


def explain_lines(story: Explanation) -> list[str]:
    """Lay the story out, one titled block after the other; empty blocks say that they are empty where that matters."""
    now = story.at
    lines = [*_head(story), ""]
    lines += _block("THE CONTROLLER'S VIEW", story.judged)
    lines += _block("CONDITIONS", _conditions(story) or ["none published"])
    lines += _block("FINDINGS", [line for f in story.findings for line in _finding(f, now)] or ["none"])
    lines += _block("COULD NOT BE READ", story.unreadable)
    lines += _block("NOT EVALUATED (shown, never blocking)", story.not_evaluated)
    for incident in story.incidents:
        lines += _incident(incident, story.findings, now)
    if not story.incidents:
        lines += _block("INCIDENT", ["none, now or before"])
    lines += _block("EARLIER INCIDENTS", story.earlier)
    lines += _block("COMMANDS", story.commands)
    lines += _block("NOT READ (the picture is incomplete)", story.not_read)
    return lines[:-1] if lines[-1] == "" else lines


def _block(title: str, body: Iterable[str], indent: str = "") -> list[str]:
    kept = [f"{indent}  {line}" for line in body]
    return [f"{indent}{title}", *kept, ""] if kept else []


def _head(story: Explanation) -> list[str]:
    report = f", report {age(story.reported_at, story.at)} old" if story.reported_at else ""
    rows = [
        ("Node", story.node),
        ("State", story.cordon),
        ("Taints", ", ".join(story.taints)),
        ("Agent", story.agent + report),
        ("Controller", story.controller),
        ("Driver", story.driver),
        ("Boot ID", story.boot_id),
        ("UID", story.uid),
        ("Provider ID", story.provider_id),
    ]
    return [f"{title + ':':<13}{text}" for title, text in rows if text]


def _conditions(story: Explanation) -> list[str]:
    if not story.conditions:
        return []
    rows = [
        (c.type, c.status, c.reason, age(c.last_transition_time, story.at), c.message)
        for c in story.conditions
    ]
    return table(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)


def _finding(finding: HealthFinding, now: datetime) -> list[str]:
    detail = f" ({finding.detail})" if finding.detail else ""
    drill = "DRILL " if finding.drill else ""
    seen = f"seen once, {clock_time(finding.last_seen)}"
    if finding.count > 1:
        first = clock_time(finding.first_seen)
        seen = f"seen {finding.count} times: first {first}, last {clock_time(finding.last_seen)}"
    return [
        f"{drill}{finding.severity} {finding.reason} on {part_words(finding.part)}{detail}",
        f"  effect {finding.effect}, urgency {finding.urgency}, action {finding.action}",
        f"  {seen} ({age(finding.last_seen, now)} ago)",
        *(f"  | {line}" for line in finding.evidence),
    ]


def _incident(incident: Incident, standing: Sequence[HealthFinding], now: datetime) -> list[str]:
    ended = f", ended {clock_time(incident.closed_at)}" if incident.closed_at else ""
    head = [
        f"phase {incident.phase} for {age(incident.since, now)}, policy {incident.policy}{ended}",
        *([incident.message] if incident.message else []),
        *([f"held by: {incident.held_by}{_held_for(incident, now)}"] if incident.held_by else []),
    ]
    lines = _block(f"INCIDENT {incident.name}", head)
    parts = (
        ("opened on", [line for f in incident.evidence for line in _evidence(f, standing, now)]),
        ("timeline", _timeline(incident)),
        ("drain", _drain(incident, now)),
        ("attempts", _attempts(incident)),
        ("pages", _pages(incident)),
    )
    for title, body in parts:
        lines += _block(title, body, "  ")
    return lines


def _evidence(finding: HealthFinding, standing: Sequence[HealthFinding], now: datetime) -> list[str]:
    """Tell latched evidence in full once it no longer stands, since it is then shown nowhere else."""
    stands = any(
        (f.reason, f.part, f.first_seen) == (finding.reason, finding.part, finding.first_seen)
        for f in standing
    )
    lines = _finding(finding, now)
    return [f"{lines[0]}: stands, see above"] if stands else lines


def _timeline(incident: Incident) -> list[str]:
    rows = [(clock_time(t.at), t.phase, t.message) for t in incident.timeline]
    return table(("AT", "PHASE", "WHAT"), rows) if rows else []


def _held_for(incident: Incident, now: datetime) -> str:
    return "" if incident.held_since is None else f" (for {age(incident.held_since, now)})"


def _drain(incident: Incident, now: datetime) -> list[str]:
    lines = [f"{incident.evicted} pods evicted"] if incident.evicted else []
    if incident.drain_deadline is not None:
        left = max(0, int((incident.drain_deadline - now).total_seconds()))
        lines.append(
            f"deadline {clock_time(incident.drain_deadline)}, {left} s left, then {incident.drain_ends}"
        )
    return lines + [f"waits for {b.namespace}/{b.name}: {b.why}" for b in incident.blocked]


def _attempts(incident: Incident) -> list[str]:
    if not incident.attempts:
        return []
    rows = [
        (
            str(a.number),
            a.kind,
            a.result or ("running" if a.submitted_at is not None else "not started"),
            clock_time(a.started_at),
            clock_time(a.finished_at or a.deadline) + ("" if a.finished_at else " (deadline)"),
            _boot(a.boot_id_before, a.boot_id_after),
            a.message,
        )
        for a in incident.attempts
    ]
    return table(("NO", "KIND", "RESULT", "STARTED", "ENDED", "BOOT ID", "WHAT"), rows)


def _boot(before: str, after: str) -> str:
    return f"{before[:8]} -> {after[:8] or '?'}" if before else ""


def _pages(incident: Incident) -> list[str]:
    if not incident.notifications:
        return []
    rows = [
        (
            str(n.sequence),
            n.sink,
            n.transition,
            _delivery(n.sent_at, dead=n.dead, attempts=n.attempts, next_try=n.next_try),
            n.error or n.summary,
        )
        for n in incident.notifications
    ]
    return table(("NO", "SINK", "WHAT", "STATE", "TEXT"), rows)


def _delivery(sent_at: datetime | None, *, dead: bool, attempts: int, next_try: datetime | None) -> str:
    if sent_at is not None:
        return f"sent {clock_time(sent_at)}"
    if dead:
        return f"GIVEN UP after {attempts} tries"
    return f"{attempts} tries failed, next {clock_time(next_try)}" if attempts else "waiting to be sent"
