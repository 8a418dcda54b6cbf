"""Which queue is served first, step by step of KAI's order, and keys that sort like the comparison."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.amounts import NOTHING, RESOURCES, UNLIMITED, Amounts
from controller.scheduler.model import Queue, Quota
from controller.scheduler.queue_order import Standing, first
from controller.scheduler.queues import allocatable
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
    keys = Standing(one, TOTAL).key(jobs[0], NOTHING), Standing(other, TOTAL).key(jobs[1], NOTHING)
    assert (result == -1) == (keys[0] < keys[1])


@given(sides, st.lists(st.integers(0, 1 << 45), min_size=12, max_size=12))
def test_the_dominant_share_is_the_largest_ratio_of_the_three_resources(
    side: Side, numbers: list[int]
) -> None:
    """Worked out with one denominator for all three, it is what each resource by itself gives."""
    state = queue(side)
    state.fair_share[:], state.allocated[:] = numbers[:3], numbers[3:6]
    asked, gone = (numbers[6], numbers[7], numbers[8]), (numbers[9], numbers[10], numbers[11])
    shares = [allocatable(state, resource) for resource in RESOURCES]
    bounds = [TOTAL[at] if share == UNLIMITED else share for at, share in enumerate(shares)]

    def largest(held: list[int]) -> int:
        by_share = [1000 * one if bound == 0 else one for one, bound in zip(held, bounds, strict=True)]
        divisors = [bound or (1000, 1, 1)[at] for at, bound in enumerate(bounds)]
        return max(0, *((one << 128) // below for one, below in zip(by_share, divisors, strict=True)))

    then = [state.allocated[at] + asked[at] - gone[at] for at in RESOURCES]
    found = Standing(state, TOTAL).key(asked, gone)
    assert (found[5], found[6]) == (largest(then), largest(state.allocated))
