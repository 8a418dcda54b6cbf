"""Whose bind it was: ours are never counted, however late they show, and others' always are, if the pod waited for us."""

from datetime import timedelta

import msgspec
import pytest
from structlog.testing import capture_logs

from controller.outcome import Result
from controller.scheduler.model import Snapshot
from controller.scheduler.shell.foreign_binds import GROUPED_WITHIN, TOLD_EVERY, ForeignBinds
from controller.scheduler.shell.outcomes import Bound, unready
from controller.scheduler.shell.prebind import Prepared
from kube.store import Change
from tests.fakes import EPOCH
from tests.scheduler.words import cluster, job, node, queue
from tests.scheduler_shell.shell_words import OURS, answer, gang, waiting_pod

SECOND = timedelta(seconds=1)


def holding(*names: str) -> Snapshot:
    """Give a snapshot of our pool with these pods in it."""
    made = job("gang", "team", pods=len(names))
    tasks = tuple(
        msgspec.structs.replace(task, id=f"ns/{name}") for task, name in zip(made.tasks, names, strict=True)
    )
    return cluster([node("a")], [queue("team")], [msgspec.structs.replace(made, tasks=tasks)])


class Watching:
    """One that leads, and what it counted."""

    def __init__(self, *, leads: bool = True) -> None:
        self.counted = 0
        self.binds = ForeignBinds(OURS, self._count)
        if leads:
            self.look()

    def _count(self, more: int) -> None:
        self.counted += more

    def wait(self, *names: str, node: str = "") -> None:
        for name in names:
            self.binds.see(Change.ADDED, waiting_pod(name, node=node))

    def show(self, *names: str, on: str = "a", uid: str = "") -> None:
        """Let the watch show pods on a node."""
        for name in names:
            self.binds.see(Change.MODIFIED, waiting_pod(name, uid=uid, node=on))

    def order(self, name: str) -> None:
        self.binds.ordered([gang(name)])

    def hear(self, name: str, result: Result) -> None:
        """Let the answer to a bind onto node a come in."""
        self.binds.took_bind(Bound(order=gang(name).members[0], job="ns/gang", answer=answer(result)))

    def look(self, *names: str, after: timedelta = timedelta(0)) -> int:
        self.binds.look(holding(*(names or ("p",))), EPOCH + after)
        return self.counted


@pytest.mark.parametrize(
    ("result", "foreign"),
    [
        (Result.DONE, 0),
        (Result.UNAVAILABLE, 0),
        (Result.CONFLICT, 1),
        (Result.REFUSED, 1),
        (Result.FORBIDDEN, 1),
        (Result.INVALID, 1),
        (Result.THROTTLED, 1),
        (Result.BLOCKED, 1),
        (Result.NOT_LEADER, 1),
    ],
)
@pytest.mark.parametrize("shows_first", [True, False], ids=["it shows before the answer", "after the answer"])
def test_our_own_is_what_the_server_took_or_may_have_taken(
    result: Result, foreign: int, shows_first: bool
) -> None:
    """Onto the very node that we chose, too, as a second scheduler with the same rules would choose it."""
    it = Watching()
    it.wait("p")
    it.order("p")
    if shows_first:
        it.show("p")
        assert it.look() == 0
        it.hear("p", result)
    else:
        it.hear("p", result)
        assert it.look() == 0
        it.show("p")
    assert it.look() == foreign
    assert it.look() == foreign


def test_a_bind_that_shows_long_after_it_was_given_up_is_ours() -> None:
    """It was given to another node by then; that one was turned away, since the pod is bound."""
    it = Watching()
    it.wait("p")
    it.order("p")
    it.hear("p", Result.UNAVAILABLE)
    it.look()
    it.order("p")
    it.hear("p", Result.CONFLICT)
    it.show("p")
    assert it.look(after=60 * SECOND) == 0


@pytest.mark.parametrize("result", [Result.DONE, Result.UNAVAILABLE, Result.CONFLICT])
def test_a_pod_on_another_node_than_we_chose_is_anothers(result: Result) -> None:
    """Whatever our own bind came to, or still comes to."""
    it = Watching()
    it.wait("p")
    it.order("p")
    it.show("p", on="b")
    assert it.look() == 1
    it.hear("p", result)
    assert it.look() == 1


def test_a_bind_that_waits_for_a_volume_is_not_ours_yet() -> None:
    """Nothing was sent; and what is sent later is ours."""
    it = Watching()
    order = gang("p")
    for name in ("p", "q"):
        it.wait(name)
        it.order(name)
        waits = unready(
            gang(name).members[0], order.job, Prepared(ready=False, pod=f"ns/{name}", waits=True, why="soon")
        )
        it.binds.took_bind(waits)
    it.show("p")
    it.order("q")
    it.hear("q", Result.DONE)
    it.show("q")
    assert it.look("p", "q") == 1


@pytest.mark.parametrize(
    ("what", "foreign"),
    [
        ("a pod that waited", 1),
        ("a pod that was created on its node", 0),
        ("a pod of another scheduler's name", 0),
        ("a pod that went before it was bound, and one of its name", 0),
        ("a pod that was bound before we led", 0),
        ("a pod that waited before we led, bound since", 1),
    ],
)
def test_which_pods_count(what: str, foreign: int) -> None:
    """Those that this process saw wait, bound while it led."""
    it = Watching(leads="before we led" not in what)
    if what == "a pod of another scheduler's name":
        pod = waiting_pod("p")
        spec = msgspec.structs.replace(pod.spec, scheduler_name="default-scheduler")
        it.binds.see(Change.ADDED, msgspec.structs.replace(pod, spec=spec))
    elif what != "a pod that was created on its node":
        it.wait("p")
    if what.startswith("a pod that went"):
        it.binds.see(Change.DELETED, waiting_pod("p"))
        it.show("p", uid="another")
    elif what.endswith("bound since"):
        it.look()
    it.show("p")
    it.look()
    it.show("p")
    assert it.look() == foreign


def test_a_pod_of_another_pool_does_not_count() -> None:
    """Its own scheduler bound it. One whose group is not known yet is ours as soon as it is.

    One that is in no group any more was in one while it waited: a person's bind does not name it.
    """
    it = Watching()
    it.wait("theirs", "slow", "known")
    assert it.look("p", "known") == 0
    it.show("theirs", "slow", "known")
    assert it.look("p") == 1
    assert it.look("p", "slow", after=GROUPED_WITHIN / 2) == 2
    assert it.look("p", after=GROUPED_WITHIN) == 2
    assert it.look("p", "theirs", after=2 * GROUPED_WITHIN) == 2


def test_it_is_said_at_once_and_then_once_a_minute() -> None:
    """With how many there were since; it ends when nobody binds any more."""
    it = Watching()
    names = [f"p{number}" for number in range(7)]
    it.wait(*names)
    with capture_logs() as lines:
        it.show("p0")
        it.look(*names)
        for number in range(1, 7):
            it.show(names[number])
            it.look(*names, after=number * SECOND)
        for number in range(1, 5):
            it.look(*names, after=number * TOLD_EVERY)
    assert [(one["event"], one["log_level"], one["pod"], one["node"], one["count"]) for one in lines] == [
        ("bind.foreign", "warning", "ns/p0", "a", 1),
        ("bind.foreign", "warning", "ns/p6", "a", 6),
    ]
    assert "second scheduler" in lines[0]["meaning"]
    assert "leader.name" in lines[0]["look_for"]


def test_what_is_remembered_of_binds_goes_with_them() -> None:
    """A scheduler runs for months."""
    it = Watching()
    for number in range(50):
        name = f"p{number}"
        it.wait(name)
        it.order(name)
        if number % 2:
            it.hear(name, Result.DONE)
            it.show(name)
        else:
            it.binds.see(Change.DELETED, waiting_pod(name))
            it.look()
            it.hear(name, Result.CONFLICT)
    it.look()
    assert it.binds.remembered == 0


def test_who_does_not_lead_remembers_nobody_who_waits_no_more() -> None:
    """A replica stands by for months, and a dry run never looks."""
    it = Watching(leads=False)
    it.wait("bound", "gone", "waits")
    it.show("bound")
    it.binds.see(Change.DELETED, waiting_pod("gone"))
    assert it.binds.remembered == 1
