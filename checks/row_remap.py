"""Rows of a GPU's memory that were remapped or could not be; before Ampere, retired pages.

**What it means.** A GPU replaces rows of its memory that fail by spare ones (Ampere and newer), or retires their pages. That
is how it is meant to live: a remap that happened is no fault. A remap that waits for a reset, one that failed, and spare
rows that are used up are.

**How it is detected.** Each round of NVML gives the numbers of remapped rows, the flags "pending" and "failure" and how many
banks have how many spare rows left (`nvidia-smi -q -d ROW_REMAPPER`). Nothing is latched: a flag that is gone for a minute
is over, which a reset does to "pending" and only another board to "failure".

A failure is a fault of the part: the faulty row stays in use, so new work is kept off that GPU. Spare rows that are used up
(a bank without one, or `remapped_rows` rows in all, which is all there are) make the next error a failure; until then the
GPU works, so it is only to be preferred not. Both are NVIDIA's grounds for a return and need a person.

**What nodemend does.** A pending remap waits for the GPU to be idle, then the GPU is reset; no running work ends for it. The
rest is shown, new work is kept off as the reason says, and somebody is paged.

**What on-call does.** Read the reason's own text; keep `nvidia-bug-report.sh` for the return.

**Unknown** (RowRemapUnreadable) after three rounds in which a GPU's call failed or NVML did not answer. A finding stands
meanwhile.

**Not evaluated** while MIG is on and NVML therefore tells nothing (NotSupported while there are instances); on GPUs that
have neither remaps nor retired pages; and on boards whose zeros mean nothing. NVML answers with zeros and success on some
boards without the feature, so zeros count only from a GPU of Ampere or newer (nvmlDeviceGetArchitecture) that is no GeForce
and whose histogram, where there is one, shows any banks; a number or flag that is not zero counts from every board. Retired
pages count before Ampere alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from checks.check import Check, Context, Judgement
from checks.condition import Healthy
from checks.finding import Finding, Part, Reason, has_gpu
from checks.gpu_health import GpuHealth, RemappedRows, RetiredPages
from checks.gpu_looks import GpuLooks, LooksMemory, fact, not_shown, untold
from checks.nvml_word import not_asked, why_not_asked
from checks.observation import GpuReading, Observation
from checks.polled import Rule, Word, restored
from checks.row_remap_reasons import (
    EXHAUSTED,
    FAILED,
    PENDING,
    REASONS,
    RETIRED_LIMIT,
    RETIRED_PENDING,
    SPARE_LOW,
    UNREADABLE,
)

NAME = "row_remap"
AMPERE = 7  # nvmlDeviceArchitecture_t, nvml.h; an architecture newer than the driver knows is all ones
REMAPPING = (PENDING, FAILED, EXHAUSTED, SPARE_LOW)
RETIRING = (RETIRED_PENDING, RETIRED_LIMIT)


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge the memory of every GPU. Never raises for any observation."""
    if why_not_asked(context):
        return Judgement(exists=False, not_evaluated=not_asked(NAME, context), memory=memory)
    settings = context.settings
    rule = Rule(clear_after_s=settings["clear_seconds"])
    looks = GpuLooks(NAME, REASONS, {reason.name: rule for reason in REASONS}, memory, context)

    def words(gpu: GpuReading, health: GpuHealth, part: Part) -> Iterator[Word]:
        if is_older_than_ampere(health):
            yield from _retired(health, part, settings)
        else:
            yield from _remapped(gpu, health, part, settings)

    looks.hear(observations, words)
    return looks.judgement(UNREADABLE, looks.memory())


def restore(findings: Sequence[Finding], memory: Any) -> LooksMemory:
    """Let findings stand again that the agent read back."""
    kept = memory if isinstance(memory, LooksMemory) else LooksMemory()
    return LooksMemory(polled=restored(findings, kept.polled, REASONS), rates=kept.rates, shown=kept.shown)


def is_older_than_ampere(health: GpuHealth) -> bool:
    """Tell by the architecture; where it is not told, by which of the two NVML shows."""
    if health.architecture is not None:
        return health.architecture < AMPERE
    return health.remapped is None and health.retired is not None


def _retired(health: GpuHealth, part: Part, settings: dict[str, Any]) -> Iterator[Word]:
    pages = health.retired
    if pages is None:
        yield from (untold(health, "retired", reason, part, "retired pages") for reason in RETIRING)
        return
    shown = partial(_shown_pages, pages)
    yield fact(RETIRED_PENDING, part, pages.pending, "a page waits for the driver to begin anew", shown)
    most, most_double = settings["retired_pages"], settings["retired_double_bit"]
    if max(0, pages.single_bit) + max(0, pages.double_bit) >= most:
        yield fact(RETIRED_LIMIT, part, True, f"{most} pages or more are retired", shown)
    else:
        many = pages.double_bit > most_double
        detail = f"more than {most_double} pages are retired by double-bit errors"
        yield fact(RETIRED_LIMIT, part, many, detail, shown)


def _remapped(gpu: GpuReading, health: GpuHealth, part: Part, settings: dict[str, Any]) -> Iterator[Word]:
    rows = health.remapped
    if rows is None:
        yield from (_hidden(gpu, health, reason, part) for reason in REMAPPING)
        return
    shown = partial(_shown_rows, rows)
    why = "" if rows.pending or rows.failure or _remaps(rows) else why_zeros_mean_nothing(gpu, rows)
    if why:
        yield from (not_shown(reason, part, why) for reason in REMAPPING)
        return
    yield fact(PENDING, part, rows.pending, "a remap waits for a reset of the GPU", shown)
    yield fact(FAILED, part, rows.failure, "a remap failed", shown)
    used_up, low = "; ".join(_used_up(rows, settings)), "; ".join(_low(rows, settings))
    for reason, detail, banks in (
        (EXHAUSTED, used_up, (rows.banks_none,)),
        (SPARE_LOW, "" if used_up else low, (rows.banks_low, rows.banks_partial)),
    ):
        if not detail and None in banks:
            yield untold(health, "remapped", reason, part, "the spare rows of each bank")
        else:
            yield fact(reason, part, bool(detail), detail, shown)


def _hidden(gpu: GpuReading, health: GpuHealth, reason: Reason, part: Part) -> Word:
    if gpu.mig and "remapped" not in health.errors:
        return not_shown(reason, part, "NVML hides row remaps while MIG is on")
    return untold(health, "remapped", reason, part, "row remaps")


def why_zeros_mean_nothing(gpu: GpuReading, rows: RemappedRows) -> str:
    """Say why an answer of zeros proves nothing on this board; empty where it does."""
    banks = [number for number in _banks(rows) if number is not None]
    if banks and not any(banks):
        return "NVML shows no bank of memory at all, so there is no row remapper"
    if not banks and gpu.mig:
        return "NVML hides row remaps while MIG is on"
    if not any(banks) and "geforce" in gpu.model.lower():
        return "GeForce boards answer with zeros, whether or not they remap rows"
    return ""


def _banks(rows: RemappedRows) -> tuple[int | None, ...]:
    return (rows.banks_max, rows.banks_high, rows.banks_partial, rows.banks_low, rows.banks_none)


def _remaps(rows: RemappedRows) -> int:
    return max(0, rows.correctable) + max(0, rows.uncorrectable)


def _used_up(rows: RemappedRows, settings: dict[str, Any]) -> Iterable[str]:
    if (rows.banks_none or 0) > 0:
        yield "a bank has no spare row left"
    if _remaps(rows) >= settings["remapped_rows"]:
        yield f"{settings['remapped_rows']} rows or more are remapped"


def _low(rows: RemappedRows, settings: dict[str, Any]) -> Iterable[str]:
    if (rows.banks_low or 0) > 0:
        yield "a bank has few spare rows left"
    if (rows.banks_partial or 0) >= settings["warn_partial_banks"]:
        yield f"{settings['warn_partial_banks']} banks or more have used part of their spare rows"
    if _remaps(rows) >= settings["warn_remapped_rows"]:
        yield f"{settings['warn_remapped_rows']} rows or more are remapped"


def _shown_rows(rows: RemappedRows) -> tuple[str, ...]:
    banks = "/".join("?" if number is None else str(number) for number in _banks(rows))
    numbers = f"correctable {rows.correctable}, uncorrectable {rows.uncorrectable}"
    flags = f"pending {rows.pending}, failure {rows.failure}"
    return (f"remapped rows: {numbers}, {flags}; banks max/high/partial/low/none {banks}",)


def _shown_pages(pages: RetiredPages) -> tuple[str, ...]:
    return (
        f"retired pages: single-bit {pages.single_bit}, double-bit {pages.double_bit}, pending {pages.pending}",
    )


CHECK = Check(
    name=NAME,
    condition="GpuRowRemapFault",
    healthy=Healthy(
        reason="RowRemapHealthy", message="no row remap is pending or failed, and spare rows are left"
    ),
    reasons=REASONS,
    judge=judge,
    applies=has_gpu,
    memory_type=LooksMemory,
    runbook=__doc__,
    default_settings={
        "clear_seconds": 60,
        "remapped_rows": 512,
        "warn_remapped_rows": 128,
        "warn_partial_banks": 16,
        "retired_pages": 63,
        "retired_double_bit": 15,
    },
    why_settings={
        "clear_seconds": "two rounds of NVML must agree that a flag is gone; a flag itself counts at once, since it is "
        "kept by the board",
        "remapped_rows": "the remapper has 512 rows, and the remap after that sets the failure flag (NVIDIA GPU Memory "
        "Error Management, RMA policy; DCGM warns at the same number)",
        "warn_remapped_rows": "a quarter of all there are: early enough to order a board",
        "warn_partial_banks": "errors spread over many banks point at the board rather than at one weak row; our own choice",
        "retired_pages": "the driver retires 64 pages at most, and DCGM fails a GPU from 63",
        "retired_double_bit": "DCGM's limit for pages retired by double-bit errors",
    },
    unknown_reasons=(UNREADABLE,),
    restore=restore,
    single_look={"clear_seconds": 0},
)
