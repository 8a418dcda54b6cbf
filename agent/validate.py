"""`nodemend-agent validate`: the node proves itself before it is given back. Reads only; needs no cluster.

It demands the number of GPUs that the hardware should have, so many on the PCI bus and answering NVML, and that no fault
stands since this boot. More than that is no fault: the driver may be told to leave one alone. Where NVML cannot be used,
nobody can tell whether they answer. What a running agent remembers of the boot (its state file, where that is mounted)
counts first: it knows what was cleared meanwhile, and what the kernel's ring has dropped.

Exit 0 passed, 1 failed, 3 could not tell. Only 0 gives the node back.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from agent import sight
from agent.config import Config
from agent.judging import Judging
from agent.once import why_not_said
from agent.state_file import StateFile, StateUnusable
from checks.check import Check
from checks.condition import Status
from checks.finding import PartKind
from checks.gpu_missing import why_silent
from checks.nvml_word import spoken
from checks.observation import NvmlRead
from kube.clock import Clock

# What kubelet keeps of a termination message (TerminationMessagePath, k8s.io/api/core/v1).
MESSAGE_LIMIT_BYTES = 4096


class Result(StrEnum):
    PASSED = "Passed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


EXIT_CODES = {Result.PASSED: 0, Result.FAILED: 1, Result.UNKNOWN: 3}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was proven, or not."""

    name: str
    result: Result
    message: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All rows, and the worst of them."""

    result: Result
    node: str
    boot_id: str = msgspec.field(name="bootID")
    rows: tuple[Row, ...] = msgspec.field(name="checks")


def validate(
    config: Config,
    checks: Sequence[Check],
    clock: Clock,
    *,
    gpus: int | None,
    cleared_before: datetime | None = None,
) -> Verdict:
    """Judge this machine now. `gpus` is what the hardware should have; None demands no number."""
    try:
        saved = StateFile(config.state_dir).load()
    except StateUnusable:
        saved = None  # then the whole log is judged, which can only be stricter
    judging = sight.look(config, checks, clock, saved=saved, cleared_before=cleared_before, gpus=gpus)
    rows = (
        _gpu_count(judging, gpus, asked=config.nvml.enabled),
        *(_class(check, judging) for check in checks if check.name in judging.states),
    )
    return Verdict(result=_worst(rows), node=config.node_name, boot_id=judging.boot_id, rows=rows)


def _gpu_count(judging: Judging, demanded: int | None, *, asked: bool) -> Row:
    """Hold the GPUs of the PCI bus and, where NVML is asked, those that answer it against the number that is demanded."""
    if judging.inventory_error:
        return Row(name="gpus", result=Result.UNKNOWN, message=judging.inventory_error)
    found = sum(gpu.part.kind is PartKind.GPU for gpu in judging.inventory.gpus)
    if demanded is None:
        return Row(name="gpus", result=Result.PASSED, message=f"{found} found, no number demanded")
    if found < demanded or not asked or not demanded:
        result = Result.FAILED if found < demanded else Result.PASSED
        return Row(name="gpus", result=result, message=f"{found} found, {demanded} demanded")
    if not isinstance(judging.nvml, NvmlRead):
        why = spoken(judging.nvml).why if judging.nvml is not None else "NVML has not said anything"
        message = f"{found} found, {demanded} demanded, and none could be asked: {why}"
        return Row(name="gpus", result=Result.UNKNOWN, message=message)
    silent = [f"GPU {gpu.index}: {why}" for gpu in judging.nvml.gpus if (why := why_silent(gpu))]
    answering = min(judging.nvml.count, len(judging.nvml.gpus) - len(silent))
    message = "; ".join([f"{found} found, {answering} answer, {demanded} demanded", *silent])
    return Row(name="gpus", result=Result.PASSED if answering >= demanded else Result.FAILED, message=message)


def _class(check: Check, judging: Judging) -> Row:
    state = judging.states[check.name]
    if not check.condition:
        result = Result.UNKNOWN if state.broken else Result.PASSED
        warnings = ", ".join(sorted({finding.reason for finding in state.findings})) or "none"
        return Row(name=check.name, result=result, message=state.broken or f"warnings: {warnings}")
    if not state.exists or state.condition is None:
        result = Result.UNKNOWN if state.exists else Result.PASSED
        return Row(name=check.condition, result=result, message=why_not_said(state))
    result = {
        Status.TRUE: Result.FAILED,
        Status.FALSE: Result.PASSED,
        Status.UNKNOWN: Result.UNKNOWN,
    }[state.condition.status]
    return Row(
        name=check.condition, result=result, message=f"{state.condition.reason}: {state.condition.message}"
    )


def _worst(rows: Sequence[Row]) -> Result:
    results = {row.result for row in rows}
    return next(
        result
        for result in (Result.FAILED, Result.UNKNOWN, Result.PASSED)
        if result in results or not results
    )


def as_json(verdict: Verdict) -> str:
    """Write the verdict for programs, on one line."""
    return msgspec.json.encode(verdict).decode()


def as_text(verdict: Verdict) -> str:
    """Write the verdict for people."""
    return "\n".join(
        [f"{verdict.result}: {verdict.node or 'this machine'}, boot {verdict.boot_id or '(unreadable)'}"]
        + [f"  {row.result:<8} {row.name}: {row.message}" for row in verdict.rows]
    )


def termination_message(verdict: Verdict, limit: int = MESSAGE_LIMIT_BYTES) -> bytes:
    """Write the verdict as JSON of at most `limit` bytes: messages are cut first, then the best rows are left out."""
    order = (Result.FAILED, Result.UNKNOWN, Result.PASSED)
    rows = sorted(verdict.rows, key=lambda row: order.index(row.result))
    for longest in (1024, 256, 64, 0):
        cut = tuple(msgspec.structs.replace(row, message=row.message[:longest]) for row in rows)
        raw = msgspec.json.encode(msgspec.structs.replace(verdict, rows=cut))
        if len(raw) <= limit:
            return raw
    return msgspec.json.encode(msgspec.structs.replace(verdict, rows=()))
