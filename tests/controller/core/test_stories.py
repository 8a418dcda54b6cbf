"""Whole incidents, told from the first fault to the last step, against a world that answers.

The stories are those of public bug reports about remediation (named where they were told); each ends with the Node as it
has to be, the Jobs that were created, the evictions that were sent, and the messages.
"""

from datetime import timedelta

import msgspec
import pytest

from controller.steps import Evict, RunRepair
from controller.view import Delivery, Settings
from kube.nodehealth import HealthFinding
from kube.policy import (
    BudgetPolicy,
    Mode,
    RemediationPolicy,
    Rung,
)
from kube.remediation import CANCEL, QUARANTINE, REPAIRED, Phase
from tests import build as make
from tests.build import NOW, XID
from tests.controller.core.world import World

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"


TWICE = make.policy(ladder=(Rung(repair="reboot", attempts=2),))


def a_world(*pods: str, policy: RemediationPolicy | None = None, spare: int = 9) -> World:
    return World(
        make.node(),
        *make.idle_nodes(spare),
        policies=[policy or make.policy()],
        pods=[make.pod(name) for name in pods],
    )


def jobs(world: World) -> list[str]:
    """Name the Jobs that were created, without the incident's hash."""
    return [job.replace(f"{world.only().metadata.name}-", "") for job in world.created_jobs]


def messages(world: World) -> list[str]:
    return [row.transition for row in world.only().status.notifications]


def passes(world: World) -> None:
    """The last revalidation succeeds."""
    world.settle()
    world.finish(world.only().status.attempts[-1].job)
    world.settle()


def untouched(world: World, name: str = "gpu-1", *, unschedulable: bool = False) -> bool:
    node = world.nodes[name]
    ours = QUARANTINE in node.metadata.annotations or any(t.key == QUARANTINE for t in node.spec.taints)
    return not ours and node.spec.unschedulable == unschedulable


def test_one_fault_from_the_first_line_to_the_return() -> None:
    """Quarantined, drained, rebooted, proven, revalidated, given back as found; three messages."""
    world = a_world("train-0", "train-1")
    world.fault()
    world.settle()
    world.now += timedelta(minutes=4)
    world.reboot()
    passes(world)
    assert world.only().status.phase is Phase.RETURNED
    assert world.kinds() == ["Quarantine", "Evict", "Evict", "RunRepair", "RunValidation", "Restore"]
    assert jobs(world) == ["reboot-1", "validate-1"]
    assert messages(world) == ["open", "update", "resolve"]
    assert untouched(world)


@pytest.mark.parametrize("crash_after", [0, 1, 2])
def test_a_crash_anywhere_repeats_nothing(crash_after: int) -> None:
    """Every tick is cut short, again and again, and the story is the same."""
    world = a_world("train-0", "train-1")
    world.fault()
    for round_ in range(60):
        world.tick(crash_after=crash_after if round_ % 2 else None)
    world.reboot()
    passes(world)
    assert world.kinds() == ["Quarantine", "Evict", "Evict", "RunRepair", "RunValidation", "Restore"]
    assert all(count == 1 for count in world.created_jobs.values())


def test_a_cordon_of_before_is_found_again() -> None:
    """Somebody had taken the node out before the fault (NVIDIA/gpu-operator#304, NVIDIA/NVSentinel#1424)."""
    world = a_world()
    world.cordon()
    world.fault()
    world.settle()
    world.reboot()
    passes(world)
    assert world.only().status.phase is Phase.RETURNED
    assert "as somebody left it" in world.only().status.message
    assert untouched(world, unschedulable=True)


def test_an_uncordon_between_drain_and_reboot_stops_the_reboot() -> None:
    """A person gives the node back; no Job follows, and the same fault opens nothing again (NVIDIA/NVSentinel#141)."""
    policy = make.policy(budget=BudgetPolicy(max_repairs_in_flight=0))
    world = a_world("train-0", policy=policy)
    world.fault()
    world.settle()
    world.cordon(on=False)
    world.change_policy(make.policy())
    world.settle()
    world.after(hours=2)
    assert world.only().status.phase is Phase.CANCELLED
    assert world.kinds() == ["Quarantine", "Evict", "Restore"]
    assert jobs(world) == []
    assert messages(world) == ["open", "update", "resolve"]
    assert untouched(world)
    assert world.nodes["gpu-1"].condition(XID).status == "True"  # type: ignore[union-attr]


def test_new_evidence_after_a_cancel_opens_another_incident() -> None:
    """The person's word was about the fault that they knew."""
    world = a_world()
    world.fault()
    world.settle()
    world.say(CANCEL)
    world.settle()
    assert untouched(world)
    world.now += timedelta(minutes=1)
    world.fault("gpu-1", *world.healths["gpu-1"].status.findings, world.seen(reason="Xid48DoubleBitEcc"))
    world.settle()
    assert [one.status.phase for one in world.remediations.values()] == [Phase.CANCELLED, Phase.REPAIRING]


def test_a_fault_that_clears_before_the_drain_evicts_nobody() -> None:
    """One second before the drain it is gone (planetlabs/draino#50); the node is proven and given back."""
    world = a_world("train-0", policy=make.policy(paused=True))
    world.change_policy(make.policy(mode=Mode.ENFORCE))
    world.fault()
    world.tick()
    world.tick()
    world.now += timedelta(seconds=1)
    world.well()
    passes(world)
    assert not [step for step in world.done if isinstance(step, Evict | RunRepair)]
    assert world.only().status.phase is Phase.RETURNED
    assert untouched(world)


def test_a_disruption_budget_that_never_allows_ends_with_a_person() -> None:
    """The pod and the reason are named; nothing is forced (kubernetes/kubernetes#72320)."""
    world = a_world("train-0")
    world.protected = set(world.pods)
    world.fault()
    world.settle()
    for _ in range(40):
        world.after(minutes=1)
    one = world.only()
    assert one.status.phase is Phase.ESCALATED
    assert "jobs/train-0" in one.status.message
    assert jobs(world) == []
    assert len(world.pods) == 1
    assert world.evictions["pod-gpu-1-train-0"].tries <= 33


def test_a_disruption_budget_that_allows_later_is_waited_for() -> None:
    """The drain goes on by itself."""
    world = a_world("train-0")
    world.protected = set(world.pods)
    world.fault()
    world.settle()
    world.after(minutes=5)
    world.protected.clear()
    world.after(minutes=2)
    assert jobs(world) == ["reboot-1"]


def test_a_new_pod_of_the_same_name_elsewhere_is_not_evicted() -> None:
    """A StatefulSet starts it again on another node (kubernetes/kubernetes#138229)."""
    world = a_world("db-0")
    world.fault()
    world.settle()
    again = make.pod("db-0", "spare-1")
    world.pods[again.metadata.uid] = again
    world.after(minutes=1)
    assert [step.uid for step in world.done if isinstance(step, Evict)] == ["pod-gpu-1-db-0"]
    assert again.metadata.uid in world.pods


def test_a_reboot_that_never_comes_fails_and_is_not_repeated_for_ever() -> None:
    """Its deadline ends it, the slot is free, a person is paged (NVIDIA/NVSentinel#1808, node-operation-controller#31)."""
    world = a_world(policy=TWICE)
    world.fault()
    world.settle()
    for _ in range(20):
        world.after(minutes=10)
    assert world.only().status.phase is Phase.ESCALATED
    assert jobs(world) == ["reboot-1", "reboot-2"]
    assert [a.result for a in world.only().status.attempts] == ["Failed", "Failed"]
    assert world.policies["gpus"].status.pools[0].repairs_in_flight == 0


def test_a_fault_that_survives_the_reboot_climbs_the_ladder() -> None:
    """The reboot is proven, the fault is there again, the next rung follows, then a person."""
    world = a_world(policy=TWICE)
    world.fault()
    for _ in range(2):
        world.settle()
        world.after(minutes=5)
        world.reboot()
        world.fault()
    world.settle()
    assert world.only().status.phase is Phase.ESCALATED
    assert [a.result for a in world.only().status.attempts if a.kind == "reboot"] == [
        "Succeeded",
        "Succeeded",
    ]
    assert jobs(world) == ["reboot-1", "reboot-2"]
    assert not untouched(world, unschedulable=True)


def test_a_failing_revalidation_keeps_the_node_out_until_a_person_mended_it() -> None:
    """Failed twice: a page; `repaired`: the whole proof again; then it is given back."""
    world = a_world()
    world.fault()
    world.settle()
    world.reboot()
    for _ in range(2):
        world.settle()
        world.finish(world.only().status.attempts[-1].job, failed="7 of 8 GPUs")
    world.settle()
    assert world.only().status.phase is Phase.ESCALATED
    assert "7 of 8 GPUs" in world.only().status.message
    world.after(hours=5)
    assert world.only().status.phase is Phase.ESCALATED
    world.say(REPAIRED)
    passes(world)
    assert world.only().status.phase is Phase.RETURNED
    assert world.healths["gpu-1"].spec.cleared_before == world.now
    assert jobs(world) == ["reboot-1", "validate-1", "validate-2", "validate-3"]
    assert messages(world) == ["open", "update", "update", "update", "resolve"]
    assert untouched(world)


def test_a_driver_upgrade_in_the_middle_is_waited_for_and_its_uncordon_put_right() -> None:
    """It uncordons at its end, whatever stood before (NVIDIA/k8s-driver-manager#212): we cordon again and go on."""
    world = a_world("train-0")
    world.protected = set(world.pods)
    world.fault()
    world.settle()
    world.label("gpu-1", UPGRADE, "drain-required")
    world.settle()
    before = len(world.done)
    world.after(minutes=3)
    world.cordon(on=False)
    world.settle()
    assert {type(step).__name__ for step in world.done[before:]} <= {"Save", "SavePolicy"}
    world.label("gpu-1", UPGRADE, "upgrade-done")
    world.protected.clear()
    world.settle()
    assert world.nodes["gpu-1"].spec.unschedulable
    world.after(minutes=2)
    world.reboot()
    passes(world)
    assert world.only().status.phase is Phase.RETURNED
    assert untouched(world)


def test_a_node_that_is_replaced_in_the_middle_is_left_alone() -> None:
    """Neither cordoned nor drained under its new UID; the page is resolved."""
    world = a_world("train-0")
    world.fault()
    world.tick()
    world.tick()
    world.recreate()
    world.settle()
    assert world.only().status.phase is Phase.SUPERSEDED
    assert world.kinds() == ["Quarantine"]
    assert messages(world) == ["open", "resolve"]
    assert untouched(world)


def person_later(world: World) -> HealthFinding:
    return msgspec.structs.replace(make.person_finding(index=5), first_seen=world.now, last_seen=world.now)


def test_a_fault_for_a_person_that_joins_a_drain_stops_it() -> None:
    """Hardware that needs hands is not rebooted away."""
    world = a_world("train-0")
    world.protected = set(world.pods)
    world.fault()
    world.settle()
    world.now += timedelta(minutes=1)
    world.fault("gpu-1", *world.healths["gpu-1"].status.findings, person_later(world))
    world.settle()
    assert world.only().status.phase is Phase.ESCALATED
    assert jobs(world) == []


def test_running_work_is_never_evicted_for_what_can_wait() -> None:
    """When the work ends by itself, the node is repaired."""
    world = a_world("train-0")
    idle = msgspec.structs.replace(make.idle_finding(), first_seen=NOW, last_seen=NOW)
    world.fault("gpu-1", idle)
    world.settle()
    world.after(hours=5)
    assert world.only().status.phase is Phase.DRAINING
    world.pods.clear()
    world.after(seconds=10)
    assert jobs(world) == ["reboot-1"]
    assert not [step for step in world.done if isinstance(step, Evict)]


def test_a_sink_that_is_down_for_an_hour_hears_everything_in_order() -> None:
    """Nothing is lost, nothing overtakes, and the incident does not wait for it."""
    world = a_world()
    world.settings = Settings(sinks={"pager": tuple(timedelta(minutes=5) for _ in range(30))})
    world.fault()
    world.settle()
    world.reboot()
    passes(world)
    assert world.only().status.phase is Phase.RETURNED
    heard: list[str] = []
    for minute in range(0, 200, 5):
        rows = [row for row in world.only().status.notifications if row.sent_at is None and not row.dead]
        if not rows:
            break
        error = "500" if minute < 60 else ""
        heard += [] if error else [rows[0].transition]
        world.deliveries = {rows[0].id: Delivery(attempt=rows[0].attempts + 1, at=world.now, error=error)}
        world.after(minutes=5)
    assert heard == ["open", "update", "resolve"]


def test_a_deleted_remediation_is_told_again_from_the_mark() -> None:
    """Somebody deletes it while the node is cordoned: the same fault opens the same incident, with the true state before."""
    world = a_world("train-0")
    world.protected = set(world.pods)
    world.fault()
    world.settle()
    first = world.only()
    world.remediations.clear()
    world.settle()
    assert world.only().metadata.name == first.metadata.name
    recipe = world.only().status.before
    assert recipe is not None
    assert (recipe.unschedulable, recipe.cordoned) == (False, True)
    world.protected.clear()
    world.after(minutes=2)
    world.reboot()
    passes(world)
    assert untouched(world)
