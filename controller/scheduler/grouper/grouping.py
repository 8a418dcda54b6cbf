"""Which pod group a pod belongs to. Pure.

`group_of` is the whole of it: the pod, its owners from the nearest to the top one, and the objects around it, go in; the
pod group that should exist comes out, or a `GrouperError` that says what is wrong with which field.
"""

from collections.abc import Sequence
from typing import Any

from controller.scheduler.grouper.asked import Asked
from controller.scheduler.grouper.defaults import (
    PREEMPTIBILITY_LABEL,
    PRIORITY_LABEL,
    default_spec,
    type_default,
)
from controller.scheduler.grouper.fields import GrouperError, Reader, Thing
from controller.scheduler.grouper.karta import definition_of, karta
from controller.scheduler.grouper.kinds import ANY_VERSION, DEFAULT_KIND, Kind, find
from controller.scheduler.grouper.kubeflow import count_replicas
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, changed
from controller.scheduler.grouper.workload_api import apply_workload

KARTA_KIND = Kind(group="", version=ANY_VERSION, kind="", rule=karta)
"""For kinds that the cluster itself defines."""


def group_of(pod: dict[str, Any], owners: Sequence[dict[str, Any]], cluster: Cluster) -> PodGroupSpec:
    """Group a pod. `owners`: nearest first, the top owner last; empty = the pod is on its own.

    Raises `GrouperError`, and nothing else, whatever the objects hold.
    """
    asked_pod = Thing(_typed(pod))
    things = tuple(Thing(owner) for owner in owners)
    top = things[-1] if things else asked_pod
    spec = group_by(entry_of(top, cluster), asked_pod, things, cluster)
    return apply_workload(spec, asked_pod, cluster)


def entry_of(owner: Thing, cluster: Cluster) -> Kind:
    """Return how an owner's pods are grouped: by its kind's entry, else by the cluster's Karta, else by the default rule."""
    listed = find(owner.group, owner.version, owner.kind)
    if listed is not None:
        return listed
    return DEFAULT_KIND if definition_of(owner, cluster) is None else KARTA_KIND


def group_by(entry: Kind, pod: Thing, owners: tuple[Thing, ...], cluster: Cluster) -> PodGroupSpec:
    """Group a pod by one entry of the table. Raises `GrouperError`."""
    top = owners[-1] if owners else pod
    while entry.passed_over:
        below = owners[-2] if len(owners) > 1 else pod
        top = handed_down(top, below, cluster)
        owners = (*owners[:-2], top) if len(owners) > 1 else (top,)
        entry = entry_of(top, cluster)
        if below is pod:
            break
    counted = (owners or (top,)) if entry.all_owners else (top,)
    asked = Asked(pod, top, owners, cluster, entry.default_class)
    spec = default_spec(pod, top, counted, cluster, entry.default_class)
    minimum = _minimum(entry, top.read)
    if minimum is not None:
        spec = changed(spec, min_available=minimum)
    return spec if entry.rule is None else entry.rule(asked, spec)


def handed_down(skipped: Thing, below: Thing, cluster: Cluster) -> Thing:
    """Return the owner below with what it lacks of the labels and annotations of the one that is passed over.

    The cluster's defaults for the kind passed over come down as labels, and go before the labels that it has itself.
    """
    default = type_default(skipped, cluster)
    labels = dict(skipped.labels)
    if default is not None and cluster.has_class(default.priority_class):
        labels[PRIORITY_LABEL] = default.priority_class
    if default is not None and default.preemptibility:
        labels[PREEMPTIBILITY_LABEL] = default.preemptibility
    return below.with_marks(labels, skipped.annotations)


def _typed(pod: Any) -> dict[str, Any]:
    """Return the pod with its type, which lists leave out."""
    if not isinstance(pod, dict) or not pod:
        raise GrouperError("Pod", "the object", pod, "a Pod")
    return {"apiVersion": "v1", "kind": "Pod"} | pod


def _minimum(entry: Kind, read: Reader) -> int | None:
    for path in entry.minimum:
        found = read.whole(path)
        if found is not None:
            return found
    if entry.must_say:
        raise read.wrong(entry.minimum[0], None, "a whole number of at least 0")
    return count_replicas(read, entry.replicas, entry.required) if entry.replicas else None
