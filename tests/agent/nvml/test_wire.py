"""Tests of agent.nvml_wire: what the child says is read whole, and what is no message is garbage, whatever it is."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nvml_wire import CallBegins, Garbage, Lines, RoundSaid, read


def test_messages_are_told_apart() -> None:
    """The child's own form, with fields left out that gave no value."""
    call = read(b'{"k":"call","t":"round","call":"nvmlDeviceGetUUID","index":3,"pci":"0000:3b:00"}')
    assert call == CallBegins(t="round", call="nvmlDeviceGetUUID", index=3, pci="0000:3b:00")
    said = read(
        b'{"k":"round","n":1,"driver":"580","library":"13","count":1,'
        b'"gpus":[{"index":0,"errors":[{"call":"nvmlDeviceGetUUID","code":15,"name":"GpuIsLost"}]}]}'
    )
    assert isinstance(said, RoundSaid)
    assert said.gpus[0].errors[0].name == "GpuIsLost"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="an empty line"),
        pytest.param(b"Segmentation fault", id="words"),
        pytest.param(b'{"k":"else"}', id="a message that does not exist"),
        pytest.param(
            b'{"k":"round","n":1,"driver":"580","library":"13","count":-1}', id="a count below zero"
        ),
        pytest.param(
            b'{"k":"call","t":"round","call":"x","index":0,"pci":"3b"}', id="an address that is none"
        ),
        pytest.param(b'{"k":"call","t":"round","call":"' + b"x" * 500 + b'"}', id="a name without end"),
        pytest.param(b"[" * 100_000, id="brackets without end"),
        pytest.param(b'{"k":"broke","error":"\xff\xfe"}', id="bytes that are no text"),
    ],
)
def test_what_is_no_message_is_garbage(line: bytes) -> None:
    """It is refused with its beginning, and nothing else is raised."""
    with pytest.raises(Garbage):
        read(line)


@given(st.binary(max_size=300))
def test_nothing_that_a_pipe_can_hold_breaks_the_reader(line: bytes) -> None:
    """It is a message or garbage."""
    with contextlib.suppress(Garbage):
        read(line)


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=8), st.integers(1, 50))
def test_lines_are_whole_however_the_pipe_cuts_them(lines: list[bytes], size: int) -> None:
    """Reading in pieces of any size gives the lines as they were written."""
    written = b"".join(line + b"\n" for line in lines)
    reader, got = Lines(), list[bytes]()
    for start in range(0, len(written), size):
        got += reader.take(written[start : start + size])
    assert got == lines


def test_a_line_without_end_is_garbage() -> None:
    """No more is held than the limit."""
    reader = Lines(limit=10)
    with pytest.raises(Garbage, match="more than 10 bytes"):
        reader.take(b"x" * 11)
