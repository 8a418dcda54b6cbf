"""The PCI bus looked at again and again: what changes is seen at once, what cannot is not read each time."""

import shutil
from pathlib import Path

import pytest

from agent.host.pci import FIXED_LOOKS, PciReader
from checks.pci_reading import PciDevice
from checks.pcie_link import by_address, chain_of
from kube.clock import SYSTEM
from sandbox.sysfs_pci import Bus, dgx_h100

GPU = "0000:13:00.0"


class Again:
    """One reader and its machine."""

    def __init__(self, root: Path) -> None:
        self.bus = dgx_h100(root)
        self.reader = PciReader(self.bus.sys, self.bus.proc, SYSTEM)

    def look(self) -> dict[str, PciDevice]:
        return by_address(self.reader.read())


@pytest.fixture
def again(tmp_path: Path) -> Again:
    again = Again(tmp_path)
    again.look()
    return again


def test_what_changes_is_seen_at_the_next_look(again: Again) -> None:
    """Links, counters, a device that left the bus, files that cannot be read and can again."""
    again.bus.set(GPU, current_link_width="8", current_link_speed="16.0 GT/s PCIe")
    again.bus.set_errors(GPU, fatal_DLP=1)
    seen = again.look()[GPU]
    assert (seen.width, seen.speed, seen.aer["fatal.DLP"]) == (8, 160, 1)
    again.bus.set(GPU, current_link_width="odd")
    assert again.look()[GPU].errors == ("current_link_width holds 'odd'",)
    again.bus.set(GPU, current_link_width="16")
    assert (again.look()[GPU].width, again.look()[GPU].errors) == (16, ())
    again.bus.leaves(GPU)
    assert again.look()[GPU].config_ones is True


def test_a_device_that_goes_and_comes_is_told_anew(again: Again) -> None:
    """Whatever was remembered of its address."""
    link, folder = again.bus.devices / GPU, (again.bus.devices / GPU).resolve()
    way = link.readlink()
    shutil.rmtree(folder)
    link.unlink()
    assert GPU not in again.look()
    again.bus.add(GPU, under="0000:12:00.0", vendor=0x10DE, device=0x2335, kind=0x030200)
    assert link.readlink() == way
    assert again.look()[GPU].device == 0x2335


def test_a_tree_that_moved_under_the_same_addresses_is_told_anew(again: Again) -> None:
    """The bridges are found by where they were, and missed there."""
    for port in sorted((again.bus.sys / "devices").glob("pci*/0000:10:01.0")):
        port.rename(port.with_name("moved"))
    (again.bus.devices / GPU).unlink()
    (again.bus.devices / "0000:12:00.0").unlink(missing_ok=True)
    again.bus.add(GPU, under="", vendor=0x10DE, device=0x2330, kind=0x030200)
    read = again.reader.read()
    assert chain_of(by_address(read)[GPU], by_address(read), read) == ()


def test_what_cannot_change_is_read_every_ten_minutes(again: Again) -> None:
    """And at once after a look at a device that did not answer, whose registers read all ones."""
    again.bus.set(GPU, max_link_width="8")
    assert [again.look()[GPU].max_width for _ in range(FIXED_LOOKS)] == [16] * (FIXED_LOOKS - 1) + [8]
    again.bus.set(GPU, max_link_width="63")
    assert [again.look()[GPU].max_width for _ in range(FIXED_LOOKS)][-1] == 63
    again.bus.set(GPU, max_link_width="16")
    assert again.look()[GPU].max_width == 16


def test_a_look_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    """A device that cannot be told fails the look, and the next one is whole."""
    bus = Bus(tmp_path)
    bus.add("0000:01:00.0", vendor=0x10DE, kind=0x030200)
    reader = PciReader(bus.sys, bus.proc, SYSTEM)
    bus.set("0000:01:00.0", vendor="what")
    with pytest.raises(ValueError, match="vendor holds 'what'"):
        reader.read()
    bus.set("0000:01:00.0", vendor="0x10de")
    assert [one.role for one in reader.read().devices] == ["gpu"]
