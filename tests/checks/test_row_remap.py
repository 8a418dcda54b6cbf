"""Each way into GpuRowRemapFault, each way back, and what is not evaluated."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.condition import Status
from checks.gpu_health import GpuHealth, RemappedRows, RetiredPages
from checks.observation import GpuReading, NvmlRead
from checks.row_remap import CHECK
from tests.checks.gpu_checks import (
    a_fault_outlives_half_a_reading,
    a_fault_outlives_silence,
    no_history_raises,
    nothing_told_is_never_well,
)
from tests.checks.kernel import NEXT_BOOT
from tests.checks.nvml import Watched, failed, gpu, healthy, read, refusal, released

FALSE = "False RowRemapHealthy"
VOLTA, AMPERE, HOPPER, UNKNOWN_ARCHITECTURE = 5, 7, 9, 2**32 - 1
BANKS = {"banks_max": 640, "banks_high": 0, "banks_partial": 0, "banks_low": 0, "banks_none": 0}
MIG_ROW = "NVML hides row remaps while MIG is on"


def rows(
    correctable: int = 0,
    uncorrectable: int = 0,
    *,
    pending: bool = False,
    failure: bool = False,
    **banks: int | None,
) -> RemappedRows:
    """Build the answer of a GPU with 640 banks."""
    return RemappedRows(
        correctable=correctable,
        uncorrectable=uncorrectable,
        pending=pending,
        failure=failure,
        **{**BANKS, **banks},
    )


def without_histogram(**flags: bool) -> RemappedRows:
    return rows(**dict.fromkeys(BANKS), **flags)  # type: ignore[arg-type]


def one(
    remapped: RemappedRows | None, *, architecture: int | None = HOPPER, **fields: object
) -> tuple[GpuReading, ...]:
    """Build a round of two GPUs: this one, and one that is sound."""
    sick = healthy(0, GpuHealth(remapped=remapped, architecture=architecture), **fields)
    return sick, healthy(1, GpuHealth(remapped=rows(), architecture=HOPPER))


def old(single: int = 0, double: int = 0, *, pending: bool = False) -> tuple[GpuReading, ...]:
    """Build a GPU from before Ampere, which retires pages."""
    pages = RetiredPages(single_bit=single, double_bit=double, pending=pending)
    return (healthy(0, GpuHealth(retired=pages, architecture=VOLTA, absent=("remapped",))),)


def hidden(code: int | None = None, **fields: object) -> tuple[GpuReading, ...]:
    """Build a GPU whose remaps are absent, or give an error of this code."""
    errors = {} if code is None else {"remapped": refusal(code)}
    absent = ("remapped", "retired") if code is None else ("retired",)
    return (healthy(0, GpuHealth(architecture=HOPPER, errors=errors, absent=absent), **fields),)


@pytest.mark.parametrize(
    ("gpus", "shown"),
    [
        pytest.param(one(rows()), FALSE, id="no row was ever remapped"),
        pytest.param(one(rows(3, 2)), FALSE, id="some rows are remapped, as they should be"),
        pytest.param(one(rows(1, pending=True)), "True RowRemapPending", id="a remap waits for a reset"),
        pytest.param(one(rows(1, failure=True)), "True RowRemapFailed", id="a remap failed"),
        pytest.param(
            one(rows(1, pending=True, failure=True)),
            "True RowRemapFailed",
            id="of two the one that takes more away",
        ),
        pytest.param(
            one(rows(0, 8, banks_none=1)), "True SpareRowsExhausted", id="a bank has used all its rows"
        ),
        pytest.param(one(rows(12, 500)), "True SpareRowsExhausted", id="512 rows in all"),
        pytest.param(one(rows(11, 500)), FALSE, id="511 rows in all"),
        pytest.param(
            one(without_histogram(pending=True)), "True RowRemapPending", id="a driver without the histogram"
        ),
        pytest.param(one(without_histogram()), FALSE, id="zeros of such a driver, of a data-centre GPU"),
        pytest.param(
            one(rows(pending=True), architecture=None), "True RowRemapPending", id="no architecture is told"
        ),
        pytest.param(
            one(rows(pending=True), architecture=UNKNOWN_ARCHITECTURE),
            "True RowRemapPending",
            id="an architecture newer than the driver's list",
        ),
        pytest.param(
            one(rows(pending=True), mig=True),
            "True RowRemapPending",
            id="MIG without instances hides nothing",
        ),
        pytest.param(
            one(without_histogram(failure=True), model="NVIDIA GeForce RTX 4090"),
            "True RowRemapFailed",
            id="a flag counts from every board",
        ),
        pytest.param(old(), FALSE, id="before Ampere: no page"),
        pytest.param(old(2, 1), FALSE, id="before Ampere: some pages"),
        pytest.param(old(1, pending=True), "True RetiredPagesPending", id="before Ampere: a page waits"),
        pytest.param(old(60, 3), "True RetiredPagesLimit", id="before Ampere: 63 pages"),
        pytest.param(old(59, 3), FALSE, id="before Ampere: 62 pages"),
        pytest.param(old(0, 16), "True RetiredPagesLimit", id="before Ampere: 16 pages by double-bit errors"),
        pytest.param(old(0, 15), FALSE, id="before Ampere: 15 pages by double-bit errors"),
        pytest.param(hidden(), "", id="the only GPU has neither remaps nor pages"),
        pytest.param(hidden(mig=True), "", id="the only GPU is parted by MIG"),
    ],
)
def test_one_round(gpus: tuple[GpuReading, ...], shown: str) -> None:
    """A flag is kept by the board, so one round is enough."""
    assert Watched(CHECK, bus=2).hears(read(*gpus)).shown == shown


@pytest.mark.parametrize(
    ("remapped", "reasons"),
    [
        pytest.param(rows(128), ["SpareRowsLow"], id="a quarter of all rows"),
        pytest.param(rows(127), [], id="less than that"),
        pytest.param(rows(1, banks_low=1), ["SpareRowsLow"], id="a bank is low"),
        pytest.param(rows(20, banks_partial=16), ["SpareRowsLow"], id="many banks have lost some"),
        pytest.param(rows(20, banks_partial=15), [], id="some banks have lost some"),
        pytest.param(rows(600, banks_low=1), ["SpareRowsExhausted"], id="no warning beside the fault"),
    ],
)
def test_a_warning_of_what_is_coming(remapped: RemappedRows, reasons: list[str]) -> None:
    """It takes nothing away and ends with its cause."""
    watched = Watched(CHECK, bus=2).hears(read(*one(remapped)))
    assert watched.reasons == reasons
    assert watched.waits(90, read(*one(rows()))).reasons == []


def sick() -> Watched:
    return Watched(CHECK, bus=2).hears(read(*one(rows(1, pending=True, failure=True))))


def quiet() -> NvmlRead:
    return read(gpu(0, quiet="XID 79"), one(rows())[1])


@pytest.mark.parametrize(
    ("go", "reasons"),
    [
        pytest.param(
            lambda w: w.waits(90, read(*one(rows(1, failure=True)))),
            ["RowRemapFailed"],
            id="a reset ends what is pending",
        ),
        pytest.param(lambda w: w.waits(90, read(*one(rows(1)))), [], id="another board ends all"),
        pytest.param(
            lambda w: w.waits(30, read(*one(rows(1)))), ["RowRemapFailed", "RowRemapPending"], id="a blink"
        ),
        pytest.param(
            lambda w: w.waits(600, read(*hidden(mig=True))),
            ["RowRemapFailed", "RowRemapPending"],
            id="MIG hides it",
        ),
        pytest.param(
            lambda w: w.waits(600, read(*hidden())),
            ["RowRemapFailed", "RowRemapPending"],
            id="the driver does not show it any more",
        ),
        pytest.param(
            lambda w: w.waits(600, read(*hidden(999))),
            ["RowRemapFailed", "RowRemapPending"],
            id="the call fails",
        ),
        pytest.param(lambda w: w.waits(600, quiet()), ["RowRemapFailed", "RowRemapPending"], id="left alone"),
        pytest.param(
            lambda w: w.waits(600, released()),
            ["RowRemapFailed", "RowRemapPending"],
            id="the driver is released",
        ),
        pytest.param(lambda w: w.waits(600, failed()), ["RowRemapFailed", "RowRemapPending"], id="no driver"),
        pytest.param(lambda w: w.gpu_is_cleared(0).hears(), [], id="a proven repair"),
        pytest.param(
            lambda w: w.gpu_is_cleared(0).waits(30, read(*one(rows(1, failure=True)))),
            ["RowRemapFailed"],
            id="a repair that did not help",
        ),
        pytest.param(lambda w: w.set(boot_id=NEXT_BOOT).hears(read(*one(rows(1)))), [], id="the node boots"),
    ],
)
def test_the_ways_back(go: Callable[[Watched], Watched], reasons: list[str]) -> None:
    """From a GPU with a remap that is pending and one that failed."""
    assert go(sick()).reasons == reasons


def test_retired_pages_end_with_a_reset() -> None:
    """What waited is retired then; a number that is too large stays."""
    watched = Watched(CHECK, bus=1).hears(read(*old(60, 3, pending=True)))
    assert watched.reasons == ["RetiredPagesLimit", "RetiredPagesPending"]
    assert watched.waits(90, read(*old(60, 3))).reasons == ["RetiredPagesLimit"]
    assert watched.waits(90, read(*old())).shown == FALSE


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        pytest.param(hidden(mig=True), MIG_ROW, id="MIG hides it"),
        pytest.param(
            (healthy(0, GpuHealth(remapped=without_histogram(), architecture=AMPERE), mig=True),),
            MIG_ROW,
            id="zeros under MIG",
        ),
        pytest.param(hidden(), "this GPU or driver does not show row remaps", id="the driver lacks it"),
        pytest.param(
            (healthy(0, GpuHealth(architecture=VOLTA, absent=("retired",))),),
            "this GPU or driver does not show retired pages",
            id="an old GPU that shows no pages",
        ),
        pytest.param(
            one(without_histogram(), model="NVIDIA GeForce RTX 4090")[:1],
            "GeForce boards answer with zeros, whether or not they remap rows",
            id="zeros of a GeForce",
        ),
        pytest.param(
            one(rows(banks_max=0))[:1],
            "NVML shows no bank of memory at all, so there is no row remapper",
            id="a histogram without banks",
        ),
    ],
)
def test_not_evaluated(gpus: tuple[GpuReading, ...], why: str) -> None:
    """Said once a GPU; where no GPU shows anything there is no condition, and a healthy neighbour brings it."""
    watched = Watched(CHECK, bus=2).waits(300, read(*gpus))
    assert (watched.shown, watched.rows) == ("", [why])
    watched.hears(read(*gpus, one(rows())[1]))
    assert (watched.shown, watched.rows) == (FALSE, [why])


def test_a_driver_without_the_histogram() -> None:
    """The number of rows is judged alone; where the histogram's call fails nobody knows."""
    watched = Watched(CHECK, bus=1).waits(120, read(*one(without_histogram())[:1]))
    assert (watched.shown, watched.rows) == (
        FALSE,
        ["this GPU or driver does not show the spare rows of each bank"],
    )
    errors = {"remapped": refusal(999, "nvmlDeviceGetRowRemapperHistogram")}
    health = GpuHealth(remapped=without_histogram(), architecture=HOPPER, errors=errors)
    assert watched.waits(90, read(healthy(0, health))).shown == "Unknown RowRemapUnreadable"


def test_unknown_after_three_rounds() -> None:
    """A GPU whose call fails is named with call and code; it is no fault."""
    watched = Watched(CHECK, bus=1).hears(read(*one(rows())))
    assert watched.waits(60, read(*hidden(999))).shown == FALSE
    assert watched.waits(30, read(*hidden(999))).shown == "Unknown RowRemapUnreadable"
    assert "nvmlDeviceGetRemappedRows gives Unknown (999)" in watched.message
    assert watched.hears(read(*one(rows()))).shown == FALSE


def test_without_a_driver() -> None:
    """Unknown after three tries, at once for a release; nothing where NVML is switched off."""
    assert Watched(CHECK).waits(60, failed()).shown == ""
    assert Watched(CHECK).waits(90, failed()).shown == "Unknown RowRemapUnreadable"
    assert Watched(CHECK).hears(released()).shown == "Unknown RowRemapUnreadable"
    off = Watched(CHECK, nvml=False).hears()
    assert (off.shown, len(off.rows)) == ("", 1)


def test_the_message_holds_no_number_that_lives() -> None:
    """It names the part and the threshold; raw values are evidence."""
    watched = Watched(CHECK, bus=1).hears(read(*one(rows(1, 600, pending=True))))
    before = watched.message
    assert "512 rows or more are remapped" in before
    assert watched.waits(600, read(*one(rows(9, 700, pending=True)))).message == before
    assert "uncorrectable 700" in watched.judgement.findings[0].evidence[0]


def test_findings_are_read_back() -> None:
    """An agent that lost its state lets them stand until it reads something else."""
    before = sick().judgement.findings
    after = Watched(CHECK, bus=2)
    assert CHECK.restore is not None
    after.judgement = CHECK.judge([], CHECK.restore(before, None), after.context)
    assert after.waits(600, read(*hidden(999))).reasons == ["RowRemapFailed", "RowRemapPending"]
    assert after.waits(90, read(*one(rows()))).condition.status is Status.FALSE  # type: ignore[union-attr]


@settings(max_examples=40)
@given(st.data())
def test_no_reading_raises(data: st.DataObject) -> None:
    """However odd."""
    no_history_raises(CHECK, data)


@settings(max_examples=40)
@given(st.data())
def test_missing_data_is_never_well(data: st.DataObject) -> None:
    """Neither at first nor after a fault."""
    nothing_told_is_never_well(CHECK, data)
    a_fault_outlives_silence(CHECK, data, [*one(rows(1, pending=True, failure=True))], 30)


@settings(max_examples=40)
@given(st.data())
def test_half_a_reading_heals_nothing(data: st.DataObject) -> None:
    """Whatever is left out of it, with or without an error."""
    a_fault_outlives_half_a_reading(
        CHECK, data, one(rows(1, 9, pending=True, failure=True, banks_none=1))[0], "remapped", 30
    )
