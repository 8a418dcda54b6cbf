"""Each way into GpuEccFault, each way back, and what is not evaluated."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.ecc import CHECK
from checks.gpu_health import Ecc, GpuHealth
from checks.observation import GpuReading, NvmlRead
from tests.checks.gpu_checks import (
    a_fault_outlives_half_a_reading,
    a_fault_outlives_silence,
    no_history_raises,
    nothing_told_is_never_well,
)
from tests.checks.kernel import NEXT_BOOT
from tests.checks.nvml import Watched, failed, gpu, healthy, read, refusal, released

FALSE = "False EccHealthy"
SOUND = Ecc(
    enabled=True,
    volatile_corrected=0,
    volatile_uncorrected=0,
    aggregate_corrected=0,
    aggregate_uncorrected=0,
    sram_volatile_uncorrected=0,
    sram_aggregate_uncorrected=0,
    sram_threshold=False,
    unrepairable=False,
    channel_repair=False,
    tpc_repair=False,
)
UNCORRECTABLE = "UncorrectableEcc"


def said(code: int | None = None, **fields: Any) -> NvmlRead:
    """Build a round of one sound GPU, but for these fields; `code` is an error that one of its calls gave."""
    return read(reading(code, **fields))


def reading(code: int | None = None, **fields: Any) -> GpuReading:
    errors = {} if code is None else {"ecc": refusal(code, "nvmlDeviceGetTotalEccErrors")}
    ecc = Ecc(**{**{name: getattr(SOUND, name) for name in SOUND.__struct_fields__}, **fields})
    return healthy(0, GpuHealth(ecc=ecc, errors=errors))


def hidden(code: int | None = None, **fields: Any) -> NvmlRead:
    """Build a GPU that tells nothing of ECC: absent, or an error of this code."""
    errors = {} if code is None else {"ecc": refusal(code, "nvmlDeviceGetTotalEccErrors")}
    return read(healthy(0, GpuHealth(errors=errors, absent=("ecc",) if code is None else ()), **fields))


def well() -> Watched:
    return Watched(CHECK, bus=1).hears(said())


def ill() -> Watched:
    """Give a GPU that counted an uncorrectable error while it was watched."""
    return well().waits(30, said(volatile_uncorrected=1, aggregate_uncorrected=1))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        pytest.param({}, FALSE, id="nothing grows"),
        pytest.param({"volatile_uncorrected": 1}, "True UncorrectableEcc", id="an uncorrectable error"),
        pytest.param(
            {"aggregate_uncorrected": 1}, "True UncorrectableEcc", id="the GPU was taken up anew meanwhile"
        ),
        pytest.param(
            {"volatile_uncorrected": None, "aggregate_uncorrected": 1},
            "True UncorrectableEcc",
            id="only the aggregate is told",
        ),
        pytest.param({"sram_threshold": True}, "True SramThresholdExceeded", id="too many errors in SRAM"),
        pytest.param({"unrepairable": True}, "True UnrepairableMemory", id="memory that cannot be repaired"),
        pytest.param({"channel_repair": True}, "True ChannelRepairPending", id="a channel repair waits"),
        pytest.param({"tpc_repair": True}, "True TpcRepairPending", id="a TPC repair waits"),
        pytest.param(
            {"volatile_uncorrected": 9, "sram_threshold": True},
            "True SramThresholdExceeded",
            id="of two the one that takes more away",
        ),
        pytest.param({"enabled": False}, FALSE, id="ECC off is a warning"),
        pytest.param({"volatile_corrected": 20_000}, FALSE, id="correcting much is a warning"),
        pytest.param({"volatile_uncorrected": -5}, FALSE, id="a number that makes no sense"),
    ],
)
def test_from_a_well_gpu(fields: dict[str, Any], shown: str) -> None:
    """One round is enough: a flag is kept by the board, and a counter does not grow by accident."""
    assert well().waits(30, said(**fields)).shown == shown


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        pytest.param(
            {"volatile_uncorrected": 3},
            ["UncorrectableEccUnwatched"],
            id="errors since the driver was loaded",
        ),
        pytest.param({"aggregate_uncorrected": 3}, [], id="errors of an earlier life"),
        pytest.param({"volatile_corrected": 10**9}, [], id="corrected ones are no rate yet"),
        pytest.param({"enabled": False}, ["EccDisabled"], id="ECC is off"),
        pytest.param({"sram_threshold": True}, ["SramThresholdExceeded"], id="a flag counts at once"),
    ],
)
def test_the_first_look(fields: dict[str, Any], reasons: list[str]) -> None:
    """What was counted before anybody looked is no growth."""
    assert Watched(CHECK, bus=1).hears(said(**fields)).reasons == reasons


@pytest.mark.parametrize(
    ("go", "reasons"),
    [
        pytest.param(lambda w: w.waits(600, said()), [UNCORRECTABLE], id="the driver is loaded anew"),
        pytest.param(
            lambda w: w.waits(600, said(volatile_uncorrected=1, aggregate_uncorrected=1)),
            [UNCORRECTABLE],
            id="nothing grows any more",
        ),
        pytest.param(lambda w: w.waits(600, hidden()), [UNCORRECTABLE], id="it is not shown any more"),
        pytest.param(lambda w: w.waits(600, hidden(999)), [UNCORRECTABLE], id="the call fails"),
        pytest.param(lambda w: w.waits(600, read(gpu(0, quiet="XID 79"))), [UNCORRECTABLE], id="left alone"),
        pytest.param(lambda w: w.waits(600, released()), [UNCORRECTABLE], id="the driver is released"),
        pytest.param(lambda w: w.set(boot_id=NEXT_BOOT).hears(said()), [], id="the node boots"),
        pytest.param(lambda w: w.gpu_is_cleared(0).hears(said()), [], id="a reset is proven"),
        pytest.param(
            lambda w: w.is_cleared().waits(30, said(volatile_uncorrected=1, aggregate_uncorrected=1)),
            ["UncorrectableEccUnwatched"],
            id="a person clears it without a reset",
        ),
        pytest.param(
            lambda w: w.gpu_is_cleared(0).hears().waits(60, said(aggregate_uncorrected=2)),
            [],
            id="the reset itself writes down what was counted for ever",
        ),
        pytest.param(
            lambda w: w.gpu_is_cleared(0).hears(said()).waits(30, said(volatile_uncorrected=1)),
            [UNCORRECTABLE],
            id="it comes back after the reset",
        ),
    ],
)
def test_the_ways_back_of_an_uncorrectable_error(
    go: Callable[[Watched], Watched], reasons: list[str]
) -> None:
    """A boot, a proven repair, or a person's word."""
    assert go(ill()).reasons == reasons


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"sram_threshold": True}, "SramThresholdExceeded", id="SRAM"),
        pytest.param({"unrepairable": True}, "UnrepairableMemory", id="unrepairable"),
        pytest.param({"channel_repair": True}, "ChannelRepairPending", id="channel"),
        pytest.param({"tpc_repair": True}, "TpcRepairPending", id="TPC"),
        pytest.param({"enabled": False}, "EccDisabled", id="ECC off"),
    ],
)
def test_a_flag_ends_with_what_it_says(fields: dict[str, Any], reason: str) -> None:
    """After a minute without it; not by silence; after three refusals nobody knows."""
    watched = well().waits(30, said(**fields))
    assert watched.reasons == [reason]
    assert watched.waits(300, hidden()).reasons == [reason]
    assert watched.waits(300, hidden(999)).reasons == [reason]
    assert watched.waits(30, said()).reasons == [reason]
    assert watched.waits(60, said()).reasons == []


def test_an_earlier_error_ends_with_a_reset() -> None:
    """The volatile counter says so itself, and a fault takes the warning's place."""
    watched = Watched(CHECK, bus=1).hears(said(volatile_uncorrected=3))
    assert watched.waits(90, said()).reasons == []
    again = Watched(CHECK, bus=1).hears(said(volatile_uncorrected=3))
    assert again.waits(90, said(volatile_uncorrected=4)).reasons == [UNCORRECTABLE]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        pytest.param({"sram_volatile_uncorrected": 1}, "in SRAM", id="SRAM"),
        pytest.param({}, "in DRAM", id="DRAM, which is remapped"),
        pytest.param(
            {"sram_volatile_uncorrected": None, "sram_aggregate_uncorrected": None},
            "(uncorrectable errors)",
            id="MIG does not tell where",
        ),
    ],
)
def test_where_an_error_was(fields: dict[str, Any], where: str) -> None:
    """The message says it as far as it is told, and holds no count."""
    watched = well().waits(30, said(volatile_uncorrected=1, **fields))
    before = watched.message
    assert where in before
    more = {name: value and 7 for name, value in fields.items()}
    assert watched.waits(30, said(volatile_uncorrected=7, **more)).message == before


def test_an_error_that_was_remapped_is_drained_for_never() -> None:
    """It asks for what RowRemapPending asks for: one reset, once the part is idle."""
    (finding,) = ill().judgement.findings
    assert (finding.effect, finding.urgency, finding.action) == ("prefer-not", "when-idle", "RESET_GPU")


def test_many_corrected_errors_are_a_rate() -> None:
    """Within an hour of watched time; a counter that began anew counts from nothing."""
    watched = well().waits(30, said(volatile_corrected=10_000))
    assert watched.reasons == []
    assert watched.waits(30, said(volatile_corrected=10_001)).reasons == ["CorrectedEccRate"]
    assert watched.waits(600, said(volatile_corrected=10_001)).reasons == ["CorrectedEccRate"]
    watched.gpu_is_cleared(0)
    assert watched.waits(60, said(volatile_corrected=10_001)).reasons == []
    assert watched.waits(3600, said(volatile_corrected=0)).reasons == []
    assert watched.waits(300, hidden(999)).shown == "Unknown EccUnreadable"


def test_ecc_off_on_purpose() -> None:
    """The setting ends the warning, too."""
    watched = Watched(CHECK, bus=1).hears(said(enabled=False))
    watched.set(settings={**CHECK.default_settings, "warn_disabled": False})
    assert watched.waits(90, said(enabled=False)).reasons == []


def test_not_evaluated() -> None:
    """A board without ECC has no condition; one that lacks only the newer flags has, and they are listed once."""
    without = Watched(CHECK, bus=1).waits(300, hidden())
    assert (without.shown, len(without.rows)) == ("", 2)
    off = {"volatile_corrected": None, "volatile_uncorrected": None, "aggregate_uncorrected": None}
    flags = dict.fromkeys(("sram_threshold", "unrepairable", "channel_repair", "tpc_repair"))
    assert Watched(CHECK, bus=1).hears(said(enabled=False, **off, **flags)).shown == ""
    older = Watched(CHECK, bus=1).waits(300, said(**flags))
    assert (older.shown, len(older.rows)) == (FALSE, 1)


def test_unknown_after_three_rounds() -> None:
    """A GPU whose calls fail, in whole or in part, is named; so is a driver that is silent."""
    watched = well()
    assert watched.waits(60, hidden(999)).shown == FALSE
    assert watched.waits(30, hidden(999)).shown == "Unknown EccUnreadable"
    assert "nvmlDeviceGetTotalEccErrors gives Unknown (999)" in watched.message
    assert watched.hears(said()).shown == FALSE
    assert watched.waits(90, said(4, sram_threshold=None)).shown == "Unknown EccUnreadable"
    assert Watched(CHECK).waits(90, failed()).shown == "Unknown EccUnreadable"
    off = Watched(CHECK, nvml=False).hears()
    assert (off.shown, len(off.rows)) == ("", 1)


def test_findings_are_read_back() -> None:
    """An agent that lost its state lets the latched one stand."""
    after = Watched(CHECK, bus=1)
    assert CHECK.restore is not None
    memory = CHECK.restore(ill().judgement.findings, None)
    after.judgement = CHECK.judge([], memory, after.context)
    assert after.waits(600, said(volatile_uncorrected=1)).reasons == [UNCORRECTABLE]


@settings(max_examples=30)
@given(st.data())
def test_no_reading_raises(data: st.DataObject) -> None:
    """However odd."""
    no_history_raises(CHECK, data)


@settings(max_examples=20)
@given(st.data())
def test_missing_data_is_never_well(data: st.DataObject) -> None:
    """Neither at first nor after a fault."""
    nothing_told_is_never_well(CHECK, data)
    a_fault_outlives_silence(CHECK, data, [reading(sram_threshold=True, tpc_repair=True)], 30)


@settings(max_examples=20)
@given(st.data())
def test_half_a_reading_heals_nothing(data: st.DataObject) -> None:
    """Whatever is left out of it, with or without an error."""
    a_fault_outlives_half_a_reading(
        CHECK,
        data,
        reading(sram_threshold=True, unrepairable=True, channel_repair=True, tpc_repair=True),
        "ecc",
        30,
    )
