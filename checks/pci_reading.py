"""What sysfs says of the PCI devices that matter to GPU work, as raw values (/sys/bus/pci/devices)."""

from datetime import datetime

import msgspec

PCI = "pci"
"""The `source` of these readings, and of their failure."""


class PciDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, NVSwitch or HCA, or one bridge above such a device.

    `address` is sysfs' own, with function (`0000:3b:00.0`). `role`: gpu, nvswitch, hca, bridge. Speeds in tenths of GT/s
    (320 = 32.0 GT/s), None where unknown; widths as read: 63 is a device that answers all ones, 0 a link that is down.
    `parent` is the address of the bridge above, empty at a root port or in a VM without one. `aer`: counters of the device
    by `correctable.RxErr`, `fatal.TLP`, `nonfatal.CmpltTO`, of a root port `rootport.correctable`, `.fatal`, `.nonfatal`.
    `config_ones`: the first bytes of its config space read as all ones. `virtual`: an SR-IOV virtual function.
    `errors`: one line for each file that is there and could not be read.
    """

    address: str
    role: str
    vendor: int | None = None
    device: int | None = None
    speed: int | None = None
    max_speed: int | None = None
    width: int | None = None
    max_width: int | None = None
    parent: str = ""
    numa: int | None = None
    slot: str = ""
    aer: dict[str, int] = {}
    config_ones: bool | None = None
    virtual: bool = False
    errors: tuple[str, ...] = ()


class PciRead(msgspec.Struct, frozen=True, kw_only=True, tag="pci"):
    """All of them, by address. `virtual_machine`: sysfs or procfs says that this machine is a guest."""

    seen_at: datetime
    devices: tuple[PciDevice, ...] = ()
    virtual_machine: bool = False
