"""Sending: a gang whole or not at all as far as that can be known beforehand; victims of one set all or none."""

from collections.abc import Callable

import msgspec
import pytest

from controller.outcome import Result
from controller.scheduler.plan import Bind
from controller.scheduler.shell.outcomes import Bound, Evicted, Looked
from controller.scheduler.shell.prebind import Prepared
from kube.api import ApiError, Conflict, Forbidden, Unavailable
from kube.types import Pod
from tests.fakes import request_to
from tests.scheduler_shell.dispatch_stage import PDB, Preparing, Stage, results
from tests.scheduler_shell.dispatch_stage import stage as stage
from tests.scheduler_shell.shell_words import gang, victims


def test_a_gang_is_bound_whole(stage: Callable[..., Stage]) -> None:
    """Everybody is looked at before it is prepared, when all are, and when its own turn to be sent comes."""
    one = stage()
    one.add("p0", "p1", "p2")
    one.dispatch.bind([gang("p0", "p1", "p2")])
    assert results(one.all()) == {f"ns/p{n}": Result.DONE for n in range(3)}
    assert one.sent() == ["p0/binding", "p1/binding", "p2/binding"]
    assert sorted(one.looks) == sorted([f"ns/p{n}" for n in range(3)] * 3)


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
