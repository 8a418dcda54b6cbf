"""Lines of one incident are one finding: 48 with 63, 64, 171 and 172, and a switch's lost link beside 74 or 79."""

import pytest

from checks.finding import PartKind
from tests.checks.xid_scene import PCI, PEER, Machine

LINK_LOST = "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


@pytest.mark.parametrize(
    ("codes", "stands", "words"),
    [
        pytest.param([48], "Xid48DoubleBitEcc", "x", id="48 alone"),
        pytest.param(
            [48, 63], "Xid48DoubleBitEcc", "x; with XID 63: a row remap is recorded", id="48, then 63"
        ),
        pytest.param(
            [63, 48], "Xid48DoubleBitEcc", "x; with XID 63: a row remap is recorded", id="63, then 48"
        ),
        pytest.param(
            [48, 64], "Xid64RowRemapFailed", "x; with XID 48, the double-bit error", id="48, then 64"
        ),
        pytest.param(
            [64, 48], "Xid64RowRemapFailed", "x; with XID 48, the double-bit error", id="64, then 48"
        ),
        pytest.param([48, 171], "Xid48DoubleBitEcc", "x; with XID 171: in DRAM", id="48, then 171"),
        pytest.param([172, 48], "Xid48DoubleBitEcc", "x; with XID 172: in SRAM", id="172, then 48"),
        pytest.param(
            [171, 48, 64],
            "Xid64RowRemapFailed",
            "x; with XID 48, the double-bit error",
            id="171, 48, then 64",
        ),
    ],
)
def test_one_incident(codes: list[int], stands: str, words: str) -> None:
    """One finding on the GPU, with all lines and the words of each; its action is a reset, at once."""
    machine = Machine()
    for number, code in enumerate(codes):
        machine.xid(number, code)
    (found,) = machine.judgement.findings
    assert (found.reason, found.effect, found.urgency, found.action) == (
        stands,
        "part-out",
        "now",
        "RESET_GPU",
    )
    assert found.detail == words
    assert found.count == len(codes)
    assert all(any(f": {code}," in line for line in found.evidence) for code in codes)


@pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param(48, 63, id="a remap much later"), pytest.param(63, 48, id="a double-bit error much later")],
)
def test_what_is_far_apart_is_two_faults(first: int, second: int) -> None:
    """Half a minute and a second."""
    machine = Machine().xid(1, first).xid(32, second)
    assert len(machine.faults) == 2
    assert len(Machine().xid(1, first).xid(31, second).faults) == 1


def test_two_gpus_are_two_incidents() -> None:
    """A neighbour's remap explains nothing."""
    assert len(Machine().xid(1, 48).xid(2, 63, pci=PEER).faults) == 2


def test_an_older_remap_is_not_drawn_in() -> None:
    """It stands for itself, also where another one comes with the double-bit error."""
    machine = Machine().xid(1, 63).xid(500, 48).xid(501, 63)
    assert sorted(machine.faults) == ["Xid48DoubleBitEcc", "Xid63RowRemapRecorded"]
    assert machine.the("Xid48DoubleBitEcc").count == 2
    assert machine.the("Xid63RowRemapRecorded").count == 1


def test_a_failed_remap_stays_when_the_driver_says_that_all_is_well() -> None:
    """The double-bit error ends with the reset, the board's want of rows does not."""
    machine = Machine().xid(1, 48).xid(2, 64).wants(3, "reset").wants(60, "none", "reset")
    assert machine.faults == ["Xid64RowRemapFailed"]
    assert Machine().xid(1, 48).xid(2, 63).wants(3, "reset").wants(60, "none", "reset").faults == []


@pytest.mark.parametrize("code", [74, 79])
@pytest.mark.parametrize("switch_first", [True, False])
def test_a_lost_link_and_its_gpu_are_one_storm(code: int, *, switch_first: bool) -> None:
    """Whichever end of the link speaks first; the switch stands in the finding of the GPU."""
    machine = Machine()
    if switch_first:
        machine.say(1, LINK_LOST).xid(2, code)
    else:
        machine.xid(1, code).say(2, LINK_LOST)
    (found,) = machine.judgement.findings
    assert found.part.pci == PCI
    assert found.detail == "x; with SXID 20034 of nvswitch nvidia-nvswitch1 at 0000:07:00"
    assert any("20034" in line for line in found.evidence)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(60, LINK_LOST, id="much later"),
        pytest.param(2, LINK_LOST.replace("20034", "19048"), id="another code"),
    ],
)
def test_what_a_switch_says_for_itself_stands(seconds: float, text: str) -> None:
    """Only this code is known to come with them."""
    machine = Machine().xid(1, 74).say(seconds, text)
    assert {f.part.kind for f in machine.judgement.findings} == {PartKind.GPU, PartKind.NVSWITCH}


def test_a_lost_link_alone_stands() -> None:
    """It is a fault of its own."""
    assert Machine().say(1, LINK_LOST).faults == ["SxidLinkFatal"]
