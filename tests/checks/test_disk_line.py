"""What the kernel's lines say of disks: the forms of several kernels, and lines that only look alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.disk_line import disk_line


@pytest.mark.parametrize(
    ("text", "reason", "device"),
    [
        pytest.param(
            "blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1",
            "DiskErrors",
            "nvme0n1",
            id="an I/O error before Linux 5.16",
        ),
        pytest.param(
            "I/O error, dev nvme0n1, sector 95243456 op 0x0:(READ) flags 0x80700",
            "DiskErrors",
            "nvme0n1",
            id="since",
        ),
        pytest.param(
            "critical medium error, dev sda, sector 7 op 0x0", "DiskErrors", "sda", id="a medium error"
        ),
        pytest.param(
            "Buffer I/O error on dev dm-0, logical block 5, lost async page write",
            "DiskErrors",
            "dm-0",
            id="a buffer",
        ),
        pytest.param(
            "Buffer I/O error on device sda1, logical block 5",
            "DiskErrors",
            "sda1",
            id="a buffer in an old kernel",
        ),
        pytest.param(
            "md/raid1:md0: Disk failure on nvme1n1p1, disabling device.",
            "DiskErrors",
            "nvme1n1p1",
            id="of an array",
        ),
        pytest.param(
            "nvme0n1: rw=0, want=2048, limit=1024",
            "DiskErrors",
            "nvme0n1",
            id="beyond the end, the second line",
        ),
        pytest.param(
            "nvme nvme0: I/O 2 QID 1 timeout, reset controller", "NvmeTimeouts", "nvme0", id="a reset"
        ),
        pytest.param(
            "nvme nvme0: I/O tag 12 (400c) opcode 0x9 (Admin Cmd) QID 0 timeout, reset controller",
            "NvmeTimeouts",
            "nvme0",
            id="a reset since Linux 6.8",
        ),
        pytest.param(
            "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
            "NvmeTimeouts",
            "nvme2",
            id="a controller that is down",
        ),
        pytest.param(
            "nvme nvme2: Disabling device after reset failure: -19",
            "NvmeTimeouts",
            "nvme2",
            id="a reset that failed",
        ),
        pytest.param(
            "EXT4-fs (dm-17): Remounting filesystem read-only",
            "FilesystemErrors",
            "dm-17",
            id="ext4 made read-only",
        ),
        pytest.param(
            "EXT4-fs error (device sda3): ext4_get_branch:171: inode #8: comm jbd2",
            "FilesystemErrors",
            "sda3",
            id="ext4",
        ),
        pytest.param("Aborting journal on device sda3-8.", "FilesystemErrors", "sda3-8", id="a journal"),
        pytest.param(
            "XFS (nvme0n1p2): Filesystem has been shut down due to log error (0x2).",
            "FilesystemErrors",
            "nvme0n1p2",
            id="xfs shut down",
        ),
        pytest.param(
            "XFS (md0): Metadata corruption detected at xfs_agf_read_verify",
            "FilesystemErrors",
            "md0",
            id="xfs corrupt",
        ),
        pytest.param(
            "BTRFS error (device sda): bdev /dev/sda errs: wr 1, rd 0",
            "FilesystemErrors",
            "sda",
            id="btrfs error",
        ),
        pytest.param(
            "BTRFS info (device sda state E): forced readonly",
            "FilesystemErrors",
            "sda",
            id="btrfs made read-only",
        ),
    ],
)
def test_a_line_about_a_disk(text: str, reason: str, device: str) -> None:
    """Its kind and its device."""
    found = disk_line(text)
    assert found is not None
    assert (found.reason.name, found.device) == (reason, device)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("I/O error, dev sr0, sector 0 op 0x0:(READ)", id="an empty optical drive"),
        pytest.param("Buffer I/O error on dev loop3, logical block 0", id="a loop device"),
        pytest.param("nvme nvme0: Shutdown timeout set to 8 seconds", id="a line of every boot"),
        pytest.param("nvme nvme0: I/O 5 QID 3 timeout, completion polled", id="an interrupt that was lost"),
        pytest.param("EXT4-fs (sda1): mounted filesystem with ordered data mode", id="a mount"),
        pytest.param("EXT4-fs (sda1): re-mounted. Opts: (null)", id="a remount that was asked for"),
        pytest.param("XFS (nvme0n1): Ending clean mount", id="an xfs mount"),
        pytest.param("XFS (nvme0n1): Unmounting Filesystem", id="an xfs unmount"),
        pytest.param("python[7]: segfault at 0 I/O error, dev nvme0n1, sector 1", id="words of a process"),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 79, pid=1", id="another subject"),
        pytest.param("", id="nothing"),
    ],
)
def test_a_line_about_something_else(text: str) -> None:
    """It says nothing of a disk of this node."""
    assert disk_line(text) is None


@given(st.text(max_size=200))
def test_no_line_raises(text: str) -> None:
    """Whatever stands in it, also after the words that count."""
    disk_line(text)
    disk_line("EXT4-fs error (device " + text)
    disk_line("nvme nvme0: I/O " + text)
