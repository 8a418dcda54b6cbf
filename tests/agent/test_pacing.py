"""Token bucket and back-off: the bounds hold whatever is asked when."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent.pacing import Backoff, TokenBucket, stretched


@given(
    burst=st.integers(1, 8),
    refill=st.integers(1, 20),
    gaps=st.lists(st.integers(0, 30), max_size=60),
    reserves=st.lists(st.integers(0, 3), min_size=60, max_size=60),
)
def test_no_window_holds_more_than_the_burst_and_its_refills(
    burst: int, refill: int, gaps: list[int], reserves: list[int]
) -> None:
    """Among all writes that were allowed, any n of them span at least the refills that n needs beyond the burst."""
    bucket = TokenBucket(burst, float(refill))
    now = 0.0
    taken: list[float] = []
    for gap, reserve in zip(gaps, reserves, strict=False):
        now += gap
        if bucket.wait_s(now, reserve=reserve) == 0:
            bucket.take(now)
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            allowed = burst + (taken[last] - taken[first]) / refill
            assert last - first + 1 <= allowed + 1e-6


def test_the_wait_is_exactly_until_the_next_write_is_allowed() -> None:
    """A caller that sleeps as told is allowed at once and never early."""
    bucket = TokenBucket(2, 10.0)
    bucket.take(0.0)
    bucket.take(1.0)
    assert bucket.wait_s(1.0) == 9.0
    assert bucket.wait_s(9.9) > 0
    assert bucket.wait_s(10.0) == 0


def test_a_reserve_is_left_for_others_and_a_full_bucket_serves_all() -> None:
    """With six tokens and a reserve of two, four are taken at once; the other two stay for who keeps no reserve."""
    bucket = TokenBucket(6, 10.0)
    taken = 0
    while bucket.wait_s(0.0, reserve=2) == 0:
        bucket.take(0.0)
        taken += 1
    assert taken == 4
    assert bucket.wait_s(0.0) == 0


def test_what_never_left_is_given_back() -> None:
    """A write that did not reach the server costs nothing."""
    bucket = TokenBucket(1, 10.0)
    bucket.take(0.0)
    bucket.give_back()
    assert bucket.wait_s(0.0) == 0


@given(st.integers(0, 50), st.integers(0, 1000))
def test_a_backoff_grows_to_its_bound_and_never_beyond(failures: int, seed: int) -> None:
    """The wait is jittered within the upper half of the doubled one."""
    backoff = Backoff(0.5, 10.0, Random(seed))
    for _ in range(failures):
        backoff.failed()
    wanted = min(10.0, 0.5 * 2.0 ** min(failures, 30))
    assert wanted / 2 <= backoff.failed() <= wanted
    assert backoff.failures == failures + 1


def test_a_success_starts_a_backoff_anew() -> None:
    """After a success the next failure waits short again."""
    backoff = Backoff(0.5, 10.0, Random(1))
    for _ in range(10):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failed() <= 0.5


@given(st.integers(1, 10_000), st.integers(0, 1000))
def test_a_stretched_interval_is_never_shorter(seconds: int, seed: int) -> None:
    """So twelve writes an hour stay at most twelve."""
    assert seconds <= stretched(float(seconds), Random(seed)) <= seconds * 1.2 + 1e-6
