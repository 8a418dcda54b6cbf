"""Messages of the driver that span several records, and anything at all that the log may hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.xid_line import (
    JOIN_WITHIN,
    PROCESS_LIMIT,
    TEXT_LIMIT,
    IdentityLine,
    Line,
    OffBusLine,
    Pending,
    XidLine,
    read,
)
from tests.checks.kernel import UUID


def _read_all(texts: list[str], step: int = 1) -> list[Line]:
    pending: Pending | None = None
    lines: list[Line] = []
    for number, text in enumerate(texts):
        line, pending = read(text, number * step, pending)
        lines += [line] if line else []
    return lines


PROBE = [
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
]


@pytest.mark.parametrize(
    ("texts", "step", "expected"),
    [
        pytest.param(PROBE, 1, [("0000:b3:00", 79)], id="three records"),
        pytest.param(["\n".join(PROBE)], 1, [("0000:b3:00", 79)], id="one record of three lines"),
        pytest.param(
            [PROBE[0], "usb 1-1: new device", PROBE[1], "eth0: up", PROBE[2]],
            1,
            [("0000:b3:00", 79)],
            id="others in between",
        ),
        pytest.param(
            [
                "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:2330) installed in this",
                "NVRM: system has fallen off the bus and is not responding to commands.",
            ],
            1,
            [("0000:b3:00", 79)],
            id="the two lines of an older driver",
        ),
        pytest.param(PROBE, JOIN_WITHIN, [("", 0)], id="too far apart to belong together"),
        pytest.param(PROBE[2:], 1, [("", 0)], id="the line that named the GPU was lost"),
        pytest.param(
            ["NVRM: The NVIDIA GPU no-address", *PROBE[1:]], 1, [("", 0)], id="an address that is none"
        ),
        pytest.param(
            [PROBE[0], "NVRM: installed in this system is not supported by the driver."],
            1,
            [],
            id="another probe message",
        ),
    ],
)
def test_off_the_bus_when_the_driver_loads(
    texts: list[str], step: int, expected: list[tuple[str, int]]
) -> None:
    """A GPU that does not answer the probe has no XID; its message has several lines, in one record or in several."""
    found = [(line.pci, 79) if isinstance(line, OffBusLine) else ("", 0) for line in _read_all(texts, step)]
    assert found == expected


def test_a_board_serial_belongs_to_the_preamble_before_it() -> None:
    """UUID and serial of a GPU come as two records, and other records may lie between."""
    lines = _read_all(
        [f"NVRM: GPU at PCI:0000:4c:00: {UUID}", "eth0: up", "NVRM: GPU Board Serial Number: 0322518027985"]
    )
    assert lines == [
        IdentityLine(pci="0000:4c:00", uuid=UUID),
        IdentityLine(pci="0000:4c:00", serial="0322518027985"),
    ]


def test_a_board_serial_alone_belongs_to_nobody() -> None:
    """Without the preamble it is not known whose serial it is."""
    assert _read_all(["NVRM: GPU Board Serial Number: 0322518027985"]) == []


WORDS = [
    *("NVRM: ", "Xid (", "PCI:", "0000:4c:00", "GPU-I:03", "): ", "79", ", ", "pid=", "'<unknown>'", "name="),
    *(
        "nvidia-nvswitch0: ",
        "SXid (",
        "Fatal",
        "Link 3",
        "fallen off the bus",
        "The NVIDIA GPU ",
        "\n",
        "\x00",
    ),
]


@given(
    st.lists(
        st.builds(
            "".join,
            st.lists(st.sampled_from(WORDS) | st.text(max_size=8)),
        )
    )
)
def test_no_line_makes_the_parser_raise(texts: list[str]) -> None:
    """Built from the words of real lines and noise; what is shown stays bounded."""
    for line in _read_all(texts):
        if isinstance(line, XidLine):
            assert len(line.process) <= PROCESS_LIMIT
        if not isinstance(line, IdentityLine):
            assert len(line.text) <= TEXT_LIMIT
