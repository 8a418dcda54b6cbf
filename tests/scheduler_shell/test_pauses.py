"""Growing pauses: who fails again and again goes back, once a pause is one failure, and success ends the row."""

from datetime import timedelta

from controller.scheduler.shell.pauses import FORGET_AFTER, Pauses
from tests.fakes import EPOCH


def test_pauses_grow_with_each_failure_in_a_row() -> None:
    """The last step repeats."""
    pauses, now, seen = Pauses((1, 5, 30)), EPOCH, []
    for _ in range(5):
        pauses.failed("job", "refused", now)
        until = pauses.holding(now)["job"].until
        seen.append((until - now) / timedelta(seconds=1))
        now = until
    assert seen == [1, 5, 30, 30, 30]


def test_many_failures_within_one_pause_count_once() -> None:
    """The hundred members of a gang fail together."""
    pauses = Pauses((1, 5, 30))
    for _ in range(100):
        pauses.failed("gang", "refused", EPOCH)
    assert pauses.holding(EPOCH)["gang"].tries == 1


def test_success_ends_the_row() -> None:
    """The next failure is a first one."""
    pauses = Pauses((1, 5))
    pauses.failed("job", "refused", EPOCH)
    pauses.succeeded("job")
    assert pauses.holding(EPOCH) == {}


def test_the_servers_own_wish_counts_where_it_is_longer() -> None:
    """Retry-After is believed, and never shortens a pause."""
    pauses = Pauses((10,))
    pauses.failed("a", "busy", EPOCH, wait_s=60)
    pauses.failed("b", "busy", EPOCH, wait_s=1)
    held = pauses.holding(EPOCH)
    assert held["a"].until == EPOCH + timedelta(seconds=60)
    assert held["b"].until == EPOCH + timedelta(seconds=10)


def test_a_row_that_stood_still_is_forgotten_and_the_size_is_bounded() -> None:
    """Nothing is kept for ever."""
    pauses = Pauses((1,), most=3)
    for number in range(5):
        pauses.failed(f"job-{number}", "refused", EPOCH)
    assert set(pauses.holding(EPOCH)) == {"job-2", "job-3", "job-4"}
    later = EPOCH + FORGET_AFTER + timedelta(seconds=2)
    assert pauses.holding(later) == {}
    pauses.failed("job-4", "refused", later)
    assert pauses.holding(later)["job-4"].tries == 1


def test_the_end_of_the_next_pause_is_known() -> None:
    """So that the loop turns then."""
    pauses = Pauses((5,))
    assert pauses.next_until(EPOCH) is None
    pauses.failed("job", "refused", EPOCH)
    assert pauses.next_until(EPOCH) == EPOCH + timedelta(seconds=5)
    assert pauses.next_until(EPOCH + timedelta(seconds=5)) is None
