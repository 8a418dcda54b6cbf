"""What stood in line is looked at once more when its turn comes; what was ordered is told of whatever happens; the end."""

import threading
from collections.abc import Callable

import pytest

from controller.outcome import Result
from controller.scheduler.shell.dispatch import STOPPING
from controller.scheduler.shell.evictions import BEGUN_LASTS_S, EVICTION_LAPSES_S
from controller.scheduler.shell.outcomes import Evicted
from controller.scheduler.shell.prebind import Prepared
from kube.api import ApiError, Forbidden, NotLeader, TooManyRequests
from tests.fakes import request_to, wait_until
from tests.scheduler_shell.dispatch_stage import PDB, Preparing, Stage, occupied, results
from tests.scheduler_shell.dispatch_stage import stage as stage
from tests.scheduler_shell.shell_words import gang, victims


def test_a_gang_that_stood_in_line_goes_back_whole_where_a_node_fell_ill_meanwhile(
    stage: Callable[..., Stage],
) -> None:
    """Each is looked at when its turn comes; as long as nobody was sent, nobody is."""
    one = stage()
    one.add("p0", "p1", "p2")

    def fall_ill(_task: str) -> None:
        if len(one.looks) == 6:  # after the last look at all of them
            one.changed["ns/p0"] = one.changed["ns/p1"] = one.changed["ns/p2"] = "node a fell ill"

    one.on_look = fall_ill
    one.dispatch.bind([gang("p0", "p1", "p2")])
    outcomes = one.all()
    assert one.sent() == []
    assert set(results(outcomes).values()) == {Result.REFUSED}
    assert sorted(one.preparing.undone) == ["ns/p0", "ns/p1", "ns/p2"]


def test_a_member_whose_node_fell_ill_after_the_first_binding_stays_back_alone(
    stage: Callable[..., Stage],
) -> None:
    """It is placed elsewhere by the next cycle; bound onto what is ill it would only die there."""
    one = stage()
    one.add("p0", "p1")

    def bind(api_task: str) -> None:
        if len(one.looks) > 4 and api_task == "ns/p1":
            wait_until(lambda: one.sent() == ["p0/binding"])
            one.changed["ns/p1"] = "node b fell ill"

    one.on_look = bind
    one.dispatch.bind([gang("p0", "p1")])
    outcomes = one.all()
    assert results(outcomes) == {"ns/p0": Result.DONE, "ns/p1": Result.REFUSED}
    assert one.preparing.undone == ["ns/p1"]


def test_a_defect_in_looking_again_is_told_of_every_member(stage: Callable[..., Stage]) -> None:
    """Nobody is left behind of whom the loop hears nothing."""
    one = stage()

    def break_down(_task: str) -> None:
        if len(one.looks) > 3:
            raise RuntimeError("broken")

    one.on_look = break_down
    one.dispatch.bind([gang("p0", "p1", "p2")])
    outcomes = one.all()
    assert results(outcomes) == {f"ns/p{n}": Result.REFUSED for n in range(3)}
    assert one.sent() == []


def test_a_defect_in_taking_back_is_told_too(stage: Callable[..., Stage]) -> None:
    """The answer of the server counts, whatever came of the claims."""

    class Broken(Preparing):
        def undo(self, prepared: Prepared) -> None:
            raise RuntimeError(prepared.pod)

    one = stage(Broken(), changed={"ns/p1": "node a is gone"})
    one.add("p2")
    one.api.fail_next(request_to("CREATE", "p2/binding"), Forbidden("a policy says no", code=403))
    one.dispatch.bind([gang("p0", "p1"), gang("p2", job="ns/other")])
    assert results(one.all()) == {
        "ns/p0": Result.REFUSED,
        "ns/p1": Result.REFUSED,
        "ns/p2": Result.FORBIDDEN,
    }


def test_at_the_end_what_stands_in_line_is_dropped_and_a_gang_that_began_is_bound_whole(
    stage: Callable[..., Stage],
) -> None:
    """Half a gang would wait for the next leader."""
    one = stage()
    names = [f"g{number}" for number in range(40)]
    one.add(*names, "late")
    stopped: list[threading.Thread] = []

    def stop(_task: str) -> None:
        if len(one.looks) == 2 * len(names) + 1:  # the first of the second wave
            stopped.append(threading.Thread(target=one.dispatch.stop))
            stopped[0].start()
            wait_until(lambda: one.dispatch.why_not(gang("late").members[0]) == STOPPING)

    one.on_look = stop
    one.dispatch.bind([gang(*names)])
    wait_until(lambda: len(one.sent()) == len(names))
    stopped[0].join(5)
    assert not stopped[0].is_alive()


def test_at_the_end_nothing_new_begins(stage: Callable[..., Stage]) -> None:
    """Neither binds nor evictions nor reads."""
    one = stage()
    one.add("p0", "p1", "p2", "v0")
    release = occupied(one)
    one.dispatch.bind([gang("p0"), gang("p1", "p2", job="ns/other")])
    one.dispatch.read("ns/p0")
    ending = threading.Thread(target=one.dispatch.stop)
    ending.start()
    wait_until(lambda: one.dispatch.why_not(gang("p0").members[0]) == STOPPING)
    release.set()
    ending.join(5)
    assert not ending.is_alive()
    assert one.sent() == []
    assert not [request for request in one.api.requests if request.method == "GET"]


def test_victims_of_whom_the_evidence_changed_are_not_even_asked_about(stage: Callable[..., Stage]) -> None:
    """What is destructive is looked at once more, right before."""
    one = stage()
    one.add("v0", "v1")
    one.why_not_evict = "the breaker is open"
    one.dispatch.evict([victims("v0", "v1")])
    outcomes = [outcome for outcome in one.all() if isinstance(outcome, Evicted)]
    assert all(outcome.tried for outcome in outcomes)
    assert {outcome.answer.why for outcome in outcomes} == {"the breaker is open"}
    assert one.api.writes() == []


def test_an_eviction_that_stood_in_line_for_too_long_lapses(stage: Callable[..., Stage]) -> None:
    """Whoever gains by it may have its place by now."""
    one = stage()
    one.add("v0", "v1")
    started, go_on = threading.Event(), threading.Event()

    def slow(_request: object) -> bool:
        started.set()
        go_on.wait(5)
        return False

    one.api.fail_next(slow, PDB)
    for _ in range(4):
        one.dispatch.evict([victims("v0")])
    one.dispatch.evict([victims("v1")])
    started.wait(5)
    one.time.advance(EVICTION_LAPSES_S + 1)
    go_on.set()
    outcomes = [outcome for outcome in one.all() if isinstance(outcome, Evicted)]
    assert "v1/eviction" not in one.sent()
    assert {outcome.answer.result for outcome in outcomes if outcome.victim.evict.task == "ns/v1"} == {
        Result.REFUSED
    }


def test_the_rest_of_a_set_stays_where_one_is_held_after_all(stage: Callable[..., Stage]) -> None:
    """Two of one budget that allows one: each was allowed by itself."""
    one = stage()
    one.add("v0", "v1", "v2")
    real = request_to("CREATE", "v1/eviction")
    one.api.fail_next(lambda request: real(request) and "dryRun" not in request.query, PDB, times=None)
    one.dispatch.evict([victims("v0", "v1", "v2")])
    outcomes = [outcome for outcome in one.all() if isinstance(outcome, Evicted)]
    assert results(list(outcomes)) == {
        "ns/v0": Result.DONE,
        "ns/v1": Result.BLOCKED,
        "ns/v2": Result.REFUSED,
    }
    assert one.sent() == ["v0/eviction", "v1/eviction"]


def test_pods_that_wait_for_their_volumes_hold_up_nobody(stage: Callable[..., Stage]) -> None:
    """However many there are, and however long the server takes over each."""
    one = stage()
    names = [f"slow-{number}" for number in range(40)]
    one.preparing.slow = frozenset(names)
    one.add(*names, "p0", "g0", "g1")
    one.dispatch.bind([gang(name, job=f"ns/{name}") for name in names])
    one.dispatch.bind([gang("p0"), gang("g0", "g1", job="ns/other")])
    wait_until(lambda: one.sent() == ["g0/binding", "g1/binding", "p0/binding"])
    one.preparing.go_on.set()
    assert len(results(one.all())) == len(names) + 3


def test_the_rest_of_a_set_that_began_to_leave_is_asked_for_until_the_server_takes_it(
    stage: Callable[..., Stage],
) -> None:
    """What has left made room for nobody; were it given up, others would take that, and a whole set would leave anew."""
    one = stage()
    one.add("v0", "v1", "v2")
    real = request_to("CREATE", "v1/eviction")
    busy = TooManyRequests("too many requests", code=429)
    one.api.fail_next(lambda request: real(request) and "dryRun" not in request.query, busy, times=3)
    one.dispatch.evict([victims("v0", "v1", "v2")])
    assert set(results(one.all()).values()) == {Result.DONE}
    assert one.sent().count("v1/eviction") == 4
    assert sum(one.time.slept) < BEGUN_LASTS_S


@pytest.mark.parametrize(
    ("fails", "error", "tries"),
    [
        pytest.param("v0", TooManyRequests("busy", code=429), 1, id="nobody has left yet"),
        pytest.param("v1", NotLeader("the lease may pass on"), 1, id="another replica may lead by now"),
        pytest.param("v1", Forbidden("a policy denies it", code=403), 1, id="this one may not be evicted"),
        pytest.param("v1", TooManyRequests("busy", code=429), 20, id="the server takes nothing for long"),
    ],
)
def test_when_a_set_is_given_up(stage: Callable[..., Stage], fails: str, error: ApiError, tries: int) -> None:
    """The next cycle judges anew."""
    one = stage()
    one.add("v0", "v1")
    real = request_to("CREATE", f"{fails}/eviction")
    one.api.fail_next(lambda request: real(request) and "dryRun" not in request.query, error, times=None)
    one.dispatch.evict([victims("v0", "v1")])
    assert results(one.all())[f"ns/{fails}"] not in (Result.DONE, Result.ABSENT)
    assert 1 <= one.sent().count(f"{fails}/eviction") <= tries
    assert (one.sent().count(f"{fails}/eviction") > 1) is (tries > 1)
    assert sum(one.time.slept) <= BEGUN_LASTS_S + 1.0
