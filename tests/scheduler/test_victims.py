"""Whom reclaim, preemption and consolidation choose, by our rules: the cheapest, and nobody who comes back at once."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.scheduler.amounts import UNLIMITED
from controller.scheduler.model import PodSet, Settings, Snapshot, SubGroup, TopologyConstraint
from controller.scheduler.nodes import Level, Topology
from controller.scheduler.requests import Constraints, Request
from tests.scheduler.after import after
from tests.scheduler.words import NOW, cluster, decide, evicted, job, node, queue

HOUR = 3600


def on(node_name: str, *gpus: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Say where one pod runs."""
    return ((node_name, gpus),)


def _gone(snapshot: Snapshot) -> list[str]:
    return evicted(decide(snapshot))


# --- tables: who goes -------------------------------------------------------------------------------------------------


def an_old_small_job_before_a_young_large_one() -> tuple[Snapshot, list[str]]:
    small = job("small", "lender", on=on("n", 8), age_s=9 * HOUR)
    large = job("large", "lender", gpus=8, on=on("n", *range(8)), age_s=60)
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 9)], queues, [small, large, job("asks", "owner")]), ["small-0"]


def a_single_before_a_young_gang() -> tuple[Snapshot, list[str]]:
    single = job("single", "lender", on=on("n", 8), age_s=9 * HOUR)
    gang = job("gang", "lender", on=[("n", (gpu,)) for gpu in range(8)], age_s=60)
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 9)], queues, [single, gang, job("asks", "owner")]), ["single-0"]


def who_loses_the_least_work_of_equals() -> tuple[Snapshot, list[str]]:
    jobs = [
        job(f"ran-{minutes}", "lender", on=on("n", n), age_s=60 * minutes)
        for n, minutes in enumerate((50, 9, 30))
    ]
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 3)], queues, [*jobs, job("asks", "owner")]), ["ran-9-0"]


def a_fresh_checkpoint_before_a_fresh_start() -> tuple[Snapshot, list[str]]:
    saved = job("saved", "lender", on=on("n", 0), age_s=9 * HOUR, checkpoint_at=NOW - timedelta(seconds=30))
    young = job("young", "lender", on=on("n", 1), age_s=20 * 60)
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 2)], queues, [saved, young, job("asks", "owner")]), ["saved-0"]


def who_was_never_evicted_before_who_was() -> tuple[Snapshot, list[str]]:
    tried = job("tried", "lender", on=on("n", 0), age_s=600, restarts=3)
    other = job("other", "lender", on=on("n", 1), age_s=1200)
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 2)], queues, [tried, other, job("asks", "owner")]), ["other-0"]


def the_lower_priority_though_it_ran_longer() -> tuple[Snapshot, list[str]]:
    low = job("low", "lender", on=on("n", 0), age_s=9 * HOUR, priority=40)
    high = job("high", "lender", on=on("n", 1), age_s=60, priority=60)
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 2)], queues, [low, high, job("asks", "owner")]), ["low-0"]


def two_small_ones_on_one_node_rather_than_a_gang_over_two() -> tuple[Snapshot, list[str]]:
    gang = job("gang", "lender", gpus=2, on=[("a", (0, 1)), ("b", (0, 1))], age_s=60)
    small = [job(f"small-{n}", "lender", on=on("c", n), age_s=HOUR) for n in range(2)]
    queues = [queue("lender", 0), queue("owner", 2)]
    nodes = [node(name, 2) for name in "abc"]
    asks = job("asks", "owner", gpus=2)
    return cluster(nodes, queues, [gang, *small, asks]), ["small-0-0", "small-1-0"]


def a_surplus_pod_on_the_node_that_helps() -> tuple[Snapshot, list[str]]:
    elastic = job("elastic", "lender", least=1, on=[("a", (0,)), ("b", (0,)), ("b", (1,))])
    queues = [queue("lender", 0), queue("owner", 1)]
    there = node("b", 2, labels={"zone": "b"})
    asks = job("asks", "owner", constraints=Constraints(node_selector=(("zone", "b"),)))
    return cluster([node("a", 1), there], queues, [elastic, asks]), ["elastic-2"]


def both_sharers_of_a_card_for_a_whole_one() -> tuple[Snapshot, list[str]]:
    half = Request(portion=400, cpu_milli=1000, memory_bytes=1 << 20)
    sharers = [job(f"half-{n}", "lender", request=half, on=on("n", 0)) for n in range(2)]
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 1)], queues, [*sharers, job("asks", "owner")]), ["half-0-0", "half-1-0"]


def one_sharer_for_a_share() -> tuple[Snapshot, list[str]]:
    half = Request(portion=500, cpu_milli=1000, memory_bytes=1 << 20)
    sharers = [job(f"half-{n}", "lender", request=half, on=on("n", 0), age_s=600 * (n + 1)) for n in range(2)]
    queues = [queue("lender", 0), queue("owner", 1)]
    return cluster([node("n", 1)], queues, [*sharers, job("asks", "owner", request=half)]), ["half-0-0"]


def nobody_of_a_queue_within_its_quota() -> tuple[Snapshot, list[str]]:
    held = [job(f"held-{n}", "within", on=on("n", n)) for n in range(2)]
    queues = [queue("within", 2), queue("owner", 0)]
    return cluster([node("n", 2)], queues, [*held, job("asks", "owner")]), []


def the_borrower_rather_than_whoever_falls_below_quota() -> tuple[Snapshot, list[str]]:
    large = job("large", "lender", gpus=3, on=on("n", 0, 1, 2), age_s=60)
    small = job("small", "borrower", on=on("n", 3), age_s=9 * HOUR)
    queues = [queue("lender", 2), queue("borrower", 0), queue("owner", 1)]
    return cluster([node("n", 4)], queues, [large, small, job("asks", "owner")]), ["small-0"]


def one_that_makes_room_and_brings_the_queue_below_its_limit() -> tuple[Snapshot, list[str]]:
    low = job("low", "q", on=on("n", 0), priority=50)
    high = job("high", "q", priority=75)
    return cluster([node("n", 2)], [queue("q", 1, limit=1)], [low, high]), ["low-0"]


def nobody_of_the_same_priority() -> tuple[Snapshot, list[str]]:
    return cluster([node("n", 1)], [queue("q", 1)], [job("runs", "q", on=on("n", 0)), job("asks", "q")]), []


def nobody_for_a_gang_that_can_never_fit() -> tuple[Snapshot, list[str]]:
    held = [job(f"held-{n}", "lender", on=on(f"n-{n}", 0)) for n in range(3)]
    queues = [queue("lender", 0), queue("owner", 4)]
    return cluster([node(f"n-{n}", 1) for n in range(3)], queues, [*held, job("gang", "owner", pods=4)]), []


def one_rack_for_a_gang_that_needs_one() -> tuple[Snapshot, list[str]]:
    nodes = [node(f"n-{rack}{n}", 1, labels={"rack": rack}) for rack in "ab" for n in range(2)]
    held = [
        job(f"held-{rack}{n}", "lender", on=on(f"n-{rack}{n}", 0), age_s=HOUR)
        for rack in "ab"
        for n in range(2)
    ]
    root = SubGroup(
        pod_sets=(PodSet(min_available=2),), topology=TopologyConstraint(topology="t", required="rack")
    )
    gang = job("gang", "owner", pods=2, root=root)
    made = cluster(nodes, [queue("lender", 0), queue("owner", 2)], [*held, gang])
    topology = Topology(name="t", levels=(Level(node_label="rack"),))
    return msgspec.structs.replace(made, topologies=(topology,)), ["held-a0-0", "held-a1-0"]


def the_gang_alone_where_its_cheap_neighbour_would_not_be_enough() -> tuple[Snapshot, list[str]]:
    gang = job("gang", "lender", on=[(f"n-{n}", (0,)) for n in range(3)])
    single = job("single", "lender", on=on("n-3", 0))
    queues = [queue("lender", 1, weight=0), queue("owner", 2)]
    nodes = [node(f"n-{n}", 1) for n in range(4)]
    return cluster(nodes, queues, [gang, single, job("asks", "owner", pods=3)]), [
        "gang-0",
        "gang-1",
        "gang-2",
    ]


def one_job_rather_than_two_at_the_same_cost() -> tuple[Snapshot, list[str]]:
    sizes = {"one": (0,), "three": (1, 2, 3), "four": (4, 5, 6, 7)}
    jobs = [job(name, "lender", gpus=len(cards), on=on("n", *cards)) for name, cards in sizes.items()]
    queues = [queue("lender", 0), queue("owner", 4)]
    return cluster([node("n", 8)], queues, [*jobs, job("asks", "owner", gpus=4)]), ["four-0"]


def an_elastic_job_as_a_whole_beside_another() -> tuple[Snapshot, list[str]]:
    elastic = job("elastic", "lender", least=1, on=[("n", (0,)), ("n", (1,))], age_s=HOUR)
    single = job("single", "lender", on=on("n", 2))
    queues = [queue("lender", 0), queue("owner", 3)]
    gone = ["elastic-0", "elastic-1", "single-0"]
    return cluster([node("n", 3)], queues, [elastic, single, job("asks", "owner", gpus=3)]), gone


ROWS: list[Callable[[], tuple[Snapshot, list[str]]]] = [
    an_old_small_job_before_a_young_large_one,
    a_single_before_a_young_gang,
    who_loses_the_least_work_of_equals,
    a_fresh_checkpoint_before_a_fresh_start,
    who_was_never_evicted_before_who_was,
    the_lower_priority_though_it_ran_longer,
    two_small_ones_on_one_node_rather_than_a_gang_over_two,
    a_surplus_pod_on_the_node_that_helps,
    both_sharers_of_a_card_for_a_whole_one,
    one_sharer_for_a_share,
    nobody_of_a_queue_within_its_quota,
    the_borrower_rather_than_whoever_falls_below_quota,
    one_that_makes_room_and_brings_the_queue_below_its_limit,
    nobody_of_the_same_priority,
    nobody_for_a_gang_that_can_never_fit,
    one_rack_for_a_gang_that_needs_one,
    the_gang_alone_where_its_cheap_neighbour_would_not_be_enough,
    one_job_rather_than_two_at_the_same_cost,
    an_elastic_job_as_a_whole_beside_another,
]


@pytest.mark.parametrize("make", ROWS, ids=[make.__name__ for make in ROWS])
def test_who_goes(make: Callable[[], tuple[Snapshot, list[str]]]) -> None:
    """Exactly these pods are evicted, and go nowhere else."""
    snapshot, victims = make()
    assert _gone(snapshot) == victims


# --- moving, protection, words, bounds --------------------------------------------------------------------------------


def test_jobs_move_together_rather_than_die() -> None:
    """Two free GPUs on two nodes become two on one: the cheaper pod moves, and is told where."""
    jobs = [job("left", "q", on=on("a", 0), age_s=HOUR), job("right", "q", on=on("b", 0), age_s=60)]
    plan = decide(cluster([node("a", 2), node("b", 2)], [queue("q", 4)], [*jobs, job("asks", "q", gpus=2)]))
    assert [(one.task, one.node, one.moved_to, one.action) for one in plan.evictions] == [
        ("right-0", "b", "a", "consolidation")
    ]


def test_a_job_that_may_not_be_preempted_moves_others_too() -> None:
    """Consolidation is not for it, but reclaim lets its victims find another place first."""
    borrowed = [job("left", "q", on=on("a", 0), age_s=HOUR), job("right", "q", on=on("b", 0), age_s=60)]
    asks = job("asks", "owner", gpus=2, preemptible=False)
    plan = decide(
        cluster([node("a", 2), node("b", 2)], [queue("q", 0), queue("owner", 2)], [*borrowed, asks])
    )
    assert [(one.task, one.moved_to) for one in plan.evictions] == [("right-0", "a")]


def test_nobody_moves_where_moving_is_switched_off() -> None:
    """max-consolidation-preemptees 0 switches the action off, as in KAI."""
    jobs = [job("left", "q", on=on("a", 0)), job("right", "q", on=on("b", 0))]
    off = Settings(max_consolidation_preemptees=0)
    nodes = [node("a", 2), node("b", 2)]
    assert not decide(
        cluster(nodes, [queue("q", 4)], [*jobs, job("asks", "q", gpus=2)], settings=off)
    ).evictions


@pytest.mark.parametrize(
    ("least_s", "victims"), [(601, []), (600, ["runs-0"])], ids=["still safe", "just over"]
)
def test_a_minimum_run_time_is_kept(least_s: int, victims: list[str]) -> None:
    """A job that has not run for its queue's minimum is no victim."""
    runs = job("runs", "lender", on=on("n", 0), age_s=600)
    queues = [queue("lender", 0, reclaim_min_runtime_s=least_s), queue("owner", 1)]
    assert _gone(cluster([node("n", 1)], queues, [runs, job("asks", "owner")])) == victims


@pytest.mark.parametrize(("delay_s", "victims"), [(601, []), (600, ["runs-0"])], ids=["too early", "in time"])
def test_a_preemption_delay_is_waited_for(delay_s: int, victims: list[str]) -> None:
    """A job may evict nobody before it waited as long as it says, and is told so."""
    asks = job("asks", "owner", age_s=600, preemption_delay_s=delay_s)
    made = cluster(
        [node("n", 1)], [queue("lender", 0), queue("owner", 1)], [job("runs", "lender", on=on("n", 0)), asks]
    )
    assert _gone(made) == victims


def test_an_eviction_says_for_whom_why_and_at_what_cost() -> None:
    """The sentence names the evictor, the queue's numbers and the cost; `gains` names the evictor."""
    runs = job("runs", "lender", on=on("n", 0), age_s=60)
    plan = decide(
        cluster([node("n", 1)], [queue("lender", 0), queue("owner", 1)], [runs, job("asks", "owner")])
    )
    assert [(one.gains, one.why) for one in plan.evictions] == [
        (
            "asks",
            (
                "reclaimed for job asks of queue owner: queue lender holds 1 GPUs with a quota of 0 and a fair share of 0; "
                "costs 3660 GPU-seconds, nothing cheaper was found"
            ),
        )
    ]


def test_a_search_that_ran_out_says_so_and_keeps_what_it_found() -> None:
    """One step is enough for one victim; the rest waits for the next cycle."""
    held = [job(f"held-{n}", "lender", on=on(f"n-{n}", 0)) for n in range(4)]
    asks = [job(f"asks-{n}", "owner") for n in range(4)]
    few = Settings(search_steps=2)
    nodes, queues = [node(f"n-{n}", 1) for n in range(4)], [queue("lender", 0), queue("owner", 4)]
    plan = decide(cluster(nodes, queues, [*held, *asks], settings=few))
    assert "reclaim" in plan.exhausted
    assert 0 < len(plan.evictions) < 4


def test_a_victim_whose_turn_comes_first_is_not_evicted() -> None:
    """The owner's older job wants more than it may have: next cycle the victim would be served before the evictor."""
    runs = [job("keeps", "lender", gpus=2, on=on("n", 0, 1)), job("runs", "lender", on=on("n", 2))]
    holds = job("holds", "owner", on=on("n", 3))
    waits = [job("large", "owner", gpus=3, age_s=500), job("asks", "owner", age_s=400)]
    queues = [queue("lender", 2, created=0), queue("owner", 2, created=1)]
    snapshot = cluster([node("n", 4)], queues, [*runs, holds, *waits])
    assert _gone(snapshot) == []


# --- rest -------------------------------------------------------------------------------------------------------------


@st.composite
def full_clusters(draw: st.DrawFn) -> Snapshot:
    """Draw a cluster in which almost everything runs already and others are entitled to it."""
    nodes = [node(f"n-{n}", draw(st.sampled_from([1, 2, 4]))) for n in range(draw(st.integers(1, 3)))]
    free = [(made.name, gpu) for made in nodes for gpu in range(len(made.gpus))]
    queues = [
        queue(name, draw(st.integers(0, 3)), created=n, weight=draw(st.integers(0, 2)), limit=draw(limits))
        for n, name in enumerate(("red", "green", "blue"))
    ]
    names, priorities = st.sampled_from(["red", "green", "blue"]), st.sampled_from([40, 50, 60])
    jobs = []
    for n, (name, gpu) in enumerate(free):
        if draw(st.booleans()):
            ages = st.integers(10, 2 * HOUR)
            jobs.append(
                job(f"runs-{n}", draw(names), on=on(name, gpu), priority=draw(priorities), age_s=draw(ages))
            )
    for n in range(draw(st.integers(1, 5))):
        pods = draw(st.integers(1, 3))
        least = draw(st.integers(1, pods))
        asks = job(
            f"asks-{n}", draw(names), pods=pods, least=least, gpus=draw(st.integers(1, 2)), age_s=900 - n
        )
        jobs.append(msgspec.structs.replace(asks, priority=draw(priorities), preemptible=draw(st.booleans())))
    return cluster(nodes, queues, jobs)


limits = st.sampled_from([UNLIMITED, UNLIMITED, 3])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(full_clusters())
def test_evictions_come_to_an_end(snapshot: Snapshot) -> None:
    """Who was evicted waits again and evicts nobody in a circle: fifty cycles later nothing moves any more."""
    counts = []
    for _ in range(50):
        plan = decide(snapshot)
        counts.append(len(plan.evictions))
        snapshot = after(snapshot, plan)
    assert not any(counts[25:])
