"""Strings from the cluster can neither steer a terminal nor forge a row."""

import unicodedata
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.text import age, cleaned, clock_time, printable, table

NOW = datetime(2026, 11, 29, 3, 0, tzinfo=UTC)


class _Leaf(msgspec.Struct, frozen=True):
    text: str
    at: datetime


class _Tree(msgspec.Struct, frozen=True):
    leaves: tuple[_Leaf, ...]
    labels: dict[str, str]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param("name=python3", "name=python3", id="plain text stays as it is"),
        pytest.param("a\x1b[31mred\x1b[0m", "a[31mred[0m", id="an escape sequence loses what makes it one"),
        pytest.param("a\nnode-2   Ready", "a node-2   Ready", id="a line break cannot forge a row"),
        pytest.param("a\rb\tc", "a b c", id="carriage return and tabulator become blanks"),
        pytest.param("a\u202egnp.exe", "agnp.exe", id="a bidirectional override is dropped"),
        pytest.param("a\u2028b\u200bc", "abc", id="line separators and zero-width blanks are dropped"),
        pytest.param("\x9b2Ja\x7f", "2Ja", id="the one-byte escapes of C1 and DEL are dropped"),
        pytest.param("Gerät 3 ✓", "Gerät 3 ✓", id="letters of other languages stay"),
        pytest.param("", "", id="nothing stays nothing"),
    ],
)
def test_printable(raw: str, shown: str) -> None:
    """Only what a terminal shows is left."""
    assert printable(raw) == shown


@given(st.text())
def test_printable_leaves_nothing_to_obey(raw: str) -> None:
    """Whatever comes in, no control or format character comes out, and doing it twice changes nothing."""
    shown = printable(raw)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert printable(shown) == shown


def test_cleaned_reaches_every_string() -> None:
    """Nested structs and dictionary keys are cleaned, other values stay equal."""
    tree = _Tree((_Leaf("a\x1bb", NOW),), {"k\x07": "v\x00"})
    assert cleaned(tree) == _Tree((_Leaf("ab", NOW),), {"k": "v"})


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        pytest.param(timedelta(seconds=45), "45s", id="seconds"),
        pytest.param(timedelta(minutes=4, seconds=12), "4m12s", id="a few minutes with their seconds"),
        pytest.param(timedelta(minutes=47, seconds=12), "47m", id="many minutes without"),
        pytest.param(timedelta(hours=3, minutes=20), "3h20m", id="hours and minutes"),
        pytest.param(timedelta(days=5, hours=4), "5d4h", id="days and hours"),
        pytest.param(timedelta(seconds=-3), "0s", id="a clock that runs ahead is no negative age"),
    ],
)
def test_age(passed: timedelta, words: str) -> None:
    """Ages read as kubectl writes them."""
    assert age(NOW - passed, NOW) == words


def test_unknown_times_are_a_dash() -> None:
    """What nobody knows is shown as such."""
    assert (age(None, NOW), clock_time(None)) == ("-", "-")


def test_table_aligns_columns() -> None:
    """Columns line up, an empty cell is a dash, nothing trails."""
    assert table(("NODE", "WHY"), [("gpu-1", ""), ("g", "because")]) == [
        "NODE    WHY",
        "gpu-1   -",
        "g       because",
    ]
