"""What a driver that is loaded anew, a link that trains and a bond that is made smaller leave behind: no false fault."""

from typing import Any

import msgspec

from checks.infiniband_memory import followed
from checks.infiniband_reading import HcaReading, InfinibandRead, Netdev
from tests.checks.infiniband import ZEROS, Machine, bond, down, eight, hca, port
from tests.checks.kernel import START

KNOWN = {"expected_ports": 8, "expected_rate_mbps": 400_000}


def worn(number: int, **values: int) -> HcaReading:
    """Build a device whose counters have grown."""
    return hca(number, port(counters={**ZEROS, **values}))


def test_names_that_are_given_anew() -> None:
    """Two cards change names: neither card's old counts are the other's growth."""
    machine = Machine(**KNOWN)
    old = worn(3, symbol_error=5_000, link_downed=9, local_link_integrity_errors=3)
    machine.look(*eight(_3=old), seconds=60)
    third = msgspec.structs.replace(hca(4), name="mlx5_3")
    fourth = msgspec.structs.replace(old, name="mlx5_4")
    machine.look(*eight(_3=third, _4=fourth), seconds=60)
    assert (machine.found(), machine.last.unreadable) == ([], None)
    more = worn(3, symbol_error=5_200, link_downed=9, local_link_integrity_errors=3)
    machine.look(*eight(_3=third, _4=msgspec.structs.replace(more, name="mlx5_4")))
    assert machine.found() == [("SymbolErrors", "mlx5_4/1")]


def test_a_port_that_was_active_is_so_under_another_name() -> None:
    """Nobody says how many ports there should be; the card was active in this boot all the same."""
    machine = Machine()
    machine.look(*eight(), seconds=30)
    machine.look(*eight(_3=hca(3, down(), name="ibp19s0")), seconds=90)
    assert machine.found() == [("PortDown", "ibp19s0/1")]


def test_followed_moves_nothing_that_stays() -> None:
    """The memory is the very same where every name is its card's."""
    machine = Machine()
    machine.look(*eight(), seconds=30)
    assert machine.memory is not None
    read = InfinibandRead(seen_at=START, devices=eight(_3=None))
    assert followed(machine.memory, read) == (machine.memory, set())


def test_a_driver_that_is_loaded_anew() -> None:
    """Counters that begin anew and what the driver itself did to the carrier are no outages and no errors."""
    machine = Machine(**KNOWN)

    def third(changes: int, **values: int) -> HcaReading:
        netdevs = (Netdev(name="ib3", carrier_changes=changes),)
        return msgspec.structs.replace(worn(3, **values), netdevs=netdevs)

    machine.look(*eight(_3=third(9, symbol_error=9_000)), seconds=60)
    for _ in range(3):
        machine.look(*eight(_3=None), seconds=20)
        machine.look(*eight(_3=third(2, symbol_error=300)), seconds=700)
    assert (machine.found(), machine.last.unreadable) == ([], None)


def test_a_link_that_trains() -> None:
    """Its errors are those of training: an outage, and no sick cable. What comes later is."""
    machine = Machine(**KNOWN)
    machine.look(*eight(), seconds=60)
    machine.look(*eight(_3=hca(3, down())), seconds=40)
    errors = {"symbol_error": 700, "local_link_integrity_errors": 2}
    machine.look(*eight(_3=worn(3, **errors)), seconds=700)
    assert machine.found() == [("LinkDowned", "mlx5_3/1")]
    machine.look(*eight(_3=worn(3, **{**errors, "symbol_error": 900})))
    assert machine.found() == [("LinkDowned", "mlx5_3/1"), ("SymbolErrors", "mlx5_3/1")]


def test_a_link_that_trained_between_two_looks() -> None:
    """The counter of outages tells, where no look saw it down."""
    machine = Machine(**KNOWN)
    machine.look(*eight(), seconds=60)
    machine.look(*eight(_3=worn(3, symbol_error=700, link_downed=1)), seconds=60)
    assert machine.found() == [("LinkDowned", "mlx5_3/1")]


def test_a_leg_that_is_taken_out_of_its_bond() -> None:
    """The bond has one leg and says that all is well; it had two in this boot."""
    machine = Machine(expected_ports=1)
    machine.look(bond(), seconds=30)
    alone: dict[str, Any] = {"legs": (("eth2", True),)}
    machine.look(bond(**alone), seconds=90)
    assert machine.found() == [("BondLegDown", "mlx5_bond_0")]
    assert machine.finding("BondLegDown").detail == "its leg eth3 is down"
    machine.look(bond(), seconds=700)
    assert machine.found() == []
