"""The rows of `gpus`, laid out for a terminal. The strings in it are expected to be clean already."""

from cli.gpus import FENCED, OFFERED, GpuRow, GpusReport, Holder
from cli.text import table
from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.nodes import PartHealth

_HEADER = ("NODE", "GPU", "UUID", "MODEL", "MEMORY", "HEALTH", "KUBELET", "FREE", "HELD BY", "NODE EFFECTS")
_SHORT = 12
"""So much of a UUID tells the cards of a node apart (`-o json` has it whole)."""


def gpus_lines(report: GpusReport) -> list[str]:
    """Lay the report out; without GPUs it says so."""
    lines = (
        table(_HEADER, [_cells(row) for row in report.gpus]) if report.gpus else ["No GPU is like that here."]
    )
    lines += ["", *report.mig] if report.mig else [""]
    if report.effects:
        rows = [(one.node, one.effect, one.why) for one in report.effects]
        lines += [*table(("NODE", "EFFECT", "WHY"), rows), ""]
    lines.append(
        f"{report.total} GPUs: {report.usable} usable, {report.sick} sick, {report.unknown} unknown;"
        f" {report.free} free{_parts(report)}"
    )
    if any(not holder.card_known for row in report.gpus for holder in row.held_by):
        lines.append(
            "~ = the pod is on this node; which card it holds is not known, this one is counted for it"
        )
    if any(not row.reported and row.health == PartHealth.HEALTHY for row in report.gpus):
        lines.append("Healthy? = no agent reported this node: nothing is known to be ill")
    return [*lines, *report.incomplete]


def _parts(report: GpusReport) -> str:
    parts = report.free_milli - report.free * WHOLE_GPU
    return f", and {parts} milli-GPU of shared ones" if parts else ""


def _cells(row: GpuRow) -> tuple[str, ...]:
    health = row.health + (f" ({row.reason})" if row.reason else "")
    if row.health == PartHealth.HEALTHY and not row.reported:
        health += "?"
    if row.avoid:
        health += f", taken last ({row.avoid})"
    return (
        row.node,
        "-" if row.index is None else str(row.index),
        short_uuid(row.uuid),
        row.model,
        f"{row.memory_mib} MiB" if row.memory_mib else "",
        health,
        OFFERED if row.offered else FENCED,
        _free(row),
        ", ".join(_holder(one) for one in row.held_by),
        ", ".join(row.effects),
    )


def _free(row: GpuRow) -> str:
    if row.free_milli in (0, WHOLE_GPU):
        return "yes" if row.free_milli else "no"
    return f"{row.free_milli}m"


def _holder(one: Holder) -> str:
    part = "" if one.milli == WHOLE_GPU else f" ({one.milli}m)"
    return f"{'' if one.card_known else '~'}{one.pod}{part}"


def short_uuid(uuid: str) -> str:
    """Shorten a UUID as nvidia-smi's users know it; other names stay whole."""
    return uuid[:_SHORT] if uuid.startswith("GPU-") else uuid
