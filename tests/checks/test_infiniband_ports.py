"""Ports of the compute fabric: their states, rates, link layers, bonds and flaps, raised, cleared and not evaluated."""

from collections.abc import Sequence
from typing import Any

import pytest

from checks.infiniband import CHECK
from checks.infiniband_reading import HcaReading, Netdev, PortReading
from tests.checks.infiniband import HDR, NDR, Machine, down, eight, hca, port
from tests.checks.kernel import NEXT_BOOT

KNOWN = {"expected_ports": 8, "expected_rate_mbps": 400_000, "expected_ports_source": "policy h100"}
THIRD = ("PortDown", "mlx5_3/1")


def ill(reading: PortReading, **fields: Any) -> tuple[HcaReading, ...]:
    """Build eight devices of which the fourth has this port."""
    return eight(_3=hca(3, reading, **fields))


@pytest.mark.parametrize(
    ("reading", "reason", "detail"),
    [
        pytest.param(down(), "PortDown", "it has no link", id="polling"),
        pytest.param(down("3: Disabled"), "PortDown", "it is disabled", id="disabled"),
        pytest.param(down("5: LinkUp"), "PortDown", "its state is DOWN", id="down although the link is up"),
        pytest.param(port(state="3: ARMED"), "PortDown", "its state is ARMED", id="armed and never active"),
        pytest.param(
            port(state="4: ACTIVE", phys_state="2: Polling"),
            "PortDown",
            "it has no link",
            id="active without a link",
        ),
        pytest.param(
            port(state="2: INIT"),
            "PortNoSubnetManager",
            "no subnet manager",
            id="a link without a subnet manager",
        ),
        pytest.param(port(rate=HDR), "RateBelowExpected", "200 Gb/s (4X HDR)", id="half the rate"),
        pytest.param(
            port(rate="200 Gb/sec (2X NDR)"), "WidthReduced", "200 Gb/s (2X NDR)", id="half of the lanes"
        ),
        pytest.param(
            port(rate="50 Gb/sec (2X EDR)"),
            "RateBelowExpected",
            "2X EDR",
            id="lanes that would not have been enough",
        ),
        pytest.param(
            port(rate="10 Gb/sec (4X)"),
            "RateBelowExpected",
            "4X SDR",
            id="the slowest speed where others are faster",
        ),
        pytest.param(
            port(link_layer="Ethernet"),
            "LinkLayerChanged",
            "it was InfiniBand and is Ethernet",
            id="another layer",
        ),
    ],
)
def test_a_port_that_goes_ill_is_found_and_heals(reading: PortReading, reason: str, detail: str) -> None:
    """Each is a fault that keeps work off that spans nodes, says what is wrong, and ends when the port is well for long."""
    machine = Machine(**KNOWN)
    machine.look(*eight())
    machine.look(*ill(reading), seconds=400)
    assert machine.found() == [(reason, "mlx5_3/1")]
    finding = machine.finding(reason)
    assert detail in finding.detail
    assert (finding.effect, finding.part.pci) == ("no-multi-node", "0000:13:00")
    machine.look(*eight(), seconds=4000)
    assert (machine.found(), machine.last.unreadable) == ([], None)


def test_ethernet_has_no_subnet_manager() -> None:
    """INIT of a RoCE port is a port that is down."""
    machine = Machine(expected_ports=1)
    machine.look(hca(0, port(link_layer="Ethernet")))
    machine.look(hca(0, port(state="2: INIT", link_layer="Ethernet")), seconds=90)
    assert machine.found() == [("PortDown", "mlx5_0/1")]


def test_a_down_port_waits_a_minute() -> None:
    """A link that trains anew is no fault, and meanwhile nobody says that all is well."""
    machine = Machine(**KNOWN)
    machine.look(*eight())
    machine.look(*ill(down()), seconds=50)
    assert (machine.found(), bool(machine.last.not_yet)) == ([], True)
    machine.look(*ill(down()), seconds=20)
    assert machine.found() == [THIRD]


def test_the_words_stay_while_the_link_trains() -> None:
    """Polling and training by turns are one message, since each change would cost a write."""
    machine = Machine(**KNOWN)
    machine.look(*ill(down()), seconds=90)
    said = machine.finding("PortDown").detail
    machine.look(*ill(down("4: PortConfigurationTraining")))
    assert machine.finding("PortDown").detail == said


@pytest.mark.parametrize(
    ("facts", "looks", "found", "row"),
    [
        pytest.param(
            {}, [eight(_3=hca(3, down()))], [], "nobody says how many", id="never active, nobody expects it"
        ),
        pytest.param(
            {}, [eight(), eight(_3=hca(3, down()))], [THIRD], "", id="active before, nobody expects it"
        ),
        pytest.param(KNOWN, [eight(_3=hca(3, down()))], [THIRD], "", id="never active, and missing"),
        pytest.param(
            {"expected_ports": 7},
            [eight(_3=hca(3, down()))],
            [],
            "as many ports as expected are active",
            id="never active and not missing",
        ),
        pytest.param(
            {"expected_ports": 7},
            [eight(), eight(_3=hca(3, down()))],
            [("SparePortDown", "mlx5_3/1")],
            "",
            id="active before and not missing",
        ),
        pytest.param(
            {"expected_ports": 7},
            [eight(_2=hca(2, down()), _3=hca(3, down()))],
            [("PortCountBelowExpected", "node")],
            "one of several",
            id="one of two that never were active",
        ),
        pytest.param(
            {"expected_ports": 7},
            [eight(_3=hca(3, down())), eight(_2=hca(2, down()), _3=hca(3, down()))],
            [("PortDown", "mlx5_2/1")],
            "others that were are down",
            id="the one that was active is to blame",
        ),
        pytest.param(
            {"expected_ports": 8},
            [eight(_2=hca(2, down()), _3=hca(3, down()))],
            [("PortDown", "mlx5_2/1"), THIRD],
            "",
            id="all that never were active are missing",
        ),
    ],
)
def test_which_down_port_is_a_fault(
    facts: dict[str, Any], looks: Sequence[tuple[HcaReading, ...]], found: list[tuple[str, str]], row: str
) -> None:
    """A port that nobody has cabled is no fault; one that worked or is missed is one."""
    machine = Machine(**facts)
    for devices in looks:
        machine.look(*devices, seconds=90)
    assert machine.found() == found
    assert row in machine.not_evaluated()


def test_the_count_is_met_again() -> None:
    """PortCountBelowExpected ends when enough ports are active."""
    machine = Machine(expected_ports=7)
    machine.look(*eight(_2=hca(2, down()), _3=hca(3, down())), seconds=90)
    machine.look(*eight(_3=hca(3, down())), seconds=700)
    assert (machine.found(), machine.last.unreadable) == ([], None)


def test_a_spare_port_comes_back() -> None:
    """SparePortDown is a warning, and ends like a fault."""
    machine = Machine(expected_ports=7)
    machine.look(*eight())
    machine.look(*ill(down()), seconds=90)
    assert machine.finding("SparePortDown").severity == "Warning"
    machine.look(*eight(), seconds=4000)
    assert machine.found() == []


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(port(state="", errors={"state": "EIO"}), id="a state that gives EIO"),
        pytest.param(port(state=""), id="a state without a file"),
        pytest.param(port(state="9: WEIRD"), id="a state that nobody knows"),
        pytest.param(port(phys_state="8: <unknown>"), id="a physical state that nobody knows"),
        pytest.param(port(rate="", errors={"rate": "EINVAL"}), id="a rate that gives EINVAL"),
        pytest.param(port(rate="fast"), id="a rate that is no rate"),
        pytest.param(port(link_layer="", errors={"link_layer": "EIO"}), id="a link layer that gives EIO"),
    ],
)
def test_what_cannot_be_read_three_times_is_unknown(reading: PortReading) -> None:
    """It is never taken for well, and the rest of the ports is judged as ever."""
    machine = Machine(**KNOWN)
    machine.look(*eight())
    machine.look(*ill(reading))
    assert machine.last.not_yet
    machine.look(*ill(reading), seconds=30)
    assert machine.last.unreadable is not None
    assert machine.last.unreadable.reason == "InfinibandUnreadable"
    assert not machine.last.not_yet
    machine.look(*eight(), seconds=700)
    assert machine.last.unreadable is None


def test_no_look_at_all_is_unknown() -> None:
    """Three failures in a row of the source itself; a fault that stands goes on."""
    machine = Machine(**KNOWN)
    machine.look(*ill(down()), seconds=90)
    for _ in range(3):
        machine.fail()
    assert (machine.found(), machine.last.unreadable is not None) == ([THIRD], True)


def test_nobody_knows_the_rate() -> None:
    """Without an expected rate none is judged, and the report says so."""
    machine = Machine()
    machine.look(*ill(port(rate=HDR)), seconds=120)
    assert (machine.found(), machine.last.unreadable) == ([], None)
    assert "nobody says which rate" in machine.not_evaluated()


def test_a_down_port_prints_a_rate() -> None:
    """`10 Gb/sec (4X SDR)` of a port without a link says nothing about its speed."""
    machine = Machine(expected_ports=7, expected_rate_mbps=400_000)
    machine.look(*ill(down()), seconds=120)
    assert machine.found() == []
    assert "its rate means nothing" in machine.not_evaluated()


@pytest.mark.parametrize("rate", ["10 Gb/sec (4X SDR)", "10 Gb/sec (4X)"])
def test_a_kernel_without_a_name_for_the_speed(rate: str) -> None:
    """Where every port prints the slowest speed, the kernel may have no name for theirs: not evaluated, no fault."""
    machine = Machine(**KNOWN)
    machine.look(*(hca(number, port(rate=rate)) for number in range(8)), seconds=120)
    assert (machine.found(), machine.last.unreadable) == ([], None)
    assert "the kernel prints the slowest lane speed" in machine.not_evaluated()


@pytest.mark.parametrize(
    ("mbps", "found"),
    [
        pytest.param(400_000, [], id="fast enough"),
        pytest.param(100_000, [("RateBelowExpected", "mlx5_0/1")], id="too slow"),
    ],
)
def test_an_interface_knows_the_speed(mbps: int, found: list[tuple[str, str]]) -> None:
    """Where the kernel has no name for a RoCE port's speed its interface says it."""
    machine = Machine(expected_ports=1, expected_rate_mbps=400_000)
    device = hca(
        0,
        port(link_layer="Ethernet", rate="10 Gb/sec (4X SDR)"),
        netdevs=(Netdev(name="eth0", carrier=True, mbps=mbps),),
    )
    machine.look(device, seconds=120)
    assert machine.found() == found


def test_every_port_is_slow() -> None:
    """Only somebody else than the node itself can know: here the majority of its peers."""
    slow = [hca(number, port(rate=HDR)) for number in range(8)]
    alone = Machine()
    alone.look(*slow, seconds=120)
    assert alone.found() == []
    among_peers = Machine(
        peer_ports=8,
        peer_rate_mbps=400_000,
        peers_counted=3,
        last_validated_ports=8,
        last_validated_rate_mbps=200_000,
    )
    among_peers.look(*slow, seconds=120)
    assert [reason for reason, _ in among_peers.found()] == ["RateBelowExpected"] * 8


def test_a_finding_about_the_rate_outlives_the_link() -> None:
    """A slow port that goes down is not well for that; it ends where nobody expects a rate any more."""
    machine = Machine(**KNOWN)
    machine.look(*ill(port(rate=HDR)), seconds=120)
    machine.look(*ill(down()), seconds=120)
    assert machine.found() == [THIRD, ("RateBelowExpected", "mlx5_3/1")]
    machine.facts = {"looked_at": ("infiniband",)}
    machine.look(*ill(down()))
    assert machine.found() == [THIRD]


@pytest.mark.parametrize(
    ("role", "before", "found"),
    [
        pytest.param("storage", False, ("StoragePortDown", "node-out"), id="a storage rail, always to be up"),
        pytest.param("management", True, ("ManagementPortDown", "none"), id="management that was up"),
        pytest.param("management", False, None, id="management that never was"),
    ],
)
def test_ports_outside_the_compute_fabric(role: str, before: bool, found: tuple[str, str] | None) -> None:
    """The configuration's storage rail takes the node out; a management port warns at most."""
    machine = Machine(**KNOWN)
    if before:
        machine.look(*eight(), hca(20, role=role))
    machine.look(*eight(), hca(20, down(), role=role), seconds=90)
    assert [(one.reason, one.effect) for one in machine.last.findings] == ([found] if found else [])
    machine.look(*eight(), hca(20, role=role), seconds=700)
    assert machine.found() == []


def test_a_storage_rail_that_cannot_be_read_is_unknown() -> None:
    """A management port that cannot be read blocks nothing."""
    machine = Machine(**KNOWN)
    machine.look(*eight(), hca(20, port(state=""), role="management"), seconds=60)
    assert machine.last.unreadable is None
    machine.look(*eight(), hca(20, port(state=""), role="storage"), seconds=60)
    assert machine.last.unreadable is not None


def test_a_new_boot_begins_afresh() -> None:
    """What was active before the boot proves nothing about what is cabled now."""
    machine = Machine()
    machine.look(*eight())
    machine.look(*ill(down()), seconds=90)
    machine.boot_id = NEXT_BOOT
    machine.look(*ill(down()), seconds=90)
    assert machine.found() == []


def test_one_look_decides_at_once() -> None:
    """`--once` has no second look: nothing waits."""
    machine = Machine(**KNOWN)
    machine.settings = dict(CHECK.single_look)
    machine.look(*ill(down()))
    assert machine.found() == [THIRD]


def test_what_was_read_back_stands() -> None:
    """A finding of this boot from NodeHealth is one of a port that was active, although nothing else is remembered."""
    machine = Machine()
    machine.look(*eight())
    machine.look(*ill(down()), seconds=90)
    assert CHECK.restore is not None
    machine.memory = CHECK.restore(machine.last.findings, None)
    machine.look(*ill(down()), seconds=30)
    assert machine.found() == [THIRD]


def test_the_rate_of_ndr_is_read() -> None:
    """The builder's own port is well at the expected rate."""
    machine = Machine(**KNOWN)
    machine.look(*(hca(number, port(rate=NDR)) for number in range(8)), seconds=60)
    assert (machine.found(), machine.last.unreadable, machine.last.not_evaluated) == ([], None, ())
