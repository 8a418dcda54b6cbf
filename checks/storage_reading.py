"""What was found of mounts and disks, as raw values."""

from datetime import datetime

import msgspec

MOUNTS = "mounts"
DISKS = "disks"
"""The `source`s of these readings, and of their failure."""


class MountReading(msgspec.Struct, frozen=True, kw_only=True):
    """One mount that the configuration names. `mounted` is what mountinfo says; None while it could not be read.

    `hangs_ms`: the child that looks at it has been away so long; None where it came back, after `took_ms`. `error`: what it
    came back with. `read_only`: by the mount's or by the file system's own option. `free_*` in percent, None = not told.
    """

    path: str
    shared: bool = True
    mounted: bool | None = None
    fstype: str = ""
    source: str = ""
    read_only: bool | None = None
    hangs_ms: int | None = None
    took_ms: int | None = None
    error: str = ""
    free_percent: int | None = None
    free_inodes_percent: int | None = None


class MountsRead(msgspec.Struct, frozen=True, kw_only=True, tag="mounts"):
    seen_at: datetime
    mounts: tuple[MountReading, ...] = ()


class NvmeReading(msgspec.Struct, frozen=True, kw_only=True):
    """One NVMe controller. `critical_warning`: the SMART log's bits; `used_percent` may be over 100. None = not told."""

    name: str
    pci: str = ""
    state: str = ""
    model: str = ""
    serial: str = ""
    firmware: str = ""
    critical_warning: int | None = None
    used_percent: int | None = None
    spare_percent: int | None = None
    spare_threshold_percent: int | None = None
    smart_error: str = ""


class DisksRead(msgspec.Struct, frozen=True, kw_only=True, tag="disks"):
    """Local disks, and the local file systems that the machine lives on (`local`: root, kubelet, container runtime)."""

    seen_at: datetime
    nvmes: tuple[NvmeReading, ...] = ()
    local: tuple[MountReading, ...] = ()
