"""What the node shows of its compute fabric, what is validated of it, and the PCIe links of its devices."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from checks.infiniband import CHECK, shown, validated
from checks.infiniband_reading import HcaReading
from checks.pci_reading import PCI, PciDevice, PciRead
from tests.checks.infiniband import HDR, Machine, bond, down, efa, eight, hca, port
from tests.checks.kernel import NEXT_BOOT


class TestPcieLink:
    """The PCIe link of a device, which the PCI bus tells."""

    @staticmethod
    def bus(
        machine: Machine, *, width: int | None = 16, guest: bool = False, errors: tuple[str, ...] = ()
    ) -> PciRead:
        bridge = PciDevice(
            address="0000:00:01.0", role="bridge", speed=320, max_speed=320, width=width, max_width=16
        )
        card = PciDevice(
            address=hca(0).pci,
            role="hca",
            vendor=0x15B3,
            speed=320,
            max_speed=320,
            width=width,
            max_width=16,
            parent=bridge.address,
            errors=errors,
        )
        return PciRead(seen_at=machine.now, devices=(bridge, card), virtual_machine=guest)

    def look(self, machine: Machine, seconds: int, **bus: Any) -> None:
        for _ in range(seconds // 10):
            machine.hear(self.bus(machine, **bus))
            machine.look(hca(0))

    def test_a_narrow_link(self) -> None:
        """It is raised, and ends when the link is as wide as it can be."""
        machine = Machine(looked_at=("infiniband", PCI))
        self.look(machine, 60, width=8)
        assert machine.found() == [("HcaPcieDegraded", "mlx5_0")]
        assert "x8 of x16" in machine.finding("HcaPcieDegraded").detail
        assert machine.finding("HcaPcieDegraded").effect == "prefer-not"
        self.look(machine, 120)
        assert machine.found() == []

    def test_a_guest_shows_none(self) -> None:
        """In a virtual machine it is not evaluated."""
        machine = Machine(looked_at=("infiniband", PCI))
        self.look(machine, 60, width=8, guest=True)
        assert machine.found() == []
        assert "it is a virtual machine" in machine.not_evaluated()

    def test_an_unreadable_link(self) -> None:
        """A width that cannot be read three times is Unknown."""
        machine = Machine(looked_at=("infiniband", PCI))
        self.look(machine, 60, width=None, errors=("current_link_width: EIO",))
        assert machine.last.unreadable is not None


class TestShown:
    """What the node shows of its compute fabric, for its peers and for its own future."""

    def test_what_stands_now(self) -> None:
        """Active ports and the rate that most of them have; dated when it changed."""
        machine = Machine()
        machine.look(*eight(), bond(), seconds=30)
        first = shown(machine.memory)
        assert first is not None
        assert (first.active, first.rate_mbps) == (8, 400_000)
        assert first.at < machine.now
        machine.look(*eight(_3=hca(3, down()), _4=hca(4, port(rate=HDR))))
        after = shown(machine.memory)
        assert after is not None
        assert (after.active, after.rate_mbps, after.at) == (7, 400_000, machine.now)

    def test_a_machine_without_shows_nothing(self) -> None:
        """Zero of nothing would count among the peers."""
        machine = Machine()
        machine.look()
        assert (shown(machine.memory), shown(None), validated(None)) == (None, None, None)

    @pytest.mark.parametrize(
        ("facts", "devices", "told"),
        [
            pytest.param({}, eight(), (8, 400_000), id="all well, nobody expects anything"),
            pytest.param(
                {}, eight(_3=hca(3, port(rate=HDR))), (8, 200_000), id="the rate that all of them have"
            ),
            pytest.param(
                {"expected_ports": 8, "expected_rate_mbps": 400_000}, eight(), (8, 400_000), id="as expected"
            ),
            pytest.param({}, eight(_3=hca(3, down())), None, id="one is down"),
            pytest.param(
                {"expected_ports": 7}, eight(_3=hca(3, down())), (7, 400_000), id="one is down and spare"
            ),
            pytest.param({"expected_ports": 9}, eight(), None, id="fewer than expected"),
            pytest.param({"expected_rate_mbps": 800_000}, eight(), None, id="slower than expected"),
            pytest.param({}, eight(_3=hca(3, port(state=""))), None, id="one cannot be read"),
            pytest.param({}, (), None, id="none"),
            pytest.param(
                {"expected_ports": 2}, (efa(0), efa(1)), (2, 0), id="EFA, whose rate proves nothing"
            ),
        ],
    )
    def test_what_is_validated(
        self, facts: dict[str, Any], devices: Sequence[HcaReading], told: tuple[int, int] | None
    ) -> None:
        """Only a whole look in which all was well, and at least what is expected."""
        machine = Machine(**facts)
        machine.look(*devices)
        held = validated(machine.memory)
        assert (None if held is None else (held.active, held.rate_mbps)) == told

    def test_a_loss_lowers_nothing(self) -> None:
        """What was validated stays in this boot; another boot begins without."""
        machine = Machine()
        machine.look(*eight())
        machine.look(*eight(_3=hca(3, down())), seconds=90)
        held = validated(machine.memory)
        assert held is not None
        assert held.active == 8
        machine.boot_id = NEXT_BOOT
        machine.look(*eight(_3=hca(3, down())))
        assert validated(machine.memory) is None


def test_the_memory_is_small() -> None:
    """Sixteen busy ports need a few KiB in the state file."""
    machine = Machine()
    machine.look(*(hca(number) for number in range(16)), seconds=300)
    assert len(msgspec.json.encode(machine.memory)) < 32 * 1024
    assert CHECK.memory_type is type(machine.memory)
