"""Resets from the first fault to the return: the whole story, every disturbance at every moment, and random histories.

Whatever happens: no Job twice, nothing switched off that the story does not hold, and in the end every client of the GPUs
runs again and the agent holds its driver, unless somebody else has taken a label over.
"""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.gpu_clients import OFF
from controller.incident import is_open, repairs
from controller.orphans import put_back_orphans
from controller.repairs import NODE_UID_ANNOTATION
from controller.steps import RunRepair, StartClients, Step, StopClients
from controller.survey import survey
from kube.nodehealth import Release
from kube.policy import BudgetPolicy
from kube.remediation import CANCEL, Phase
from tests import build as make
from tests.build import XID
from tests.controller.core.gpu_node import (
    DAEMONSETS,
    EXPORTER,
    JOB,
    LABELS,
    OFF_LABELS,
    PLUGIN,
    finish_reset,
    follow,
    gpu_node,
    operate,
    quiet,
)
from tests.controller.core.world import World

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
Happening = Callable[[World], None]


def a_world(*, fault: bool = True) -> World:
    """Build a node of GPU Operator with two sick GPUs, among healthy ones."""
    policy = make.policy(budget=BudgetPolicy(max_unavailable="3"))
    world = World(gpu_node(), *make.idle_nodes(3), policies=[policy])
    world.daemonsets = list(DAEMONSETS)
    operate(world)
    if fault:
        boot = world.nodes["gpu-1"].status.node_info.boot_id
        sick = (make.reset_finding(index=index, first_seen=world.now, boot_id=boot) for index in (3, 5))
        world.fault("gpu-1", *sick)
    return world


def judge(world: World, step: Step) -> None:
    """Fail where this step must not be applied now; counted from the world, without asking the core."""
    if not isinstance(step, StopClients | RunRepair):
        return
    one, node = world.remediations[step.incident], world.nodes[step.node]
    attempt = repairs(one.status)[-1]
    assert (one.status.phase, attempt.submitted_at, attempt.result) == (Phase.REPAIRING, None, "")
    assert node.spec.unschedulable
    assert node.metadata.labels.get(UPGRADE) != "drain-required"
    assert one.status.stopped is not None or attempt.kind == "reboot"
    condition = node.condition(XID)
    assert condition is not None
    assert condition.status == "True"
    if isinstance(step, StopClients):
        assert {label.key for label in step.labels} <= {PLUGIN, EXPORTER}
        return
    assert world.created_jobs[step.job] == 0
    if attempt.kind == "reset-gpu":
        released = world.healths[step.node].status.released
        assert released is not None
        assert released.by == attempt.job
        clients = [pod for pod in world.pods.values() if {PLUGIN, EXPORTER} & pod.spec.node_selector.keys()]
        assert clients == []


def tick(world: World, crash_after: int | None = None) -> None:
    for step in list(world.plan().steps)[:crash_after]:
        judge(world, step)
        world.apply(step)


def help_along(world: World, *, reset: str = "Reset") -> None:
    """The node does what it is asked: GPU Operator, the agent, the machine and its Jobs."""
    operate(world)
    follow(world)
    for job in list(world.jobs):
        if world.jobs[job].status.conditions:
            continue
        if job.startswith("reset-gpu"):
            finish_reset(world, job, result=reset)
        else:
            world.finish(job)
            if job.startswith("reboot"):
                world.reboot()


def later(world: World, span: timedelta) -> None:
    """Time passes, and every agent lives on."""
    world.now += span
    for name in world.leases:
        world.leases[name] = make.lease(name, renewed=world.now, node_uid=world.nodes[name].metadata.uid)


def work(world: World, rounds: int = 60, *, reset: str = "Reset") -> None:
    """Go on until nobody has anything to do at this instant."""
    idle = 0
    for _ in range(rounds):
        done = len(world.done)
        tick(world)
        help_along(world, reset=reset)
        idle = 0 if len(world.done) > done else idle + 1
        if idle == 3:
            return


def settle(world: World) -> None:
    """Let everything that hangs run into its deadline, an hour and a half at most."""
    end = world.now + timedelta(minutes=90)
    while world.now < end:
        work(world)
        next_at = world.plan().recheck_at
        if next_at is None or next_at > end:
            return
        later(world, max(next_at - world.now, timedelta(seconds=1)))


def owed(world: World) -> list[str]:
    """Name what is not as it was, and not somebody else's by now."""
    labels = world.nodes["gpu-1"].metadata.labels
    left = [key for key in LABELS if labels.get(key) == OFF]
    release = world.healths["gpu-1"].spec.release
    return left + (["release"] if release is not None else [])


def test_two_gpus_are_reset_and_the_node_comes_back() -> None:
    """Everybody off, one Job for both, everybody back, both GPUs cleared, and then the revalidation as ever."""
    world = a_world()
    before = dict(world.nodes["gpu-1"].metadata.labels)
    work(world)
    one = world.only()
    assert one.status.phase is Phase.RETURNED
    assert world.kinds() == [
        "Quarantine",
        "WriteSpec",
        "StopClients",
        "RunRepair",
        "StartClients",
        "WriteSpec",
        "RunValidation",
        "Restore",
    ]
    assert [(a.kind, a.result) for a in one.status.attempts] == [
        ("reset-gpu", "Succeeded"),
        ("revalidate", "Succeeded"),
    ]
    assert world.nodes["gpu-1"].metadata.labels == before
    assert [row.uuid for row in world.healths["gpu-1"].spec.cleared] == ["GPU-3", "GPU-5"]
    assert world.nodes["gpu-1"].status.node_info.boot_id == "boot-1"
    assert [row.transition for row in one.status.notifications] == ["open", "update", "resolve"]


def test_a_second_reset_of_the_same_node_is_not_undone_by_the_story_of_the_first() -> None:
    """A closed incident is kept for a month, with the labels that it once switched off: they may be another one's by now."""
    world = a_world()
    work(world)
    later(world, timedelta(days=1))
    boot = world.nodes["gpu-1"].status.node_info.boot_id
    world.fault("gpu-1", make.reset_finding(index=6, first_seen=world.now, boot_id=boot))
    settle(world)
    second = max(world.remediations.values(), key=lambda one: one.spec.opened_at)
    assert len(world.remediations) == 2
    assert [(a.kind, a.result) for a in second.status.attempts] == [
        ("reset-gpu", "Succeeded"),
        ("revalidate", "Succeeded"),
    ]
    assert owed(world) == []


@pytest.mark.parametrize("result", ["Failed", "Refused"])
def test_a_reset_that_fails_is_followed_by_a_reboot(result: str) -> None:
    """With the clients put back in between, so that whatever follows finds the node as it was."""
    world = a_world()
    work(world, reset=result)
    one = world.only()
    assert one.status.phase is Phase.RETURNED
    assert [(a.kind, a.result) for a in one.status.attempts] == [
        ("reset-gpu", "Failed"),
        ("reboot", "Succeeded"),
        ("revalidate", "Succeeded"),
    ]
    kinds = world.kinds()
    assert kinds.index("StartClients") < len(kinds) - kinds[::-1].index("RunRepair") - 1
    assert owed(world) == []


def test_a_client_that_never_leaves_costs_five_minutes_and_a_reboot() -> None:
    """Nothing is forced: the labels are put back, and the pod has never been touched."""
    world = a_world()
    stays = {pod.metadata.uid: pod for pod in world.pods.values() if PLUGIN in pod.spec.node_selector}
    for _ in range(20):
        tick(world)
        help_along(world)
        world.pods.update(stays)
    assert world.only().status.attempts[0].submitted_at is None
    later(world, timedelta(minutes=5))
    for _ in range(20):
        tick(world)
        help_along(world)
        world.pods.update(stays)
    one = world.only()
    assert [(a.kind, a.result) for a in one.status.attempts][:2] == [
        ("reset-gpu", "Refused"),
        ("reboot", "Succeeded"),
    ]
    assert owed(world) == []


def upgrade(world: World) -> None:
    """A driver upgrade comes, decorates what it finds as its driver manager does, and goes."""
    world.label("gpu-1", UPGRADE, "drain-required")
    paused = "paused-for-driver-upgrade"
    held = world.nodes["gpu-1"].metadata.labels.get(PLUGIN, "")
    world.label("gpu-1", PLUGIN, paused if held == "true" else f"{held}_{paused}")
    tick(world)
    world.label("gpu-1", PLUGIN, held)
    world.label("gpu-1", UPGRADE, "upgrade-done")


def vanish(world: World) -> None:
    """Somebody deletes the Jobs; one that nobody had seen yet would rightly be made anew."""
    known = {a.job for one in world.remediations.values() for a in one.status.attempts if a.submitted_at}
    for job in known & world.jobs.keys():
        del world.jobs[job]


HAPPENINGS: dict[str, Happening] = {
    "nothing": lambda _: None,
    "a crash after the first step": lambda world: tick(world, 1),
    "a person uncordons": lambda world: world.cordon(on=False),
    "a person cancels": lambda world: world.say(CANCEL) if world.remediations else None,
    "the node is made anew": lambda world: world.recreate(),
    "the node boots by itself": lambda world: world.reboot(),
    "the fault goes away": lambda world: world.well(),
    "the agent cannot look": lambda world: world.unknown(),
    "a GPU falls off": lambda world: world.fault(
        "gpu-1", *world.healths["gpu-1"].status.findings, world.seen()
    ),
    "the exporter is switched off by a person": lambda world: world.label("gpu-1", EXPORTER, "false"),
    "the plugin is switched on by a person": lambda world: world.label("gpu-1", PLUGIN, "true"),
    "a driver upgrade comes and goes": upgrade,
    "the policy is gone": lambda world: world.policies.clear(),
    "the policy pauses": lambda world: world.change_policy(make.policy(paused=True)),
    "its Job vanishes": vanish,
    "the deadline passes": lambda world: later(world, timedelta(minutes=16)),
}


@pytest.mark.parametrize("ticks", [0, *range(4, 19)])
@pytest.mark.parametrize("what", sorted(HAPPENINGS))
def test_every_disturbance_at_every_moment(what: str, ticks: int) -> None:
    """The clients and the driver are given back, and a Job is never made twice."""
    world = a_world()
    for number in range(ticks):
        tick(world)
        if number % 2:
            help_along(world)
    HAPPENINGS[what](world)
    settle(world)
    assert all(count == 1 for count in world.created_jobs.values())
    assert owed(world) == []
    labels = world.nodes["gpu-1"].metadata.labels
    if what != "the node is made anew":
        taken = {EXPORTER} if what == "the exporter is switched off by a person" else set()
        assert {key: value for key, value in labels.items() if key in LABELS and key not in taken} == {
            key: value for key, value in LABELS.items() if key not in taken
        }
    if what in ("nothing", "a crash after the first step"):
        one = world.of("gpu-1")
        assert one.status.phase is Phase.RETURNED
        assert [a.kind for a in repairs(one.status)] == ["reset-gpu"]


moves = st.lists(
    st.tuples(
        st.sampled_from(sorted(HAPPENINGS)),
        st.integers(0, 4),
        st.none() | st.integers(0, 2),
        st.sampled_from(["Reset", "Reset", "Failed"]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(moves)
def test_whatever_happens_nothing_stays_switched_off(
    history: list[tuple[str, int, int | None, str]],
) -> None:
    """Random histories with crashes: once no incident wants the driver, everybody is back on it."""
    world = a_world()
    for what, ticks, crash_after, result in history:
        for _ in range(ticks):
            tick(world, crash_after)
            tick(world)
            help_along(world, reset=result)
        HAPPENINGS[what](world)
    world.change_policy(make.policy(budget=BudgetPolicy(max_unavailable="3")))
    settle(world)
    assert all(count == 1 for count in world.created_jobs.values())
    wanting = [
        attempt
        for one in world.remediations.values()
        if is_open(one)
        for attempt in repairs(one.status)
        if attempt.kind == "reset-gpu" and not attempt.result
    ]
    if not wanting:
        assert owed(world) == []


@pytest.mark.parametrize("ticks", range(4, 14))
def test_nothing_stays_off_where_the_story_was_deleted_and_the_fault_is_gone(ticks: int) -> None:
    """No other incident comes to take over what a deleted one left; only its cordon waits for a person."""
    world = a_world()
    for number in range(ticks):
        tick(world)
        if number % 2:
            help_along(world)
    world.remediations.clear()
    world.well()
    settle(world)
    assert owed(world) == []
    assert not world.remediations


@pytest.mark.parametrize("ended", [False, True])
def test_a_job_without_its_story_keeps_the_clients_off_until_it_ended(*, ended: bool) -> None:
    """It may be at the very GPU that they would open."""
    fleet = quiet(jobs=[make.job(JOB, complete=ended)], reported=[], node={"labels": OFF_LABELS})
    uid = fleet.nodes["gpu-1"].metadata.uid
    job = fleet.jobs[JOB]
    job = msgspec.structs.replace(
        job, metadata=msgspec.structs.replace(job.metadata, annotations={NODE_UID_ANNOTATION: uid})
    )
    alone = msgspec.structs.replace(fleet, remediations={}, jobs={JOB: job})
    steps = put_back_orphans(survey(alone, make.NOW))
    assert any(isinstance(step, StartClients) for step in steps) is ended


def test_a_word_of_a_person_to_let_go_is_left_alone() -> None:
    """Who resets a GPU by hand asks the agent for the driver the same way, and takes the word back alone."""
    world = a_world(fault=False)
    word = Release(by="alice", since=world.now)
    held = world.healths["gpu-1"]
    world.healths["gpu-1"] = msgspec.structs.replace(
        held, spec=msgspec.structs.replace(held.spec, release=word)
    )
    settle(world)
    assert owed(world) == ["release"]


def test_labels_that_a_lost_incident_left_behind_are_known_as_ours() -> None:
    """Its Remediation was deleted by hand: the next reset takes the labels over, and puts them on."""
    world = a_world()
    for _ in range(10):
        tick(world)
        help_along(world)
        if owed(world):
            break
    world.remediations.clear()
    settle(world)
    assert owed(world) == []
    one = world.of("gpu-1")
    assert one.status.stopped is not None
    assert {label.before for label in one.status.stopped.labels} == {"true"}
    assert msgspec.structs.asdict(one.spec)["node_name"] == "gpu-1"
