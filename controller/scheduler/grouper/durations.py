"""Go durations ("1h30m", "-1s", "300ms") as whole seconds. Pure."""

import re

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PIECE = re.compile(r"([0-9]{0,18})(?:\.([0-9]{0,18}))?(ns|us|µs|μs|ms|s|m|h)")
_SECOND = 10**9


def seconds(text: str) -> int | None:
    """Return a Go duration in seconds, or None where the text is none. Parts of a second are rounded away from zero."""
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if body == "0":
        return 0
    total = at = 0
    while at < len(body):
        piece = _PIECE.match(body, at)
        if piece is None or not (piece[1] or piece[2]):
            return None
        unit = _UNITS[piece[3]]
        part = piece[2] or ""
        total += int(piece[1] or 0) * unit + int(part or 0) * unit // 10 ** len(part)
        at = piece.end()
    if not body:
        return None
    up = -(-total // _SECOND)
    return -up if text.startswith("-") else up
