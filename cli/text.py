"""Words on a terminal: what the cluster says is cleaned first, then laid out in columns.

A kernel line may hold a process name, and that is a tenant's text: an escape sequence or a line break in it could repaint
the screen of whoever is on call, or forge a row. So every string that came from the cluster goes through `printable`
before it is laid out, for tables and JSON alike (`cleaned`).
"""

import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# Cc control, Cf format (bidirectional overrides, zero width), Cs lone surrogates, Zl and Zp line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """Strip what a terminal would obey instead of show; white space of any kind becomes one plain blank."""
    if text.isascii() and text.isprintable():
        return text
    kept = (" " if char in "\t\n\v\f\r" else char for char in text)
    return "".join(char for char in kept if unicodedata.category(char) not in _UNSAFE)


def cleaned(value: T) -> T:
    """Give the same struct with every string in it made printable, keys included."""
    return msgspec.convert(_cleaned_builtins(msgspec.to_builtins(value)), type(value))


def _cleaned_builtins(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _cleaned_builtins(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned_builtins(inner) for inner in value]
    return value


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay rows out as kubectl does: columns three blanks apart, `-` for an empty cell, the last column as long as it is."""
    cells = [list(header), *([cell or "-" for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def wrapped(text: str) -> list[str]:
    """Break text into lines that fit a terminal beside another window; words are never broken."""
    return [
        piece
        for line in text.splitlines()
        for piece in textwrap.wrap(line, 100, break_long_words=False, break_on_hyphens=False) or [""]
    ]


def age(since: datetime | None, now: datetime) -> str:
    """Say how long ago, in two units at most as kubectl does: `45s`, `12m`, `3h20m`, `5d4h`; `-` where unknown."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s"
    if hours < 3:
        return f"{minutes}m"
    if days < 2:
        return f"{hours}h{minutes % 60}m"
    return f"{days}d{hours % 24}h"


def clock_time(at: datetime | None) -> str:
    """Write an instant in UTC to the second; `-` where unknown."""
    return "-" if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ")


def say(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def warn(line: str) -> None:
    """Print one line to standard error, made printable."""
    sys.stderr.write(f"{printable(line)}\n")
