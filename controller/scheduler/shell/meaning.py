"""What of an object a decision depends on, so that heartbeats and mere starts wake nobody. Pure."""

from kube.store import Stored
from kube.types import Node, Pod


def meaning_of_node(node: Node) -> object:
    """Give everything of a Node that decides; equal values mean that nothing happened. Heartbeats are left out."""
    meta, status = node.metadata, node.status
    return (
        meta.uid,
        meta.deletion_timestamp,
        meta.labels,
        meta.annotations,
        node.spec,
        status.allocatable,
        status.node_info.boot_id,
        tuple((one.type, one.status, one.reason) for one in status.conditions),
    )


def meaning_of_spec(obj: Stored) -> object:
    """Give what of a Queue or PodGroup decides: all but its status, whose changes leave the generation as it is."""
    meta = obj.metadata
    return (meta.uid, meta.generation, meta.deletion_timestamp, meta.labels, meta.annotations)


def meaning_of_pod(pod: Pod, scheduler_name: str) -> object:
    """Give what of a pod can matter now: it waits for us, it ended, or it is about to; None = nothing does.

    That it waits and for which node, which we write on it ourselves, is no news.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if meta.deletion_timestamp is not None or status.phase in ("Succeeded", "Failed"):
        return (meta.uid, meta.deletion_timestamp, status.phase)
    if spec.scheduler_name != scheduler_name or spec.node_name:
        return None
    return (
        meta.uid,
        meta.labels,
        meta.annotations,
        spec.scheduling_gates,
        status.resource_claim_statuses,
    )
