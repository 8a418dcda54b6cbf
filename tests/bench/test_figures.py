"""Percentiles, tables and the flat object of --json."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Figure, beside, flat, percentile, table


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        pytest.param([3.0], 50, 3.0, id="one value is every percentile"),
        pytest.param(
            [4.0, 1.0, 3.0, 2.0], 50, 2.0, id="the half of an even number is the lower one, never between"
        ),
        pytest.param([5.0, 1.0, 3.0], 50, 3.0, id="the half of an odd number is the middle one"),
        pytest.param([float(n) for n in range(1, 201)], 99, 198.0, id="p99 of 200 leaves out the two worst"),
        pytest.param([float(n) for n in range(1, 101)], 99, 99.0, id="p99 of 100 leaves out the worst"),
        pytest.param([float(n) for n in range(1, 51)], 99, 50.0, id="p99 of 50 is the worst"),
        pytest.param([1.0, 9.0], 100, 9.0, id="p100 is the worst"),
    ],
)
def test_percentile(values: list[float], percent: float, expected: float) -> None:
    """The nearest rank of what was measured."""
    assert expected == percentile(values, percent)


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 100))
def test_a_percentile_was_measured_and_leaves_its_share_below(values: list[float], percent: int) -> None:
    """A percentile is one of the values, and at least that share of them is not above it."""
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)


@pytest.mark.parametrize(
    ("values", "percent"),
    [
        pytest.param([], 50, id="of nothing there is none"),
        pytest.param([1.0], 0, id="0 is none"),
        pytest.param([1.0], 101, id="more than all is none"),
    ],
)
def test_percentile_refuses(values: list[float], percent: float) -> None:
    """What has no percentile says so."""
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, percent)


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        pytest.param(Figure(name="a", value=1.0), None, id="without an aim nothing is met or missed"),
        pytest.param(Figure(name="a", value=1.0, aim=1.0), True, id="the aim itself is met"),
        pytest.param(Figure(name="a", value=1.1, aim=1.0), False, id="more than the aim is missed"),
        pytest.param(Figure(name="a", value=0.7, aim=0.7, at_least=True), True, id="the least itself is met"),
        pytest.param(
            Figure(name="a", value=0.6, aim=0.7, at_least=True), False, id="less than the least is missed"
        ),
    ],
)
def test_met(figure: Figure, expected: bool | None) -> None:
    """A figure is held against its aim."""
    assert expected is figure.met


def test_table() -> None:
    """Each figure stands beside its aim and beside what was run with it, in columns."""
    lines = table(
        [
            Figure(name="long_p99_s", value=0.123456, aim=1.0, beside="2.00 x bare (0.06 s)"),
            Figure(name="rate", value=0.5, aim=0.7, at_least=True),
            Figure(name="samples", value=200),
        ]
    )
    assert lines == [
        "figure      measured     aim          beside it, in the same run",
        "long_p99_s    0.1235    <= 1  met     2.00 x bare (0.06 s)",
        "rate             0.5  >= 0.7  MISSED",
        "samples          200",
    ]


def test_flat() -> None:
    """--json is one flat object; counts stay whole numbers, seconds are rounded to microseconds."""
    figures = [Figure(name="a_s", value=0.123456789), Figure(name="count", value=7)]
    found = flat(figures)
    assert found == {"a_s": 0.123457, "count": 7}
    assert isinstance(found["count"], int)


def test_flat_refuses_a_name_twice() -> None:
    """Of two figures under one name one would be lost."""
    with pytest.raises(ValueError, match="twice"):
        flat([Figure(name="a", value=1.0), Figure(name="a", value=2.0)])


@pytest.mark.parametrize(
    ("value", "floor", "expected"),
    [
        pytest.param(0.03, 0.01, "3.00 x bare (0.01 s)", id="three times the floor"),
        pytest.param(0.03, 0.0, "beyond measure: bare (0 s)", id="no division by a floor of nothing"),
    ],
)
def test_beside(value: float, floor: float, expected: str) -> None:
    """The ratio and the floor's own number are said together."""
    assert expected == beside(value, floor, "bare")
