"""NUMA zones: where a pod would be, and who is refused."""

import msgspec
import pytest

from controller.scheduler import ledger as ledgers
from controller.scheduler.amounts import ZoneAmounts
from controller.scheduler.cycle import open_session
from controller.scheduler.model import Job, TaskStatus
from controller.scheduler.nodes import NumaTopology, TopologyPolicy
from controller.scheduler.numa import placement
from controller.scheduler.numa_books import by_id
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from controller.scheduler.state import NumaState, Placement
from tests.scheduler.words import bound, cluster, decide, evicted, job, queue
from tests.scheduler.zone_words import BEST_EFFORT, CONTAINER, RESTRICTED, asks, cpu, zoned, zones


def runs(name: str, where: str, request: Request, held: ZoneAmounts = (), priority: int = 50) -> Job:
    """Give a job of one pod that runs on a node, in these zones."""
    made = job(name, "q", request=request, on=[(where, ())], priority=priority)
    return msgspec.structs.replace(made, tasks=(msgspec.structs.replace(made.tasks[0], zones=held),))


@pytest.mark.parametrize(
    ("numa", "request_", "expected"),
    [
        pytest.param(zones(cpu(4), cpu(4)), asks(cpu(3)), ((0, cpu(3)),), id="the lowest zone with room"),
        pytest.param(zones(cpu(2), cpu(4)), asks(cpu(3)), ((1, cpu(3)),), id="the only zone with room"),
        pytest.param(zones(cpu(4), cpu(4)), asks(cpu(6)), None, id="single: more than one zone can give"),
        pytest.param(
            zones(cpu(4), cpu(4), policy=RESTRICTED),
            asks(cpu(6)),
            ((0, cpu(4)), (1, cpu(2))),
            id="restricted: two where two are the fewest",
        ),
        pytest.param(
            zones(cpu(4), cpu(4), policy=RESTRICTED),
            asks(cpu(9)),
            None,
            id="restricted: more than all can give",
        ),
        pytest.param(
            zones((("cpu", 4000), ("nic", 1)), (("cpu", 4000), ("nic", 1)), policy=RESTRICTED),
            asks((("cpu", 6000), ("nic", 1))),
            None,
            id="restricted: resources want different numbers of zones",
        ),
        pytest.param(
            zones(cpu(2), cpu(6), cpu(4), policy=BEST_EFFORT),
            asks(cpu(9)),
            ((1, cpu(6)), (2, cpu(3))),
            id="best effort: the zone that covers most first",
        ),
        pytest.param(
            zones(cpu(2), policy=BEST_EFFORT), asks(cpu(3)), None, id="best effort: no room to align in"
        ),
        pytest.param(zones(cpu(4)), asks((("disk", 9),)), (), id="a resource that is kept by no zone"),
        pytest.param(
            zones(cpu(4), cpu(4)), asks(cpu(3), cpu(3)), None, id="scope pod: all containers as one"
        ),
        pytest.param(
            zones(cpu(4), cpu(4), scope=CONTAINER),
            asks(cpu(3), cpu(3)),
            ((0, cpu(3)), (1, cpu(3))),
            id="scope container: each by itself",
        ),
        pytest.param(
            zones(cpu(4), cpu(4), scope=CONTAINER),
            asks(cpu(3), cpu(3), cpu(2)),
            None,
            id="scope container: they draw on the same zones",
        ),
        pytest.param(
            zones(cpu(4), scope=CONTAINER),
            asks(cpu(3), init=[cpu(4), cpu(4)]),
            ((0, cpu(3)),),
            id="scope container: init containers have the zones to themselves",
        ),
        pytest.param(
            zones(cpu(4), scope=CONTAINER),
            asks(cpu(3), init=[cpu(5)]),
            None,
            id="an init container too large",
        ),
    ],
)
def test_placement(numa: NumaTopology, request_: Request, expected: Placement | None) -> None:
    """The zones that kubelet's Topology Manager would take, or that it refuses the pod."""
    assert request_.alignment is not None
    state = NumaState(numa, counts_ending=False)
    assert placement(request_.alignment, state, later=False) == expected


@pytest.mark.parametrize(
    ("numa", "request_", "goes"),
    [
        pytest.param(zones(cpu(4), cpu(4)), asks(cpu(6)), False, id="refused, though the node has the CPUs"),
        pytest.param(zones(cpu(4), cpu(4)), Request(cpu_milli=6000), True, id="nothing is aligned"),
        pytest.param(
            zones(cpu(4), cpu(4), policy=BEST_EFFORT), asks(cpu(12)), True, id="best effort refuses nobody"
        ),
        pytest.param(
            zones(cpu(4), cpu(4), policy=TopologyPolicy.NONE),
            asks(cpu(6)),
            True,
            id="policy none refuses nobody",
        ),
        pytest.param(None, asks(cpu(6)), True, id="a node that tells nothing"),
    ],
)
@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["default", "compatible"])
def test_whom_a_node_takes(numa: NumaTopology | None, request_: Request, goes: bool, rules: Rules) -> None:
    """A pod waits, and is told why, where its kubelet would refuse it."""
    plan = decide(cluster([zoned("n", numa)], [queue("q")], [job("a", "q", request=request_)]), rules)
    assert bool(plan.binds) is goes
    assert goes or "policy single-numa-node" in plan.waits[0].message


def test_bind_names_its_zones() -> None:
    """Two pods fill the zones one after the other, the third waits."""
    jobs = [job(name, "q", request=asks(cpu(3)), age_s=100 - place) for place, name in enumerate("abc")]
    plan = decide(cluster([zoned("n", zones(cpu(4), cpu(4)))], [queue("q")], jobs))
    assert {one.job: one.zones for one in plan.binds} == {"a": (("z0", cpu(3)),), "b": (("z1", cpu(3)),)}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param({"a": zones(cpu(4), cpu(4), policy=RESTRICTED), "b": zones(cpu(8))}, "b", id="one zone"),
        pytest.param({"a": None, "b": zones(cpu(8), cpu(8))}, "b", id="before a node that tells nothing"),
        pytest.param(
            {"a": zones(cpu(8), cpu(8), policy=TopologyPolicy.NONE), "b": zones(cpu(8), cpu(8))},
            "b",
            id="before a node that aligns nothing",
        ),
        pytest.param({"a": zones(cpu(8)), "b": zones(cpu(8))}, "a", id="by name among equals"),
    ],
)
@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["default", "compatible"])
def test_fewest_zones_first(others: dict[str, NumaTopology | None], expected: str, rules: Rules) -> None:
    """Of nodes with room alike, the one that spreads the pod least."""
    nodes = [zoned(name, numa) for name, numa in others.items()]
    plan = decide(cluster(nodes, [queue("q")], [job("p", "q", request=asks(cpu(6)))]), rules)
    assert bound(plan) == {"p-0": expected}


def ending(request: Request) -> Job:
    """Give a job whose pod ends, and has all of zone z0."""
    made = runs("old", "n", request, (("z0", cpu(4)),))
    return msgspec.structs.replace(
        made, tasks=(msgspec.structs.replace(made.tasks[0], status=TaskStatus.RELEASING),)
    )


@pytest.mark.parametrize(
    ("rules", "binds", "pipelined"),
    [
        pytest.param(DEFAULT, 0, 1, id="ours waits until it is gone"),
        pytest.param(COMPATIBLE, 1, 0, id="KAI binds at once"),
    ],
)
def test_zone_of_a_pod_that_ends(rules: Rules, binds: int, pipelined: int) -> None:
    """kubelet would refuse who comes before the zone is free."""
    jobs = [ending(asks(cpu(4))), job("new", "q", request=asks(cpu(4)))]
    plan = decide(cluster([zoned("n", zones(cpu(4)))], [queue("q")], jobs), rules)
    assert (len(plan.binds), len(plan.pipelined)) == (binds, pipelined)


@pytest.mark.parametrize(
    ("rules", "held", "goes"),
    [
        pytest.param(DEFAULT, (), False, id="ours believes the node's report"),
        pytest.param(COMPATIBLE, (), True, id="KAI takes it for nothing"),
        pytest.param(DEFAULT, (("z0", cpu(1)),), True, id="a record is believed before a late report"),
    ],
)
def test_pod_whose_zones_nobody_knows(rules: Rules, held: ZoneAmounts, goes: bool) -> None:
    """Where something runs without a record, the node gives no more than it reports as available."""
    numa = zones(cpu(4), reported=[cpu(1)])
    jobs = [runs("old", "n", asks(cpu(1)), held), job("new", "q", request=asks(cpu(3)))]
    assert bool(decide(cluster([zoned("n", numa)], [queue("q")], jobs), rules).binds) is goes


@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["default", "compatible"])
def test_eviction_makes_room_in_a_zone(rules: Rules) -> None:
    """The node has CPUs enough; who goes is whose zone is needed, and the other stays where it is."""
    numa = zones(cpu(4), cpu(4))
    jobs = [
        runs("low", "n", asks(cpu(3)), (("z0", cpu(3)),), priority=10),
        runs("mid", "n", asks(cpu(3)), (("z1", cpu(3)),), priority=20),
        job("high", "q", request=asks(cpu(4)), priority=100, preemptible=False),
    ]
    plan = decide(cluster([zoned("n", numa)], [queue("q")], jobs), rules)
    assert evicted(plan) == ["low-0"]
    assert [(one.job, one.zones) for one in plan.pipelined] == [("high", (("z0", cpu(4)),))]


@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["default", "compatible"])
def test_nobody_goes_for_a_pod_that_no_zone_can_hold(rules: Rules) -> None:
    """Evictions that cannot help are not made."""
    jobs = [
        runs("low", "n", asks(cpu(3)), (("z0", cpu(3)),), priority=10),
        job("high", "q", request=asks(cpu(6)), priority=100, preemptible=False),
    ]
    plan = decide(cluster([zoned("n", zones(cpu(4), cpu(4)))], [queue("q")], jobs), rules)
    assert not plan.evictions
    assert not plan.pipelined


@pytest.mark.parametrize(
    ("rules", "status", "held"),
    [
        pytest.param(DEFAULT, TaskStatus.RUNNING, (("z1", cpu(2)),), id="ours stays in its zone"),
        pytest.param(COMPATIBLE, TaskStatus.PIPELINED, (("z0", cpu(2)),), id="KAI moves it to the lowest"),
    ],
)
def test_pod_that_comes_back_to_its_node(rules: Rules, status: TaskStatus, held: ZoneAmounts) -> None:
    """An evicted pod whose own zone still has room need not move to another."""
    jobs = [runs("a", "n", asks(cpu(2)), (("z1", cpu(2)),))]
    books = ledgers.build(cluster([zoned("n", zones(cpu(4), cpu(4)))], [queue("q")], jobs), rules)
    task = books.tasks["a-0"]
    books.evict(task, "to make room")
    books.pipeline(task, books.nodes[0])
    assert (task.status, by_id(task)) == (status, held)


def test_cluster_without_zones_is_asked_nothing() -> None:
    """Where no node tells of zones, no pod is sorted by them."""
    snapshot = cluster([zoned("n", None)], [queue("q")], [job("a", "q", request=asks(cpu(1)))])
    session = open_session(snapshot, DEFAULT)
    assert session.ledger.nodes[0].numa is None
    assert not session.candidates._spans.matter_to(snapshot.jobs[0].tasks[0].request)
