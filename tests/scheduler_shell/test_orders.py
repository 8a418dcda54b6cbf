"""What belongs together: gangs below their minimum, victims that leave for one job, gangs of which half was lost."""

from datetime import timedelta

import msgspec
import pytest

from controller.scheduler.model import Job, PodSet, SubGroup, Task, TaskStatus
from controller.scheduler.plan import Bind, Evict, Plan
from controller.scheduler.shell.orders import half_gangs, is_whole, least, together, victim_sets
from kube.scheduling import LAST_START, PodGroup
from kube.timestamps import rfc3339
from kube.types import ObjectMeta, Pod
from tests.fakes import EPOCH
from tests.scheduler.words import cluster, job, node, queue

ON_A = [("a", [0]), ("a", [1])]


def planned(*jobs: Job) -> list[tuple[list[str], bool]]:
    """Bind every pod that waits; say what goes together, and what stands by itself."""
    snapshot = cluster([node("a")], [queue("team")], jobs)
    binds = tuple(
        Bind(task=task.id, job=one.id, node="a")
        for one in jobs
        for task in one.tasks
        if task.status is TaskStatus.PENDING
    )
    return [
        ([bind.task for bind in found], alone) for _, found, alone in together(Plan(binds=binds), snapshot)
    ]


@pytest.mark.parametrize(
    ("made", "expected", "alone"),
    [
        (job("one", "team"), [["one-0"]], True),
        (job("gang", "team", pods=3), [["gang-0", "gang-1", "gang-2"]], False),
        (job("elastic", "team", pods=3, least=1, on=ON_A[:1]), [["elastic-1"], ["elastic-2"]], True),
        (job("lost", "team", pods=4, on=ON_A), [["lost-2", "lost-3"]], False),
        (job("last", "team", pods=3, on=ON_A), [["last-2"]], False),
        (job("loose", "team", pods=3, least=1), [["loose-0"], ["loose-1"], ["loose-2"]], True),
        (job("starts", "team", pods=4, least=3), [["starts-0", "starts-1", "starts-2", "starts-3"]], False),
    ],
    ids=[
        "a single pod goes alone",
        "a gang goes as one",
        "what a running job takes besides goes one by one",
        "the missing members of a gang go as one",
        "so does the last one: the gang stands and falls with it",
        "a job whose every pod may run alone goes one by one",
        "a gang that starts goes as one with what it takes besides",
    ],
)
def test_binds_that_go_together(made: Job, expected: list[list[str]], alone: bool) -> None:
    """One order for what is sent together or not at all."""
    assert planned(made) == [(tasks, alone) for tasks in expected]


def test_a_job_needs_the_sum_of_its_subgroups_or_as_many_as_it_says() -> None:
    """`min_sub_group` counts the smallest ones: fewer pods can make it whole."""
    leaves = (PodSet(name="a", min_available=4), PodSet(name="b", min_available=2))
    assert least(SubGroup(pod_sets=leaves)) == 6
    assert least(SubGroup(pod_sets=leaves, min_sub_group=1)) == 2
    nested = SubGroup(groups=(SubGroup(name="in", pod_sets=leaves),), pod_sets=(PodSet(name="c"),))
    assert least(nested) == 7


def test_victims_of_one_gainer_are_one_set_and_stale_gangs_each_their_own() -> None:
    """Whoever is gone already is in none."""
    evictions = [
        Evict(task="x-0", job="x", node="a", action="reclaim", why="w", gains="asks"),
        Evict(task="y-0", job="y", node="a", action="reclaim", why="w", gains="asks"),
        Evict(task="s-0", job="s", node="a", action="stalegangeviction", why="w"),
        Evict(task="t-0", job="t", node="a", action="stalegangeviction", why="w"),
        Evict(task="t-0", job="t", node="a", action="half-gang", why="named twice"),
        Evict(task="gone", job="t", node="a", action="stalegangeviction", why="w"),
    ]
    sets = victim_sets(evictions, {"x-0": "1", "y-0": "2", "s-0": "3", "t-0": "4"})
    assert [(one.gains, [victim.evict.task for victim in one.victims]) for one in sets] == [
        ("asks", ["x-0", "y-0"]),
        ("", ["s-0"]),
        ("", ["t-0"]),
    ]


@pytest.mark.parametrize(
    ("members", "noted", "half"),
    [
        pytest.param({"x-0": -60, "x-1": -60}, None, True, id="one that never noted a start"),
        pytest.param({"x-0": -60, "x-1": -60}, -30, False, id="not one that was whole once: it is stale"),
        pytest.param(
            {"x-0": -10, "x-1": -10}, -30, True, id="one that was whole before its pods were made anew"
        ),
        pytest.param({"x-0": -60, "x-1": -10}, -30, False, id="not one that kept a member from then"),
        pytest.param({}, None, False, id="not one of which no pod has a place"),
        pytest.param({"x-0": -60, "x-1": -60, "x-2": -60}, None, False, id="not one that is whole"),
    ],
)
def test_a_half_gang_is_one_that_never_ran_whole(
    members: dict[str, int], noted: int | None, half: bool
) -> None:
    """That some of its pods run tells nothing: they do so within a second. Seconds before now."""
    on = [("a", [number]) for number in range(len(members))]
    made = msgspec.structs.replace(job("x", "team", pods=3, on=on), started_at=EPOCH)
    pods = {
        name: Pod(metadata=ObjectMeta(name=name, creation_timestamp=EPOCH + timedelta(seconds=age)))
        for name, age in members.items()
    }
    notes = {} if noted is None else {LAST_START: rfc3339(EPOCH + timedelta(seconds=noted))}
    groups = {"x": PodGroup(metadata=ObjectMeta(name="x", annotations=notes))}
    snapshot = cluster([node("a")], [queue("team")], [made])
    assert half_gangs(snapshot, pods, groups) == ({"x"} if half else set())


@pytest.mark.parametrize(
    ("held", "needed", "whole"),
    [
        ({"a": 2, "b": 2}, None, True),
        ({"a": 3, "b": 1}, None, False),
        ({"a": 3, "b": 1}, 1, True),
        ({"b": 1}, 1, False),
    ],
    ids=["each has its own", "not by what another has too much", "one of both is enough", "none has its own"],
)
def test_a_job_is_whole_subgroup_by_subgroup(held: dict[str, int], needed: int | None, whole: bool) -> None:
    """Two of each."""
    parts = tuple(PodSet(name=name, min_available=2) for name in ("a", "b"))
    tasks = [
        Task(id=f"{name}-{number}", job="x", pod_set=name, status=TaskStatus.BOUND, node="n")
        for name, count in held.items()
        for number in range(count)
    ]
    made = job("x", "team")
    root = SubGroup(pod_sets=parts, min_sub_group=needed)
    assert is_whole(msgspec.structs.replace(made, root=root, tasks=tuple(tasks))) is whole
