"""XID 74, the errors of NVLink up to generation 4: what the bits of its registers mean, for Hopper.

`NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)`: seven registers, of which the first, third,
fourth and fifth are explained, for products with a Hopper chip. Where nothing is set but what NVIDIA says to go on with
(ECC errors that were corrected passed a threshold; bits without meaning), nothing is wrong with the link. All else is what
XID 74 is without its registers, with a word on where to look. A line that is cut off, or of a product that is not known to
be Hopper, is not decoded. Source: NVIDIA's Xid catalogue, WORKFLOW_NVLINK_ERR.
"""

import re
from collections.abc import Iterable

CODE = 74
FAMILY = "H100"
REGISTERS = 7

_WORDS = re.compile(r"\blink\s+\d{1,3}\s*\(([^()]{0,160})\)", re.IGNORECASE)
_WORD = re.compile(r"0x([0-9a-f]{1,8})", re.IGNORECASE)
_HARMLESS = ((0, (0, 23, 30)), (4, (20, 23, 26, 29)))
_LOOKS = (
    (
        "ECC or parity: hardware where it comes more than twice on one link",
        ((0, (4, 5)), (2, (0, 1, 2, 6)), (4, (18, 19, 21, 22, 24, 25, 27, 28))),
    ),
    ("marginal signal: look at the link's connections", ((0, (21, 22)),)),
    ("look at the link's connections", ((0, (8, 9, 12, 16, 17, 24, 28)),)),
    ("worth a report where it repeats", ((0, (27, 29)), (2, (16, 17, 18, 19)))),
    ("follows other errors: see those first", ((0, (1, 20)), (3, (16, 17, 18)))),
)
_UNEXPLAINED = "bits that NVIDIA does not explain: ask support"

Bits = frozenset[tuple[int, int]]


def bits_of(text: str) -> Bits | None:
    """Give the bits that are set, as (register, bit), both from 0; None where not all seven registers can be read."""
    found = _WORDS.search(text)
    if found is None:
        return None
    words = [_WORD.fullmatch(word) for word in found[1].replace(",", " ").split()]
    values = [int(word[1], 16) for word in words if word is not None]
    if len(values) != len(words) or len(values) != REGISTERS:
        return None
    return frozenset(
        (place, bit) for place, value in enumerate(values) for bit in range(32) if value >> bit & 1
    )


def is_harmless(bits: Bits) -> bool:
    """Tell whether something is set, and nothing but what NVIDIA says to go on with; no bits at all explain nothing."""
    return bool(bits) and bits <= _flat(_HARMLESS)


def where_to_look(bits: Bits) -> str:
    """Say what the gravest explained bit points at; empty for none at all."""
    for words, places in _LOOKS:
        if not bits.isdisjoint(_flat(places)):
            return words
    return _UNEXPLAINED if bits - _flat(_HARMLESS) else ""


def _flat(places: Iterable[tuple[int, tuple[int, ...]]]) -> Bits:
    return frozenset((register, bit) for register, bits in places for bit in bits)
