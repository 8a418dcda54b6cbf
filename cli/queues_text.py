"""The table of `queues`, laid out for a terminal. The strings in it are expected to be clean already."""

from collections.abc import Sequence

from cli.queues import Amounts, QueueRow, QueuesReport, amount_words
from cli.text import table

_HEADER = (
    "QUEUE", "PRIORITY", "QUOTA", "LIMIT", "WEIGHT", "FAIR SHARE", "ALLOCATED", "REQUESTED", "SHORTAGE", "CONDITIONS",
)  # fmt: skip
_NOTHING = ("-",) * 7


def queues_lines(report: QueuesReport, resources: Sequence[str]) -> list[str]:
    """Lay out one table for each resource; beneath them what is wrong and what is not known."""
    lines: list[str] = []
    for resource in resources:
        lines.append(
            f"{resource}: the pool has {amount_words(report.total[resource], resource)},"
            " without what other schedulers' pods hold"
        )
        lines += table(_HEADER, [_cells(row, resource) for row in report.queues])
        lines.append("")
    if not report.queues:
        lines.append("There are no queues in this pool: no job of this scheduler can start.")
    lines += _models(report)
    lines += [f"{row.queue}: {one.type}: {one.message}" for row in report.queues for one in row.conditions]
    if report.reserved_for:
        lines.append(f"room is kept for job {report.reserved_for}, which waits longest")
    lines += report.incomplete
    lines.append(report.note)
    return lines


def _cells(row: QueueRow, resource: str) -> tuple[str, ...]:
    name = "  " * row.depth + row.queue
    conditions = ", ".join(one.type for one in row.conditions)
    mine = next((one for one in row.amounts if one.resource == resource), None)
    if mine is None:
        return (name, str(row.priority), *_NOTHING, conditions)
    return (name, str(row.priority), *_numbers(mine), conditions)


def _numbers(mine: Amounts) -> tuple[str, ...]:
    def words(amount: int) -> str:
        return amount_words(amount, mine.resource)

    quota = words(mine.quota)
    if mine.worth != mine.quota:
        quota += f" (worth {words(mine.worth)})"
    held = words(mine.allocated)
    if mine.non_preemptible:
        held += f" ({words(mine.non_preemptible)} non-preemptible)"
    return (
        quota,
        words(mine.limit),
        f"{mine.weight_milli / 1000:g}",
        words(mine.fair_share),
        held,
        words(mine.requested),
        words(mine.shortage) if mine.shortage else "-",
    )


def _models(report: QueuesReport) -> list[str]:
    rows = [
        (
            row.queue,
            model.model,
            *(amount_words(n, "gpu") for n in (model.quota, model.limit, model.allocated)),
        )
        for row in report.queues
        for model in row.models
    ]
    return [*table(("QUEUE", "GPU MODEL", "QUOTA", "LIMIT", "ALLOCATED"), rows), ""] if rows else []
