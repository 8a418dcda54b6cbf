"""The bytes of kernel-log records, taken apart: pure, no file is opened here.

The format is the kernel's own (Documentation/ABI/testing/dev-kmsg): `priority,sequence,microseconds,flags[,more];text`,
then lines ` KEY=value`, which nothing here needs. What the kernel cannot print it writes as `\\xNN`, a line feed inside a
text included. Nothing raises: what is not a record comes back as the reason why.
"""

import re

import msgspec

RECORD_LIMIT = 8192
"""Bytes of one record that are looked at; the kernel's own limit is below (CONSOLE_EXT_LOG_MAX in older kernels)."""

_HEADER = re.compile(rb"(\d{1,9}),(\d{1,19}),(\d{1,19}),[^;\n]{0,256};")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_HIGHEST = 2**63 - 1


class Record(msgspec.Struct, frozen=True):
    """One record; `text` is as the driver wrote it, so it may hold line feeds and anything else a process named itself."""

    facility: int
    level: int
    sequence: int
    monotonic_us: int
    text: str


def parse_record(raw: bytes) -> Record | str:
    """Take one record apart, or say why it is none."""
    header = _HEADER.match(raw)
    if header is None:
        return f"not a kernel-log record: {raw[:60]!r}"
    priority, sequence, monotonic_us = int(header[1]), int(header[2]), int(header[3])
    if sequence > _HIGHEST or monotonic_us > _HIGHEST:
        return f"a number in the record's header is out of range: {raw[:60]!r}"
    end = raw.find(b"\n", header.end())
    text = raw[header.end() : RECORD_LIMIT if end < 0 else min(end, RECORD_LIMIT)]
    if b"\\x" in text:
        text = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), text)
    return Record(
        facility=priority >> 3,
        level=priority & 7,
        sequence=sequence,
        monotonic_us=monotonic_us,
        text=text.decode("utf-8", errors="backslashreplace"),
    )


class Lines:
    """Cuts a stream into records, one a line, however the bytes arrive. Holds at most RECORD_LIMIT bytes."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._discarding = False
        self.cut = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Give the records that are whole now; `cut` counts those of which only the beginning was kept."""
        *whole, rest = data.split(b"\n")
        lines: list[bytes] = []
        for piece in whole:
            self._append(piece, lines)
            if self._discarding:
                self._discarding = False
            else:
                lines.append(bytes(self._rest))
            self._rest.clear()
        self._append(rest, lines)
        return [line for line in lines if line.strip() and not line.startswith(b" ")]

    def has_partial(self) -> bool:
        """Say whether a record has begun that did not end yet."""
        return bool(self._rest)

    def flush(self) -> list[bytes]:
        """Give up waiting for the end of the record under way, and give what there is of it."""
        return self.feed(b"\n") if self._rest or self._discarding else []

    def _append(self, piece: bytes, lines: list[bytes]) -> None:
        if self._discarding:
            return
        self._rest += piece
        if len(self._rest) > RECORD_LIMIT:
            lines.append(bytes(self._rest[:RECORD_LIMIT]))
            self._rest.clear()
            self._discarding = True
            self.cut += 1
