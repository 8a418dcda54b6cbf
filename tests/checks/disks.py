"""Builders of what is read of disks and local file systems, and a node on which that is judged."""

from typing import Any

import msgspec

from checks.local_storage import CHECK
from checks.observation import SourceFailed
from checks.storage_reading import DISKS, DisksRead, MountReading, NvmeReading
from tests.checks.kernel import at
from tests.checks.nvml import Watched

NVME = NvmeReading(
    name="nvme0",
    pci="0000:01:00",
    state="live",
    model="SAMSUNG MZWLJ3T8",
    serial="S4YP",
    critical_warning=0,
    used_percent=3,
    spare_percent=100,
    spare_threshold_percent=10,
)
ROOT = MountReading(
    path="/",
    shared=False,
    fstype="ext4",
    source="/dev/nvme0n1p2",
    options="rw,relatime rw",
    read_only=False,
    took_ms=1,
    free_percent=40,
    free_inodes_percent=90,
)
KUBELET = msgspec.structs.replace(ROOT, path="/var/lib/kubelet", fstype="xfs", source="/dev/md0")
replace = msgspec.structs.replace


def looks(*parts: NvmeReading | MountReading, bus: dict[str, str] | None = None) -> DisksRead:
    """Build a look; without a disk or a file system a sound one of each."""
    nvmes = tuple(part for part in parts if isinstance(part, NvmeReading)) or (NVME,)
    local = tuple(part for part in parts if isinstance(part, MountReading)) or (ROOT,)
    here = {nvme.pci: "nvme" for nvme in nvmes if nvme.pci} if bus is None else bus
    return DisksRead(seen_at=at(0), nvmes=nvmes, bus=here, local=local)


def gone(bus: dict[str, str] | None) -> DisksRead:
    return DisksRead(seen_at=at(0), nvmes=(), bus=bus, local=(ROOT,))


def failed(tries: int = 1) -> SourceFailed:
    return SourceFailed(source=DISKS, error="/sys/class: denied", tries=tries, seen_at=at(0))


def watched(**settings: Any) -> Watched:
    return Watched(CHECK, bus=0, **settings).set(looked_at=(DISKS,))


UNUSABLE = replace(ROOT, took_ms=None, free_percent=None, free_inodes_percent=None)
