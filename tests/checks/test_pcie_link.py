"""The links of whole machines from their trees, limits of errors, and readings that are odd or missing."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.pci import read_pci
from checks.gpu_health import NvmlRefusal, Pcie
from checks.observation import NvmlRead
from checks.pci_reading import PciDevice, PciRead
from checks.pcie import CHECK, PcieMemory
from checks.pcie_limits import most_errors
from checks.pcie_link import by_address, chain_of, link_state, why_degraded
from kube.clock import SYSTEM
from sandbox.sysfs_pci import dgx_a100, dgx_b200, dgx_h100, gb200, guest
from tests.checks import nvml
from tests.checks.pcie import (
    AWAKE,
    DOWNSTREAM,
    GPU,
    NVSWITCH,
    ROOT,
    UPSTREAM,
    bus,
    device,
    gpu,
    told,
    unread,
    watch,
)

WELL = "False PcieLinksHealthy"


@pytest.mark.parametrize(
    "build",
    [pytest.param(one, id=one.__name__) for one in (dgx_h100, dgx_a100, dgx_b200, gb200, guest)],
)
def test_sound_machines_from_their_trees(tmp_path: Path, build: Any) -> None:
    """Nothing is found on any kind of machine, and its memory is small."""
    tree = build(tmp_path)
    seen = watch(asked=False).waits(300, read_pci(tree.sys, tree.proc, SYSTEM))
    assert (seen.shown, seen.reasons) == (WELL, [])
    assert len(msgspec.json.encode(seen.judgement.memory)) < 8192


def test_a_machine_whose_slots_are_all_alike_says_so_once() -> None:
    """It was built so, and eight warnings a node tell no more; a single slot is told by itself."""
    pcie = msgspec.structs.replace(AWAKE, device_max_generation=6)
    gpus = [
        msgspec.structs.replace(gpu(pcie), index=number, pci=nvml.pci(number), uuid=nvml.uuid(number))
        for number in range(2)
    ]
    seen = watch(looked_at=()).on_bus(2).waits(240, nvml.read(*gpus))
    (finding,) = seen.judgement.findings
    assert (finding.reason, finding.part.kind) == ("PcieSlotLimited", "node")
    assert "all 2 GPUs, such as GPU 0" in finding.detail
    assert seen.shown == WELL
    seen.on_bus(3).waits(30, nvml.read(*gpus))
    assert seen.reasons == ["PcieSlotLimited"] * 2


def test_the_link_of_an_hca(tmp_path: Path) -> None:
    """Whoever judges HCAs asks here."""
    tree = dgx_h100(tmp_path)
    hca = "0000:14:00.0"

    def say() -> str:
        read = read_pci(tree.sys, tree.proc, SYSTEM)
        devices = by_address(read)
        return why_degraded(devices[hca], chain_of(devices[hca], devices, read))

    assert say() == ""
    tree.set(hca, current_link_width="8", current_link_speed="16.0 GT/s PCIe")
    assert say().startswith(f"x8 of x16 on the link between {hca} and the bridge 0000:12:01.0; 16 GT/s of 32")
    tree.leaves(hca)
    assert "has left the bus" in say()


def test_bridges_that_are_no_whole_levels_are_not_judged_among_themselves() -> None:
    """A port is missing above them: which of them make up a link cannot be told."""
    state = link_state(device(GPU, "gpu"), (device(DOWNSTREAM, width=4), device(UPSTREAM, width=4)))
    assert state.narrow_above == ""
    assert isinstance(device(GPU), PciDevice)


@pytest.mark.parametrize(
    ("generation", "lanes", "window_s", "at_most"),
    [
        pytest.param(5, 16, 60, 31, id="generation 5 with 16 lanes: 30.72, rounded up"),
        pytest.param(4, 8, 60, 8, id="generation 4 with 8 lanes: 7.68, rounded up"),
        pytest.param(1, 1, 60, 1, id="at least one"),
        pytest.param(9, 16, 60, 62, id="a generation to come counts as the last one known"),
        pytest.param(None, None, 600, 160, id="nobody knows"),
    ],
)
def test_limits(generation: int | None, lanes: int | None, window_s: int, at_most: int) -> None:
    """DCGM's numbers."""
    assert most_errors(generation, lanes, window_s, 100) == at_most


_COUNT = st.none() | st.integers(-3, 2**70)
_DEVICES = st.builds(
    PciDevice,
    address=st.sampled_from([GPU, DOWNSTREAM, UPSTREAM, ROOT, NVSWITCH, "", "x"]),
    role=st.sampled_from(["gpu", "nvswitch", "hca", "bridge", ""]),
    device=_COUNT,
    speed=_COUNT,
    max_speed=_COUNT,
    width=st.none() | st.sampled_from([-1, 0, 1, 7, 8, 16, 63, 255]),
    max_width=st.none() | st.sampled_from([-1, 0, 1, 8, 16, 63]),
    parent=st.sampled_from([GPU, DOWNSTREAM, UPSTREAM, ROOT, "", "y"]),
    aer=st.dictionaries(
        st.sampled_from(["correctable.RxErr", "fatal.DLP", "nonfatal.", "rootport.fatal", "odd", ""]),
        st.integers(-5, 2**80),
    ),
    config_ones=st.none() | st.booleans(),
    virtual=st.booleans(),
    errors=st.sampled_from([(), ("config: gone",)]),
)
_LOOKS = st.lists(_DEVICES, max_size=5).map(
    lambda devices: msgspec.structs.replace(bus(), devices=tuple(devices))
)
_PCIE = st.builds(
    Pcie,
    generation=_COUNT,
    width=_COUNT,
    max_generation=_COUNT,
    max_width=_COUNT,
    device_max_generation=_COUNT,
    pstate_before=st.none() | st.integers(-1, 32),
    pstate_after=st.none() | st.integers(-1, 32),
    bus_type=st.none() | st.integers(-1, 5),
    c2c_links=_COUNT,
    counters=st.dictionaries(st.sampled_from(["replay", "fatal", "non_fatal", "x"]), st.integers(-5, 2**80)),
)
_ROUNDS = st.builds(gpu, st.none() | _PCIE, absent=st.sampled_from([(), ("pcie",)])).map(nvml.read)


@given(st.lists(st.tuples(_LOOKS, _ROUNDS), max_size=4))
def test_no_reading_raises(said: list[tuple[PciRead, NvmlRead]]) -> None:
    """However odd, and its memory stays JSON."""
    seen = watch(**CHECK.single_look)
    for look, round_ in said:
        seen.waits(30, look, round_)
        msgspec.json.decode(msgspec.json.encode(seen.judgement.memory), type=PcieMemory)


@given(st.sampled_from([GPU, NVSWITCH]), st.booleans(), st.booleans(), st.booleans())
def test_missing_data_is_never_healthy(address: str, no_width: bool, no_call: bool, no_look: bool) -> None:
    """A file that is there and gives nothing, a call that fails, a look that fails: Unknown, whatever else is well."""
    lost: dict[str, Any] = {"width": None, "speed": None, "errors": ("current_link_width: gone",)}
    look = unread() if no_look else bus(address, **lost) if no_width else bus()
    refusal = NvmlRefusal(call="nvmlX", code=999, name="Unknown")
    round_ = nvml.read(gpu(None, errors={"pcie": refusal})) if no_call else told()
    seen = watch().waits(120, look, round_)
    assert seen.shown == (
        "Unknown PcieUnreadable" if no_width or no_call or no_look else "False PcieLinksHealthy"
    )
