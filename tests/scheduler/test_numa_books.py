"""NUMA zones: what is free, that it is all taken back exactly, and what objects and records say."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler import ledger as ledgers
from controller.scheduler.amounts import ZoneAmounts
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import HOLDING, Task, TaskStatus
from controller.scheduler.nodes import NumaZone, TopologyPolicy, TopologyScope
from controller.scheduler.numa_objects import in_order, recorded, topology_of
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from controller.scheduler.state import NumaState
from kube.scheduling import NodeResourceTopology
from tests.scheduler.words import cluster, job, queue
from tests.scheduler.zone_words import (
    BEST_EFFORT,
    CONTAINER,
    POD,
    RESTRICTED,
    SINGLE,
    amounts,
    asks,
    cpu,
    told,
    zoned,
    zones,
)

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


def operate(books: Ledger, choice: int, where: int, *, returns: bool = True) -> None:
    """Do whatever the books allow with a pod; with `returns`, evicted ones come back whoever claims their place."""
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
    elif task.evicted and where % 3:
        if books.why_not_room(task, target, True) is None:
            books.pipeline(task, target)
    elif task.evicted and returns:
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
        operate(books, *step, returns=False)
    for numa, begun in zip(_numas(books), debts, strict=True):
        assert all(zone["cpu"] >= debt for zone, debt in zip(numa.free(later=True), begun, strict=True))


def _numas(books: Ledger) -> list[NumaState]:
    return [node.numa for node in books.nodes if node.numa is not None]


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
