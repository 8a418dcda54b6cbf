"""The grouper's writes, one function each: a PodGroup made or mended, and the subgroup's label on a pod. Shell."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.scheduler.grouper.spec import PodGroupSpec
from controller.scheduler.pod_tasks import SUB_GROUP
from controller.scheduler.shell.group_bodies import body_of, collection, patch_of
from kube import paths
from kube.api import AlreadyExists, Api, ApiError, Conflict, Invalid, PatchType
from kube.scheduling import PodGroup
from kube.types import Pod

FIELD_MANAGER: Final = {"fieldManager": "nodemend-scheduler"}


def put_group(
    api: Api, spec: PodGroupSpec, held: PodGroup | None, pool_label: str, offer: Callable[[PodGroup], Any]
) -> None:
    """Make the PodGroup, or mend what differs in the one that is there. `held`: as the store has it. Raises ApiError."""
    if held is None:
        try:
            answer = api.create(collection(spec.namespace), body_of(spec), FIELD_MANAGER)
            offer(_decoded(answer))
            return
        except AlreadyExists:
            held = _decoded(api.get(paths.member(collection(spec.namespace), spec.name)))
            offer(held)
    patch = patch_of(spec, held, pool_label)
    if patch:
        path = paths.member(collection(spec.namespace), spec.name)
        offer(_decoded(_patched(api, path, patch)))


def label_pod(api: Api, pod: Pod, sub_group: str) -> None:
    """Say on the pod in which subgroup it is. The UID keeps a successor of the same name from it. Raises ApiError."""
    meta = pod.metadata
    body = {"metadata": {"uid": meta.uid, "labels": {SUB_GROUP: sub_group}}}
    _patched(api, paths.pod(meta.namespace, meta.name), body)


def _patched(api: Api, path: str, body: dict[str, Any]) -> bytes:
    """Patch the object with the UID in `body`. Another of its name is refused as invalid, and means that ours went."""
    try:
        return api.patch(path, body, PatchType.MERGE, FIELD_MANAGER)
    except Invalid as error:
        if "metadata.uid" in str(error):
            raise Conflict(str(error), code=error.code, reason=error.reason) from error
        raise


def _decoded(answer: bytes) -> PodGroup:
    try:
        return msgspec.json.decode(answer, type=PodGroup)
    except msgspec.DecodeError as error:
        raise ApiError(f"the server's answer about a PodGroup cannot be read: {error}") from error
