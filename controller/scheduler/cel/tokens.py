"""CEL text to tokens. Pure. Source: CEL language definition, lexis."""

import re
from typing import Final

import msgspec


class CompileError(ValueError):
    """The expression cannot be used. The text says why, and where."""


class Token(msgspec.Struct, frozen=True):
    """`kind`: name, int, uint, double, string, bytes, or the operator itself; "" at the end."""

    kind: str
    text: str
    at: int
    value: object = None


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<int>0[xX][0-9a-fA-F]+|\d+)(?P<unsigned>[uU]?)
    |(?P<prefix>[rR][bB]|[bB][rR]|[rR]|[bB])?(?P<quote>\"\"\"|'''|"|')
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<escaped>`[a-zA-Z0-9_.\-/ ]+`)
    |(?P<operator>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>?:.,(){}\[\]])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.?))",
    re.DOTALL,
)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def tokens_of(text: str) -> list[Token]:
    """Raises CompileError."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CompileError(f"character {at + 1}: {text[at]!r} is not understood")
        end = match.end()
        if match["quote"]:
            token, end = _string(text, match)
            found.append(token)
        elif not match["space"]:
            found.append(_plain(match))
        at = end
    found.append(Token("", "the end", len(text)))
    return found


def _plain(match: re.Match[str]) -> Token:
    text, at = match[0], match.start()
    if match["double"]:
        return Token("double", text, at, float(text))
    if match["int"]:
        kind = "uint" if match["unsigned"] else "int"
        return Token(kind, text, at, int(match["int"], 16 if match["int"][:2] in ("0x", "0X") else 10))
    if match["escaped"]:
        return Token("escaped", text.strip("`"), at)
    return Token("name" if match["name"] else text, text, at)


def _string(text: str, match: re.Match[str]) -> tuple[Token, int]:
    quote, prefix, begin = match["quote"], (match["prefix"] or "").lower(), match.end()
    end = begin
    while not text.startswith(quote, end):
        if end >= len(text) or (len(quote) == 1 and text[end] == "\n"):
            raise CompileError(f"character {match.start() + 1}: the string does not end")
        end += 2 if text[end] == "\\" and "r" not in prefix else 1
    inner = text[begin:end]
    is_bytes = "b" in prefix
    if is_bytes:
        value: object = inner.encode() if "r" in prefix else _bytes(inner)
    else:
        value = inner if "r" in prefix else _ESCAPE.sub(_unescaped, inner)
    end += len(quote)
    return Token("bytes" if is_bytes else "string", text[match.start() : end], match.start(), value), end


def _bytes(text: str) -> bytes:
    found, at = b"", 0
    for match in _ESCAPE.finditer(text):
        one = _unescaped(match)
        is_number = match[2] or match[5]
        found += text[at : match.start()].encode() + (bytes([ord(one)]) if is_number else one.encode())
        at = match.end()
    return found + text[at:].encode()


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return _SIMPLE.get(match[1], match[1])
    code = match[2] or match[3] or match[4]
    number = int(code, 16) if code else int(match[5], 8) if match[5] else -1
    if number < 0 or number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise CompileError(f"{match[0]} is no escape")
    return chr(number)
