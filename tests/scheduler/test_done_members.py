"""Tests of gangs of which some members have succeeded: a lost one comes back beside those that still work."""

from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest

from controller.scheduler.model import Job, PodSet, Snapshot, SubGroup, Task, TaskStatus
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler.after import after
from tests.scheduler.words import NOW, bound, card, cluster, decide, evicted, node, queue

LETTERS = {
    "d": TaskStatus.SUCCEEDED,
    "f": TaskStatus.FAILED,
    "r": TaskStatus.RUNNING,
    "x": TaskStatus.RELEASING,
    "p": TaskStatus.PENDING,
}


def _gang(pods: dict[str, str], root: SubGroup, **changes: object) -> Job:
    """Make a job whose pod sets have pods in these states, one letter a pod, each with a GPU of its own on node a."""
    tasks: list[Task] = []
    used = 0
    for pod_set, letters in pods.items():
        for letter in letters:
            n = len(tasks)
            there = letter in "rx"
            used += there
            tasks.append(
                Task(
                    id=f"gang-{pod_set}{n}",
                    job="gang",
                    pod_set=pod_set,
                    index=n,
                    status=LETTERS[letter],
                    node="a" if there else "",
                    gpus=(card("a", used - 1),) if there else (),
                    request=Request(gpus=1),
                )
            )
    made = Job(id="gang", queue="q", created_at=NOW - timedelta(hours=1), root=root, tasks=tuple(tasks))
    return msgspec.structs.replace(made, **changes)


def _flat(least: int) -> SubGroup:
    return SubGroup(pod_sets=(PodSet(min_available=least),))


def _world(gang: Job, free: int) -> Snapshot:
    """A node that is full of what runs, and one with so many GPUs free."""
    used = sum(len(task.gpus) for task in gang.tasks)
    return cluster([node("a", used), node("b", free)], [queue("q", 64)], [gang])


@dataclass(frozen=True)
class Case:
    """A gang with a minimum, its pods, and how many of them start by our rule, and by KAI's."""

    id: str
    pods: dict[str, str]
    root: SubGroup
    ours: int
    kai: int = 0
    free: int = 16


JOBS = SubGroup(
    pod_sets=(PodSet(name="driver", min_available=1), PodSet(name="worker", min_available=4)),
)
PIECES = SubGroup(
    groups=(
        SubGroup(name="one", pod_sets=(PodSet(name="a", min_available=2),)),
        SubGroup(name="two", pod_sets=(PodSet(name="b", min_available=2),)),
    ),
)

CASES = [
    Case("a lost member of eight is replaced beside three that are done", {"": "dddrrrrfp"}, _flat(8), 1),
    Case("two that were lost are replaced together", {"": "dddrrrffpp"}, _flat(8), 2),
    Case("of two that were lost the first does not start without the second", {"": "dddrrrffp"}, _flat(8), 0),
    Case("two that were lost start both or none", {"": "dddrrrffpp"}, _flat(8), 0, free=1),
    Case("one that still ends is not there any more", {"": "dddrrrrxp"}, _flat(8), 1),
    Case("what is left of a gang that was evicted starts as one", {"": "dddfffffppppp"}, _flat(8), 5),
    Case("what is left of it starts whole or not at all", {"": "dddfffffppppp"}, _flat(8), 0, free=4),
    Case("what is left of it waits until all its pods are made", {"": "dddfffffpppp"}, _flat(8), 0),
    Case("a queue of work goes on by eights for as long as there are eight", {"": "d" * 20 + "p" * 8}, _flat(8), 8, 8),
    Case("a queue of work that lost all starts again as one", {"": "d" * 20 + "p" * 8}, _flat(8), 0, free=7),
    Case("a queue of work keeps its workers", {"": "d" * 20 + "rrrrrrrp"}, _flat(8), 1, 1),
    Case("the last of a queue of work start together", {"": "d" * 20 + "ppp"}, _flat(8), 3),
    Case("the last of a queue of work start all or none", {"": "d" * 20 + "ppp"}, _flat(8), 0, free=2),
    Case("pods beyond the minimum join one by one as before", {"": "ddrrrrpp"}, _flat(4), 1, 1, free=1),
    Case("who failed is not done", {"": "fffrrrrp"}, _flat(8), 0),
    Case("a subgroup that is done holds up no other", {"driver": "d", "worker": "rrrfp"}, JOBS, 1),
    Case("a subgroup that is done does not stand for another", {"driver": "d", "worker": "rrffp"}, JOBS, 0),
    Case("a done subgroup and the rest of the gang", {"a": "dd", "b": "ffpp"}, PIECES, 2),
    Case("one done member in each of two subgroups", {"a": "dfp", "b": "dfp"}, PIECES, 2),
    Case("one subgroup is still short of a pod", {"a": "dfp", "b": "df"}, PIECES, 0),
]  # fmt: skip


@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["ours", "kai"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_who_is_replaced_beside_members_that_are_done(case: Case, rules: Rules) -> None:
    """Who succeeded is done: the others need no more than what is missing, and never less than all that is left."""
    plan = decide(_world(_gang(case.pods, case.root), case.free), rules)
    assert len(bound(plan)) == (case.ours if rules is DEFAULT else case.kai)


@pytest.mark.parametrize(
    ("pods", "stale"),
    [("dddrrrrfp", True), ("dddrrrrr", False), ("dddrrrrx", False), ("dddrrr", True), ("dddddddd", False)],
)
def test_a_gang_with_done_members_is_stale_until_the_lost_one_is_back(pods: str, stale: bool) -> None:
    """What is done counts, what is lost does not: without room for it the others wait for nothing and are evicted."""
    since = NOW - timedelta(minutes=5)
    plan = decide(_world(_gang({"": pods}, _flat(8), stale_since=since), free=0))
    assert len(evicted(plan)) == (pods.count("r") if stale else 0)


def test_what_is_left_of_a_gang_goes_and_comes_as_one() -> None:
    """No room for the one that was lost: the others go after their grace, and all five come back in one cycle."""
    since = NOW - timedelta(minutes=5)
    gang = _gang({"": "dddrrrrfp"}, _flat(8), stale_since=since)
    snapshot = _world(gang, free=0)
    plan = decide(snapshot)
    assert len(evicted(plan)) == 4
    again = after(snapshot, plan)
    waits = decide(again)
    assert (waits.binds, waits.evictions) == ((), ())
    nodes = (*again.nodes, node("c", 1))
    assert len(bound(decide(msgspec.structs.replace(again, nodes=nodes)))) == 5
