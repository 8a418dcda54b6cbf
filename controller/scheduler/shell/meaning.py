"""What of an object a decision depends on, so that heartbeats and mere starts wake nobody. Pure."""

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


def meaning_of_pod(pod: Pod, scheduler_name: str) -> bool:
    """Tell whether a pod's change can matter now: it waits for us, it ended, or it is about to."""
    if pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed"):
        return True
    if pod.spec.scheduler_name == scheduler_name:
        return not pod.spec.node_name
    return False


def is_open_to_pods(node: Node) -> bool:
    """Tell whether a Node that was chosen a moment ago may still be bound to: it is there, Ready, and not ending."""
    ready = node.condition("Ready")
    return node.metadata.deletion_timestamp is None and (ready is None or ready.status == "True")
