"""Claims that hold devices, or carry a node, for pods of this scheduler that are not bound. Pure.

They are the traces of a bind that was being prepared. That is right while it is under way; how long it may take is the
caller's to judge. What serves a pod that runs, or one of another scheduler, is never among them.
"""

from collections.abc import Iterable, Mapping

import msgspec

from controller.scheduler.pod_constraints import volume_claim_of
from controller.scheduler.pod_tasks import claims_of, name_of
from controller.scheduler.shell.prebind_words import Reserved, Selected, Undo
from kube.devices import ResourceClaim
from kube.storage import SELECTED_NODE, PersistentVolumeClaim
from kube.types import Pod


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """One claim. `uid`: its own; `pods`: for whom, namespace/name and UID."""

    name: str
    uid: str
    pods: tuple[tuple[str, str], ...]
    undo: tuple[Undo, ...]


def leftovers(
    pods: Iterable[Pod],
    claims: Mapping[str, ResourceClaim],
    volume_claims: Mapping[str, PersistentVolumeClaim],
    scheduler_name: str,
) -> tuple[Leftovers, ...]:
    """Give them in order of name. Claims are keyed by namespace/name."""
    of_claims: dict[str, list[Pod]] = {}
    of_volumes: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name or pod.spec.scheduler_name != scheduler_name:
            continue
        for name in claims_of(pod)[0]:
            of_claims.setdefault(name, []).append(pod)
        for volume in pod.spec.volumes:
            if name := volume_claim_of(pod, volume):
                of_volumes.setdefault(f"{pod.metadata.namespace}/{name}", []).append(pod)
    found = [
        *(_of_claim(claims[name], waiting) for name, waiting in sorted(of_claims.items()) if name in claims),
        *(
            _of_volume(volume_claims[name], waiting)
            for name, waiting in sorted(of_volumes.items())
            if name in volume_claims
        ),
    ]
    return tuple(one for one in found if one is not None)


def _of_claim(claim: ResourceClaim, waiting: list[Pod]) -> Leftovers | None:
    """One that nobody uses but pods that wait; without any reservation it would still pin them to its node."""
    if claim.status.allocation is None:
        return None
    users = {one.uid for one in claim.status.reserved_for}
    if users - {pod.metadata.uid for pod in waiting}:
        return None
    meta = claim.metadata
    undo = tuple(
        Reserved(namespace=meta.namespace, name=meta.name, uid=meta.uid, pod_uid=uid)
        for uid in sorted(users) or [""]
    )
    return Leftovers(name=f"{meta.namespace}/{meta.name}", uid=meta.uid, pods=_whose(waiting), undo=undo)


def _of_volume(claim: PersistentVolumeClaim, waiting: list[Pod]) -> Leftovers | None:
    meta, node = claim.metadata, claim.metadata.annotations.get(SELECTED_NODE)
    if claim.spec.volume_name or not node:
        return None
    undo = (Selected(namespace=meta.namespace, name=meta.name, uid=meta.uid, node=node),)
    return Leftovers(name=f"{meta.namespace}/{meta.name}", uid=meta.uid, pods=_whose(waiting), undo=undo)


def _whose(waiting: list[Pod]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name_of(pod), pod.metadata.uid) for pod in waiting))
