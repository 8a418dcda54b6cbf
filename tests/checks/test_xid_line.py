"""Lines of the driver, in the forms that drivers, guests and tools give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.xid_line import (
    IdentityLine,
    Line,
    OffBusLine,
    Pending,
    UnreadableLine,
    XidLine,
    normal_pci,
    parse,
    printable,
    read,
)

UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "NVRM: Xid (PCI:0000:4C:00): 48, pid=812, name=trainer, DBE on bank 3",
            XidLine(code=48, pci="0000:4c:00", pid=812, process="trainer", text="DBE on bank 3"),
            id="the full form, address in capitals",
        ),
        pytest.param(
            "NVRM: Xid (0000:4c:00): 62, 0a0b0c0d",
            XidLine(code=62, pci="0000:4c:00", text="0a0b0c0d"),
            id="an old driver writes no PCI:",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:00:06.0): 79, GPU has fallen off the bus.",
            XidLine(code=79, pci="0000:00:06", text="GPU has fallen off the bus."),
            id="a guest writes the function too",
        ),
        pytest.param("NVRM: Xid (PCI:4c:00): 62", XidLine(code=62, pci="0000:4c:00"), id="no domain"),
        pytest.param(
            "NVRM: Xid (PCI:00010:4c:00): 62", XidLine(code=62, pci="0010:4c:00"), id="a long domain"
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s",
            XidLine(code=119, pci="0000:4c:00", text="Timeout after 6s"),
            id="pid and name unknown",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 94, pid=77, Contained: CE User Channel (0x9). RST: No, D-RST: Yes",
            XidLine(
                code=94,
                pci="0000:4c:00",
                pid=77,
                text="Contained: CE User Channel (0x9). RST: No, D-RST: Yes",
                reset_required=False,
                reset_deferred=True,
            ),
            id="a pid without a name, and what the driver wants",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 95, pid=77  , name=a.out, Uncontained. RST: Yes, D-RST: No",
            XidLine(
                code=95,
                pci="0000:4c:00",
                pid=77,
                process="a.out",
                text="Uncontained. RST: Yes, D-RST: No",
                reset_required=True,
                reset_deferred=False,
            ),
            id="blanks behind the pid",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 46", XidLine(code=46, pci="0000:4c:00"), id="nothing behind the code"
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 154 (",
            XidLine(code=154, pci="0000:4c:00", text="("),
            id="a cut tail",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 31, pid=9, name=pyth",
            XidLine(code=31, pci="0000:4c:00", pid=9, process="pyth"),
            id="cut off inside the name",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 31, pid=9, name=ray::[x]: ): 79, Ch 00000008",
            XidLine(code=31, pci="0000:4c:00", pid=9, process="ray::[x]: ): 79", text="Ch 00000008"),
            id="a process name that looks like another code",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 31, pid=9, name=a\x1b[2J\u202e, Ch 8",
            XidLine(code=31, pci="0000:4c:00", pid=9, process="a\\x1b[2J\\u202e", text="Ch 8"),
            id="a process name with control characters",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00 GPU-I:03 GPU-CI:01): 13, pid=9, name=x, ESR",
            XidLine(
                code=13, pci="0000:4c:00", gpu_instance=3, compute_instance=1, pid=9, process="x", text="ESR"
            ),
            id="MIG: GPU and compute instance",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00 GPU-I:11): 45, Ch 1",
            XidLine(code=45, pci="0000:4c:00", gpu_instance=11, text="Ch 1"),
            id="MIG: GPU instance alone",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 45, pid=9, name=x, Ch 00000001 caused by previous Xid 145",
            XidLine(
                code=45,
                pci="0000:4c:00",
                pid=9,
                process="x",
                text="Ch 00000001 caused by previous Xid 145",
                caused_by=145,
            ),
            id="the XID that caused it",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 (0x004505c6 0x0",
            XidLine(
                code=149,
                pci="0009:01:00",
                link=7,
                text="NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 (0x004505c6 0x0",
            ),
            id="NVLink 5, the closing bracket cut off",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0009:01:00): 144, SAW_MVB Fatal XC0 i0 Link -1 (0x1 0x2)",
            XidLine(code=144, pci="0009:01:00", link=-1, text="SAW_MVB Fatal XC0 i0 Link -1 (0x1 0x2)"),
            id="NVLink 5 without a link",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 74, NVLink: fatal error detected on link 5(0x0, 0x10000)",
            XidLine(
                code=74, pci="0000:4c:00", link=5, text="NVLink: fatal error detected on link 5(0x0, 0x10000)"
            ),
            id="NVLink 4 names its link too",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 999, what",
            XidLine(code=999, pci="0000:4c:00", text="what"),
            id="a new code",
        ),
        pytest.param(
            "NVRM: GPU 0000:4c:00.0: GPU has fallen off the bus.",
            OffBusLine(pci="0000:4c:00", text="NVRM: GPU 0000:4c:00.0: GPU has fallen off the bus."),
            id="off the bus without an XID",
        ),
        pytest.param(
            "NVRM: GPU 4c:00.0: GPU has fallen off the bus.",
            OffBusLine(pci="0000:4c:00", text="NVRM: GPU 4c:00.0: GPU has fallen off the bus."),
            id="off the bus without a domain",
        ),
        pytest.param(
            f"NVRM: GPU at PCI:0000:4c:00: {UUID}",
            IdentityLine(pci="0000:4c:00", uuid=UUID),
            id="the preamble",
        ),
        pytest.param(
            "NVRM: GPU 0000:4c:00.0: GPU serial number is 1320021.",
            IdentityLine(pci="0000:4c:00", serial="1320021"),
            id="the serial behind an off-the-bus line",
        ),
        pytest.param(
            "NVRM: Xid (0003:00): 13, 0003 00000000",
            XidLine(code=13, pci="0000:03:00", text="0003 00000000"),
            id="the oldest form: a bus of four digits, no domain",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00 GPU-I:07): 94, pid=9, Contained: SM (0x1). RST: No, D-RST: Yes",
            XidLine(
                code=94,
                pci="0000:4c:00",
                gpu_instance=7,
                pid=9,
                text="Contained: SM (0x1). RST: No, D-RST: Yes",
                reset_required=False,
                reset_deferred=True,
            ),
            id="MIG, a pid without a name, and what the driver wants",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00 GPU-I:00 GPU-CI:00): 79",
            XidLine(code=79, pci="0000:4c:00", gpu_instance=0, compute_instance=0),
            id="MIG, no comma behind the code",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00.0 GPU-I:01): 31, Ch 1",
            XidLine(code=31, pci="0000:4c:00", gpu_instance=1, text="Ch 1"),
            id="MIG behind a function",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0018:01:00): 62",
            XidLine(code=62, pci="0018:01:00"),
            id="a domain of an Arm machine, no comma",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 94, pid=9, name=a, RST: Yes, Contained. RST: No, D-RST: No",
            XidLine(
                code=94,
                pci="0000:4c:00",
                pid=9,
                process="a",
                text="RST: Yes, Contained. RST: No, D-RST: No",
                reset_required=False,
                reset_deferred=False,
            ),
            id="a process that names itself like a flag",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 45, pid='<unknown>', name=<unknown>,  caused by previous Xid 94",
            XidLine(code=45, pci="0000:4c:00", text="caused by previous Xid 94", caused_by=94),
            id="nothing but a cause",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 79, ", XidLine(code=79, pci="0000:4c:00"), id="a comma and no text"
        ),
        pytest.param(
            "NVRM: GPU at 0000:4c:00.0 has fallen off the bus.",
            OffBusLine(pci="0000:4c:00", text="NVRM: GPU at 0000:4c:00.0 has fallen off the bus."),
            id="off the bus, in older words",
        ),
        pytest.param("NVRM: Xid (...)", UnreadableLine(text="NVRM: Xid (...)"), id="no address"),
        pytest.param(
            "NVRM: Xid (bad): 79", UnreadableLine(text="NVRM: Xid (bad): 79"), id="an address that is none"
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c",
            UnreadableLine(text="NVRM: Xid (PCI:0000:4c"),
            id="cut off in the address",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:4c:00): 1234567",
            UnreadableLine(text="NVRM: Xid (PCI:0000:4c:00): 1234567"),
            id="a code too long",
        ),
        pytest.param("NVRM: loading NVIDIA UNIX Open Kernel Module", None, id="the driver's greeting"),
        pytest.param("NVRM: GPU4 GSP RPC buffer contains function 103", None, id="detail behind a 119"),
        pytest.param("NVRM: GPU Board Serial Number: [N/A]", None, id="a board without a serial"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_parse(line: str, expected: Line | None) -> None:
    """Each form gives the same facts; what reports an error and cannot be placed is told as such."""
    assert parse(line) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x[1]: segfault NVRM: Xid (PCI:0000:4c:00): 79, gone", id="behind a process name"),
        pytest.param(" NVRM: Xid (PCI:0000:4c:00): 79, gone", id="behind a blank"),
        pytest.param(
            "tmpfs: Unknown parameter 'x\nNVRM: Xid (PCI:0000:4c:00): 79, gone'", id="on a second line"
        ),
        pytest.param(
            "NVRM: loading\nNVRM: Xid (PCI:0000:4c:00): 79, gone", id="on a second line of the driver's own"
        ),
    ],
)
def test_words_that_a_tenant_can_place_do_not_count(text: str) -> None:
    """Other kernel messages carry text that a container chose; the driver's words count only at the very start."""
    assert read(text, 5, None) == (None, None)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("0000:3b:00", "0000:3b:00", id="as it should be"),
        pytest.param("00000000:3B:00.0", "0000:3b:00", id="eight digits, capitals, function"),
        pytest.param("3b:0.0", "0000:3b:00", id="no domain, one digit"),
        pytest.param("10000:01:00", "10000:01:00", id="a domain above four digits stays whole"),
    ],
)
def test_addresses_are_normal(address: str, expected: str) -> None:
    """One GPU has one address, however it was written."""
    assert normal_pci(address) == expected


@given(st.text(), st.integers(min_value=1, max_value=300))
def test_printable_is_bounded_and_printable(text: str, limit: int) -> None:
    """Whatever stands in the log, what we show is one short line of printable characters."""
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable()


@given(
    st.text(), st.integers(0, 10), st.none() | st.builds(Pending, pci=st.text(), sequence=st.integers(0, 10))
)
def test_no_record_raises(tail: str, sequence: int, pending: Pending | None) -> None:
    """Whatever stands behind the driver's words."""
    for begin in (
        "",
        "NVRM: ",
        "NVRM: Xid (PCI:0000:4c:00): ",
        "NVRM: The NVIDIA GPU ",
        "nvidia-nvswitch0: SXid ",
    ):
        read(begin + tail, sequence, pending)


def test_only_a_probe_goes_on_to_say_that_a_gpu_fell() -> None:
    """A GPU that was named for its serial, or one before a probe that cannot be read, did not fall."""
    fell = "NVRM: fallen off the bus and is not responding to commands."
    _, named = read(f"NVRM: GPU at PCI:0000:4c:00: {UUID}", 1, None)
    assert isinstance(read(fell, 2, named)[0], UnreadableLine)
    _, other = read("NVRM: The NVIDIA GPU no-address.0", 2, named)
    assert other is None
    _, probed = read("NVRM: The NVIDIA GPU 0000:5d:00.0", 3, named)
    assert read("NVRM: GPU Board Serial Number: 1652823055647", 4, probed) == (None, probed)
    assert read(fell, 5, probed)[0] == OffBusLine(pci="0000:5d:00", text=fell)
