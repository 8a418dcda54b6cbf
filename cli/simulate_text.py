"""The outcome of `simulate`, laid out for a terminal. The strings in it are expected to be clean already."""

from collections.abc import Iterable

from cli.gpus_text import short_uuid
from cli.simulate import SimulationReport
from cli.text import table

MOST_CHANGES = 10


def simulation_lines(report: SimulationReport) -> list[str]:
    """Lay the report out; where nothing would be other it says so."""
    lines = [*report.changed[:MOST_CHANGES]]
    if len(report.changed) > MOST_CHANGES:
        lines.append(f"and {len(report.changed) - MOST_CHANGES} more")
    lines.append("")
    lines += _table(
        "LOST WITH THEIR NODE", ("POD", "NODE", "THEN"), ((r.pod, r.node, r.then) for r in report.lost)
    )
    lines += _table(
        "BOUND",
        ("POD", "NODE", "GPUS", "OTHERWISE"),
        (
            (
                r.pod,
                r.node,
                ", ".join(short_uuid(uuid) for uuid in r.gpus),
                r.otherwise or ("is new" if r.is_new else "waits"),
            )
            for r in report.binds
        ),
    )
    lines += _table(
        "EVICTED",
        ("POD", "NODE", "BY", "THEN", "WHY"),
        ((r.pod, r.node, r.action, r.then, r.why) for r in report.evictions),
    )
    lines += _list("NOT EVICTED ANY MORE", report.spared)
    lines += _list("WOULD GET NO PLACE", report.not_placed)
    lines += _table("WAITS", ("JOB", "CODE", "WHY"), ((r.job, r.code, r.message) for r in report.waits))
    lines += _list("WAITS NO LONGER", report.wait_no_more)
    told = (report.lost, report.binds, report.evictions, report.spared, report.not_placed, report.waits)
    if not any(told) and not report.wait_no_more:
        lines += ["The next cycles would do nothing else than they do anyway.", ""]
    cycles = "cycle" if report.cycles == 1 else "cycles"
    end = (
        "until nothing changed" if report.settled else "and it was still changing: jobs may evict each other"
    )
    lines.append(f"{report.cycles} {cycles} {end}. Nothing was written.")
    return [*lines, *report.incomplete, *report.notes]


def _table(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    body = list(rows)
    return [title, *(f"  {line}" for line in table(header, body)), ""] if body else []


def _list(title: str, names: Iterable[str]) -> list[str]:
    body = [f"  {name}" for name in names]
    return [title, *body, ""] if body else []
