"""What sysfs says of the RDMA devices and their ports, as raw text and counters (/sys/class/infiniband)."""

from datetime import datetime

import msgspec

INFINIBAND = "infiniband"
"""The `source` of these readings, and of their failure."""

EFA_VENDOR = 0x1D0F


class PortReading(msgspec.Struct, frozen=True, kw_only=True):
    """One port. Text as the file has it, stripped, empty where the file is absent; `errors` by the file's name.

    `counters` by name, `hw_counters` alike. A counter that reads `N/A ...`, or that was once refused (EINVAL) and is not
    read again, stands in `not_shown` with the reason; one that could not be read stands in `errors`; one that is in none
    of them does not exist here.
    """

    number: int
    state: str = ""
    phys_state: str = ""
    rate: str = ""
    link_layer: str = ""
    lid: str = ""
    sm_lid: str = ""
    counters: dict[str, int] = {}
    hw_counters: dict[str, int] = {}
    not_shown: dict[str, str] = {}
    errors: dict[str, str] = {}


class Netdev(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface of an RDMA device.

    `bond`: the bond it is a leg of; `default_route`: it (or its bond, or another interface above it) has one.
    """

    name: str
    operstate: str = ""
    carrier: bool | None = None
    carrier_changes: int | None = None
    bond: str = ""
    default_route: bool = False
    mbps: int | None = None


class HcaReading(msgspec.Struct, frozen=True, kw_only=True):
    """One RDMA device. `pci` is its address with function. `virtual`: its PCI device has `physfn`; `subfunction`: it is one.

    `legs` are the legs of its bond as (interface, up), where it is bonded. `role` is what the configuration says that it is
    for: compute, storage, management, or empty. `left_out` says why its ports were not read.
    """

    name: str
    pci: str = ""
    vendor: int | None = None
    hca_type: str = ""
    board_id: str = ""
    firmware: str = ""
    node_guid: str = ""
    node_type: str = ""
    driver: str = ""
    numa: int | None = None
    virtual: bool = False
    subfunction: bool = False
    role: str = ""
    left_out: str = ""
    netdevs: tuple[Netdev, ...] = ()
    legs: tuple[tuple[str, bool], ...] = ()
    ports: tuple[PortReading, ...] = ()
    errors: dict[str, str] = {}

    @property
    def is_efa(self) -> bool:
        """Whether it is Amazon's Elastic Fabric Adapter, whose driver says ACTIVE whatever the link does."""
        return self.vendor == EFA_VENDOR


class PciHca(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI device that is an InfiniBand controller (class 0x0207), a Mellanox NIC or an EFA, whatever has bound it."""

    pci: str
    infiniband: bool = False
    driver: str = ""


class InfinibandRead(msgspec.Struct, frozen=True, kw_only=True, tag="infiniband"):
    """All RDMA devices, by name. `pci_hcas`: the physical PCI devices, with or without an RDMA device.

    `gpu_numa`: the NUMA nodes of the GPUs. `exclusive`: RDMA devices are handed to one network namespace each, so that one
    which a pod has is not seen here.
    """

    seen_at: datetime
    devices: tuple[HcaReading, ...] = ()
    pci_hcas: tuple[PciHca, ...] = ()
    gpu_numa: tuple[int, ...] = ()
    exclusive: bool = False
