"""Links that come and go, and bonded devices that lose a leg."""

import pytest

from checks.infiniband_reading import HcaReading, Netdev
from tests.checks.infiniband import Machine, bond, down, eight, hca, port

KNOWN = {"expected_ports": 8, "expected_rate_mbps": 400_000}


def test_flapping() -> None:
    """Three outages within hours are a fault, which ends when the window has passed without another."""
    machine = Machine(**KNOWN)
    machine.look(*eight(), seconds=60)
    for _ in range(3):
        machine.look(*eight(_3=hca(3, down())), seconds=30)
        machine.look(*eight(), seconds=700)
    assert machine.found() == [("LinkDowned", "mlx5_3/1"), ("PortFlapping", "mlx5_3/1")]
    assert machine.finding("PortFlapping").severity == "Fault"
    assert machine.finding("LinkDowned").severity == "Warning"
    machine.look(*eight(), seconds=5 * 3600)
    assert machine.found() == [("PortFlapping", "mlx5_3/1")]
    machine.look(*eight(), seconds=9 * 3600)
    assert machine.found() == []


@pytest.mark.parametrize(
    ("reading", "found"),
    [
        pytest.param(hca(3, port(counters={"link_downed": 6})), ["LinkDowned"], id="link_downed once"),
        pytest.param(
            hca(3, port(counters={"link_downed": 8})),
            ["LinkDowned", "PortFlapping"],
            id="link_downed three times",
        ),
        pytest.param(hca(3, port(counters={"link_downed": 0})), [], id="link_downed set back"),
        pytest.param(
            hca(3, netdevs=(Netdev(name="ib3", carrier_changes=10),)),
            ["LinkDowned", "PortFlapping"],
            id="a carrier that changed eight times",
        ),
    ],
)
def test_outages_between_two_looks(reading: HcaReading, found: list[str]) -> None:
    """The counters know of outages that no look saw."""
    machine = Machine(**KNOWN)
    before = hca(3, port(counters={"link_downed": 5}), netdevs=(Netdev(name="ib3", carrier_changes=2),))
    machine.look(*eight(_3=before), seconds=60)
    machine.look(*eight(_3=reading))
    assert [reason for reason, _ in machine.found()] == found


def test_a_lost_leg() -> None:
    """A bonded device stays ACTIVE on its last leg: a fault where it is the compute fabric, a warning beside one."""
    fabric = Machine(expected_ports=1)
    fabric.look(bond())
    fabric.look(bond(lost="eth3"), seconds=90)
    assert fabric.found() == [("BondLegDown", "mlx5_bond_0")]
    assert "eth3" in fabric.finding("BondLegDown").detail
    fabric.look(bond(), seconds=700)
    assert fabric.found() == []
    beside = Machine(**KNOWN)
    beside.look(*eight(), bond())
    beside.look(*eight(), bond(lost="eth3"), seconds=90)
    assert beside.found() == [("BondRedundancyLost", "mlx5_bond_0")]
    beside.look(*eight(), bond(), seconds=700)
    assert beside.found() == []


def test_a_clearing_of_the_node_begins_anew() -> None:
    """What a person accepts is not found again: not the growth of before, nor a port, a card or a link layer of before."""
    machine = Machine()
    machine.look(*eight(), seconds=30)
    noisy = hca(0, port(counters={"symbol_error": 500, "link_downed": 0}))
    loud = hca(0, port(counters={"symbol_error": 500, "link_downed": 9}))
    left = (loud, *eight(_0=None, _3=hca(3, down()), _4=None, _5=hca(5, port(link_layer="Ethernet"))))
    machine.look(noisy, *left[1:])
    machine.look(*left, seconds=90)
    assert [reason for reason, _ in machine.found()] == [
        "HcaMissing",
        "LinkDowned",
        "LinkLayerChanged",
        "PortDown",
        "PortFlapping",
        "SymbolErrors",
    ]
    machine.facts["cleared_before"] = machine.now
    machine.look(*left, seconds=120)
    assert (machine.found(), machine.last.unreadable) == ([], None)
    more = hca(0, port(counters={"symbol_error": 700, "link_downed": 9}))
    machine.look(more, *left[1:])
    assert machine.found() == [("SymbolErrors", "mlx5_0/1")]
