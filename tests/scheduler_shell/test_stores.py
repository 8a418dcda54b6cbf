"""What wakes the loop: news that a decision may depend on, and neither heartbeats nor our own words."""

from collections.abc import Callable

import msgspec
import pytest

from controller.scheduler.shell.stores import STALE_AFTER_S, Stores
from kube.scheduling import PodGroup
from kube.store import Stored
from kube.types import Node, NodeCondition, ObjectMeta, Pod, PodCondition, SchedulingGate
from tests.scheduler_shell.shell_words import OURS, ready_node, waiting_pod


class Bell:
    """Counts how often it rang since it was last asked."""

    def __init__(self) -> None:
        self.rung = 0

    def ring(self) -> None:
        self.rung += 1

    def asked(self) -> int:
        rung, self.rung = self.rung, 0
        return rung


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def stores(bell: Bell) -> Stores:
    return Stores(bell.ring, OURS)


def newer(obj: Stored, **changes: object) -> Stored:
    """Give an object in its next version."""
    version = str(int(obj.metadata.resource_version or "0") + 1)
    meta = msgspec.structs.replace(obj.metadata, resource_version=version)
    return msgspec.structs.replace(obj, metadata=meta, **changes)  # type: ignore[type-var]


def heartbeat(node: Node) -> dict[str, object]:
    ready = NodeCondition(type="Ready", status="True", reason="KubeletReady")
    return {"status": msgspec.structs.replace(node.status, conditions=(ready,))}


def cordon(node: Node) -> dict[str, object]:
    return {"spec": msgspec.structs.replace(node.spec, unschedulable=True)}


def fault(node: Node) -> dict[str, object]:
    conditions = (*node.status.conditions, NodeCondition(type="GpuXidError", status="True"))
    return {"status": msgspec.structs.replace(node.status, conditions=conditions)}


@pytest.mark.parametrize(
    ("change", "wakes"),
    [(lambda _node: {}, False), (cordon, True), (fault, True)],
    ids=["a heartbeat", "a cordon", "a condition"],
)
def test_which_changes_of_a_node_wake(
    stores: Stores, bell: Bell, change: Callable[[Node], dict[str, object]], wakes: bool
) -> None:
    """1,000 kubelets report every few seconds."""
    node = ready_node()
    stores.nodes.apply("ADDED", node, 0.0)
    assert bell.asked() == 1
    stores.nodes.apply("MODIFIED", newer(node, **change(node)), 0.0)  # type: ignore[arg-type]
    assert bool(bell.asked()) is wakes
    stores.nodes.apply("DELETED", newer(newer(node)), 0.0)  # type: ignore[arg-type]
    assert bell.asked() == 1


def nominated(pod: Pod) -> dict[str, object]:
    return {"status": msgspec.structs.replace(pod.status, nominated_node_name="b")}


def gated(pod: Pod) -> dict[str, object]:
    return {"spec": msgspec.structs.replace(pod.spec, scheduling_gates=(SchedulingGate(name="later"),))}


def told_to_wait(pod: Pod) -> dict[str, object]:
    waits = PodCondition(type="PodScheduled", status="False", reason="Unschedulable")
    return {"status": msgspec.structs.replace(pod.status, conditions=(waits,))}


def bound(pod: Pod) -> dict[str, object]:
    return {"spec": msgspec.structs.replace(pod.spec, node_name="a")}


def ended(pod: Pod) -> dict[str, object]:
    return {"status": msgspec.structs.replace(pod.status, phase="Succeeded")}


@pytest.mark.parametrize(
    ("change", "wakes"),
    [(told_to_wait, False), (nominated, False), (bound, False), (gated, True), (ended, True)],
    ids=[
        "our own word that it waits",
        "our own word for which node",
        "it was bound",
        "its gates changed",
        "it ended",
    ],
)
def test_which_changes_of_a_pod_wake(
    stores: Stores, bell: Bell, change: Callable[[Pod], dict[str, object]], wakes: bool
) -> None:
    """A new one does, and what frees room."""
    pod = waiting_pod("p")
    stores.pods.apply("ADDED", pod, 0.0)
    assert bell.asked() == 1
    stores.pods.apply("MODIFIED", newer(pod, **change(pod)), 0.0)  # type: ignore[arg-type]
    assert bool(bell.asked()) is wakes


def test_the_status_of_a_pod_group_wakes_nobody_and_its_spec_does(stores: Stores, bell: Bell) -> None:
    """We write the one ourselves."""
    group = PodGroup(
        metadata=ObjectMeta(name="g", namespace="ns", uid="u", resource_version="1", generation=1)
    )
    stores.pod_groups.apply("ADDED", group, 0.0)
    assert bell.asked() == 1
    told = newer(group)
    stores.pod_groups.apply("MODIFIED", told, 0.0)  # type: ignore[arg-type]
    assert bell.asked() == 0
    meta = msgspec.structs.replace(told.metadata, generation=2, resource_version="3")
    stores.pod_groups.apply("MODIFIED", msgspec.structs.replace(group, metadata=meta), 0.0)
    assert bell.asked() == 1


def test_an_api_that_is_not_there_is_not_waited_for(stores: Stores) -> None:
    """Everything else is named until it was read, and again when it was not heard about for long."""
    for name, store in stores.all().items():
        if name not in ("topologies", "resourceslices"):
            store.replace((), "1", 0.0)
    assert stores.why_not_synced() == "not read yet: topologies, resourceslices"
    stores.mark_absent(frozenset({"topologies", "resourceslices"}))
    assert stores.why_not_synced() is None
    assert stores.why_not_fresh(STALE_AFTER_S) is None
    assert "nodes" in (stores.why_not_fresh(STALE_AFTER_S + 1) or "")
