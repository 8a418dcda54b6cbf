"""What sysfs says of the RDMA devices and their ports, as raw text and counters (/sys/class/infiniband)."""

from datetime import datetime

import msgspec

INFINIBAND = "infiniband"
"""The `source` of these readings, and of their failure."""


class PortReading(msgspec.Struct, frozen=True, kw_only=True):
    """One port. Text as the file has it, stripped, empty where the file is absent; `errors` by the file's name.

    `counters` by name, `hw_counters` alike; a file that reads `N/A ...` or fails is in `errors` alone.
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
    errors: dict[str, str] = {}


class Netdev(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface of an RDMA device.

    `bond`: the bond it is a leg of; `default_route`: it (or its bond) has one.
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

    `legs` are the legs of its bond as (interface, up), where it is bonded.
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
    netdevs: tuple[Netdev, ...] = ()
    legs: tuple[tuple[str, bool], ...] = ()
    ports: tuple[PortReading, ...] = ()
    errors: dict[str, str] = {}


class InfinibandRead(msgspec.Struct, frozen=True, kw_only=True, tag="infiniband"):
    """All RDMA devices, by name. `pci_hcas`: addresses of PCI devices of class InfiniBand or of Mellanox/EFA NICs, with or
    without an RDMA device. `gpu_numa`: the NUMA nodes of the GPUs.
    """

    seen_at: datetime
    devices: tuple[HcaReading, ...] = ()
    pci_hcas: tuple[str, ...] = ()
    gpu_numa: tuple[int, ...] = ()
