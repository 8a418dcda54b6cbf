"""Sending: a gang whole or not at all as far as that can be known beforehand; victims of one set all or none."""

import threading
from collections.abc import Callable, Iterator, Mapping

import msgspec
import pytest

from controller.outcome import Result
from controller.scheduler.plan import Bind
from controller.scheduler.shell.dispatch import Bound, Dispatch, Evicted, Looked, Outcome
from controller.scheduler.shell.effects import Effects
from controller.scheduler.shell.orders import BindOrder
from controller.scheduler.shell.prebind import Prepared
from kube import paths
from kube.api import ApiError, Conflict, Forbidden, TooManyRequests, Unavailable
from kube.types import Pod
from tests.fakes import FakeApi, request_to, wait_until
from tests.scheduler_shell.shell_words import gang, victims, waiting_pod

PDB = TooManyRequests("Cannot evict pod", code=429, causes=("DisruptionBudget",))


class Preparing:
    """Prepares in memory; `unready` names pods whose volume is not there yet."""

    def __init__(self, unready: Mapping[str, str] = {}, *, gives_up: bool = False) -> None:
        self.unready = unready
        self.gives_up = gives_up
        self.undone: list[str] = []

    def prepare(self, bind: Bind, pod: Pod) -> Prepared:
        assert pod.metadata.name == bind.task.rpartition("/")[2]
        why = self.unready.get(bind.task, "")
        return Prepared(ready=not why, why=why, waits=bool(why) and not self.gives_up, pod=bind.task)

    def undo(self, prepared: Prepared) -> None:
        self.undone.append(prepared.pod)


class Stage:
    """A dispatch over a fake API; `changed` names pods of which the world is another one by now."""

    def __init__(self, preparing: Preparing | None = None, changed: Mapping[str, str] = {}) -> None:
        self.api = FakeApi()
        self.preparing = preparing or Preparing()
        self.looks: list[str] = []
        self._changed = changed
        self._woken = threading.Event()
        self.dispatch = Dispatch(Effects(self.api), self.preparing, self._look, self._woken.set)

    def _look(self, order: BindOrder) -> str:
        self.looks.append(order.bind.task)
        return self._changed.get(order.bind.task, "")

    def add(self, *names: str) -> None:
        for name in names:
            pod = waiting_pod(name)
            body = {
                "metadata": {"name": name, "namespace": "ns", "uid": pod.metadata.uid},
                "spec": {"schedulerName": "nodemend-scheduler"},
            }
            self.api.add(paths.pods("ns"), body)

    def all(self) -> list[Outcome]:
        """Wait until everything that was ordered is in."""
        found: list[Outcome] = []

        def done() -> bool:
            found.extend(self.dispatch.collect())
            return self.dispatch.under_way == 0

        wait_until(done)
        return found

    def sent(self) -> list[str]:
        return sorted(
            one.path.rpartition("/pods/")[2] for one in self.api.writes() if "dryRun" not in one.query
        )


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(*arguments: object, **named: object) -> Stage:
        made.append(Stage(*arguments, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.dispatch.stop()


def results(outcomes: list[Outcome]) -> dict[str, Result]:
    """Say what came of each pod."""
    found = {}
    for one in outcomes:
        if isinstance(one, Bound):
            found[one.order.bind.task] = one.answer.result
        elif isinstance(one, Evicted):
            found[one.victim.evict.task] = one.answer.result
    return found


def test_a_gang_is_bound_whole(stage: Callable[..., Stage]) -> None:
    """Everybody is looked at twice: before it is prepared, and right before the first Binding."""
    one = stage()
    one.add("p0", "p1", "p2")
    one.dispatch.bind([gang("p0", "p1", "p2")])
    assert results(one.all()) == {f"ns/p{n}": Result.DONE for n in range(3)}
    assert one.sent() == ["p0/binding", "p1/binding", "p2/binding"]
    assert sorted(one.looks) == sorted([f"ns/p{n}" for n in range(3)] * 2)


def test_a_gang_one_of_whose_nodes_changed_is_not_sent_at_all(stage: Callable[..., Stage]) -> None:
    """No half gang comes of what can be known beforehand; what was prepared is taken back."""
    one = stage(changed={"ns/p1": "node a changed since it was chosen"})
    one.add("p0", "p1", "p2")
    one.dispatch.bind([gang("p0", "p1", "p2")])
    outcomes = one.all()
    assert set(results(outcomes).values()) == {Result.REFUSED}
    assert one.sent() == []
    assert sorted(one.preparing.undone) == ["ns/p0", "ns/p2"]
    assert {outcome.answer.why for outcome in outcomes if isinstance(outcome, Bound)} == {
        "ns/p1: node a changed since it was chosen"
    }


def test_a_gang_waits_whole_for_one_volume(stage: Callable[..., Stage]) -> None:
    """Its places are kept, nothing is sent."""
    one = stage(Preparing({"ns/p2": "waiting for volume data"}))
    one.add("p0", "p1", "p2")
    one.dispatch.bind([gang("p0", "p1", "p2")])
    outcomes = [outcome for outcome in one.all() if isinstance(outcome, Bound)]
    assert [outcome.waits for outcome in outcomes] == [True] * 3
    assert one.sent() == []


def test_a_gang_goes_back_whole_where_one_member_gave_up(stage: Callable[..., Stage]) -> None:
    """What the others had reserved is free again."""
    one = stage(Preparing({"ns/p2": "no volume came"}, gives_up=True))
    one.add("p0", "p1", "p2")
    one.dispatch.bind([gang("p0", "p1", "p2")])
    outcomes = [outcome for outcome in one.all() if isinstance(outcome, Bound)]
    assert {outcome.answer.result for outcome in outcomes} == {Result.BLOCKED}
    assert not any(outcome.waits for outcome in outcomes)
    assert {"ns/p0", "ns/p1"} <= set(one.preparing.undone)
    assert one.sent() == []


@pytest.mark.parametrize(
    ("error", "result", "undone"),
    [
        (Conflict("bound already", code=409), Result.CONFLICT, True),
        (Forbidden("a policy says no", code=403), Result.FORBIDDEN, True),
        (Unavailable("no answer"), Result.UNAVAILABLE, False),
    ],
    ids=["a conflict", "a refusal", "no answer: nobody knows, so nothing is taken back"],
)
def test_what_a_failed_binding_comes_to(
    stage: Callable[..., Stage], error: ApiError, result: Result, undone: bool
) -> None:
    """Claims that were reserved are released only where the bind was refused for sure."""
    one = stage()
    one.add("p0")
    one.api.fail_next(request_to("CREATE", "/binding"), error)
    one.dispatch.bind([gang("p0")])
    assert results(one.all()) == {"ns/p0": result}
    assert one.preparing.undone == (["ns/p0"] if undone else [])


def test_a_binding_names_the_uid_and_carries_the_annotations(stage: Callable[..., Stage]) -> None:
    """It never lands on another pod of the same name."""
    one = stage()
    one.add("p0")
    order = gang("p0").members[0]
    order = msgspec.structs.replace(order, annotations={"pod-group-name": "g"})
    one.dispatch.bind([msgspec.structs.replace(gang("p0"), members=(order,))])
    one.all()
    (request,) = one.api.writes()
    assert request.body["metadata"] == {
        "name": "p0",
        "uid": "uid-p0",
        "annotations": {"pod-group-name": "g"},
    }
    assert request.body["target"]["name"] == "a"


def test_a_set_of_victims_leaves_whole(stage: Callable[..., Stage]) -> None:
    """Each is asked about first, then each is evicted."""
    one = stage()
    one.add("v0", "v1")
    one.dispatch.evict([victims("v0", "v1")])
    assert results(one.all()) == {"ns/v0": Result.DONE, "ns/v1": Result.DONE}
    assert one.sent() == ["v0/eviction", "v1/eviction"]


def test_nobody_of_a_set_is_evicted_where_a_budget_holds_one(stage: Callable[..., Stage]) -> None:
    """The other would have died for nothing; nothing is ever deleted instead."""
    one = stage()
    one.add("v0", "v1")
    one.api.fail_next(request_to("CREATE", "v1/eviction"), PDB, times=None)
    one.dispatch.evict([victims("v0", "v1")])
    outcomes = [outcome for outcome in one.all() if isinstance(outcome, Evicted)]
    assert all(outcome.tried for outcome in outcomes)
    assert results(list(outcomes)) == {"ns/v0": Result.DONE, "ns/v1": Result.BLOCKED}
    assert one.sent() == []
    assert not [request for request in one.api.writes() if request.method == "DELETE"]


def test_the_rest_of_a_stale_gang_leaves_as_far_as_it_may(stage: Callable[..., Stage]) -> None:
    """Nobody gains by it, so nobody waits for the one that a budget holds."""
    one = stage()
    one.add("v0", "v1")
    one.api.fail_next(request_to("CREATE", "v1/eviction"), PDB, times=None)
    one.dispatch.evict([victims("v0", "v1", gains="")])
    assert results(one.all()) == {"ns/v0": Result.DONE, "ns/v1": Result.BLOCKED}
    assert one.sent() == ["v0/eviction"]


def test_a_pod_of_which_nobody_knows_is_read(stage: Callable[..., Stage]) -> None:
    """There, gone, or no answer."""
    one = stage()
    one.add("p0", "p2")
    one.api.fail_next(request_to("GET", "p2"), Unavailable("no answer"), times=None)
    for task in ("ns/p0", "ns/p1", "ns/p2"):
        one.dispatch.read(task)
    found = {outcome.task: outcome for outcome in one.all() if isinstance(outcome, Looked)}
    assert found["ns/p0"].pod is not None
    assert (found["ns/p1"].pod, found["ns/p1"].was_read) == (None, True)
    assert not found["ns/p2"].was_read


def test_a_defect_in_preparing_ends_the_gangs_turn_and_nothing_else(stage: Callable[..., Stage]) -> None:
    """The loop hears of every member; others are bound."""

    class Broken(Preparing):
        def prepare(self, bind: Bind, pod: Pod) -> Prepared:
            if bind.task == "ns/p1":
                raise RuntimeError("broken")
            return super().prepare(bind, pod)

    one = stage(Broken())
    one.add("p0", "p1", "p2")
    one.dispatch.bind([gang("p0", "p1"), gang("p2", job="ns/other")])
    assert results(one.all()) == {
        "ns/p0": Result.REFUSED,
        "ns/p1": Result.REFUSED,
        "ns/p2": Result.DONE,
    }
