"""Tests of which job is next."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler import cycle
from controller.scheduler.job_order import JobsByQueue
from controller.scheduler.model import Job, Queue
from controller.scheduler.rules import DEFAULT
from tests.scheduler.words import cluster, job, node, queue


def _order(
    queues: Sequence[Queue], jobs: Sequence[Job], *, victims: bool = False, nodes: int = 4
) -> list[str]:
    snapshot = cluster([node(f"n{n}") for n in range(nodes)], queues, jobs)
    session = cycle.open_session(snapshot, DEFAULT)
    order = JobsByQueue(session, session.ledger.jobs.values(), victims=victims)
    found = []
    while (next_job := order.pop()) is not None:
        found.append(next_job.id)
    assert len(order) == 0
    return found


ONE = [queue("q", 8)]
TWO = [queue("p", 8, created=0), queue("q", 8, created=1)]
TREE = [
    queue("dept-a", 8, created=0),
    queue("dept-b", 8, created=1),
    queue("a", 8, parent="dept-a"),
    queue("b", 8, parent="dept-b"),
    queue("c", 8, parent="dept-b", created=1),
]

CASES = [
    (
        "the higher priority is first",
        ONE,
        [job("low", "q", age_s=900), job("high", "q", priority=60)],
        ["high", "low"],
    ),
    ("then the older", ONE, [job("young", "q", age_s=60), job("old", "q", age_s=61)], ["old", "young"]),
    ("then the name", ONE, [job("b", "q"), job("a", "q")], ["a", "b"]),
    (
        "a job below its minimum goes before one that wants to grow",
        ONE,
        [job("growing", "q", pods=2, least=1, on=[("n0", [0])], age_s=900), job("new", "q", age_s=60)],
        ["new", "growing"],
    ),
    (
        "the queue that holds less is first, by turns of its jobs",
        TWO,
        [job("held", "p", gpus=4, on=[("n0", [0, 1, 2, 3])]), job("p1", "p"), job("q1", "q")],
        ["q1", "p1", "held"],
    ),
    (
        "a queue's turn is looked for at every level",
        TREE,
        [
            job("a1", "a", age_s=10),
            job("b1", "b", age_s=20),
            job("c1", "c", age_s=30),
            job("b2", "b", age_s=5),
        ],
        ["a1", "b1", "b2", "c1"],
    ),
    (
        "a job whose queue is no leaf, or is not there, has no turn",
        TREE,
        [job("lost", "nowhere"), job("high", "dept-a"), job("a1", "a")],
        ["a1"],
    ),
]


@pytest.mark.parametrize(
    ("queues", "jobs", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_next_job(queues: Sequence[Queue], jobs: Sequence[Job], wanted: list[str]) -> None:
    """Jobs come in the order of their queues, and in their own."""
    assert _order(queues, jobs) == wanted


def test_victims_come_the_other_way_round() -> None:
    """The lowest and youngest of the queue that is served best is the first victim."""
    jobs = [
        job("p-old", "p", on=[("n0", [0])], age_s=900),
        job("p-young", "p", on=[("n0", [1])], age_s=60),
        job("q-high", "q", on=[("n1", [0])], priority=60),
        job("q-low", "q", on=[("n1", [1])], age_s=900),
        job("q-more", "q", on=[("n1", [2])], age_s=950),
    ]
    assert _order(TWO, jobs, victims=True) == ["q-low", "q-more", "p-young", "q-high", "p-old"]


def test_a_job_that_is_put_back_comes_again() -> None:
    """An elastic job stands in the queue again for its next pod."""
    snapshot = cluster([node("n0")], TWO, [job("one", "p"), job("two", "q")])
    session = cycle.open_session(snapshot, DEFAULT)
    order = JobsByQueue(session, session.ledger.jobs.values())
    first = order.pop()
    assert first is not None
    order.push(first)
    assert [order.pop(), order.pop(), order.pop()] == [first, session.ledger.jobs["two"], None]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(50, 52), st.integers(0, 500)), max_size=25),
    st.randoms(),
)
def test_every_job_comes_once_and_the_order_of_the_input_is_nothing(
    asked: list[tuple[int, int, int]], shuffle: object
) -> None:
    """Whatever the jobs: all of them, once, and shuffled ones alike."""
    names = ["a", "b", "c", "a", "c"]
    jobs = [
        job(f"job-{n:02}", names[leaf], priority=priority, age_s=age)
        for n, (leaf, priority, age) in enumerate(asked)
    ]
    shuffled = list(jobs)
    shuffle.shuffle(shuffled)  # type: ignore[attr-defined]
    order = _order(TREE, jobs)
    assert sorted(order) == [each.id for each in jobs]
    assert _order(TREE, shuffled) == order
