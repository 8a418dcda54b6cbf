"""What a line of the kernel says of a disk or a file system. Pure; the forms are those of the kernel's own sources.

Only lines that begin as the kernel's own do: what a process calls itself may stand later in them and is no word of the
kernel's. Devices that hold nothing of the node (loop devices, optical and floppy drives, memory) do not count.
"""

import re

import msgspec

from checks.finding import Reason
from checks.local_storage_reasons import DISK_ERRORS, FILESYSTEM_ERRORS, NVME_TIMEOUTS

_DEVICE = r"(?P<device>[A-Za-z0-9!_.-]{1,32})"
_NOT_OURS = re.compile(r"(?:loop|sr|fd|ram|zram|nbd)[0-9]+")
# block/blk-core.c, fs/buffer.c, drivers/md/raid1.c (and its kin), block/bio.c before and since Linux 5.17
_DISK = (
    re.compile(
        r"(?:blk_update_request: |print_req_error: )?(?:I/O|critical (?:medium|target|nexus)|protection|timeout) "
        rf"error, dev {_DEVICE}, sector"
    ),
    re.compile(rf"Buffer I/O error on dev(?:ice)? {_DEVICE}, logical block"),
    re.compile(rf"md/raid[0-9]+:[a-z0-9_]+: Disk failure on {_DEVICE}, disabling device"),
    re.compile(rf"{_DEVICE}: rw=\S+, (?:want=|sector=).*limit="),
)
# drivers/nvme/host/pci.c and core.c; `timeout, completion polled` is an interrupt that was lost, and no reset
_NVME = re.compile(
    r"nvme (?P<device>nvme[0-9]{1,4}): (?:I/O .*timeout, (?:aborting|reset controller|disable controller)"
    r"|controller is down; will reset|Device not ready|Removing after probe failure|Disabling device after reset failure)"
)
# fs/ext4/super.c, fs/xfs/xfs_message.c and xfs_fsops.c, fs/btrfs/messages.c, fs/fat
_FILE_SYSTEM = (
    re.compile(
        rf"(?:EXT[234]|FAT|F2FS)-fs \({_DEVICE}\): (?:[Rr]emounting|Filesystem has been set) .*read-only"
    ),
    re.compile(rf"(?:EXT[234]|FAT)-fs error \(device {_DEVICE}\)"),
    re.compile(rf"Aborting journal on device {_DEVICE}"),
    re.compile(
        rf"XFS \({_DEVICE}\): .*(?:[Ss]hutting down filesystem|has been shut down|[Cc]orruption|[Ll]og I/O error)"
    ),
    re.compile(rf"BTRFS(?: error| critical|:? error) ?\(device {_DEVICE}(?: state \S+)?\)"),
    re.compile(rf"BTRFS(?: info)?:? \(device {_DEVICE}(?: state \S+)?\): forced readonly"),
)


class DiskLine(msgspec.Struct, frozen=True):
    """What one line says."""

    reason: Reason
    device: str


def disk_line(text: str) -> DiskLine | None:
    """Read one line; None where it is about something else."""
    for reason, patterns in (
        (DISK_ERRORS, _DISK),
        (NVME_TIMEOUTS, (_NVME,)),
        (FILESYSTEM_ERRORS, _FILE_SYSTEM),
    ):
        for pattern in patterns:
            found = pattern.match(text)
            if found is not None and not _NOT_OURS.match(found["device"]):
                return DiskLine(reason, found["device"].rstrip("."))
    return None
