"""The lines of the storm are what a kernel writes, and turn nothing but by the one fault among them."""

import pytest

from agent.host.kmsg_record import Record, parse_record
from bench.checks_lines import fallen, record, text
from bench.faults import why_not_application
from checks.finding import Severity
from checks.xid_line import XidLine, parse
from checks.xid_reasons import XID_REASONS

GPUS = ("0000:18:00", "0000:2a:00")


@pytest.mark.parametrize("number", [pytest.param(n, id=f"line {n}") for n in (0, 1, 2, 4, 99_998, 99_999)])
def test_a_line_is_a_record_of_the_kernel(number: int) -> None:
    """With its own sequence number and the kernel's facility, its words whole."""
    read = parse_record(record(number, 17, text(number, GPUS)).rstrip(b"\n"))
    assert isinstance(read, Record)
    assert (read.sequence, read.facility, read.text) == (number, 0, text(number, GPUS))


def test_every_other_line_is_an_xid_of_a_program() -> None:
    """Of each GPU in turn, each of a code that turns no condition; the lines between are no XIDs."""
    codes, gpus = set(), set()
    for number in range(60):
        line = parse(text(number, GPUS))
        if number % 2:
            assert line is None
            continue
        assert isinstance(line, XidLine)
        codes.add(line.code)
        gpus.add(line.pci)
        assert why_not_application(line.code) is None
    assert (codes, gpus) == ({13, 31, 45}, set(GPUS))


def test_the_fault_is_one() -> None:
    """XID 79, of the GPU that is named."""
    line = parse(fallen(GPUS[1]))
    assert isinstance(line, XidLine)
    assert (line.code, line.pci) == (79, GPUS[1])
    assert XID_REASONS[79].severity is Severity.FAULT
