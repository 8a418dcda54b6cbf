"""A Node as each step that patches it leaves it. Pure; versions and conflicts are the World's."""

import msgspec

from controller.steps import Quarantine, Restore, StartClients, StopClients
from kube.remediation import QUARANTINE
from kube.types import Node
from tests import build as make
from tests.controller.core.gpu_node import relabelled


def patched(step: Quarantine | Restore | StopClients | StartClients, node: Node) -> Node:
    """Give the Node after the step."""
    match step:
        case StopClients() | StartClients():
            return relabelled(step, node)
        case Quarantine():
            left = make.quarantined(node, step.incident, step.before)
            return left if step.before.cordoned else with_spec(left, unschedulable=node.spec.unschedulable)
        case Restore():
            annotations = {k: v for k, v in node.metadata.annotations.items() if k != QUARANTINE}
            metadata = msgspec.structs.replace(node.metadata, annotations=annotations)
            left = msgspec.structs.replace(node, metadata=metadata)
            if step.untaint:
                left = with_spec(left, taints=tuple(t for t in left.spec.taints if t.value != step.incident))
            return with_spec(left, unschedulable=False) if step.uncordon else left


def with_spec(node: Node, **changes: object) -> Node:
    """Give the Node with these fields of its spec."""
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, **changes))
