"""Agents for the tests of admission: identities that RBAC hinders nowhere, and Nodes as full as real ones."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest

from agent.record import new_object
from kube import paths
from kube.api import AlreadyExists, Api, Forbidden, NotFound
from kube.types import Node
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from tests.fakes import wait_until
from tests.manifests.deeds import SYSTEM, Deed, named, owned_by

OWN, OTHER, LEADER = "adm-own", "adm-other", "nodemend-controller"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
LEASES = paths.leases(SYSTEM)
FOREIGN = [f"Foreign{number}" for number in range(60)]


def condition(type_: str, **fields: str) -> dict[str, Any]:
    entry = {"type": type_, "status": "False", "reason": "NoXidError", "message": "fine", **fields}
    return {"status": {"conditions": [entry]}}


def lease(name: str, uid: str = "u") -> dict[str, Any]:
    made = named(name, "Lease", "coordination.k8s.io/v1", spec={"holderIdentity": name})
    return {**made, "metadata": {"name": name, **owned_by(name, uid)}}


@contextmanager
def agents_of(installed: Sandbox) -> Iterator[AgentIdentities]:
    """Identities of agents that RBAC hinders nowhere; two Nodes, what belongs to them, and the leader's Lease."""
    admin = installed.admin
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    account = {"kind": "ServiceAccount", "name": "nodemend-agent", "namespace": SYSTEM}
    binding = named(
        "adm-agent", "ClusterRoleBinding", "rbac.authorization.k8s.io/v1", roleRef=role, subjects=[account]
    )
    admin.create(BINDINGS, binding)
    for name in (OWN, OTHER, LEADER):
        uid = join(admin, name)
        admin.create(paths.node_healths(), new_object(name, uid))
        if name != LEADER:
            admin.create(LEASES, lease(name, uid))
    with suppress(AlreadyExists):  # a controller that another test ran in the same sandbox left it
        admin.create(LEASES, named(LEADER, "Lease", "coordination.k8s.io/v1", spec={"holderIdentity": "c"}))
    identities = AgentIdentities(installed)
    wait_until(lambda: may_all(identities.of(OWN)), 30)
    yield identities
    identities.close()
    for name in (OWN, OTHER, LEADER):
        for path in (paths.node(name), paths.node_health(name), paths.lease(SYSTEM, name)):
            with suppress(NotFound):
                admin.delete(path)
    admin.delete(f"{BINDINGS}/adm-agent")


def join(admin: Api, name: str) -> str:
    """Create a crowded Node; give its UID."""
    return msgspec.json.decode(admin.create(paths.nodes(), crowded(name)), type=Node).metadata.uid


def crowded(name: str) -> dict[str, Any]:
    """A Node as full as a real one may be: 60 conditions of others, ours among them, labels, 50 images of three names."""
    types = [*FOREIGN[:30], "GpuXidError", *FOREIGN[30:]]
    conditions = [condition(type_)["status"]["conditions"][0] for type_ in types]
    images = [
        {
            "names": [f"registry.example.com/team/{'x' * 60}-{number}:{tag}" for tag in range(3)],
            "sizeBytes": 1,
        }
        for number in range(50)
    ]
    body = named(name, "Node", "v1", status={"conditions": conditions, "images": images})
    body["metadata"]["labels"] = {f"l{number}": "v" * 60 for number in range(60)}
    body["metadata"]["annotations"] = {f"example.com/a{number}": "v" * 1000 for number in range(20)}
    return body


def may_all(api: Api) -> bool:
    try:
        api.get("/api/v1/secrets")
    except Forbidden:
        return False
    return True


def refusal(api: Api, deed: Deed, policy: str) -> str:
    """Give the policy's own words."""
    with pytest.raises(Forbidden) as refused:
        deed(api)
    before, _, words = str(refused.value).partition("denied request: ")
    assert f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}'" in before
    return words


def table(rows: list[tuple[Deed, str, str]], policy: str) -> list[Any]:
    return [pytest.param(policy, deed, words, id=name) for deed, words, name in rows]
