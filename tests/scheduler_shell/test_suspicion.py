"""When so many nodes turned ill at once that their observer is suspected; and what becomes of nodes nobody reported."""

import time
from datetime import datetime, timedelta

import pytest

from controller.scheduler.shell.suspicion import Memory, suspected, unseen
from controller.scheduler.unseen import Unseen
from controller.survey import survey
from controller.view import Fleet
from kube.policy import BreakerPolicy, RemediationPolicy
from kube.types import Node
from tests.build import NOW, XID, finding, fleet, health, idle_nodes, node, policy

WORDS = "so the observer is suspected"
ACKNOWLEDGED = {"nodemend.dev/breaker-acknowledged": NOW.isoformat()}


def ill(count: int, *, status: str = "True", at: datetime = NOW) -> list[Node]:
    """Give nodes that turned ill at that time."""
    return [node(f"ill-{number}", conditions={XID: (status, at)}) for number in range(count)]


def seen(
    count: int, *, of: int = 10, policies: list[RemediationPolicy] | None = None, status: str = "True"
) -> Fleet:
    """Give a fleet of which so many nodes are ill."""
    sick = ill(count, status=status)
    healths = [health(one, [finding()]) for one in sick]
    return fleet(*sick, *idle_nodes(of - count), healths=healths, policies=policies)


@pytest.mark.parametrize(
    ("found", "is_open"),
    [
        (seen(1), False),
        (seen(2), True),
        (seen(2, of=20), False),
        (seen(3, of=20), True),
        (seen(2, status="Unknown"), True),
        (seen(2, policies=[]), True),
        (seen(1, policies=[]), False),
        (seen(2, of=20, policies=[]), False),
        (seen(3, policies=[policy(breaker=BreakerPolicy(threshold="50%"))]), False),
        (seen(2, policies=[policy(node_selector={"pool": "other"})]), True),
        (seen(2, policies=[policy(annotations=ACKNOWLEDGED)]), False),
        (seen(2, policies=[policy(breaker=BreakerPolicy(threshold="much"))]), True),
    ],
    ids=[
        "one node of ten is none",
        "two of ten are",
        "two of twenty are not",
        "three of twenty are",
        "what became Unknown counts alike",
        "without any policy the defaults hold",
        "without any policy one node is none",
        "without any policy a tenth is not more than a tenth",
        "the policy's own threshold counts",
        "nodes that no policy selects are a pool more",
        "a person's acknowledgement closes it",
        "a policy that cannot be read leaves the defaults",
    ],
)
def test_the_breaker_is_open(found: Fleet, is_open: bool) -> None:
    """By the same functions as the controller's."""
    assert (WORDS in suspected(found, NOW)) is is_open


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_it_says_what_the_controller_says(count: int) -> None:
    """One pure breaker serves both: the survey's bursts and the words are the same."""
    found = seen(count)
    holds = [pool.breaker_hold().why for pool in survey(found, NOW).pools.values() if pool.burst.nodes]
    assert suspected(found, NOW) == "".join(holds)


def test_only_bursts_in_the_pool_count() -> None:
    """What happens to other pools is no reason to stop here."""
    found = seen(2)
    assert suspected(found, NOW, {"ill-1", "spare-1"})
    assert suspected(found, NOW, {"spare-1"}) == ""


def test_nodes_that_turn_ill_one_by_one_are_no_burst() -> None:
    """An hour lies between them."""
    sick = [*ill(1, at=NOW - timedelta(hours=1)), node("late", conditions={XID: ("True", NOW)})]
    found = fleet(*sick, *idle_nodes(8), healths=[health(one, [finding()]) for one in sick])
    assert suspected(found, NOW) == ""


def test_nodes_without_gpus_and_without_a_policy_are_no_pool() -> None:
    """They would make the pool of GPU nodes larger than it is."""
    bare = [node(f"cpu-{number}", gpus=0) for number in range(40)]
    bare = [
        Node(metadata=one.metadata, spec=one.spec, status=type(one.status)(conditions=one.status.conditions))
        for one in bare
    ]
    found = seen(2, policies=[])
    more = Fleet(nodes={**found.nodes, **{one.metadata.name: one for one in bare}}, healths=found.healths)
    assert suspected(more, NOW)


def test_five_thousand_nodes_cost_little() -> None:
    """Measured 25 ms on two busy cores; the bound only catches what grows with the square."""
    found = fleet(*idle_nodes(5000))
    began = time.perf_counter()
    assert suspected(found, NOW) == ""
    assert time.perf_counter() - began < 1.0


def test_what_is_remembered_of_nodes_changes_nothing() -> None:
    """Nodes, reports and policies that change are looked at anew; nodes that go are forgotten."""
    memory = Memory()
    well, sick = idle_nodes(8), ill(2)
    healed = [node(one.metadata.name) for one in sick]
    healths = [health(one, [finding()]) for one in sick]
    acknowledged = policy(annotations=ACKNOWLEDGED)
    loose = policy(breaker=BreakerPolicy(threshold="50%"))
    other = policy("other", priority=9, node_selector={"pool": "other"})
    stages = [
        fleet(*well, *healed),
        fleet(*well, *sick, healths=healths),
        fleet(*well, *sick, healths=healths, policies=[acknowledged]),
        fleet(*well, *sick, healths=healths, policies=[loose, other]),
        fleet(*well, *sick, healths=healths),
        fleet(*well[:2], *healed),
        fleet(*sick, healths=healths, policies=[]),
    ]
    for found in [*stages, *reversed(stages)]:
        assert suspected(found, NOW, memory=memory) == suspected(found, NOW)
        assert len(memory) == len(found.nodes)


REFUSES = policy("refuses", unseen=Unseen.REFUSE, priority=1)


@pytest.mark.parametrize(
    ("policies", "configured", "expected"),
    [
        ([], Unseen.ADMIT, Unseen.ADMIT),
        ([], Unseen.REFUSE, Unseen.REFUSE),
        ([policy()], Unseen.REFUSE, Unseen.REFUSE),
        ([policy(), REFUSES], Unseen.ADMIT, Unseen.REFUSE),
        ([policy(priority=2), REFUSES], Unseen.ADMIT, Unseen.ADMIT),
        ([policy(priority=1), REFUSES], Unseen.ADMIT, Unseen.REFUSE),
        ([policy(unseen=Unseen.REFUSE, node_selector={"pool": "other"})], Unseen.ADMIT, Unseen.ADMIT),
        ([policy(unseen=Unseen.REFUSE, default_wait="soon")], Unseen.ADMIT, Unseen.REFUSE),
    ],
    ids=[
        "no policy and the configuration admits",
        "no policy and the configuration refuses",
        "a policy that admits does not overrule the configuration",
        "the policy in force refuses",
        "a policy that is not in force does not count",
        "of two policies in force one refuses",
        "a policy for other nodes does not count",
        "one that cannot be read refuses all the same",
    ],
)
def test_unseen_nodes(policies: list[RemediationPolicy], configured: Unseen, expected: Unseen) -> None:
    """Refusing is the safe side."""
    assert unseen(policies, [node()], configured) is expected
