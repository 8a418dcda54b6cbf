"""Narrow containment from the first fault to the return, with crashes and disturbances at every moment.

Judged at each step, from the world and not from the core: on an open node nobody is evicted but who has a sick GPU that
kubelet withholds, and nothing is repaired; in the end the Node is as it was found.
"""

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.finding import Effect
from controller.incident import is_open
from controller.steps import Evict, RunRepair, RunValidation, Step, StopClients
from kube.policy import BudgetPolicy, DrainPolicy, Rung
from kube.remediation import CANCEL, QUARANTINE, REPAIRED, Phase
from tests import build as make
from tests.controller.core.gpu_node import follow, operate
from tests.controller.core.open_node import SICK, OpenWorld, degraded, narrow_policy, work

HOLDER, NEIGHBOUR = work("holder"), work("neighbour")
OUT = make.reset_finding()
POLICY = narrow_policy(
    budget=BudgetPolicy(max_unavailable="3"), drain=DrainPolicy(when_idle_limit="1h"), fence_grace="90s"
)


def a_world(*, holder: bool = True, withheld: bool = True) -> OpenWorld:
    """Build a node of two pods, each on a GPU of its own; GPU 3 is the one that will be sick."""
    world = OpenWorld(*make.idle_nodes(3), policy=POLICY)
    world.withheld = {SICK} if withheld else set()
    if holder:
        world.run(SICK, HOLDER)
    world.run("GPU-5", NEIGHBOUR)
    return world


def judge(world: OpenWorld, step: Step) -> None:
    """Fail where this step must not be applied now."""
    node = world.nodes["gpu-1"]
    if isinstance(step, StopClients | RunRepair | RunValidation):
        assert node.spec.unschedulable
        assert QUARANTINE in node.metadata.annotations
    if isinstance(step, Evict) and QUARANTINE not in node.metadata.annotations:
        sick = {
            finding.part.uuid
            for finding in world.healths["gpu-1"].status.findings
            if finding.effect == Effect.PART_OUT and finding.urgency == "now"
        }
        assert world.cards[step.uid] in sick & world.withheld


def tick(world: OpenWorld, crash_after: int | None = None) -> None:
    for step in list(world.plan().steps)[:crash_after]:
        judge(world, step)
        world.apply(step)


def live_on(world: OpenWorld, rounds: int = 60, crash_after: int | None = None) -> None:
    """The controller works, and everybody does what is asked of them, until nothing moves."""
    idle = 0
    for _ in range(rounds):
        done = len(world.done)
        tick(world, crash_after)
        world.help_along()
        idle = 0 if len(world.done) > done else idle + 1
        if idle == 3:
            return


def later(world: OpenWorld, span: timedelta) -> None:
    """Time passes, and every agent lives on."""
    world.now += span
    for name in world.leases:
        world.leases[name] = make.lease(name, renewed=world.now, node_uid=world.nodes[name].metadata.uid)


def phases(world: OpenWorld) -> list[str]:
    """Give the phases of the one incident, in order."""
    return list(dict.fromkeys(entry.phase for entry in world.only().status.timeline))


def as_found(world: OpenWorld) -> bool:
    node = world.nodes["gpu-1"]
    return (
        not node.spec.unschedulable and QUARANTINE not in node.metadata.annotations and not node.spec.taints
    )


@pytest.mark.parametrize("crash_after", [None, 1], ids=["whole ticks", "a crash after each step"])
def test_a_sick_gpu_that_kubelet_withholds_costs_its_own_pod_and_no_other(crash_after: int | None) -> None:
    """Its pod goes while the node is open, the GPU is reset beside the others' work, and the node comes back."""
    world = a_world()
    world.ill(OUT)
    live_on(world, crash_after=crash_after)
    assert phases(world) == [
        "Suspected",
        "Waiting",
        "Quarantined",
        "Draining",
        "Repairing",
        "Revalidating",
        "Returned",
    ]
    assert world.kinds().count("Evict") == 1
    assert [uid for uid in (HOLDER.metadata.uid, NEIGHBOUR.metadata.uid) if uid in world.pods] == [
        NEIGHBOUR.metadata.uid
    ]
    assert [a.kind for a in world.only().status.attempts] == ["reset-gpu", "revalidate"]
    kinds = world.kinds()
    assert kinds.index("Evict") < kinds.index("Quarantine") < kinds.index("StopClients")
    assert as_found(world)


def test_the_proof_asks_for_the_gpus_that_others_leave_and_looks_at_all() -> None:
    """The reset GPU is among them; the Job is told the number that the hardware has."""
    world = a_world()
    world.ill(OUT)
    live_on(world)
    (proof,) = [step for step in world.done if isinstance(step, RunValidation)]
    assert (proof.gpus, proof.devices) == (8, {"nvidia.com/gpu": 7})


@pytest.mark.parametrize("crash_after", [None, 1], ids=["whole ticks", "a crash after each step"])
def test_a_degraded_gpu_is_repaired_once_its_pod_ended_by_itself(crash_after: int | None) -> None:
    """Nobody is evicted, and the node is open for as long as it is busy."""
    world = a_world(withheld=False)
    world.ill(degraded())
    live_on(world, crash_after=crash_after)
    assert (world.only().status.phase, world.kinds(), as_found(world)) == (Phase.WAITING, [], True)
    later(world, timedelta(minutes=30))
    del world.pods[HOLDER.metadata.uid]
    world.again()
    live_on(world, crash_after=crash_after)
    assert (world.only().status.phase, as_found(world)) == (Phase.RETURNED, True)
    assert "Evict" not in world.kinds()
    assert NEIGHBOUR.metadata.uid in world.pods


def test_a_repair_of_the_whole_node_drains_it_behind_the_cordon() -> None:
    """A ladder without a reset: the sick GPU's pod goes first, the rest once the node is cordoned."""
    world = a_world()
    world.change_policy(
        narrow_policy(budget=BudgetPolicy(max_unavailable="3"), ladder=(Rung(repair="reboot"),))
    )
    world.ill(OUT)
    live_on(world)
    assert world.only().status.phase is Phase.RETURNED
    kinds = [kind for kind in world.kinds() if kind in ("Evict", "Quarantine", "RunRepair", "Restore")]
    assert kinds == ["Evict", "Quarantine", "Evict", "RunRepair", "Restore"]


@pytest.mark.parametrize(
    "ladder", [("reboot",), ("reset-gpu", "reboot")], ids=["reboot", "a reset that fails"]
)
def test_a_drain_of_the_whole_node_says_that_it_is_one(ladder: tuple[str, ...]) -> None:
    """The scheduler reads there for whom it has to find another place."""
    world = a_world()
    world.change_policy(
        narrow_policy(
            budget=BudgetPolicy(max_unavailable="3"), ladder=tuple(Rung(repair=name) for name in ladder)
        )
    )
    world.protected.add(NEIGHBOUR.metadata.uid)
    world.ill(OUT)
    for _ in range(40):
        tick(world)
        if "reset-gpu" in ladder:
            world.withheld = {SICK}
            failed = [name for name in world.jobs if name.startswith("reset-gpu")]
            operate(world)
            follow(world)
            if failed:
                world.finish(failed[0], failed="the driver said no")
        world.kubelet()
    status = world.only().status
    assert status.phase is Phase.DRAINING
    assert status.drain is not None
    assert status.drain.parts == ()
    assert [one.name for one in status.drain.blocked] == [NEIGHBOUR.metadata.name]


def test_a_fence_that_is_lost_while_it_waits_ends_in_the_cordon_and_a_drain_of_all() -> None:
    """A plugin that started anew offers the sick GPU again."""
    world = a_world()
    world.protected.add(HOLDER.metadata.uid)
    world.ill(OUT)
    live_on(world)
    assert (world.only().status.phase, as_found(world)) == (Phase.WAITING, True)
    world.withheld.clear()
    world.protected.clear()
    later(world, timedelta(minutes=2))
    world.again()
    live_on(world)
    assert (world.only().status.phase, as_found(world)) == (Phase.RETURNED, True)
    assert world.kinds().count("Evict") == 2


def test_a_person_who_mended_an_open_node_gets_it_proven_behind_a_cordon() -> None:
    """The pods on the other GPUs run on, and the cordon goes with the proof."""
    world = a_world()
    world.ill(make.person_finding())
    live_on(world)
    assert (world.only().status.phase, as_found(world), world.kinds()) == (Phase.ESCALATED, True, [])
    later(world, timedelta(minutes=1))
    del world.pods[HOLDER.metadata.uid]
    world.say(REPAIRED)
    tick(world)
    world.withheld.clear()
    world.well()
    live_on(world)
    assert (world.only().status.phase, as_found(world)) == (Phase.RETURNED, True)
    kinds = [kind for kind in world.kinds() if kind != "WriteSpec"]
    assert kinds == ["Quarantine", "RunValidation", "Restore"]


def test_a_fault_that_goes_after_an_eviction_is_proven_and_one_that_goes_before_is_cleared() -> None:
    """Nothing else was changed."""
    world = a_world()
    world.protected.add(HOLDER.metadata.uid)
    world.ill(OUT)
    live_on(world)
    world.well()
    live_on(world)
    assert (world.only().status.phase, world.kinds()) == (Phase.CLEARED, [])
    world = a_world()
    world.ill(OUT)
    while "Evict" not in world.kinds():
        tick(world)
    for ticks in range(3):
        later_on = copy.deepcopy(world)
        for _ in range(ticks):
            tick(later_on)
        later_on.well()
        live_on(later_on)
        assert (later_on.only().status.phase, as_found(later_on)) == (Phase.RETURNED, True)
        assert [a.kind for a in later_on.only().status.attempts] == ["revalidate"]


def worse(world: OpenWorld) -> None:
    world.ill(OUT, make.finding(index=1))


def foreign(world: OpenWorld) -> None:
    world.run("GPU-6", work("theirs", scheduler="volcano"))


def cancel(world: OpenWorld) -> None:
    if world.remediations:
        world.say(CANCEL)


def silence(world: OpenWorld) -> None:
    """The agent is not heard for six minutes, and then again."""
    world.now += timedelta(minutes=6)
    tick(world)
    later(world, timedelta(0))
    world.again()


Happening = Callable[[OpenWorld], None]
HAPPENINGS: dict[str, Happening] = {
    "nothing": lambda _: None,
    "the fault goes away": lambda world: world.well(),
    "something worse comes": worse,
    "the agent cannot look": lambda world: world.unknown(),
    "the agent is silent for six minutes": silence,
    "the fence is lost": lambda world: world.withheld.clear(),
    "a pod of another scheduler comes": foreign,
    "a person cordons": lambda world: world.cordon(),
    "a person uncordons": lambda world: world.cordon(on=False),
    "a person cancels": cancel,
    "a person removes our mark": lambda world: world.unmark(),
    "the policy says cordon": lambda world: world.change_policy(
        make.policy(budget=BudgetPolicy(max_unavailable="3"))
    ),
    "the policy pauses": lambda world: world.change_policy(narrow_policy(paused=True)),
    "the node boots by itself": lambda world: world.reboot(),
    "the node is made anew": lambda world: world.recreate(),
}


@pytest.mark.parametrize("happening", HAPPENINGS.values(), ids=HAPPENINGS.keys())
@pytest.mark.parametrize("ticks", range(16))
def test_whatever_happens_at_whatever_moment(ticks: int, happening: Happening) -> None:
    """No step breaks the rules, and nothing of ours is left once the incident is closed."""
    world = a_world()
    world.ill(OUT)
    for _ in range(ticks):
        tick(world)
        world.help_along()
    happening(world)
    world.kubelet()
    live_on(world)
    for one in world.remediations.values():
        if not is_open(one):
            assert QUARANTINE not in world.nodes["gpu-1"].metadata.annotations


EVENTS: Sequence[Happening] = [
    *(h for name, h in HAPPENINGS.items() if name != "the node is made anew"),
    lambda world: world.withheld.add(SICK),
    lambda world: world.ill(OUT),
    lambda world: world.ill(degraded()),
    lambda world: world.ill(degraded(Effect.NO_MULTI_NODE, index=5), OUT),
    lambda world: world.ill(make.person_finding()),
    lambda world: world.run(SICK, work("late")),
    lambda world: world.run("GPU-5", work("later")),
    lambda world: world.change_policy(POLICY),
    lambda world: later(world, timedelta(minutes=20)),
    lambda world: later(world, timedelta(hours=2)),
    lambda world: world.say(REPAIRED) if world.remediations else None,
    lambda world: tick(world),
    lambda world: tick(world, 1),
    lambda world: live_on(world, 8),
    lambda world: world.help_along(),
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(range(len(EVENTS))), max_size=25))
def test_nobody_else_is_evicted_from_an_open_node(story: list[int]) -> None:
    """Random histories, each step judged."""
    world = a_world()
    world.ill(OUT)
    for event in story:
        EVENTS[event](world)
        world.kubelet()
        tick(world)
    live_on(world)
    open_ = [one for one in world.remediations.values() if is_open(one)]
    assert len(open_) <= 1
