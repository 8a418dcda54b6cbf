"""The tree of queues: what is built of specs in any order, and what is counted on the way up."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.amounts import UNLIMITED
from controller.scheduler.model import Job, Queue, Quota, Task
from controller.scheduler.nodes import Gpu, Node
from controller.scheduler.queues import add, add_model, allocatable, build, count_model, request
from controller.scheduler.state import JobState, NodeState, TaskState

NO_QUOTA = (Quota(), Quota(), Quota())


def queue(name: str, parent: str = "", **changes: object) -> Queue:
    return Queue(name=name, parent=parent, quotas=NO_QUOTA, **changes)  # type: ignore[arg-type]


def test_parents_stand_before_children_and_siblings_by_name() -> None:
    """Also where a child's name sorts before its parent's."""
    states, problems = build((queue("b", "z"), queue("a", "z"), queue("m", "a"), queue("z")))
    assert list(states) == ["z", "a", "b", "m"]
    assert [child.name for child in states["z"].children] == ["a", "b"]
    assert [state.name for state in states["m"].path] == ["z", "a", "m"]
    assert problems == {}


@pytest.mark.parametrize(
    ("specs", "kept", "problems"),
    [
        pytest.param(
            (queue("team", "gone"), queue("part", "team"), queue("fine")),
            ["fine"],
            [
                'queue "part" is left out: there is no parent queue "gone"',
                'queue "team" is left out: there is no parent queue "gone"',
            ],
            id="an unknown parent takes all below it along",
        ),
        pytest.param(
            (queue("a", "b"), queue("b", "a"), queue("c", "b"), queue("fine")),
            ["fine"],
            [
                'queue "a" is left out: its parents run in a circle at queue "a"',
                'queue "b" is left out: its parents run in a circle at queue "a"',
                'queue "c" is left out: its parents run in a circle at queue "a"',
            ],
            id="a circle takes what hangs on it along",
        ),
        pytest.param(
            (queue("own", "own"),),
            [],
            ['queue "own" is left out: its parents run in a circle at queue "own"'],
            id="a queue is not its own parent",
        ),
    ],
)
def test_queues_without_a_root_are_left_out_and_told_of(
    specs: tuple[Queue, ...], kept: list[str], problems: list[str]
) -> None:
    """A share from half a tree would be wrong for all."""
    states, told = build(specs)
    assert (list(states), list(told.values())) == (kept, problems)


@given(st.lists(st.integers(0, 14), min_size=1, max_size=15), st.randoms(use_true_random=False))
def test_the_tree_is_the_same_for_any_order_of_its_queues(parents: list[int], random: object) -> None:
    """Whatever their parents are."""
    specs = [queue(f"q{at:02}", f"q{above:02}" if above else "") for at, above in enumerate(parents, 1)]
    shuffled = list(specs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    (one, problems), (other, other_problems) = build(specs), build(shuffled)
    assert list(one) == list(other)
    assert problems == other_problems
    assert all([c.name for c in one[n].children] == [c.name for c in other[n].children] for n in one)


def test_what_a_leaf_holds_and_asks_for_counts_on_the_whole_way_up() -> None:
    """And comes off again exactly."""
    states, _ = build((queue("top"), queue("leaf", "top"), queue("beside", "top")))
    add(states["leaf"], (1500, 200, 3), 1, preemptible=False)
    add(states["beside"], (500, 0, 0), 1, preemptible=True)
    request(states["leaf"], (4000, 0, 7), 1)
    assert states["top"].allocated == [2000, 200, 3]
    assert states["top"].allocated_np == [1500, 200, 3]
    assert states["top"].requested == states["leaf"].requested == [4000, 0, 7]
    assert states["beside"].allocated_np == [0, 0, 0]
    add(states["leaf"], (1500, 200, 3), -1, preemptible=False)
    add(states["beside"], (500, 0, 0), -1, preemptible=True)
    request(states["leaf"], (4000, 0, 7), -1)
    assert states["top"].allocated == states["top"].allocated_np == states["top"].requested == [0, 0, 0]


def test_models_are_counted_only_where_a_queue_has_a_quota_for_them() -> None:
    """At whatever level that is."""
    top = queue("top", models=(("H200", Quota(limit=4000)),))
    states, _ = build((top, queue("leaf", "top"), queue("other")))
    assert [states[name].counts_models for name in ("top", "leaf", "other")] == [True, True, False]
    add_model(states["leaf"], "H200", 2000, 1, preemptible=False)
    add_model(states["leaf"], "H200", 500, 1, preemptible=True)
    add_model(states["leaf"], "A100", 1000, 1, preemptible=True)
    assert states["top"].by_model == {"H200": [2500, 2000]}
    assert states["leaf"].by_model == {}


@pytest.mark.parametrize(
    ("gpus", "on_node", "counted"),
    [
        pytest.param(2000, True, [2000, 2000], id="by the model of the node"),
        pytest.param(2000, False, [0, 0], id="not before it is on one"),
        pytest.param(0, True, [0, 0], id="not without a GPU"),
    ],
)
def test_a_pod_counts_for_the_model_that_it_holds(gpus: int, on_node: bool, counted: list[int]) -> None:
    """And no longer once it is gone."""
    states, _ = build((queue("q", models=(("H200", Quota(limit=4000)),)),))
    job = JobState(
        Job(id="ns/j", queue="q", created_at=datetime(2026, 3, 1, tzinfo=UTC), preemptible=False), states["q"]
    )
    task = TaskState(Task(id="ns/p", job="ns/j"), job)
    task.amounts = (gpus, 0, 0)
    task.node = NodeState(Node(name="n", gpus=(Gpu(uuid="GPU-1", model="H200"),)), 0) if on_node else None
    count_model(task, 1)
    assert states["q"].by_model == {"H200": counted}
    count_model(task, -1)
    assert states["q"].by_model == {"H200": [0, 0]}


@pytest.mark.parametrize(
    ("deserved", "limit", "fair", "share"),
    [
        pytest.param(2000, UNLIMITED, 5000, 5000, id="the fair share where it is larger"),
        pytest.param(5000, UNLIMITED, 2000, 5000, id="the quota where that is larger"),
        pytest.param(5000, 3000, 4000, 3000, id="never above the limit"),
        pytest.param(UNLIMITED, 3000, 9000, 3000, id="the limit where the quota has no bound"),
        pytest.param(UNLIMITED, UNLIMITED, 9000, UNLIMITED, id="no bound where neither has one"),
    ],
)
def test_what_a_queue_may_hold_for_good(deserved: int, limit: int, fair: int, share: int) -> None:
    """KAI's allocatable share."""
    quotas = (Quota(deserved=deserved, limit=limit), Quota(), Quota())
    states, _ = build((Queue(name="q", quotas=quotas),))
    states["q"].fair_share[0] = fair
    assert allocatable(states["q"], 0) == share
