"""What is remembered of evictions that were not taken: who is no victim for a while, and whose evictions pause."""

from datetime import timedelta

import pytest

from controller.outcome import Result
from controller.scheduler.plan import Plan, Wait
from controller.scheduler.shell.config import GracesSection
from controller.scheduler.shell.memory import Memory
from controller.scheduler.shell.orders import VictimSet
from controller.scheduler.shell.outcomes import Evicted
from tests.fakes import EPOCH
from tests.scheduler.words import cluster
from tests.scheduler_shell.shell_words import answer, victims

SECOND = timedelta(seconds=1)
EMPTY = cluster([], [], [])


def test_an_eviction_is_sent_once_and_told_with_why_this_victim() -> None:
    """While it does not show, no set with that pod is sent again."""
    memory, one = Memory(GracesSection()), victims("v0", "v1")
    assert memory.evicting([one], EPOCH) == [one]
    assert memory.evicting([one, victims("v1", "v2")], EPOCH) == []
    assert memory.known(EPOCH).evicting == {"ns/v0", "ns/v1"}
    done = Evicted(victim=one.victims[0], gains=one.gains, answer=answer(Result.DONE))
    memory.took_eviction(done, EPOCH)
    (happened,) = memory.happened()
    assert (happened.what, happened.message) == ("evicted", "lent")


def test_a_pod_that_a_budget_holds_is_no_victim_for_a_while() -> None:
    """And the rest of its set is free again, for another choice."""
    memory, one = Memory(GracesSection()), victims("v0", "v1")
    memory.evicting([one], EPOCH)
    for victim, result in zip(one.victims, (Result.DONE, Result.BLOCKED), strict=True):
        memory.took_eviction(
            Evicted(victim=victim, gains=one.gains, answer=answer(result, "a budget"), tried=True), EPOCH
        )
    known = memory.known(EPOCH)
    assert known.evicting == frozenset()
    assert known.protected == {"ns/v1": "a budget"}
    assert [one.what for one in memory.happened()] == ["evict-refused"]
    assert memory.known(EPOCH + 11 * SECOND).protected == {}


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (Result.THROTTLED, "busy"),
        (Result.UNAVAILABLE, "no answer"),
        (Result.CONFLICT, "changed meanwhile"),
        (
            Result.FORBIDDEN,
            'User "x" cannot create resource "pods/eviction" in API group "" in the namespace "ns"',
        ),
    ],
)
def test_a_server_that_takes_no_eviction_now_makes_nobody_else_a_victim(result: Result, why: str) -> None:
    """The rest of a set that half left is asked again after a pause of all evictions: others would leave needlessly."""
    memory, one = Memory(GracesSection()), victims("v0", "v1", "v2")
    memory.evicting([one], EPOCH)
    for victim, said in zip(one.victims, (Result.DONE, result, result), strict=True):
        memory.took_eviction(Evicted(victim=victim, gains=one.gains, answer=answer(said, why)), EPOCH)
    known = memory.known(EPOCH)
    assert known.protected == {}
    assert known.evicting == {"ns/v0"}
    assert [one.what for one in memory.happened()] == ["evicted"]
    rest = victims("v1", "v2")
    assert memory.evicting([rest], EPOCH) == []
    assert memory.next_until(EPOCH) == EPOCH + SECOND
    assert memory.evicting([rest], EPOCH + SECOND) == [rest]


def test_a_victim_for_whom_the_server_fails_again_and_again_is_passed_over() -> None:
    """A webhook that fails for it alone must not end all evictions."""
    memory, one, now = Memory(GracesSection()), victims("v0"), EPOCH
    for protected in ([], [], ["ns/v0"]):
        assert memory.evicting([one], now) == [one]
        failed = Evicted(victim=one.victims[0], gains=one.gains, answer=answer(Result.UNAVAILABLE, "500"))
        memory.took_eviction(failed, now)
        assert list(memory.known(now).protected) == protected
        now += 5 * SECOND
    assert memory.evicting([victims("v1")], now) == [victims("v1")]


def test_the_other_pods_of_a_budget_that_refused_are_no_victims_either() -> None:
    """It is told of the one that was to leave."""
    memory, one = Memory(GracesSection()), victims("v0")
    memory.evicting([one], EPOCH)
    held = answer(Result.BLOCKED, "a budget")
    refused = Evicted(victim=one.victims[0], gains=one.gains, answer=held, tried=True, siblings=("ns/w",))
    memory.took_eviction(refused, EPOCH)
    assert memory.known(EPOCH).protected == {"ns/v0": "a budget", "ns/w": "a budget"}
    assert [one.pod for one in memory.happened()] == ["ns/v0"]


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        ("PodSchedulingErrors", "0/1 nodes are available.", True),
        ("Pipelined", "1 pods have a place", False),
    ],
    ids=["no room", "another set of victims was found"],
)
def test_a_wait_names_who_may_not_be_evicted_for_it(code: str, message: str, told: bool) -> None:
    """As long as that one is no victim, and only to the job that asked."""
    memory, one = Memory(GracesSection()), victims("v0", gains="ns/asks")
    memory.evicting([one], EPOCH)
    blocked = answer(Result.BLOCKED, "PodDisruptionBudget web allows no eviction now")
    refused = Evicted(victim=one.victims[0], gains=one.gains, answer=blocked, tried=True)
    memory.took_eviction(refused, EPOCH)
    waits = tuple(Wait(job=name, code=code, message=message) for name in ("ns/asks", "ns/other"))
    words = "0/1 nodes are available; ns/v0 may not be evicted for it: PodDisruptionBudget web allows no eviction now"
    plan = memory.planned(Plan(waits=waits), (), EMPTY, EPOCH)
    assert [wait.message for wait in plan.waits] == [words if told else message, message]
    later = EPOCH + timedelta(minutes=1)
    assert memory.planned(Plan(waits=waits), (), EMPTY, later).waits == waits


@pytest.mark.parametrize(
    ("result", "why", "others"),
    [
        (Result.UNAVAILABLE, "failed calling webhook: context deadline exceeded", True),
        (Result.CONFLICT, "changed meanwhile", True),
        (Result.THROTTLED, "too many requests", False),
        (Result.NOT_LEADER, "the lease may pass on", False),
    ],
)
def test_what_may_be_one_namespaces_webhook_pauses_no_other(result: Result, why: str, others: bool) -> None:
    """A set with a member in it waits, too."""
    memory, one = Memory(GracesSection()), victims("v0")
    memory.evicting([one], EPOCH)
    memory.took_eviction(Evicted(victim=one.victims[0], gains=one.gains, answer=answer(result, why)), EPOCH)
    near, far = victims("v1"), victims("v1", namespace="other")
    both = VictimSet(gains="ns/asks", victims=(*near.victims, *far.victims))
    assert memory.evicting([near], EPOCH) == []
    assert memory.evicting([both], EPOCH) == []
    assert memory.evicting([far], EPOCH) == ([far] if others else [])


@pytest.mark.parametrize("result", [Result.REFUSED, Result.SKIPPED])
def test_an_eviction_that_was_not_sent_is_decided_anew_at_once(result: Result) -> None:
    """Its victim is as good a victim as before."""
    memory, one = Memory(GracesSection()), victims("v0")
    memory.evicting([one], EPOCH)
    told = Evicted(
        victim=one.victims[0], gains=one.gains, answer=answer(result, "another was not"), tried=True
    )
    memory.took_eviction(told, EPOCH)
    assert memory.known(EPOCH).protected == {}
    assert memory.evicting([one], EPOCH) == [one]


@pytest.mark.parametrize(("gains", "sent"), [("ns/asks", []), ("", ["ns/v0"])])
def test_who_was_refused_a_moment_ago_is_not_asked_about_again(gains: str, sent: list[str]) -> None:
    """A set for somebody's sake stays whole; the rest of a gang that is lost leaves as far as it may."""
    memory, one = Memory(GracesSection()), victims("v0", "v1", gains=gains)
    memory.evicting([one], EPOCH)
    for victim, result in zip(one.victims, (Result.DONE, Result.BLOCKED), strict=True):
        refused = Evicted(victim=victim, gains=gains, answer=answer(result, "a budget"), tried=True)
        memory.took_eviction(refused, EPOCH)
    again = memory.evicting([one], EPOCH + SECOND)
    assert [victim.evict.task for found in again for victim in found.victims] == sent
    later = EPOCH + timedelta(minutes=2)
    assert len(memory.evicting([victims("v1", gains=gains)], later)) == 1
