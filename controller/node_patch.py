"""The bodies of patches on a Node, made of the Node as it was read. Pure.

Quarantine and Restore are JSON patches, because a Node's taints are one atomic list to every other kind of patch: so only
our own entry is named, and whatever else stands there, known to us or not, is never written back. UID and resource version
are replaced by the values that the decision was made on: the server refuses the patch (409) as soon as either is another
one (seen on kube-apiserver 1.37.2), so the positions in the list are those of the decision.
"""

from datetime import datetime
from typing import Any

from controller.gpu_clients import OFF, ON
from controller.incident import Mark, read_mark, write_mark
from controller.steps import Quarantine, Restore, Silence
from kube.remediation import QUARANTINE
from kube.timestamps import rfc3339
from kube.types import Node, Taint

_ANNOTATION_PATH = f"/metadata/annotations/{QUARANTINE.replace('/', '~1')}"

Operations = list[dict[str, Any]]


def quarantine(step: Quarantine, node: Node) -> Operations:
    """Cordon, taint and annotate in one patch; what `before` says was not changed by us is not touched."""
    operations = _preconditions(step.node_uid, step.resource_version)
    if not node.metadata.annotations:
        operations.append(_add("/metadata/annotations", {}))
    operations.append(_add(_ANNOTATION_PATH, write_mark(step.incident, step.node_uid, step.before)))
    if step.before.cordoned:
        operations.append(_add("/spec/unschedulable", True))
    if step.before.tainted:
        operations += _taint(
            node.spec.taints, {"key": QUARANTINE, "value": step.incident, "effect": "NoSchedule"}
        )
    return operations


def restore(step: Restore, node: Node) -> Operations:
    """Take back what the annotation says is ours; empty where nothing of this incident is left on the Node.

    A cordon is taken back only where the annotation of this incident, on this very Node, says that we set it.
    """
    mark = read_mark(node)
    ours = mark if isinstance(mark, Mark) and mark.incident == step.incident else None
    operations: Operations = []
    if step.untaint:
        # From the end, so that removing one does not move the next.
        places = [place for place, taint in enumerate(node.spec.taints) if _is_ours(taint, step.incident)]
        operations += [{"op": "remove", "path": f"/spec/taints/{place}"} for place in reversed(places)]
    may_uncordon = ours is not None and ours.cordoned and ours.node_uid == node.metadata.uid
    if step.uncordon and may_uncordon and node.spec.unschedulable:
        operations.append({"op": "remove", "path": "/spec/unschedulable"})
    if ours is not None:
        operations.append({"op": "remove", "path": _ANNOTATION_PATH})
    return _preconditions(step.node_uid, step.resource_version) + operations if operations else []


def release(node: Node, *, uncordon: bool) -> Operations:
    """Take everything of ours off a Node, of whatever incident; empty where there is nothing. For when no controller does.

    `uncordon` is the caller's judgement of the annotation; a Node that is not cordoned is not touched for it. Clients of the
    GPUs that carry our word run again.
    """
    places = [place for place, taint in enumerate(node.spec.taints) if taint.key == QUARANTINE]
    operations = [{"op": "remove", "path": f"/spec/taints/{place}"} for place in reversed(places)]
    if uncordon and node.spec.unschedulable:
        operations.append({"op": "remove", "path": "/spec/unschedulable"})
    if QUARANTINE in node.metadata.annotations:
        operations.append({"op": "remove", "path": _ANNOTATION_PATH})
    operations += [
        {"op": "replace", "path": f"/metadata/labels/{key.replace('/', '~1')}", "value": ON}
        for key, value in node.metadata.labels.items()
        if value == OFF
    ]
    expected = _preconditions(node.metadata.uid, node.metadata.resource_version)
    return expected + operations if operations else []


def silence(step: Silence, node: Node, now: datetime) -> dict[str, Any]:
    """Write the given conditions (strategic merge); the time of transition moves only where the status changes."""
    conditions = []
    for type_, status, reason, message in step.conditions:
        held = node.condition(type_)
        condition = {"type": type_, "status": status, "reason": reason, "message": message}
        if held is None or held.status != status:
            condition["lastTransitionTime"] = rfc3339(now)
        conditions.append(condition)
    expected = {"uid": step.node_uid, "resourceVersion": step.resource_version}
    return {"metadata": expected, "status": {"conditions": conditions}}


def _preconditions(uid: str, resource_version: str) -> Operations:
    return [
        {"op": "replace", "path": "/metadata/uid", "value": uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
    ]


def _taint(taints: tuple[Taint, ...], wanted: dict[str, str]) -> Operations:
    if not taints:
        return [_add("/spec/taints", [wanted])]
    for place, held in enumerate(taints):
        if held.key == QUARANTINE and held.effect == wanted["effect"]:
            if held.value == wanted["value"]:
                return []
            return [{"op": "replace", "path": f"/spec/taints/{place}", "value": wanted}]
    return [_add("/spec/taints/-", wanted)]


def _is_ours(taint: Taint, incident: str) -> bool:
    return taint.key == QUARANTINE and taint.value == incident


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
