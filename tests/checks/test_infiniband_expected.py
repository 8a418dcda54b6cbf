"""Who says what is expected, which ports count, which devices are missing, and what the node shows of itself."""

from typing import Any

import msgspec
import pytest

from checks.check import Context
from checks.infiniband_expected import Expected, expected_ports
from checks.infiniband_rate import Rate, rate_of
from checks.infiniband_reading import HcaReading, Netdev, PciHca
from tests.checks.infiniband import HDR, Machine, down, eight, hca, port
from tests.checks.kernel import START

AZURE = {"labels": {"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"}}
AWS = {"labels": {"node.kubernetes.io/instance-type": "p5.48xlarge"}}
ROUTED = (Netdev(name="eno1", default_route=True),)
ROCE, SLOWER = port(link_layer="Ethernet"), port(link_layer="Ethernet", rate=HDR)


@pytest.mark.parametrize(
    ("facts", "ports", "rate", "source"),
    [
        pytest.param({}, None, None, "", id="nobody"),
        pytest.param(
            {
                **AZURE,
                "expected_ports": 4,
                "expected_ports_source": "policy small",
                "last_validated_ports": 8,
            },
            4,
            400_000,
            "NodeHealth.spec.expected (policy small)",
            id="the policy, and the platform for what it leaves out",
        ),
        pytest.param(
            {**AZURE, "last_validated_ports": 16, "last_validated_rate_mbps": 800_000},
            8,
            400_000,
            "instance type Standard_ND96isr_H100_v5",
            id="the platform before what was validated",
        ),
        pytest.param(
            {"labels": {"node.kubernetes.io/instance-type": "our-own"}, "last_validated_ports": 8},
            8,
            None,
            "last validated on this node",
            id="what was validated, for a kind that no table names",
        ),
        pytest.param(
            {"last_validated_ports": 8, "peer_ports": 7, "peers_counted": 5},
            8,
            None,
            "last validated on this node",
            id="its own past before fewer of the peers",
        ),
        pytest.param(
            {"last_validated_rate_mbps": 200_000, "peer_rate_mbps": 400_000, "peers_counted": 3},
            None,
            400_000,
            "",
            id="faster peers before a past that was slow",
        ),
        pytest.param({"peer_ports": 8, "peers_counted": 3}, 8, None, "most of its peers", id="three peers"),
        pytest.param({"peer_ports": 8, "peers_counted": 2}, None, None, "", id="two peers are not enough"),
    ],
)
def test_expected(facts: dict[str, Any], ports: int | None, rate: int | None, source: str) -> None:
    """Policy, platform, then the larger of the node's past and its peers, each quantity by itself."""
    expected = expected_ports(Context(boot_id="boot", now=START, **facts))
    assert (expected.ports, expected.rate_mbps, expected.ports_source) == (ports, rate, source)
    assert expected != Expected() or not facts or facts.get("peers_counted") == 2


@pytest.mark.parametrize(
    ("facts", "bus", "exclusive", "found", "said"),
    [
        pytest.param(
            {}, "with it", False, [("HcaMissing", "mlx5_3")], "so is its PCI device", id="gone with its card"
        ),
        pytest.param(
            {}, "there", False, [("HcaMissing", "mlx5_3")], "still there", id="gone, its card is there"
        ),
        pytest.param(
            {"expected_ports": 8}, "with it", False, [("HcaMissing", "mlx5_3")], "", id="gone and expected"
        ),
        pytest.param({"expected_ports": 7}, "with it", False, [], "", id="gone and not expected"),
        pytest.param({}, "there", True, [], "", id="a pod may have it"),
    ],
)
def test_a_device_that_goes(
    facts: dict[str, Any], bus: str, exclusive: bool, found: list[tuple[str, str]], said: str
) -> None:
    """A device that was seen in this boot is missed by name; it ends when the device is back, under whatever name."""
    machine = Machine(**facts)
    machine.look(*eight())
    machine.exclusive = exclusive
    cards = [one for one in range(8) if one != 3 or bus == "there"]
    machine.pci_hcas = tuple(PciHca(pci=hca(one).pci, driver="mlx5_core") for one in cards)
    machine.look(*eight(_3=None), seconds=60)
    assert machine.found() == found
    assert all(said in finding.detail for finding in machine.last.findings)
    assert ("one network namespace" in machine.not_evaluated()) is exclusive
    machine.look(*eight(_3=hca(3, name="ibp19s0")), seconds=90)
    assert machine.found() == []


def test_what_stood_about_a_device_ends_with_its_name_or_role() -> None:
    """A port that has another name now, or another purpose, leaves nothing behind that stands for ever."""
    machine = Machine()
    machine.look(*eight())
    machine.look(*eight(_3=hca(3, down())), seconds=90)
    machine.look(*eight(_3=hca(3, down(), name="ibp19s0")))
    assert machine.found() == []
    other = Machine(expected_ports=7)
    other.look(*eight(_2=hca(2, down()), _3=hca(3, down())), seconds=90)
    other.facts = {"looked_at": ("infiniband",)}
    other.look(*eight(_3=hca(3, role="management")))
    assert (other.found(), other.last.unreadable) == ([], None)


def test_fewer_than_expected_from_the_start() -> None:
    """Nobody has seen the missing one in this boot: the node is named, with both numbers and who expects them."""
    machine = Machine(**AZURE)
    machine.pci_hcas = tuple(PciHca(pci=hca(one).pci, driver="mlx5_core") for one in range(8))
    machine.look(*eight(_3=None), seconds=60)
    finding = machine.finding("HcaMissing")
    assert finding.detail == "7 of 8 expected ports are here (instance type Standard_ND96isr_H100_v5)"
    assert finding.evidence == ("0000:13:00.0 is on the PCI bus without an RDMA device",)
    assert (finding.effect, finding.urgency) == ("no-multi-node", "when-idle")
    machine.look(*eight(), seconds=120)
    assert machine.found() == []


@pytest.mark.parametrize(
    ("facts", "exists", "found"),
    [
        pytest.param({}, False, [], id="nobody expects any"),
        pytest.param({"expected_ports": 8}, True, [("HcaMissing", "node")], id="the policy expects some"),
        pytest.param(AZURE, True, [("HcaMissing", "node")], id="the platform expects some"),
        pytest.param({"last_validated_ports": 8}, True, [("HcaMissing", "node")], id="it had some"),
        pytest.param(AWS, False, [], id="started without, where that is chosen"),
        pytest.param(
            {**AWS, "last_validated_ports": 32}, True, [("HcaMissing", "node")], id="chosen, and it had some"
        ),
        pytest.param(
            {**AWS, "peer_ports": 32, "peers_counted": 3},
            True,
            [("HcaMissing", "node")],
            id="chosen, and its peers have some",
        ),
        pytest.param(
            {**AWS, "expected_ports": 32}, True, [("HcaMissing", "node")], id="chosen by the policy"
        ),
        pytest.param(
            {"labels": {"node.kubernetes.io/instance-type": "a3-megagpu-8g"}},
            False,
            [],
            id="the platform has none",
        ),
    ],
)
def test_a_machine_without_devices(facts: dict[str, Any], exists: bool, found: list[tuple[str, str]]) -> None:
    """It has no such condition, unless devices are expected: then they are missing."""
    machine = Machine(**facts)
    machine.look(seconds=60)
    assert (machine.last.exists, machine.found()) == (exists, found)


def test_nothing_is_said_before_the_first_look() -> None:
    """Whether the class exists is not known yet: what stands on the Node stays as it is."""
    machine = Machine()
    machine.hear()
    assert (machine.last.exists, bool(machine.last.not_yet)) == (True, True)


def test_switched_off() -> None:
    """Where nobody looks there is no condition, and the report says why."""
    machine = Machine()
    machine.facts = {"looked_at": ()}
    machine.look(*eight())
    assert (machine.last.exists, "switched off" in machine.not_evaluated()) == (False, True)


def test_only_management_devices() -> None:
    """A node whose only RDMA device carries its default route has no compute fabric."""
    machine = Machine()
    machine.look(hca(0, port(link_layer="Ethernet"), netdevs=ROUTED))
    assert machine.last.exists is False


def test_a_card_without_an_rdma_device() -> None:
    """An InfiniBand card that no driver serves is told of; one that was handed to a virtual machine is not."""
    machine = Machine()
    card = PciHca(pci="0000:99:00.0", infiniband=True)
    machine.pci_hcas = (card, PciHca(pci="0000:98:00.0", infiniband=True, driver="vfio-pci"))
    machine.look(*eight(), seconds=60)
    assert machine.found() == [("HcaWithoutRdma", "0000:99:00.0")]
    machine.look(*eight(), hca(99, pci="0000:99:00.0"), seconds=90)
    assert machine.found() == []
    machine.exclusive = True
    machine.look(*eight(), seconds=60)
    assert machine.found() == []


def test_ports_that_cannot_be_listed() -> None:
    """A device whose ports cannot be read is Unknown, not missing and not well."""
    machine = Machine()
    machine.look(hca(0), hca(1))
    broken = msgspec.structs.replace(hca(1), ports=(), errors={"ports": "EIO"})
    machine.look(hca(0), broken, seconds=30)
    assert machine.last.unreadable is not None
    machine.look(hca(0), hca(1), seconds=20)
    assert machine.last.unreadable is None


@pytest.mark.parametrize(
    ("facts", "ill", "well"),
    [
        pytest.param(
            {"expected_rate_mbps": 400_000},
            hca(1, port(rate="odd")),
            {"looked_at": ("infiniband",)},
            id="a rate that nobody expects any more",
        ),
        pytest.param({}, hca(1, port(link_layer="", errors={"link_layer": "EIO"})), {}, id="a link layer"),
        pytest.param(
            {}, hca(1, port(hw_counters={}, errors={"rnr_nak_retry_err": "EIO"})), {}, id="a counter"
        ),
    ],
)
def test_what_could_not_be_read_and_is_not_there_any_more(
    facts: dict[str, Any], ill: HcaReading, well: dict[str, Any]
) -> None:
    """Unknown ends with the file, or with the question."""
    machine = Machine(**facts)
    machine.look(hca(0), ill, seconds=30)
    assert machine.last.unreadable is not None
    machine.facts = well or machine.facts
    machine.look(hca(0), hca(1, port(link_layer="", hw_counters={})), seconds=20)
    assert machine.last.unreadable is None


def test_a_finding_outlives_what_cannot_be_read() -> None:
    """A port that is down is not well because its state, or the list of ports, gives EIO."""
    machine = Machine()
    machine.look(*eight())
    machine.look(*eight(_3=hca(3, down())), seconds=90)
    machine.look(*eight(_3=hca(3, port(state="", errors={"state": "EIO"}))), seconds=30)
    assert machine.found() == [("PortDown", "mlx5_3/1")]
    machine.look(*eight(_3=msgspec.structs.replace(hca(3), ports=(), errors={"ports": "EIO"})), seconds=30)
    assert machine.found() == [("PortDown", "mlx5_3/1")]


@pytest.mark.parametrize(
    ("text", "mbps", "lanes", "lane"),
    [
        pytest.param("400 Gb/sec (4X NDR)", 400_000, 4, "NDR", id="NDR"),
        pytest.param("800 Gb/sec (4X XDR)", 800_000, 4, "XDR", id="XDR"),
        pytest.param("200 Gb/sec (2X NDR)", 200_000, 2, "NDR", id="a bond"),
        pytest.param("2.5 Gb/sec (1X SDR)", 2_500, 1, "SDR", id="the slowest"),
        pytest.param("10 Gb/sec (4X)", 10_000, 4, "SDR", id="an old kernel's SDR"),
        pytest.param("400 Gb/sec (8X HDR)\n", 400_000, 8, "HDR", id="EFA"),
    ],
)
def test_rates(text: str, mbps: int, lanes: int, lane: str) -> None:
    """The kernel's texts, as recorded."""
    assert rate_of(text) == Rate(mbps, lanes, lane)


@pytest.mark.parametrize(
    "text", ["", "fast", "400 Gb/sec", "0 Gb/sec (4X NDR)", "400 Gb/sec (0X NDR)", "-1 Gb/sec (4X NDR)"]
)
def test_what_is_no_rate(text: str) -> None:
    """Unknown, never zero."""
    assert rate_of(text) is None
