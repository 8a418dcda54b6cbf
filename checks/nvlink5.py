"""XID 144 to 150, the errors of NVLink 5: what the words in brackets mean, as data (`nvlink5.csv`).

`<unit> <Fatal|Nonfatal> XC<0|1> i<n> Link <nn|-1> (<intrinfo> <status> ...)`, with runs of blanks and 4 or 6 words. A rule
is a unit, the low bits of intrinfo, the sub-code in its bits 20 to 25, and a status. Drivers before R575 (V1) put unit
and group into the low 10 bits, later ones (V2) the unit into the low 7; for one unit the two never collide, so the line
itself tells which it is, and no driver version is needed. Source: NVIDIA's Xid catalogue, sheet "Xid 144-150 Decode",
editions of 2025-10 and 610.

Nothing is guessed: a line that no rule fits has no rule, which its reader shows as a warning and repairs nothing for.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

import msgspec

from checks.check import CheckDefect
from checks.table import Row, read_file, rows

RULES_FILE = "nvlink5.csv"
CODES = range(144, 151)


class Action(StrEnum):
    """What a rule wants at once, in the catalogue's words."""

    IGNORE = "IGNORE"
    RESET_GPU = "RESET_GPU"
    XID_154_EVAL = "XID_154_EVAL"
    """What an XID 154 of the same GPU says (within half a minute), else the program is to be restarted."""


class Look(StrEnum):
    """Where to look for the cause afterwards."""

    NOWHERE = "nowhere"
    SUPPORT = "support"
    LINKS = "links"
    """Whether a link of the same partition went down within 30 s: then this is only what follows."""
    SIGNAL = "signal"
    SIGNAL_AND_CABLES = "signal-and-cables"
    SOFTWARE = "software"
    SOFTWARE_AND_SIGNAL = "software-and-signal"
    PEER = "peer"
    """The other end of the link is the source: this GPU is not to blame."""
    HOST = "host"
    REPORT_ALONE = "report-alone"
    """It follows other errors; worth reporting only where it comes alone."""
    REPORT_DAILY = "report-daily"
    """Worth reporting only where it comes more than once a day."""


class Layout(StrEnum):
    """How intrinfo is laid out. EITHER: the bits are the same in both."""

    V1 = "V1"
    V2 = "V2"
    EITHER = "either"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `when_fatal` stands in for `action` where the line says Fatal: the driver can promote such an error."""

    code: int
    units: tuple[str, ...]
    v1: int
    v2: int
    subcode: int
    status: int
    action: Action
    when_fatal: Action | None
    look: Look
    meaning: str


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One line, read. `rule` and `layout` are None where nothing in the table fits; `link` is -1 for no single link."""

    unit: str
    fatal: bool | None
    link: int | None
    intrinfo: int | None
    status: int | None
    rule: Rule | None
    layout: Layout | None

    @property
    def action(self) -> Action | None:
        """What the rule wants, promoted where the line says Fatal; None without a rule."""
        if self.rule is None:
            return None
        return self.rule.when_fatal if self.fatal and self.rule.when_fatal else self.rule.action


# The unit begins the driver's text; behind a comma it may follow what a process named itself.
_LINE = re.compile(
    r"(?:^|,\s)\s*(?P<unit>[A-Z][A-Za-z0-9_/]{2,40}(?: [A-Z][a-z]{2,20})?)\s+(?P<severity>non-?fatal|fatal)\b"
    r"(?:\s+XC\d)?(?:\s+i\d{1,3})?(?:\s+Link\s+(?P<link>-1|\d{1,3})\b)?\s*(?:\((?P<words>[^)]*)(?P<whole>\)?))?",
    re.IGNORECASE,
)
_WORD = re.compile(r"0x([0-9a-fA-F]{1,8})$")
_DIGITS = 8
_V1_BITS, _V2_BITS, _SUBCODE_AT, _SUBCODE_BITS = 0x3FF, 0x7F, 20, 0x3F


def decode(code: int, text: str) -> Fault | None:
    """Read the text of an XID 144 to 150; None where it does not have their form. Never raises for any text."""
    found = None
    for found in _LINE.finditer(text):  # noqa: B007 - the last: a process may have named itself like the driver's words
        pass
    if found is None:
        return None
    words = _words(found["words"] or "", whole=bool(found["whole"]))
    intrinfo, status = (*words, None, None)[:2]
    unit = found["unit"].upper()
    rule, layout = _rule(code, unit, intrinfo, status)
    return Fault(
        unit=unit,
        fatal=found["severity"].lower() == "fatal",
        link=None if found["link"] is None else int(found["link"]),
        intrinfo=intrinfo,
        status=status,
        rule=rule,
        layout=layout,
    )


def _words(text: str, *, whole: bool) -> list[int]:
    """Read the words in brackets up to the first that is none; the last of a line that was cut off must be complete."""
    numbers: list[int] = []
    pieces = text.replace(",", " ").split()
    for place, piece in enumerate(pieces):
        word = _WORD.match(piece)
        cut = not whole and place == len(pieces) - 1 and len(piece) < _DIGITS + 2
        if word is None or cut:
            break
        numbers.append(int(word[1], 16))
    return numbers


def _rule(
    code: int, unit: str, intrinfo: int | None, status: int | None
) -> tuple[Rule | None, Layout | None]:
    if intrinfo is None or status is None:
        return None, None
    subcode = intrinfo >> _SUBCODE_AT & _SUBCODE_BITS
    named = set(unit.split("/"))
    for rule in rules().get((code, status), ()):
        if subcode != rule.subcode or named.isdisjoint(rule.units):
            continue
        is_v1, is_v2 = intrinfo & _V1_BITS == rule.v1, intrinfo & _V2_BITS == rule.v2
        if is_v1 or is_v2:
            return rule, Layout.EITHER if is_v1 and is_v2 else Layout.V1 if is_v1 else Layout.V2
    return None, None


Rules = Mapping[tuple[int, int], tuple[Rule, ...]]


@functools.cache
def rules() -> Rules:
    """Give the table that came with the program, by code and status. Raises CheckDefect if it is damaged."""
    return parse(read_file(RULES_FILE), RULES_FILE)


def parse(text: str, file: str) -> Rules:
    """Read a table. `file` is its name for errors. Raises CheckDefect for the first thing that is wrong in it."""
    by_key: dict[tuple[int, int], list[Rule]] = {}
    for row in rows(text, file, _Row):
        rule = row.rule()
        alike = by_key.setdefault((rule.code, rule.status), [])
        if any(_differ_on_one_line(rule, other) for other in alike):
            raise row.defect(
                "unit",
                "has a row for this sub-code and status that wants something else; one line must not get two answers",
            )
        alike.append(rule)
    if not by_key:
        raise CheckDefect(f"{file}: holds no row; one row per rule is needed")
    return MappingProxyType({key: tuple(alike) for key, alike in by_key.items()})


def all_rules() -> Iterable[Rule]:
    """Give every rule, in the order of code and status."""
    return (rule for key in sorted(rules()) for rule in rules()[key])


def _differ_on_one_line(rule: Rule, other: Rule) -> bool:
    """Tell whether one line could fit both and mean two things. TLW_RX of V1 is one unit, two pipes in V2: alike."""
    return (
        (rule.action, rule.when_fatal, rule.look) != (other.action, other.when_fatal, other.look)
        and rule.subcode == other.subcode
        and not set(rule.units).isdisjoint(other.units)
        and (rule.v1 == other.v1 or rule.v2 == other.v2)
    )


_Word = TypeVar("_Word", bound=StrEnum)


class _Row(Row):
    columns = (
        "unit",
        "code",
        "v1",
        "v2",
        "subcode",
        "status",
        "action",
        "when_fatal",
        "look",
        "meaning",
    )

    def rule(self) -> Rule:
        code = int(self.text("code", r"14[4-9]|150", "a code from 144 to 150"))
        names = self.text("unit", r"[A-Z0-9_ ]+(?:/[A-Z0-9_ ]+)*", "the names of a unit in capitals, with /")
        return Rule(
            code=code,
            units=tuple(names.split("/")),
            v1=self._hex("v1", _V1_BITS),
            v2=self._hex("v2", _V2_BITS),
            subcode=int(self.text("subcode", r"[0-9]|[1-5][0-9]|6[0-3]", "a whole number from 0 to 63")),
            status=self._hex("status", 0xFFFFFFFF),
            action=self._word("action", Action),
            when_fatal=self._word("when_fatal", Action) if self._cells["when_fatal"] else None,
            look=self._word("look", Look),
            meaning=self.text("meaning", r"\S.*\S", "one sentence"),
        )

    def _hex(self, field: str, most: int) -> int:
        value = int(self.text(field, r"0x[0-9a-f]{1,8}", "a hexadecimal number in small letters"), 16)
        if value > most:
            raise self.defect(field, f"is not valid; it must be at most {most:#x}")
        return value

    def _word(self, field: str, words: type[_Word]) -> _Word:
        value = self._cells[field]
        if value not in set(words):
            raise self.defect(field, f"is unknown; allowed: {', '.join(words)}")
        return words(value)
