"""A look that holds nothing is no look: no class of a machine with GPUs is well because nobody said anything of them."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from agent.judge import CheckState, Surroundings, judge
from checks.check import Check, discover
from checks.condition import Status
from checks.host_reading import HOST, HostRead
from checks.infiniband_reading import INFINIBAND, InfinibandRead
from checks.observation import GpuReading, NvmlRead, Observation
from checks.pci_reading import PCI, PciRead
from checks.storage_reading import DISKS, MOUNTS, DisksRead, MountsRead
from tests.checks import nvml
from tests.checks.kernel import BOOT, GPU, START

AROUND = Surroundings(
    boot_id=BOOT,
    parts=(GPU,),
    parts_known=True,
    bus=(GPU.pci,),
    nvml=True,
    looked_at=(PCI, INFINIBAND, MOUNTS, DISKS, HOST),
)
SAYS_NOTHING = msgspec.structs.replace(nvml.read(GpuReading(index=0, pci=GPU.pci)), seen_at=START)
EMPTY: list[Any] = [
    pytest.param(NvmlRead(seen_at=START, child=1, driver="580", library="580", count=0), id="NVML"),
    pytest.param(
        NvmlRead(seen_at=START, child=1, driver="580", library="580", count=1), id="NVML, which counts"
    ),
    pytest.param(SAYS_NOTHING, id="a GPU that says nothing of itself"),
    pytest.param(PciRead(seen_at=START), id="the PCI bus"),
    pytest.param(InfinibandRead(seen_at=START), id="RDMA devices"),
    pytest.param(MountsRead(seen_at=START), id="mounts"),
    pytest.param(DisksRead(seen_at=START), id="disks"),
    pytest.param(HostRead(seen_at=START), id="the host"),
]


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("check", discover(), ids=lambda check: str(check.name))
def test_nothing_is_well_by_a_look_that_holds_nothing(check: Check, empty: Observation) -> None:
    """Over many such looks in a row. That NVML can be used is all that an empty round of it proves."""
    state = CheckState()
    for number in range(12):
        now = START + timedelta(seconds=30 * number)
        seen = msgspec.structs.replace(empty, seen_at=now)
        state = judge(check, state, [seen], AROUND, {}, now, 30_000)
    assert state.broken == ""
    if check.condition != "GpuDriverFault":
        assert state.condition is None or state.condition.status is not Status.FALSE
