"""Each way into GpuThrottled, each way back, and what is not evaluated."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.check import Check
from checks.gpu_health import Clocks, GpuHealth
from checks.observation import GpuReading, NvmlRead
from checks.throttle import CHECK, ThrottleMemory
from tests.checks.gpu_checks import (
    a_fault_outlives_half_a_reading,
    a_fault_outlives_silence,
    no_history_raises,
    nothing_told_is_never_well,
)
from tests.checks.kernel import NEXT_BOOT
from tests.checks.nvml import ROUND_S, Watched, failed, gpu, healthy, read, refusal, released

FALSE = "False NotThrottled"
IDLE, APP_CLOCKS, POWER_CAP, SLOWED, SYNC_BOOST, SW_HOT, HW_HOT, BRAKED = (1 << n for n in range(8))
COUNTERS = ("hw_thermal", "sw_thermal", "power_brake", "power_cap")
THERMAL = "HwThermalSlowdown"


def clocks(reasons: int | None = 0, **fields: Any) -> Clocks:
    """Build a cool GPU that works at its highest clock."""
    plain = {
        "throttled_ns": dict.fromkeys(COUNTERS, 0),
        "temperature_c": 55,
        "margin_c": 30,
        "sm_mhz": 1980,
        "sm_max_mhz": 1980,
        "utilisation_percent": 98,
    }
    return Clocks(reasons=reasons, **{**plain, **fields})


def reading(said: Clocks | None, code: int | None = None) -> GpuReading:
    """Build a GPU that says this of its clocks, or nothing at all, or gives an error of this code."""
    errors = {} if code is None else {"clocks": refusal(code, "nvmlDeviceGetCurrentClocksEventReasons")}
    absent = () if said is not None or errors else ("clocks",)
    return healthy(0, GpuHealth(clocks=said, errors=errors, absent=absent))


def says(reasons: int | None = 0, **fields: Any) -> NvmlRead:
    return read(reading(clocks(reasons, **fields)))


def old(reasons: int | None = 0) -> NvmlRead:
    """Build a round of a driver that counts nothing: only the mask is there."""
    return says(reasons, throttled_ns={})


class Machine:
    """One GPU whose driver counts, round by round, how long it was slowed down."""

    def __init__(self, check: Check = CHECK) -> None:
        self.watched = Watched(check, bus=1)
        self.total_ns = dict.fromkeys(COUNTERS, 0)
        self.watched.hears(self._round())

    def _round(self) -> NvmlRead:
        return says(throttled_ns=dict(self.total_ns))

    def runs(self, minutes: float, **percent: int) -> "Machine":
        """Let time pass; each counter named grows by so many percent of it."""
        for _ in range(round(minutes * 60 / ROUND_S)):
            for counter, share in percent.items():
                self.total_ns[counter] += int(ROUND_S * 10_000_000) * share
            self.watched.waits(ROUND_S, self._round())
        return self

    def reloads_driver(self) -> "Machine":
        self.total_ns = dict.fromkeys(COUNTERS, 0)
        return self

    @property
    def reasons(self) -> list[str]:
        return self.watched.reasons


def test_a_clearing_deals_with_what_was_counted_before_it() -> None:
    """Else the window would find it again; what goes on after it is found by its own share."""
    machine = Machine().runs(10, hw_thermal=50)
    assert machine.reasons == [THERMAL]
    machine.watched.is_cleared()
    assert machine.runs(1, hw_thermal=50).reasons == []
    assert machine.runs(20).reasons == []
    machine.watched.gpu_is_cleared(0)
    assert machine.runs(5, hw_thermal=50).reasons == [THERMAL]


@pytest.mark.parametrize(
    ("minutes", "percent", "shown"),
    [
        pytest.param(20, {}, FALSE, id="nothing slows it down"),
        pytest.param(20, {"hw_thermal": 9}, FALSE, id="heat, for less than a tenth of the time"),
        pytest.param(20, {"hw_thermal": 12}, "True HwThermalSlowdown", id="heat, for more than that"),
        pytest.param(1, {"hw_thermal": 100}, FALSE, id="heat, for a minute"),
        pytest.param(1.5, {"hw_thermal": 100}, "True HwThermalSlowdown", id="heat, for longer than a minute"),
        pytest.param(20, {"power_brake": 30}, "True PowerBrake", id="the power supply"),
        pytest.param(20, {"sw_thermal": 40}, FALSE, id="the driver, now and then"),
        pytest.param(20, {"sw_thermal": 60}, "True SwThermalSlowdown", id="the driver, most of the time"),
        pytest.param(20, {"power_cap": 100}, FALSE, id="the power cap is no fault"),
    ],
)
def test_the_share_that_the_driver_counts(minutes: float, percent: dict[str, int], shown: str) -> None:
    """More than a tenth of ten minutes by hardware, more than half by the driver."""
    machine = Machine().runs(minutes, **percent)
    assert machine.watched.shown == shown


@pytest.mark.parametrize(
    ("mask", "rounds", "shown"),
    [
        pytest.param(HW_HOT | SLOWED, 20, "True HwThermalSlowdown", id="heat"),
        pytest.param(HW_HOT, 6, FALSE, id="three minutes of heat"),
        pytest.param(HW_HOT, 7, "True HwThermalSlowdown", id="more than three minutes of heat"),
        pytest.param(BRAKED | SLOWED, 20, "True PowerBrake", id="the power supply"),
        pytest.param(SLOWED, 20, "True HwSlowdown", id="no cause is named"),
        pytest.param(SW_HOT, 20, "True SwThermalSlowdown", id="the driver"),
        pytest.param(POWER_CAP | SYNC_BOOST | APP_CLOCKS | IDLE, 20, FALSE, id="what is no fault"),
    ],
)
def test_the_share_that_is_sampled(mask: int, rounds: int, shown: str) -> None:
    """Where the driver counts nothing, the bits of more than three of ten minutes."""
    watched = Watched(CHECK, bus=1).hears(old()).waits(rounds * ROUND_S, old(mask))
    assert watched.shown == shown
    assert len(watched.reasons) <= 1


@pytest.mark.parametrize("mask", [pytest.param(HW_HOT, id="heat"), pytest.param(SLOWED, id="no cause")])
def test_a_flash_is_nothing(mask: int) -> None:
    """The bit is set at a change of clocks: once in five rounds never counts."""
    watched = Watched(CHECK, bus=1)
    for number in range(100):
        assert watched.waits(ROUND_S, old(mask if number % 5 == 0 else 0)).shown == FALSE


def test_the_unnamed_slowdown_is_sampled_beside_counters() -> None:
    """No counter tells it."""
    assert Watched(CHECK, bus=1).hears(says()).waits(300, says(SLOWED)).reasons == ["HwSlowdown"]
    assert Watched(CHECK, bus=1).hears(says()).waits(300, says(SLOWED | HW_HOT)).reasons == []


def ill() -> Machine:
    return Machine().runs(10, hw_thermal=50)


@pytest.mark.parametrize(
    ("go", "reasons"),
    [
        pytest.param(lambda m: m.runs(8), [THERMAL], id="the window still holds it"),
        pytest.param(lambda m: m.runs(16), [], id="a calm window and five minutes"),
        pytest.param(lambda m: m.runs(30, hw_thermal=50), [THERMAL], id="it goes on"),
        pytest.param(lambda m: m.reloads_driver().runs(3), [THERMAL], id="the counters begin anew"),
    ],
)
def test_the_ways_back(go: Callable[[Machine], Machine], reasons: list[str]) -> None:
    """By calm alone."""
    assert go(ill()).reasons == reasons


@pytest.mark.parametrize(
    "silence",
    [
        pytest.param(read(reading(None)), id="it is not shown any more"),
        pytest.param(read(reading(None, 999)), id="the call fails"),
        pytest.param(read(gpu(0, quiet="XID 79")), id="left alone"),
        pytest.param(released(), id="the driver is released"),
        pytest.param(failed(), id="no driver"),
    ],
)
def test_silence_heals_nothing(silence: NvmlRead) -> None:
    """However long."""
    assert ill().watched.waits(3600, silence).reasons == [THERMAL]


def test_what_was_not_watched_is_no_share() -> None:
    """Neither an hour in which the GPU was left alone, nor the life before the first look, nor an absent agent."""
    machine = Machine()
    machine.watched.waits(3600, read(gpu(0, quiet="XID 79")))
    machine.total_ns["hw_thermal"] = 300 * 10**9
    assert machine.runs(1).reasons == []
    machine.watched.set(watched_ms=10_000)
    machine.total_ns["hw_thermal"] += 3600 * 10**9
    assert machine.runs(0.5).reasons == []


def test_a_boot_begins_anew() -> None:
    """Counters of an earlier boot are none of this one."""
    machine = ill()
    machine.watched.set(boot_id=NEXT_BOOT)
    assert machine.reloads_driver().runs(5).reasons == []


def test_a_gpu_left_alone_is_judged_by_its_part_of_the_window() -> None:
    """A slowdown of a whole hour is one of the last ten minutes too."""
    machine = Machine()
    held = machine.watched.judgement.memory
    assert isinstance(held, ThrottleMemory)
    aged = {
        key: msgspec.structs.replace(one, at_ms=one.at_ms - 3_600_000) for key, one in held.counted.items()
    }
    memory = msgspec.structs.replace(held, counted=aged)
    machine.watched.judgement = msgspec.structs.replace(machine.watched.judgement, memory=memory)
    machine.total_ns["hw_thermal"] = 1800 * 10**9
    assert machine.runs(0.5).reasons == [THERMAL]


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        pytest.param({"sm_mhz": 1200}, ["PinnedClocks"], id="clocks that somebody locked"),
        pytest.param({"reasons": APP_CLOCKS, "sm_mhz": 1200}, ["PinnedClocks"], id="application clocks"),
        pytest.param({"sm_mhz": 1400}, [], id="not far below"),
        pytest.param({"sm_mhz": 345, "utilisation_percent": 10}, [], id="it does little"),
        pytest.param({"reasons": IDLE, "sm_mhz": 345}, [], id="it is idle"),
        pytest.param({"reasons": POWER_CAP, "sm_mhz": 1200}, [], id="the power cap explains it"),
        pytest.param({"margin_c": 3}, ["TemperatureNearLimit"], id="three degrees left"),
        pytest.param({"margin_c": 4}, [], id="four degrees left"),
        pytest.param(
            {"margin_c": None, "slowdown_c": 92, "temperature_c": 90},
            ["TemperatureNearLimit"],
            id="two degrees left, by the threshold",
        ),
        pytest.param(
            {"margin_c": None, "slowdown_c": 92, "temperature_c": 70}, [], id="cool, by the threshold"
        ),
    ],
)
def test_warnings(fields: dict[str, Any], reasons: list[str]) -> None:
    """They take nothing away, come when they have lasted, and end with their cause."""
    watched = Watched(CHECK, bus=1).hears(says(**fields))
    assert watched.reasons == []
    assert watched.waits(660, says(**fields)).reasons == reasons
    assert watched.shown == FALSE
    assert watched.waits(120, read(reading(None, 999))).reasons == reasons
    assert watched.waits(360, says()).reasons == []


def test_not_evaluated() -> None:
    """A GPU that tells nothing has no condition; one that lacks a few things has, and they are listed."""
    nothing = Watched(CHECK, bus=1).waits(300, read(reading(None)))
    assert nothing.shown == ""
    assert len(nothing.rows) == 3
    some = Watched(CHECK, bus=1).waits(300, says(utilisation_percent=None, margin_c=None))
    assert some.shown == FALSE
    assert len(some.rows) == 2
    off = Watched(CHECK, nvml=False).hears()
    assert (off.shown, len(off.rows)) == ("", 1)


def test_unknown_after_three_rounds() -> None:
    """A GPU whose call fails is named; so is a driver that is silent."""
    watched = Watched(CHECK, bus=1).hears(says())
    broken = read(reading(None, 999))
    assert watched.waits(60, broken).shown == FALSE
    assert watched.waits(30, broken).shown == "Unknown ThrottleUnreadable"
    assert "nvmlDeviceGetCurrentClocksEventReasons gives Unknown (999)" in watched.message
    assert watched.hears(says()).shown == FALSE
    assert Watched(CHECK).waits(90, failed()).shown == "Unknown ThrottleUnreadable"


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        pytest.param(0, FALSE, id="nothing"),
        pytest.param(HW_HOT | SLOWED, "True HwThermalSlowdown", id="heat"),
        pytest.param(BRAKED, "True PowerBrake", id="the power supply"),
        pytest.param(SW_HOT, "True SwThermalSlowdown", id="the driver"),
        pytest.param(SLOWED, FALSE, id="what flashes"),
    ],
)
def test_a_single_look(mask: int, shown: str) -> None:
    """There is no share of one moment: the bits count, but for the one that flashes."""
    watched = Watched(CHECK, bus=1, **CHECK.single_look).hears(says(mask))
    assert watched.shown == shown
    assert any("single look" in row for row in watched.rows)


def test_the_message_holds_the_threshold_alone() -> None:
    """It stands still while the numbers move."""
    machine = ill()
    before = machine.watched.message
    assert "for more than 10 % of the last 10 min" in before
    assert machine.runs(30, hw_thermal=90).watched.message == before


def test_memory_stays_small() -> None:
    """A GPU that is slowed down in every way at once, for a day."""
    machine = Machine().runs(120, **dict.fromkeys(COUNTERS, 100))
    size = len(msgspec.json.encode(machine.watched.judgement.memory))
    assert size < 6 * 1024


def test_findings_are_read_back() -> None:
    """An agent that lost its state lets them stand until it has watched a calm window."""
    after = Machine()
    assert CHECK.restore is not None
    memory = CHECK.restore(ill().watched.judgement.findings, None)
    after.watched.judgement = CHECK.judge([], memory, after.watched.context)
    assert after.runs(9).reasons == [THERMAL]
    assert after.runs(7).reasons == []


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
    a_fault_outlives_silence(CHECK, data, [reading(clocks(HW_HOT, throttled_ns={}))], 300)


@settings(max_examples=15)
@given(st.data())
def test_half_a_reading_heals_nothing(data: st.DataObject) -> None:
    """Whatever is left out of it, with or without an error."""
    a_fault_outlives_half_a_reading(
        CHECK, data, reading(clocks(HW_HOT | SW_HOT | BRAKED, throttled_ns={})), "clocks", 600
    )
