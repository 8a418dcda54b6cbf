"""Kubernetes objects of a small cluster, and the snapshot of them."""

from typing import Any

import msgspec

from controller.scheduler.model import Job, Snapshot
from controller.scheduler.rules import DEFAULT
from controller.scheduler.snapshot import Objects, Options, build
from kube.scheduling import PodGroup, Queue
from kube.types import Pod
from tests.scheduler.kube_words import NOW, node, pod, uuid

GROUP = {"annotations": {"pod-group-name": "train"}}


ONE_GPU = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}


HALF = {
    "annotations": {"pod-group-name": "train", "gpu-fraction": "0.5"},
    "labels": {"runai-gpu-group": "g1"},
}


def group(name: str = "train", **spec: Any) -> PodGroup:
    """Give a PodGroup of the namespace team."""
    raw = {"metadata": {"name": name, "namespace": "team"}, "spec": {"queue": "research", **spec}}
    return msgspec.convert(raw, PodGroup)


def queue(name: str = "research", pool: str = "", **spec: Any) -> Queue:
    """Give a Queue."""
    labels = {"kai.scheduler/node-pool": pool} if pool else {}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": spec}, Queue)


def built(*pods: Pod, **objects: Any) -> Snapshot:
    """Give the snapshot of one node and one group with these pods; nothing may be unreadable.

    Unless they give any, no health is known, which is said and may be.
    """
    defaults: dict[str, Any] = {"nodes": (node(),), "queues": (queue(),), "pod_groups": (group(),)}
    options, rules = objects.pop("options", Options()), objects.pop("rules", DEFAULT)
    snapshot, problems = build(Objects(pods=pods, **{**defaults, **objects}), NOW, options, rules)
    assert [problem for problem in problems if not problem.startswith("NodeHealth: ")] == []
    return snapshot


def only(snapshot: Snapshot) -> Job:
    """Give the one job of a snapshot."""
    (job,) = snapshot.jobs
    return job


RUNNING = {"phase": "Running"}


def reservation(**status: str) -> Pod:
    """Give the pod that keeps a card for the group g1."""
    return pod(
        "r1",
        meta={
            "namespace": "kai-resource-reservation",
            "labels": {"runai-gpu-group": "g1"},
            "annotations": {"run.ai/reserve_for_gpu_index": uuid(1)},
        },
        spec={**ONE_GPU, "nodeName": "n1"},
        status={**RUNNING, **status},
    )
