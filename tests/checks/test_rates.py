"""Growth of counters within windows of watched time."""

from hypothesis import given
from hypothesis import strategies as st

from checks.rates import MAX_SERIES, Rates, Series

HOUR = 3_600_000


def at(clock_ms: int, held: dict[str, Series] | None = None, window_ms: int = HOUR) -> Rates:
    return Rates(held or {}, clock_ms, window_ms)


def test_the_first_sight_of_a_counter_is_no_growth() -> None:
    """What was counted before anybody looked is nobody's rate."""
    rates = at(0)
    assert rates.count("a", 500) == 0
    assert rates.grown("a", HOUR) == 0
    assert rates.last("a") == 500


def test_growth_leaves_the_window_with_time() -> None:
    """It counts while it is younger than the window that is asked for, whichever that is."""
    first = at(0)
    first.count("a", 10)
    second = at(60_000, first.memory())
    assert second.count("a", 17) == 7
    assert second.grown("a", 60_000) == 7
    later = at(3 * 60_000, second.memory())
    later.count("a", 17)
    assert later.grown("a", 60_000) == 0
    assert later.grown("a", HOUR) == 7
    assert at(60_000 + HOUR, later.memory()).grown("a", HOUR) == 0


def test_a_counter_that_began_anew_has_grown_by_what_it_shows() -> None:
    """A driver that was loaded again counts from nothing."""
    first = at(0)
    first.count("a", 1_000)
    second = at(1_000, first.memory())
    assert second.count("a", 3) == 3
    assert second.grown("a", HOUR) == 3


def test_what_was_dealt_with_is_no_growth_any_more() -> None:
    """A counter that is calmed keeps its value, so that what comes after counts."""
    first = at(0)
    first.count("a x", 1)
    first.count("b x", 1)
    second = at(1_000, first.memory())
    second.count("a x", 5)
    second.count("b x", 5)
    second.calm(lambda key: key.startswith("a "))
    assert (second.grown("a x", HOUR), second.grown("b x", HOUR)) == (0, 4)
    assert second.count("a x", 6) == 1


def test_a_value_that_is_only_taken_is_no_growth() -> None:
    """What grew before still counts, and the next growth is counted from there; a first sight is one."""
    rates = at(0)
    rates.take("a", 10)
    rates.count("a", 15)
    rates.take("a", 3)
    rates.count("a", 4)
    assert (rates.grown("a", HOUR), rates.last("a")) == (6, 4)


def test_a_counter_at_its_end_grows_no_more() -> None:
    """It saturates there (PMA counters of InfiniBand have 4 to 32 bits)."""
    first = at(0)
    first.count("a", 254, most=255)
    second = at(1_000, first.memory())
    assert second.count("a", 999, most=255) == 1


def test_the_number_of_counters_is_bounded() -> None:
    """One more than there is room for is not kept, and what is kept goes on."""
    rates = at(0)
    for number in range(MAX_SERIES + 1):
        rates.count(str(number), 1)
    assert len(rates.memory()) == MAX_SERIES
    assert rates.last(str(MAX_SERIES)) is None


@given(st.lists(st.tuples(st.integers(0, 600_000), st.integers(0, 50)), max_size=60))
def test_nothing_that_was_counted_is_lost_and_memory_stays_small(steps: list[tuple[int, int]]) -> None:
    """Over a window that is longer than all of it, growth is the sum of the steps; buckets stay few."""
    clock_ms, value = 0, 0
    rates = at(0)
    rates.count("a", 0)
    for passed_ms, growth in steps:
        clock_ms += passed_ms
        value += growth
        rates = at(clock_ms, rates.memory())
        rates.count("a", value)
    # The last 15 of 16 buckets are whole, whatever the rhythm of the looks.
    assert rates.grown("a", 10**12) <= value
    assert len(rates.memory()["a"].grown) <= 18
    if clock_ms < HOUR:
        assert rates.grown("a", HOUR) == value


def test_a_bucket_is_not_younger_than_what_is_in_it() -> None:
    """Growth at the end of a bucket is dated with the bucket's beginning, at most a sixteenth of the window too early."""
    first = at(0)
    first.count("a", 0)
    rates = at(1_000, first.memory())
    rates.count("a", 1)
    rates = at(200_000, rates.memory())
    rates.count("a", 2)
    assert rates.memory()["a"].grown == ((1_000, 2),)
