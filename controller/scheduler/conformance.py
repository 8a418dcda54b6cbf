"""Runs cases of KAI's conformance suite: rounds, the step between them, and the judgement of what came out.

A scenario is built as a snapshot, planned by the named actions, and judged as the suite's README says. Single-decision
records go through the functions that the parts offer for them. In the default mode an outcome that differs from KAI's is
explained by the rules that cause it, or it is a failure.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from controller.scheduler.casefile import read
from controller.scheduler.casejudge import problems_of
from controller.scheduler.caserounds import Rounds
from controller.scheduler.casewords import Case
from controller.scheduler.cycle import NAMES, Action
from controller.scheduler.fn_grouper import RECORDED
from controller.scheduler.fn_grouper import RUNNERS as GROUPER
from controller.scheduler.fn_shares import RUNNERS as SHARES
from controller.scheduler.rules import COMPATIBLE, REASONS, Rules

UNTOLD = "the record leaves out what its outcome came from"

Completed: TypeAlias = Callable[..., Any]
Record: TypeAlias = Callable[[Any, Rules], Any]


class Verdict(msgspec.Struct, frozen=True):
    """What came of one case: passed, failed, or differs for a stated reason."""

    outcome: str
    why: str = ""


PASSED = Verdict("passed")


def run_case(case: dict[str, Any], rules: Rules, record: Record | None = None) -> Verdict:
    """Run one case or, with the function that decides it, one record."""
    problem = _problem(case, rules, record)
    if not problem:
        return PASSED
    if rules == COMPATIBLE or _problem(case, COMPATIBLE, record):
        return Verdict("failed", problem)
    return Verdict("differs", f"{', '.join(_causes(case, rules, record))}: {problem}")


def _causes(case: dict[str, Any], rules: Rules, record: Record | None) -> list[str]:
    """Name the fewest rules that must be KAI's for KAI's outcome: one where one is enough."""
    ours = [name for name in REASONS if getattr(rules, name)]
    for name in ours:
        if not _problem(case, msgspec.structs.replace(rules, **{name: False}), record):
            return [name]
    causes, tried = list(ours), COMPATIBLE
    for name in ours:
        trial = msgspec.structs.replace(tried, **{name: True})
        if not _problem(case, trial, record):
            tried = trial
            causes.remove(name)
    return causes


def _problem(case: dict[str, Any], rules: Rules, record: Record | None) -> str:
    try:
        return _record_problem(case, rules, record) if record else _scenario_problem(case, rules)
    except msgspec.ValidationError as error:
        return f"unreadable: {error}"
    # One case that stops in the middle must not hide what the others show.
    except Exception as error:  # noqa: BLE001
        return f"stopped by {type(error).__name__}: {error}"


def _record_problem(case: dict[str, Any], rules: Rules, record: Record) -> str:
    missing = [field for field in ("input", "output") if field not in case]
    if missing:
        return f"unreadable: field `{missing[0]}` is missing"
    got = record(case["input"], rules)
    wanted = case["output"]
    if _same(got, wanted):
        return ""
    if isinstance(got, dict) and isinstance(wanted, dict):
        fields = [key for key in {**wanted, **got} if not _same(got.get(key), wanted.get(key))]
        got, wanted = ({key: each[key] for key in fields if key in each} for each in (got, wanted))
    return f"{_short(got)} instead of {_short(wanted)}"


def _same(got: Any, wanted: Any) -> bool:
    """Tell whether two JSON values are equal; numbers to a millionth, for the suite's are binary fractions."""
    if isinstance(wanted, bool) or isinstance(got, bool):
        return got is wanted
    if isinstance(wanted, int | float | Decimal) and isinstance(got, int | float | Decimal):
        return abs(float(got) - float(wanted)) <= max(1.0, abs(float(wanted))) / 1_000_000
    if isinstance(wanted, dict) and isinstance(got, dict):
        return got.keys() == wanted.keys() and all(_same(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(got, list | tuple):
        return len(got) == len(wanted) and all(map(_same, got, wanted))
    return bool(got == wanted)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, sort_keys=True)
    return text if len(text) <= 300 else f"{text[:300]}..."


def _scenario_problem(raw: dict[str, Any], rules: Rules) -> str:
    case = read(raw)
    rounds = Rounds(case, rules, _actions(case))
    for problem in _run(case, rounds):
        if problem:
            return problem
    return _calls_problem(case, rounds)


def _run(case: Case, rounds: Rounds) -> Iterator[str]:
    if case.kind == "action":
        rounds.act()
        yield "; ".join(problems_of(case, rounds, case.observed))
        return
    for _ in range(case.rounds.until_match):
        rounds.act()
        rounds.step()
    yield _after(rounds, problems_of(case, rounds, case.observed_at_match))
    for number in range(case.rounds.after_match):
        rounds.act()
        rounds.step()
        last = number == case.rounds.after_match - 1
        yield _after(rounds, problems_of(case, rounds, case.observed_at_end if last else {}))


def _after(rounds: Rounds, problems: Sequence[str]) -> str:
    return f"after round {rounds.number}: {'; '.join(problems)}" if problems else ""


def _calls_problem(case: Case, rounds: Rounds) -> str:
    if case.max_calls is None:
        return ""
    wanted = msgspec.structs.asdict(case.max_calls)
    over = [
        f"{rounds.calls[name]} {name} instead of at most {most}"
        for name, most in wanted.items()
        if rounds.calls[name] > most
    ]
    return "; ".join(over)


def _actions(case: Case) -> tuple[Action, ...]:
    known = {name: action for action, name in NAMES.items()}
    unknown = [name for name in case.actions if name not in known]
    if unknown:
        raise ValueError(f"actions: {unknown[0]!r} is none of {', '.join(known)}")
    return tuple(known[name] for name in case.actions)


# --- folders ---------------------------------------------------------------------------------------------------------


class FileVerdicts(msgspec.Struct):
    """What came of one file's cases; `lines` say why one failed or differs."""

    passed: int = 0
    failed: list[str] = []
    differs: list[str] = []
    lines: list[str] = []


def run_folder(folder: Path, rules: Rules, only: str = "") -> dict[str, FileVerdicts]:
    """Run every case of a folder's *.json files, or those whose file name or id begins with `only`."""
    paths = (path for path in sorted(folder.glob("*.json")) if not path.is_dir())
    return {path.name: _run_file(path, rules, only) for path in paths}


def _run_file(path: Path, rules: Rules, only: str) -> FileVerdicts:
    found = FileVerdicts()
    everything = path.name.startswith(only)
    try:
        cases = json.loads(path.read_bytes())
        if not isinstance(cases, list):
            raise ValueError(f"is {type(cases).__name__}: must be a list of cases")
    except (OSError, ValueError, RecursionError) as error:
        if everything:
            found.failed.append(path.name)
            found.lines.append(f"{path.name}: failed: {error}")
        return found
    for number, case in enumerate(cases):
        name = str(case.get("id", "")) if isinstance(case, dict) else ""
        if everything or name.startswith(only):
            _note(found, path, name or f"[{number}]", _judge(path, case, name, rules))
    return found


def _judge(path: Path, case: Any, name: str, rules: Rules) -> Verdict:
    if not isinstance(case, dict):
        return Verdict("failed", f"is {type(case).__name__}: must be an object")
    if not name:
        return Verdict("failed", "field `id` is missing")
    if "input" not in case and "output" not in case:
        return run_case(case, rules)
    record = records().get(path.stem)
    if record is None:
        return Verdict("failed", f"no function decides {path.stem} records")
    verdict = run_case(case, rules, record)
    completed = RECORDED.get(path.stem)
    if verdict.outcome == "passed" or completed is None or not isinstance(case.get("output"), dict):
        return verdict
    return _completed_verdict(case, rules, completed, verdict)


def _completed_verdict(case: dict[str, Any], rules: Rules, completed: Completed, verdict: Verdict) -> Verdict:
    """Judge a record that leaves out objects of its cluster.

    The suite's README says what may be read off the outcome: whether a priority class that the workload names was there, and
    whether an older PodGroup was. What is right only where the outcome says more (defaults for a kind, a Karta) proves
    nothing, so it counts as a difference and not as passed.
    """
    output = case["output"]
    if run_case(case, rules, lambda given, by: completed(given, by, output)) == PASSED:
        return PASSED
    if run_case(case, rules, lambda given, by: completed(given, by, output, untold=True)) == PASSED:
        return Verdict("differs", f"{UNTOLD}: {verdict.why}")
    return verdict


def records() -> dict[str, Record]:
    """Give the functions that decide single-decision records, by the suite's file name without its ending."""
    return {**SHARES, **GROUPER}


def _note(found: FileVerdicts, path: Path, name: str, verdict: Verdict) -> None:
    if verdict.outcome == "passed":
        found.passed += 1
        return
    (found.failed if verdict.outcome == "failed" else found.differs).append(name)
    found.lines.append(f"{path.name}: {name} {verdict.outcome}: {verdict.why}")
