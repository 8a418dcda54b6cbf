"""Prefixes of other tools: each comes off whole, and tells when somebody else than the kernel wrote the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.log_prefix import strip, strip_prefix

LINE = "NVRM: Xid (PCI:0000:4c:00): 46"


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param("4,120,81234,-;", id="a raw record"),
        pytest.param("4,120,81234,-,caller=T1;", id="a raw record with more fields"),
        pytest.param("[ 3606.832215] ", id="dmesg"),
        pytest.param("[123] ", id="dmesg, seconds alone"),
        pytest.param("[ 3606.832215] [    T399] ", id="dmesg with the caller"),
        pytest.param("[Sun Feb 23 16:24:18 2025] ", id="dmesg -T"),
        pytest.param("[ 3606.832215 <    0.859114>] ", id="dmesg -d"),
        pytest.param("[<    0.859114>] ", id="dmesg --time-format delta"),
        pytest.param("[Nov29 17:36] ", id="dmesg -e, the first of a minute"),
        pytest.param("[  +0.859114] ", id="dmesg -e, the others"),
        pytest.param("2025-01-21T04:41:44,283302+00:00 ", id="dmesg --time-format iso"),
        pytest.param("<4>[    5.140900] ", id="dmesg -r"),
        pytest.param("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ", id="dmesg -x, iso"),
        pytest.param("kern  :err   : [   12.5] ", id="dmesg -x"),
        pytest.param("kern  :err   : [Tue Mar  5 16:02:13 2019] ", id="dmesg -x -T"),
        pytest.param("kern  :notice: [  +0.000000] ", id="dmesg -x -e"),
        pytest.param("kern  :warn  : ", id="dmesg -x, no time"),
        pytest.param("\x1b[32m[    5.140900] \x1b[0m\x1b[33m", id="dmesg with colours"),
        pytest.param("Nov 22 14:56:44 node-7 kernel: [94555.573305] ", id="syslog"),
        pytest.param("Jan  3 07:39:45 ubuntu kernel: ", id="syslog, one digit"),
        pytest.param("Nov 22 14:56:44.123456 node-7 kernel: ", id="journal, precise"),
        pytest.param("2026-01-01T00:00:00+00:00 node-7 kernel: ", id="journal, iso"),
        pytest.param("2026-01-01T00:00:00.123456+0000 node-7 kernel: ", id="journal, iso, precise"),
        pytest.param("Thu 2026-01-01 00:00:00 UTC node-7 kernel: ", id="journal, full"),
        pytest.param("[   12.345678] node-7 kernel: ", id="journal, monotonic"),
        pytest.param("1767225600.123456 node-7 kernel: ", id="journal, unix time"),
        pytest.param("2026-01-01T00:00:00.123456789Z [   12.3] ", id="a container's log"),
        pytest.param("kernel: ", id="what is left of a journal's prefix"),
        pytest.param("", id="a bare line"),
        pytest.param("   ", id="an indented line"),
    ],
)
def test_prefixes_come_off(prefix: str) -> None:
    """A saved log can be read whatever tool saved it."""
    assert strip_prefix(prefix + LINE) == LINE


@pytest.mark.parametrize(
    ("line", "from_kernel"),
    [
        pytest.param(f"<4>[1.0] {LINE}", True, id="priority of the kernel"),
        pytest.param(f"<12>[1.0] {LINE}", False, id="priority of a user"),
        pytest.param(f"kern  :warn  : [1.0] {LINE}", True, id="facility of the kernel"),
        pytest.param(f"user  :warn  : [1.0] {LINE}", False, id="facility of a user"),
        pytest.param(f"[1.0] {LINE}", True, id="nobody says"),
    ],
)
def test_who_wrote_a_line_is_told(line: str, from_kernel: bool) -> None:
    """Anybody may write to /dev/kmsg, under another facility than the kernel's."""
    assert strip(line).from_kernel is from_kernel


@pytest.mark.parametrize(
    "line",
    [
        "x[1]: segfault NVRM: Xid (PCI:0000:4c:00): 79, gone",
        "tmpfs: Unknown parameter 'kernel: NVRM: Xid (PCI:0000:4c:00): 79, gone'",
        "node-7 kernel: NVRM: Xid (PCI:0000:4c:00): 79, gone",
    ],
)
def test_words_of_others_are_no_prefix(line: str) -> None:
    """What a process could have chosen stays where it stands, so that the driver's words are not at the start."""
    assert not strip_prefix(line).startswith("NVRM:")


@given(st.text())
def test_no_line_raises(text: str) -> None:
    """Whatever stands in a file."""
    assert strip(text).text in text.replace("\x1b", "") or "\x1b" in text
    assert isinstance(strip_prefix(text), str)
