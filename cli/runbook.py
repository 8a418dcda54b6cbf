"""`kubectl nodemend runbook`: what a reason means, in the words of the check that gives it. Needs no cluster."""

from collections.abc import Sequence

import msgspec

from checks.check import FaultClass
from checks.finding import Reason, Severity
from checks.runbook import explain
from cli.failure import Exit, Failure
from cli.text import table, wrapped


class ReasonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One reason and what it turns its condition: True, Unknown, or nothing; its fields are the keys of `-o json`."""

    condition: str
    reason: str
    turns: str
    effect: str
    urgency: str
    action: str
    summary: str
    runbook: str


def all_reasons(checks: Sequence[FaultClass]) -> tuple[ReasonRow, ...]:
    """Give every reason of every check, in the checks' own order."""
    rows = []
    for check in checks:
        rows += [
            _row(check, reason, "True" if reason.severity is Severity.FAULT else "nothing")
            for reason in check.reasons
        ]
        rows += [_row(check, reason, "Unknown") for reason in check.unknown_reasons]
    return tuple(rows)


def choose_reasons(checks: Sequence[FaultClass], asked: str) -> tuple[ReasonRow, ...]:
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


def runbook_lines(checks: Sequence[FaultClass], rows: Sequence[ReasonRow], asked: str) -> list[str]:
    """Print the run-book of one reason, or of a condition with the list of its reasons, which may be a single one."""
    condition = rows[0].condition
    if asked.lower() != condition.lower():
        return wrapped(explain(rows[0].reason, checks))
    return [*wrapped(explain(condition, checks)), "", *list_lines(rows)]


def list_lines(rows: Sequence[ReasonRow]) -> list[str]:
    """Lay reasons out, one a line."""
    return table(
        ("CONDITION", "REASON", "TURNS IT", "EFFECT", "URGENCY", "ACTION", "SUMMARY"),
        [(r.condition, r.reason, r.turns, r.effect, r.urgency, r.action, r.summary) for r in rows],
    )


def _row(check: FaultClass, reason: Reason, turns: str) -> ReasonRow:
    return ReasonRow(
        condition=check.condition or check.name,
        reason=reason.name,
        turns=turns,
        effect=reason.effect.value,
        urgency=reason.urgency.value,
        action=reason.action.value,
        summary=reason.summary,
        runbook=reason.runbook,
    )
