"""What a policy shows: its problems, its pools' numbers, and the one page when a breaker trips."""

from datetime import timedelta
from typing import Any

import msgspec

from controller.plan import plan
from controller.steps import Open, SavePolicy
from controller.view import Fleet
from kube.policy import Mode
from kube.remediation import Notification, Phase
from kube.types import Node
from tests import build as make
from tests.build import NOW, SEEN, XID

LOST = make.finding()


def sick(count: int, **fields: Any) -> list[Node]:
    return [make.node(f"gpu-{n}", **{"conditions": {XID: "True"}, **fields}) for n in range(1, count + 1)]


def ill_fleet(count: int, spare: int = 0, **given: Any) -> Fleet:
    nodes = sick(count)
    return make.fleet(
        *nodes, *make.idle_nodes(spare), healths=[make.health(n, [LOST]) for n in nodes], **given
    )


def opened(fleet: Fleet) -> list[Open]:
    return [step for step in plan(fleet, NOW).steps if isinstance(step, Open)]


def test_one_bad_policy_does_not_stop_the_others() -> None:
    """Its nodes are left alone, and its status says why."""
    nodes = [
        make.node("a-1", conditions={XID: "True"}, labels={"pool": "a"}),
        make.node("gpu-1", conditions={XID: "True"}),
    ]
    bad = make.policy("bad", node_selector={"pool": "a"}, priority=1, default_wait="soon")
    fleet = make.fleet(
        *nodes,
        *make.idle_nodes(30),
        healths=[make.health(n, [LOST]) for n in nodes],
        policies=[bad, make.policy()],
    )
    planned = plan(fleet, NOW)
    assert [step.node for step in planned.steps if isinstance(step, Open)] == ["gpu-1"]
    problems = {s.name: s.status.problems for s in planned.steps if isinstance(s, SavePolicy)}
    assert problems == {
        "bad": ("spec.defaultWait: 'soon' is no duration; write it like 30s, 5m or 1h30m",),
        "gpus": (),
    }


def test_policies_that_meet_are_named_in_both() -> None:
    """The nodes that neither governs are in both statuses."""
    fleet = make.fleet(*make.idle_nodes(7), policies=[make.policy("a"), make.policy("b")])
    said = "another policy of the same priority selects the same nodes, which are left alone: "
    names = "spare-0, spare-1, spare-2, spare-3, spare-4 and 2 more"
    problems = {s.name: s.status.problems for s in plan(fleet, NOW).steps if isinstance(s, SavePolicy)}
    assert problems == {"a": (said + names,), "b": (said + names,)}


def settled(fleet: Fleet) -> Fleet:
    """Give the fleet with the policy statuses that a first plan writes."""
    written = {s.name: s.status for s in plan(fleet, NOW).steps if isinstance(s, SavePolicy)}
    policies = {n: msgspec.structs.replace(p, status=written[n]) for n, p in fleet.policies.items()}
    return msgspec.structs.replace(fleet, policies=policies)


def saves(fleet: Fleet, seconds: float) -> int:
    return sum(isinstance(s, SavePolicy) for s in plan(fleet, NOW + timedelta(seconds=seconds)).steps)


def test_numbers_alone_are_written_seldom_and_words_at_once() -> None:
    """A storm of incidents is not a storm of writes to the policy."""
    calm = settled(make.fleet(*make.idle_nodes(100)))
    assert saves(calm, 0) == 0
    one_out = msgspec.structs.replace(
        calm, nodes={**calm.nodes, "spare-1": make.node("spare-1", ready=False)}
    )
    assert (saves(one_out, 4), saves(one_out, 5)) == (0, 1)
    assert plan(one_out, NOW + timedelta(seconds=4)).recheck_at == NOW + timedelta(seconds=5)
    ten_out = {f"spare-{n}": make.node(f"spare-{n}", ready=False) for n in range(10)}
    assert saves(msgspec.structs.replace(calm, nodes={**calm.nodes, **ten_out}), 1) == 1


def test_the_breaker_pages_once_and_is_resolved_once() -> None:
    """However long it holds."""
    tripped = settled(ill_fleet(4, 4))
    assert saves(tripped, 1) == 0
    sent = tripped.policies["gpus"].status.notifications
    well = make.fleet(*make.idle_nodes(8), policies=tripped.policies.values())
    (step,) = [s for s in plan(well, NOW + timedelta(minutes=1)).steps if isinstance(s, SavePolicy)]
    assert [row.transition for row in step.status.notifications] == ["open", "resolve"]
    assert step.status.notifications[0] == sent[0]
    assert step.status.pools[0].breaker == ""


def test_nobody_is_paged_under_observe() -> None:
    """The breaker is shown, and holds nothing."""
    fleet = ill_fleet(4, 4, policies=[make.policy(mode=Mode.OBSERVE)])
    (step,) = [s for s in plan(fleet, NOW).steps if isinstance(s, SavePolicy)]
    assert step.status.pools[0].breaker
    assert step.status.notifications == ()


def test_a_dead_message_is_a_problem_of_the_policy() -> None:
    """It is visible without looking at each incident."""
    dead = Notification(
        id="inc-1-1-pager",
        sink="pager",
        transition="open",
        sequence=1,
        summary="x",
        created_at=SEEN,
        dead=True,
        error="500",
    )
    one = make.remediation(
        make.node("spare-1"), phase=Phase.ESCALATED, notifications=(dead,), before=make.before()
    )
    fleet = make.fleet(*make.idle_nodes(3), remediations=[one])
    (step,) = [s for s in plan(fleet, NOW).steps if isinstance(s, SavePolicy)]
    assert step.status.problems == (
        "messages could not be delivered, the newest to sink pager (inc-1-1-pager): 500",
    )
