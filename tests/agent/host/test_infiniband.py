"""The reader of RDMA devices, and what the check makes of whole machines: rendered trees of sysfs in a folder."""

import errno
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config import InfinibandSection
from agent.host.infiniband import InfinibandReader
from agent.host.sysfs_text import Disk
from checks.check import Judgement
from checks.infiniband import shown
from checks.infiniband_reading import InfinibandRead
from sandbox import rdma_machines as machines
from sandbox.sysfs_infiniband import SysHca, SysMachine, SysNetdev, SysPort, Tree, render
from tests.checks.infiniband import Machine
from tests.fakes import FakeClock


class Refusing:
    """The real files, but for those that a firmware refuses; `opened` counts the tries."""

    def __init__(self, refused: dict[str, int]) -> None:
        self.refused = refused
        self.opened: list[str] = []

    def read(self, path: str, limit: int) -> str:
        name = path.rpartition("/")[2]
        self.opened.append(name)
        if name in self.refused:
            code = self.refused[name]
            raise OSError(code, os.strerror(code), path)
        return Disk().read(path, limit)


def reader(tree: Tree, files: Refusing | None = None, **section: Any) -> InfinibandReader:
    return InfinibandReader(tree.sys, tree.proc, InfinibandSection(**section), FakeClock().clock, files)


def read(tree: Tree, **section: Any) -> InfinibandRead:
    return reader(tree, **section).read()


class Watched(Machine):
    """A machine whose looks are those of the reader."""

    def __init__(self, tree: Tree, files: Refusing | None = None, **facts: Any) -> None:
        super().__init__(**facts)
        self.reader = reader(tree, files)

    def watch(self, seconds: int = 10) -> Judgement:
        step_s = 10 if seconds <= 120 else 100
        for _ in range(max(1, seconds // step_s)):
            self.now += timedelta(seconds=step_s)
            self.hear(msgspec.structs.replace(self.reader.read(), seen_at=self.now), watched_s=step_s)
        return self.last


@pytest.mark.parametrize(
    ("build", "active", "mbps", "exists"),
    [
        pytest.param(machines.h100_ndr, 8, 400_000, True, id="H100 with NDR and a bonded BlueField-3"),
        pytest.param(machines.a100_hdr, 8, 200_000, True, id="A100 with HDR and dual-port storage"),
        pytest.param(machines.b200, 8, 400_000, True, id="B200 with a management NIC"),
        pytest.param(machines.gb200, 4, 400_000, True, id="GB200 with two BlueField-3"),
        pytest.param(machines.gb300_planes, 8, 400_000, True, id="GB300 with two planes a card"),
        pytest.param(machines.roce, 8, 400_000, True, id="RoCE"),
        pytest.param(machines.roce_bonds, 2, 400_000, True, id="bonded RoCE alone"),
        pytest.param(machines.efa_p5, 32, 0, True, id="EFA"),
        pytest.param(machines.sriov_host, 2, 400_000, True, id="a host with virtual functions"),
        pytest.param(machines.vm_guest, 8, 400_000, True, id="a guest with passed-through functions"),
        pytest.param(machines.without_hcas, None, None, False, id="no RDMA device"),
    ],
)
def test_a_sound_machine(
    tmp_path: Path, build: Callable[[], SysMachine], active: int | None, mbps: int | None, exists: bool
) -> None:
    """Nothing is found, the compute fabric is counted right, and a machine without one has no such condition."""
    machine = Watched(render(build(), tmp_path))
    last = machine.watch(30)
    assert (machine.found(), last.unreadable, last.exists) == ([], None, exists)
    held = shown(machine.memory)
    assert (held.active if held else None, held.rate_mbps if held else None) == (active, mbps)


@pytest.mark.parametrize(
    ("build", "instance_type"),
    [
        pytest.param(machines.vm_guest, "Standard_ND96isr_H100_v5", id="Azure H100"),
        pytest.param(machines.efa_p5, "p5.48xlarge", id="AWS p5"),
        pytest.param(machines.without_hcas, "a3-megagpu-8g", id="GCP without RDMA"),
    ],
)
def test_the_platform_table_fits(tmp_path: Path, build: Callable[[], SysMachine], instance_type: str) -> None:
    """A sound machine meets what the table expects of its kind."""
    labels = {"node.kubernetes.io/instance-type": instance_type}
    machine = Watched(render(build(), tmp_path), labels=labels)
    machine.watch(60)
    assert (machine.found(), machine.last.unreadable) == ([], None)


def test_what_is_read_of_a_device(tmp_path: Path) -> None:
    """Names, address, NUMA node, driver, texts and counters, stripped."""
    seen = read(render(machines.h100_ndr(), tmp_path))
    device = seen.devices[2]
    assert (device.name, device.pci, device.vendor, device.numa) == ("mlx5_11", "0000:88:00.0", 0x15B3, 1)
    assert (device.driver, device.hca_type, device.board_id) == ("mlx5_core", "MT4129", "MT_0000000838")
    assert (device.node_guid[:4], device.node_type, device.virtual, device.subfunction) == (
        "b83f",
        "1: CA",
        False,
        False,
    )
    port = device.ports[0]
    assert (port.state, port.phys_state, port.rate) == ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)")
    assert (port.link_layer, port.lid) == ("InfiniBand", "")
    assert port.counters["symbol_error"] == port.hw_counters["roce_slow_restart"] == 0
    assert "out_of_sequence" not in port.hw_counters
    assert (len(seen.pci_hcas), seen.gpu_numa, seen.exclusive) == (9, (0, 1), False)
    assert (seen.pci_hcas[0].infiniband, seen.pci_hcas[-1].infiniband) == (True, False)


def test_a_bond(tmp_path: Path) -> None:
    """The legs are those of the bond, and whether each is up is the bonding driver's word."""
    tree = render(machines.h100_ndr(), tmp_path)
    tree.lose_leg("ens1f1np1")
    device = next(one for one in read(tree).devices if one.name == "mlx5_bond_0")
    assert device.legs == (("ens1f0np0", True), ("ens1f1np1", False))
    assert {netdev.bond for netdev in device.netdevs} == {"bond0"}
    assert [netdev.mbps for netdev in device.netdevs] == [200_000, 200_000]


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        pytest.param(lambda t: t.set("mlx5_3", "state", "1: DOWN"), [("PortDown", "mlx5_3/1")], id="a port"),
        pytest.param(
            lambda t: t.set("mlx5_3", "rate", "200 Gb/sec (2X NDR)"),
            [("WidthReduced", "mlx5_3/1")],
            id="lanes",
        ),
        pytest.param(lambda t: t.lose("mlx5_3", from_bus=True), [("HcaMissing", "mlx5_3")], id="a card"),
        pytest.param(
            lambda t: t.lose("mlx5_3", from_bus=False),
            [("HcaMissing", "mlx5_3"), ("HcaWithoutRdma", "0000:28:00.0")],
            id="an RDMA device",
        ),
        pytest.param(
            lambda t: t.lose_leg("ens1f0np0"),
            [("BondRedundancyLost", "mlx5_bond_0")],
            id="a leg of the bond beside",
        ),
        pytest.param(
            lambda t: t.set("mlx5_3", "counters/symbol_error", "500"),
            [("SymbolErrors", "mlx5_3/1")],
            id="errors",
        ),
    ],
)
def test_faults_in_a_tree(
    tmp_path: Path, fault: Callable[[Tree], None], found: list[tuple[str, str]]
) -> None:
    """From the file to the finding, by name."""
    tree = render(machines.h100_ndr(), tmp_path)
    machine = Watched(tree, expected_ports=8, expected_rate_mbps=400_000)
    machine.watch()
    fault(tree)
    machine.watch(90)
    assert machine.found() == found


def test_a_missing_compute_card_among_storage_cards(tmp_path: Path) -> None:
    """On a DGX A100 the four storage ports of the same make never stand in for a compute port."""
    whole = machines.a100_hdr()
    tree = render(msgspec.structs.replace(whole, hcas=whole.hcas[1:]), tmp_path)
    machine = Watched(tree, last_validated_ports=8)
    machine.watch(60)
    assert machine.found() == [("HcaMissing", "node")]


def test_refused_counters_are_not_asked_again(tmp_path: Path) -> None:
    """Each try floods the kernel log: one EINVAL is the last, and the report says what is not evaluated."""
    files = Refusing({"symbol_error": errno.EINVAL, "link_downed": errno.EINVAL})
    machine = Watched(render(machines.gb200(), tmp_path), files)
    machine.watch(60)
    ports = 8
    assert files.opened.count("symbol_error") == files.opened.count("link_downed") == ports
    assert files.opened.count("port_rcv_errors") == ports * 6
    assert (machine.found(), machine.last.unreadable) == ([], None)
    assert "link_downed, symbol_error" in machine.not_evaluated()


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ETIMEDOUT])
def test_counters_that_fail_are_asked_again(tmp_path: Path, code: int) -> None:
    """Any other error is one, and Unknown when it stays."""
    files = Refusing({"symbol_error": code})
    machine = Watched(render(machines.gb200(), tmp_path), files)
    machine.watch(30)
    assert machine.last.unreadable is not None
    assert files.opened.count("symbol_error") == 8 * 3
    files.refused.clear()
    machine.watch()
    assert machine.last.unreadable is None


@pytest.mark.parametrize("name", ["state", "rate", "link_layer"])
def test_a_state_that_is_refused_is_asked_again(tmp_path: Path, name: str) -> None:
    """Only counters may be kept back; a state that gives EINVAL is Unknown until it can be read."""
    files = Refusing({name: errno.EINVAL})
    machine = Watched(render(machines.b200(), tmp_path), files, expected_rate_mbps=400_000)
    machine.watch(30)
    assert machine.last.unreadable is not None
    files.refused.clear()
    machine.watch()
    assert machine.last.unreadable is None


@pytest.mark.parametrize("text", ["N/A (no PMA)", "N/A"])
def test_counters_that_say_that_there_are_none(tmp_path: Path, text: str) -> None:
    """No PMA, no counter: not evaluated."""
    tree = render(machines.b200(), tmp_path)
    tree.set("ibp24s0", "counters/symbol_error", text)
    port = next(one for one in read(tree).devices if one.name == "ibp24s0").ports[0]
    assert ("symbol_error" in port.counters, port.not_shown) == (False, {"symbol_error": "N/A"})


def test_counters_of_the_device(tmp_path: Path) -> None:
    """Some drivers count for the device and not for its port."""
    tree = render(machines.b200(), tmp_path)
    folder = tree.port("ibp24s0")
    shutil.move(folder / "hw_counters", folder.parents[1] / "hw_counters")
    port = next(one for one in read(tree).devices if one.name == "ibp24s0").ports[0]
    assert port.hw_counters == {"local_ack_timeout_err": 0, "rnr_nak_retry_err": 0, "roce_slow_restart": 0}


def test_a_device_that_is_not_mlx(tmp_path: Path) -> None:
    """EFA has neither type nor board nor counters/, which is no error."""
    device = read(render(machines.efa_p5(1), tmp_path)).devices[0]
    assert (device.hca_type, device.board_id, device.errors, device.is_efa) == ("", "", {}, True)
    assert (device.ports[0].counters, device.ports[0].errors) == ({}, {})
    assert device.ports[0].hw_counters["rx_drops"] == 0


def test_virtual_functions(tmp_path: Path) -> None:
    """They are named and not read, unless the configuration says so; their PCI devices are no cards."""
    tree = render(machines.sriov_host(), tmp_path)
    seen = read(tree)
    functions = [device for device in seen.devices if device.virtual]
    assert (len(functions), {device.left_out for device in functions}) == (8, {"it is a virtual function"})
    assert (all(not device.ports for device in functions), len(seen.pci_hcas)) == (True, 2)
    asked = read(tree, virtual_functions=True)
    assert [len(device.ports) for device in asked.devices if device.virtual] == [1] * 8


def test_sub_functions(tmp_path: Path) -> None:
    """A sub-function is left out; its card's address is found on the way."""
    card = SysHca(name="mlx5_0", pci="0000:18:00.0")
    function = SysHca(name="mlx5_1", pci="0000:19:00.0", sfnum="88")
    device = read(render(SysMachine(hcas=(card, function)), tmp_path)).devices[1]
    assert (device.subfunction, device.left_out, device.pci) == (True, "it is a sub-function", "0000:19:00.0")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        pytest.param(
            {"exclude": ("mlx5_bond_*",)},
            ("mlx5_bond_0", "", "the configuration leaves it out"),
            id="exclude",
        ),
        pytest.param(
            {"devices": ("mlx5_?",)}, ("mlx5_bond_0", "", "the configuration leaves it out"), id="devices"
        ),
        pytest.param({"storage": ("mlx5_bond_*",)}, ("mlx5_bond_0", "storage", ""), id="storage by name"),
        pytest.param({"storage": ("0000:aa:*",)}, ("mlx5_bond_0", "storage", ""), id="storage by address"),
        pytest.param({"management": ("mlx5_0",)}, ("mlx5_0", "management", ""), id="management"),
        pytest.param(
            {"compute": ("mlx5_0",), "storage": ("*",)}, ("mlx5_0", "compute", ""), id="compute before others"
        ),
    ],
)
def test_what_the_configuration_says(
    tmp_path: Path, section: dict[str, Any], said: tuple[str, str, str]
) -> None:
    """Devices are named by shell patterns of name or address."""
    seen = read(render(machines.h100_ndr(), tmp_path), **section)
    device = next(one for one in seen.devices if one.name == said[0])
    assert (device.name, device.role, device.left_out) == said


@pytest.mark.parametrize(
    ("routes", "six"),
    [
        pytest.param(
            "br-ex\t00000000\t0\t3\t0\t0\t0\t00000000\t0\t0\t0", "", id="a bridge above a bond, IPv4"
        ),
        pytest.param("", f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} 00000064 1 0 00000003    br-ex", id="IPv6"),
    ],
)
def test_the_default_route_above(tmp_path: Path, routes: str, six: str) -> None:
    """A route of whatever stands above an interface is its own."""
    device = SysHca(name="mlx5_9", pci="0000:dd:00.0", netdevs=(SysNetdev(name="ens9"),))
    other = SysHca(name="mlx5_0", pci="0000:18:00.0")
    tree = render(SysMachine(hcas=(device, other), bonds=(("bond9", (("ens9", True),)),)), tmp_path)
    (tree.sys / "class/net/bond9/upper_br-ex").symlink_to("../br-ex")
    (tree.proc / "1/net/route").write_text(routes)
    (tree.proc / "1/net/ipv6_route").write_text(six)
    seen = read(tree)
    assert [[netdev.default_route for netdev in one.netdevs] for one in seen.devices] == [[], [True]]


def test_the_reader_without_process_one(tmp_path: Path) -> None:
    """Where the host's processes are not to be seen, its own routes count; without any there is no default route."""
    tree = render(machines.b200(), tmp_path)
    (tree.proc / "1/net").rename(tree.proc / "net")
    assert any(netdev.default_route for device in read(tree).devices for netdev in device.netdevs)
    shutil.rmtree(tree.proc / "net")
    assert not any(netdev.default_route for device in read(tree).devices for netdev in device.netdevs)


def test_sysfs_that_cannot_be_read(tmp_path: Path) -> None:
    """A machine whose PCI bus cannot be seen is not a machine without RDMA devices."""
    tree = render(machines.without_hcas(), tmp_path)
    shutil.rmtree(tree.sys / "bus")
    with pytest.raises(OSError, match="bus/pci/devices"):
        read(tree)


def test_exclusive_namespaces(tmp_path: Path) -> None:
    """RDMA devices of one network namespace each are told by the module's parameter."""
    assert read(render(SysMachine(exclusive=True), tmp_path)).exclusive is True


def test_texts_are_bounded(tmp_path: Path) -> None:
    """A file that never ends costs its beginning; an unreadable number is none."""
    tree = render(machines.b200(), tmp_path)
    tree.set("ibp24s0", "rate", "x" * 100_000)
    tree.set("ibp24s0", "counters/symbol_error", "9" * 100)
    port = next(one for one in read(tree).devices if one.name == "ibp24s0").ports[0]
    assert len(port.rate) == 64
    assert "holds" in port.errors["symbol_error"]


@settings(max_examples=60, deadline=None)
@given(
    texts=st.fixed_dictionaries(
        {
            name: st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
            for name in ("state", "rate", "lid")
        }
    ),
    counter=st.binary(max_size=20),
)
def test_no_text_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str], counter: bytes
) -> None:
    """Whatever a file holds, there is a reading, and the check bears it."""
    card = SysHca(name="mlx5_0", pci="0000:18:00.0", ports=(msgspec.structs.replace(SysPort(), **texts),))
    tree = render(SysMachine(hcas=(card,)), tmp_path_factory.mktemp("tree"))
    (tree.port("mlx5_0") / "counters/symbol_error").write_bytes(counter)
    machine = Watched(tree)
    machine.watch()
    value = machine.reader.read().devices[0].ports[0]
    assert "symbol_error" in {*value.counters, *value.errors, *value.not_shown}
