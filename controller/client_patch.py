"""The bodies of patches that switch the GPU's clients on a Node off and on again. Pure; made of the Node as it was read.

JSON patches like those of `controller.node_patch`: with the UID and the version of the decision as preconditions, and naming
nothing but the labels that they are about.
"""

from typing import Any

from controller.gpu_clients import OFF
from controller.steps import StartClients, StopClients
from kube.types import Node

Operations = list[dict[str, Any]]


def stop(step: StopClients, node: Node) -> Operations:
    """Switch off; empty where all of them are."""
    keys = [one.key for one in step.labels if node.metadata.labels.get(one.key) == one.before]
    return _patch(step, dict.fromkeys(keys, OFF))


def start(step: StartClients, node: Node) -> Operations:
    """Put back what it was before; what does not carry our word any more is somebody else's."""
    return _patch(
        step, {one.key: one.before for one in step.labels if node.metadata.labels.get(one.key) == OFF}
    )


def _patch(step: StopClients | StartClients, values: dict[str, str]) -> Operations:
    if not values:
        return []
    return [
        {"op": "replace", "path": "/metadata/uid", "value": step.node_uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": step.resource_version},
        *(
            {"op": "replace", "path": f"/metadata/labels/{key.replace('/', '~1')}", "value": value}
            for key, value in values.items()
        ),
    ]
