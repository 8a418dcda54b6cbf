"""The scheduler of hosted agents: real threads, short times, bounded waits."""

import threading
import time
from collections.abc import Iterator

import pytest

from sandbox.rounds import Rounds


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    made = Rounds("test", threads=4)
    yield made
    made.stop()


def test_a_job_is_called_again_when_it_said(rounds: Rounds) -> None:
    """Each call says when the next is due."""
    calls = threading.Semaphore(0)

    def job() -> float:
        calls.release()
        return 0.01

    rounds.add("often", job)

    assert all(calls.acquire(timeout=5) for _ in range(5))


def test_a_wake_comes_before_what_was_due(rounds: Rounds) -> None:
    """A job that is due in an hour is called at once when woken."""
    calls = threading.Semaphore(0)

    def job() -> float:
        calls.release()
        return 3600.0

    added = rounds.add("seldom", job)
    first = calls.acquire(timeout=5)
    added.wake()

    assert (first, calls.acquire(timeout=5)) == (True, True)


def test_a_job_never_runs_twice_at_once_and_no_wake_is_lost(rounds: Rounds) -> None:
    """Woken while it runs, it is called once more afterwards."""
    entered, leave = threading.Semaphore(0), threading.Semaphore(0)
    at_once: list[int] = []
    running = 0

    def job() -> float:
        nonlocal running
        running += 1
        at_once.append(running)
        entered.release()
        leave.acquire(timeout=5)
        running -= 1
        return 3600.0

    added = rounds.add("slow", job)
    entered.acquire(timeout=5)
    for _ in range(3):
        added.wake()
    leave.release()
    again = entered.acquire(timeout=5)
    leave.release()
    third = entered.acquire(timeout=0.1)

    assert (again, third, at_once) == (True, False, [1, 1])


def test_an_ended_job_is_not_called_any_more(rounds: Rounds) -> None:
    """Ending waits for the call that runs; a later wake does nothing."""
    entered = threading.Semaphore(0)
    done: list[str] = []

    def job() -> float:
        entered.release()
        time.sleep(0.05)
        done.append("done")
        return 0.0

    added = rounds.add("ended", job)
    entered.acquire(timeout=5)
    added.end()
    count = len(done)
    added.wake()
    time.sleep(0.1)

    assert count >= 1
    assert len(done) == count


def test_a_job_that_raises_is_no_other_jobs_trouble(rounds: Rounds) -> None:
    """It is logged and comes again; the threads live on."""
    calls = threading.Semaphore(0)

    def broken() -> float:
        raise ValueError("a defect")

    def job() -> float:
        calls.release()
        return 0.01

    for _ in range(8):
        rounds.add("broken", broken)
    rounds.add("well", job)

    assert all(calls.acquire(timeout=5) for _ in range(3))
