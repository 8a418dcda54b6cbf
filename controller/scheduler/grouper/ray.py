"""Ray: a head, and a subgroup for each worker group, read from the RayCluster behind a job or service. Pure.

Source: KAI Scheduler's ray groupers (v0.17), KubeRay v1.
"""

from collections.abc import Sequence

from controller.scheduler.grouper.asked import Asked
from controller.scheduler.grouper.defaults import (
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    template_topology,
)
from controller.scheduler.grouper.fields import GrouperError, Reader, Thing
from controller.scheduler.grouper.spec import PodGroupSpec, SubGroupSpec, changed, with_pods
from controller.scheduler.model import TopologyConstraint

RAY_PRIORITY = "ray.io/priority-class-name"
NODE_GROUP = "ray.io/group"
HEAD = "headgroup"


def ray_cluster(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Group a RayCluster."""
    return _grouped(asked, spec, asked.owner)


def ray_job(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Group a RayJob by the cluster that the Ray operator made for it."""
    return _grouped(asked, spec, _cluster_of(asked, ("status.rayClusterName",)))


def ray_service(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Group a RayService by its active cluster, else by the one that is to become active."""
    paths = ("status.activeServiceStatus.rayClusterName", "status.pendingServiceStatus.rayClusterName")
    return _grouped(asked, spec, _cluster_of(asked, paths))


def _cluster_of(asked: Asked, paths: Sequence[str]) -> Thing:
    owner = asked.owner
    for path in paths:
        name = owner.read.text(path)
        if name:
            cluster = asked.cluster.get(owner.group or "ray.io", "RayCluster", owner.namespace, name)
            if cluster is None:
                raise GrouperError(
                    str(owner), path, name, "the name of a RayCluster that is there", missing=True
                )
            return cluster
    raise GrouperError(str(owner), paths[0], None, "set by the Ray operator first", missing=True)


def _grouped(asked: Asked, spec: PodGroupSpec, cluster: Thing) -> PodGroupSpec:
    groups = [
        SubGroupSpec(name=HEAD, min_available=1, topology=_topology(cluster.read.part("spec.headGroupSpec")))
    ]
    scales = cluster.read.flag("spec.enableInTreeAutoscaling")
    for index, workers in enumerate(cluster.read.parts("spec.workerGroupSpecs")):
        minimum = _minimum(workers, scales)
        if minimum is not None:
            name = workers.text("groupName") or f"worker-group-{index}"
            groups.append(SubGroupSpec(name=name, min_available=minimum, topology=_topology(workers)))
    existing = asked.cluster.pod_group(spec.namespace, spec.name)
    is_flat = existing is not None and not existing.read.items("spec.subGroups")
    mine = asked.pod.labels.get(NODE_GROUP)
    return changed(
        spec,
        min_available=sum(group.min_available for group in groups),
        priority_class=asked.owner.labels.get(RAY_PRIORITY, spec.priority_class),
        sub_groups=()
        if is_flat
        else tuple(with_pods(group, asked.pods_if(group.name == mine)) for group in groups),
    )


def _minimum(workers: Reader, scales: bool) -> int | None:
    """How many pods of a worker group start together; None where it has none. An autoscaled group may start with none."""
    if workers.flag("suspended"):
        return None
    desired = workers.whole("replicas") or 0
    least = workers.whole("minReplicas") or 0
    if least > desired:
        raise workers.wrong("minReplicas", least, f"at most replicas ({desired})")
    if not desired:
        return None
    hosts = workers.whole("numOfHosts")
    return (least if least or scales else desired) * (1 if hosts is None else hosts)


def _topology(part: Reader) -> TopologyConstraint | None:
    asked = template_topology(part)
    if asked is None and _names_level(part):
        raise part.wrong(f"template.metadata.annotations[{TOPOLOGY}]", None, "set where a placement level is")
    return asked


def _names_level(part: Reader) -> bool:
    return any(
        part.annotation("template.metadata", level) for level in (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED)
    )
