"""The checks of GPU health on what the real child reads of the fake driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.nvml.by_hand import Hand, by_hand
from tests.agent.nvml.nursery import Nursery

ROW_REMAP, ECC, THROTTLED = "GpuRowRemapFault", "GpuEccFault", "GpuThrottled"
WELL = {
    ROW_REMAP: "False RowRemapHealthy",
    ECC: "False EccHealthy",
    THROTTLED: "False NotThrottled",
}
HW_THERMAL_NS = 270


@pytest.fixture
def hand(tmp_path: Path, nursery: Nursery) -> Iterator[Hand]:
    """A machine of two H100s that are well."""
    with by_hand(tmp_path, nursery) as one:
        one.read()
        one.read()
        yield one


def shown(hand: Hand) -> dict[str, str]:
    conditions = {one.type: f"{one.status} {one.reason}" for one in hand.judging.conditions()}
    return {type_: conditions[type_] for type_ in WELL if type_ in conditions}


def test_a_well_machine_is_well(hand: Hand) -> None:
    """And everything is evaluated."""
    assert shown(hand) == WELL
    assert [row for check in ("row_remap", "ecc", "throttle") for row in hand.not_shown(check)] == []


def test_row_remaps(hand: Hand) -> None:
    """A remap is pending, then done; MIG hides what follows."""
    hand.fake.set(0, "remapped_rows", (0, 1, 1, 0))
    hand.read()
    assert shown(hand)[ROW_REMAP] == "True RowRemapPending"
    hand.fake.set(0, "remapped_rows", (0, 1, 0, 0))
    hand.live(120)
    assert shown(hand) == WELL
    hand.fake.mig(0, on=True)
    hand.live(120)
    assert shown(hand) == WELL
    assert any("NVML hides row remaps while MIG is on" in row for row in hand.not_shown("row_remap"))


def test_memory_errors(hand: Hand) -> None:
    """One that grows, and a flag; a call that fails is Unknown once nothing stands."""
    hand.fake.set(0, "ecc.1.0", 1)
    hand.read()
    assert shown(hand)[ECC] == "True UncorrectableEcc"
    hand.fake.set(1, "sram", (1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 1))
    hand.read()
    assert shown(hand)[ECC] == "True SramThresholdExceeded"
    hand.begin_judging()
    hand.fake.answer("nvmlDeviceGetSramEccErrorStatus", 999)
    hand.live(120)
    assert shown(hand)[ECC] == "Unknown EccUnreadable"


def test_slowdowns(hand: Hand) -> None:
    """Half of the time, by the driver's own counter; a call that fails for a warning alone takes nothing away."""
    for number in range(1, 21):
        hand.fake.field(0, HW_THERMAL_NS, number * 15 * 10**9, kind="ulonglong")
        hand.read()
    assert shown(hand)[THROTTLED] == "True HwThermalSlowdown"
    hand.live(1200)
    assert shown(hand) == WELL
    hand.fake.answer("nvmlDeviceGetUtilizationRates", 999)
    hand.live(120)
    assert shown(hand) == WELL
    assert any("nvmlDeviceGetUtilizationRates gives" in row for row in hand.not_shown("throttle"))
