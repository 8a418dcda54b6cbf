"""The machine's GPUs from sysfs and procfs trees, healthy, broken and absent."""

from pathlib import Path

import pytest

from agent.host.inventory import Gpu, Inventory, InventoryFailed, read_inventory
from checks.finding import Part, PartKind

UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release Build  (builder@host)\nGCC 12\n"


class Machine:
    """Builds the trees of one machine."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        (self.sys / "bus/pci/devices").mkdir(parents=True)

    def device(self, address: str, *, vendor: str = "0x10de", kind: str = "0x030200") -> Path:
        folder = self.sys / "bus/pci/devices" / address
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
        return folder

    def driver_says(self, address: str, text: str) -> None:
        folder = self.proc / "driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(text)

    def version(self, text: str) -> None:
        (self.proc / "driver/nvidia").mkdir(parents=True, exist_ok=True)
        (self.proc / "driver/nvidia/version").write_text(text)

    def read(self) -> Inventory | InventoryFailed:
        return read_inventory(self.sys, self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def _information(uuid: str = UUID, minor: str = "0") -> str:
    return (
        f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t 120\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
    )


def _gpu(index: int, pci: str, uuid: str = "") -> Part:
    return Part(kind=PartKind.GPU, pci=pci, uuid=uuid, index=index)


def test_gpus_are_found_in_pci_order_with_what_the_driver_says(machine: Machine) -> None:
    """Index by PCI address as a number, UUID, model and minor from the driver."""
    machine.device("0000:5e:00.0")
    machine.device("10000:01:00.0")
    machine.device("0000:3b:00.0", kind="0x030000")
    machine.driver_says("0000:3b:00.0", _information(minor="4"))
    machine.version(OPEN_DRIVER)
    assert machine.read() == Inventory(
        gpus=(
            Gpu(part=_gpu(0, "0000:3b:00", UUID), model="NVIDIA H100 80GB HBM3", minor=4),
            Gpu(part=_gpu(1, "0000:5e:00")),
            Gpu(part=_gpu(2, "10000:01:00")),
        ),
        driver="595.45.04",
    )


@pytest.mark.parametrize(
    ("vendor", "kind"),
    [
        pytest.param("0x10de", "0x068000", id="an NVSwitch"),
        pytest.param("0x10de", "0x040300", id="the sound of a graphics card"),
        pytest.param("0x15b3", "0x020700", id="an InfiniBand card"),
        pytest.param("0x102b", "0x030000", id="the board's own graphics"),
    ],
)
def test_other_devices_are_no_gpus(machine: Machine, vendor: str, kind: str) -> None:
    """A machine without GPUs is known to have none."""
    machine.device("0000:3b:00.0", vendor=vendor, kind=kind)
    assert machine.read() == Inventory()


def test_a_virtual_function_beside_its_gpu_is_no_card(machine: Machine) -> None:
    """It carries a link to its physical function; in a guest, where there is none, it is the card."""
    machine.device("0000:3b:00.0")
    virtual = machine.device("0000:3b:00.4")
    (virtual / "physfn").symlink_to("../0000:3b:00.0")
    found = machine.read()
    assert isinstance(found, Inventory)
    assert found.parts == (_gpu(0, "0000:3b:00"),)


@pytest.mark.parametrize(
    ("text", "uuid", "minor"),
    [
        pytest.param(_information(), UUID, 0, id="as it should be"),
        pytest.param(_information(UUID.upper()), UUID, 0, id="capitals"),
        pytest.param(
            _information("GPU-????????-????-????-????-????????????"),
            "",
            0,
            id="a GPU that did not initialise",
        ),
        pytest.param(_information(minor="many"), UUID, None, id="a minor that is no number"),
        pytest.param("", "", None, id="nothing"),
        pytest.param("\x00\xff no colon", "", None, id="noise"),
    ],
)
def test_what_the_driver_says_is_taken_with_care(
    machine: Machine, text: str, uuid: str, minor: int | None
) -> None:
    """What the driver does not know stays empty; the GPU is there all the same."""
    machine.device("0000:3b:00.0")
    machine.driver_says("0000:3b:00.0", text)
    found = machine.read()
    assert isinstance(found, Inventory)
    assert [(gpu.part.uuid, gpu.minor) for gpu in found.gpus] == [(uuid, minor)]


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        pytest.param(OPEN_DRIVER, "595.45.04", id="the open driver"),
        pytest.param(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2026\n",
            "535.183.01",
            id="the closed driver",
        ),
        pytest.param("NVRM version: something else\n", "", id="words that name no version"),
    ],
)
def test_the_version_of_the_driver(machine: Machine, text: str, driver: str) -> None:
    """Read from procfs, so that it is known while NVML is not."""
    machine.version(text)
    assert machine.read() == Inventory(driver=driver)


def test_a_sysfs_that_is_not_there_is_not_a_machine_without_gpus(tmp_path: Path) -> None:
    """A wrong mount must never look like a healthy CPU node."""
    failed = read_inventory(tmp_path / "sys", tmp_path / "proc")
    assert isinstance(failed, InventoryFailed)
    assert "bus/pci/devices" in failed.error


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("vendor", None, id="no vendor"),
        pytest.param("class", None, id="no class"),
        pytest.param("vendor", "what?\n", id="a vendor that is no number"),
    ],
)
def test_a_device_that_cannot_be_judged_is_named(machine: Machine, file: str, text: str | None) -> None:
    """It might be a GPU, so the number of GPUs is not known."""
    machine.device("0000:3b:00.0")
    device = machine.device("0000:5e:00.0")
    (device / file).unlink()
    if text is not None:
        (device / file).write_text(text)
    failed = machine.read()
    assert isinstance(failed, InventoryFailed)
    assert f"0000:5e:00.0/{file}" in failed.error


def test_a_device_that_went_away_while_looking_is_not_there(machine: Machine) -> None:
    """A link whose device is gone is what hot removal leaves for an instant."""
    machine.device("0000:3b:00.0")
    (machine.sys / "bus/pci/devices/0000:5e:00.0").symlink_to("../../../devices/gone")
    found = machine.read()
    assert isinstance(found, Inventory)
    assert found.parts == (_gpu(0, "0000:3b:00"),)
