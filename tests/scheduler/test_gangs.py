"""Tests of which pods of a group start together and leave together."""

from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest

from controller.scheduler import cycle, gangs
from controller.scheduler.model import Job, PodSet, SubGroup, Task, TaskStatus
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from controller.scheduler.session import Session
from controller.scheduler.state import JobState
from tests.scheduler.words import NOW, cluster, node, queue

PENDING, RUNNING, RELEASING = TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.RELEASING
GATED, SUCCEEDED = TaskStatus.GATED, TaskStatus.SUCCEEDED
LETTERS = {"p": PENDING, "r": RUNNING, "x": RELEASING, "g": GATED, "s": SUCCEEDED}


def _loaded(root: SubGroup, pods: dict[str, str]) -> tuple[Session, JobState]:
    """Load a job whose pod sets have pods in these states, one letter a pod."""
    tasks = tuple(
        Task(
            id=f"job-{pod_set}{n}",
            job="job",
            pod_set=pod_set,
            index=n,
            status=LETTERS[letter],
            node="n1" if letter in "rx" else "",
        )
        for pod_set, letters in pods.items()
        for n, letter in enumerate(letters)
    )
    spec = Job(id="job", queue="q", created_at=NOW - timedelta(hours=1), root=root, tasks=tasks)
    session = cycle.open_session(cluster([node("n1")], [queue("q", 8)], [spec]), DEFAULT)
    return session, session.ledger.jobs["job"]


def _names(tasks: list[object]) -> list[str]:
    return [task.id.removeprefix("job-") for task in tasks]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Case:
    """A group, its pods, and who is placed and who is evicted next."""

    id: str
    root: SubGroup
    pods: dict[str, str]
    place: list[str]
    evict: list[str]
    more: bool


def _flat(**minimums: int) -> SubGroup:
    return SubGroup(
        pod_sets=tuple(PodSet(name=name, min_available=least) for name, least in minimums.items())
    )


PAIRS = SubGroup(
    groups=(
        SubGroup(name="one", pod_sets=(PodSet(name="a"), PodSet(name="b"))),
        SubGroup(name="two", pod_sets=(PodSet(name="c"), PodSet(name="d"))),
    ),
    min_sub_group=1,
)

CASES = [
    Case("a gang starts with its minimum and no pod more", _flat(a=2), {"a": "ppp"}, ["a0", "a1"], [], False),
    Case("a gang that is short of pods starts with none", _flat(a=3), {"a": "ppg"}, [], [], False),
    Case("above its minimum it grows by one pod", _flat(a=1), {"a": "rppp"}, ["a1"], ["a0"], False),
    Case("the surplus leaves one by one, the last first", _flat(a=1), {"a": "rrr"}, [], ["a2"], True),
    Case("at its minimum all leave together", _flat(a=2), {"a": "rr"}, [], ["a1", "a0"], False),
    Case("what is being released holds no place", _flat(a=2), {"a": "rxp"}, ["a2"], ["a0"], False),
    Case(
        "every pod set gets its minimum at once",
        _flat(a=1, b=2),
        {"a": "pp", "b": "pp"},
        ["a0", "b0", "b1"],
        [],
        False,
    ),
    Case(
        "the pod set that is filled least grows first",
        _flat(a=2, b=1),
        {"a": "rrp", "b": "rrp"},
        ["a2"],
        ["b1"],
        True,
    ),
    Case(
        "one complete subgroup is enough where one is asked for",
        PAIRS,
        {"a": "p", "b": "p", "c": "p", "d": "p"},
        ["a0", "b0"],
        [],
        False,
    ),
    Case(
        "a subgroup beyond the minimum joins as a whole",
        PAIRS,
        {"a": "r", "b": "r", "c": "p", "d": "p"},
        ["c0", "d0"],
        ["a0", "b0"],
        False,
    ),
    Case(
        "a surplus subgroup leaves as a whole before the rest",
        PAIRS,
        {"a": "r", "b": "r", "c": "r", "d": "r"},
        [],
        ["c0", "d0"],
        True,
    ),
    Case(
        "a subgroup that cannot be complete is passed over",
        PAIRS,
        {"a": "g", "b": "p", "c": "p", "d": "p"},
        ["c0", "d0"],
        [],
        False,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_who_starts_and_who_leaves(case: Case) -> None:
    """Groups grow and shrink in pieces that are of use."""
    session, job = _loaded(case.root, case.pods)
    leaving, more = gangs.tasks_to_evict(job)
    assert _names([*gangs.tasks_to_place(session, job, real=True)]) == case.place
    assert _names([*leaving]) == case.evict
    assert more is case.more


@pytest.mark.parametrize("state", ["p", "pp", "r", "rr"])
@pytest.mark.parametrize("root", [_flat(a=0), _flat(a=0, b=0), SubGroup()], ids=["one", "two", "none"])
def test_pods_of_a_subgroup_that_is_not_there_start_never_and_leave_first(root: SubGroup, state: str) -> None:
    """Nobody knows where they belong: no cycle stops at them, and a search goes through them all."""
    session, job = _loaded(root, {"stray": state})
    assert gangs.tasks_to_place(session, job, real=True) == []
    gone: set[str] = set()
    for _ in state:
        leaving, _more = gangs.tasks_to_evict(job, gone)
        gone |= {task.id for task in leaving}
    assert gone == {task.id for task in job.tasks if task.status is RUNNING}
    assert gangs.tasks_to_evict(job, gone) == ([], False)


def test_evicting_on_passes_by_those_chosen_before() -> None:
    """A search chooses piece after piece of one job without touching it."""
    _, job = _loaded(_flat(a=2), {"a": "rrrr"})
    gone: set[str] = set()
    pieces = []
    more = True
    while more:
        leaving, more = gangs.tasks_to_evict(job, gone)
        pieces.append(_names([*leaving]))
        gone |= {task.id for task in leaving}
    assert pieces == [["a3"], ["a2"], ["a1", "a0"]]


STALE = [
    ("a gang that lost a member is stale", _flat(a=2), {"a": "rp"}, True, True),
    ("a gang that is whole is not", _flat(a=2), {"a": "rrp"}, False, False),
    ("a member that is still ending counts", _flat(a=2), {"a": "rx"}, False, False),
    ("a gang of which nothing runs is not stale", _flat(a=2), {"a": "pp"}, False, False),
    ("by ours, who succeeded counts as done", _flat(a=2), {"a": "rs"}, False, False),
    ("by ours, one success does not excuse a lost member", _flat(a=3), {"a": "rsp"}, False, True),
    ("enough subgroups are enough", PAIRS, {"a": "r", "b": "r", "c": "p", "d": "p"}, False, False),
]


@pytest.mark.parametrize(
    ("root", "pods", "kai", "ours"), [case[1:] for case in STALE], ids=[case[0] for case in STALE]
)
def test_is_stale(root: SubGroup, pods: dict[str, str], kai: bool, ours: bool) -> None:
    """A gang is stale where what runs is of no use."""
    _, job = _loaded(root, pods)
    assert (gangs.is_stale(job, COMPATIBLE), gangs.is_stale(job, DEFAULT)) == (kai, ours)


def test_leaders_start_first_then_task_priority_then_age() -> None:
    """The order of pods in their group."""
    session, job = _loaded(_flat(a=4), {"a": "pppp"})
    specs = [
        msgspec.structs.replace(task.spec, leader=n == 2, order=5 if n == 3 else 0)
        for n, task in enumerate(job.tasks)
    ]
    spec = msgspec.structs.replace(job.spec, tasks=tuple(specs))
    session = cycle.open_session(msgspec.structs.replace(session.snapshot, jobs=(spec,)), DEFAULT)
    tasks = gangs.tasks_to_place(session, session.ledger.jobs["job"], real=True)
    assert _names([*tasks]) == ["a2", "a3", "a0", "a1"]
