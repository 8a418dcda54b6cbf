"""Which queue is served first, step by step of KAI's order, and keys that sort like the comparison."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.amounts import NOTHING, UNLIMITED, Amounts
from controller.scheduler.model import Queue, Quota
from controller.scheduler.queue_order import first, key
from controller.scheduler.state import QueueState

TOTAL = (16_000, 64_000, 1 << 40)
ONE_GPU = (1000, 1000, 1 << 30)


class Side(NamedTuple):
    """One of two siblings; numbers are GPUs, CPU and memory follow in a fixed proportion."""

    held: int = 0
    deserved: int = 0
    fair: int = 0
    limit: int = UNLIMITED
    priority: int = 100
    created: int = 0


def amounts(gpus: int) -> Amounts:
    return (gpus * 1000, gpus * 1000, gpus << 30)


def queue(side: Side, name: str = "q") -> QueueState:
    quotas = [
        Quota(deserved=d, limit=side.limit if side.limit == UNLIMITED else limit)
        for d, limit in zip(amounts(side.deserved), amounts(side.limit), strict=True)
    ]
    spec = Queue(
        name=name, priority=side.priority, created=side.created, quotas=(quotas[0], quotas[1], quotas[2])
    )
    state = QueueState(spec, None)
    state.fair_share[:] = amounts(side.fair)
    state.allocated[:] = amounts(side.held)
    return state


@pytest.mark.parametrize(
    ("winner", "loser", "job"),
    [
        pytest.param(
            Side(4, 0, 4, priority=1), Side(3, 0, 2, priority=9), NOTHING, id="not above its fair share"
        ),
        pytest.param(
            Side(1, 2, 8, priority=1), Side(2, 2, 8, priority=9), ONE_GPU, id="within quota with its job"
        ),
        pytest.param(Side(3, 1, 8, priority=9), Side(2, 1, 8, priority=1), ONE_GPU, id="the higher priority"),
        pytest.param(Side(7, 0, 8), Side(0, 0, 0), ONE_GPU, id="has a share of what it uses"),
        pytest.param(Side(3, 0, 8), Side(2, 0, 4), ONE_GPU, id="the lower dominant share with the job"),
        pytest.param(Side(2, 1, 4), Side(2, 2, 2), amounts(2), id="the lower dominant share"),
        pytest.param(Side(0, 0, 2), Side(0, 0, 4), NOTHING, id="the smaller allocatable share"),
        pytest.param(Side(1, 1, 4, created=1), Side(1, 1, 4, created=2), ONE_GPU, id="the older"),
    ],
)
def test_who_is_served_first(winner: Side, loser: Side, job: Amounts) -> None:
    """Whichever of the two stands left."""
    one, other = queue(winner, "one"), queue(loser, "other")
    assert first(one, other, job, job, NOTHING, NOTHING, TOTAL) == -1
    assert first(other, one, job, job, NOTHING, NOTHING, TOTAL) == 1
    assert first(one, one, job, job, NOTHING, NOTHING, TOTAL) == 0


def test_victims_chosen_so_far_count_as_gone() -> None:
    """So that the next victim comes from the queue that is then the fullest."""
    one, other = queue(Side(4, 0, 4), "one"), queue(Side(3, 0, 4), "other")
    assert first(one, other, NOTHING, NOTHING, NOTHING, NOTHING, TOTAL) == 1
    assert first(one, other, NOTHING, NOTHING, amounts(2), NOTHING, TOTAL) == -1


def test_a_gpu_user_with_cpu_to_spare_is_not_above_its_fair_share() -> None:
    """KAI asks for all three resources, and we follow it."""
    one, other = queue(Side(1, 0, 4, priority=1), "one"), queue(Side(8, 0, 4, priority=9), "other")
    assert first(one, other, NOTHING, NOTHING, NOTHING, NOTHING, TOTAL) == -1
    other.fair_share[1] = 100_000
    assert first(one, other, NOTHING, NOTHING, NOTHING, NOTHING, TOTAL) == 1


def test_dominant_shares_are_compared_exactly() -> None:
    """Two ratios that no binary fraction of 53 bits tells apart, in bytes of a large cluster."""
    one, other = queue(Side(), "one"), queue(Side(), "other")
    for state, held, share in ((one, 10**17, 3 * 10**17), (other, 10**17 + 1, 3 * 10**17 + 2)):
        state.allocated[2], state.fair_share[2] = held, share
    assert first(one, other, NOTHING, NOTHING, NOTHING, NOTHING, TOTAL) == -1


sides = st.builds(
    Side,
    held=st.integers(0, 4),
    deserved=st.integers(-1, 3),
    fair=st.integers(0, 4),
    priority=st.integers(1, 2),
    created=st.integers(0, 3),
)


@given(sides, sides, st.integers(0, 2), st.integers(0, 2))
def test_exactly_one_of_two_queues_is_first(left: Side, right: Side, left_job: int, right_job: int) -> None:
    """And the keys say the same."""
    one, other = queue(left, "one"), queue(right, "other")
    jobs = amounts(left_job), amounts(right_job)
    result = first(one, other, *jobs, NOTHING, NOTHING, TOTAL)
    assert result in {-1, 1}
    assert result == -first(other, one, jobs[1], jobs[0], NOTHING, NOTHING, TOTAL)
    assert (result == -1) == (key(one, jobs[0], NOTHING, TOTAL) < key(other, jobs[1], NOTHING, TOTAL))
