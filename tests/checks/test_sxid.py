"""SXIDs: how far each reaches, by NVIDIA's lists, by the line's word and by the port."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import sxid
from checks.check import CheckDefect
from checks.sxid import Port, Stops, reach


def test_the_table_is_whole() -> None:
    """Each list of the guide has its codes."""
    assert Counter(row.stops for row in sxid.sxids().values()) == {
        Stops.HOST: 20,
        Stops.FABRIC: 2,
        Stops.PORT: 42,
        Stops.NONE: 29,
    }


@pytest.mark.parametrize(
    ("code", "fatal", "port", "expected"),
    [
        pytest.param(23017, True, None, Stops.HOST, id="always fatal"),
        pytest.param(12020, None, None, Stops.HOST, id="always fatal, cut off"),
        pytest.param(19084, False, None, Stops.FABRIC, id="always fatal, whatever the driver calls it"),
        pytest.param(20034, True, None, Stops.PORT, id="a port"),
        pytest.param(20034, None, None, Stops.PORT, id="a port, cut off"),
        pytest.param(20034, True, Port.ACCESS, Stops.PORT, id="a port to a GPU"),
        pytest.param(20034, True, Port.TRUNK, Stops.FABRIC, id="a port between switches"),
        pytest.param(24007, False, Port.TRUNK, Stops.NONE, id="a port, not fatal this time"),
        pytest.param(12028, False, None, Stops.NONE, id="not fatal"),
        pytest.param(12028, True, Port.TRUNK, Stops.NONE, id="not fatal, whatever the driver calls it"),
        pytest.param(28006, False, None, Stops.NONE, id="not listed, not fatal"),
        pytest.param(28006, True, None, Stops.PORT, id="not listed, fatal"),
        pytest.param(28006, True, Port.TRUNK, Stops.FABRIC, id="not listed, fatal, between switches"),
        pytest.param(26006, None, None, Stops.UNKNOWN, id="not listed, does not say"),
    ],
)
def test_how_far_an_error_reaches(code: int, fatal: bool | None, port: Port | None, expected: Stops) -> None:
    """The list first, then the line's word."""
    assert reach(code, fatal=fatal, port=port) is expected


@given(st.integers(), st.none() | st.booleans(), st.none() | st.sampled_from(list(Port)))
def test_no_code_raises(code: int, fatal: bool | None, port: Port | None) -> None:
    """Whatever a line holds."""
    assert reach(code, fatal=fatal, port=port) in set(Stops)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param("", "holds no row", id="empty"),
        pytest.param("12,none,guide\n", "code '12'", id="a code that is none"),
        pytest.param("12020,moon,guide\n", "stops 'moon' is unknown", id="a word that is none"),
        pytest.param("12020,unknown,guide\n", "stops 'unknown' is unknown", id="a row that knows nothing"),
        pytest.param("12020,none,guide\n12020,host,guide\n", "is there twice", id="twice"),
        pytest.param("12020,none,\n", "where the row comes from", id="without source"),
    ],
)
def test_a_damaged_table_is_refused(row: str, said: str) -> None:
    """The defect names the row and what would be right."""
    with pytest.raises(CheckDefect, match=said):
        sxid.parse("code,stops,source\n" + row, "sxids.csv")
