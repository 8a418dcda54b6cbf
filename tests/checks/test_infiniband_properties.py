"""Whatever sysfs says: nothing raises, nothing odd is taken for well, and texts are read or not, never guessed."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.condition import Status, fold
from checks.finding import EFFECT_RANK
from checks.infiniband import CHECK
from checks.infiniband_rate import LANE_MBPS, Rate, physical_state_of, rate_of, state_of
from checks.infiniband_reading import HcaReading, Netdev, PciHca, PortReading
from tests.checks.infiniband import EFA_ZEROS, HW_ZEROS, NDR, ZEROS, Machine, hca, port

TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "4: ACTIVE",
            "1: DOWN",
            "2: INIT",
            "5: LinkUp",
            "2: Polling",
            "9: X",
            NDR,
            "10 Gb/sec (4X SDR)",
            "Ethernet",
        ]
    ),
    st.text(max_size=12),
)
COUNTS = st.dictionaries(
    st.sampled_from([*ZEROS, *HW_ZEROS, *EFA_ZEROS, "odd"]), st.integers(-1, 2**64), max_size=6
)
WHYS = st.dictionaries(
    st.sampled_from([*ZEROS, *HW_ZEROS, "state", "rate", "link_layer", "ports"]), st.just("EIO"), max_size=3
)
PORTS = st.builds(
    PortReading,
    number=st.integers(1, 2),
    state=TEXTS,
    phys_state=TEXTS,
    rate=TEXTS,
    link_layer=TEXTS,
    counters=COUNTS,
    hw_counters=COUNTS,
    not_shown=WHYS,
    errors=WHYS,
)
NETDEVS = st.builds(
    Netdev,
    name=st.sampled_from(["eth0", "eth1"]),
    carrier_changes=st.none() | st.integers(-5, 2**64),
    default_route=st.booleans(),
    mbps=st.none() | st.integers(-1, 10**7),
)
DEVICES = st.builds(
    HcaReading,
    name=st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_2", ""]),
    pci=st.sampled_from(["", "0000:10:00.0", "0000:11:00.0"]),
    vendor=st.sampled_from([None, 0x15B3, 0x1D0F]),
    board_id=st.sampled_from(["", "A", "B"]),
    numa=st.none() | st.integers(-1, 2),
    virtual=st.booleans(),
    subfunction=st.booleans(),
    role=st.sampled_from(["", "compute", "storage", "management", "nonsense", "nothing"]),
    left_out=st.sampled_from(["", "it is a virtual function"]),
    netdevs=st.lists(NETDEVS, max_size=2).map(tuple),
    legs=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans()), max_size=2).map(tuple),
    ports=st.lists(PORTS, max_size=2).map(tuple),
    errors=WHYS,
)
LOOKS = st.lists(st.lists(DEVICES, max_size=3), min_size=1, max_size=4)
EXPECTED = st.fixed_dictionaries(
    {},
    optional={
        "expected_ports": st.integers(-1, 5),
        "expected_rate_mbps": st.integers(-1, 800_000),
        "peer_ports": st.integers(0, 5),
        "peers_counted": st.integers(0, 5),
    },
)


@settings(max_examples=150, deadline=None)
@given(looks=LOOKS, facts=EXPECTED, on_bus=st.booleans(), exclusive=st.booleans())
def test_no_reading_raises(
    looks: list[list[HcaReading]], facts: dict[str, int], on_bus: bool, exclusive: bool
) -> None:
    """Not out of the check, nor out of its memory; every message fits into a condition and every reason is a known one."""
    machine = Machine(**facts)
    machine.exclusive = exclusive
    machine.pci_hcas = (PciHca(pci="0000:11:00.0", infiniband=True),) if on_bus else ()
    known = {reason.name for reason in CHECK.reasons}
    for devices in looks:
        last = machine.look(*devices)
        assert {finding.reason for finding in last.findings} <= known
        assert all(finding.effect in EFFECT_RANK for finding in last.findings)
        assert len(last.not_evaluated) <= 64


@settings(max_examples=60, deadline=None)
@given(missing=st.sampled_from(["state", "phys_state"]), text=st.text(max_size=8), seconds=st.integers(3, 12))
def test_no_unknown_state_is_well(missing: str, text: str, seconds: int) -> None:
    """A port whose state is no text that is known is never part of a False condition."""
    if missing == "phys_state" and not text.strip():
        return  # some drivers have no such file: the state alone decides
    if state_of(text) is not None or physical_state_of(text) is not None:
        return
    machine = Machine(expected_ports=1)
    machine.look(hca(0))
    odd = msgspec.structs.replace(port(), **{missing: text})
    for _ in range(seconds):
        last = machine.look(hca(0, odd))
    condition = fold(
        CHECK.condition,
        findings=last.findings,
        unreadable=last.unreadable,
        healthy=CHECK.healthy,
        previous=None,
        now=machine.now,
    )
    assert condition.status is not Status.FALSE


@given(st.text(max_size=40))
def test_no_text_breaks_the_reader_of_rates(text: str) -> None:
    """Any text is a rate or none."""
    assert rate_of(text) is None or text.strip()
    state_of(text)
    physical_state_of(text)


@given(
    lane=st.sampled_from(sorted(LANE_MBPS)),
    lanes=st.sampled_from([1, 2, 4, 8, 12]),
    end=st.sampled_from(["", "\n"]),
)
def test_what_the_kernel_prints_is_read(lane: str, lanes: int, end: str) -> None:
    """Every speed and width that there is."""
    mbps = LANE_MBPS[lane] * lanes
    whole, rest = divmod(mbps, 1000)
    text = f"{whole}{'.5' if rest else ''} Gb/sec ({lanes}X {lane}){end}"
    assert rate_of(text) == Rate(mbps, lanes, lane)
