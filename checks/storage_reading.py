"""What was found of mounts and disks, as raw values."""

from datetime import datetime

import msgspec

MOUNTS = "mounts"
DISKS = "disks"
"""The `source`s of these readings, and of their failure."""


class MountReading(msgspec.Struct, frozen=True, kw_only=True):
    """One mount that the configuration names. `mounted` is what mountinfo says; None while it could not be read.

    `hangs_ms`: the child that looks at it has been away so long; None where it came back, after `took_ms`. `error`: what it
    came back with, `errno` the number of it where it was the system's. `read_only`: by the mount's or by the file system's
    own option, `options` both of them as mountinfo has them. `free_*` in percent, rounded down, None = not told.
    `may_be_read_only`: nobody asks that it can be written to.
    """

    path: str
    shared: bool = True
    mounted: bool | None = None
    fstype: str = ""
    source: str = ""
    options: str = ""
    read_only: bool | None = None
    may_be_read_only: bool = False
    hangs_ms: int | None = None
    took_ms: int | None = None
    error: str = ""
    errno: int = 0
    free_percent: int | None = None
    free_inodes_percent: int | None = None


class MountsRead(msgspec.Struct, frozen=True, kw_only=True, tag="mounts"):
    seen_at: datetime
    mounts: tuple[MountReading, ...] = ()


class NvmeReading(msgspec.Struct, frozen=True, kw_only=True):
    """One NVMe controller on the PCI bus. `critical_warning`: the SMART log's bits; `used_percent` may be over 100.

    None = not told. `pci` is `dddd:bb:dd` without function, as in `checks.finding.Part`. `error`: its state could not be
    read, `smart_error`: its SMART log could not; `smart_denied`: it could not because we may not, or nothing offers it.
    """

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
    error: str = ""
    smart_error: str = ""
    smart_denied: bool = False


class DisksRead(msgspec.Struct, frozen=True, kw_only=True, tag="disks"):
    """Local disks, and the local file systems that the machine lives on (`local`: root, kubelet, container runtime).

    `bus`: the NVMe controllers that the PCI bus shows and the driver that holds each, empty for none; None where there is
    no PCI bus.
    """

    seen_at: datetime
    nvmes: tuple[NvmeReading, ...] = ()
    bus: dict[str, str] | None = None
    local: tuple[MountReading, ...] = ()
