"""Tests of domains: where a group with a topology constraint is tried, and in which order."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler import cycle, gangs, topology
from controller.scheduler.actions import allocate
from controller.scheduler.domains import DomainTree
from controller.scheduler.model import Job, PodSet, Snapshot, SubGroup, Task, TaskStatus, TopologyConstraint
from controller.scheduler.nodes import Level, Node, Topology
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from tests.scheduler.words import bound, card, cluster, job, node, queue

LEVELS = Topology(
    name="net",
    levels=(Level(node_label="zone"), Level(node_label="rack", alias="r"), Level(node_label="host")),
)
ZONE, RACK = (
    TopologyConstraint(topology="net", required="zone"),
    TopologyConstraint(topology="net", required="rack"),
)
PREFER_RACK = TopologyConstraint(topology="net", preferred="rack")


def _node(name: str, gpus: int = 4) -> Node:
    """Name a node by zone, rack and host: "a1x" is host x in rack 1 of zone a."""
    return node(name, gpus, labels={"zone": name[0], "rack": name[1], "host": name})


ALL = [_node(name) for name in ("a1x", "a1y", "a2x", "a2y", "b1x", "b1y")]


def _job(constraint: TopologyConstraint | None, pods: int, gpus: int, **changes: object) -> Job:
    made = job("gang", "q", pods=pods, gpus=gpus)
    root = SubGroup(pod_sets=(PodSet(min_available=pods),), topology=constraint)
    return msgspec.structs.replace(made, root=root, **changes)


def _busy(on: str, gpus: int) -> Job:
    return job(f"busy-{on}", "q", gpus=gpus, on=[(on, range(gpus))])


def _snapshot(jobs: Sequence[Job], nodes: Sequence[Node] = ALL) -> Snapshot:
    return msgspec.structs.replace(cluster(nodes, [queue("q", 64)], jobs), topologies=(LEVELS,))


@dataclass(frozen=True)
class Case:
    """A gang, what runs already, and the domains on which the gang is tried, by one of their nodes each."""

    id: str
    gang: Job
    tried: list[list[str]]
    busy: list[Job] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=lambda: ALL)


CASES = [
    Case("without a constraint all nodes are one set", _job(None, 2, 4), [[each.name for each in ALL]]),
    Case(
        "every domain of the required level that holds the gang is tried, the fullest zone first",
        _job(RACK, 2, 4),
        [["b1x", "b1y"], ["a1x", "a1y"], ["a2x", "a2y"]],
    ),
    Case(
        "in a zone the fullest rack that still holds it comes first",
        _job(RACK, 2, 2),
        [["b1x", "b1y"], ["a2x", "a2y"], ["a1x", "a1y"]],
        [_busy("a2x", 2)],
    ),
    Case(
        "a domain that is too full is not tried",
        _job(RACK, 2, 4),
        [["a1x", "a1y"]],
        [_busy("a2x", 1), _busy("b1y", 1)],
    ),
    Case(
        "room is counted by node, not by the sum",
        _job(RACK, 2, 3),
        [["b1x", "b1y"], ["a1x", "a1y"]],
        [_busy("a2x", 2)],
    ),
    Case("a gang that fits into no domain is tried nowhere", _job(RACK, 3, 4), []),
    Case(
        "a level may be named by its alias", _job(TopologyConstraint(topology="net", required="r"), 3, 4), []
    ),
    Case(
        "the preferred level is tried before the wider required one",
        _job(TopologyConstraint(topology="net", required="zone", preferred="rack"), 3, 4),
        [["a1x", "a1y", "a2x", "a2y"]],
    ),
    Case(
        "a preference alone ends with everything",
        _job(PREFER_RACK, 2, 4),
        [
            ["b1x", "b1y"],
            ["a1x", "a1y"],
            ["a2x", "a2y"],
            ["b1x", "b1y"],
            ["a1x", "a1y", "a2x", "a2y"],
            [n.name for n in ALL],
        ],
    ),
    Case(
        "a topology that is not there holds nothing",
        _job(TopologyConstraint(topology="no", required="x"), 1, 1),
        [],
    ),
    Case(
        "a level that is not there holds nothing",
        _job(TopologyConstraint(topology="net", required="x"), 1, 1),
        [],
    ),
    Case(
        "a node without all labels is outside",
        _job(RACK, 1, 4),
        [["a1x"]],
        nodes=[_node("a1x"), node("a1y", 4, labels={"zone": "a"})],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_where_a_group_is_tried(case: Case) -> None:
    """Domains come in order of preference, and none that cannot hold the group."""
    session = cycle.open_session(_snapshot([case.gang, *case.busy], case.nodes), DEFAULT)
    state = session.ledger.jobs["gang"]
    tasks = gangs.tasks_to_place(session, state, real=True)
    found = topology.node_sets(session, state, state.root, tasks, None)
    nodes = session.ledger.nodes
    names = [
        sorted(nodes[index].name for index in each.nodes) if each else [n.name for n in nodes]
        for each in found
    ]
    assert names == case.tried


def test_a_group_stays_where_its_pods_are() -> None:
    """Pods that join go to the required domain of those that run, though it is not the fullest."""
    first = job("gang", "q", on=[("b1x", [0])], pods=3, least=1)
    gang = msgspec.structs.replace(first, root=SubGroup(pod_sets=(PodSet(min_available=1),), topology=RACK))
    plan = cycle.run_cycle(_snapshot([gang, _busy("a1x", 3)]), DEFAULT, actions=(allocate.run,))
    assert {name[:2] for name in bound(plan).values()} == {"b1"}


def _left(on: Sequence[str], pods: int, constraint: TopologyConstraint) -> Job:
    """A gang of pods of 2 GPUs that lost some; the others are on these nodes."""
    at: dict[str, int] = {}
    cards = []
    for name in on:
        at[name] = at.get(name, 0) + 2
        cards.append((name, range(at[name] - 2, at[name])))
    made = job("gang", "q", gpus=2, pods=pods, on=cards)
    return msgspec.structs.replace(
        made, root=SubGroup(pod_sets=(PodSet(min_available=pods),), topology=constraint)
    )


ZONE_AND_RACK = TopologyConstraint(topology="net", required="zone", preferred="rack")
PREFER_ZONE = TopologyConstraint(topology="net", preferred="zone")

FULL_A1 = [("a1x", 2), ("a1y", 4), ("b1x", 3)]
TWO_EACH = [("a1y", 2), ("a2y", 4), ("b1x", 4)]
BESIDE = [
    ("to the rack of the others", _left(["a1x", "a1x"], 3, PREFER_RACK), [], ["a1"], ["b1"]),
    ("to the rack where most are", _left(["a2x", "a1x", "a1x"], 4, PREFER_RACK), [], ["a1"], ["b1"]),
    ("anywhere, if their zone is full", _left(["b1x"], 2, PREFER_RACK), [("b1x", 2), ("b1y", 4)], ["a1"], ["a1"]),
    ("to another rack of the zone before another zone", _left(["a1x"], 2, PREFER_RACK), FULL_A1, ["a2"], ["b1"]),
    ("inside the required zone", _left(["a2x"], 2, ZONE_AND_RACK), [("a1x", 2)], ["a2"], ["a1"]),
    ("to the zone, where that is the level", _left(["a1x", "a1x"], 3, PREFER_ZONE), [], ["a1"], ["b1"]),
    ("beside them first if not all fit", _left(["a1x"], 4, PREFER_RACK), TWO_EACH, ["a1", "a1", "a2"], ["a1", "a2", "a2"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gang", "full", "ours", "kais"), [row[1:] for row in BESIDE], ids=[row[0] for row in BESIDE]
)
def test_a_lost_member_comes_back_to_its_siblings_at_a_preferred_level(
    gang: Job, full: list[tuple[str, int]], ours: list[str], kais: list[str]
) -> None:
    """As far as there is room; KAI takes the fullest domain, wherever the siblings are."""
    busy = [job(f"busy-{on}", "q", gpus=gpus, on=[(on, range(4 - gpus, 4))]) for on, gpus in full]
    for rules, where in ((DEFAULT, ours), (COMPATIBLE, kais)):
        plan = cycle.run_cycle(_snapshot([gang, *busy]), rules, actions=(allocate.run,))
        assert sorted(name[:2] for name in bound(plan).values()) == where, rules is DEFAULT


def test_subgroups_each_have_their_own_domain_inside_the_wider_one() -> None:
    """Racks for the parts, one zone for the whole."""
    tasks = tuple(
        Task(
            id=f"gang-{n}",
            job="gang",
            index=n,
            pod_set="ab"[n // 2],
            request=job("x", "q", gpus=4).tasks[0].request,
        )
        for n in range(4)
    )
    pod_sets = tuple(PodSet(name=name, min_available=2, topology=RACK) for name in "ab")
    gang = msgspec.structs.replace(
        job("gang", "q"), tasks=tasks, root=SubGroup(pod_sets=pod_sets, topology=ZONE)
    )
    placed = bound(cycle.run_cycle(_snapshot([gang]), DEFAULT, actions=(allocate.run,)))
    assert len(placed) == 4
    racks = [{placed[f"gang-{n}"][:2] for n in pair} for pair in ((0, 1), (2, 3))]
    assert all(len(rack) == 1 for rack in racks)
    assert racks[0] != racks[1]
    assert {name[0] for name in placed.values()} == {"a"}


def test_who_finds_no_domain_is_told_so() -> None:
    """The wait names level and topology."""
    plan = cycle.run_cycle(_snapshot([_job(RACK, 3, 4)]), DEFAULT, actions=(allocate.run,))
    why = "0/6 nodes are available: 6 node(s) were in no topology domain that holds the pods."
    assert [wait.message for wait in plan.waits] == [
        f"no domain of rack in topology net has room for 3 pods; {why}"
    ]
    assert [reason.count for reason in plan.waits[0].reasons] == [6]


SHARED = Request(portion=600, devices=2, cpu_milli=100)
UNLIKE = [
    ("one large and many small fill the rack exactly", [Request(gpus=4), *[Request(gpus=1)] * 4], []),
    ("a whole card and two halves", [Request(gpus=3), *[Request(portion=500)] * 2], ["a1y"]),
    ("pods that differ in CPU alone", [Request(cpu_milli=300_000), *[Request(cpu_milli=9_000)] * 9], []),
    ("shares of two cards that others use", [SHARED], ["a1y", "a1x"]),
]


@pytest.mark.parametrize(("requests", "shared"), [row[1:] for row in UNLIKE], ids=[row[0] for row in UNLIKE])
def test_pods_that_differ_get_the_rack_that_holds_them(requests: list[Request], shared: list[str]) -> None:
    """A domain is ruled out only where it cannot hold the pods, whatever the largest of them asks for."""
    tasks = tuple(Task(id=f"gang-{n}", job="gang", index=n, request=each) for n, each in enumerate(requests))
    gang = _job(RACK, len(tasks), 1, tasks=tasks)
    part = Request(portion=400, devices=2 if shared == ["a1y", "a1x"] else 1)
    busy = [_sharing(on, part) for on in shared]
    nodes = [msgspec.structs.replace(each, cpu_milli=300_000) for each in ALL[:2]]
    if shared == ["a1y", "a1x"]:
        nodes = [_node("a1x", 2), _node("a1y", 2)]
    plan = cycle.run_cycle(_snapshot([gang, *busy], nodes), DEFAULT, actions=(allocate.run,))
    assert sorted(bound(plan)) == sorted(task.id for task in tasks)


def _sharing(on: str, part: Request) -> Job:
    made = job(f"busy-{on}", "q", request=part)
    cards = tuple(card(on, n) for n in range(part.devices))
    task = msgspec.structs.replace(made.tasks[0], status=TaskStatus.RUNNING, node=on, gpus=cards)
    return msgspec.structs.replace(made, tasks=(task,))


@given(st.lists(st.sampled_from(["a1x", "a1y", "a2x", "b1x"]), min_size=1, unique=True), st.integers(0, 3))
def test_the_narrowest_domain_holds_all_and_none_below_does(names: list[str], deepest: int) -> None:
    """Whatever the nodes."""
    session = cycle.open_session(_snapshot([]), DEFAULT)
    tree = DomainTree(LEVELS, session.ledger.nodes)
    indexes = {each.index for each in session.ledger.nodes if each.name in names}
    found = tree.narrowest(indexes, deepest)
    assert indexes <= set(found.nodes)
    assert found.depth <= deepest
    assert found.depth == deepest or not any(indexes <= set(child.nodes) for child in found.children)
