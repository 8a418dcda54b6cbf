"""Small Kubernetes objects for the tests of this package."""

from collections.abc import Callable
from typing import Any

from kube.session import Session
from kube.types import Node, NodeSpec, ObjectMeta

# Opens a session to the test's server; the fixture `opening` closes it.
Opening = Callable[..., Session]


def node(name: str, version: int, *, uid: str = "", unschedulable: bool = False) -> Node:
    """Build a Node of a given resource version; its UID is made from its name unless given."""
    metadata = ObjectMeta(name=name, uid=uid or f"uid-{name}", resource_version=str(version))
    return Node(metadata=metadata, spec=NodeSpec(unschedulable=unschedulable))


def node_json(name: str, version: int) -> dict[str, Any]:
    """Write the same Node as the server would."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}
