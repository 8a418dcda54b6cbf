"""Builders of what runs on a node: pods, DaemonSets, Jobs. Import them from `tests.build`, with all others."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from kube.types import (
    Container,
    DaemonSet,
    DaemonSetSpec,
    Job,
    JobCondition,
    JobStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    ResourceRequirements,
    Toleration,
    Volume,
)


def pod(
    name: str = "train-0",
    node_name: str = "gpu-1",
    *,
    namespace: str = "jobs",
    uid: str | None = None,
    owner: str | None = "ReplicaSet",
    owner_name: str = "train",
    owner_uid: str = "",
    phase: str = "Running",
    gpus: int = 0,
    empty_dir: bool = False,
    annotations: Mapping[str, str] | None = None,
    tolerations: Iterable[Toleration] = (),
    deleted: datetime | None = None,
    finalizers: Iterable[str] = (),
) -> Pod:
    """Build a pod that runs on a node, owned by a controller unless `owner` is None."""
    owners = (
        ()
        if owner is None
        else (OwnerReference(kind=owner, name=owner_name, uid=owner_uid, controller=True),)
    )
    requests = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"pod-{node_name}-{name}" if uid is None else uid,
            owner_references=owners,
            annotations=dict(annotations or {}),
            deletion_timestamp=deleted,
            finalizers=tuple(finalizers),
        ),
        spec=PodSpec(
            node_name=node_name,
            tolerations=tuple(tolerations),
            containers=(
                Container(name="main", resources=ResourceRequirements(requests=requests, limits=requests)),
            ),
            volumes=(Volume(name="scratch", empty_dir={}),) if empty_dir else (),
        ),
        status=PodStatus(phase=phase),
    )


def daemonset(
    name: str = "exporter", *, namespace: str = "monitoring", tolerations: Iterable[Toleration] = ()
) -> DaemonSet:
    """Build a DaemonSet; by default it does not tolerate our taint."""
    template = PodTemplateSpec(spec=PodSpec(tolerations=tuple(tolerations)))
    return DaemonSet(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"ds-{name}"),
        spec=DaemonSetSpec(template=template),
    )


def job(name: str, *, complete: bool = False, failed: str = "") -> Job:
    """Build a Job that runs, is complete, or failed with this message."""
    conditions = []
    if complete:
        conditions.append(JobCondition(type="Complete", status="True"))
    if failed:
        conditions.append(
            JobCondition(type="Failed", status="True", reason="BackoffLimitExceeded", message=failed)
        )
    return Job(
        metadata=ObjectMeta(name=name, namespace="nodemend-repairs"),
        status=JobStatus(conditions=tuple(conditions)),
    )
