"""Snapshots made one after the other equal those made anew, whatever changed in between."""

from datetime import timedelta

import msgspec
import pytest

from controller.scheduler.remembered import FOR, Remembered, stands_alone
from controller.scheduler.snapshot import Objects, Options, build
from kube.scheduling import PodGroup, PodGroupSpec
from kube.types import ClaimVolume, Lease, LeaseSpec, Node, NodeCondition, ObjectMeta, Pod, Volume
from tests.fakes import EPOCH
from tests.scheduler_shell.shell_words import OURS, ready_node, waiting_pod

OPTIONS = Options(scheduler_name=OURS)
GROUP = PodGroup(
    metadata=ObjectMeta(name="g", namespace="ns", uid="g", creation_timestamp=EPOCH),
    spec=PodGroupSpec(queue="q", min_member=1),
)


def grouped(pod: Pod, **changes: object) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, annotations={"pod-group-name": "g"})
    return msgspec.structs.replace(pod, metadata=meta, **changes)


NODE, POD = ready_node(), grouped(waiting_pod("p"))
FIRST = Objects(nodes=(NODE,), pods=(POD,), pod_groups=(GROUP,))


def not_ready(node: Node) -> Node:
    conditions = (NodeCondition(type="Ready", status="False"),)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))


SECOND = {
    "nothing changed": (FIRST, OPTIONS),
    "a node changed": (msgspec.structs.replace(FIRST, nodes=(not_ready(NODE),)), OPTIONS),
    "a pod was bound": (msgspec.structs.replace(FIRST, pods=(grouped(waiting_pod("p", node="a")),)), OPTIONS),
    "a pod is protected by now": (FIRST, msgspec.structs.replace(OPTIONS, protected={"ns/p": "a budget"})),
    "a pod is gone": (msgspec.structs.replace(FIRST, pods=()), OPTIONS),
    "the label of the cards' memory cannot be read": (
        msgspec.structs.replace(
            FIRST,
            nodes=(
                msgspec.structs.replace(
                    NODE,
                    metadata=msgspec.structs.replace(NODE.metadata, labels={"nvidia.com/gpu.memory": "much"}),
                ),
            ),
        ),
        OPTIONS,
    ),
}


@pytest.mark.parametrize("name", SECOND)
def test_a_snapshot_made_after_another_equals_one_made_anew(name: str) -> None:
    """Three times, so that what was kept is used, and what was said is said again."""
    remembered = Remembered()
    build(FIRST, EPOCH, OPTIONS, remembered=remembered)
    objects, options = SECOND[name]
    for passed in range(3):
        now = EPOCH + timedelta(seconds=passed)
        assert build(objects, now, options, remembered=remembered) == build(objects, now, options)


def test_what_did_not_change_is_made_once() -> None:
    """The very same task and node are in the next snapshot."""
    remembered = Remembered()
    first, _ = build(FIRST, EPOCH, OPTIONS, remembered=remembered)
    second, _ = build(FIRST, EPOCH + timedelta(seconds=1), OPTIONS, remembered=remembered)
    assert second.nodes[0] is first.nodes[0]
    assert second.jobs[0].tasks[0] is first.jobs[0].tasks[0]


@pytest.mark.parametrize("passed", [FOR, -timedelta(seconds=1)], ids=["after a while", "the clock went back"])
def test_a_node_is_looked_at_again_where_time_may_have_changed_it(passed: timedelta) -> None:
    """An agent falls silent without any object changing."""
    remembered = Remembered()
    first, _ = build(FIRST, EPOCH, OPTIONS, remembered=remembered)
    second, _ = build(FIRST, EPOCH + passed, OPTIONS, remembered=remembered)
    assert second.nodes[0] == first.nodes[0]
    assert second.nodes[0] is not first.nodes[0]


def test_a_lease_that_was_renewed_counts_at_once() -> None:
    """It is another sign of life."""
    remembered = Remembered()

    def leases(seconds: int) -> Objects:
        spec = LeaseSpec(renew_time=EPOCH + timedelta(seconds=seconds))
        return msgspec.structs.replace(FIRST, leases={"a": Lease(metadata=ObjectMeta(name="a"), spec=spec)})

    first, _ = build(leases(0), EPOCH, OPTIONS, remembered=remembered)
    second, _ = build(leases(1), EPOCH + timedelta(seconds=1), OPTIONS, remembered=remembered)
    assert second.nodes[0] is not first.nodes[0]


def test_a_pod_with_a_volume_is_judged_by_others_and_never_kept() -> None:
    """Its claim may be bound meanwhile."""
    volume = Volume(name="data", persistent_volume_claim=ClaimVolume(claim_name="data"))
    pod = grouped(waiting_pod("p"))
    spec = msgspec.structs.replace(pod.spec, volumes=(volume,))
    assert stands_alone(pod)
    assert not stands_alone(msgspec.structs.replace(pod, spec=spec))
