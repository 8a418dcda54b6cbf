"""Every fault at every moment of an incident: what is done afterwards, and what the node looks like in the end.

The incident is stopped after each number of ticks (so in each phase, and between a decision and its effect), something
happens to the node, the controller goes on. The machine does what it is asked to do.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from controller.incident import is_open
from controller.steps import Evict, RunRepair
from kube.remediation import CANCEL, QUARANTINE, Phase
from tests import build as make
from tests.build import XID
from tests.controller.core.judge import UPGRADE, judge, judge_rest, the_policy
from tests.controller.core.world import World

TICKS = range(14)
Happening = Callable[[World], None]


def silence(world: World) -> None:
    """The agent is not heard for six minutes, and then again."""
    world.silent.add("gpu-1")
    world.now += timedelta(minutes=6)


def upgrade(world: World) -> None:
    """A driver upgrade comes, uncordons at its end, and goes."""
    world.label("gpu-1", UPGRADE, "drain-required")
    tick(world)
    world.cordon(on=False)
    tick(world)
    world.label("gpu-1", UPGRADE, "upgrade-done")


def cancel(world: World) -> None:
    if world.remediations:
        world.say(CANCEL)


def person(world: World) -> None:
    """A fault shows up that no repair of ours may hide."""
    found = [f for f in world.healths["gpu-1"].status.findings if f.reason != "Xid62InternalHalt"]
    world.fault(
        "gpu-1", *found, world.seen(reason="Xid62InternalHalt", urgency="person", action="CONTACT_SUPPORT")
    )


HAPPENINGS: dict[str, Happening] = {
    "nothing": lambda _: None,
    "a crash after each step": lambda world: [world.tick(crash_after=1) for _ in range(3)].clear(),
    "a person uncordons": lambda world: world.cordon(on=False),
    "a person cordons": lambda world: world.cordon(),
    "a person cancels": cancel,
    "a person removes our mark": lambda world: world.unmark(),
    "the node is made anew": lambda world: world.recreate(),
    "the node boots by itself": lambda world: world.reboot(),
    "the fault goes away": lambda world: world.well(),
    "the agent cannot look": lambda world: world.unknown(),
    "the agent is silent for six minutes": silence,
    "a driver upgrade comes and goes": upgrade,
    "a fault for a person joins": person,
    "the policy pauses": lambda world: world.change_policy(the_policy(paused=True)),
}


def tick(world: World) -> None:
    """Plan, judge and apply once."""
    for step in world.plan().steps:
        judge(world, step)
        world.apply(step)
    judge_rest(world)


def help_along(world: World) -> None:
    """The machine reboots when it is told to, Jobs end well, agents renew their Leases."""
    for job in list(world.jobs):
        if not world.jobs[job].status.conditions:
            world.finish(job)
            if job.startswith("reboot"):
                world.reboot()
    for name in world.leases.keys() - world.silent:
        world.leases[name] = make.lease(name, renewed=world.now, node_uid=world.nodes[name].metadata.uid)


def run(ticks: int, happening: Happening, *, cordoned: bool) -> tuple[World, int, bool]:
    """Tell one story; give the world at its end, how many steps were done when it happened, and whether our mark stood."""
    world = World(make.node(unschedulable=cordoned), *make.idle_nodes(5), policies=[the_policy()])
    for number in range(12):
        pod = make.pod(f"train-{number:02}")
        world.pods[pod.metadata.uid] = pod
    world.fault()
    for number in range(ticks):
        tick(world)
        if number >= 6:
            help_along(world)
    marked = is_marked(world)
    happening(world)
    done = len(world.done)
    for _ in range(40):
        tick(world)
        help_along(world)
    world.silent.clear()
    for _ in range(40):
        world.now += timedelta(seconds=30)
        help_along(world)
        tick(world)
    return world, done, marked


def is_marked(world: World) -> bool:
    node = world.nodes["gpu-1"]
    return QUARANTINE in node.metadata.annotations or any(t.key == QUARANTINE for t in node.spec.taints)


def phase_of(world: World) -> Phase:
    return world.of("gpu-1").status.phase


@pytest.mark.parametrize("cordoned", [False, True], ids=["schedulable before", "cordoned before"])
@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize("what", sorted(HAPPENINGS))
def test_every_fault_at_every_moment(what: str, ticks: int, cordoned: bool) -> None:
    """No Job and no eviction twice, no cordon of others undone, nothing of ours forgotten on the node."""
    world, done, marked = run(ticks, HAPPENINGS[what], cordoned=cordoned)
    node = world.nodes["gpu-1"]
    if not world.remediations:
        assert world.kinds() == []
        return
    one = world.of("gpu-1")
    evictions = [step.uid for step in world.done if isinstance(step, Evict)]
    assert len(evictions) == len(set(evictions))
    assert all(count == 1 for count in world.created_jobs.values())
    ours = is_marked(world)
    if is_open(one):
        waits = one.status.phase in (Phase.SUSPECTED, Phase.QUARANTINED) and one.status.held_by
        assert (ours and node.spec.unschedulable) or waits
    else:
        assert not ours
    uncordoned = what in ("a person uncordons", "the node is made anew")
    # Another automation's uncordon is put right where it undid ours, or what stood when we came.
    uncordoned |= what == "a driver upgrade comes and goes" and not marked
    recordoned = what == "a person cordons" and not marked
    expected = (cordoned or recordoned) and not uncordoned
    if not is_open(one):
        assert node.spec.unschedulable == expected
    if what in ("a person uncordons", "a person cancels") and phase_of(world) is Phase.CANCELLED:
        assert not [step for step in world.done[done:] if isinstance(step, Evict | RunRepair)]
    if what in ("nothing", "a crash after each step"):
        assert phase_of(world) is Phase.RETURNED
        assert [j.split("-")[0] for j in world.created_jobs] == ["reboot", "validate"]
        assert [row.transition for row in one.status.notifications] == ["open", "update", "resolve"]
    assert node.condition(XID) is not None
