"""Cuts a saved kernel log into records, whatever tool saved it: a stream in, one value for each line out. Opens nothing.

A line each: raw records of /dev/kmsg, dmesg in each of its time formats, the journal as text, as JSON (-o json; dmesg -J and
json-pretty too, whose line with the message is the one that says something), or bare lines. The journal's export format has
an entry of several lines, of which the message is the one. The format is told line by line, so a file put together from
several tools can be read. Bounded: a line longer than LINE_LIMIT is cut, nothing is kept but the line under way.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from agent.host.kmsg_record import parse_record
from checks.log_prefix import strip

LINE_LIMIT = 1 << 18
"""Bytes. The kernel's records end at 8 KiB; an entry of the journal with all its fields may be longer."""


class Readable(Protocol):
    """A binary stream, as open() gives it."""

    def readline(self, limit: int, /) -> bytes:
        """Give a line with its end, the end of the file as b""."""

    def read(self, size: int, /) -> bytes:
        """Give up to `size` bytes."""


class SavedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a saved log, as it stood there in `line` (of an export: its message); `text` is what the kernel wrote.

    `continues`: not a record of its own but the rest of the one before, as dmesg indents it. `from_kernel` is False
    where the log itself says that somebody else wrote it.
    """

    line: str
    text: str
    continues: bool = False
    from_kernel: bool = True


def saved_lines(stream: Readable) -> Iterator[SavedLine]:
    """Give every line of a stream. Raises OSError where the stream does, and nothing for anything that it holds."""
    had_prefix, is_begin = False, True
    for raw in whole_lines(stream):
        if is_begin and raw.strip():
            if _EXPORT.match(raw):
                yield from _export(raw, stream)
                return
            is_begin = False
        saved, had_prefix = _line(raw, had_prefix=had_prefix)
        yield saved


def whole_lines(stream: Readable) -> Iterator[bytes]:
    """Give the lines without their ends, each cut at LINE_LIMIT."""
    while line := stream.readline(LINE_LIMIT):
        kept = line
        while not line.endswith(b"\n") and (line := stream.readline(LINE_LIMIT)):
            pass
        yield kept.rstrip(b"\r\n")


_EXPORT = re.compile(rb"(?:__[A-Z_]+|_[A-Z][A-Z0-9_]*|MESSAGE|PRIORITY|SYSLOG_[A-Z_]+)(?:=|$)")
_JSON = re.compile(r"\s*\{.*\"MESSAGE\"")
_JSON_FIELD = re.compile(r'\s*"(?:MESSAGE|msg)"\s*:\s*("(?:[^"\\]|\\.)*")\s*,?\s*$')
_RECORD_SEPARATOR = "\x1e"  # journalctl -o json-seq
_RAW = re.compile(rb"\d{1,4},\d+,\d+,")


def _line(raw: bytes, *, had_prefix: bool) -> tuple[SavedLine, bool]:
    """Read one line; `had_prefix` tells whether the record before had one, so that a mere indent continues it."""
    shown = raw.decode("utf-8", errors="backslashreplace")
    if _RAW.match(raw):
        record = parse_record(raw)
        if not isinstance(record, str):
            return SavedLine(line=shown, text=record.text, from_kernel=record.facility == 0), True
    if (entry := _json(shown)) is not None:
        return msgspec.structs.replace(entry, line=shown), False
    stripped = strip(shown)
    if shown[:1] in {" ", "\t"} and not stripped.had_prefix and had_prefix:
        return SavedLine(line=shown, text=stripped.text, continues=True), True
    return SavedLine(line=shown, text=stripped.text, from_kernel=stripped.from_kernel), stripped.had_prefix


def _json(line: str) -> SavedLine | None:
    """Read an entry of journalctl -o json, or the line with the message in the pretty forms."""
    try:
        if _JSON.match(line):
            entry = msgspec.json.decode(line.lstrip(_RECORD_SEPARATOR))
            return _entry(entry) if isinstance(entry, dict) else None
        if field := _JSON_FIELD.match(line):
            return _entry({"MESSAGE": msgspec.json.decode(field[1])})
    except (msgspec.DecodeError, RecursionError):
        return None
    return None


def _entry(fields: dict[str, Any]) -> SavedLine:
    """Make a line of a journal's entry. The journal marks what came from the kernel log, and whose facility it had there."""
    message = fields.get("MESSAGE")
    if isinstance(message, list):  # bytes that are no text, as journald writes them
        numbers = [n for n in message if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 256]
        message = bytes(numbers).decode("utf-8", errors="backslashreplace")
    text = message if isinstance(message, str) else ""
    stripped = strip(text)
    return SavedLine(
        line=text,
        text=stripped.text,
        from_kernel=stripped.from_kernel
        and fields.get("_TRANSPORT", "kernel") == "kernel"
        and fields.get("SYSLOG_FACILITY", "0") == "0",
    )


_KEPT_FIELDS = frozenset({b"MESSAGE", b"_TRANSPORT", b"SYSLOG_FACILITY"})


def _export(first: bytes, stream: Readable) -> Iterator[SavedLine]:
    """Read journalctl -o export: `FIELD=value`, or `FIELD`, 8 bytes of length, the value; a blank line ends an entry."""
    fields: dict[str, Any] = {}
    for line in itertools.chain((first,), whole_lines(stream)):
        name, has_value, value = line.partition(b"=")
        if not line:
            if "MESSAGE" in fields:
                yield _entry(fields)
            fields = {}
        elif has_value:
            _keep(fields, name, value)
        else:
            _keep(fields, name, _sized(stream))
    if "MESSAGE" in fields:
        yield _entry(fields)


def _keep(fields: dict[str, Any], name: bytes, value: bytes) -> None:
    if name in _KEPT_FIELDS:
        fields[name.decode()] = value.decode("utf-8", errors="backslashreplace")


def _sized(stream: Readable) -> bytes:
    """Read a value of stated length, of which at most LINE_LIMIT is kept, and the line feed behind it."""
    left = int.from_bytes(stream.read(8), "little")
    kept = b""
    while left > 0 and (piece := stream.read(min(left, LINE_LIMIT))):
        kept += piece[: LINE_LIMIT - len(kept)]
        left -= len(piece)
    stream.read(1)
    return kept
