"""Quotas by GPU model in reclaim: whose cards come back, whose are safe, and that it comes to an end."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.cycle import open_session
from controller.scheduler.model import Job, PodSet, Queue, Quota, Snapshot, SubGroup, TaskStatus
from controller.scheduler.nodes import Node
from controller.scheduler.requests import Constraints
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from tests.scheduler.after import after
from tests.scheduler.words import cluster, decide, evicted, job, node, queue

ON_H = Constraints(node_selector=(("model", "H100"),))
DAY = 86_400


def cards(name: str, model: str, count: int) -> Node:
    """Give a node of so many cards of one model, with the model as a label."""
    made = node(name, count, labels={"model": model})
    return msgspec.structs.replace(
        made, gpus=tuple(msgspec.structs.replace(gpu, model=model) for gpu in made.gpus)
    )


def named(
    name: str, gpus: float, models: Mapping[str, float] = {}, *, parent: str = "", **changes: object
) -> Queue:
    """Give a queue by its quota of all GPUs and of some models, in whole GPUs."""
    bounds = tuple(
        (model, Quota(deserved=round(count * WHOLE_GPU), limit=UNLIMITED)) for model, count in models.items()
    )
    return queue(name, gpus, parent=parent, models=bounds, **changes)  # type: ignore[arg-type]


def held(of: str, on: str, gpus: Sequence[int], age_s: int = DAY) -> list[Job]:
    """Give jobs that hold one card of a node each."""
    return [job(f"{of}-{on}{gpu}", of, on=[(on, (gpu,))], age_s=age_s + gpu) for gpu in gpus]


def world(queues: Sequence[Queue], *jobs: Sequence[Job], h100: int = 4, l40: int = 4) -> Snapshot:
    """Give a cluster of a node h with H100s and a node l with L40s."""
    nodes = [cards("h", "H100", h100), cards("l", "L40", l40)]
    return cluster(nodes, queues, [each for some in jobs for each in some])


def on_h(one: Job) -> Job:
    """Bind a job to nodes of H100s."""
    tasks = tuple(msgspec.structs.replace(task, constraints=ON_H) for task in one.tasks)
    return msgspec.structs.replace(one, tasks=tasks)


def asks(of: str, **changes: object) -> list[Job]:
    return [job("asks", of, **changes)]  # type: ignore[arg-type]


# --- whose cards come back -------------------------------------------------------------------------------------------


def ones_own_come_back_though_others_fill_the_total() -> tuple[Snapshot, list[str]]:
    queues = [named("owner", 4, {"H100": 4}), named("lender", 4)]
    jobs = held("owner", "l", range(4)), held("lender", "h", range(4))
    return world(queues, *jobs, asks("owner", constraints=ON_H)), ["lender-h0-0"]


def a_gang_gets_all_of_them() -> tuple[Snapshot, list[str]]:
    queues = [named("owner", 4, {"H100": 4}), named("lender", 4)]
    jobs = held("owner", "l", range(4)), held("lender", "h", range(4))
    gone = [f"lender-h{gpu}-0" for gpu in range(4)]
    return world(queues, *jobs, asks("owner", pods=2, gpus=2, constraints=ON_H)), gone


def no_more_than_the_quota_comes_back() -> tuple[Snapshot, list[str]]:
    queues = [named("owner", 3, {"H100": 2}), named("lender", 4)]
    jobs = held("owner", "l", range(3)), held("owner", "h", [0, 1]), held("lender", "h", [2, 3])
    return world(queues, *jobs, asks("owner", constraints=ON_H)), []


def a_part_of_a_gang_is_not_enough() -> tuple[Snapshot, list[str]]:
    queues = [named("owner", 4, {"H100": 2}), named("lender", 4)]
    jobs = held("owner", "l", range(4)), held("lender", "h", range(4))
    return world(queues, *jobs, asks("owner", pods=3, constraints=ON_H)), []


def from_who_is_beyond_and_not_from_who_is_within() -> tuple[Snapshot, list[str]]:
    queues = [
        named("owner", 4, {"H100": 1}),
        named("within", 2, {"H100": 2}),
        named("beyond", 2, {"H100": 1}),
    ]
    jobs = held("owner", "l", range(4)), held("within", "h", [0, 1], age_s=60), held("beyond", "h", [2, 3])
    return world(queues, *jobs, asks("owner", constraints=ON_H)), ["beyond-h2-0"]


def the_one_furthest_beyond_its_quota_of_the_model() -> tuple[Snapshot, list[str]]:
    queues = [named("owner", 4, {"H100": 1}), named("far", 3, {"H100": 1}), named("near", 3, {"H100": 2})]
    jobs = (
        held("owner", "l", range(4)),
        held("far", "h", [0, 1, 2], age_s=2 * DAY),
        held("near", "h", [3, 4, 5]),
    )
    return world(queues, *jobs, asks("owner", constraints=ON_H), h100=6), ["far-h0-0"]


def whoever_spares_all_quotas_though_it_costs_more() -> tuple[Snapshot, list[str]]:
    queues = [named("owner", 4, {"H100": 1}), named("within", 2), named("beyond", 0)]
    jobs = held("owner", "l", range(4)), held("within", "h", [0, 1], age_s=60), held("beyond", "h", [2, 3])
    return world(queues, *jobs, asks("owner", constraints=ON_H)), ["beyond-h2-0"]


def a_limit_alone_is_no_claim() -> tuple[Snapshot, list[str]]:
    limit = (("H100", Quota(deserved=UNLIMITED, limit=4 * WHOLE_GPU)),)
    queues = [queue("owner", 4, models=limit), named("lender", 4)]
    jobs = held("owner", "l", range(4)), held("lender", "h", range(4))
    return world(queues, *jobs, asks("owner", constraints=ON_H)), []


def not_what_must_not_be_preempted() -> tuple[Snapshot, list[str]]:
    queues = [named("owner", 4, {"H100": 4}), named("lender", 4)]
    kept = [msgspec.structs.replace(each, preemptible=False) for each in held("lender", "h", range(4))]
    return world(queues, held("owner", "l", range(4)), kept, asks("owner", constraints=ON_H)), []


# --- in a tree -------------------------------------------------------------------------------------------------------


def a_team_by_the_claim_of_its_department() -> tuple[Snapshot, list[str]]:
    queues = [
        named("a", 4, {"H100": 4}),
        named("a1", 4, parent="a"),
        named("b", 4),
        named("b1", 4, parent="b"),
    ]
    jobs = held("a1", "l", range(4)), held("b1", "h", range(4))
    return world(queues, *jobs, asks("a1", constraints=ON_H)), ["b1-h0-0"]


def no_claim_of_a_team_against_other_departments() -> tuple[Snapshot, list[str]]:
    queues = [
        named("a", 4),
        named("a1", 4, {"H100": 4}, parent="a"),
        named("b", 4),
        named("b1", 4, parent="b"),
    ]
    jobs = held("a1", "l", range(4)), held("b1", "h", range(4))
    return world(queues, *jobs, asks("a1", constraints=ON_H)), []


def the_claim_of_a_team_against_its_neighbour() -> tuple[Snapshot, list[str]]:
    queues = [named("a", 8), named("a1", 4, {"H100": 4}, parent="a"), named("a2", 4, parent="a")]
    jobs = held("a1", "l", range(4)), held("a2", "h", range(4))
    return world(queues, *jobs, asks("a1", constraints=ON_H)), ["a2-h0-0"]


def no_team_within_its_quota_of_a_department_beyond() -> tuple[Snapshot, list[str]]:
    queues = [named("a", 4, {"H100": 2}), named("a1", 4, parent="a"), named("b", 4, {"H100": 2})]
    queues += [named("b1", 2, {"H100": 2}, parent="b"), named("b2", 2, {"H100": 0}, parent="b")]
    jobs = held("a1", "l", range(4)), held("b1", "h", [0, 1], age_s=60), held("b2", "h", [2, 3])
    return world(queues, *jobs, asks("a1", constraints=ON_H)), ["b2-h2-0"]


# --- who is safe, and shortage ---------------------------------------------------------------------------------------


def who_is_within_its_quota_of_the_model_is_safe_from_fair_shares() -> tuple[Snapshot, list[str]]:
    queues = [named("safe", 2, {"H100": 4}), named("poor", 4)]
    jobs = held("safe", "h", range(4)), held("safe", "l", range(4))
    return world(queues, *jobs, asks("poor", constraints=ON_H)), []


def and_from_who_would_move_it_where_there_is_no_other_place() -> tuple[Snapshot, list[str]]:
    """An A10 is free, which neither may take. The H100s of a gang that holds an L40 within a quota could not be had back."""
    no_a10 = ("A10", Quota(deserved=0, limit=0))
    within = ("L40", Quota(deserved=4 * WHOLE_GPU, limit=UNLIMITED))
    queues = [named("safe", 2, {"H100": 4}), queue("poor", 4, models=(within, no_a10))]
    kept = [on_h(each) for each in held("safe", "h", range(4))]
    known = world(queues, kept, asks("poor", pods=2), l40=1)
    return msgspec.structs.replace(known, nodes=(cards("a", "A10", 1), *known.nodes)), []


def and_gives_what_it_has_of_others() -> tuple[Snapshot, list[str]]:
    queues = [named("safe", 2, {"H100": 4}), named("poor", 4)]
    jobs = held("safe", "h", range(4), age_s=60), held("safe", "l", range(4))
    return world(queues, *jobs, asks("poor")), ["safe-l0-0"]


def each_gets_its_part_where_cards_were_lost() -> tuple[Snapshot, list[str]]:
    queues = [named("late", 4, {"H100": 4}), named("first", 4, {"H100": 4})]
    jobs = held("late", "l", range(4)), held("first", "h", range(4))
    gone = ["first-h0-0", "first-h1-0"]
    waiting = [job(f"asks-{n}", "late", constraints=ON_H) for n in range(4)]
    return world(queues, *jobs, waiting), gone


ROWS: list[Callable[[], tuple[Snapshot, list[str]]]] = [
    ones_own_come_back_though_others_fill_the_total,
    a_gang_gets_all_of_them,
    no_more_than_the_quota_comes_back,
    a_part_of_a_gang_is_not_enough,
    from_who_is_beyond_and_not_from_who_is_within,
    the_one_furthest_beyond_its_quota_of_the_model,
    whoever_spares_all_quotas_though_it_costs_more,
    a_limit_alone_is_no_claim,
    not_what_must_not_be_preempted,
    a_team_by_the_claim_of_its_department,
    no_claim_of_a_team_against_other_departments,
    the_claim_of_a_team_against_its_neighbour,
    no_team_within_its_quota_of_a_department_beyond,
    who_is_within_its_quota_of_the_model_is_safe_from_fair_shares,
    and_from_who_would_move_it_where_there_is_no_other_place,
    and_gives_what_it_has_of_others,
    each_gets_its_part_where_cards_were_lost,
]


@pytest.mark.parametrize("make", ROWS, ids=[make.__name__ for make in ROWS])
def test_whose_cards_go(make: Callable[[], tuple[Snapshot, list[str]]]) -> None:
    """Exactly these pods are evicted, and go nowhere else; twenty cycles later nothing moves any more."""
    snapshot, victims = make()
    plan = decide(snapshot)
    assert evicted(plan) == victims
    for _ in range(20):
        snapshot = after(snapshot, plan)
        plan = decide(snapshot)
    assert not plan.evictions
    assert not plan.binds


def test_a_claim_is_kept_in_the_next_cycle() -> None:
    """The card goes to its owner, though the lender stands first by the total."""
    snapshot, _ = ones_own_come_back_though_others_fill_the_total()
    assert [(one.task, one.node) for one in decide(after(snapshot, decide(snapshot))).binds] == [
        ("asks-0", "h")
    ]


def test_whoever_can_go_elsewhere_is_moved() -> None:
    """A free L40 will do for the lender's job."""
    queues = [named("owner", 3, {"H100": 4}), named("lender", 4)]
    jobs = held("owner", "l", range(3)), held("lender", "h", range(4))
    plan = decide(world(queues, *jobs, asks("owner", constraints=ON_H)))
    assert [(one.task, one.moved_to) for one in plan.evictions] == [("lender-h0-0", "l")]


def test_nobody_without_a_claim_moves_what_is_within_a_quota_to_another_model() -> None:
    """A place on a free L40 is none for a job that has an H100 by its queue's quota; on another H100 it is one."""
    queues = [named("safe", 4, {"H100": 4}), named("poor", 4)]
    jobs = [*held("safe", "h", range(4)), *asks("poor", constraints=ON_H)]
    snapshot = world(queues, jobs, l40=1)
    assert decide(snapshot).evictions == ()
    wants = Constraints(node_selector=(("model", "H100"), ("rack", "r")))
    racked = cards("h", "H100", 4)
    nodes = (msgspec.structs.replace(racked, labels={**racked.labels, "rack": "r"}), cards("k", "H100", 1))
    plan = decide(cluster(nodes, queues, [*held("safe", "h", range(4)), *asks("poor", constraints=wants)]))
    assert [one.moved_to for one in plan.evictions] == ["k"]


def test_kais_rules_know_no_models() -> None:
    """In compatible mode the annotation changes nothing."""
    snapshot, _ = ones_own_come_back_though_others_fill_the_total()
    assert evicted(decide(snapshot, COMPATIBLE)) == []


def test_an_eviction_names_the_claim() -> None:
    """By whose quota of which model, and what the victim's queue has of it."""
    snapshot, _ = ones_own_come_back_though_others_fill_the_total()
    assert [one.why for one in decide(snapshot).evictions] == [
        (
            "reclaimed for job asks of queue owner: queue lender holds 4 GPUs with a quota of 4 and a fair share of 4; "
            "queue owner has a quota of 4 H100 and holds 0, queue lender has none of them by quota; "
            "costs 7200 GPU-seconds, nothing cheaper was found"
        )
    ]


# --- properties ------------------------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Draw a tree of two levels with quotas by model here and there, full nodes of two models, and who waits."""
    nodes = [
        cards(f"n{at}", draw(st.sampled_from(["H100", "L40"])), draw(st.sampled_from([2, 4])))
        for at in range(draw(st.integers(1, 3)))
    ]

    def quotas() -> dict[str, float]:
        return {model: draw(st.integers(0, 4)) for model in draw(st.sets(st.sampled_from(["H100", "L40"])))}

    queues = [named(name, draw(st.integers(0, 6)), quotas(), created=at) for at, name in enumerate("ab")]
    leaves = [f"{name}{at}" for name in "ab" for at in (1, 2)]
    queues += [
        named(name, draw(st.integers(0, 4)), quotas(), parent=name[0], created=at)
        for at, name in enumerate(leaves, 2)
    ]
    jobs = []
    for made in nodes:
        for gpu in range(len(made.gpus)):
            if draw(st.integers(0, 4)):
                jobs += held(
                    draw(st.sampled_from(leaves)), made.name, [gpu], age_s=draw(st.sampled_from([60, DAY]))
                )
    for at in range(draw(st.integers(1, 6))):
        pods = draw(st.integers(1, 3))
        bound = draw(st.sampled_from([Constraints(), ON_H]))
        wants = job(f"w{at}", draw(st.sampled_from(leaves)), pods=pods, constraints=bound, age_s=900 - at)
        preemptible, gang = draw(st.sampled_from([True, True, False])), draw(st.integers(1, pods))
        root = SubGroup(pod_sets=(PodSet(min_available=gang),))
        jobs.append(msgspec.structs.replace(wants, preemptible=preemptible, root=root))
    return cluster(nodes, queues, jobs)


WELL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@WELL
@given(clusters())
def test_nobody_beyond_a_quota_takes_what_is_within_one(snapshot: Snapshot) -> None:
    """Where reclaim takes of a model from a queue that ends below its quota of it, the gainer was within its own.

    By what quotas are worth: less than they say where there are fewer cards, or the department has a smaller one.
    """
    queues = {one.name: one for one in snapshot.queues}
    for _ in range(6):
        plan = decide(snapshot)
        later = after(snapshot, plan)
        worth = {name: one.model_quota for name, one in open_session(snapshot, DEFAULT).ledger.queues.items()}
        before, now = _held(snapshot), _held(later)
        queue_of = {one.id: one.queue for one in snapshot.jobs}
        model_of = {one.name: one.gpus[0].model for one in snapshot.nodes}
        for one in plan.evictions:
            if one.action != "reclaim" or one.moved_to:
                continue
            model, losers, gainers = (
                model_of[one.node],
                *_parted(queue_of[one.job], queue_of[one.gains], queues),
            )
            for name in losers:
                if now[name, model] < min(worth[name].get(model, 0), before[name, model]):
                    assert before[gainers[-1], model] < worth[gainers[-1]].get(model, 0)
        snapshot = later


def _parted(one: str, other: str, queues: Mapping[str, Queue]) -> tuple[list[str], list[str]]:
    """Give the paths of two queues, from the leaf up to where they part."""
    ours, theirs = _path(one, queues), _path(other, queues)
    return [name for name in ours if name not in theirs], [name for name in theirs if name not in ours]


def _held(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """Count what runs of each model for every queue of the tree."""
    queues = {one.name: one for one in snapshot.queues}
    models = {gpu.uuid: gpu.model for one in snapshot.nodes for gpu in one.gpus}
    found: dict[tuple[str, str], int] = defaultdict(int)
    for one in snapshot.jobs:
        for task in one.tasks:
            if task.status is TaskStatus.RUNNING:
                for uuid in task.gpus:
                    for name in _path(one.queue, queues):
                        found[name, models[uuid]] += WHOLE_GPU
    return found


def _path(name: str, queues: Mapping[str, Queue]) -> list[str]:
    """Name a queue and those above it, from the leaf up."""
    found = []
    while name:
        found.append(name)
        name = queues[name].parent
    return found


@WELL
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_decides_nothing(snapshot: Snapshot, random: object) -> None:
    """Nodes, queues and jobs in any order give the same plan."""
    nodes, queues, jobs = list(snapshot.nodes), list(snapshot.queues), list(snapshot.jobs)
    for each in (nodes, queues, jobs):
        random.shuffle(each)  # type: ignore[attr-defined]
    shuffled = msgspec.structs.replace(snapshot, nodes=tuple(nodes), queues=tuple(queues), jobs=tuple(jobs))
    assert decide(snapshot) == decide(shuffled)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_claims_come_to_an_end(snapshot: Snapshot) -> None:
    """Who was evicted waits again: fifty cycles later nothing moves any more."""
    counts = []
    for _ in range(50):
        plan = decide(snapshot)
        counts.append(len(plan.evictions))
        snapshot = after(snapshot, plan)
    assert not any(counts[25:])
