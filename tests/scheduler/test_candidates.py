"""In which order nodes are tried, and that the kept index never differs from looking at every node."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler import score
from controller.scheduler.cycle import open_session
from controller.scheduler.model import Job, Order, Settings, TaskStatus
from controller.scheduler.nodes import Node
from controller.scheduler.requests import Constraints, Expression, NodeTerm, PreferredNodeTerm, Request, Taint
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from controller.scheduler.session import Session
from controller.scheduler.state import NodeSet, TaskState
from tests.scheduler import words

HALF = Request(portion=500, cpu_milli=1000)
CPU_POD = Request(cpu_milli=1000)


def world(nodes: list[Node], *jobs: Job, rules: Rules = DEFAULT, **chosen: Any) -> Session:
    """Open a session with one queue."""
    snapshot = words.cluster(nodes, [words.queue("q", 1000)], jobs, settings=Settings(**chosen))
    return open_session(snapshot, rules)


def order(session: Session, name: str = "new", only: NodeSet | None = None) -> list[str]:
    """Give the nodes for a pod, best first."""
    task = session.ledger.tasks[f"{name}-0"]
    return [node.name for node in session.candidates.best(task, False, only)]


def shared(name: str, node: str, gpu: int, portion: int = 500) -> Job:
    """Give a job that runs on part of a card."""
    return words.job(name, "q", on=[(node, [gpu])], request=Request(portion=portion, cpu_milli=1000))


@pytest.mark.parametrize(
    ("chosen", "request_", "expected"),
    [
        pytest.param({}, Request(gpus=1), ["b", "a", "c"], id="bin-pack: least free first, then by name"),
        pytest.param({}, Request(gpus=4), ["a", "c"], id="only where it fits"),
        pytest.param(
            {"gpu_order": Order.SPREAD}, Request(gpus=1), ["c", "b", "a"], id="spread: emptiest first"
        ),
        pytest.param({}, CPU_POD, ["d", "b", "a", "c"], id="CPU pods to nodes without GPUs first"),
        pytest.param({"cpu_order": Order.SPREAD}, CPU_POD, ["d", "c", "a", "b"], id="CPU pods spread"),
    ],
)
@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["ours", "KAI's"])
def test_packing(chosen: dict[str, Any], request_: Request, expected: list[str], rules: Rules) -> None:
    """Nodes a, b, c with 4 of 6, 3 of 4 and 8 of 8 cards free, and CPU less where more runs; d has no card."""
    busy = [
        words.job("x", "q", on=[("a", [0, 1])], gpus=2, request=Request(gpus=2, cpu_milli=20_000)),
        words.job("y", "q", on=[("b", [0])], request=Request(gpus=1, cpu_milli=90_000)),
    ]
    nodes = [words.node("a", 6), words.node("b", 4), words.node("c", 8), words.node("d", 0)]
    session = world(nodes, *busy, words.job("new", "q", request=request_), rules=rules, **chosen)
    assert order(session) == expected


def test_room_now_before_room_later() -> None:
    """A node that must wait for a pod to end comes after one with room now, however well it would pack."""
    ends = words.job("x", "q", on=[("a", [0])])
    (task,) = ends.tasks
    ends = msgspec.structs.replace(ends, tasks=(msgspec.structs.replace(task, status=TaskStatus.RELEASING),))
    session = world([words.node("a", 1), words.node("b", 8)], ends, words.job("new", "q"))
    assert order(session) == ["b", "a"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        pytest.param({}, ["b", "a"], id="a started card first"),
        pytest.param({"gpu_order": Order.SPREAD}, ["a", "b"], id="not where pods are spread"),
        pytest.param({"gpu_sharing_order": Order.SPREAD}, ["a", "b"], id="nor where sharers are"),
    ],
)
def test_shares_join_a_started_card(chosen: dict[str, Any], expected: list[str]) -> None:
    """A node whose shared card has room comes first, even if it has more cards free."""
    session = world(
        [words.node("a", 2), words.node("b", 4)],
        shared("x", "b", 0),
        words.job("y", "q", on=[("a", [0])]) if "gpu_order" not in chosen else words.job("y", "q", gpus=9),
        words.job("new", "q", request=HALF),
        **chosen,
    )
    assert order(session) == expected


def test_the_nominated_node_comes_before_all() -> None:
    """Even before nodes that are not to be avoided."""
    job = words.job("new", "q")
    (task,) = job.tasks
    job = msgspec.structs.replace(job, tasks=(msgspec.structs.replace(task, nominated_node="c"),))
    nodes = [words.node("a", 2), words.node("b"), words.node("c", avoid="PcieSpeedReduced")]
    assert order(world(nodes, job)) == ["c", "a", "b"]


def test_topology_scores_come_before_packing() -> None:
    """`only` bounds the nodes, and its scores order them first."""
    session = world([words.node("a", 2), words.node("b"), words.node("c")], words.job("new", "q"))
    assert order(session, only=NodeSet(("x",), frozenset({0, 1}))) == ["a", "b"]
    assert order(session, only=NodeSet(("y",), frozenset({0, 1, 2}), {0: 1, 1: 5, 2: 5})) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param(DEFAULT, ["c", "b", "a"], id="ours: liked first, softly tainted last"),
        pytest.param(COMPATIBLE, ["a", "b", "c"], id="KAI's: by name"),
    ],
)
def test_soft_preferences(rules: Rules, expected: list[str]) -> None:
    """Rule soft_preferences: preferred node affinity and PreferNoSchedule."""
    term = NodeTerm(expressions=(Expression(key="disk", operator="Exists"),))
    wishes = Constraints(preferred=(PreferredNodeTerm(weight=3, term=term),))
    nodes = [
        words.node("a", taints=(Taint(key="t", effect="PreferNoSchedule"),)),
        words.node("b"),
        words.node("c", labels={"disk": "ssd"}),
    ]
    assert order(world(nodes, words.job("new", "q", constraints=wishes), rules=rules)) == expected


def test_a_walk_goes_on_while_pods_are_placed() -> None:
    """A caller that tried a node and went back gets the next one, none twice."""
    session = world([words.node(name, 2) for name in "abc"], words.job("new", "q"), words.job("old", "q"))
    ledger = session.ledger
    found = []
    for node in session.candidates.best(ledger.tasks["new-0"], False, None):
        found.append(node.name)
        mark = ledger.mark()
        ledger.allocate(ledger.tasks["old-0"], node)
        next(iter(session.candidates.best(ledger.tasks["new-0"], False, None)))
        ledger.undo_to(mark)
        next(iter(session.candidates.best(ledger.tasks["new-0"], False, None)))
    assert found == ["a", "b", "c"]


# --- the index against looking at every node ------------------------------------------------------------------------


def by_looking_at_all(session: Session, task: TaskState) -> list[str]:
    """Sort all nodes that take the pod by the score as it is written down, with nothing kept."""
    chosen = session.settings
    request = task.spec.request
    keys = []
    for node in session.ledger.nodes:
        now = session.fit.why_not(task, node, False) is None
        if session.fit.why_not(task, node, True) is not None:
            continue
        if request.asks_for_gpu:
            free, group = score.free_gpus(node, chosen.gpu_order), 0
            joins = request.is_shared and score.has_shared_room(node, request)
            keys.append((not joins, not now, group, free, node.name))
        else:
            group = not score.is_cpu_only(node, False)
            keys.append((False, not now, group, score.free_cpu(node, chosen.cpu_order), node.name))
    return [key[-1] for key in sorted(keys)]


REQUESTS = [
    Request(gpus=1, cpu_milli=1000),
    Request(gpus=2, cpu_milli=60_000),
    Request(portion=300, cpu_milli=1000),
    Request(portion=700, cpu_milli=1000),
    Request(portion=330, cpu_milli=1000),
    Request(gpu_memory_mib=20_001, cpu_milli=1000),
    Request(portion=480, devices=2, cpu_milli=1000),
    Request(cpu_milli=70_000),
    Request(cpu_milli=1000, memory_bytes=1 << 38),
]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 13), st.sampled_from(["place", "wait", "evict", "undo"])), max_size=30
    ),
    spreads=st.booleans(),
)
def test_the_index_is_as_good_as_looking_at_every_node(steps: list[tuple[int, str]], spreads: bool) -> None:
    """Whatever is placed, evicted and undone, the order is that of all nodes sorted anew."""
    jobs = [words.job(f"j{at:02}", "q", request=REQUESTS[at % len(REQUESTS)]) for at in range(14)]
    nodes = [words.node("a", 2), words.node("b", 3), words.node("c", 0), words.node("d", 3)]
    session = world(nodes, *jobs, rules=DEFAULT, **({} if not spreads else {"cpu_order": Order.SPREAD}))
    ledger = session.ledger
    tasks = list(ledger.tasks.values())
    marks = [ledger.mark()]
    for at, step in steps:
        task = tasks[at]
        if step == "undo":
            ledger.undo_to(marks.pop() if len(marks) > 1 else marks[0])
        elif step == "evict" and task.status is TaskStatus.ALLOCATED:
            marks.append(ledger.mark())
            ledger.evict(task, "test")
        elif step in ("place", "wait") and task.status is TaskStatus.PENDING:
            expected = by_looking_at_all(session, task)
            found = list(session.candidates.best(task, False, None))
            assert [node.name for node in found] == expected
            if found:
                marks.append(ledger.mark())
                if step == "place" and session.fit.why_not(task, found[0], False) is None:
                    ledger.allocate(task, found[0])
                else:
                    ledger.pipeline(task, found[-1])
