"""The room that was emptied for a pod stays its own over a restart, and kubectl shows it: on the real API server."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kube import paths
from kube.api import PatchType
from kube.types import Pod
from sandbox.actors import SchedulerActor
from tests.cluster.scheduler_stage import NOW, POOL_LABEL, QUICK_LEASE, SchedulerStage

pytestmark = pytest.mark.cluster

SLOW: dict[str, Any] = {
    "annotations": {"sandbox.nodemend.dev/exits-after": "5m"},
    "terminationGracePeriodSeconds": 300,
}
GATE: dict[str, Any] = {"schedulingGates": [{"name": "test.nodemend.dev/later"}]}


def leaving(stage: SchedulerStage) -> set[str]:
    return {
        pod.metadata.name for pod in stage.pods.store.values() if pod.metadata.deletion_timestamp is not None
    }


def end_victim(stage: SchedulerStage) -> None:
    """Let the victim end at last, as its kubelet would report."""
    stage.admin.delete(paths.pod(stage.namespace, "lent"), NOW)
    stage.until(lambda: not leaving(stage), "the victim to be gone")


def nominated(stage: SchedulerStage, prefix: str) -> set[str]:
    """Give the nodes that the waiting pods of this prefix are nominated for."""
    return {pod.status.nominated_node_name for pod in _waiting(stage, prefix)}


def _waiting(stage: SchedulerStage, prefix: str) -> list[Pod]:
    return [pod for pod in stage.alive(prefix).values() if not pod.spec.node_name]


def reclaim(stage: SchedulerStage) -> str:
    """Let a borrower's pod be evicted for two pods of the owner, while an older rival of theirs is not ready yet.

    The victim takes long to end. Gives its node.
    """
    (node,) = stage.add_nodes(1)
    owner, borrower = stage.queue("owner", quota=8), stage.queue("borrower", quota=0)
    stage.start(leader=QUICK_LEASE)
    stage.create_pod("lent", borrower, 8, **SLOW)
    stage.until(lambda: stage.running("lent") == {"lent": node}, "the borrower to run")
    create_rival(stage, owner)
    time.sleep(1.1)  # creation is dated in whole seconds, and the older group is to stand first
    stage.create_job("owner", owner, pods=2, gpus=4, least=2)
    stage.until(lambda: leaving(stage) == {"lent"}, "the victim to be evicted")
    return node


def create_rival(stage: SchedulerStage, queue: str) -> None:
    """Make a pod that asks for a whole node, and its group, as some workload's controller would."""
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "rival", "labels": {POOL_LABEL: stage.pool}},
        "spec": {"queue": queue, "minMember": 1, "priorityClassName": "train"},
    }
    stage.admin.create(paths.pod_groups(stage.namespace), group)
    stage.create_pod("rival", queue, 8, annotations={"pod-group-name": "rival"}, **GATE)


def kill(actor: SchedulerActor) -> None:
    actor.kill()


def stop(actor: SchedulerActor) -> None:
    actor.stop()


@pytest.mark.parametrize(
    ("end", "is_empty"),
    [
        pytest.param(kill, True, id="kill -9, and the room is empty by then"),
        pytest.param(kill, False, id="kill -9, and the victim goes on ending"),
        pytest.param(stop, True, id="a stop, and the Lease is free at once"),
    ],
)
def test_a_new_leader_gives_emptied_room_to_whom_it_was_made_for(
    stage: SchedulerStage, end: Callable[[SchedulerActor], None], is_empty: bool
) -> None:
    """The rival is older, so it stands first in their queue and would take the room."""
    node = reclaim(stage)
    stage.until(lambda: nominated(stage, "owner") == {node}, "the pods to be nominated", 10.0)
    (actor,) = stage.actors
    end(actor)
    stage.admin.patch(
        paths.pod(stage.namespace, "rival"), {"spec": {"schedulingGates": None}}, PatchType.MERGE
    )
    if is_empty:
        end_victim(stage)
    actor.start()
    stage.until(lambda: "nvidia.com/gpu" in stage.why("rival"), "the rival to say why it waits")
    if not is_empty:
        assert nominated(stage, "owner") == {node}
        assert nominated(stage, "rival") == {""}
        end_victim(stage)

    stage.until(lambda: len(stage.running("owner")) == 2, "the owner to get the room")
    assert stage.waiting("") == ["rival"]
    assert stage.disrupted == {"lent": "EvictionByEvictionAPI"}
    assert len(stage.audit("create", "pods", "eviction")) == 1
    stage.check_books()


def test_kubectl_shows_the_nominated_node_until_the_promise_ends(stage: SchedulerStage) -> None:
    """Whoever merely waits shows none. Where the node takes nobody any more the promise ends without a bind."""
    node = reclaim(stage)
    stage.until(lambda: nominated(stage, "owner") == {node}, "the pods to be nominated", 10.0)
    wide = stage.sandbox.kubectl("get", "pods", "-o", "wide", "--no-headers", "-n", stage.namespace)
    shown = {line.split()[0]: line.split()[-2] for line in wide.splitlines()}
    assert {name: shown[name] for name in stage.waiting("owner")} == dict.fromkeys(
        stage.waiting("owner"), node
    )
    assert shown["rival"] == "<none>"

    stage.sandbox.kubectl("cordon", node)
    stage.until(lambda: nominated(stage, "owner") == {""}, "the nomination to be taken back", 10.0)
    assert len(stage.waiting("owner")) == 2

    stage.sandbox.kubectl("uncordon", node)
    end_victim(stage)
    stage.until(lambda: len(stage.running("owner")) == 2, "the owner to start")
    assert stage.disrupted == {"lent": "EvictionByEvictionAPI"}
