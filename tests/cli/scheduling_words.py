"""Objects of a scheduler's small cluster, as the API server stores them, and the command line run over them."""

from collections.abc import Mapping
from typing import Any, Self

from kube import paths
from kube.api import NotFound
from tests.cli.objects import Answer, Cluster
from tests.fakes import request_to

SCHEDULER = "nodemend-scheduler"
QUEUES = paths.collection("scheduling.run.ai", "v2", "queues")
JOBS = paths.jobs("team")


def pod_groups(namespace: str = "team") -> str:
    return paths.collection("scheduling.run.ai", "v2alpha2", "podgroups", namespace)


def node(name: str = "n1", gpus: int = 4, **more: Any) -> dict[str, Any]:
    """Give a node that is ready; `labels` and `spec` add to it."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    if not gpus:
        amounts.pop("nvidia.com/gpu")
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771"} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {**labels, **more.get("labels", {})}},
        "spec": more.get("spec", {}),
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
        },
    }


def fault(gpu: int, effect: str = "part-out", reason: str = "Xid48DoubleBitEcc") -> dict[str, Any]:
    """Give a finding on a GPU."""
    return {
        "condition": "GpuXidError",
        "reason": reason,
        "severity": "Fault",
        "effect": effect,
        "urgency": "now",
        "action": "NONE",
        "part": {"kind": "gpu", "uuid": f"GPU-n1-{gpu}", "index": gpu},
        "firstSeen": "2026-11-29T02:55:00Z",
        "lastSeen": "2026-11-29T02:55:00Z",
    }


def health(name: str = "n1", *findings: Mapping[str, Any], gpus: int = 4, **parts: Any) -> dict[str, Any]:
    """Give what an agent says of a node; `gpu0=...` changes a card."""
    return {
        "metadata": {"name": name},
        "status": {
            "nodeUID": f"uid-{name}",
            "publishedConditions": ["GpuXidError"],
            "findings": list(findings),
            "parts": [
                {
                    "kind": "gpu",
                    "uuid": f"GPU-{name}-{index}",
                    "index": index,
                    "model": "NVIDIA-H200",
                    "memoryMiB": 143000,
                    "offered": True,
                    **parts.get(f"gpu{index}", {}),
                }
                for index in range(gpus)
            ],
        },
    }


def lease(name: str = "n1") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "nodemend-system"},
        "spec": {"holderIdentity": name, "renewTime": "2026-11-29T02:59:58.000000Z"},
    }


def queue(name: str, parent: str = "", *, quota: float = 0, limit: float = -1, **more: Any) -> dict[str, Any]:
    """Give a queue with a GPU quota and limit, and no bound on the rest."""
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": more.pop("weight", 1)}
    rest = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    metadata = {"name": name, "annotations": more.pop("annotations", {}), "labels": more.pop("labels", {})}
    resources = {"gpu": gpu, "cpu": rest, "memory": rest}
    return {"metadata": metadata, "spec": {"parentQueue": parent, "resources": resources, **more}}


def group(name: str, queue_name: str, minimum: int = 1, **spec: Any) -> dict[str, Any]:
    """Give a PodGroup of the namespace team."""
    status = spec.pop("status", {})
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-11-29T01:00:00Z", **spec.pop("metadata", {})},
        "spec": {"queue": queue_name, "minMember": minimum, **spec},
        "status": status,
    }


def pod(name: str, gpus: int = 1, *, group_name: str = "", on: str = "", **more: Any) -> dict[str, Any]:
    """Give a pod of this scheduler in the namespace team: of a group, on a node, or neither."""
    annotations = {"pod-group-name": group_name} if group_name else {}
    amounts = {"cpu": "1", "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": more.get("created", "2026-11-29T02:30:00Z"),
            "labels": more.get("labels", {}),
            "annotations": {**annotations, **more.get("annotations", {})},
            "ownerReferences": more.get("owners", []),
        },
        "spec": {
            "schedulerName": more.get("scheduler", SCHEDULER),
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
            **({"nodeName": on} if on else {}),
            **more.get("spec", {}),
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def owner(kind: str, name: str, api_version: str = "batch/v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


class Pool(Cluster):
    """A cluster with shorthands for the scheduler's objects."""

    def put(
        self, *, nodes: Any = (), healths: Any = (), queues: Any = (), groups: Any = (), pods: Any = ()
    ) -> Self:
        for path, objects in (
            (paths.nodes(), nodes),
            (paths.node_healths(), healths),
            (QUEUES, queues),
            (pod_groups(), groups),
            (paths.pods("team"), pods),
        ):
            for one in objects:
                self.api.add(path, one)
        for one in healths:
            self.api.add(paths.leases("nodemend-system"), lease(one["metadata"]["name"]))
        return self

    def without(self, *plurals: str) -> Self:
        """Answer as a server that does not have these APIs."""
        for plural in plurals:
            error = NotFound("the server could not find the requested resource", code=404)
            self.api.fail_next(request_to("LIST", f"/{plural}"), error, times=None)
        return self

    def typed(self, *words: str) -> Answer:
        """Run a command that may only read."""
        answer = self.run(*words)
        assert self.api.writes() == []
        return answer


DEPARTMENTS = (
    queue("research", quota=6),
    queue("alpha", "research", quota=4, limit=6),
    queue("beta", "research", quota=2, weight=2),
)


def lab(*pods: dict[str, Any], groups: Any = (), **more: Any) -> Pool:
    """Give two nodes of four GPUs, a department with two projects, and these pods."""
    objects: dict[str, Any] = {
        "nodes": [node("n1"), node("n2")],
        "healths": [health("n1"), health("n2")],
        "queues": DEPARTMENTS,
    }
    return Pool().put(**{**objects, **more}, groups=groups, pods=pods)


def running(name: str, queue_name: str, gpus: int = 1, on: str = "n1", **more: Any) -> tuple[Any, Any]:
    """Give a pod that runs, and its group."""
    return pod(name, gpus, group_name=f"pg-{name}", on=on, **more), group(f"pg-{name}", queue_name)
