"""Sysfs trees of machines with RDMA devices, as files: what the kernel shows of H100, A100, B200, GB200, RoCE, EFA, SR-IOV.

Texts and folders as in drivers/infiniband/core/sysfs.c and in recorded nodes; the devices under `devices/`, and links to
them that are relative, so that a tree can be moved. A machine is a value; `render` writes it, and a `Tree` changes single
files.
"""

import os
import shutil
from pathlib import Path

import msgspec

ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_xmit_wait",
)
ZEROS = dict.fromkeys(ERRORS, "0")
MLX5_ZEROS = dict.fromkeys(
    ("local_ack_timeout_err", "rnr_nak_retry_err", "roce_slow_restart", "out_of_sequence"), "0"
)
EFA_ZEROS = dict.fromkeys(
    (
        "rx_drops",
        "rdma_read_wr_err",
        "rdma_write_wr_err",
        "unresponsive_remote_events",
        "impaired_remote_conn_events",
        "retrans_timeout_events",
        "retrans_pkts",
        "retrans_bytes",
    ),
    "0",
)
INFINIBAND_CLASS, ETHERNET_CLASS = "0x020700", "0x020000"


class SysPort(msgspec.Struct, frozen=True, kw_only=True):
    """One folder `ports/N`; each value is a file's text."""

    state: str = "4: ACTIVE"
    phys_state: str = "5: LinkUp"
    rate: str = "400 Gb/sec (4X NDR)"
    link_layer: str = "InfiniBand"
    lid: str = "0x1b"
    sm_lid: str = "0x1"
    counters: dict[str, str] | None = msgspec.field(default_factory=lambda: dict(ZEROS))
    hw_counters: dict[str, str] | None = msgspec.field(default_factory=lambda: dict(MLX5_ZEROS))


class SysNetdev(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of `class/net`; `master` is the bond or bridge above it."""

    name: str
    operstate: str = "up"
    carrier: str = "1"
    carrier_changes: str = "2"
    speed: str = "-1"
    master: str = ""


class SysHca(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI device and its RDMA device; `rdma=False` leaves the latter out. `physfn`: the card it is a function of."""

    name: str
    pci: str
    numa: int = 0
    vendor: str = "0x15b3"
    device: str = "0x1021"
    pci_class: str = INFINIBAND_CLASS
    driver: str = "mlx5_core"
    hca_type: str = "MT4129"
    board_id: str = "MT_0000000838"
    firmware: str = "28.39.2048"
    ports: tuple[SysPort, ...] = (SysPort(),)
    netdevs: tuple[SysNetdev, ...] = ()
    physfn: str = ""
    sfnum: str = ""
    rdma: bool = True


class SysMachine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. `gpus` as (address, NUMA node), `bonds` as (name, legs as (interface, up))."""

    hcas: tuple[SysHca, ...] = ()
    gpus: tuple[tuple[str, int], ...] = ()
    bonds: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...] = ()
    default_route: str = "eno1"
    exclusive: bool = False


class Tree:
    """A rendered machine: `sys` and `proc` are roots as the agent is given them."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"

    def port(self, name: str, number: int = 1) -> Path:
        """Give the folder of a port."""
        return self.sys / "class/infiniband" / name / "ports" / str(number)

    def set(self, name: str, file: str, text: str) -> None:
        """Change one file of a device's first port: `state`, `counters/symbol_error`."""
        (self.port(name) / file).write_text(f"{text}\n")

    def lose(self, name: str, *, from_bus: bool) -> None:
        """Take an RDMA device away, and its PCI device too."""
        link = self.sys / "class/infiniband" / name
        device = (link / "device").resolve()
        shutil.rmtree(link.resolve())
        link.unlink()
        if from_bus:
            (self.sys / "bus/pci/devices" / device.name).unlink()
            shutil.rmtree(device)

    def lose_leg(self, leg: str) -> None:
        """Take the carrier of a bond's leg away."""
        folder = self.sys / "class/net" / leg
        (folder / "operstate").write_text("down\n")
        (folder / "bonding_slave/mii_status").write_text("down\n")


def render(machine: SysMachine, root: Path) -> Tree:
    """Write the machine's /sys and /proc below `root`."""
    tree = Tree(root.resolve())
    for folder in ("bus/pci/devices", "class/net", "module/ib_core/parameters"):
        (tree.sys / folder).mkdir(parents=True)
    _write(tree.sys / "module/ib_core/parameters/netns_mode", "N" if machine.exclusive else "Y")
    for address, numa in machine.gpus:
        _pci(
            tree,
            address,
            {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": str(numa)},
        )
    for hca in machine.hcas:
        _hca(tree, hca)
    for bond, legs in machine.bonds:
        _write(tree.sys / "class/net" / bond / "bonding/slaves", " ".join(leg for leg, _ in legs))
        for leg, is_up in legs:
            _write(tree.sys / "class/net" / leg / "bonding_slave/mii_status", "up" if is_up else "down")
            _link(tree.sys / "class/net" / leg / "master", tree.sys / "class/net" / bond)
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"
    routes = f"{machine.default_route}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0"
    _write(tree.proc / "1/net/route", f"{head}\n{routes}")
    return tree


def _hca(tree: Tree, hca: SysHca) -> None:
    facts = {"class": hca.pci_class, "vendor": hca.vendor, "device": hca.device, "numa_node": str(hca.numa)}
    folder = _pci(tree, hca.pci, facts)
    if hca.driver:
        _link(folder / "driver", tree.sys / "bus/pci/drivers" / hca.driver)
    if hca.physfn:
        _link(folder / "physfn", tree.sys / "bus/pci/devices" / hca.physfn)
    if hca.sfnum:
        folder = folder / f"mlx5_core.sf.{hca.sfnum}"
        _write(folder / "sfnum", hca.sfnum)
    for netdev in hca.netdevs:
        _netdev(tree, folder / "net" / netdev.name, netdev)
    if not hca.rdma:
        return
    device = folder / "infiniband" / hca.name
    digits = "".join(digit for digit in hca.pci if digit.isalnum()).rjust(12, "0")
    texts = {
        "fw_ver": hca.firmware,
        "node_type": "1: CA",
        "node_guid": f"b83f:{digits[:4]}:{digits[4:8]}:{digits[8:12]}",
    }
    texts |= {name: text for name, text in (("hca_type", hca.hca_type), ("board_id", hca.board_id)) if text}
    for name, text in texts.items():
        _write(device / name, text)
    _link(device / "device", folder)
    for number, port in enumerate(hca.ports, 1):
        _port(device / "ports" / str(number), port)
    _link(tree.sys / "class/infiniband" / hca.name, device)


def _port(folder: Path, port: SysPort) -> None:
    for name in ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid"):
        _write(folder / name, getattr(port, name))
    for kind, counters in (("counters", port.counters), ("hw_counters", port.hw_counters)):
        for name, text in (counters or {}).items():
            _write(folder / kind / name, text)


def _netdev(tree: Tree, folder: Path, netdev: SysNetdev) -> None:
    for name in ("operstate", "carrier", "carrier_changes", "speed"):
        _write(folder / name, getattr(netdev, name))
    if netdev.master:
        _link(folder / "master", tree.sys / "class/net" / netdev.master)
    _link(tree.sys / "class/net" / netdev.name, folder)


def _pci(tree: Tree, address: str, facts: dict[str, str]) -> Path:
    folder = tree.sys / "devices" / f"pci{address[:7]}" / address
    for name, text in facts.items():
        _write(folder / name, text)
    _link(tree.sys / "bus/pci/devices" / address, folder)
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    # Where the link really lies is what a relative one counts from.
    link.symlink_to(os.path.relpath(target, link.parent.resolve()))
