"""What one line asks for: which of its words counts, and the gates of the catalogue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.xid_action import UNKNOWN, UNKNOWN_CODE, Decoded, Source, action_of, family_of, gate_of
from checks.xid_catalog import BUCKETS, catalog
from checks.xid_line import OffBusLine, XidLine, parse

LINK_DOWN = "NETIR_LINK_EVT Fatal XC0 i0 Link 08"
FLAGS = "Contained: SM (0x1). RST: {}, D-RST: {}"


def asked(code: int, text: str = "") -> Decoded:
    line = parse(f"NVRM: Xid (PCI:0000:3b:00): {code}, {text}")
    assert isinstance(line, XidLine)
    return action_of(line, catalog())


@pytest.mark.parametrize(
    ("code", "text", "action", "source"),
    [
        pytest.param(13, "Graphics Exception", "RESTART_APP", Source.CATALOGUE, id="the bucket"),
        pytest.param(
            45, "Ch 1 caused by previous Xid 149", "WORKFLOW_XID_45", Source.CATALOGUE, id="a follower"
        ),
        pytest.param(999, "new", UNKNOWN_CODE, Source.NOWHERE, id="a code that the catalogue lacks"),
        pytest.param(94, FLAGS.format("No", "No"), "RESTART_APP", Source.CATALOGUE, id="contained"),
        pytest.param(
            94, FLAGS.format("Yes", "No"), "RESET_GPU", Source.RESET_FLAG, id="contained, wants a reset"
        ),
        pytest.param(
            94, FLAGS.format("No", "Yes"), "RESTART_APP", Source.CATALOGUE, id="contained, a reset later"
        ),
        pytest.param(
            95, FLAGS.format("No", "No"), "RESET_GPU", Source.CATALOGUE, id="uncontained whatever the flag"
        ),
        pytest.param(95, FLAGS.format("Yes", "No"), "RESET_GPU", Source.RESET_FLAG, id="uncontained"),
        pytest.param(13, "RST: Yes", "RESTART_APP", Source.CATALOGUE, id="the flag in another code"),
        pytest.param(
            154,
            "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            "RESTART_BM",
            Source.RECOVERY,
            id="the driver's own wish",
        ),
        pytest.param(154, "(", UNKNOWN, Source.RECOVERY, id="a wish cut off"),
        pytest.param(149, f"{LINK_DOWN} (0x004505c6 0x00000000)", "RESET_GPU", Source.NVLINK5, id="a rule"),
        pytest.param(149, f"{LINK_DOWN} (0x004505c6 0x00000001)", UNKNOWN, Source.NOWHERE, id="no rule"),
        pytest.param(145, "", UNKNOWN, Source.NOWHERE, id="nothing to decode"),
    ],
)
def test_the_most_specific_word_counts(code: int, text: str, action: str, source: Source) -> None:
    """From the line alone."""
    decoded = asked(code, text)
    assert (decoded.action, decoded.source) == (action, source)


def test_a_gpu_off_the_bus_is_a_79() -> None:
    """However the driver says it."""
    line = OffBusLine(pci="0000:3b:00", text="NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    assert (action_of(line, catalog()).code, action_of(line, catalog()).action) == (79, "RESTART_BM")


@pytest.mark.parametrize(
    ("subcode", "flags"),
    [
        pytest.param(0, (False, True, False), id="worth reporting alone"),
        pytest.param(1, (False, False, True), id="worth reporting more than once a day"),
        pytest.param(4, (False, False, False), id="its own fault"),
        pytest.param(33, (True, False, False), id="the peer's fault"),
    ],
)
def test_who_is_to_blame_and_when_to_report(subcode: int, flags: tuple[bool, bool, bool]) -> None:
    """As the rule says."""
    decoded = asked(149, f"{LINK_DOWN} (0x{0x000505C6 | subcode << 20:08x} 0x00000000)")
    assert (decoded.peer, decoded.report_alone, decoded.report_daily) == flags


def test_a_deferred_reset_and_an_awaited_wish_are_told() -> None:
    """The judge needs them, since both are about time."""
    assert asked(94, FLAGS.format("No", "Yes")).reset_deferred
    assert asked(145, "RLW_REMAP Nonfatal XC1 i0 Link 01 (0x00002082 0x00000001)").awaits_recovery
    assert not asked(94, FLAGS.format("No", "No")).awaits_recovery


def test_a_process_name_sets_no_flag() -> None:
    """Even one with a comma in it: the driver's own words stand behind it."""
    line = parse(f"NVRM: Xid (PCI:0000:3b:00): 94, pid=9, name=a, RST: Yes, {FLAGS.format('No', 'No')}")
    assert isinstance(line, XidLine)
    assert action_of(line, catalog()).action == "RESTART_APP"


@pytest.mark.parametrize(
    ("product", "family"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H100"),
        ("NVIDIA GH200 480GB", "H100"),
        ("NVIDIA B200", "B100"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GB300", "GB200"),
        ("NVIDIA L40S", None),
        ("NVIDIA A10", None),
        ("", None),
    ],
)
def test_products_belong_to_families(product: str, family: str | None) -> None:
    """The catalogue names one product of each."""
    assert family_of(product) == family


@pytest.mark.parametrize(
    ("code", "product", "driver", "expected"),
    [
        pytest.param(144, "NVIDIA B200", "570.86.15", (True, True), id="both known and given"),
        pytest.param(144, "NVIDIA H100 80GB HBM3", "550.54.15", (False, False), id="neither given"),
        pytest.param(144, "", "", (None, None), id="nothing known"),
        pytest.param(144, "NVIDIA L40S", "next", (None, None), id="nothing that the catalogue knows"),
        pytest.param(143, "NVIDIA H200", "570.86.15", (True, False), id="a later driver is needed"),
        pytest.param(45, "NVIDIA B200", "580.1", (True, None), id="a code without linkage"),
        pytest.param(999, "NVIDIA B200", "580.1", (None, None), id="a code without row"),
    ],
)
def test_gates(code: int, product: str, driver: str, expected: tuple[bool | None, bool | None]) -> None:
    """Missing evidence leaves them open, and no gate changes the word."""
    decoded = action_of(XidLine(code=code, pci="0000:3b:00"), catalog(), product=product, driver=driver)
    assert (decoded.on_product, decoded.recovery_follows) == expected
    assert decoded.action == action_of(XidLine(code=code, pci="0000:3b:00"), catalog()).action


def test_every_note_that_speaks_of_a_gate_has_one() -> None:
    """So that no wording of the catalogue is passed over."""
    for xid in catalog().values():
        gate = gate_of(xid.note)
        assert bool(gate.products) == ("seen on" in xid.note), xid.note
        assert (gate.driver is not None) == ("XID 154 follows" in xid.note), xid.note


@given(st.integers(0, 99_999), st.text(), st.text(), st.text())
def test_no_line_raises_and_none_gets_another_word(code: int, text: str, product: str, driver: str) -> None:
    """Every word is the catalogue's, a rule's, a recovery action or one of the two that stand for none."""
    words = {*BUCKETS, UNKNOWN, UNKNOWN_CODE, "NONE", "DRAIN_P2P", "DRAIN_AND_RESET", "XID_154_EVAL"}
    line = XidLine(code=code, pci="0000:3b:00", text=text)
    assert action_of(line, catalog(), product=product, driver=driver).action in words
