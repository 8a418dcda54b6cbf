"""Short words for the objects that the tests of the grouper are about."""

from typing import Any

from controller.scheduler.grouper.grouping import group_of
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, SubGroupSpec

Raw = dict[str, Any]


def thing(
    api_version: str,
    kind: str,
    spec: Raw | None = None,
    *,
    name: str = "w",
    uid: str = "u",
    labels: Raw | None = None,
    notes: Raw | None = None,
    **more: Any,
) -> Raw:
    metadata: Raw = {
        "name": name,
        "namespace": "team",
        "uid": uid,
        "labels": labels or {},
        "annotations": notes or {},
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec or {}, **more}


def pod(name: str = "p", *, labels: Raw | None = None, notes: Raw | None = None, **spec: Any) -> Raw:
    return thing("v1", "Pod", spec, name=name, uid=f"{name}-uid", labels=labels, notes=notes)


def grouped(
    asked: Raw, *owners: Raw, around: tuple[Raw, ...] = (), cluster: Cluster | None = None
) -> PodGroupSpec:
    return group_of(asked, owners, Cluster(around) if cluster is None else cluster)


def leaves(spec: PodGroupSpec) -> dict[str, tuple[str, int, int | None]]:
    """What each subgroup is: its parent, its minimum of pods, its minimum of subgroups."""
    return {group.name: (group.parent, group.min_available, group.min_sub_group) for group in spec.sub_groups}


def leaf(spec: PodGroupSpec, name: str) -> SubGroupSpec:
    return next(group for group in spec.sub_groups if group.name == name)


WORKER = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"}
JOBSET = {"jobset.sigs.k8s.io/replicatedjob-name": "sim", "jobset.sigs.k8s.io/job-index": "1"}
GANG = {"grove.io/podgang": "gang"}


def replicas(**counts: int) -> Raw:
    return {name: {"replicas": count} for name, count in counts.items()}


def training(kind: str, field: str, spec: Raw | None = None, version: str = "v1", **counts: int) -> Raw:
    return thing(f"kubeflow.org/{version}", kind, {field: replicas(**counts)} | (spec or {}))


def wants(minimum: int) -> Raw:
    return {"runPolicy": {"schedulingPolicy": {"minAvailable": minimum}}}


def workers(*groups: Raw, autoscaling: bool = False, head: Raw | None = None) -> Raw:
    return {
        "enableInTreeAutoscaling": autoscaling,
        "headGroupSpec": head or {},
        "workerGroupSpecs": list(groups),
    }


def template(**notes: str) -> Raw:
    return {
        "metadata": {
            "annotations": {f"kai.scheduler/{key.replace('_', '-')}": text for key, text in notes.items()}
        }
    }


def jobset(order: str = "AnyOrder", notes: Raw | None = None, **job: Any) -> Raw:
    jobs = [
        {"name": "driver"},
        {"name": "sim", "replicas": 2, "template": {"spec": {"parallelism": 3}}} | job,
    ]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": order}}
    return thing("jobset.x-k8s.io/v1alpha2", "JobSet", spec, notes=notes)


def lws(size: int, policy: str = "LeaderCreated", **inner: Any) -> Raw:
    spec = {"startupPolicy": policy, "leaderWorkerTemplate": {"size": size} | inner}
    return thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def member(index: int) -> Raw:
    return {
        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
        "leaderworkerset.sigs.k8s.io/group-index": "2",
    }


def cut(size: int, kind: str = "LeaderWorker") -> Raw:
    return {"subGroupSize": size, "subGroupPolicyType": kind}


def ray_parts(*groups: Raw, **cluster: Any) -> PodGroupSpec:
    return grouped(
        pod(labels={"ray.io/group": "gpu"}), thing("ray.io/v1", "RayCluster", workers(*groups, **cluster))
    )


def clique(name: str, minimum: int, **more: Any) -> Raw:
    return {
        "name": name,
        "minReplicas": minimum,
        "podReferences": [{"namespace": "team", "name": f"{name}-0"}],
    } | more


def pack(**levels: str) -> Raw:
    return {"topologyConstraint": {"packConstraint": levels}}


def grove(spec: Raw, notes: Raw | None = None, owner: Raw | None = None) -> PodGroupSpec:
    gang = thing("scheduler.grove.io/v1alpha1", "PodGang", spec, name="gang", uid="gu", notes=notes)
    return grouped(pod(labels=GANG), owner or thing("grove.io/v1alpha1", "PodCliqueSet"), around=(gang,))


def plain(**marks: Any) -> Raw:
    return thing("example.org/v1", "Thing", **marks)
