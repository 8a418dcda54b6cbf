"""What the tests of rights and of admission do to the API server: deeds as values, and the objects that they send."""

from collections.abc import Callable
from typing import Any

from agent.record import owner_reference
from kube.api import Api, PatchType
from kube.session import Session, connect
from sandbox.cluster import Sandbox
from sandbox.install import IMAGE

SYSTEM, REPAIRS = "nodemend-system", "nodemend-repairs"

Deed = Callable[[Api], object]


def named(name: str, kind: str, version: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


def merge(path: str, body: dict[str, Any]) -> Deed:
    return lambda api: api.patch(path, body, PatchType.MERGE)


def strategic(path: str, body: dict[str, Any]) -> Deed:
    return lambda api: api.patch(path, body, PatchType.STRATEGIC)


def json_patch(path: str, *operations: dict[str, Any]) -> Deed:
    return lambda api: api.patch(path, list(operations), PatchType.JSON)


def create(path: str, body: dict[str, Any]) -> Deed:
    return lambda api: api.create(path, body)


def delete(path: str) -> Deed:
    return lambda api: api.delete(path)


def owned_by(node: str, uid: str = "u") -> dict[str, Any]:
    return {"ownerReferences": [owner_reference(node, uid)]}


def job(name: str, *, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Describe a Job as the controller's are, on a node that never comes; `pod` and `spec` win."""
    template = {
        "restartPolicy": "Never",
        "serviceAccountName": "nodemend-repair",
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/hostname": "no-such-node"},
        "containers": [{"name": "c", "image": IMAGE}],
        **(pod or {}),
    }
    return named(name, "Job", "batch/v1", spec={"backoffLimit": 0, "template": {"spec": template}, **spec})


def session(sandbox: Sandbox, namespace: str, account: str) -> Session:
    """Open a session under a ServiceAccount's token that is bound to nothing."""
    return connect(
        server=sandbox.server,
        token_file=sandbox.token_file(namespace, account),
        ca_file=sandbox.ca_file,
        user_agent="manifests-test",
    )
