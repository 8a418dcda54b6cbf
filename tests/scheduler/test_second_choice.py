"""Tests of subgroups that find no room: others that serve the job as well are tried, and siblings grow on."""

from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest

from controller.scheduler import place
from controller.scheduler.model import Job, PodSet, Snapshot, SubGroup, Task, TaskStatus, TopologyConstraint
from controller.scheduler.nodes import Level, Topology
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE
from tests.scheduler.words import NOW, bound, card, cluster, decide, job, node, queue

NET = Topology(name="net", levels=(Level(node_label="rack"), Level(node_label="host")))
RACK = TopologyConstraint(topology="net", required="rack")
RUNS = "r"


def _leaf(name: str, least: int = 1, topology: TopologyConstraint | None = None) -> PodSet:
    return PodSet(name=name, min_available=least, topology=topology)


def _job(root: SubGroup, pods: dict[str, str], name: str = "job", **changes: object) -> Job:
    """Make a job; a pod is a digit, what it asks for in GPUs, or "r" for one that runs on node r with one GPU."""
    tasks: list[Task] = []
    for pod_set, each in pods.items():
        for n, letter in enumerate(each):
            runs = letter == RUNS
            used = sum(bool(task.gpus) for task in tasks)
            tasks.append(
                Task(
                    id=f"{name}-{pod_set}{n}",
                    job=name,
                    pod_set=pod_set,
                    index=len(tasks),
                    status=TaskStatus.RUNNING if runs else TaskStatus.PENDING,
                    node="r" if runs else "",
                    gpus=(card("r", used),) if runs else (),
                    request=Request(gpus=1 if runs else int(letter)),
                )
            )
    made = Job(
        id=name,
        queue="q",
        created_at=NOW - timedelta(hours=1),
        pending_since=NOW - timedelta(hours=1),
        root=root,
        tasks=tuple(tasks),
    )
    return msgspec.structs.replace(made, **changes)


def _world(*jobs: Job, free: tuple[int, ...] = (2,), quota: int = 64) -> Snapshot:
    """A node that is full of what runs, and others with so many GPUs free, each in a rack of its own."""
    used = sum(len(task.gpus) for one in jobs for task in one.tasks)
    nodes = [node("r", used, labels={"rack": "r", "host": "r"})] if used else []
    nodes += [node(f"n{n}", gpus, labels={"rack": f"n{n}", "host": f"n{n}"}) for n, gpus in enumerate(free)]
    made = cluster(nodes, [queue("q", quota, limit=quota)], jobs)
    return msgspec.structs.replace(made, topologies=(NET,))


def _names(snapshot: Snapshot, kai: bool) -> set[str]:
    plan = decide(snapshot, COMPATIBLE) if kai else decide(snapshot)
    return {name.removeprefix("job-") for name in bound(plan)}


ABC = (_leaf("a"), _leaf("b"), _leaf("c"))
ONE_OF_THREE = SubGroup(pod_sets=ABC, min_sub_group=1)
TWO_OF_THREE = SubGroup(pod_sets=ABC, min_sub_group=2)
PAIRS = SubGroup(
    groups=(
        SubGroup(name="one", pod_sets=(_leaf("a"), _leaf("b"))),
        SubGroup(name="two", pod_sets=(_leaf("c"), _leaf("d"))),
    ),
    min_sub_group=1,
)
INNER = SubGroup(
    groups=(SubGroup(name="in", pod_sets=(_leaf("b"), _leaf("c")), min_sub_group=1),), pod_sets=(_leaf("a"),)
)
IN_A_RACK = msgspec.structs.replace(TWO_OF_THREE, topology=RACK)
EACH_IN_A_RACK = SubGroup(pod_sets=(_leaf("a", 2, RACK), _leaf("b", 1, RACK)), min_sub_group=1)
ELASTIC = SubGroup(pod_sets=ABC)


@dataclass(frozen=True)
class Case:
    """A group, its pods, what is free on each node, and which pods start by our rule and by KAI's."""

    id: str
    root: SubGroup
    pods: dict[str, str]
    ours: str
    kai: str = ""
    free: tuple[int, ...] = (2,)
    quota: int = 64


CASES = [
    Case("the first that fits is taken where one is enough", ONE_OF_THREE, {"a": "4", "b": "2", "c": "2"}, "b0"),
    Case("what has room is not passed over", ONE_OF_THREE, {"a": "2", "b": "1", "c": "1"}, "a0", "a0"),
    Case("two of three, and the one that fits nowhere is left", TWO_OF_THREE, {"a": "1", "b": "4", "c": "1"}, "a0 c0"),
    Case("two of three, and only one would fit", TWO_OF_THREE, {"a": "1", "b": "4", "c": "4"}, ""),
    Case("a first that takes the room of two gives way", TWO_OF_THREE, {"a": "2", "b": "1", "c": "1"}, "b0 c0"),
    Case("a pair is tried whole", PAIRS, {"a": "1", "b": "4", "c": "1", "d": "1"}, "c0 d0"),
    Case("no half of a pair stands in for one of another", PAIRS, {"a": "1", "b": "4", "c": "1", "d": "4"}, ""),
    Case("the choice may be further down", INNER, {"a": "1", "b": "4", "c": "1"}, "a0 c0"),
    Case("what cannot be done without is not passed over", INNER, {"a": "4", "b": "1", "c": "1"}, ""),
    Case("the rack is chosen for those that are tried", IN_A_RACK, {"a": "8", "b": "2", "c": "2"}, "b0 c0", free=(3, 4)),
    Case("racks of their own", EACH_IN_A_RACK, {"a": "22", "b": "3"}, "b0", free=(3,)),
    Case("what is above the limit is passed over", ONE_OF_THREE, {"a": "4", "b": "2", "c": "1"}, "b0", free=(8,), quota=2),
    Case("a sibling grows where the first in order cannot", ELASTIC, {"a": "r4", "b": "r1", "c": "r"}, "b1"),
    Case("siblings grow on for as long as there is room", ELASTIC, {"a": "r4", "b": "r1", "c": "r11"}, "b1 c1"),
    Case("a subgroup that could join holds up no sibling", PAIRS, {"a": "r1", "b": "r", "c": "4", "d": "1"}, "a1"),
    Case("two that cannot join", PAIRS, {"a": "r4", "b": "r11", "c": "8", "d": "1"}, "b1 b2"),
]  # fmt: skip


@pytest.mark.parametrize("kai", [False, True], ids=["ours", "kai"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_another_subgroup_is_tried(case: Case, kai: bool) -> None:
    """KAI stops at the first that finds no room."""
    snapshot = _world(_job(case.root, case.pods), free=case.free, quota=case.quota)
    assert _names(snapshot, kai) == set((case.kai if kai else case.ours).split())


def test_the_wait_speaks_of_the_first_that_found_no_room() -> None:
    """Whoever looks is told of what the job would have had first."""
    racks = (_leaf("a", 1, RACK), _leaf("b", 1, RACK))
    starts = decide(_world(_job(SubGroup(pod_sets=racks, min_sub_group=1), {"a": "8", "b": "2"})))
    assert set(bound(starts)) == {"job-b0"}
    (wait,) = starts.waits
    assert wait.message.startswith("no domain of rack in topology net has room for 1 pods")
    none = decide(_world(_job(ONE_OF_THREE, {"a": "3", "b": "4", "c": "5"})))
    assert [wait.task for wait in none.waits] == ["job-a0"]


def test_the_search_for_another_choice_ends() -> None:
    """Where many could stand in for one another only so many are tried in a cycle."""
    leaves = [_leaf(f"s{n:03}") for n in range(200)]
    root = SubGroup(pod_sets=tuple(leaves), min_sub_group=1)
    pods = {leaf.name: "4" for leaf in leaves}
    pods |= {leaves[20].name: "1", leaves[150].name: "1"}
    assert _names(_world(_job(root, pods)), kai=False) == {"s0200"}
    pods[leaves[20].name] = "4"
    assert place.MOST_CHOICES < 150
    assert _names(_world(_job(root, pods)), kai=False) == set()


def test_a_job_like_another_that_was_refused_by_its_queue_is_tried_by_itself() -> None:
    """What the queue lets in decides which choice is left."""
    pods = {"a": "4", "b": "2", "c": "2"}
    closed, open_ = (_job(ONE_OF_THREE, pods, name=name, queue=name) for name in ("closed", "open"))
    queues = [queue("closed", 1, limit=1), queue("open", 8)]
    plan = decide(cluster([node("n", 2)], queues, [closed, open_]))
    assert set(bound(plan)) == {"open-b0"}


def test_jobs_of_one_pod_set_are_as_before() -> None:
    """There is no choice."""
    gang = job("gang", "q", pods=3, gpus=1)
    assert bound(decide(cluster([node("n", 2)], [queue("q", 8)], [gang]))) == {}
