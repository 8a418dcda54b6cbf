"""What a queue used in the past, decayed and in millionths."""

from datetime import UTC, datetime, timedelta

import pytest

from controller.scheduler.usage import Sample, decayed, weight

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = 3600


def sample(hours_ago: float, gpus: int, capacity: int = 8) -> Sample:
    at = NOW - timedelta(hours=hours_ago)
    return Sample(at=at, held=(gpus * 1000, 0, 0), capacity=(capacity * 1000, 64_000, 0))


@pytest.mark.parametrize(
    ("samples", "window_h", "half_life_h", "wanted"),
    [
        pytest.param([], 24, 0, 0, id="no history"),
        pytest.param([sample(4, 4)], 24, 0, 500_000, id="half of the cluster all the time"),
        pytest.param([sample(4, 8), sample(1, 0)], 24, 0, 750_000, id="three of four hours"),
        pytest.param([sample(4, 8), sample(1, 0)], 2, 0, 500_000, id="only the window counts"),
        pytest.param([sample(9, 8), sample(5, 0)], 2, 0, 0, id="what ended before it counts nothing"),
        pytest.param([sample(2, 8), sample(1, 0)], 24, 1, 333_333, id="an hour ago counts half"),
        pytest.param([sample(2, 0), sample(1, 8)], 24, 1, 666_666, id="the last hour counts whole"),
        pytest.param([sample(2, 4, 8), sample(1, 4, 4)], 24, 0, 666_666, id="the capacity of its time"),
    ],
)
def test_the_share_of_the_past(samples: list[Sample], window_h: int, half_life_h: int, wanted: int) -> None:
    """In millionths of the capacity; CPU unused and memory without capacity are 0."""
    assert decayed(samples, NOW, window_h * HOUR, half_life_h * HOUR) == (wanted, 0, 0)


def test_weights_halve_with_every_half_life_and_never_rise() -> None:
    """Exact at whole half-lives, close to the power in between."""
    assert weight(0, 600) == 1 << 60
    assert weight(600, 600) == 1 << 59
    assert weight(3000, 600) == 1 << 55
    assert abs(weight(300, 600) / (1 << 60) - 0.5**0.5) < 1e-5
    weights = [weight(age, 997) for age in range(3000)]
    assert weights == sorted(weights, reverse=True)
