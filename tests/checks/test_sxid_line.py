"""Lines of the driver about NVSwitches, in the forms that drivers and cut logs give them."""

import pytest

from checks.xid_line import Line, SxidLine, UnreadableLine, parse


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 37 LTSSM Fault Up",
            SxidLine(
                code=20034,
                pci="0000:07:00",
                function=0,
                switch="nvidia-nvswitch2",
                fatal=True,
                link=37,
                text="Fatal, Link 37 LTSSM Fault Up",
            ),
            id="a fatal SXID",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress PRIV error",
            SxidLine(
                code=12028,
                pci="0000:07:00",
                function=0,
                switch="nvidia-nvswitch0",
                fatal=False,
                link=32,
                text="Non-fatal, Link 32 egress PRIV error",
            ),
            id="an SXID that is not fatal",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 26006, SOE HALTED",
            SxidLine(code=26006, pci="0000:07:00", function=0, switch="nvidia-nvswitch0", text="SOE HALTED"),
            id="an SXID that does not say",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20009, Non-fatal, Li",
            SxidLine(
                code=20009,
                pci="0000:07:00",
                function=0,
                switch="nvidia-nvswitch0",
                fatal=False,
                text="Non-fatal, Li",
            ),
            id="an SXID cut off before its link",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12033, Severity 1 Engine instance 00",
            SxidLine(
                code=12033,
                pci="0000:07:00",
                function=0,
                switch="nvidia-nvswitch0",
                text="Severity 1 Engine instance 00",
                continuation=True,
            ),
            id="an SXID's severity continues it",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20034, Data {0x1, 0x2}",
            SxidLine(
                code=20034,
                pci="0000:07:00",
                function=0,
                switch="nvidia-nvswitch0",
                text="Data {0x1, 0x2}",
                continuation=True,
            ),
            id="an SXID's data continues it",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 26006, SOE HALT data[0] = 0x               0",
            SxidLine(
                code=26006,
                pci="0000:c3:00",
                function=0,
                switch="nvidia-nvswitch0",
                text="SOE HALT data[0] = 0x               0",
            ),
            id="an SXID with words of its own",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 26003, Fatal, Failed to post. Data {0x1, 0x2}",
            SxidLine(
                code=26003,
                pci="0000:c3:00",
                function=0,
                switch="nvidia-nvswitch0",
                fatal=True,
                text="Fatal, Failed to post. Data {0x1, 0x2}",
            ),
            id="an SXID whose own line ends in data",
        ),
        pytest.param(
            "nvidia-nvswitch1: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link",
            SxidLine(
                code=20009,
                pci="0000:c3:00",
                function=0,
                switch="nvidia-nvswitch1",
                fatal=False,
                text="Non-fatal, Link",
            ),
            id="an SXID cut off behind the word link",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (?)",
            UnreadableLine(text="nvidia-nvswitch0: SXid (?)"),
            id="an SXID without address",
        ),
        pytest.param("nvidia-nvswitch0: open (major=510)", None, id="a switch that says hello"),
    ],
)
def test_parse(line: str, expected: Line | None) -> None:
    """Each form gives the same facts; what reports an error and cannot be placed is told as such."""
    assert parse(line) == expected
