"""PodGroups as they are written: whole when they are made, later only what differs. Pure."""

from typing import Any, Final

import msgspec

from controller.scheduler.grouper.durations import seconds
from controller.scheduler.grouper.owners import kept
from controller.scheduler.grouper.spec import PodGroupSpec, SubGroupSpec
from controller.scheduler.model import TopologyConstraint
from controller.scheduler.shell.live_cluster import GROUP_VERSION
from kube import paths
from kube.scheduling import PodGroup

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""A copy of the owner's whole source: nothing reads it here, and applying again would take it for the group's own."""

_DURATIONS: Final = ("preemptionDelay", "stalenessGracePeriod")


def collection(namespace: str) -> str:
    """Give the path of a namespace's PodGroups."""
    group, _, version = GROUP_VERSION.partition("/")
    return paths.collection(group, version, "podgroups", namespace)


def body_of(spec: PodGroupSpec) -> dict[str, Any]:
    """Give the PodGroup as it is created. Durations as Go writes them."""
    metadata: dict[str, Any] = {
        "name": spec.name,
        "namespace": spec.namespace,
        "labels": spec.labels,
        "annotations": {key: text for key, text in spec.annotations.items() if key != LAST_APPLIED},
    }
    owner = spec.owner
    if owner.uid:
        reference = {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
        }
        metadata["ownerReferences"] = [reference]
    wanted = {key: value for key, value in _fields(spec).items() if value is not None}
    return {"apiVersion": GROUP_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": wanted}


def patch_of(spec: PodGroupSpec, existing: PodGroup, pool_label: str) -> dict[str, Any]:
    """Give the merge patch that makes an existing PodGroup what it should be; {} where it is.

    An administrator's word stays: the queue, the pool, and the topology where the workload asks for none. Labels and
    annotations are added and changed, none is taken away.
    """
    held = msgspec.to_builtins(existing)
    spec = kept(spec, held)
    held_spec = held["spec"]
    fields = {key: value for key, value in _fields(spec).items() if not _same(key, value, held_spec.get(key))}
    labels = _missing(spec.labels, existing.metadata.labels)
    if pool_label in existing.metadata.labels:
        labels.pop(pool_label, None)
    annotations = _missing(body_of(spec)["metadata"]["annotations"], existing.metadata.annotations)
    metadata: dict[str, Any] = {
        key: marks for key, marks in (("labels", labels), ("annotations", annotations)) if marks
    }
    if metadata or fields:
        metadata["uid"] = existing.metadata.uid
    return {key: part for key, part in (("metadata", metadata), ("spec", fields)) if part}


def _missing(wanted: dict[str, str], held: dict[str, str]) -> dict[str, str]:
    return {key: text for key, text in wanted.items() if held.get(key) != text}


def _fields(spec: PodGroupSpec) -> dict[str, Any]:
    """Give every field of the spec that is ours, None where it is not set."""
    return {
        "queue": spec.queue or None,
        "priorityClassName": spec.priority_class or None,
        "preemptibility": spec.preemptibility or None,
        "minMember": spec.min_available if spec.min_sub_group is None else None,
        "minSubGroup": spec.min_sub_group,
        "subGroups": [_part(one) for one in spec.sub_groups] or None,
        "topologyConstraint": _topology(spec.topology),
        "preemptionDelay": _go(spec.preemption_delay_s),
        "stalenessGracePeriod": _go(spec.staleness_grace_s),
    }


def _part(group: SubGroupSpec) -> dict[str, Any]:
    leaf = group.min_sub_group is None
    fields = {
        "name": group.name,
        "parent": group.parent or None,
        "minMember": group.min_available if leaf else None,
        "minSubGroup": group.min_sub_group,
        "topologyConstraint": _topology(group.topology),
    }
    return {key: value for key, value in fields.items() if value is not None}


def _topology(topology: TopologyConstraint | None) -> dict[str, str] | None:
    if topology is None:
        return None
    fields = {
        "topology": topology.topology,
        "requiredTopologyLevel": topology.required,
        "preferredTopologyLevel": topology.preferred,
    }
    return {key: text for key, text in fields.items() if text}


def _go(span_s: int | None) -> str | None:
    return None if span_s is None else f"{span_s}s"


def _same(key: str, wanted: Any, held: Any) -> bool:
    if key in _DURATIONS and isinstance(wanted, str) and isinstance(held, str):
        return seconds(wanted) == seconds(held)
    return bool(_plain(wanted) == _plain(held))


def _plain(value: Any) -> Any:
    """What is empty is not set: the server leaves either out, and so does our view of it."""
    if isinstance(value, dict):
        return {key: part for key, found in value.items() if (part := _plain(found)) is not None} or None
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value] or None
    return None if value == "" else value
