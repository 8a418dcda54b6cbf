"""The run-book, generated from the checks: text for one reason, the README's table, the pages of docs/conditions.md.

`python -m checks.runbook` prints docs/conditions.md, `--table` the README's table, `REASON` the text of one reason or
condition. Tests compare both files with what is printed here, so they are never edited by hand.
"""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence

from checks.check import Check, FaultClass, documented
from checks.finding import EFFECT_RANK, Reason, Severity

NO_CONDITION = "none (warnings)"
"""Stands in the tables where a class has no condition."""
NAMED_IN_A_ROW = 6
NAMED_IN_A_WARNING_ROW = 4
INTRODUCTION = (
    "Generated from the checks by `python -m checks.runbook`; a test keeps it current. True means fault, False means "
    "looked and fine, Unknown means that it should have been readable and was not. A warning is shown in NodeHealth and "
    "never turns a condition True. Reasons are stable: alerts and policies may name them. The agent publishes all of these "
    "but the last one, which is the scheduler's."
)


class UnknownReason(LookupError):
    """No check gives this reason or condition; the message names those that are spelled alike."""


def explain(name: str, checks: Sequence[FaultClass] | None = None) -> str:
    """Give the run-book text of a reason, or of a condition, in plain text. Raises UnknownReason."""
    checks = documented() if checks is None else checks
    known: list[str] = []
    for check in checks:
        if name == (check.condition or check.name):
            return f"{name}\n\n{check.runbook.strip()}"
        for reason in (*check.reasons, *check.unknown_reasons):
            if name == reason.name:
                return _explained(check, reason)
            known.append(reason.name)
        known.append(check.condition or check.name)
    alike = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(alike)}?" if alike else "; `python -m checks.runbook` lists all"
    raise UnknownReason(f"no check gives a reason or condition {name!r}{hint}")


def condition_table(checks: Sequence[FaultClass] | None = None) -> str:
    """Give the README's table (Markdown): reasons that say and do the same share a row, the gravest first."""
    lines = [
        "| Condition | Reason | Turns it | Effect on new work | Urgency | What ends it |",
        "|---|---|---|---|---|---|",
    ]
    for check in documented() if checks is None else checks:
        for alike in _grouped(check.reasons):
            first = alike[0]
            of = check.condition or NO_CONDITION
            turns = "True" if first.severity is Severity.FAULT else "no (a warning)"
            lines.append(
                f"| {of} | {_names(alike)} | {turns} | {first.effect} | {first.urgency} | {first.action} |"
            )
        if check.unknown_reasons:
            names = ", ".join(reason.name for reason in check.unknown_reasons)
            lines.append(f"| {check.condition} | {names} | Unknown | none | | the source can be read again |")
        if check.condition:
            lines.append(f"| {check.condition} | {check.healthy.reason} | False | none | | |")
    return "\n".join(lines) + "\n"


def conditions_page(checks: Sequence[FaultClass] | None = None) -> str:
    """Give docs/conditions.md: each condition's run-book and each reason's."""
    checks = documented() if checks is None else checks
    pages = [
        "# Node conditions and their reasons",
        INTRODUCTION,
    ]
    for check in checks:
        pages += [f"## {check.condition or f'{check.name} (no condition)'}", check.runbook.strip()]
        if check.condition:
            pages.append(f"False says `{check.healthy.reason}`: {check.healthy.message}.")
        if isinstance(check, Check):
            pages.append(_settings(check))
        faults = [reason for reason in check.reasons if reason.severity is Severity.FAULT]
        warnings = [reason for reason in check.reasons if reason.severity is not Severity.FAULT]
        pages += _section("Reasons that turn it True", _gravest_first(faults))
        pages += _section("Reasons of Unknown", check.unknown_reasons)
        pages += _section("Warnings", warnings)
    return "\n\n".join(pages) + "\n"


def _settings(check: Check) -> str:
    """Name the keys of the check's own table in the agent's configuration, their defaults and why they are these."""
    intro = f"Settings, in `[checks.{check.name}]` of agent.toml: `enabled = true` (false switches it off)"
    if not check.default_settings:
        return f"{intro}."
    rows = [
        f"| `{name} = {_toml(value)}` | {check.why_settings.get(name, '')} |"
        for name, value in sorted(check.default_settings.items())
    ]
    return "\n".join([f"{intro}, and", "", "| Default | Why |", "|---|---|", *rows])


def _toml(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else repr(value)
        if isinstance(value, str)
        else str(value)
    )


def _section(title: str, reasons: Iterable[Reason]) -> list[str]:
    texts = [f"#### {reason.name}\n\n{_says(reason)}\n\n{reason.runbook}" for reason in reasons]
    return [f"### {title}", *texts] if texts else []


def _says(reason: Reason) -> str:
    return f"Effect `{reason.effect}`, urgency `{reason.urgency}`, action `{reason.action}`."


def _explained(check: FaultClass, reason: Reason) -> str:
    facts = f"{reason.severity}, effect {reason.effect}, urgency {reason.urgency}, action {reason.action}"
    if reason in check.unknown_reasons:
        facts = "a reason of Unknown"
    return (
        f"{reason.name} ({check.condition or check.name}: {facts})\n\n{reason.summary}.\n\n{reason.runbook}"
    )


def _grouped(reasons: Iterable[Reason]) -> list[list[Reason]]:
    groups: dict[tuple[object, ...], list[Reason]] = {}
    for reason in _gravest_first(reasons):
        key = (reason.severity, reason.effect, reason.urgency, reason.action)
        groups.setdefault(key, []).append(reason)
    return list(groups.values())


def _gravest_first(reasons: Iterable[Reason]) -> list[Reason]:
    """Order by severity, then effect; the order that the checks gave breaks ties."""
    return sorted(reasons, key=lambda r: (r.severity is not Severity.FAULT, -EFFECT_RANK[r.effect]))


def _names(reasons: Sequence[Reason]) -> str:
    most = NAMED_IN_A_ROW if reasons[0].severity is Severity.FAULT else NAMED_IN_A_WARNING_ROW
    if reasons[0].effect.value in {"node-out", "part-out"} and reasons[0].urgency.value == "now":
        most = len(reasons)  # what ends running work is listed in full
    names = ", ".join(f"`{reason.name}`" for reason in reasons[:most])
    more = len(reasons) - most
    return f"{names} and {more} more in docs/conditions.md" if more > 0 else names


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was asked for; 0, or 2 where no check gives the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m checks.runbook", description="Print the run-book of the checks."
    )
    parser.add_argument(
        "reason", nargs="?", help="one reason or condition; without it all of docs/conditions.md"
    )
    parser.add_argument("--table", action="store_true", help="print the README's table instead")
    asked = parser.parse_args(arguments)
    try:
        text = (
            explain(asked.reason) if asked.reason else condition_table() if asked.table else conditions_page()
        )
    except UnknownReason as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
