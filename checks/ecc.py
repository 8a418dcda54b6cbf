"""Memory errors that a GPU counts: those that it could not correct, and its own judgement that it needs repair.

**What it means.** A GPU corrects single wrong bits by itself and counts them; two in one word it can only notice. Then data
is lost and the program that needs it is ended. Beside the counters the GPU keeps flags: SRAM errors beyond NVIDIA's limit,
memory that cannot be repaired, a repair that waits for a reset.

**How it is detected.** Each round of NVML gives the counters since the driver was loaded (volatile) and for ever (aggregate)
and the flags. UncorrectableEcc is growth of one of the two counters from one round to the next while the agent watches;
aggregate is counted beside volatile because a GPU that nobody holds may be taken up anew within a round, which sets volatile
to zero. A volatile counter that shows less than before began anew. What the first look shows is no growth: it is the warning
UncorrectableEccUnwatched. CorrectedEccRate is growth beyond `corrected_limit` within `corrected_window_seconds`.

**How grave an uncorrectable error is** this check does not decide. The kernel log does: XID 94 was contained, 48 and 95 were
not, and GpuXidError takes the GPU out for those. A counter cannot tell them apart, so it asks for the mildest of the three:
prefer not, and a reset once idle. It is the same reset that a row remap asks for (RowRemapPending), on the same part, so an
error in DRAM that the remapper dealt with is repaired once and drained for never; and where the log was lost, the reset is
still asked for. What stays ill after the reset shows as SramThresholdExceeded or in GpuRowRemapFault, which need a person.

UncorrectableEcc stands until the node boots or a repair of that GPU is proven (or a person says `kubectl-nodemend repaired
NODE`): a counter has no way of saying that all is well again. The other findings end when the GPU says so for
`clear_seconds`.

**What nodemend does.** It resets the GPU once idle, or keeps new work off that GPU and pages, as the reason's row says.

**What on-call does.** Read the reason's own text; `nvidia-smi -q -d ECC` shows the counters.

**Unknown** (EccUnreadable) after three rounds in which a GPU's call failed or NVML did not answer. A finding stands
meanwhile.

**Not evaluated** is what a GPU or driver does not have: counters of boards without ECC, or with ECC switched off
(EccDisabled says that); the flags before Hopper or with an older driver. Counts by location are not told while MIG is on:
then the message leaves out where the error was.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from checks.check import Check, Context, Judgement
from checks.condition import Healthy
from checks.ecc_reasons import (
    CHANNEL_PENDING,
    CORRECTED_RATE,
    DISABLED,
    REASONS,
    SRAM_THRESHOLD,
    TPC_PENDING,
    UNCORRECTABLE,
    UNREADABLE,
    UNREPAIRABLE,
    UNWATCHED,
)
from checks.finding import Finding, Part, Reason, has_gpu
from checks.gpu_health import Ecc, GpuHealth
from checks.gpu_looks import GpuLooks, LooksMemory, fact, untold
from checks.nvml_word import not_asked, why_not_asked
from checks.observation import GpuReading, Observation
from checks.polled import Rule, Word, restored

NAME = "ecc"
MOST = 2**40
"""Counters are cut here: no board corrects a trillion errors, and what is kept stays within what JSON holds."""
COUNTERS, FLAGS = "memory errors (ECC)", "whether its memory needs repair"


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge the memory errors of every GPU. Never raises for any observation."""
    if why_not_asked(context):
        return Judgement(exists=False, not_evaluated=not_asked(NAME, context), memory=memory)
    settings = context.settings
    window_ms = 1000 * max(1, settings["corrected_window_seconds"])
    looks = GpuLooks(NAME, REASONS, _rules(settings), memory, context, window_ms)

    def words(_: GpuReading, health: GpuHealth, part: Part) -> Iterator[Word]:
        ecc = health.ecc or Ecc()
        yield from _uncorrectable(looks, ecc, health, part)
        yield from _flags(ecc, health, part)
        yield from _corrected(looks, ecc, health, part, settings["corrected_limit"], window_ms)
        if ecc.enabled is None:
            yield _untold(DISABLED, health, part)
        else:
            yield fact(DISABLED, part, not ecc.enabled and settings["warn_disabled"], "ECC is off")

    looks.hear(observations, words)
    return looks.judgement(UNREADABLE, looks.memory())


def restore(findings: Sequence[Finding], memory: Any) -> LooksMemory:
    """Let findings stand again that the agent read back."""
    kept = memory if isinstance(memory, LooksMemory) else LooksMemory()
    return LooksMemory(polled=restored(findings, kept.polled, REASONS), rates=kept.rates, shown=kept.shown)


def _rules(settings: dict[str, Any]) -> dict[str, Rule]:
    rules = {reason.name: Rule(clear_after_s=settings["clear_seconds"]) for reason in REASONS}
    rules[UNCORRECTABLE.name] = Rule(until_reboot=True)
    return rules


def _untold(reason: Reason, health: GpuHealth, part: Part, what: str = COUNTERS) -> Word:
    return untold(health, "ecc", reason, part, what)


def _uncorrectable(looks: GpuLooks, ecc: Ecc, health: GpuHealth, part: Part) -> Iterator[Word]:
    """Judge growth of any of the counters."""
    total = _growth(looks, part, "volatile", ecc.volatile_uncorrected)
    ever = _growth(looks, part, "aggregate", ecc.aggregate_uncorrected)
    sram = max(
        _growth(looks, part, "sram-volatile", ecc.sram_volatile_uncorrected),
        _growth(looks, part, "sram-aggregate", ecc.sram_aggregate_uncorrected),
    )
    grown = max(total, ever, sram) > 0
    if ecc.volatile_uncorrected is None and ecc.aggregate_uncorrected is None and not grown:
        yield _untold(UNCORRECTABLE, health, part)
    else:
        yield fact(UNCORRECTABLE, part, grown, _where(ecc, sram), partial(_shown, ecc))
    if ecc.volatile_uncorrected is None:
        yield _untold(UNWATCHED, health, part)
    else:
        known = grown or looks.polled.stands(UNCORRECTABLE, part)
        earlier = ecc.volatile_uncorrected > 0 and not known
        yield fact(
            UNWATCHED, part, earlier, "uncorrectable errors since the driver was loaded", partial(_shown, ecc)
        )


def _growth(looks: GpuLooks, part: Part, counter: str, value: int | None) -> int:
    if value is None:
        return 0
    key = f"{part.key()} {counter}"
    if counter.endswith("aggregate") and value < (looks.rates.last(key) or 0):
        # For ever means for ever: less than before is another board, or a person who had it set to zero.
        looks.rates.forget(key)
    return looks.rates.count(key, value, most=MOST)


def _where(ecc: Ecc, sram: int) -> str:
    if sram > 0:
        return "uncorrectable errors in SRAM, which has no spare rows"
    if ecc.sram_volatile_uncorrected is None and ecc.sram_aggregate_uncorrected is None:
        return "uncorrectable errors"
    return "uncorrectable errors in DRAM, where rows are remapped (GpuRowRemapFault)"


def _flags(ecc: Ecc, health: GpuHealth, part: Part) -> Iterator[Word]:
    flags = (
        (SRAM_THRESHOLD, ecc.sram_threshold, "the SRAM error threshold is exceeded"),
        (UNREPAIRABLE, ecc.unrepairable, "it reports unrepairable memory"),
        (CHANNEL_PENDING, ecc.channel_repair, "a channel repair waits for a reset of the GPU"),
        (TPC_PENDING, ecc.tpc_repair, "a TPC repair waits for a reset of the GPU"),
    )
    for reason, flag, detail in flags:
        if flag is None:
            yield _untold(reason, health, part, FLAGS)
        else:
            yield fact(reason, part, flag, detail, partial(_shown, ecc))


def _corrected(
    looks: GpuLooks, ecc: Ecc, health: GpuHealth, part: Part, limit: int, window_ms: int
) -> Iterator[Word]:
    if ecc.volatile_corrected is None:
        yield _untold(CORRECTED_RATE, health, part)
        return
    key = f"{part.key()} corrected"
    looks.rates.count(key, ecc.volatile_corrected, most=MOST)
    many = looks.rates.grown(key, window_ms) > limit
    detail = f"more than {limit} corrected errors within {window_ms // 60_000} min"
    yield fact(CORRECTED_RATE, part, many, detail, partial(_shown, ecc))


def _shown(ecc: Ecc) -> tuple[str, ...]:
    volatile = (ecc.volatile_corrected, ecc.volatile_uncorrected, ecc.sram_volatile_uncorrected)
    aggregate = (ecc.aggregate_corrected, ecc.aggregate_uncorrected, ecc.sram_aggregate_uncorrected)
    return tuple(
        f"{since}: corrected {corrected}, uncorrected {uncorrected}, of these in SRAM {sram}"
        for since, (corrected, uncorrected, sram) in (("volatile", volatile), ("aggregate", aggregate))
    )


CHECK = Check(
    name=NAME,
    condition="GpuEccFault",
    healthy=Healthy(
        reason="EccHealthy", message="no new uncorrectable memory error, and no memory that needs repair"
    ),
    reasons=REASONS,
    judge=judge,
    applies=has_gpu,
    memory_type=LooksMemory,
    runbook=__doc__,
    default_settings={
        "clear_seconds": 60,
        "corrected_limit": 10_000,
        "corrected_window_seconds": 3600,
        "warn_disabled": True,
    },
    why_settings={
        "clear_seconds": "two rounds of NVML must agree that a flag is gone; a flag itself counts at once, since it is "
        "kept by the board",
        "corrected_limit": "Azure's node health checks fail a node with so many corrected SRAM errors since the driver was "
        "loaded; within an hour it is a sign of a board that gets worse, and only a warning, since nothing was lost",
        "corrected_window_seconds": "an hour evens out bursts of one weak row, and is short enough to see a change",
        "warn_disabled": "without ECC a GPU counts no error, so none of this can be judged: that should be known",
    },
    unknown_reasons=(UNREADABLE,),
    restore=restore,
    single_look={"clear_seconds": 0},
)
