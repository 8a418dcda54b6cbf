"""Saved kernel logs in every form that tools give them: one line each, and nothing that a file holds stops the reader."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.saved_log import LINE_LIMIT, SavedLine, saved_lines

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def lines(content: bytes) -> list[SavedLine]:
    return list(saved_lines(io.BytesIO(content)))


def texts(content: bytes) -> list[str]:
    return [line.text for line in lines(content)]


def test_a_line_stays_as_it_stood() -> None:
    """Beside what the kernel wrote; blank lines are lines, so that numbers agree with an editor's."""
    content = f"\n[    1.000000] {XID}\r\n\n{XID}".encode()
    assert [(line.line, line.text) for line in lines(content)] == [
        ("", ""),
        (f"[    1.000000] {XID}", XID),
        ("", ""),
        (XID, XID),
    ]


def test_a_raw_record_is_read_as_the_agent_reads_it() -> None:
    """Escapes become what they stand for, the facility counts, and its dictionary lines say nothing."""
    content = b"4,7,81,-;NVRM: a\\x0ab\n SUBSYSTEM=pci\n12,8,82,-;NVRM: c\n"
    read = lines(content)
    assert [(line.text, line.from_kernel, line.continues) for line in read] == [
        ("NVRM: a\nb", True, False),
        ("SUBSYSTEM=pci", True, True),
        ("NVRM: c", False, False),
    ]


def test_an_indented_line_continues_the_record_before() -> None:
    """As dmesg and journalctl print a record of several lines; a file that is indented as a whole is not meant."""
    content = f"[    1.0] first\n              {XID}\n  {XID}\n".encode()
    assert [line.continues for line in lines(content)] == [False, True, True]
    assert [line.continues for line in lines(f"    {XID}\n    {XID}\n".encode())] == [False, False]


def entry(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "text", "from_kernel"),
    [
        pytest.param(
            entry(MESSAGE=XID, _TRANSPORT="kernel", SYSLOG_FACILITY="0"), XID, True, id="the kernel's"
        ),
        pytest.param(entry(MESSAGE=XID, _TRANSPORT="kernel"), XID, True, id="no facility"),
        pytest.param(entry(MESSAGE=XID), XID, True, id="nothing but a message"),
        pytest.param(b"\x1e" + entry(MESSAGE=XID), XID, True, id="json-seq"),
        pytest.param(entry(MESSAGE=XID, _TRANSPORT="stdout"), XID, False, id="a service's"),
        pytest.param(entry(MESSAGE=XID, _TRANSPORT="kernel", SYSLOG_FACILITY="1"), XID, False, id="a user's"),
        pytest.param(entry(MESSAGE=list(XID.encode())), XID, True, id="bytes"),
        pytest.param(entry(MESSAGE=[78, 1000, "x", 86]), "NV", True, id="bytes that are none"),
        pytest.param(entry(MESSAGE=None), "", True, id="too long for the journal"),
        pytest.param(f'         "msg": {json.dumps(XID)}\n'.encode(), XID, True, id="dmesg -J"),
        pytest.param(f'\t"MESSAGE" : {json.dumps(XID)},\n'.encode(), XID, True, id="json-pretty"),
    ],
)
def test_json_of_the_journal(content: bytes, text: str, from_kernel: bool) -> None:
    """Its message counts, and where it came from."""
    (line,) = lines(content)
    assert (line.text, line.from_kernel) == (text, from_kernel)
    assert line.line == content.decode().rstrip("\n")


def test_json_that_is_cut_off_is_a_line_like_others() -> None:
    """It says nothing."""
    assert not texts(entry(MESSAGE=XID)[:-5])[0].startswith("NVRM")


EXPORT = (
    b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1\n_TRANSPORT=kernel\nMESSAGE=%s\n\n"
    b"__CURSOR=s=2\n_TRANSPORT=stdout\nMESSAGE=user\n\n"
    b"__CURSOR=s=3\nMESSAGE\n\x06\x00\x00\x00\x00\x00\x00\x00a\nb\x00\xffc\nPRIORITY=4\n\n"
    b"__CURSOR=s=4\nNOTHING=here\n\n"
    b"__CURSOR=s=5\nMESSAGE=last"
)


def test_the_export_format_of_the_journal() -> None:
    """One line for each entry with a message, binary ones too; the last needs no blank line."""
    read = lines(EXPORT % XID.encode())
    assert [(line.text, line.from_kernel) for line in read] == [
        (XID, True),
        ("user", False),
        ("a\nb\x00\\xffc", True),
        ("last", True),
    ]


def test_a_size_beyond_the_file_ends_with_it() -> None:
    """A damaged export reads nothing that is not there and keeps no more than a line may have."""
    assert texts(b"__CURSOR=1\nMESSAGE\n" + b"\xff" * 8 + b"abc") == ["abc"]
    long = (2 * LINE_LIMIT).to_bytes(8, "little") + b"x" * 2 * LINE_LIMIT + b"\n"
    assert [len(text) for text in texts(b"__CURSOR=1\nMESSAGE\n" + long + b"\n")] == [LINE_LIMIT]


def test_a_line_without_end_is_cut() -> None:
    """And the next one is whole."""
    read = texts(b"x" * (3 * LINE_LIMIT) + b"\n" + XID.encode())
    assert [len(text) for text in read] == [LINE_LIMIT, len(XID)]
    assert read[1] == XID


@given(st.binary() | st.binary().map(lambda tail: b"__CURSOR=1\nMESSAGE\n" + tail))
def test_no_content_raises(content: bytes) -> None:
    """Whatever a file holds."""
    for line in lines(content):
        assert isinstance(line.line.encode(), bytes)
