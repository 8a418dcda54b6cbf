"""Session and Reflector against the real API server: what the unit tests take for granted about it."""

import threading
import time

import msgspec
import pytest

from kube import paths
from kube.api import AlreadyExists, Conflict, Invalid, NotFound, NotLeader, PatchType, Unauthorized
from kube.clock import SYSTEM
from kube.session import connect
from kube.store import Store
from kube.timestamps import micro_time
from kube.types import Lease, Node, ObjectMeta, Struct
from kube.watch import Reflector
from sandbox.cluster import Sandbox
from tests.fakes import wait_until


class ConfigMap(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def test_the_server_takes_the_timeout_of_a_guarded_write(sandbox: Sandbox, namespace: str) -> None:
    """Every kind of write carries `timeout=...ms` under a guard, and every kind is accepted with it."""
    budget = [9.0]
    session = connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/0", write_guard=lambda: budget[0])
    path = config_maps(namespace)
    session.create(path, {"metadata": {"name": "a"}})
    session.patch(f"{path}/a", {"data": {"k": "v"}}, PatchType.MERGE)
    held = msgspec.json.decode(session.get(f"{path}/a"), type=dict[str, object])
    session.replace(f"{path}/a", {**held, "data": {"k": "w"}})
    session.delete(f"{path}/a")
    budget[0] = 0.0
    with pytest.raises(NotLeader):
        session.create(path, {"metadata": {"name": "b"}})
    with pytest.raises(NotFound):
        session.get(f"{path}/b")
    session.close()


def test_refusals_are_told_apart(sandbox: Sandbox, namespace: str) -> None:
    """The real server's answers become the errors that their names promise."""
    session = connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/0")
    path = config_maps(namespace)
    session.create(path, {"metadata": {"name": "a"}})
    with pytest.raises(AlreadyExists):
        session.create(path, {"metadata": {"name": "a"}})
    with pytest.raises(Conflict):
        session.patch(f"{path}/a", {"metadata": {"resourceVersion": "1"}}, PatchType.MERGE)
    with pytest.raises(Conflict):
        session.delete(f"{path}/a", {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}})
    with pytest.raises(Invalid):
        session.patch(f"{path}/a", [{"op": "test", "path": "/data", "value": 1}], PatchType.JSON)
    session.close()


def test_a_service_account_is_known_by_its_token_file(sandbox: Sandbox, namespace: str) -> None:
    """Server, token file and CA file, as the agent's configuration names them; an alien token is Unauthorized."""
    token_file = sandbox.token_file(namespace, "default")
    session = connect(server=sandbox.server, token_file=token_file, ca_file=sandbox.ca_file, user_agent="t/0")
    review = session.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    session.close()
    assert f"system:serviceaccount:{namespace}:default".encode() in review
    alien = sandbox.state_dir / "alien-token"
    alien.write_text("alien")
    stranger = connect(server=sandbox.server, token_file=alien, ca_file=sandbox.ca_file, user_agent="t/0")
    with pytest.raises(Unauthorized):
        stranger.get(paths.nodes())
    stranger.close()


def test_a_kubeconfig_of_a_service_account_works(sandbox: Sandbox, namespace: str) -> None:
    """kubeconfig with a tokenFile."""
    session = connect(kubeconfig=sandbox.kubeconfig_for(namespace, "default"), user_agent="t/0")
    assert b"v1.3" in session.get("/version")
    session.close()


def test_micro_time_is_what_a_lease_takes(sandbox: Sandbox, namespace: str) -> None:
    """Six digits are accepted and read back; this is what every renewal depends on."""
    session = connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/0")
    now = SYSTEM.now().replace(microsecond=0)
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": micro_time(now)}
    raw = session.create(paths.leases(namespace), {"metadata": {"name": "l"}, "spec": spec})
    session.close()
    assert msgspec.json.decode(raw, type=Lease).spec.renew_time == now


def test_a_reflector_survives_the_api_server(sandbox: Sandbox, namespace: str) -> None:
    """List in pages, follow, lose the server, find it again with what changed meanwhile; end when the session closes."""
    session = connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/0")
    path = config_maps(namespace)
    for name in "abc":
        session.create(path, {"metadata": {"name": name, "labels": {"mine": "yes"}}})
    store: Store[ConfigMap] = Store()
    stop = threading.Event()
    reflector = Reflector(
        session, path, ConfigMap, store, clock=SYSTEM, stop=stop, label_selector="mine=yes", page_size=2
    )
    thread = threading.Thread(target=reflector.run)
    thread.start()
    wait_until(lambda: sorted(store.snapshot()) == [f"{namespace}/{name}" for name in "abc"], timeout_s=30.0)
    sandbox.stop_apiserver()
    time.sleep(2.0)
    kept = (store.synced, len(store))
    sandbox.start_apiserver()
    answer = session.patch(f"{path}/a", {"data": {"k": "v"}}, PatchType.MERGE)
    store.offer(msgspec.json.decode(answer, type=ConfigMap))
    session.delete(f"{path}/b")
    wait_until(lambda: sorted(store.snapshot()) == [f"{namespace}/{name}" for name in "ac"], timeout_s=60.0)
    changed = store.get(f"{namespace}/a")
    stop.set()
    session.close()
    thread.join(10)
    assert kept == (True, 3)
    assert (changed.data["k"] if changed else "", thread.is_alive()) == ("v", False)


def test_nodes_decode(sandbox: Sandbox) -> None:
    """A Node as the server writes it, nulls and all, fits the slim struct."""
    session = connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/0")
    session.create(paths.nodes(), {"metadata": {"name": "decoded"}, "spec": {"unschedulable": True}})
    node = msgspec.json.decode(session.get(paths.node("decoded")), type=Node)
    session.delete(paths.node("decoded"))
    session.close()
    assert (node.spec.unschedulable, node.metadata.creation_timestamp is not None) == (True, True)
