"""`nodemend-agent --once`: look at this machine now, say what was found and what could not be read, and leave no trace.

Works without root, GPU or cluster. Exit 0: looked and found no fault. 1: a fault stands. 3: something could not be looked
at, so that nobody can say that there is none.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from agent import sight
from agent.config import Config
from agent.judge import CheckState
from agent.judging import Judging
from agent.sight import INVENTORY
from checks.check import Check
from checks.condition import Status
from checks.finding import Finding, PartKind, Severity
from kube.clock import Clock


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed, and the exit status that goes with it."""

    exit_code: int
    report: dict[str, Any]


def look(config: Config, checks: Sequence[Check], clock: Clock) -> Seen:
    """Look once."""
    judging = sight.look(config, checks, clock)
    code = exit_code(judging)
    findings = judging.findings()
    report = {
        "node": config.node_name,
        "bootID": judging.boot_id,
        "observedAt": clock.now(),
        "verdict": {0: "no fault", 1: "fault", 3: "could not look"}[code],
        "driver": judging.known.driver or judging.inventory.driver,
        "parts": judging.parts,
        "conditions": [
            _condition(check, judging)
            for check in checks
            if check.condition and config.check(check.name).enabled
        ],
        "findings": [{"condition": condition, **_finding(finding)} for condition, finding in findings],
        "notEvaluated": [row for state in judging.states.values() for row in state.not_evaluated],
        "unreadable": sight.unreadable(judging),
    }
    return Seen(exit_code=code, report=msgspec.to_builtins(report))


def exit_code(judging: Judging) -> int:
    """Give 1 for a fault that stands, else 3 for anything that could not be judged or read, else 0."""
    if any(finding.severity is Severity.FAULT for _, finding in judging.findings()):
        return 1
    unknown = any(condition.status is Status.UNKNOWN for condition in judging.conditions())
    return 3 if unknown or sight.unreadable(judging) else 0


def _condition(check: Check, judging: Judging) -> dict[str, Any]:
    state = judging.states[check.name]
    if state.condition is None:
        message = why_not_said(state)
        return {"type": check.condition, "status": "", "reason": "", "message": message}
    condition = state.condition
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }


def why_not_said(state: CheckState) -> str:
    """Say why a class has no condition."""
    if state.exists:
        return f"nothing can be said yet{': ' if state.not_yet else ''}{state.not_yet}"
    if state.not_evaluated:
        return f"not evaluated: {state.not_evaluated[0].why}"
    return "nothing of this class on this machine"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "reason": finding.reason,
        "severity": finding.severity,
        "effect": finding.effect,
        "urgency": finding.urgency,
        "action": finding.action,
        "part": finding.part,
        "shown": finding.part.shown(),
        "count": finding.count,
        "drill": finding.drill,
        "detail": finding.detail,
        "evidence": finding.evidence,
    }


def as_json(seen: Seen) -> str:
    """Write the report for programs."""
    return msgspec.json.format(msgspec.json.encode(seen.report), indent=2).decode()


def as_table(seen: Seen) -> str:
    """Write the report for people."""
    report = seen.report
    gpus = str(sum(part["kind"] == PartKind.GPU for part in report["parts"]))
    if any(said.startswith(INVENTORY) for said in report["unreadable"]):
        gpus = "(unreadable)"
    lines = [
        f"node      {report['node'] or '(no name given)'}",
        f"boot      {report['bootID'] or '(unreadable)'}",
        f"gpus      {gpus}",
        f"driver    {report['driver'] or '(none loaded)'}",
        f"verdict   {report['verdict']}",
        "",
    ]
    conditions = [
        [c["type"], c["status"] or "-", c["reason"] or "-", c["message"]] for c in report["conditions"]
    ]
    lines += table(["CONDITION", "STATUS", "REASON", "MESSAGE"], conditions)
    if report["findings"]:
        rows = [
            [f["severity"], f["reason"], f["shown"], str(f["count"]), f["action"], f["detail"]]
            for f in report["findings"]
        ]
        lines += ["", *table(["SEVERITY", "REASON", "PART", "COUNT", "ACTION", "DETAIL"], rows)]
    for row in report["notEvaluated"]:
        lines.append(f"not evaluated: {row['check']} on {row['part']}: {row['why']}")
    if report["unreadable"]:
        lines += ["", *(f"could not read {said}" for said in report["unreadable"])]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Set rows in columns, the last one as wide as it comes."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    return [
        "  ".join([*(word.ljust(width) for word, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in (head, *rows)
    ]
