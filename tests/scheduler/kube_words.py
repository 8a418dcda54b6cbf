"""Small words for Kubernetes objects in scheduler tests: nodes, pods, health."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kube.nodehealth import HealthFinding, HealthPart, NodeHealth, NodeHealthStatus, PartState
from kube.types import Lease, LeaseSpec, Node, ObjectMeta, Pod

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def uuid(index: int) -> str:
    """Give the UUID of a GPU."""
    return f"GPU-{index}"


def node(
    name: str = "n1",
    gpus: int = 4,
    *,
    offered: int | None = None,
    conditions: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Node:
    """Give a Node of that many GPUs, of which kubelet gives `offered`; `conditions` are status by type."""
    raw = {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.memory": "81559", **(labels or {})}},
        "spec": spec,
        "status": {
            "capacity": {"nvidia.com/gpu": str(gpus)},
            "allocatable": {
                "cpu": "63500m",
                "memory": "500Gi",
                "pods": "110",
                "nvidia.com/gpu": str(gpus if offered is None else offered),
                "rdma/hca": "8",
            },
            "conditions": [
                {"type": kind, "status": status, "reason": "Said"}
                for kind, status in {"Ready": "True", **(conditions or {})}.items()
            ],
        },
    }
    return msgspec.convert(raw, Node)


def health(
    *findings: HealthFinding, gpus: int = 4, name: str = "n1", **changes: dict[str, Any]
) -> NodeHealth:
    """Give a NodeHealth of that many GPUs; `changes` are fields of the GPU `gpu0`, `gpu1` and so on."""
    parts = tuple(
        msgspec.structs.replace(
            PartState(kind="gpu", uuid=uuid(index), index=index, offered=True),
            **changes.get(f"gpu{index}", {}),
        )
        for index in range(gpus)
    )
    published = ("GpuXidError", "InfinibandPortDegraded")
    status = NodeHealthStatus(parts=parts, findings=findings, published_conditions=published)
    return NodeHealth(metadata=ObjectMeta(name=name), status=status)


def fault(
    effect: str,
    *,
    gpu: int | None = None,
    kind: str = "gpu",
    condition: str = "GpuXidError",
    reason: str = "Xid48DoubleBitEcc",
    severity: str = "Fault",
) -> HealthFinding:
    """Give a finding on a GPU, or on another kind of part."""
    part = HealthPart(kind=kind, uuid="" if gpu is None else uuid(gpu), index=gpu)
    return HealthFinding(
        condition=condition,
        reason=reason,
        severity=severity,
        effect=effect,
        urgency="now",
        action="NONE",
        part=part,
        first_seen=NOW,
        last_seen=NOW,
    )


def lease(seconds_ago: int) -> Lease:
    """Give the lease of an agent that was last heard so long ago."""
    return Lease(metadata=ObjectMeta(), spec=LeaseSpec(renew_time=NOW - timedelta(seconds=seconds_ago)))


def pod(name: str = "p1", **fields: Any) -> Pod:
    """Give a Pod of KAI's in the namespace team; `meta`, `spec` and `status` add to it."""
    raw = {
        "metadata": {"name": name, "namespace": "team", **fields.get("meta", {})},
        "spec": {"schedulerName": "kai-scheduler", **fields.get("spec", {})},
        "status": {"phase": "Pending", **fields.get("status", {})},
    }
    return msgspec.convert(raw, Pod)
