"""What other tools write before a line of the kernel log: time stamps, host names, levels. Pure, and only for saved logs.

The agent itself reads /dev/kmsg, where no such prefix exists. Formats: util-linux dmesg (plain, -T, -d, -e, -x, -r,
--time-format ctime, reltime, delta, iso, notime; coloured or not), journalctl -o short and its kin, syslog, and
CONFIG_PRINTK_CALLER.
"""

import re

import msgspec

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_STAMP = (
    r"\[[^\]\n]{0,64}\]"  # [ 12.3], [Sun Feb 23 16:24:18 2025], [Nov29 17:36], [  +0.85], [<  0.85>], [   T399]
    rf"|(?:[A-Z][a-z]{{2}}\s+)?{_ISO}(?:\s+[A-Z]{{3,5}}(?=\s))?"
    r"|[A-Z][a-z]{2}\s+\d{1,2}\s+\d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|\d{9,10}\.\d{1,9}"  # journalctl -o short-unix
)
_HEADER = re.compile(
    r"<(?P<priority>\d{1,3})>"
    r"|(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])\s*:\s*[a-z]{3,6}\s*:"
    r"|kernel:\s"
    rf"|(?:{_STAMP})(?:\s+\S{{1,255}}\s+kernel(?:\[\d+\])?:)?"
)
_MOST_HEADERS = 8
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Stripped(msgspec.Struct, frozen=True, kw_only=True):
    """A line without its prefix. `had_prefix` tells whether there was one, `from_kernel` is False where it names another."""

    text: str
    had_prefix: bool
    from_kernel: bool


def strip(line: str) -> Stripped:
    """Take the prefix off a line, however many headers it has."""
    rest = (_COLOUR.sub("", line) if "\x1b" in line else line).lstrip()
    had_prefix, from_kernel = False, True
    for _ in range(_MOST_HEADERS):
        header = _HEADER.match(rest)
        if header is None:
            break
        had_prefix = True
        if header["priority"] is not None:
            from_kernel = from_kernel and int(header["priority"]) < 8  # facility 0
        if header["facility"] is not None:
            from_kernel = from_kernel and header["facility"] == "kern"
        rest = rest[header.end() :].lstrip()
    return Stripped(text=rest, had_prefix=had_prefix, from_kernel=from_kernel)


def strip_prefix(line: str) -> str:
    """Give a line without its prefix; a saved record of /dev/kmsg loses its header too."""
    raw = _RAW.match(line)
    return line[raw.end() :] if raw else strip(line).text


_RAW = re.compile(r"\s*\d{1,4},\d+,\d+,[^;\n]{0,256};")
