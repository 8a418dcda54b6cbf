"""What is to be done next about one volume claim of a pod whose node is chosen. Pure.

Semantics: Kubernetes' volume binder. A claim whose class waits for its first consumer is given a free volume that the node
reaches, by reserving that volume for it; else its class's provisioner is told the node, by an annotation. The volume
controller binds the two; a provisioner that failed takes the annotation away again.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from controller.scheduler.volume_match import NO_VOLUMES, FreeVolumes, candidates, is_for, is_reached
from kube.storage import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kube.store import version_of
from kube.types import Pod


class What(StrEnum):
    """BOUND: nothing is left to do; TAKE: reserve the step's volume; SELECT: tell the provisioner the node."""

    BOUND = "bound"
    WAIT = "wait"
    REFUSE = "refuse"
    TAKE = "take"
    SELECT = "select"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    what: What
    why: str = ""
    volume: PersistentVolume | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was written before: the volume that was reserved, or else the claim's version once the node was written."""

    node: str
    volume: str = ""
    version: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The node that was chosen."""

    name: str
    labels: Mapping[str, str] = {}


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Tell whether claim and volume are bound to each other, both ways."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def next_step(
    claim: PersistentVolumeClaim,
    pod: Pod,
    place: Place,
    *,
    kind: StorageClass | None,
    volumes: Mapping[str, PersistentVolume],
    free: FreeVolumes = NO_VOLUMES,
    asked: Asked | None = None,
) -> Step:
    """Decide about one claim. `kind`: its class; `asked`: what this scheduler wrote for this pod before.

    Raises: ValueError where the claim's size is no quantity.
    """
    if why := _why_not_pod(claim, pod):
        return Step(what=What.REFUSE, why=why)
    if claim.spec.volume_name:
        volume = volumes.get(claim.spec.volume_name)
        if volume is not None and not is_reached(volume, place.name, place.labels):
            return _refuse(f"its volume {claim.spec.volume_name} cannot be reached from node {place.name}")
        return Step(what=What.BOUND) if is_bound(claim) else _wait("its volume is being bound")
    if asked is not None:
        return _after(asked, claim, volumes)
    if kind is None or kind.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return _refuse("has no volume yet")
    chosen = claim.metadata.annotations.get(SELECTED_NODE)
    if chosen:
        return _wait() if chosen == place.name else _refuse(f"its volume is being made for node {chosen}")
    found = candidates(claim, kind.metadata.name, free)
    near = next((one for one in found if is_reached(one, place.name, place.labels)), None)
    if near is not None:
        is_its_own = near.spec.claim_ref is not None and near.spec.claim_ref.uid == claim.metadata.uid
        return _wait() if is_its_own else Step(what=What.TAKE, volume=near)
    if kind.provisioner in ("", NO_PROVISIONER):
        return _refuse(f"no free volume of class {kind.metadata.name} can be reached from node {place.name}")
    return Step(what=What.SELECT)


def _why_not_pod(claim: PersistentVolumeClaim, pod: Pod) -> str:
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    made_for = [one for one in claim.metadata.owner_references if one.kind == "Pod" and one.controller]
    if made_for and made_for[0].uid != pod.metadata.uid:
        return f"was made for another pod, {made_for[0].name} with uid {made_for[0].uid}"
    return ""


def _after(asked: Asked, claim: PersistentVolumeClaim, volumes: Mapping[str, PersistentVolume]) -> Step:
    """Tell what became of what was written before."""
    if asked.volume:
        volume = volumes.get(asked.volume)
        if volume is not None and is_for(volume, claim):
            return _wait()
        return _refuse(f"volume {asked.volume} was taken back")
    is_told = claim.metadata.annotations.get(SELECTED_NODE) == asked.node
    if is_told or version_of(claim.metadata.resource_version) < asked.version:
        return _wait()
    return _refuse(f"its volume could not be made for node {asked.node}")


def _wait(why: str = "waiting for its volume") -> Step:
    return Step(what=What.WAIT, why=why)


def _refuse(why: str) -> Step:
    return Step(what=What.REFUSE, why=why)
