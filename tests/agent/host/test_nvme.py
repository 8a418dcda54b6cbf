"""What is read of NVMe controllers: sysfs trees, and the answers of the child that asks for the SMART log."""

import array
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.children import Children, program
from agent.host.mounts import LocalFileSystems, Look, look_of
from agent.host.nvme import Disks, Nvmes, nvme_bus, smart_of
from agent.host.smart_child import ADMIN_COMMAND, LOG_BYTES, command, told
from checks.storage_reading import NvmeReading
from kube.clock import SYSTEM
from tests.agent.host.host_tree import NEVER, HostTree


class Sys:
    """A sysfs with NVMe controllers on its PCI bus."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "sys"
        (self.root / "bus/pci/devices").mkdir(parents=True)
        (self.root / "class").mkdir()

    def nvme(
        self, number: int, state: str = "live", *, transport: str = "pcie", driver: str = "nvme"
    ) -> Path:
        address = f"0000:{number + 1:02x}:00.0"
        device = self.root / "bus/pci/devices" / address
        device.mkdir()
        (device / "class").write_text("0x010802\n")
        if driver:
            (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        controller = self.root / f"class/nvme/nvme{number}"
        controller.mkdir(parents=True)
        for name, text in {
            "state": state,
            "transport": transport,
            "address": address if transport == "pcie" else "traddr=10.0.0.1,trsvcid=4420",
            "model": "SAMSUNG MZWLJ3T8HBLS-00007 ",
            "serial": f"S4YPNE0R{number}",
            "firmware_rev": "EPK9AB5Q",
        }.items():
            (controller / name).write_text(text + "\n")
        return controller


def says(text: str) -> Callable[[str], Sequence[str]]:
    return lambda _: (sys.executable, "-I", "-S", "-c", f"print({text!r}, end='')")


def read(machine: Sys, said: str = "ok 0 100 10 3") -> tuple[NvmeReading, ...]:
    return Nvmes(machine.root, Children(10), says(said), 600).read()


def test_a_controller_with_its_smart_log(tmp_path: Path) -> None:
    """State and identity from sysfs, health from the controller."""
    machine = Sys(tmp_path)
    machine.nvme(0)
    assert read(machine, "ok 4 97 10 120") == (
        NvmeReading(
            name="nvme0",
            pci="0000:01:00",
            state="live",
            model="SAMSUNG MZWLJ3T8HBLS-00007",
            serial="S4YPNE0R0",
            firmware="EPK9AB5Q",
            critical_warning=4,
            spare_percent=97,
            spare_threshold_percent=10,
            used_percent=120,
        ),
    )


@pytest.mark.parametrize(
    ("said", "error", "denied"),
    [
        pytest.param("error 13 open", "open: Permission denied", True, id="not permitted"),
        pytest.param("error 1 ioctl", "ioctl: Operation not permitted", True, id="without CAP_SYS_ADMIN"),
        pytest.param("error 2 open", "open: No such file or directory", True, id="no device node"),
        pytest.param("error 5 ioctl", "ioctl: Input/output error", False, id="an I/O error"),
        pytest.param("status 16386", "the controller refuses with status 16386", True, id="no such field"),
        pytest.param("status 16649", "the controller refuses with status 16649", True, id="no such log"),
        pytest.param("status 6", "the controller refuses with status 6", False, id="an error of its own"),
        pytest.param("", "the look said b''", False, id="nothing"),
        pytest.param("ok 0 100", "the look said b'ok 0 100'", False, id="half an answer"),
    ],
)
def test_a_smart_log_that_cannot_be_had(tmp_path: Path, said: str, error: str, denied: bool) -> None:
    """No value is made up, and who may not ask is told from who gets no answer."""
    machine = Sys(tmp_path)
    machine.nvme(0)
    (reading,) = read(machine, said)
    assert (reading.smart_error, reading.smart_denied) == (error, denied)
    assert (reading.critical_warning, reading.used_percent, reading.state) == (None, None, "live")


def test_a_controller_that_does_not_answer_hangs_alone(tmp_path: Path) -> None:
    """Its state is still read."""
    machine = Sys(tmp_path)
    machine.nvme(0)
    (reading,) = Nvmes(machine.root, Children(0.2, ends_within_s=0.2), lambda _: NEVER, 600).read()
    assert (reading.state, reading.smart_error) == ("live", "the command has not come back")


def test_only_live_controllers_are_asked_and_only_every_so_often(tmp_path: Path) -> None:
    """A command to one that is resetting would wait for the reset; a replaced disk is asked at once."""
    machine, asked, now = Sys(tmp_path), list[str](), 0.0
    first, second = machine.nvme(0), machine.nvme(1, "resetting")

    def ask(name: str) -> Sequence[str]:
        asked.append(name)
        return says("ok 0 100 10 3")(name)

    nvmes = Nvmes(machine.root, Children(10), ask, 600, lambda: now)
    assert [one.smart_error for one in nvmes.read()] == ["", "it is resetting"]
    (second / "state").write_text("live\n")
    now = 120
    assert [one.used_percent for one in nvmes.read()] == [3, 3]
    (first / "serial").write_text("another\n")
    now = 240
    nvmes.read()
    assert asked == ["nvme0", "nvme1", "nvme0"]
    (first / "state").write_text("dead\n")
    now = 720
    assert [one.used_percent for one in nvmes.read()] == [None, 3], (
        "what a dead one said earlier is no answer"
    )
    assert asked == ["nvme0", "nvme1", "nvme0", "nvme1"]


def test_one_that_failed_is_asked_again_at_the_next_look(tmp_path: Path) -> None:
    """One that was refused for our rights is not."""
    machine = Sys(tmp_path)
    machine.nvme(0)
    for said, wanted in (("error 5 ioctl", 2), ("error 1 ioctl", 1)):
        asked: list[str] = []

        def ask(name: str, said: str = said, asked: list[str] = asked) -> Sequence[str]:
            asked.append(name)
            return says(said)(name)

        nvmes = Nvmes(machine.root, Children(10), ask, 600, lambda: 0.0)
        nvmes.read()
        nvmes.read()
        assert len(asked) == wanted


def test_what_is_no_disk_of_this_machine_is_left_out(tmp_path: Path) -> None:
    """Controllers over a network, their subsystems, and machines without any."""
    machine = Sys(tmp_path)
    assert read(machine) == ()
    machine.nvme(0, transport="tcp")
    (machine.root / "class/nvme/nvme-subsys0").mkdir()
    assert read(machine) == ()


def test_a_state_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Neither fine nor dead."""
    machine = Sys(tmp_path)
    (machine.nvme(0) / "state").unlink()
    (reading,) = read(machine)
    assert (reading.state, reading.error) == ("", "nvme0/state is not there")


def test_no_sysfs_is_no_machine_without_disks(tmp_path: Path) -> None:
    """It is a reading that failed."""
    with pytest.raises(OSError, match="class/nvme"):
        Nvmes(tmp_path / "none", Children(10), says(""), 600).read()


def test_the_bus_names_controllers_and_their_drivers(tmp_path: Path) -> None:
    """One that the kernel gave up is there without a driver; one handed to a virtual machine has another."""
    machine = Sys(tmp_path)
    for number, driver in enumerate(("nvme", "vfio-pci", "")):
        machine.nvme(number, driver=driver)
    odd = machine.root / "bus/pci/devices/0000:09:00.0"
    odd.mkdir()
    (odd / "class").write_text("nonsense")
    assert nvme_bus(machine.root) == {"0000:01:00": "nvme", "0000:02:00": "vfio-pci", "0000:03:00": ""}
    assert nvme_bus(tmp_path / "none") is None


def test_disks_and_local_file_systems_are_one_observation(tmp_path: Path) -> None:
    """As the agent reads them."""
    machine, host = Sys(tmp_path), HostTree(tmp_path)
    machine.nvme(0)
    local = LocalFileSystems(host.proc, ("/",), Children(10), look_of(Look(), host.proc, 10))
    nvmes = Nvmes(machine.root, Children(10), says("ok 0 100 10 3"), 600)
    seen = Disks(machine.root, nvmes, local, SYSTEM.now).read()
    assert [one.name for one in seen.nvmes] == ["nvme0"]
    assert seen.bus == {"0000:01:00": "nvme"}
    assert [one.path for one in seen.local] == ["/"]


def test_the_command_is_the_kernels_structure() -> None:
    """_IOWR('N', 0x41, 72 bytes): 512 bytes of log page 2 of all namespaces."""
    built = command(0x1122334455667788)
    assert (3 << 30) | (len(built) << 16) | (ord("N") << 8) | 0x41 == ADMIN_COMMAND
    assert (built[0], struct.unpack_from("=I", built, 4)[0]) == (0x02, 0xFFFFFFFF)
    assert struct.unpack_from("=QII", built, 24) == (0x1122334455667788, 0, LOG_BYTES)
    assert struct.unpack_from("=I", built, 40)[0] == (127 << 16) | 2
    assert struct.unpack_from("=I", built, 64)[0] == 0, "the kernel's own timeout"


@given(st.binary(min_size=LOG_BYTES, max_size=LOG_BYTES))
def test_any_log_is_told_in_numbers(log: bytes) -> None:
    """Four of them, at the specification's places."""
    assert told(log) == f"ok {log[0]} {log[3]} {log[4]} {log[5]}"
    assert len(array.array("B", log)) == LOG_BYTES


@pytest.mark.parametrize(
    ("device", "said"),
    [
        pytest.param("null", b"error 25 ioctl", id="what is no controller"),
        pytest.param("no-such-device", b"error 2 open", id="what is not there"),
    ],
)
def test_the_child_says_why_it_cannot_ask(device: str, said: bytes) -> None:
    """By number and step."""
    asked = smart_of(Path("/dev"), 5)(device)
    assert asked == program("smart_child.py", "10", f"/dev/{device}")
    assert Children(10).ask({device: asked})[device].output == said
