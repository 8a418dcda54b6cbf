"""Records of the kernel log taken apart, and streams of them cut into records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.kmsg_record import RECORD_LIMIT, Lines, Record, parse_record


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            b"4,17,90210,-;NVRM: hello\n", Record(0, 4, 17, 90210, "NVRM: hello"), id="a record of the kernel"
        ),
        pytest.param(b"12,17,90210,-;hi\n", Record(1, 4, 17, 90210, "hi"), id="a record of userspace"),
        pytest.param(b"4,17,90210,c,caller=T12;hi", Record(0, 4, 17, 90210, "hi"), id="more fields, no end"),
        pytest.param(b"6,1,2,-;\n", Record(0, 6, 1, 2, ""), id="no text"),
        pytest.param(
            b"6,1,2,-;usb;1\n SUBSYSTEM=usb\n DEVICE=c189:1\n",
            Record(0, 6, 1, 2, "usb;1"),
            id="lines of KEY=value",
        ),
        pytest.param(
            b"4,1,2,-;a\\x0ab \\x5c c\\xc3\\xa9\n",
            Record(0, 4, 1, 2, "a\nb \\ c\u00e9"),
            id="escapes of the kernel",
        ),
        pytest.param(
            b"4,1,2,-;caf\xe9 \\xff\n", Record(0, 4, 1, 2, "caf\\xe9 \\xff"), id="bytes that are not UTF-8"
        ),
        pytest.param(b"4,1,2,-;\\x4 \\xzz\n", Record(0, 4, 1, 2, "\\x4 \\xzz"), id="escapes that are none"),
    ],
)
def test_a_record_is_taken_apart(raw: bytes, expected: Record) -> None:
    """Header, text and nothing else; the text as it was written."""
    assert parse_record(raw) == expected


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        pytest.param(b"NVRM: no header at all", "not a kernel-log record", id="no header"),
        pytest.param(b"4,17,902", "not a kernel-log record", id="cut off in the header"),
        pytest.param(b"4,seventeen,1,-;x", "not a kernel-log record", id="a sequence that is no number"),
        pytest.param(b"-4,17,1,-;x", "not a kernel-log record", id="a negative priority"),
        pytest.param(b"4,9999999999999999999,1,-;x", "out of range", id="a sequence beyond 64 bits"),
        pytest.param(b"", "not a kernel-log record", id="nothing"),
        pytest.param(b"\x00\xff\xfe", "not a kernel-log record", id="noise"),
    ],
)
def test_what_is_no_record_says_why(raw: bytes, told: str) -> None:
    """A damaged record is a reason, not an exception."""
    why = parse_record(raw)
    assert isinstance(why, str)
    assert told in why


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda noise: b"4,1,2,-;" + noise))
def test_no_bytes_make_it_raise(raw: bytes) -> None:
    """Anything may stand in a pipe."""
    record = parse_record(raw)
    assert isinstance(record, str) or len(record.text) <= 4 * RECORD_LIMIT


@given(st.lists(st.binary(min_size=1, max_size=40).filter(lambda b: b"\n" not in b), max_size=20), st.data())
def test_records_come_whole_however_they_are_cut(records: list[bytes], data: st.DataObject) -> None:
    """A stream cut at any places gives the same records."""
    stream = b"".join(record + b"\n" for record in records)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    lines = Lines()
    found: list[bytes] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += lines.feed(stream[begin:end])
    assert found == [record for record in records if record.strip() and not record.startswith(b" ")]
    assert not lines.has_partial()


def test_the_beginning_of_an_oversized_record_is_kept_and_the_next_one_is_whole() -> None:
    """The code of an XID stands at the beginning; the rest of the line is passed over."""
    lines = Lines()
    found = lines.feed(b"4,1,2,-;" + b"x" * RECORD_LIMIT)
    found += lines.feed(b"y" * 100_000)
    found += lines.feed(b"z\n4,2,2,-;next\n")
    assert [(line[:9], len(line)) for line in found] == [(b"4,1,2,-;x", RECORD_LIMIT), (b"4,2,2,-;n", 12)]
    assert lines.cut == 1


def test_what_there_is_of_a_record_can_be_taken() -> None:
    """A writer that died leaves a record without its end."""
    lines = Lines()
    assert lines.feed(b"4,1,2,-;half") == []
    assert lines.has_partial()
    assert lines.flush() == [b"4,1,2,-;half"]
    assert lines.flush() == []
