"""Many nodes at once, and agents that fall silent or flap: stories of a fleet rather than of a node."""

from datetime import timedelta

import msgspec

from kube.policy import (
    BREAKER_ACKNOWLEDGED,
    BreakerPolicy,
    BudgetPolicy,
    DrainPolicy,
    Mode,
    RemediationPolicy,
    RevalidationPolicy,
)
from kube.remediation import QUARANTINE, Phase
from tests import build as make
from tests.build import XID
from tests.controller.core.world import World


def a_world(*pods: str, policy: RemediationPolicy | None = None, spare: int = 9) -> World:
    return World(
        make.node(),
        *make.idle_nodes(spare),
        policies=[policy or make.policy()],
        pods=[make.pod(name) for name in pods],
    )


def passes(world: World) -> None:
    """The last revalidation succeeds."""
    world.settle()
    world.finish(world.only().status.attempts[-1].job)
    world.settle()


def untouched(world: World, name: str = "gpu-1", *, unschedulable: bool = False) -> bool:
    node = world.nodes[name]
    ours = QUARANTINE in node.metadata.annotations or any(t.key == QUARANTINE for t in node.spec.taints)
    return not ours and node.spec.unschedulable == unschedulable


def test_silence_turns_false_to_unknown_and_starts_nothing() -> None:
    """The agent of a healthy node dies: nobody is evicted, and the condition says that nobody looks."""
    world = a_world("train-0")
    world.silent.add("gpu-1")
    world.after(minutes=6)
    world.after(hours=5)
    condition = world.nodes["gpu-1"].condition(XID)
    assert condition is not None
    assert (condition.status, condition.reason) == ("Unknown", "AgentSilent")
    assert world.kinds() == []


def test_silence_does_not_stop_a_repair_that_runs() -> None:
    """The agent goes down with the machine and comes back with it."""
    world = a_world()
    world.fault()
    world.settle()
    world.silent.add("gpu-1")
    world.after(minutes=20)
    world.reboot()
    world.silent.clear()
    world.after(seconds=1)
    passes(world)
    assert world.only().status.phase is Phase.RETURNED


def test_many_agents_that_fall_silent_at_once_are_the_observers_fault() -> None:
    """A bad rollout of the agent: the breaker says so, and nothing is taken out."""
    world = a_world(spare=9)
    world.silent = {"gpu-1", *(f"spare-{n}" for n in range(5))}
    world.after(minutes=6)
    (pool,) = world.policies["gpus"].status.pools
    assert pool.breaker
    assert world.kinds() == []
    world.silent.clear()
    for name in world.nodes:
        world.well(name)
    world.after(seconds=10)
    (pool,) = world.policies["gpus"].status.pools
    assert pool.breaker == ""
    assert [row.transition for row in world.policies["gpus"].status.notifications] == ["open", "resolve"]


def half_ill(*policies: RemediationPolicy) -> World:
    world = World(*(make.node(f"gpu-{n}") for n in range(1, 9)), policies=policies or None)
    for n in range(1, 5):
        world.fault(f"gpu-{n}")
    world.settle()
    return world


def phases(world: World) -> list[Phase]:
    return [one.status.phase for one in sorted(world.remediations.values(), key=lambda o: o.spec.node_name)]


def test_half_of_the_fleet_fails_at_once() -> None:
    """Two of eight are contained, nothing is drained or repaired, and breaker and budget say so by name."""
    world = half_ill()
    assert phases(world) == [Phase.QUARANTINED, Phase.QUARANTINED, Phase.SUSPECTED, Phase.SUSPECTED]
    assert {one.status.held_by for one in world.remediations.values()} == {"breaker"}
    world.after(hours=3)
    assert phases(world) == [Phase.QUARANTINED, Phase.QUARANTINED, Phase.SUSPECTED, Phase.SUSPECTED]
    (pool,) = world.policies["gpus"].status.pools
    assert pool.breaker.startswith("breaker")
    assert pool.budget.startswith("budget")


def test_a_recovered_node_is_given_back_while_the_breaker_holds() -> None:
    """The healthy report counts too (NVIDIA/NVSentinel#458)."""
    world = half_ill()
    world.now += timedelta(minutes=1)
    world.well("gpu-1")
    world.settle()
    world.finish(world.of("gpu-1").status.attempts[-1].job)
    world.settle()
    assert world.of("gpu-1").status.phase is Phase.RETURNED
    assert untouched(world, "gpu-1")


def test_a_burst_that_a_person_believes_is_worked_off_one_by_one() -> None:
    """After the acknowledgement the budget alone counts: one place, one repair, the next when it returned."""
    world = half_ill()
    policy = world.policies["gpus"]
    acknowledged = {BREAKER_ACKNOWLEDGED: world.now.isoformat()}
    world.change_policy(
        msgspec.structs.replace(
            policy, metadata=msgspec.structs.replace(policy.metadata, annotations=acknowledged)
        )
    )
    for _ in range(8):
        world.after(minutes=5)
        for one in list(world.remediations.values()):
            name = one.spec.node_name
            if one.status.phase is Phase.REPAIRING and one.status.attempts[-1].submitted_at:
                world.reboot(name)
            if one.status.phase is Phase.REVALIDATING:
                world.finish(one.status.attempts[-1].job)
        world.settle()
    for _ in range(12):
        world.after(minutes=5)
        for one in list(world.remediations.values()):
            if one.status.phase is Phase.REPAIRING and one.status.attempts[-1].submitted_at:
                world.reboot(one.spec.node_name)
            if one.status.phase is Phase.REVALIDATING and one.status.attempts[-1].submitted_at:
                world.finish(one.status.attempts[-1].job)
        world.settle()
    assert phases(world) == [Phase.RETURNED] * 4
    assert sum(job.startswith("reboot") for job in world.created_jobs) == 4


def test_a_fault_that_flaps_every_second_does_not_flood_the_server() -> None:
    """A day of flapping under a wait opens a handful of incidents, not tens of thousands."""
    world = a_world(policy=make.policy(default_wait="1m"))
    for _ in range(300):
        world.fault()
        world.after(seconds=1)
        world.well()
        world.after(seconds=1)
    assert len(world.remediations) <= 5


def test_a_fault_that_flaps_during_its_repair_ends_with_a_person() -> None:
    """No endless drains (pfnet-research/node-operation-controller#31)."""
    world = a_world("train-0", policy=make.policy(drain=DrainPolicy(deadline="10h")))
    world.protected = set(world.pods)
    for _ in range(12):
        world.fault()
        world.after(seconds=20)
        world.well()
        world.after(seconds=20)
    assert world.only().status.phase is Phase.ESCALATED
    assert "comes and goes" in world.only().status.message


def test_half_of_the_fleet_is_quarantined_where_the_policy_allows_it() -> None:
    """Slice by slice, each node once."""
    raised = make.policy(
        mode=Mode.QUARANTINE,
        budget=BudgetPolicy(max_unavailable="100%", max_quarantined="100%"),
        breaker=BreakerPolicy(threshold="100%"),
        revalidation=RevalidationPolicy(),
    )
    world = World(*(make.node(f"n-{n}") for n in range(150)), policies=[raised])
    for n in range(75):
        world.fault(f"n-{n}")
    world.settle()
    assert phases(world) == [Phase.ESCALATED] * 75
    assert world.kinds() == ["Quarantine"] * 75
