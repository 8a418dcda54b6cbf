"""Whole cycles in small: what is bound, evicted and promised. Each row holds in both modes unless its name says which."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from controller.scheduler.model import Order, PodSet, Queue, Settings, Snapshot, SubGroup, TopologyConstraint
from controller.scheduler.nodes import Level, Topology
from controller.scheduler.requests import Constraints, Expression, NodeTerm, PodTerm, Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler.words import NOW, bound, card, cluster, decide, evicted, job, node, queue

GIB = 1 << 30
HALF = Request(portion=500, cpu_milli=1000, memory_bytes=GIB)
SMALL = Request(gpu_memory_mib=20_000, cpu_milli=1000, memory_bytes=GIB)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle should do: how many pods of which job it binds, promises (pipelines) and evicts for good."""

    binds: dict[str, int] = {}
    promised: dict[str, int] = {}
    evicted: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()


def over_limit() -> Snapshot:
    """Three pods wait for a queue whose limit is two."""
    return cluster(
        [node("a")], [queue("team", 1, limit=2)], [job(f"j{n}", "team", age_s=90 - n) for n in range(3)]
    )


def over_the_limit_of_the_parent() -> Snapshot:
    """The team has no limit; its department has one."""
    queues = [queue("department", 1, limit=2), queue("team", 1, parent="department")]
    return cluster([node("a")], queues, [job(f"j{n}", "team", age_s=90 - n) for n in range(3)])


def not_preemptible_over_quota() -> Snapshot:
    """Work that may not be preempted has its quota of one and no more, however much is idle."""
    jobs = [job(f"j{n}", "team", preemptible=False, age_s=90 - n) for n in range(2)]
    return cluster([node("a")], [queue("team", 1)], jobs)


def surplus_is_lent() -> Snapshot:
    """A queue with no quota at all gets what is idle."""
    return cluster([node("a", 2)], [queue("team", 0)], [job("j", "team", pods=2, least=1)])


def gang_too_big() -> Snapshot:
    """Five pods must start together and four GPUs are there."""
    return cluster([node("a", 4)], [queue("team", 8)], [job("gang", "team", pods=5)])


def gang_and_a_single() -> Snapshot:
    """The gang cannot start; the younger single pod is not held up by it."""
    return cluster(
        [node("a", 4)], [queue("team", 8)], [job("gang", "team", pods=5), job("one", "team", age_s=5)]
    )


def elastic() -> Snapshot:
    """At least two of six pods, and four GPUs."""
    return cluster([node("a", 4)], [queue("team", 8)], [job("elastic", "team", pods=6, least=2)])


def by_priority() -> Snapshot:
    """One GPU, two jobs: the younger has the higher priority."""
    jobs = [job("old", "team", age_s=900), job("urgent", "team", priority=75, age_s=5)]
    return cluster([node("a", 1)], [queue("team", 1)], jobs)


def by_age() -> Snapshot:
    """One GPU, two equal jobs: the older goes first, whatever its name."""
    return cluster(
        [node("a", 1)], [queue("team", 1)], [job("a", "team", age_s=5), job("z", "team", age_s=900)]
    )


def halves() -> Snapshot:
    """Three halves and one card."""
    jobs = [job(f"h{n}", "team", request=HALF, age_s=90 - n) for n in range(3)]
    return cluster([node("a", 1)], [queue("team", 2)], jobs)


def by_memory() -> Snapshot:
    """Five pods of 20,000 MiB and one card of 80,000 MiB."""
    jobs = [job(f"m{n}", "team", request=SMALL, age_s=90 - n) for n in range(5)]
    return cluster([node("a", 1)], [queue("team", 2)], jobs)


def two_cards_each() -> Snapshot:
    """Two pods that each want 0.6 of two different cards, on a node of three: one fits."""
    wide = Request(portion=600, devices=2, cpu_milli=1000, memory_bytes=GIB)
    jobs = [job(f"w{n}", "team", request=wide, age_s=90 - n) for n in range(2)]
    return cluster([node("a", 3)], [queue("team", 8)], jobs)


def mig_slices() -> Snapshot:
    """Three pods want a 1g slice and the node has two."""
    slices = Request(mig=(("1g.10gb", 1),), cpu_milli=1000, memory_bytes=GIB)
    cut = node("a", 0, mig={"1g.10gb": 2}, mig_strategy="mixed")
    jobs = [job(f"s{n}", "team", request=slices, age_s=90 - n) for n in range(3)]
    return cluster([cut], [queue("team", 8)], jobs)


def by_selector() -> Snapshot:
    """The pod asks for a node with a label; the emptier node has none."""
    wants = Constraints(node_selector=(("zone", "west"),))
    nodes = [node("a", 8), node("b", 8, labels={"zone": "west"})]
    return cluster(nodes, [queue("team", 8)], [job("j", "team", constraints=wants)])


def by_term() -> Snapshot:
    """Either of two terms will do; no node matches the first."""
    terms = tuple(
        NodeTerm(expressions=(Expression(key="zone", operator="In", values=(zone,)),))
        for zone in ("east", "west")
    )
    nodes = [node("a", 8, labels={"zone": "north"}), node("b", 8, labels={"zone": "west"})]
    return cluster(nodes, [queue("team", 8)], [job("j", "team", constraints=Constraints(required=terms))])


def apart() -> Snapshot:
    """Two pods of one job that will not share a node, and two nodes."""
    term = PodTerm(
        selector=(Expression(key="app", operator="In", values=("x",)),), topology_key="kubernetes.io/hostname"
    )
    one = job("j", "team", pods=2, constraints=Constraints(pod_anti_affinity=(term,)))
    tasks = tuple(msgspec.structs.replace(task, labels=(("app", "x"),)) for task in one.tasks)
    nodes = [node(name, labels={"kubernetes.io/hostname": name}) for name in "ab"]
    return cluster(nodes, [queue("team", 8)], [msgspec.structs.replace(one, tasks=tasks)])


def racks(required: str = "rack", preferred: str = "") -> Snapshot:
    """A gang of four whole-node pods; rack one has one free node, rack two has four, and there are two blocks."""
    nodes = [node("a", labels={"block": "1", "rack": "1"})]
    nodes += [node(f"b{n}", labels={"block": "2", "rack": "2"}) for n in range(4)]
    gang = job("gang", "team", pods=4, gpus=8)
    constraint = TopologyConstraint(topology="t", required=required, preferred=preferred)
    root = SubGroup(pod_sets=(PodSet(min_available=4),), topology=constraint)
    snapshot = cluster(nodes, [queue("team", 40)], [msgspec.structs.replace(gang, root=root)])
    levels = (Level(node_label="block"), Level(node_label="rack"))
    return msgspec.structs.replace(snapshot, topologies=(Topology(name="t", levels=levels),))


def no_rack_is_big_enough() -> Snapshot:
    """The gang of four must share a rack; no rack has four nodes."""
    nodes = [node(f"n{n}", labels={"block": "1", "rack": str(n // 2)}) for n in range(4)]
    return msgspec.structs.replace(racks(), nodes=tuple(nodes))


def subgroups() -> Snapshot:
    """A leader and two workers start together; a third worker may join; three GPUs are there."""
    one = job("j", "team", pods=4)
    sets = ("leader", "worker", "worker", "worker")
    tasks = tuple(
        msgspec.structs.replace(task, pod_set=name) for task, name in zip(one.tasks, sets, strict=True)
    )
    root = SubGroup(pod_sets=(PodSet(name="leader", min_available=1), PodSet(name="worker", min_available=2)))
    return cluster([node("a", 3)], [queue("team", 8)], [msgspec.structs.replace(one, tasks=tasks, root=root)])


def preempts() -> Snapshot:
    """A higher priority of the same queue takes the place of a lower one."""
    jobs = [job("low", "team", on=[("a", [0])]), job("high", "team", priority=75)]
    return cluster([node("a", 1)], [queue("team", 1)], jobs)


def equals_do_not_preempt() -> Snapshot:
    """The same priority waits."""
    jobs = [job("low", "team", on=[("a", [0])]), job("also", "team")]
    return cluster([node("a", 1)], [queue("team", 1)], jobs)


def may_not_be_preempted() -> Snapshot:
    """The lower priority may not be preempted."""
    jobs = [job("low", "team", on=[("a", [0])], preemptible=False), job("high", "team", priority=75)]
    return cluster([node("a", 1)], [queue("team", 1)], jobs)


def reclaims() -> Snapshot:
    """The owner of the second GPU wants it back from a queue that has one too many."""
    jobs = [job(f"lent-{n}", "guest", on=[("a", [n])], age_s=900 - n) for n in range(2)]
    return cluster([node("a", 2)], [queue("guest", 1), queue("owner", 1)], [*jobs, job("asks", "owner")])


def within_quota_is_safe() -> Snapshot:
    """A queue at its quota loses nothing to one that wants a surplus."""
    jobs = [job(f"home-{n}", "guest", on=[("a", [n])]) for n in range(2)]
    return cluster([node("a", 2)], [queue("guest", 2), queue("owner", 0)], [*jobs, job("asks", "owner")])


def reclaims_across_departments() -> Snapshot:
    """The department that has less than its quota takes from the one that has more."""
    queues = [
        queue("north", 1),
        queue("north-team", 1, parent="north"),
        queue("south", 1, created=1),
        queue("south-team", 1, parent="south", created=1),
    ]
    jobs = [job(f"south-{n}", "south-team", on=[("a", [n])], age_s=900 - n) for n in range(2)]
    return cluster([node("a", 2)], queues, [*jobs, job("asks", "north-team")])


def protected_by_min_runtime() -> Snapshot:
    """What was lent has run for one minute of the ten that it is protected."""
    snapshot = reclaims()
    protected = tuple(msgspec.structs.replace(one, reclaim_min_runtime_s=600) for one in snapshot.queues)
    started = tuple(
        msgspec.structs.replace(one, started_at=NOW - timedelta(minutes=1)) if one.started_at else one
        for one in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, queues=protected, jobs=started)


def waits_before_it_evicts() -> Snapshot:
    """The owner asked for patience: it may evict nobody before it waited an hour."""
    snapshot = reclaims()
    patient = tuple(
        msgspec.structs.replace(one, preemption_delay_s=3600) if one.id == "asks" else one
        for one in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=patient)


def shrinks_an_elastic_job() -> Snapshot:
    """The surplus pods of an elastic job go before anything else, and no more of them than are needed."""
    jobs = [job("elastic", "guest", pods=4, least=1, on=[("a", [n]) for n in range(4)]), job("asks", "owner")]
    return cluster([node("a", 4)], [queue("guest", 1), queue("owner", 1)], jobs)


def consolidates() -> Snapshot:
    """Two half-full nodes: moving one pod makes a whole node free for the job that needs one."""
    jobs = [job("left", "team", on=[("a", [0])]), job("right", "team", on=[("b", [0])], age_s=60)]
    return cluster([node("a", 2), node("b", 2)], [queue("team", 8)], [*jobs, job("wide", "team", gpus=2)])


def does_not_consolidate_what_may_not_move() -> Snapshot:
    """Neither pod may be preempted, so neither is moved."""
    snapshot = consolidates()
    firm = tuple(
        msgspec.structs.replace(one, preemptible=False) if one.id != "wide" else one for one in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=firm)


def stale() -> Snapshot:
    """A gang of two lost a member five minutes ago: what is left of it holds its GPU for nothing."""
    one = job("gang", "team", pods=2, on=[("a", [0])], stale_since=NOW - timedelta(minutes=5))
    return cluster([node("a", 1)], [queue("team", 2)], [one])


def freshly_stale() -> Snapshot:
    """The same, ten seconds ago."""
    one = job("gang", "team", pods=2, on=[("a", [0])], stale_since=NOW - timedelta(seconds=10))
    return cluster([node("a", 1)], [queue("team", 2)], [one])


def binpacked() -> Snapshot:
    """One GPU of eight is in use on the second node: the next pod goes there."""
    return cluster(
        [node("a"), node("b")], [queue("team", 9)], [job("runs", "team", on=[("b", [0])]), job("j", "team")]
    )


def spread() -> Snapshot:
    """The same where the pool spreads."""
    return msgspec.structs.replace(binpacked(), settings=Settings(gpu_order=Order.SPREAD))


BOTH = (COMPATIBLE, DEFAULT)
ROWS: tuple[tuple[Callable[[], Snapshot], Outcome], ...] = (
    (over_limit, Outcome(binds={"j0": 1, "j1": 1})),
    (over_the_limit_of_the_parent, Outcome(binds={"j0": 1, "j1": 1})),
    (not_preemptible_over_quota, Outcome(binds={"j0": 1})),
    (surplus_is_lent, Outcome(binds={"j": 2})),
    (gang_too_big, Outcome()),
    (gang_and_a_single, Outcome(binds={"one": 1})),
    (elastic, Outcome(binds={"elastic": 4})),
    (by_priority, Outcome(binds={"urgent": 1})),
    (by_age, Outcome(binds={"z": 1})),
    (halves, Outcome(binds={"h0": 1, "h1": 1})),
    (by_memory, Outcome(binds={"m0": 1, "m1": 1, "m2": 1, "m3": 1})),
    (two_cards_each, Outcome(binds={"w0": 1})),
    (mig_slices, Outcome(binds={"s0": 1, "s1": 1})),
    (by_selector, Outcome(binds={"j": 1})),
    (by_term, Outcome(binds={"j": 1})),
    (apart, Outcome(binds={"j": 2})),
    (racks, Outcome(binds={"gang": 4})),
    (no_rack_is_big_enough, Outcome()),
    (subgroups, Outcome(binds={"j": 3})),
    (preempts, Outcome(promised={"high": 1}, evicted=("low-0",))),
    (equals_do_not_preempt, Outcome()),
    (may_not_be_preempted, Outcome()),
    (reclaims, Outcome(promised={"asks": 1}, evicted=("lent-1-0",))),
    (within_quota_is_safe, Outcome()),
    (reclaims_across_departments, Outcome(promised={"asks": 1}, evicted=("south-1-0",))),
    (protected_by_min_runtime, Outcome()),
    (waits_before_it_evicts, Outcome()),
    (shrinks_an_elastic_job, Outcome(promised={"asks": 1}, evicted=("elastic-3",))),
    (consolidates, Outcome(promised={"wide": 1, "right": 1}, moved=("right-0",))),
    (does_not_consolidate_what_may_not_move, Outcome()),
    (stale, Outcome(evicted=("gang-0",))),
    (freshly_stale, Outcome()),
    (binpacked, Outcome(binds={"j": 1})),
    (spread, Outcome(binds={"j": 1})),
)


@pytest.mark.parametrize("rules", BOTH, ids=["compatible", "default"])
@pytest.mark.parametrize(("make", "outcome"), ROWS, ids=[make.__name__ for make, _ in ROWS])
def test_what_a_cycle_does(make: Callable[[], Snapshot], outcome: Outcome, rules: Rules) -> None:
    """The cycle binds, promises, moves and evicts exactly this."""
    plan = decide(make(), rules)
    found = Outcome(
        binds=_counted(one.job for one in plan.binds),
        promised=_counted(one.job for one in plan.pipelined),
        evicted=tuple(evicted(plan)),
        moved=tuple(sorted(one.task for one in plan.evictions if one.moved_to)),
    )
    assert found == outcome
    assert all(one.why for one in plan.evictions)


def _counted(names: object) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:  # type: ignore[attr-defined]
        counts[name] = counts.get(name, 0) + 1
    return counts


PLACES: dict[str, tuple[Callable[[], Snapshot], set[str]]] = {
    "bin-packed onto the fuller node": (binpacked, {"b"}),
    "spread onto the emptier node": (spread, {"a"}),
    "by its selector": (by_selector, {"b"}),
    "by the term that a node matches": (by_term, {"b"}),
    "apart from its like": (apart, {"a", "b"}),
    "inside the one rack that can hold it": (racks, {"b0", "b1", "b2", "b3"}),
    "inside the rack that it prefers": (lambda: racks("block", "rack"), {"b0", "b1", "b2", "b3"}),
}


@pytest.mark.parametrize("rules", BOTH, ids=["compatible", "default"])
@pytest.mark.parametrize(("make", "where"), PLACES.values(), ids=PLACES.keys())
def test_where_pods_go(make: Callable[[], Snapshot], where: set[str], rules: Rules) -> None:
    """These nodes and no others."""
    assert set(bound(decide(make(), rules)).values()) == where


def test_two_halves_share_one_card() -> None:
    """The second half joins the first instead of opening another card."""
    jobs = [job(f"h{n}", "team", request=HALF, age_s=90 - n) for n in range(2)]
    plan = decide(cluster([node("a", 4)], [queue("team", 2)], jobs))
    assert {bind.gpus for bind in plan.binds} == {(card("a", 0),)}
    assert {(bind.milli, bind.mib) for bind in plan.binds} == {(500, 40_000)}


def test_a_job_of_an_unknown_queue_waits_and_says_so() -> None:
    """Others are placed; the wait names the queue."""
    jobs = [job("lost", "nowhere"), job("fine", "team")]
    plan = decide(cluster([node("a", 2)], [queue("team", 2)], jobs))
    assert bound(plan) == {"fine-0": "a"}
    [wait] = plan.waits
    assert wait.code == "QueueDoesNotExist"
    assert "nowhere" in wait.message


@pytest.mark.parametrize(
    ("code", "make"), [("OverLimit", over_limit), ("NonPreemptibleOverQuota", not_preemptible_over_quota)]
)
def test_a_wait_carries_the_code_that_clients_of_kai_know(code: str, make: Callable[[], Snapshot]) -> None:
    """PodGroup conditions are read by programs: the code is KAI's."""
    assert [wait.code for wait in decide(make()).waits] == [code]


def test_deep_trees_of_queues_divide_at_every_level() -> None:
    """Three levels, quotas only at the top: what a department lends, its own teams share."""
    queues: list[Queue] = [queue("top", 4)]
    queues += [
        queue("middle", 4, parent="top"),
        queue("leaf-a", 2, parent="middle"),
        queue("leaf-b", 2, parent="middle"),
    ]
    jobs = [job(f"{leaf}-{n}", leaf) for leaf in ("leaf-a", "leaf-b") for n in range(4)]
    plan = decide(cluster([node("a", 4)], queues, jobs))
    assert _counted(bind.job.rsplit("-", 1)[0] for bind in plan.binds) == {"leaf-a": 2, "leaf-b": 2}
