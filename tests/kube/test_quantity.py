"""Quantities are read exactly, and rounded up to the unit asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.quantity import milli, whole


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("8", 8, id="a plain number"),
        pytest.param("1Gi", 1 << 30, id="a power of two"),
        pytest.param("1.5Gi", 3 << 29, id="a part of one"),
        pytest.param("1G", 10**9, id="a power of ten"),
        pytest.param("2k", 2000, id="thousands"),
        pytest.param("1e3", 1000, id="an exponent"),
        pytest.param("1E3", 1000, id="an exponent, not exa"),
        pytest.param("1E", 10**18, id="exa, not an exponent"),
        pytest.param("100m", 1, id="a tenth of one is one"),
        pytest.param("1n", 1, id="the least is one"),
        pytest.param("0", 0, id="nothing"),
        pytest.param("-1", -1, id="below nothing"),
        pytest.param(".5Ki", 512, id="no digit before the point"),
        pytest.param("9007199254740993", 9007199254740993, id="more than a binary fraction holds"),
    ],
)
def test_whole_units(text: str, number: int) -> None:
    """Bytes and devices are whole, and what asks for a part of one asks for one."""
    assert whole(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("1", 1000, id="a core"),
        pytest.param("250m", 250, id="a quarter"),
        pytest.param("0.1", 100, id="a tenth, which no binary fraction is"),
        pytest.param("100u", 1, id="less than a thousandth is one"),
    ],
)
def test_thousandths(text: str, number: int) -> None:
    """CPU and GPU shares are counted in thousandths."""
    assert milli(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "one", "1e99", "1.2.3", "0x10", "1Ki2"])
def test_what_is_none(text: str) -> None:
    """A word that is no quantity is refused with what would be one."""
    with pytest.raises(ValueError, match="is no quantity"):
        whole(text)


@given(st.integers(-(10**18), 10**18))
def test_every_integer_is_itself(number: int) -> None:
    """Nothing is lost on the way, however great it is."""
    assert whole(str(number)) == number
    assert milli(f"{number}m") == number
