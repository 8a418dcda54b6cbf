"""What the text of a line changes: 144 to 150 by their words, the peer's fault, RST and D-RST of 94 and 95, SXIDs."""

import pytest

from tests.checks.xid_scene import Machine

ZERO = "0x00000000 0x00000000 0x00000000 0x00000000"


@pytest.mark.parametrize(
    ("code", "text", "reason", "effect", "words"),
    [
        pytest.param(
            149,
            f"NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 {ZERO})",
            "Xid149NvLinkNetirFault",
            "no-multi-gpu",
            "look at the link's signal",
            id="a link down, its signal",
        ),
        pytest.param(
            149,
            f"NETIR_LINK_EVT  Fatal   XC0 i0 Link 14 (0x0215c5c6 0x00000000 {ZERO})",
            "XidNvLinkPeerAtFault",
            "none",
            "the source is the device at the other end of link 14",
            id="the peer is the source",
        ),
        pytest.param(
            149,
            f"NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 {ZERO})",
            "Xid149NvLinkNetirError",
            "none",
            "look at the link's signal and cables",
            id="a bit-error rate",
        ),
        pytest.param(
            144,
            "SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x00000000 0x00000000)",
            "Xid144NvLinkSawFault",
            "no-multi-gpu",
            "",
            id="144 that needs a reset",
        ),
        pytest.param(
            145,
            "RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x00000000 0x00000000)",
            "Xid145NvLinkRlwFault",
            "no-multi-gpu",
            "",
            id="145 that needs a reset",
        ),
        pytest.param(
            150,
            f"MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 {ZERO})",
            "Xid150NvLinkMseFault",
            "no-multi-gpu",
            "",
            id="150, the watchdog",
        ),
        pytest.param(
            147, "TREX Nonfatal XC0 i0 Link 00 (0x99)", "Xid147NvLinkTrexError", "none", "", id="not decoded"
        ),
        pytest.param(
            94,
            "Contained: SM (0x1). RST: Yes, D-RST: No",
            "Xid94ContainedResetNow",
            "part-out",
            "",
            id="94, a reset now",
        ),
        pytest.param(
            94,
            "Contained: SM (0x1). RST: No, D-RST: Yes",
            "Xid94ContainedEcc",
            "prefer-not",
            "",
            id="94, a reset once drained",
        ),
        pytest.param(
            94,
            "Contained: SM (0x1). RST: No, D-RST: No",
            "Xid94ContainedEcc",
            "prefer-not",
            "",
            id="94, no reset named",
        ),
        pytest.param(
            95, "Uncontained: LTC. RST: No, D-RST: No", "Xid95UncontainedEcc", "part-out", "", id="95"
        ),
    ],
)
def test_a_line_is_read(code: int, text: str, reason: str, effect: str, words: str) -> None:
    """Its reason, what it takes away, and where to look; a clearing or a new boot ends it as any other."""
    machine = Machine().xid(1, code, text)
    (found,) = machine.judgement.findings
    assert (found.reason, found.effect) == (reason, effect)
    if words:
        assert found.detail.endswith(f"; {words}")


def test_the_peers_fault_is_never_this_gpus() -> None:
    """Also where it repeats all day; only the driver itself may ask for a reset of this GPU."""
    text = f"NETIR_LINK_EVT Fatal XC0 i0 Link 14 (0x0215c5c6 0x00000000 {ZERO})"
    machine = Machine()
    for second in range(40):
        machine.xid(second * 60, 149, text)
    assert machine.faults == []
    assert machine.wants(2401, "reset").faults == ["RecoveryGpuReset"]
    assert machine.the("RecoveryGpuReset").detail == "XID 154"


def test_mig_instances_are_named() -> None:
    """In the finding's words; the part is the GPU."""
    machine = Machine().say(
        1, "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 95, pid=1, name=x, Uncontained"
    )
    assert machine.the("Xid95UncontainedEcc").detail == "MIG GI 5 CI 1: Uncontained"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("12020, Fatal, Link 3", "SxidSwitchFatal", id="the host"),
        pytest.param("19084, Non-fatal, Link 3", "SxidSwitchFatal", id="the fabric, whatever the word"),
        pytest.param("22012, Fatal, Link 3", "SxidLinkFatal", id="a port"),
        pytest.param("22012, Non-fatal, Link 3", "SxidNonFatal", id="a port, not fatal this time"),
        pytest.param("12028, Fatal, Link 3", "SxidNonFatal", id="never fatal"),
        pytest.param("26006, SOE HALTED", "SxidNonFatal", id="nobody rates it"),
    ],
)
def test_an_sxid_by_how_far_it_reaches(text: str, reason: str) -> None:
    """NVIDIA's lists first, then the line's own word."""
    (found,) = Machine().say(1, f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {text}").judgement.findings
    assert found.reason == reason


def test_more_data_of_an_sxid_is_no_event() -> None:
    """Severity and Data lines belong to the one before them."""
    switch = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 22012, "
    machine = Machine().say(1, switch + "Fatal, Link 3").say(2, switch + "Severity 1 Engine instance 3")
    assert machine.say(3, switch + "Data {0x1}").the("SxidLinkFatal").count == 1
