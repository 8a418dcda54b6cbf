"""When a kubelet's node can be used: what its Node object has to say, and whether a socket is served."""

import socket

from kube.types import Node

_NOT_READY = "node.kubernetes.io/not-ready"


def why_not_ready(seen: Node, boot_id: str) -> str | None:
    """Say why the Node takes no pods in boot `boot_id`, None where it does."""
    if seen.status.node_info.boot_id != boot_id:
        return f"the Node shows boot {seen.status.node_info.boot_id}, this is {boot_id}"
    ready = seen.condition("Ready")
    if ready is None or ready.status != "True":
        return f"Ready is {ready.status if ready else 'absent'}: {ready.message if ready else ''}"
    taints = [taint.key for taint in seen.spec.taints if taint.key == _NOT_READY]
    return f"it is tainted {', '.join(taints)}" if taints else None


def serves(family: int, address: str | tuple[str, int]) -> bool:
    """Say whether somebody takes connections at `address`."""
    with socket.socket(family) as client:
        client.settimeout(1.0)
        return client.connect_ex(address) == 0
