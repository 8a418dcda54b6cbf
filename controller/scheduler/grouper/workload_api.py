"""Kubernetes' own gangs: a pod that names a Workload (1.35) or a PodGroup (1.36 and later) of scheduling.k8s.io. Pure.

1.35, v1alpha1: pod.spec.workloadRef {name, podGroup, podGroupReplicaKey} -> Workload.spec.podGroups[].policy.
1.36, v1alpha2 and later: pod.spec.schedulingGroup.podGroupName -> PodGroup.spec.schedulingPolicy.
A policy is `basic` (each pod by itself) or `gang` with minCount. What these say goes before what the owners say.
Source: KEP-4671, Kubernetes' API reference; names of groups as KAI Scheduler gives them.
"""

import hashlib

from controller.scheduler.grouper.defaults import (
    PREEMPTIBILITIES,
    PREEMPTIBILITY_LABEL,
    PRIORITY_LABEL,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from controller.scheduler.grouper.fields import GrouperError, Reader, Thing
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, changed
from controller.scheduler.model import TopologyConstraint

API_GROUP = "scheduling.k8s.io"

_NAME_MAX = 253
_HASH_LENGTH = 10


def apply_workload(spec: PodGroupSpec, pod: Thing, cluster: Cluster) -> PodGroupSpec:
    """Let the pod's Workload or PodGroup of Kubernetes decide, where it names one. Raises `GrouperError`."""
    reference = pod.read.mapping("spec.schedulingGroup")
    if reference is not None and reference.get("podGroupName") is not None:
        return _by_pod_group(spec, pod, cluster)
    if pod.read.mapping("spec.workloadRef") is not None:
        return _by_workload(spec, pod, cluster)
    return spec


def _by_workload(spec: PodGroupSpec, pod: Thing, cluster: Cluster) -> PodGroupSpec:
    reference = pod.read.part("spec.workloadRef")
    name = reference.needed_text("name")
    group = reference.needed_text("podGroup")
    workload = _get(pod, cluster, "Workload", name, "spec.workloadRef.name")
    found = next((part for part in workload.read.parts("spec.podGroups") if part.text("name") == group), None)
    if found is None:
        raise reference.wrong("podGroup", group, f"the name of a pod group of {workload}")
    gang = _gang_minimum(found, "policy")
    replica = reference.text("podGroupReplicaKey") or ""
    parts = [name, group, replica] if gang and replica else [name, group]
    return _marked(
        changed(
            spec, name=short("-".join(parts)), min_available=gang or 1, min_sub_group=None, sub_groups=()
        ),
        workload,
        cluster,
    )


def _by_pod_group(spec: PodGroupSpec, pod: Thing, cluster: Cluster) -> PodGroupSpec:
    name = pod.read.needed_text("spec.schedulingGroup.podGroupName")
    group = _get(pod, cluster, "PodGroup", name, "spec.schedulingGroup.podGroupName")
    read = group.read.part("spec")
    gang = _gang_minimum(read, "schedulingPolicy")
    named = read.text("priorityClassName") or ""
    keys = [part.needed_text("key") for part in read.parts("schedulingConstraints.topology")]
    topology = spec.topology
    if keys:
        topology = TopologyConstraint(topology=topology.topology if topology else "", required=keys[0])
    return _marked(
        changed(
            spec,
            name=name,
            min_available=gang or 1,
            min_sub_group=None,
            sub_groups=(),
            topology=topology,
            priority_class=named if cluster.has_class(named) else spec.priority_class,
        ),
        group,
        cluster,
    )


def _get(pod: Thing, cluster: Cluster, kind: str, name: str, field: str) -> Thing:
    found = cluster.get(API_GROUP, kind, pod.namespace, name)
    if found is None:
        raise GrouperError(str(pod), field, name, f"the name of a {kind} that is there", missing=True)
    return found


def _gang_minimum(part: Reader, policy: str) -> int:
    """Return how many pods start together, 0 where the policy is basic."""
    chosen = part.mapping(policy) or {}
    if isinstance(chosen.get("gang"), dict):
        return part.needed_whole(f"{policy}.gang.minCount", 1)
    if chosen.get("gang") is None and isinstance(chosen.get("basic"), dict):
        return 0
    raise part.wrong(policy, chosen, "basic, or gang with a minCount")


def _marked(spec: PodGroupSpec, thing: Thing, cluster: Cluster) -> PodGroupSpec:
    """Let the labels and annotations of the Workload or PodGroup decide as an owner's would."""
    marks = thing.annotations
    topology = spec.topology or TopologyConstraint(topology="")
    topology = TopologyConstraint(
        topology=marks.get(TOPOLOGY) or topology.topology,
        required=marks.get(TOPOLOGY_REQUIRED) or topology.required,
        preferred=marks.get(TOPOLOGY_PREFERRED) or topology.preferred,
    )
    named = thing.labels.get(PRIORITY_LABEL, "")
    preemptibility = thing.labels.get(PREEMPTIBILITY_LABEL, "")
    return changed(
        spec,
        labels=spec.labels | thing.labels,
        annotations=spec.annotations | marks,
        queue=thing.labels.get(cluster.terms.queue_label) or spec.queue,
        priority_class=named if cluster.has_class(named) else spec.priority_class,
        preemptibility=preemptibility if preemptibility in PREEMPTIBILITIES else spec.preemptibility,
        topology=topology if topology.topology or topology.required or topology.preferred else None,
    )


def short(name: str) -> str:
    """Keep a name within what Kubernetes takes, and distinct."""
    if len(name) <= _NAME_MAX:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: _NAME_MAX - _HASH_LENGTH - 1].rstrip('-.')}-{mark}"
