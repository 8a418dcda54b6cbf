"""The fleet of `status`, laid out for a terminal. The strings in it are expected to be clean already."""

from datetime import datetime

from cli.status import NodeRow, PoolRow, StatusReport
from cli.text import age, table


def status_lines(report: StatusReport) -> list[str]:
    """Lay the report out for a terminal. The strings in it are expected to be clean already."""
    lines = [f"controller: {report.controller}", ""]
    if report.pools:
        lines += table(
            ("POLICY", "POOL", "MODE", "NODES", "OUT", "QUARANTINED", "REPAIRS", "BUDGET", "BREAKER"),
            [_pool_cells(pool) for pool in report.pools],
        )
    else:
        lines.append("No RemediationPolicy exists: conditions are published, and nothing is done about them.")
    lines.append("")
    if report.nodes:
        lines += table(
            ("NODE", "CONDITIONS", "PHASE", "SINCE", "HELD BY", "NEXT"),
            [_node_cells(row, report.at) for row in report.nodes],
        )
        lines.append("")
    lines.append(_summary(report))
    lines += [f"PROBLEM: {problem}" for problem in report.problems]
    lines += [f"NOT READ: {what}" for what in report.not_read]
    return lines


def _pool_cells(row: PoolRow) -> tuple[str, ...]:
    numbers = (row.nodes, row.out_of_service, row.quarantined, row.repairs_in_flight)
    return (row.policy, row.pool, row.mode, *(str(n) for n in numbers), row.budget, row.breaker)


def _node_cells(row: NodeRow, now: datetime) -> tuple[str, ...]:
    conditions = ", ".join(row.conditions)
    return (row.node, conditions, row.phase, age(row.since, now), row.held_by, row.next)


def _summary(report: StatusReport) -> str:
    words = f"{report.healthy} of {report.watched} watched nodes are healthy"
    if report.with_warnings:
        words += f"; {report.with_warnings} with warnings, which take nothing out of service"
    return f"{words}."
