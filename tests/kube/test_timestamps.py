from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.timestamps import micro_time, rfc3339


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z", id="zeros are written"
        ),
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-02T01:04:05.000060Z",
            id="another zone becomes UTC",
        ),
    ],
)
def test_micro_time_has_six_digits(at: datetime, expected: str) -> None:
    """The server parses MicroTime with exactly six fraction digits."""
    assert expected == micro_time(at)


def test_rfc3339_is_whole_seconds() -> None:
    """metav1.Time knows seconds only."""
    assert rfc3339(datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC)) == "2026-01-02T03:04:05Z"


def test_a_time_without_zone_is_refused() -> None:
    """A naive time would be read as somebody's local time."""
    with pytest.raises(ValueError, match="has no time zone"):
        micro_time(datetime(2026, 1, 2))  # noqa: DTZ001 - the point of the test


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_micro_time_reads_back_equal(at: datetime) -> None:
    """Nothing is lost between writing and decoding."""
    assert msgspec.convert(micro_time(at), datetime) == at
