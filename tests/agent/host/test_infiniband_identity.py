"""What a device is, is read once; again when the devices change, after ten minutes, and until it could be read."""

import errno
from pathlib import Path

from agent.config import InfinibandSection
from agent.host.infiniband import IDENTITY_SECONDS, InfinibandReader
from checks.infiniband_reading import HcaReading
from sandbox import rdma_machines as machines
from sandbox.sysfs_infiniband import render
from tests.agent.host.test_infiniband import Refusing
from tests.fakes import FakeClock


class Looked:
    """The H100 machine under a reader whose files and clock are in hand."""

    def __init__(self, folder: Path, refused: dict[str, int] | None = None) -> None:
        self.tree = render(machines.h100_ndr(), folder)
        self.files = Refusing(refused or {})
        self.time = FakeClock()
        self.reader = InfinibandReader(
            self.tree.sys, self.tree.proc, InfinibandSection(), self.time.clock, self.files
        )

    def flash(self, version: str) -> None:
        (self.tree.sys / "class/infiniband/mlx5_3/fw_ver").write_text(f"{version}\n")

    def third(self) -> HcaReading:
        return next(device for device in self.reader.read().devices if device.name == "mlx5_3")


def test_it_is_read_once(tmp_path: Path) -> None:
    """Ten looks read each state ten times, and each board once."""
    looked = Looked(tmp_path)
    seen = [looked.third() for _ in range(10)]
    assert [looked.files.opened.count(name) for name in ("state", "board_id", "class")] == [90, 9, 17]
    assert seen == [seen[0]] * 10


def test_it_is_read_again_in_time(tmp_path: Path) -> None:
    """Firmware that was flashed shows ten minutes later."""
    looked = Looked(tmp_path)
    looked.third()
    looked.flash("28.43.1014")
    assert looked.third().firmware == "28.39.2048"
    looked.time.advance(IDENTITY_SECONDS)
    assert looked.third().firmware == "28.43.1014"


def test_it_is_read_again_when_devices_change(tmp_path: Path) -> None:
    """A device that went, or one that has another address now: all are identified anew."""
    looked = Looked(tmp_path)
    looked.third()
    looked.flash("28.43.1014")
    looked.tree.lose("mlx5_0", from_bus=True)
    assert looked.third().firmware == "28.43.1014"
    link = looked.tree.sys / "class/infiniband/mlx5_3"
    other = (looked.tree.sys / "class/infiniband/mlx5_4").resolve()
    link.unlink()
    link.symlink_to(other)
    assert looked.third().pci == "0000:38:00.0"


def test_what_could_not_be_read_is_tried_again(tmp_path: Path) -> None:
    """An error is told at each look until the file can be read."""
    looked = Looked(tmp_path, {"board_id": errno.EIO})
    assert ["board_id" in looked.third().errors for _ in range(2)] == [True, True]
    looked.files.refused.clear()
    assert (looked.third().errors, looked.third().board_id) == ({}, "MT_0000000838")
