"""Rounds of NVML as looks of the checks of GPU health: what none of the GPUs answers is no look."""

import pytest

from checks import ecc, nvlink, pcie, row_remap, throttle
from checks.check import Check
from checks.condition import Status
from checks.gpu_health import Clocks, Ecc, GpuHealth, RemappedRows
from tests.checks import nvlink as machine
from tests.checks.nvml import Watched, dead, healthy, read
from tests.checks.pcie import AWAKE

OF_HEALTH = [
    pytest.param(check, id=check.name)
    for check in (ecc.CHECK, nvlink.CHECK, pcie.CHECK, row_remap.CHECK, throttle.CHECK)
]
TELLS = GpuHealth(
    architecture=9,
    remapped=RemappedRows(correctable=0, uncorrectable=0, pending=False, failure=False, banks_max=640),
    ecc=Ecc(enabled=True, volatile_corrected=0, volatile_uncorrected=0, aggregate_uncorrected=0),
    nvlinks=machine.links(),
    fabric=machine.READY,
    pcie=AWAKE,
    clocks=Clocks(reasons=0),
)
NONE = read(*(dead(number, 4) for number in range(8)))


@pytest.mark.parametrize("check", OF_HEALTH)
def test_gpus_of_which_none_ever_answered_are_unknown(check: Check) -> None:
    """No handle could be had of any of them."""
    watched = Watched(check).waits(90, NONE)
    assert watched.condition is not None
    assert watched.condition.status is Status.UNKNOWN
    assert "nvmlDeviceGetHandleByIndex_v2 gives NoPermission (4)" in watched.message


@pytest.mark.parametrize("check", OF_HEALTH)
def test_gpus_that_answer_no_more_are_unknown_after_three_rounds(check: Check) -> None:
    """One that answers again is judged again; the others are listed, and GpuLost is about them."""
    told = [healthy(number, TELLS) for number in range(8)]
    watched = Watched(check).waits(60, read(*told))
    well = watched.shown
    assert well.startswith("False ")
    assert watched.waits(60, NONE).shown == well
    assert watched.waits(30, NONE).shown.startswith("Unknown ")
    one = read(told[0], *(dead(number, 4) for number in range(1, 8)))
    assert watched.waits(30, one).shown == well
    assert watched.rows.count("it did not answer") == 7
