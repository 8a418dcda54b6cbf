"""From which queue a victim comes where costs are equal: the one that is served most beyond its fair share."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.scheduler.model import Job, Queue, Snapshot
from controller.scheduler.rules import COMPATIBLE
from controller.scheduler.search.units import over_service
from controller.scheduler.state import QueueState
from tests.scheduler.after import after
from tests.scheduler.words import cluster, decide, evicted, job, node, queue

HOUR = 3600
OLD, OLDER = 9 * HOUR, 10 * HOUR


def running(of: str, count: int, *, first: int = 0, age_s: int = OLD) -> list[Job]:
    """Give jobs of one GPU each, on the GPUs of node n from a first one on; after an hour all cost alike."""
    return [job(f"{of}-{n}", of, on=[("n", (first + n,))], age_s=age_s + count - n) for n in range(count)]


def one_node(gpus: int, queues: list[Queue], *jobs: list[Job]) -> Snapshot:
    return cluster([node("n", gpus)], queues, [each for some in jobs for each in some])


def the_most_over_served_queue_though_its_jobs_are_older() -> tuple[Snapshot, list[str]]:
    queues = [queue("far", 1), queue("near", 4), queue("owner", 3)]
    far, near = running("far", 3, age_s=OLDER), running("near", 5, first=3)
    return one_node(8, queues, far, near, [job("asks", "owner")]), ["far-2-0"]


def who_has_no_fair_share_before_who_has_one() -> tuple[Snapshot, list[str]]:
    queues = [queue("guest", 0, weight=0), queue("lender", 1, weight=0), queue("owner", 7)]
    guest, lender = running("guest", 1, age_s=OLDER), running("lender", 7, first=1)
    return one_node(8, queues, guest, lender, [job("asks", "owner")]), ["guest-0-0"]


def the_newest_of_queues_that_are_served_alike() -> tuple[Snapshot, list[str]]:
    queues = [queue("one", 2), queue("other", 2), queue("owner", 4)]
    one, other = running("one", 4, age_s=OLDER), running("other", 4, first=4)
    return one_node(8, queues, one, other, [job("asks", "owner")]), ["other-3-0"]


def the_cheapest_whichever_queue_has_it() -> tuple[Snapshot, list[str]]:
    queues = [queue("far", 1), queue("near", 4), queue("owner", 3)]
    far, near = running("far", 3), running("near", 5, first=3, age_s=60)
    return one_node(8, queues, far, near, [job("asks", "owner")]), ["near-4-0"]


def the_most_over_served_department_before_the_most_over_served_team() -> tuple[Snapshot, list[str]]:
    queues = [queue("far", 1), queue("near", 4), queue("owner", 3)]
    queues += [queue("calm", 1, parent="far"), queue("greedy", 0, parent="near", weight=0)]
    queues += [queue("modest", 4, parent="near")]
    calm, greedy = running("calm", 3, age_s=OLDER), running("greedy", 2, first=3)
    modest = running("modest", 3, first=5)
    return one_node(8, queues, calm, greedy, modest, [job("asks", "owner")]), ["calm-2-0"]


def in_turns_from_queues_that_become_alike() -> tuple[Snapshot, list[str]]:
    queues = [queue("one", 1), queue("other", 1), queue("owner", 6)]
    one, other = running("one", 4, age_s=OLDER), running("other", 4, first=4)
    asks = [job(f"asks-{n}", "owner") for n in range(4)]
    return one_node(8, queues, one, other, asks), ["one-2-0", "one-3-0", "other-2-0", "other-3-0"]


def both_of_two_from_the_most_over_served_queue() -> tuple[Snapshot, list[str]]:
    queues = [queue("far", 0, weight=0), queue("near", 2), queue("owner", 4)]
    far, near = running("far", 3, age_s=OLDER), running("near", 5, first=3)
    return one_node(8, queues, far, near, [job("asks", "owner", gpus=2)]), ["far-1-0", "far-2-0"]


def another_node_if_the_most_over_served_queue_is_there() -> tuple[Snapshot, list[str]]:
    far = [job(f"far-{n}", "far", on=[("z", (n,))], age_s=OLDER) for n in range(3)]
    near = running("near", 5)
    queues = [queue("far", 1), queue("near", 4), queue("owner", 3)]
    nodes = [node("n", 5), node("z", 3)]
    return cluster(nodes, queues, [*far, *near, job("asks", "owner")]), ["far-0-0"]


ROWS: list[Callable[[], tuple[Snapshot, list[str]]]] = [
    the_most_over_served_queue_though_its_jobs_are_older,
    who_has_no_fair_share_before_who_has_one,
    the_newest_of_queues_that_are_served_alike,
    the_cheapest_whichever_queue_has_it,
    the_most_over_served_department_before_the_most_over_served_team,
    in_turns_from_queues_that_become_alike,
    both_of_two_from_the_most_over_served_queue,
    another_node_if_the_most_over_served_queue_is_there,
]


@pytest.mark.parametrize("make", ROWS, ids=[make.__name__ for make in ROWS])
def test_whose_job_goes(make: Callable[[], tuple[Snapshot, list[str]]]) -> None:
    """Exactly these pods are evicted, and go nowhere else."""
    snapshot, victims = make()
    assert evicted(decide(snapshot)) == victims


# --- the number itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "less"),
    [
        pytest.param((3, 1), (5, 4), id="in proportion to the fair share"),
        pytest.param((1, 0), (9, 1), id="no fair share before any"),
        pytest.param((2, 0), (1, 0), id="without shares, who holds more"),
        pytest.param((1, 4), (0, 4), id="a part of it before nothing"),
        pytest.param((1, 4), (0, 0), id="nothing is never too much"),
    ],
)
def test_who_is_served_more(more: tuple[int, int], less: tuple[int, int]) -> None:
    """By what is held and the fair share, in GPUs."""
    assert over_service(_state(*more), True) < over_service(_state(*less), True)


def test_a_few_percent_make_no_difference() -> None:
    """Else one eviction among thousands would set all nodes in a new order."""
    assert over_service(_state(1601, 800), True) == over_service(_state(1600, 800), True)


def test_without_gpus_it_is_measured_in_cpu_and_memory() -> None:
    """By whichever is more."""
    state = _state(8, 1)
    state.allocated[1:], state.fair_share[1:] = [1000, 4 << 30], [1000, 1 << 30]
    assert over_service(state, False) == (-(4000 >> 7 << 7),)


def _state(held: int, fair: int) -> QueueState:
    state = QueueState(queue("q"), None)
    state.allocated[0], state.fair_share[0] = held * 1000, fair * 1000
    return state


# --- properties ------------------------------------------------------------------------------------------------------


@st.composite
def full_clusters(draw: st.DrawFn) -> Snapshot:
    """Draw full nodes of jobs that all cost alike, and owners that wait."""
    nodes = [node(f"n{n}", 4) for n in range(draw(st.integers(1, 3)))]
    names = [f"q{n}" for n in range(draw(st.integers(2, 4)))]
    parents = [queue("left", draw(st.integers(0, 6))), queue("right", draw(st.integers(0, 6)))]
    queues = [
        queue(name, draw(st.integers(0, 4)), parent=draw(st.sampled_from(["left", "right"])), created=at)
        for at, name in enumerate(names)
    ]
    jobs = [
        job(f"r{made.name}-{gpu}", draw(st.sampled_from(names)), on=[(made.name, (gpu,))], age_s=OLD + gpu)
        for made in nodes
        for gpu in range(4)
    ]
    jobs += [
        job(f"w{n}", draw(st.sampled_from(names)), age_s=900 - n) for n in range(draw(st.integers(1, 6)))
    ]
    return cluster(nodes, [*parents, *queues], jobs)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(full_clusters(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_decides_nothing(snapshot: Snapshot, random: object) -> None:
    """By both sets of rules."""
    jobs, queues = list(snapshot.jobs), list(snapshot.queues)
    random.shuffle(jobs)  # type: ignore[attr-defined]
    random.shuffle(queues)  # type: ignore[attr-defined]
    shuffled = msgspec.structs.replace(snapshot, jobs=tuple(jobs), queues=tuple(queues))
    assert decide(snapshot) == decide(shuffled)
    assert decide(snapshot, COMPATIBLE) == decide(shuffled, COMPATIBLE)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(full_clusters())
def test_evictions_among_equals_come_to_an_end(snapshot: Snapshot) -> None:
    """Who was evicted waits again: fifty cycles later nothing moves any more."""
    counts = []
    for _ in range(50):
        plan = decide(snapshot)
        counts.append(len(plan.evictions))
        snapshot = after(snapshot, plan)
    assert not any(counts[25:])
