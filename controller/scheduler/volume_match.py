"""Which volumes that are there already may serve a claim. Pure.

Semantics: Kubernetes, "Persistent Volumes", Binding, and its volume binder: a volume reserved for the claim is the only one;
else a free one of the same class that is large enough, of the same mode, with all the access modes, that the claim's
selector takes; the smallest first. Volumes of a class without a provisioner are the only ones that such a class has.
"""

from collections.abc import Iterable, Mapping

import msgspec

from controller.scheduler.node_terms import selector_holds, term_holds
from controller.scheduler.nodes import Node
from controller.scheduler.requests import NodeTerm
from controller.scheduler.selectors import node_terms_of, selector_of
from kube import quantity
from kube.storage import PersistentVolume, PersistentVolumeClaim

AVAILABLE = "Available"
_TAKEN = frozenset({"Bound", "Released", "Failed"})


class FreeVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes that nobody has yet: by storage class, and those reserved for a claim by its namespace/name."""

    by_class: Mapping[str, tuple[PersistentVolume, ...]] = {}
    by_claim: Mapping[str, PersistentVolume] = {}


NO_VOLUMES = FreeVolumes()


def free_of(volumes: Iterable[PersistentVolume]) -> FreeVolumes:
    """Sort out what is free; equal volumes give an equal answer, in whatever order."""
    by_class: dict[str, list[PersistentVolume]] = {}
    by_claim: dict[str, PersistentVolume] = {}
    for volume in sorted(volumes, key=lambda one: one.metadata.name):
        ref = volume.spec.claim_ref
        if volume.metadata.deletion_timestamp is not None or volume.status.phase in _TAKEN:
            continue
        if ref is not None:
            by_claim.setdefault(f"{ref.namespace}/{ref.name}", volume)
        elif volume.status.phase == AVAILABLE:
            by_class.setdefault(volume.spec.storage_class_name, []).append(volume)
    return FreeVolumes(by_class={name: tuple(found) for name, found in by_class.items()}, by_claim=by_claim)


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Tell whether a volume is reserved for this very claim."""
    ref, meta = volume.spec.claim_ref, claim.metadata
    if ref is None or (ref.namespace, ref.name) != (meta.namespace, meta.name):
        return False
    return ref.uid in ("", meta.uid)


def candidates(
    claim: PersistentVolumeClaim, class_name: str, free: FreeVolumes
) -> tuple[PersistentVolume, ...]:
    """Give the volumes that may serve a claim, wherever they are, the smallest first.

    Raises: ValueError where the claim's size is no quantity.
    """
    wanted = quantity.whole(claim.spec.resources.requests.get("storage", "0"))
    reserved = free.by_claim.get(f"{claim.metadata.namespace}/{claim.metadata.name}")
    if reserved is not None and is_for(reserved, claim):
        return (reserved,) if _has_shape(reserved, claim, wanted) else ()
    selector = () if claim.spec.selector is None else selector_of(claim.spec.selector)
    found = [
        volume
        for volume in free.by_class.get(class_name, ())
        if _has_shape(volume, claim, wanted)
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and selector_holds(selector, volume.metadata.labels)
    ]
    return tuple(sorted(found, key=lambda volume: (_size(volume), volume.metadata.name)))


def _has_shape(volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: int) -> bool:
    spec = volume.spec
    return (
        _size(volume) >= wanted
        and spec.volume_mode == claim.spec.volume_mode
        and (spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
    )


def _size(volume: PersistentVolume) -> int:
    """One whose size cannot be read has none, and serves nobody who asks for any."""
    try:
        return quantity.whole(volume.spec.capacity.get("storage", "0"))
    except ValueError:
        return 0


def places_of(volume: PersistentVolume) -> tuple[NodeTerm, ...]:
    """Give where a volume can be reached; () = from everywhere."""
    wanted = volume.spec.node_affinity.required
    return () if wanted is None else node_terms_of(wanted.node_selector_terms)


def is_reached(volume: PersistentVolume, node: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a volume can be reached from a node with these labels."""
    places = places_of(volume)
    return not places or any(term_holds(term, Node(name=node, labels=dict(labels))) for term in places)
