"""Machines with RDMA devices as they are built and rented: values to render with `sandbox.sysfs_infiniband`.

Numbers of ports, rates and names: checks/platforms.csv with its sources, and the recorded H100 node of GPUd (eight NDR
ports, a bonded BlueField-3, names that are not contiguous).
"""

from sandbox.sysfs_infiniband import (
    EFA_ZEROS,
    ETHERNET_CLASS,
    MLX5_ZEROS,
    ZEROS,
    SysHca,
    SysMachine,
    SysNetdev,
    SysPort,
)

GPUS = tuple((f"0000:{0x1A + 0x10 * n:02x}:00.0", n // 4) for n in range(8))
NDR, HDR, XDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)", "800 Gb/sec (4X XDR)"


def h100_ndr(names: tuple[int, ...] = (0, 3, 4, 5, 6, 9, 10, 11)) -> SysMachine:
    """Eight ConnectX-7 at NDR beside a bonded BlueField-3 for storage, which carries no default route."""
    compute = tuple(
        SysHca(name=f"mlx5_{number}", pci=f"0000:{0x18 + 0x10 * n:02x}:00.0", numa=n // 4)
        for n, number in enumerate(names)
    )
    return SysMachine(hcas=(*compute, bluefield_bond()), gpus=GPUS, bonds=(BOND,))


BOND = ("bond0", (("ens1f0np0", True), ("ens1f1np1", True)))


def bluefield_bond(name: str = "mlx5_bond_0") -> SysHca:
    """Two Ethernet ports of one BlueField-3 as one RDMA device."""
    return SysHca(
        name=name,
        pci="0000:aa:00.0",
        device="0xa2dc",
        pci_class=ETHERNET_CLASS,
        hca_type="MT41692",
        board_id="MT_0000000884",
        numa=1,
        ports=(roce_port("200 Gb/sec (2X NDR)"),),
        netdevs=(SysNetdev(name="ens1f0np0", speed="200000"), SysNetdev(name="ens1f1np1", speed="200000")),
    )


def roce_port(rate: str = NDR) -> SysPort:
    """A port of RoCE that works: no LID, no subnet manager."""
    return SysPort(rate=rate, link_layer="Ethernet", lid="0x0", sm_lid="0x0")


def a100_hdr() -> SysMachine:
    """DGX A100: eight single-port ConnectX-6 for compute, two dual-port ones for storage, of another board."""
    compute = tuple(
        _connectx6(f"mlx5_{n}", f"0000:{0x0B + 0x10 * n:02x}:00.0", n // 4, "MT_0000000223") for n in range(8)
    )
    storage = tuple(
        _connectx6(f"mlx5_{8 + n}", f"0000:{0xE0 + n // 2:02x}:00.{n % 2}", 1, "MT_0000000224")
        for n in range(4)
    )
    return SysMachine(hcas=(*compute, *storage), gpus=GPUS)


def _connectx6(name: str, pci: str, numa: int, board_id: str) -> SysHca:
    port = SysPort(rate=HDR)
    return SysHca(
        name=name, pci=pci, numa=numa, device="0x101b", hca_type="MT4123", board_id=board_id, ports=(port,)
    )


def b200() -> SysMachine:
    """Eight ConnectX-7 at NDR named by udev, and a management NIC that has the default route."""
    compute = tuple(
        SysHca(name=f"ibp{0x18 + 0x10 * n}s0", pci=f"0000:{0x18 + 0x10 * n:02x}:00.0", numa=n // 4)
        for n in range(8)
    )
    management = SysHca(
        name="rocep221s0f0",
        pci="0000:dd:00.0",
        device="0x101f",
        pci_class=ETHERNET_CLASS,
        hca_type="MT4127",
        board_id="MT_0000000575",
        ports=(roce_port("25 Gb/sec (1X EDR)"),),
        netdevs=(SysNetdev(name="eno1", speed="25000"),),
    )
    return SysMachine(hcas=(*compute, management), gpus=GPUS)


def gb200() -> SysMachine:
    """One tray of an NVL72: four GPUs, four ConnectX-7, and two BlueField-3 with two Ethernet ports each."""
    compute = tuple(
        SysHca(name=f"mlx5_{n}", pci=f"{n // 2 * 2:04x}:0{n % 2 + 1}:00.0", numa=n // 2) for n in range(4)
    )
    bluefields = tuple(
        SysHca(
            name=f"mlx5_{4 + n}",
            pci=f"0006:0{n // 2 + 1}:00.{n % 2}",
            device="0xa2dc",
            pci_class=ETHERNET_CLASS,
            hca_type="MT41692",
            board_id="MT_0000000884",
            ports=(roce_port("200 Gb/sec (4X HDR)"),),
        )
        for n in range(4)
    )
    return SysMachine(hcas=(*compute, *bluefields), gpus=tuple((f"000{n}:09:00.0", n // 2) for n in range(4)))


def gb300_planes() -> SysMachine:
    """Four ConnectX-8 cards with two planes each, which show as eight devices."""
    planes = tuple(
        SysHca(name=f"mlx5_{n}", pci=f"{n // 2:04x}:03:00.{n % 2}", device="0x1023", hca_type="MT4131")
        for n in range(8)
    )
    return SysMachine(hcas=planes, gpus=tuple((f"000{n}:09:00.0", 0) for n in range(4)))


def roce() -> SysMachine:
    """Eight RoCE ports at 400 Gb/s, each with its interface."""
    hcas = tuple(
        SysHca(
            name=f"rocep{0x18 + 0x10 * n}s0",
            pci=f"0000:{0x18 + 0x10 * n:02x}:00.0",
            pci_class=ETHERNET_CLASS,
            numa=n // 4,
            ports=(roce_port(),),
            netdevs=(SysNetdev(name=f"gpu{n}rdma0", speed="400000"),),
        )
        for n in range(8)
    )
    return SysMachine(hcas=hcas, gpus=GPUS)


def roce_bonds() -> SysMachine:
    """Two bonded RoCE devices are the whole compute fabric."""
    hcas = tuple(
        SysHca(
            name=f"mlx5_bond_{n}",
            pci=f"0000:{0x18 + 0x10 * n:02x}:00.0",
            pci_class=ETHERNET_CLASS,
            ports=(roce_port(),),
            netdevs=(SysNetdev(name=f"eth{n}a", speed="200000"), SysNetdev(name=f"eth{n}b", speed="200000")),
        )
        for n in range(2)
    )
    bonds = tuple((f"bond{n}", ((f"eth{n}a", True), (f"eth{n}b", True))) for n in range(2))
    return SysMachine(hcas=hcas, gpus=GPUS, bonds=bonds)


def efa_p5(count: int = 32) -> SysMachine:
    """AWS p5: 32 EFA devices, which have no counters/, no board and no type."""
    port = SysPort(
        rate="100 Gb/sec (4X EDR)",
        link_layer="Unspecified",
        lid="0x0",
        sm_lid="0x0",
        counters=None,
        hw_counters=dict(EFA_ZEROS),
    )
    hcas = tuple(
        SysHca(
            name=f"rdmap{0x40 + n}s0",
            pci=f"0001:{0x40 + n:02x}:00.0",
            vendor="0x1d0f",
            device="0xefa2",
            pci_class=ETHERNET_CLASS,
            driver="efa",
            hca_type="",
            board_id="",
            numa=n // 16,
            ports=(port,),
        )
        for n in range(count)
    )
    return SysMachine(hcas=hcas, gpus=GPUS, default_route="ens32")


def sriov_host() -> SysMachine:
    """Two NDR cards with four virtual functions each on the host."""
    cards = [SysHca(name=f"mlx5_{n}", pci=f"0000:{0x18 + 0x10 * n:02x}:00.0") for n in range(2)]
    functions = [
        SysHca(
            name=f"mlx5_{2 + 4 * n + v}",
            pci=f"0000:{0x18 + 0x10 * n:02x}:00.{v + 1}",
            physfn=card.pci,
            device="0x101e",
            hca_type="MT4126",
            board_id="",
            ports=(SysPort(state="1: DOWN", phys_state="5: LinkUp"),),
        )
        for n, card in enumerate(cards)
        for v in range(4)
    ]
    return SysMachine(hcas=(*cards, *functions), gpus=GPUS[:2])


def vm_guest() -> SysMachine:
    """Azure ND H100 v5: eight passed-through functions, which in the guest are cards, and a slower one for Ethernet."""
    compute = tuple(
        SysHca(
            name=f"mlx5_ib{n}",
            pci=f"{0x0101 + n:04x}:00:00.0",
            device="0x101e",
            hca_type="MT4126",
            board_id="MSF0000000013",
            numa=n // 4,
            ports=(SysPort(counters=dict(ZEROS), hw_counters=dict(MLX5_ZEROS)),),
        )
        for n in range(8)
    )
    ethernet = SysHca(
        name="mlx5_an0",
        pci="a1b2:00:02.0",
        device="0x101a",
        pci_class=ETHERNET_CLASS,
        hca_type="MT4120",
        board_id="MSF0000000012",
        ports=(roce_port("100 Gb/sec (4X EDR)"),),
        netdevs=(SysNetdev(name="enP41394s1", speed="100000", master="eth0"),),
    )
    return SysMachine(hcas=(*compute, ethernet), gpus=GPUS, default_route="eth0")


def without_hcas() -> SysMachine:
    """Eight GPUs and no RDMA device."""
    return SysMachine(gpus=GPUS)
