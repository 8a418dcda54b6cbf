"""What a waiting pod says in its status: the condition PodScheduled and the node that is being emptied for it. Pure.

kubectl and cluster-autoscaler read both. A patch holds only for the pod as it was read: what was bound meanwhile never says
that it was not.
"""

from datetime import datetime
from typing import Any, Final

from controller.scheduler.shell.status_writes import Kind, Write
from controller.scheduler.shell.steady_words import limited
from kube import paths
from kube.api import PatchType
from kube.store import key_of
from kube.timestamps import rfc3339
from kube.types import Pod, PodCondition

SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"


def condition_write(pod: Pod, message: str, now: datetime) -> Write | None:
    """Give the write that lets a pod say why it waits; None where it says so, or waits no more.

    A pod with scheduling gates has the server's own condition.
    """
    meta = pod.metadata
    if pod.spec.node_name or pod.spec.scheduling_gates or meta.deletion_timestamp is not None:
        return None
    held = _condition(pod)
    text = limited(message)
    if held is not None and (held.status, held.reason, held.message) == ("False", UNSCHEDULABLE, text):
        return None
    wanted: dict[str, Any] = {
        "type": SCHEDULED,
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": text,
    }
    if held is None or held.status != "False":
        wanted["lastTransitionTime"] = rfc3339(now)
    return _write(pod, {"conditions": [wanted]}, PatchType.STRATEGIC)


def nomination_write(pod: Pod, node: str) -> Write:
    """Give the write that lets a waiting pod say on which node room is being made for it; "" takes it back."""
    return _write(pod, {"nominatedNodeName": node or None}, PatchType.MERGE)


def _write(pod: Pod, status: dict[str, Any], patch_type: PatchType) -> Write:
    meta = pod.metadata
    return Write(
        kind=Kind.POD,
        key=key_of(meta),
        path=paths.pod_status(meta.namespace, meta.name),
        body={"metadata": {"resourceVersion": meta.resource_version}, "status": status},
        patch_type=patch_type,
    )


def _condition(pod: Pod) -> PodCondition | None:
    return next((one for one in pod.status.conditions if one.type == SCHEDULED), None)
