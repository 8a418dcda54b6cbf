"""What a cycle has placed it takes back from nobody: a gang would start without those that are moved."""

import msgspec

from controller.scheduler.model import PodSet, Quota, SubGroup, TopologyConstraint
from controller.scheduler.nodes import Level, Topology
from controller.scheduler.requests import Request
from tests.scheduler.test_model_quota import cards, named
from tests.scheduler.words import bound, cluster, decide, evicted, job, node, queue


def test_whole_scenarios_move_nobody_who_was_just_placed() -> None:
    """They are tried for a subgroup with a topology of its own."""
    net = Topology(name="net", levels=(Level(node_label="zone"), Level(node_label="rack")))
    nodes = [
        msgspec.structs.replace(cards(name, model, count), labels={"zone": "a", "rack": rack})
        for name, model, count, rack in [("n1", "L40", 8, "y"), ("n3", "A10", 4, "x")]
    ]
    gang = job("gang", "two", pods=3)
    large = msgspec.structs.replace(gang.tasks[2], request=Request(gpus=2, cpu_milli=1000))
    gang = msgspec.structs.replace(gang, tasks=(*gang.tasks[:2], large))
    sets = (
        PodSet(name="s", min_available=3, topology=TopologyConstraint(topology="net", preferred="rack")),
        PodSet(name="t", min_available=1, topology=TopologyConstraint(topology="net", required="zone")),
    )
    last = job("last", "three", pods=4)
    tasks = tuple(
        msgspec.structs.replace(task, pod_set="s" if task.index < 3 else "t") for task in last.tasks
    )
    last = msgspec.structs.replace(last, root=SubGroup(pod_sets=sets), tasks=tasks)
    few = (("L40", Quota(deserved=1000, limit=2000)),)
    queues = [named("two", 4), queue("above", 1, models=few), named("three", 8, parent="above")]
    snapshot = msgspec.structs.replace(cluster(nodes, queues, [gang, last]), topologies=(net,))
    plan = decide(snapshot)
    assert not plan.evictions
    assert {one.job for one in plan.binds} >= {"gang"}


def test_a_gang_that_is_whole_again_only_by_this_cycle_is_not_moved() -> None:
    """What came back would be bound by itself, while those that it came back to are being moved."""
    asked = Request(gpus=1, cpu_milli=1000)
    gang = job("gang", "team", pods=2, least=2, on=[("a", [0])], age_s=900, request=asked)
    wants = job("wants", "team", age_s=100, request=Request(gpus=2, cpu_milli=100))
    rooms = {"a": (2, 1500), "b": (1, 8000), "c": (1, 8000)}
    nodes = [node(name, count, cpu_milli=cpu) for name, (count, cpu) in rooms.items()]
    plan = decide(cluster(nodes, [queue("team", 8)], [gang, wants]))
    assert (bound(plan), evicted(plan)) == ({"gang-1": "b"}, [])
