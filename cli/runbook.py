"""`kubectl nodemend runbook`: what a reason means, in the words of the check that gives it. Needs no cluster."""

from collections.abc import Sequence

import msgspec

from checks.check import Check
from checks.finding import Reason
from cli.failure import Exit, Failure
from cli.text import table


class ReasonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One reason with the condition it turns True; its fields are the keys of `-o json`."""

    condition: str
    reason: str
    severity: str
    effect: str
    urgency: str
    action: str
    summary: str
    runbook: str


def all_reasons(checks: Sequence[Check]) -> tuple[ReasonRow, ...]:
    """Give every reason of every check, in the checks' own order."""
    return tuple(_row(check, reason) for check in checks for reason in check.reasons)


def choose_reasons(checks: Sequence[Check], asked: str) -> tuple[ReasonRow, ...]:
    """Find what is meant: a condition gives all its reasons, else the one reason of that name, or the only one like it.

    Raises Failure where nothing, or more than one reason, is like `asked`.
    """
    rows = all_reasons(checks)
    word = asked.lower()
    of_condition = tuple(row for row in rows if row.condition.lower() == word)
    if of_condition:
        return of_condition
    exact = tuple(row for row in rows if row.reason.lower() == word)
    if exact:
        return exact
    like = [row for row in rows if row.reason.lower().startswith(word)] or [
        row for row in rows if word in row.reason.lower()
    ]
    if len(like) == 1:
        return (like[0],)
    if not like:
        raise Failure(f"no reason or condition is like {asked!r}; `runbook` alone lists all", Exit.BAD_USE)
    names = ", ".join(row.reason for row in like)
    raise Failure(f"{asked!r} fits {len(like)} reasons: {names}", Exit.BAD_USE)


def list_lines(rows: Sequence[ReasonRow]) -> list[str]:
    """Lay all reasons out, one a line."""
    return table(
        ("CONDITION", "REASON", "SEVERITY", "EFFECT", "URGENCY", "ACTION", "SUMMARY"),
        [(r.condition, r.reason, r.severity, r.effect, r.urgency, r.action, r.summary) for r in rows],
    )


def _row(check: Check, reason: Reason) -> ReasonRow:
    return ReasonRow(
        condition=check.condition,
        reason=reason.name,
        severity=reason.severity.value,
        effect=reason.effect.value,
        urgency=reason.urgency.value,
        action=reason.action.value,
        summary=reason.summary,
        runbook=reason.runbook,
    )


def runbook_lines(rows: Sequence[ReasonRow]) -> list[str]:
    """Print the run-book of each reason."""
    lines: list[str] = []
    for row in rows:
        lines += [
            f"{row.reason} ({row.condition})",
            f"  {row.summary}",
            f"  severity {row.severity}, effect {row.effect}, urgency {row.urgency}, action {row.action}",
            "",
            *row.runbook.strip().splitlines(),
            "",
        ]
    return lines[:-1]
