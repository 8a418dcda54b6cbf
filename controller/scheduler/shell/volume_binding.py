"""Volumes before a bind: reserve or ask for what waits for its first consumer, and tell once it is there. Shell.

Nothing waits in here: the pod is prepared again until its claims are bound. What was written for a pod is remembered, so
that an annotation which its provisioner took away is told from one that was never written; after a restart, a claim that
carries the annotation for the chosen node counts as asked for.
"""

import threading
from collections import OrderedDict
from typing import Any, Final

import msgspec

from controller.scheduler.pod_constraints import class_of, volume_claim_of
from controller.scheduler.shell.prebind_words import TRIES, Outcome, Selected, Taken, Undo
from controller.scheduler.shell.volume_choice import Asked, Place, Step, What, next_step
from controller.scheduler.volume_match import FreeVolumes, free_of
from kube import paths
from kube.api import Api, ApiError, Conflict, NotFound, PatchType
from kube.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kube.store import Store, version_of
from kube.types import Node, Pod

FIELD_MANAGER: Final = {"fieldManager": "nodemend-scheduler"}
_REMEMBERED: Final = 10_000


class VolumeBinding:
    """Used from many threads."""

    def __init__(
        self,
        *,
        api: Api,
        nodes: Store[Node],
        volume_claims: Store[PersistentVolumeClaim],
        volumes: Store[PersistentVolume],
        storage_classes: Store[StorageClass],
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._claims = volume_claims
        self._volumes = volumes
        self._classes = storage_classes
        self._lock = threading.Lock()
        self._asked: OrderedDict[str, dict[str, Asked]] = OrderedDict()

    def bind(self, pod: Pod, node: str) -> Outcome:
        """See to all claims of a pod, and tell what is still missing. Where all are bound it costs no request."""
        found = self._nodes.get(node)
        if found is None:
            return Outcome(why=f"node {node} is gone")
        place = Place(name=node, labels=found.metadata.labels)
        undo: list[Undo] = []
        waiting = ""
        for volume in pod.spec.volumes:
            name = volume_claim_of(pod, volume)
            if not name:
                continue
            try:
                step = self._see_to(f"{pod.metadata.namespace}/{name}", pod, place, undo)
            except (ApiError, ValueError) as error:
                step = Step(what=What.REFUSE, why=str(error))
            words = f'persistentvolumeclaim "{name}": {step.why}'
            if step.what is What.REFUSE:
                return Outcome(why=words, undo=tuple(undo))
            if step.what is not What.BOUND:
                waiting = waiting or words
        return Outcome(why=waiting, waits=bool(waiting), undo=tuple(undo))

    def _see_to(self, key: str, pod: Pod, place: Place, undo: list[Undo]) -> Step:
        claim = self._claims.get(key)
        for _ in range(TRIES):
            if claim is None:
                return Step(what=What.REFUSE, why="is not there")
            step = self._step(claim, pod, place)
            try:
                if step.what is What.TAKE and step.volume is not None:
                    self._take(claim, step.volume, pod, place.name, undo)
                elif step.what is What.SELECT:
                    self._select(claim, pod, place.name, undo)
                else:
                    undo += self._written(claim, pod, place.name) if step.what is not What.BOUND else []
                    return step
            except Conflict:
                undo.pop()
                if step.volume is not None:
                    self._read_volume(step.volume.metadata.name)
                claim = self._read(key)
                continue
            return Step(what=What.WAIT, why="waiting for its volume")
        return Step(what=What.REFUSE, why=f"was changed by others {TRIES} times while it was being written")

    def _step(self, claim: PersistentVolumeClaim, pod: Pod, place: Place) -> Step:
        asked = self._asked_before(pod, claim)
        free = FreeVolumes()
        if asked is None and not claim.spec.volume_name:
            free = free_of(self._volumes.values())
        return next_step(
            claim,
            pod,
            place,
            kind=class_of(claim, self._classes.snapshot()),
            volumes=self._volumes.snapshot(),
            free=free,
            asked=asked,
        )

    def _take(
        self,
        claim: PersistentVolumeClaim,
        volume: PersistentVolume,
        pod: Pod,
        node: str,
        undo: list[Undo],
    ) -> None:
        meta, name = claim.metadata, volume.metadata.name
        undo.append(Taken(volume=name, namespace=meta.namespace, name=meta.name, uid=meta.uid))
        ref = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        }
        by_us = {} if volume.spec.claim_ref is not None else {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        body = {"metadata": {**_version(volume), **by_us}, "spec": {"claimRef": ref}}
        self._patch_volume(name, body)
        self._remember(pod, claim, Asked(node=node, volume=name))

    def _select(self, claim: PersistentVolumeClaim, pod: Pod, node: str, undo: list[Undo]) -> None:
        meta = claim.metadata
        undo.append(Selected(namespace=meta.namespace, name=meta.name, uid=meta.uid, node=node))
        written = self._patch_claim(claim, {SELECTED_NODE: node})
        version = version_of(written.metadata.resource_version)
        self._remember(pod, claim, Asked(node=node, version=version))

    def _remember(self, pod: Pod, claim: PersistentVolumeClaim, asked: Asked) -> None:
        with self._lock:
            self._asked.setdefault(pod.metadata.uid, {})[claim.metadata.uid] = asked
            while len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)

    def _written(self, claim: PersistentVolumeClaim, pod: Pod, node: str) -> list[Undo]:
        """Give what stands in the API for this pod and can still be taken back."""
        meta = claim.metadata
        asked = self._asked_before(pod, claim)
        if claim.spec.volume_name:
            return []
        if asked is not None and asked.volume:
            return [Taken(volume=asked.volume, namespace=meta.namespace, name=meta.name, uid=meta.uid)]
        if meta.annotations.get(SELECTED_NODE) == node:
            return [Selected(namespace=meta.namespace, name=meta.name, uid=meta.uid, node=node)]
        return []

    def _asked_before(self, pod: Pod, claim: PersistentVolumeClaim) -> Asked | None:
        with self._lock:
            return self._asked.get(pod.metadata.uid, {}).get(claim.metadata.uid)

    def forget(self, pod_uid: str) -> None:
        """Drop what is remembered of a pod."""
        with self._lock:
            self._asked.pop(pod_uid, None)

    # Taking back

    def release(self, entry: Selected | Taken) -> None:
        """Take back what is not bound yet; what is bound stays, as with Kubernetes' own scheduler. Raises ApiError."""
        for _ in range(TRIES):
            claim = self._read(f"{entry.namespace}/{entry.name}")
            is_there = claim is not None and claim.metadata.uid == entry.uid
            if is_there and claim is not None and claim.spec.volume_name:
                return
            try:
                if isinstance(entry, Taken):
                    self._give_back(entry)
                elif is_there and claim is not None:
                    self._unselect(claim, entry.node)
            except Conflict:
                continue
            except NotFound:
                return
            return

    def _unselect(self, claim: PersistentVolumeClaim, node: str) -> None:
        if claim.metadata.annotations.get(SELECTED_NODE) == node:
            self._patch_claim(claim, {SELECTED_NODE: None})

    def _give_back(self, entry: Taken) -> None:
        volume = self._read_volume(entry.volume)
        if volume is None or volume.spec.claim_ref is None or volume.spec.claim_ref.uid != entry.uid:
            return
        if volume.status.phase == "Bound" or BOUND_BY_CONTROLLER not in volume.metadata.annotations:
            return
        meta = {**_version(volume), "annotations": {BOUND_BY_CONTROLLER: None}}
        self._patch_volume(entry.volume, {"metadata": meta, "spec": {"claimRef": None}})

    # Requests

    def _patch_claim(
        self, claim: PersistentVolumeClaim, annotations: dict[str, str | None]
    ) -> PersistentVolumeClaim:
        path = paths.volume_claim(claim.metadata.namespace, claim.metadata.name)
        body = {"metadata": {**_version(claim), "annotations": annotations}}
        answer = self._api.patch(path, body, PatchType.MERGE, FIELD_MANAGER)
        return self._took(answer)

    def _patch_volume(self, name: str, body: dict[str, Any]) -> None:
        answer = self._api.patch(paths.volume(name), body, PatchType.MERGE, FIELD_MANAGER)
        self._volumes.offer(msgspec.json.decode(answer, type=PersistentVolume))

    def _took(self, answer: bytes) -> PersistentVolumeClaim:
        claim = msgspec.json.decode(answer, type=PersistentVolumeClaim)
        self._claims.offer(claim)
        return claim

    def _read(self, key: str) -> PersistentVolumeClaim | None:
        namespace, _, name = key.partition("/")
        try:
            return self._took(self._api.get(paths.volume_claim(namespace, name)))
        except NotFound:
            return None

    def _read_volume(self, name: str) -> PersistentVolume | None:
        try:
            answer = self._api.get(paths.volume(name))
        except NotFound:
            return None
        volume = msgspec.json.decode(answer, type=PersistentVolume)
        self._volumes.offer(volume)
        return volume


def _version(obj: PersistentVolume | PersistentVolumeClaim) -> dict[str, Any]:
    return {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resource_version}
