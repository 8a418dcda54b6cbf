"""What the defaults of a policy do with each class of fault, without a rule for any reason."""

from typing import Any

import msgspec
import pytest

from checks.finding import Action, Effect, Urgency
from kube.nodehealth import HealthPart
from kube.policy import PolicySpec
from kube.remediation import Phase
from tests import build as make
from tests.controller.core.world import World

GPU = make.finding().part
PORT = HealthPart(kind="port", name="mlx5_3/1", pci="0000:5e:00")
MOUNT = HealthPart(kind="mount", name="/mnt/data")
NODE = HealthPart(kind="node")
DISK = HealthPart(kind="disk", name="nvme1n1")

NOTHING = (None, False, ())
PERSON = (Phase.ESCALATED, False, ())
WHEN_IDLE = (Phase.DRAINING, False, ())
Fate = tuple[Phase | None, bool, tuple[str, ...]]


def now(*repairs: str) -> Fate:
    return (Phase.REPAIRING, True, repairs)


def row(
    reason: str,
    condition: str,
    part: HealthPart,
    effect: Effect,
    urgency: Urgency,
    action: Action,
    *,
    busy: Fate,
    idle: tuple[str, ...] = (),
) -> Any:
    """State one reason, what becomes of a node on which a job runs, and which repairs are tried on an idle one."""
    finding = {"condition": condition, "reason": reason, "part": part, "effect": effect, "urgency": urgency}
    return pytest.param({**finding, "action": action}, busy, idle, id=reason)


REASONS = [
    row(
        "RowRemapPending",
        "GpuRowRemapFault",
        GPU,
        Effect.PREFER_NOT,
        Urgency.WHEN_IDLE,
        Action.RESET_GPU,
        busy=WHEN_IDLE,
        idle=("reset-gpu", "reboot"),
    ),
    row(
        "RowRemapFailed",
        "GpuRowRemapFault",
        GPU,
        Effect.PART_OUT,
        Urgency.PERSON,
        Action.CONTACT_SUPPORT,
        busy=PERSON,
    ),
    row(
        "UncorrectableEcc",
        "GpuEccFault",
        GPU,
        Effect.PART_OUT,
        Urgency.NOW,
        Action.RESET_GPU,
        busy=now("reset-gpu"),
        idle=("reset-gpu", "reboot"),
    ),
    row(
        "NvLinkDown",
        "GpuNvLinkDegraded",
        GPU,
        Effect.NO_MULTI_GPU,
        Urgency.WHEN_IDLE,
        Action.RESET_GPU,
        busy=WHEN_IDLE,
        idle=("reset-gpu", "reboot"),
    ),
    row(
        "FabricNotReady",
        "GpuNvLinkDegraded",
        NODE,
        Effect.NODE_OUT,
        Urgency.NOW,
        Action.REBOOT,
        busy=now("reboot"),
        idle=("reboot",),
    ),
    row(
        "PcieWidthReduced",
        "GpuPcieDegraded",
        GPU,
        Effect.PREFER_NOT,
        Urgency.PERSON,
        Action.CONTACT_SUPPORT,
        busy=PERSON,
    ),
    row(
        "HwThermalSlowdown",
        "GpuThrottled",
        GPU,
        Effect.PREFER_NOT,
        Urgency.PERSON,
        Action.CONTACT_SUPPORT,
        busy=PERSON,
    ),
    row(
        "PortDown",
        "InfinibandPortDegraded",
        PORT,
        Effect.NO_MULTI_NODE,
        Urgency.PERSON,
        Action.CONTACT_SUPPORT,
        busy=PERSON,
    ),
    row(
        "RateBelowExpected",
        "InfinibandPortDegraded",
        PORT,
        Effect.NO_MULTI_NODE,
        Urgency.WHEN_IDLE,
        Action.REBOOT,
        busy=WHEN_IDLE,
        idle=("reboot",),
    ),
    row(
        "PortNoted",
        "InfinibandPortDegraded",
        PORT,
        Effect.NONE,
        Urgency.PERSON,
        Action.NONE,
        busy=NOTHING,
    ),
    row(
        "MountHung",
        "SharedStorageFault",
        MOUNT,
        Effect.NODE_OUT,
        Urgency.NOW,
        Action.REBOOT,
        busy=now("reboot"),
        idle=("reboot",),
    ),
    row(
        "NvmeCritical",
        "LocalStorageFault",
        DISK,
        Effect.PREFER_NOT,
        Urgency.PERSON,
        Action.CONTACT_SUPPORT,
        busy=PERSON,
    ),
]


def faulty(finding: dict[str, Any], *, busy: bool) -> World:
    """Let the fault be found on a node of ten, under the defaults of a policy, and take its time."""
    world = World(*(make.node(f"gpu-{number}") for number in range(1, 11)))
    if busy:
        pod = make.pod("train", "gpu-1", owner="StatefulSet")
        world.pods[pod.metadata.uid] = pod
    world.fault("gpu-1", world.seen("gpu-1", **finding))
    world.settle()
    return world


def test_the_policy_of_these_tests_has_the_default_ladder() -> None:
    """Nothing in the table depends on a rule."""
    spec = make.policy().spec
    assert (spec.ladder, spec.rules, spec.default_wait) == (
        PolicySpec().ladder,
        (),
        PolicySpec().default_wait,
    )


@pytest.mark.parametrize(("finding", "busy", "idle"), REASONS)
def test_running_work_ends_for_what_cannot_wait_and_for_nothing_else(
    finding: dict[str, Any], busy: Fate, idle: tuple[str, ...]
) -> None:
    """Phase, whether the job was evicted, and the repair that then began."""
    del idle
    world = faulty(finding, busy=True)
    phase, evicted, repairs = busy
    incident = next(iter(world.remediations.values()), None)
    assert (incident.status.phase if incident is not None else None) == phase
    assert ("Evict" in world.kinds()) == evicted
    if incident is not None:
        assert tuple(attempt.kind for attempt in incident.status.attempts)[: len(repairs)] == repairs
        assert world.nodes["gpu-1"].spec.unschedulable


@pytest.mark.parametrize(("finding", "busy", "idle"), REASONS)
def test_the_ladder_of_an_idle_node(finding: dict[str, Any], busy: Fate, idle: tuple[str, ...]) -> None:
    """A reset comes first where it ends the fault, a reboot after it; a person's fault gets neither."""
    world = faulty(finding, busy=False)
    for _ in range(4):
        world.after(minutes=50)
        world.again()
        world.settle()
    incident = next(iter(world.remediations.values()), None)
    tried = tuple(dict.fromkeys(a.kind for a in incident.status.attempts)) if incident is not None else ()
    assert tried == idle
    assert (incident is None) == (busy == NOTHING)
    if incident is not None:
        assert incident.status.phase is Phase.ESCALATED


def test_a_worse_fault_joins_and_the_drain_begins_anew() -> None:
    """A row remap waits for the job; the GPU that then falls off the bus does not."""
    world = faulty(REASONS[0].values[0], busy=True)
    waiting = world.only().status
    assert (waiting.phase, waiting.drain is not None and waiting.drain.urgency) == (
        Phase.DRAINING,
        "when-idle",
    )
    remap = world.healths["gpu-1"].status.findings[0]
    world.fault("gpu-1", remap, msgspec.structs.replace(world.seen(), part=make.finding(index=5).part))
    world.settle()
    assert "Evict" in world.kinds()
