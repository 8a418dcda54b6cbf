"""NUMA zones: where a pod would be, who is refused, what is free, and that it is all taken back exactly."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler import ledger as ledgers
from controller.scheduler.amounts import Amount, ZoneAmounts
from controller.scheduler.cycle import open_session
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import HOLDING, Job, Task, TaskStatus
from controller.scheduler.nodes import Node, NumaTopology, NumaZone, TopologyPolicy, TopologyScope
from controller.scheduler.numa import placement
from controller.scheduler.numa_books import by_id
from controller.scheduler.numa_objects import in_order, recorded, topology_of
from controller.scheduler.requests import Alignment, Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from controller.scheduler.state import NumaState, Placement
from kube.scheduling import Attribute, NodeResourceTopology, Zone, ZoneResource
from kube.types import ObjectMeta
from tests.scheduler.words import bound, cluster, decide, evicted, job, node, queue

SINGLE, RESTRICTED, BEST_EFFORT = TopologyPolicy.SINGLE, TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT
POD, CONTAINER = TopologyScope.POD, TopologyScope.CONTAINER
Unit = tuple[Amount, ...]


def cpu(number: int) -> Unit:
    """Ask for whole CPUs."""
    return (("cpu", 1000 * number),)


def zones(
    *amounts: Unit,
    policy: TopologyPolicy = SINGLE,
    scope: TopologyScope = POD,
    reported: Sequence[Unit] | None = None,
) -> NumaTopology:
    """Give zones z0, z1, ... with these amounts, of which `reported` is available."""
    free = reported or amounts
    return NumaTopology(
        policy=policy,
        scope=scope,
        zones=tuple(
            NumaZone(id=f"z{place}", allocatable=dict(unit), available=dict(free[place]))
            for place, unit in enumerate(amounts)
        ),
    )


def asks(*containers: Unit, init: Sequence[Unit] = (), guaranteed: bool = True) -> Request:
    """Ask for what these containers hold alone."""
    total: dict[str, int] = {}
    for unit in containers:
        for name, amount in unit:
            total[name] = total.get(name, 0) + amount
    pod = tuple(sorted(total.items()))
    alignment = Alignment(guaranteed=guaranteed, pod=pod, containers=containers, init=tuple(init))
    return Request(cpu_milli=total.get("cpu", 0), alignment=alignment)


def runs(name: str, where: str, request: Request, held: ZoneAmounts = (), priority: int = 50) -> Job:
    """Give a job of one pod that runs on a node, in these zones."""
    made = job(name, "q", request=request, on=[(where, ())], priority=priority)
    return msgspec.structs.replace(made, tasks=(msgspec.structs.replace(made.tasks[0], zones=held),))


def zoned(name: str, numa: NumaTopology | None) -> Node:
    """Give a node without GPUs."""
    return node(name, 0, numa=numa)


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


# --- undo ------------------------------------------------------------------------------------------------------------

amounts = st.integers(1, 4).map(cpu)
STATUSES = (TaskStatus.PENDING, TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.RELEASING)


@st.composite
def zoned_books(draw: st.DrawFn) -> Ledger:
    """Give the books of two nodes with zones, and pods in every status."""
    nodes = [
        zoned(
            name,
            zones(*draw(st.lists(amounts, min_size=1, max_size=3)), policy=draw(st.sampled_from(POLICIES))),
        )
        for name in ("m", "n")
    ]
    jobs = []
    for place, status in enumerate(draw(st.lists(st.sampled_from(STATUSES), min_size=1, max_size=6))):
        unit = draw(amounts)
        held = draw(st.sampled_from([(), (("z0", unit),), (("gone", unit),)]))
        where = draw(st.sampled_from(["m", "n"])) if status is not TaskStatus.PENDING else ""
        task = Task(
            id=f"j{place}-0", job=f"j{place}", status=status, node=where, request=asks(unit), zones=held
        )
        jobs.append(msgspec.structs.replace(job(f"j{place}", "q"), tasks=(task,)))
    return ledgers.build(cluster(nodes, [queue("q")], jobs), draw(st.sampled_from([DEFAULT, COMPATIBLE])))


POLICIES = [SINGLE, RESTRICTED, BEST_EFFORT]


def picture(books: Ledger) -> object:
    """Give what is free and what is being released in each zone, and who has what."""
    numas = [node.numa for node in books.nodes if node.numa is not None]
    return (
        [([dict(one) for one in numa.idle], [dict(one) for one in numa.leaving]) for numa in numas],
        {task.id: (task.status, task.zones, task.evicted) for task in books.tasks.values()},
    )


def operate(books: Ledger, choice: int, where: int) -> None:
    """Do whatever the books allow with one of their pods."""
    task = list(books.tasks.values())[choice % len(books.tasks)]
    target = books.nodes[where % 2]
    if task.status is TaskStatus.PENDING and books.why_not_room(task, target, False) is None:
        books.allocate(task, target)
    elif task.status is TaskStatus.PENDING and books.why_not_room(task, target, True) is None:
        books.pipeline(task, target)
    elif task.status is TaskStatus.ALLOCATED and where % 3 == 0 and task.job is not None:
        books.to_pipelined(task.job)
    elif task.status in HOLDING or task.status is TaskStatus.PIPELINED:
        books.evict(task, "why not")
    elif task.evicted:
        if where % 3:
            books.pipeline(task, target)
        else:
            books.unevict(task)


steps = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=25)


@settings(max_examples=150, deadline=None)
@given(books=zoned_books(), before=steps, after=steps)
def test_zones_are_taken_back_exactly(
    books: Ledger, before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    """Whatever was done, undo leaves zones and places as they were at the mark, and at the start."""
    first = picture(books)
    start = books.mark()
    for step in before:
        operate(books, *step)
    middle = picture(books)
    mark = books.mark()
    for step in after:
        operate(books, *step)
    books.undo_to(mark)
    assert picture(books) == middle
    books.undo_to(start)
    assert picture(books) == first


@settings(max_examples=100, deadline=None)
@given(books=zoned_books(), done=steps)
def test_nobody_is_placed_beyond_what_is_free(books: Ledger, done: list[tuple[int, int]]) -> None:
    """No step makes a zone promise more than it will have, unless it began in debt."""
    debts = [[min(zone["cpu"], 0) for zone in numa.free(later=True)] for numa in _numas(books)]
    for step in done:
        operate(books, *step)
    for numa, begun in zip(_numas(books), debts, strict=True):
        assert all(zone["cpu"] >= debt for zone, debt in zip(numa.free(later=True), begun, strict=True))


def _numas(books: Ledger) -> list[NumaState]:
    return [node.numa for node in books.nodes if node.numa is not None]


# --- objects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, (), id="no record"),
        pytest.param(
            {"observed": '[{"zone": "z1", "amount": {"cpu": "3"}}]'}, (("z1", cpu(3)),), id="observed"
        ),
        pytest.param(
            {"observed": '[{"zone": "a"}]', "predicted": '[{"zone": "b"}]'}, (("a", ()),), id="observed first"
        ),
        pytest.param({"observed": "{", "predicted": '[{"zone": "b"}]'}, (("b", ()),), id="broken: the other"),
        pytest.param(
            {"observed": '[{"zone": "a", "amount": {"cpu": "x"}}]'}, (), id="no quantity: as good as none"
        ),
    ],
)
def test_record_of_a_pod(annotations: dict[str, str], expected: ZoneAmounts) -> None:
    """What KAI's agent saw goes before what its scheduler foretold."""
    named = {f"kai.scheduler/numa-placement-{key}": text for key, text in annotations.items()}
    assert recorded(named) == expected


def told(
    *, attributes: dict[str, str], legacy: tuple[str, ...] = (), kind: str = "Node"
) -> NodeResourceTopology:
    """Give the object of a node with two zones, the second listed first."""
    return NodeResourceTopology(
        metadata=ObjectMeta(name="n"),
        attributes=tuple(Attribute(name=name, value=value) for name, value in attributes.items()),
        topology_policies=legacy,
        zones=tuple(
            Zone(
                name=f"node-{number}",
                type=kind,
                resources=(ZoneResource(name="cpu", allocatable="4", available="2500m"),),
            )
            for number in (10, 9)
        ),
    )


@pytest.mark.parametrize(
    ("made", "policy", "scope"),
    [
        pytest.param(
            told(attributes={"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}),
            RESTRICTED,
            POD,
            id="attributes",
        ),
        pytest.param(
            told(attributes={"topologyManagerPolicy": "best-effort"}), BEST_EFFORT, CONTAINER, id="no scope"
        ),
        pytest.param(
            told(attributes={}, legacy=("SingleNUMANodePodLevel",)), SINGLE, POD, id="the deprecated field"
        ),
        pytest.param(
            told(attributes={"topologyManagerPolicy": "strange"}),
            TopologyPolicy.NONE,
            CONTAINER,
            id="unknown",
        ),
    ],
)
def test_object_of_a_node(made: NodeResourceTopology, policy: TopologyPolicy, scope: TopologyScope) -> None:
    """Policy, scope, and zones in order of their numbers."""
    found = topology_of(made)
    assert found is not None
    assert (found.policy, found.scope, [zone.id for zone in found.zones]) == (
        policy,
        scope,
        ["node-9", "node-10"],
    )
    assert (found.zones[0].allocatable, found.zones[0].available) == ({"cpu": 4000}, {"cpu": 2500})


def test_object_without_numa_nodes() -> None:
    """Sockets alone are no zones that kubelet aligns to."""
    assert topology_of(told(attributes={}, kind="Socket")) is None


def test_zones_without_numbers_come_last() -> None:
    """Such go by name."""
    assert [zone.id for zone in in_order([NumaZone(id=name) for name in ("b", "a", "z-2", "z-10")])] == [
        "z-2",
        "z-10",
        "a",
        "b",
    ]
