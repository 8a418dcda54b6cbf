"""The PCI bus of each kind of GPU machine, in every spelling that kernels have, and with files that are not there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.host.pci import read_pci
from checks.pci_reading import PciDevice, PciRead
from checks.pcie_link import by_address, chain_of, link_state
from kube.clock import SYSTEM
from sandbox.sysfs_pci import Bus, dgx_a100, dgx_b200, dgx_h100, gb200, guest

GPU = "0000:13:00.0"
FILES = (
    *("current_link_speed", "max_link_speed", "current_link_width", "max_link_width", "numa_node", "vendor"),
    *("aer_dev_correctable", "aer_dev_fatal", "aer_dev_nonfatal", "aer_rootport_total_err_fatal", "config"),
)


def look(bus: Bus) -> PciRead:
    return read_pci(bus.sys, bus.proc, SYSTEM)


def device(bus: Bus, address: str = GPU) -> PciDevice:
    return by_address(look(bus))[address]


@pytest.mark.parametrize(
    ("build", "counts", "is_guest"),
    [
        pytest.param(dgx_h100, {"gpu": 8, "hca": 8, "nvswitch": 4, "bridge": 36}, False, id="H100"),
        pytest.param(dgx_a100, {"gpu": 8, "hca": 8, "nvswitch": 6, "bridge": 38}, False, id="A100"),
        pytest.param(dgx_b200, {"gpu": 8, "hca": 8, "nvswitch": 0, "bridge": 32}, False, id="B200"),
        pytest.param(gb200, {"gpu": 4, "hca": 4, "nvswitch": 0, "bridge": 8}, False, id="GB200"),
        pytest.param(guest, {"gpu": 2, "hca": 0, "nvswitch": 0, "bridge": 2}, True, id="a guest"),
    ],
)
def test_each_kind_of_machine(
    tmp_path: Path, build: Callable[[Path], Bus], counts: dict[str, int], is_guest: bool
) -> None:
    """Every device is found by its role, and the bridges above it once each."""
    read = look(build(tmp_path))
    assert {role: sum(one.role == role for one in read.devices) for role in counts} == counts
    assert read.virtual_machine == is_guest
    assert [one.errors for one in read.devices if one.errors] == []
    assert sorted(one.address for one in read.devices) == [one.address for one in read.devices]


def test_a_gpu_behind_a_switch_is_told_with_all_that_is_above_it(tmp_path: Path) -> None:
    """Speed, width, slot, counters, and the way up to the root port."""
    bus = dgx_h100(tmp_path)
    bus.slot("GPU-1", GPU)
    bus.set_errors(GPU, correctable_RxErr=3, fatal_DLP=1)
    read = look(bus)
    gpu = by_address(read)[GPU]
    assert (gpu.role, gpu.vendor, gpu.device, gpu.numa, gpu.slot) == ("gpu", 0x10DE, 0x2330, 0, "GPU-1")
    assert (gpu.speed, gpu.max_speed, gpu.width, gpu.max_width) == (320, 320, 16, 16)
    assert (gpu.aer["correctable.RxErr"], gpu.aer["fatal.DLP"], gpu.aer["nonfatal.TLP"]) == (3, 1, 0)
    assert not any("TOTAL" in name for name in gpu.aer)
    assert (gpu.config_ones, gpu.virtual) == (False, False)
    above = [bridge.address for bridge in chain_of(gpu, by_address(read), read)]
    assert above == ["0000:12:00.0", "0000:11:00.0", "0000:10:01.0"]


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        pytest.param("2.5 GT/s PCIe", 25, id="the first generation"),
        pytest.param("128.0 GT/s PCIe", 1280, id="the seventh"),
        pytest.param("8 GT/s", 80, id="before Linux 5.8"),
        pytest.param("Unknown", None, id="unknown"),
        pytest.param("Unknown speed", None, id="unknown, before Linux 5.8"),
    ],
)
def test_spellings_of_a_speed(tmp_path: Path, text: str, speed: int | None) -> None:
    """Each is read, and none is an error."""
    bus = dgx_h100(tmp_path)
    bus.set(GPU, current_link_speed=text)
    assert (device(bus).speed, device(bus).errors) == (speed, ())


def test_long_names_of_errors_have_blanks(tmp_path: Path) -> None:
    """As the kernel's documentation shows them."""
    bus = dgx_h100(tmp_path)
    bus.set(GPU, aer_dev_correctable="Receiver Error 2\nBad TLP 0\nTOTAL_ERR_COR 2")
    assert device(bus).aer["correctable.Receiver Error"] == 2


def test_a_root_port_counts_what_it_was_told_of(tmp_path: Path) -> None:
    """The link's partner may be the one that counts."""
    bus = dgx_h100(tmp_path)
    bus.set("0000:10:01.0", aer_rootport_total_err_cor="7", aer_rootport_total_err_fatal="1")
    counted = device(bus, "0000:10:01.0").aer
    assert (counted["rootport.correctable"], counted["rootport.fatal"]) == (7, 1)


def test_a_device_that_left_the_bus(tmp_path: Path) -> None:
    """It answers all ones and its folder stays."""
    bus = dgx_h100(tmp_path)
    bus.leaves(GPU)
    gone = device(bus)
    assert (gone.config_ones, gone.width, gone.speed, gone.errors) == (True, 63, None, ())


def test_what_is_not_there_is_no_error_and_what_is_wrong_is_one(tmp_path: Path) -> None:
    """Absent is None; there and unreadable is None and a line."""
    bus = dgx_h100(tmp_path)
    bus.drop(GPU, "current_link_speed", "aer_dev_fatal", "config", "numa_node")
    bus.set(GPU, current_link_width="sixteen")
    (bus.devices / GPU / "max_link_width").unlink()
    (bus.devices / GPU / "max_link_width").mkdir()
    gpu = device(bus)
    assert (gpu.speed, gpu.width, gpu.max_width, gpu.config_ones) == (None, None, None, None)
    assert gpu.errors == ("current_link_width holds 'sixteen'", "max_link_width: Is a directory")


def test_other_devices_and_virtual_functions(tmp_path: Path) -> None:
    """EFA is an HCA, a plain card of Amazon's, a sound function, an Intel card are none; a virtual function is marked."""
    bus = Bus(tmp_path)
    bus.add("0000:01:00.0", vendor=0x1D0F, device=0xEFA2, kind=0x020000)
    bus.add("0000:02:00.0", vendor=0x1D0F, device=0xEC20, kind=0x020000)
    bus.add("0000:03:00.1", vendor=0x10DE, kind=0x040300)
    bus.add("0000:04:00.0", vendor=0x8086, kind=0x020000)
    bus.hca("0000:05:00.1")
    (bus.devices / "0000:05:00.1" / "physfn").symlink_to("../0000:05:00.0")
    found = {one.address: (one.role, one.virtual) for one in look(bus).devices}
    assert found == {"0000:01:00.0": ("hca", False), "0000:05:00.1": ("hca", True)}


def test_the_bus_must_be_readable(tmp_path: Path) -> None:
    """Nothing that cannot be read is an empty bus, and a device that cannot be told fails the look."""
    bus = dgx_h100(tmp_path)
    bus.set(GPU, vendor="what")
    with pytest.raises(ValueError, match="vendor holds 'what'"):
        look(bus)
    with pytest.raises(OSError, match="devices"):
        read_pci(tmp_path / "nothing", bus.proc, SYSTEM)


@pytest.mark.parametrize(
    ("vendor", "product", "expected"),
    [
        pytest.param("QEMU", "KVM Virtual Machine", True, id="qemu"),
        pytest.param("Amazon EC2", "p6e-gb200.36xlarge", True, id="EC2"),
        pytest.param("Amazon EC2", "p6e.metal", False, id="EC2, bare metal"),
        pytest.param("NVIDIA", "GB200 NVL", False, id="a tray"),
    ],
)
def test_a_guest_without_the_flags_of_x86(tmp_path: Path, vendor: str, product: str, expected: bool) -> None:
    """The firmware's names tell."""
    bus = gb200(tmp_path)
    (bus.sys / "class/dmi/id/sys_vendor").write_text(vendor)
    (bus.sys / "class/dmi/id/product_name").write_text(product)
    assert look(bus).virtual_machine == expected


@pytest.fixture(scope="module")
def shared_bus(tmp_path_factory: pytest.TempPathFactory) -> Bus:
    bus = Bus(tmp_path_factory.mktemp("pci"))
    bus.gpu(GPU, bus.add("0000:10:01.0"))
    return bus


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=60) | st.none()))
def test_no_file_however_odd_raises_anything_else(shared_bus: Bus, files: dict[str, bytes | None]) -> None:
    """A look gives values, or an OSError or ValueError; what is missing never reads as a link that is well."""
    folder = (shared_bus.devices / GPU).resolve()
    before = {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}
    try:
        for name, content in files.items():
            if content is None:
                (folder / name).unlink(missing_ok=True)
            else:
                (folder / name).write_bytes(content)
        try:
            gpu = by_address(look(shared_bus)).get(GPU)
        except (OSError, ValueError):
            return
        if gpu is not None and gpu.width is None:
            state = link_state(gpu, ())
            assert state.unread or state.not_shown or state.unresponsive
    finally:
        for name in FILES:
            if name not in before:
                (folder / name).unlink(missing_ok=True)
        for name, kept in before.items():
            (folder / name).write_bytes(kept)
