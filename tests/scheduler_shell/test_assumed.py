"""What was sent and does not show yet: it holds its room until the store, or a look at the pod itself, ends the matter."""

import itertools
from datetime import timedelta

from controller.scheduler.plan import Bind
from controller.scheduler.shell.assumed import SHOWN_WITHIN, Assumed
from tests.fakes import EPOCH
from tests.scheduler_shell.shell_words import keyed, waiting_pod

BIND = Bind(task="ns/p", job="ns/g", node="a", gpus=("GPU-1",))


def assumed() -> Assumed:
    made = Assumed()
    made.assume(BIND, "uid-p", EPOCH)
    return made


def test_a_bind_that_is_under_way_holds_its_room() -> None:
    """The next cycle sees the pod as binding on its node and cards."""
    made = assumed()
    made.settle(keyed([waiting_pod("p")]))
    assert made.bindings()["ns/p"].node == "a"
    assert made.bindings()["ns/p"].gpus == ("GPU-1",)


def test_the_store_ends_it() -> None:
    """Bound, another pod of the name, ended, or gone after it was sent."""
    for pods, sent in (
        ([waiting_pod("p", node="a")], False),
        ([waiting_pod("p", uid="another")], False),
        ([waiting_pod("p", phase="Failed")], False),
        ([], True),
    ):
        made = assumed()
        if sent:
            made.sent("ns/p", EPOCH)
        made.settle(keyed(pods))
        assert not made.holds("ns/p"), (pods, sent)


def test_a_pod_that_is_gone_before_its_bind_was_answered_is_left_to_the_answer() -> None:
    """The request may be on its way still."""
    made = assumed()
    made.settle({})
    assert made.holds("ns/p")


def test_a_bind_that_does_not_show_in_time_is_looked_at_with_growing_pauses() -> None:
    """It holds its room all the while."""
    made = assumed()
    made.sent("ns/p", EPOCH)
    assert made.doubtful(EPOCH + SHOWN_WITHIN - timedelta(seconds=1)) == ()
    looks, now = [], EPOCH
    while now < EPOCH + timedelta(minutes=5):
        looks += [now] if made.doubtful(now) else []
        now += timedelta(seconds=1)
    pauses = [after - before for before, after in itertools.pairwise(looks)]
    assert looks[0] == EPOCH + SHOWN_WITHIN
    assert pauses == sorted(pauses)
    assert max(pauses) == SHOWN_WITHIN
    assert made.holds("ns/p")


def test_a_bind_without_an_answer_is_looked_at_at_once() -> None:
    """And again after a second."""
    made = assumed()
    made.doubt("ns/p", EPOCH)
    assert [held.bind for held in made.doubtful(EPOCH)] == [BIND]
    assert made.doubtful(EPOCH) == ()
    assert len(made.doubtful(EPOCH + timedelta(seconds=1))) == 1


def test_an_eviction_is_not_sent_twice_until_it_shows_or_too_long_passed() -> None:
    """Then the pod is decided on anew."""
    made = Assumed()
    made.evicting("ns/p", "uid-p")
    assert made.evicting_now(EPOCH) == {"ns/p"}
    late = EPOCH + timedelta(minutes=10)
    made.settle(keyed([waiting_pod("p", node="a", phase="Running")]))
    assert made.is_evicted("ns/p", late), "the answer is still to come"
    made.evicted("ns/p", late)
    assert made.is_evicted("ns/p", late)
    assert not made.is_evicted("ns/p", late + SHOWN_WITHIN)
    made.settle({})
    assert made.evicting_now(EPOCH) == frozenset()


def test_an_eviction_that_was_refused_is_none() -> None:
    """The pod goes on."""
    made = Assumed()
    made.evicting("ns/p", "uid-p")
    made.not_evicted("ns/p")
    assert not made.is_evicted("ns/p", EPOCH)


def test_a_doubt_counts_from_the_request_not_from_the_decision() -> None:
    """It may have stood in line for long before it was sent, and may be on its way still."""
    made = assumed()
    late = EPOCH + SHOWN_WITHIN
    made.doubt("ns/p", late)
    assert made.since("ns/p") == late
