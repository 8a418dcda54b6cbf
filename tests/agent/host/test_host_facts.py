"""What is read of the host: processes, sockets, counters and bridges, in trees of real files."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from agent.host.acs import redirecting_bridges
from agent.host.host_facts import HostReader, clock_is_synchronised
from agent.host.mountinfo import HOST_ROOT
from checks.host_reading import FABRIC_MANAGER, KUBELET, PERSISTENCED
from kube.clock import SYSTEM


class Tree:
    """A procfs and a sysfs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        (self.proc / HOST_ROOT / "run").mkdir(parents=True)
        (self.sys / "bus/pci/devices").mkdir(parents=True)
        self.kubelet = folder / "kubelet.sock"
        self.reader = HostReader(self.proc, self.sys, self.kubelet, SYSTEM.now, lambda: True)

    def process(self, pid: int, name: str, state: str = "S", start: int = 7) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} ({name}) {state} 1 {' '.join('0' * 17)} {start} 0 0\n")

    def memory(self, controller: int, corrected: str, uncorrected: str) -> None:
        folder = self.sys / f"devices/system/edac/mc/mc{controller}"
        folder.mkdir(parents=True)
        (folder / "ce_count").write_text(corrected)
        (folder / "ue_count").write_text(uncorrected)

    def device(self, way: str, vendor: int, kind: int) -> None:
        """Put a device at the end of a way of bridges, as sysfs' links lead there."""
        folder = self.sys / "devices/pci0000:00" / way
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor:#06x}\n")
        (folder / "class").write_text(f"{kind:#08x}\n")
        (self.sys / "bus/pci/devices" / folder.name).symlink_to(folder)

    def config(self, way: str, *capabilities: tuple[int, int], size: int = 4096) -> None:
        """Write a bridge's config space with extended capabilities of (number, word at offset 6)."""
        space = bytearray(size)
        for number, (capability, word) in enumerate(capabilities):
            at = 0x100 + number * 0x20
            following = at + 0x20 if number + 1 < len(capabilities) else 0
            space[at : at + 4] = (capability | 1 << 16 | following << 20).to_bytes(4, "little")
            space[at + 6 : at + 8] = word.to_bytes(2, "little")
        (self.sys / "devices/pci0000:00" / way / "config").write_bytes(space)


def listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(os.fspath(path))
    except OSError:
        server.close()
        raise
    server.listen()
    return server


def test_only_who_stays_in_uninterruptible_sleep_is_stuck(tmp_path: Path) -> None:
    """Two looks in a row; a number that another process has by then is another one."""
    tree = Tree(tmp_path)
    tree.process(1, "init")
    tree.process(20, "tar (1)", "D")
    tree.process(21, "cp", "D")
    first = tree.reader.read()
    tree.process(21, "cp", "D", start=99)
    second = tree.reader.read()
    assert (first.d_state, first.stuck) == ((), 0)
    assert (second.d_state, second.stuck) == (((20, "tar (1)"),), 1)


def test_many_that_are_stuck_are_counted_and_few_are_named(tmp_path: Path) -> None:
    """However many there are."""
    tree = Tree(tmp_path)
    for pid in range(100, 200):
        tree.process(pid, "python", "D")
    tree.reader.read()
    seen = tree.reader.read()
    assert (seen.stuck, len(seen.d_state or ())) == (100, 64)


def test_an_odd_process_is_left_out(tmp_path: Path) -> None:
    """It ended meanwhile, or says nothing."""
    tree = Tree(tmp_path)
    (tree.proc / "30").mkdir()
    (tree.proc / "31").mkdir()
    (tree.proc / "31/stat").write_text("31 (x")
    assert tree.reader.read().stuck == 0


def test_services_are_told_by_their_sockets_and_names() -> None:
    """A socket that nobody answers is a service that died; one that is not there is not named."""
    # Not tmp_path: the path of a socket has 108 bytes at most.
    with tempfile.TemporaryDirectory(prefix="host-") as folder:
        tree = Tree(Path(folder))
        tree.process(40, "nv-fabricmanage")
        with listen(tree.kubelet), listen(tree.proc / HOST_ROOT / "run/crio/crio.sock"):
            listen(tree.proc / HOST_ROOT / "run/containerd/containerd.sock").close()
            seen = tree.reader.read()
    assert seen.services == {
        FABRIC_MANAGER: True,
        PERSISTENCED: False,
        "containerd": False,
        "crio": True,
        KUBELET: True,
    }


def test_modules_and_memory_errors(tmp_path: Path) -> None:
    """NVIDIA's modules alone; counts of all controllers together."""
    tree = Tree(tmp_path)
    (tree.proc / "modules").write_text(
        "nvidia_peermem 16384 0 - Live\nnvidia 1 2 nvidia_peermem, Live\next4 1 1 - Live\n"
    )
    tree.memory(0, "3\n", "0\n")
    tree.memory(1, "4\n", "1\n")
    seen = tree.reader.read()
    assert seen.modules == ("nvidia", "nvidia_peermem")
    assert (seen.edac_corrected, seen.edac_uncorrected, seen.clock_synchronised) == (7, 1, True)


def test_what_is_not_there_is_none_and_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    """The other facts are told all the same."""
    tree = Tree(tmp_path)
    bare = tree.reader.read()
    assert (bare.modules, bare.edac_corrected, bare.acs, bare.errors) == (None, None, None, {})
    tree.memory(0, "many\n", "0\n")

    def broken() -> bool:
        raise OSError(38, "adjtimex")

    reader = HostReader(tree.proc, tmp_path / "none", tree.kubelet, SYSTEM.now, broken)
    seen = reader.read()
    assert (seen.clock_synchronised, seen.stuck) == (None, 0)
    assert sorted(seen.errors) == ["acs", "clock_synchronised"]
    assert list(tree.reader.read().errors) == ["edac_corrected"]


def test_no_process_list_is_no_reading(tmp_path: Path) -> None:
    """Then nothing is known of the host."""
    with pytest.raises(OSError, match="none"):
        HostReader(tmp_path / "none", tmp_path, tmp_path / "x", SYSTEM.now).read()


def test_the_kernel_is_asked_for_its_clock() -> None:
    """Without changing it: whatever this machine answers is an answer."""
    assert clock_is_synchronised() in (True, False)


GPU, HCA = (0x10DE, 0x030200), (0x15B3, 0x020700)
ACS, AER = 0x000D, 0x0001
PORT = "0000:00:01.0"
SWITCH = f"{PORT}/0000:01:00.0/0000:02:00.0"


@pytest.mark.parametrize(
    ("control", "found"),
    [
        pytest.param(0x00, (), id="off"),
        pytest.param(0x13, (), id="validation and forwarding redirect nothing"),
        pytest.param(0x1D, ("0000:02:00.0",), id="all of it on"),
        pytest.param(0x08, ("0000:02:00.0",), id="completions"),
    ],
)
def test_bridges_that_redirect_are_named(tmp_path: Path, control: int, found: tuple[str, ...]) -> None:
    """The bits are those of the ACS control register, wherever the capability lies."""
    tree = Tree(tmp_path)
    tree.device(f"{SWITCH}/0000:03:00.0", *GPU)
    tree.config(PORT, (ACS, 0x1D))
    tree.config(f"{PORT}/0000:01:00.0")
    tree.config(SWITCH, (AER, 0xFFFF), (ACS, control))
    assert redirecting_bridges(tree.sys) == found


def test_a_device_at_the_root_has_no_switch_above_it(tmp_path: Path) -> None:
    """The root port does not count; neither does a switch above something else."""
    tree = Tree(tmp_path)
    tree.device(f"{PORT}/0000:01:00.0", *HCA)
    tree.device("0000:00:02.0/0000:04:00.0/0000:05:00.0/0000:06:00.0", 0x8086, 0x010802)
    assert redirecting_bridges(tree.sys) is None


def test_a_config_space_that_ends_early_is_said(tmp_path: Path) -> None:
    """Without CAP_SYS_ADMIN only its first 64 bytes are shown: that is no answer."""
    tree = Tree(tmp_path)
    tree.device(f"{SWITCH}/0000:03:00.0", *GPU)
    tree.config(f"{PORT}/0000:01:00.0", size=64)
    tree.config(SWITCH, size=64)
    with pytest.raises(ValueError, match=r"its config space ends at 0x100; CAP_SYS_ADMIN"):
        redirecting_bridges(tree.sys)


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(b"\xff" * 4096, id="all ones: it is gone"),
        pytest.param(b"\0" * 256 + b"\x01\0\x01\x10" + b"\0" * 4000, id="a list that leads to itself"),
        pytest.param(b"\0" * 256 + b"\x01\0\x01\x01" + b"\0" * 4000, id="a list that leads before its begin"),
    ],
)
def test_an_odd_config_space_ends(tmp_path: Path, space: bytes) -> None:
    """No list of capabilities is followed for ever."""
    tree = Tree(tmp_path)
    tree.device(f"{SWITCH}/0000:03:00.0", *GPU)
    for way in (f"{PORT}/0000:01:00.0", SWITCH):
        (tree.sys / "devices/pci0000:00" / way / "config").write_bytes(space)
    assert redirecting_bridges(tree.sys) == ()
