"""Claims and volumes before a bind, on the real API server with the real claim and volume controllers.

Nobody schedules here but the test: it makes the plan by hand, prepares, and binds. KWOK plays the kubelets.
"""

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from controller.scheduler.shell.claim_allocation import node_of_claim
from controller.scheduler.shell.prebind import Prepared
from kube import paths
from kube.api import NotFound, PatchType
from kube.session import connect
from kube.storage import BIND_COMPLETED
from sandbox import nodes as simulated
from sandbox.cluster import Sandbox
from sandbox.nodes import SimulatedNode
from tests.cluster.prebind_place import DRIVER, NAME, RESOURCE, SELECTED, Place, Scheduler
from tests.fakes import wait_until

RULES = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices", "deviceclasses", "devicetaintrules"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims"],
        "verbs": ["get", "list", "watch", "patch"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch"]},
    {
        "apiGroups": [""],
        "resources": ["persistentvolumeclaims", "persistentvolumes"],
        "verbs": ["get", "list", "watch", "patch"],
    },
    {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["list", "watch"]},
]


@pytest.fixture(scope="module")
def node(sandbox: Sandbox) -> Iterator[SimulatedNode]:
    (made,) = simulated.create(sandbox, ["prebind-1"])
    spec = {
        "driver": DRIVER,
        "nodeName": made.name,
        "pool": {"name": made.name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    sandbox.admin.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": made.name}, "spec": spec})
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"mode": "class"}}}
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    sandbox.admin.create(
        f"{RESOURCE}/deviceclasses",
        {"metadata": {"name": NAME}, "spec": {"selectors": [selector], "config": [opaque]}},
    )
    for name, provisioner in (
        ("prebind-local", "kubernetes.io/no-provisioner"),
        ("prebind-made", "disk.example.com"),
    ):
        sandbox.admin.create(
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
    try:
        yield made
    finally:
        sandbox.admin.delete(f"{RESOURCE}/resourceslices/{made.name}")
        made.delete(sandbox.admin)
        made.close()


@pytest.fixture
def place(sandbox: Sandbox, namespace: str, node: SimulatedNode) -> Iterator[Place]:
    made = Place(sandbox.admin, namespace, node.name)
    yield made
    made.clear()


@pytest.fixture
def scheduler(sandbox: Sandbox, node: SimulatedNode) -> Iterator[Scheduler]:
    assert node.name
    made = Scheduler(connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/0"))
    yield made
    made.close()


def may_bind_claims(scheduler: Scheduler, place: Place) -> bool:
    wanted = {
        "group": "resource.k8s.io",
        "resource": "resourceclaims",
        "subresource": "binding",
        "verb": "patch",
    }
    body = {"spec": {"resourceAttributes": {"namespace": place.namespace, "name": "mine", **wanted}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(msgspec.json.decode(scheduler.api.create(path, body))["status"]["allowed"])


def prepare(scheduler: Scheduler, place: Place, pod: str, **devices: int) -> Prepared:
    found = scheduler.pod(place.namespace, pod)
    scheduler.knows(place.namespace, *devices)
    return scheduler.prebind.prepare(place.to_bind(pod, **devices), found)


def test_a_pod_with_a_claim_runs_and_its_devices_come_back(place: Place, scheduler: Scheduler) -> None:
    """The server takes the allocation; when the pod is gone, Kubernetes' claim controller takes it back by the finalizer."""
    place.add_claim("mine")
    place.add_pod("p1", claims=("mine",))
    found = prepare(scheduler, place, "p1", mine=1)
    assert (found.ready, found.why) == (True, "")
    claim = place.claim("mine")
    assert claim.status.allocation is not None
    assert (place.held("mine"), node_of_claim(claim)) == ((["gpu-1"], ["p1"]), place.node)
    assert claim.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    raw = msgspec.json.decode(place.admin.get(place.claim_path("mine")))["status"]["allocation"]
    assert [one["source"] for one in raw["devices"]["config"]] == ["FromClass", "FromClaim"]
    assert raw["allocationTimestamp"]
    place.send(scheduler.pod(place.namespace, "p1"))
    wait_until(lambda: place.is_running("p1"), timeout_s=60.0)
    place.admin.delete(paths.pod(place.namespace, "p1"), {"gracePeriodSeconds": 0})
    wait_until(lambda: place.held("mine") == ([], []), timeout_s=60.0)
    wait_until(lambda: place.claim("mine").metadata.finalizers == (), timeout_s=60.0)


def test_a_claim_made_from_a_template(place: Place, scheduler: Scheduler) -> None:
    """The claim controller makes it; where the pod goes before it is bound, it releases and removes the claim."""
    exactly = {"deviceClassName": NAME}
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    path = f"{RESOURCE}/namespaces/{place.namespace}/resourceclaimtemplates"
    place.admin.create(path, {"metadata": {"name": "t"}, "spec": spec})
    place.add_pod("p1", template="t")
    wait_until(
        lambda: bool(scheduler.pod(place.namespace, "p1").status.resource_claim_statuses), timeout_s=30.0
    )
    name = scheduler.pod(place.namespace, "p1").status.resource_claim_statuses[0].resource_claim_name or ""
    assert prepare(scheduler, place, "p1", **{name: 0}).ready
    assert place.held(name) == (["gpu-0"], ["p1"])
    place.admin.delete(paths.pod(place.namespace, "p1"), {"gracePeriodSeconds": 0})

    def is_gone() -> bool:
        try:
            place.claim(name)
        except NotFound:
            return True
        return False

    wait_until(is_gone, timeout_s=60.0)


def test_undo_frees_the_devices_and_a_shared_claim_stays_with_the_others(
    place: Place, scheduler: Scheduler
) -> None:
    """Eight pods join one claim at once, without a conflict that anybody sees; seven leave, then the last."""
    place.add_claim("ours")
    names = [f"p{index}" for index in range(8)]
    for name in names:
        place.add_pod(name, claims=("ours",))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: prepare(scheduler, place, name, ours=0), names))
    assert [one.why for one in found] == [""] * 8
    devices, users = place.held("ours")
    assert (devices, sorted(users)) == (["gpu-0"], names)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(scheduler.prebind.undo, found[1:]))
    assert place.held("ours") == (["gpu-0"], ["p0"])
    scheduler.prebind.undo(found[0])
    assert place.held("ours") == ([], [])


def test_two_schedulers_race_for_one_device(place: Place, sandbox: Sandbox, scheduler: Scheduler) -> None:
    """Exactly one of them keeps it, each time, and the other one has left no trace."""
    other = Scheduler(connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/1"))
    try:
        for index in range(10):
            claims = (f"a{index}", f"b{index}")
            for name in claims:
                place.add_claim(name)
                place.add_pod(f"pod-{name}", claims=(name,))
            for one in (scheduler, other):
                one.knows(place.namespace, *claims)
                for name in claims:
                    one.pod(place.namespace, f"pod-{name}")
            start = threading.Barrier(2)

            def run(one: Scheduler, name: str, start: threading.Barrier = start) -> Prepared:
                start.wait(20)
                return prepare(one, place, f"pod-{name}", **{name: 0})

            with ThreadPoolExecutor(2) as pool:
                found = list(pool.map(run, (scheduler, other), claims))
            assert sorted(one.ready for one in found) == [False, True], found
            winner, loser = claims if found[0].ready else claims[::-1]
            assert place.held(winner) == (["gpu-0"], [f"pod-{winner}"])
            assert place.held(loser) == ([], [])
            (lost,) = (one for one in found if not one.ready)
            assert f"was given to {place.namespace}/{winner} meanwhile" in lost.why
            scheduler.prebind.undo(next(one for one in found if one.ready))
            for one in (scheduler, other):
                wait_until(lambda one=one: not one.claims.by_index(place.node), timeout_s=20.0)  # type: ignore[misc]
    finally:
        other.close()


def test_a_device_is_tainted_between_plan_and_bind(place: Place, scheduler: Scheduler) -> None:
    """The pod goes back with the reason, and the claim is untouched."""
    place.add_claim("mine")
    place.add_pod("p1", claims=("mine",))
    scheduler.knows(place.namespace, "mine")
    path = f"{RESOURCE}/resourceslices/{place.node}"
    taint = {"key": "sick", "value": "xid-79", "effect": "NoSchedule"}
    devices = [{"name": "gpu-0", "taints": [taint]}, {"name": "gpu-1"}]
    place.admin.patch(path, {"spec": {"devices": devices}}, PatchType.MERGE)
    try:
        wait_until(
            lambda: bool(scheduler.slices.by_index(place.node)[0].spec.devices[0].taints), timeout_s=20.0
        )
        found = prepare(scheduler, place, "p1", mine=0)
        assert (found.ready, found.waits) == (False, False)
        assert "has the untolerated taint {sick: xid-79}" in found.why
        assert (place.held("mine"), place.claim("mine").metadata.finalizers) == (([], []), ())
    finally:
        devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
        place.admin.patch(path, {"spec": {"devices": devices}}, PatchType.MERGE)


def test_a_rule_fences_a_device_between_plan_and_bind(place: Place, scheduler: Scheduler) -> None:
    """No slice shows it, and it counts all the same."""
    place.add_claim("mine")
    place.add_pod("p1", claims=("mine",))
    name = f"fence-{secrets.token_hex(4)}"
    taint = {"key": "sick", "value": "xid-79", "effect": "NoSchedule"}
    selector = {"driver": DRIVER, "pool": place.node, "device": "gpu-0"}
    body = {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}
    place.admin.create(f"{RESOURCE}/devicetaintrules", body)
    try:
        wait_until(lambda: name in scheduler.rules.snapshot(), timeout_s=20.0)
        assert "untolerated taint {sick: xid-79}" in prepare(scheduler, place, "p1", mine=0).why
        assert place.held("mine") == ([], [])
    finally:
        place.admin.delete(f"{RESOURCE}/devicetaintrules/{name}")
    wait_until(lambda: prepare(scheduler, place, "p1", mine=0).ready, timeout_s=20.0)


def test_a_volume_is_made_for_the_chosen_node(place: Place, scheduler: Scheduler) -> None:
    """The test plays the provisioner: it sees the node, makes a volume there, and the volume controller binds the two."""
    place.add_volume_claim("prebind-made")
    place.add_pod("p1", volumes=("data",))
    wait_until(lambda: f"{place.namespace}/data" in scheduler.volume_claims.snapshot(), timeout_s=20.0)
    assert prepare(scheduler, place, "p1").waits
    claim = place.volume_claim()
    assert claim.metadata.annotations[SELECTED] == place.node
    name = f"made-{secrets.token_hex(4)}"
    body = place.volume_body(name, "prebind-made")
    body["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "disk.example.com"}
    ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": place.namespace, "name": "data"}
    body["spec"]["claimRef"] = {**ref, "uid": claim.metadata.uid}
    place.admin.create("/api/v1/persistentvolumes", body)
    try:
        wait_until(lambda: prepare(scheduler, place, "p1").ready, timeout_s=60.0)
        place.send(scheduler.pod(place.namespace, "p1"))
        wait_until(lambda: place.is_running("p1"), timeout_s=60.0)
    finally:
        place.admin.delete(paths.volume(name))


def test_provisioning_fails(place: Place, scheduler: Scheduler) -> None:
    """The provisioner takes the node away again: the pod goes back at once."""
    place.add_volume_claim("prebind-made")
    place.add_pod("p1", volumes=("data",))
    wait_until(lambda: f"{place.namespace}/data" in scheduler.volume_claims.snapshot(), timeout_s=20.0)
    assert prepare(scheduler, place, "p1").waits
    body = {"metadata": {"annotations": {SELECTED: None}}}
    place.admin.patch(paths.volume_claim(place.namespace, "data"), body, PatchType.MERGE)
    wait_until(lambda: not prepare(scheduler, place, "p1").waits, timeout_s=20.0)


def test_a_local_volume_is_reserved_and_bound(place: Place, scheduler: Scheduler) -> None:
    """Without a provisioner: the real volume controller binds what was reserved; given back before, it is free again."""
    name = f"disk-{secrets.token_hex(4)}"
    place.admin.create("/api/v1/persistentvolumes", place.volume_body(name, "prebind-local"))
    try:
        place.add_volume_claim("prebind-local")
        place.add_pod("p1", volumes=("data",))
        known = scheduler.volume_claims.snapshot
        wait_until(lambda: f"{place.namespace}/data" in known(), timeout_s=20.0)

        def is_free() -> bool:
            found = scheduler.volumes.get(name)
            return found is not None and found.status.phase == "Available"

        wait_until(is_free, timeout_s=30.0)
        assert prepare(scheduler, place, "p1").waits
        wait_until(lambda: prepare(scheduler, place, "p1").ready, timeout_s=60.0)
        claim = place.volume_claim()
        assert (claim.spec.volume_name, BIND_COMPLETED in claim.metadata.annotations) == (name, True)
    finally:
        place.admin.delete(paths.volume(name))


def test_nobody_provisions_and_the_deadline_passes(
    place: Place, sandbox: Sandbox, node: SimulatedNode
) -> None:
    """The node is taken off the claim, and the pod may go elsewhere."""
    assert node.name == place.node
    scheduler = Scheduler(connect(kubeconfig=sandbox.admin_kubeconfig, user_agent="t/2"), wait_s=1.0)
    try:
        place.add_volume_claim("prebind-made")
        place.add_pod("p1", volumes=("data",))
        wait_until(lambda: f"{place.namespace}/data" in scheduler.volume_claims.snapshot(), timeout_s=20.0)
        assert prepare(scheduler, place, "p1").waits
        wait_until(lambda: not prepare(scheduler, place, "p1").waits, timeout_s=20.0)
        assert SELECTED not in place.volume_claim().metadata.annotations
    finally:
        scheduler.close()


def test_the_rights_that_it_takes(place: Place, sandbox: Sandbox, node: SimulatedNode) -> None:
    """The rules of the service account, no more: also `binding`, which servers ask for that check writes of allocations."""
    assert node.name == place.node
    name = f"prebind-{secrets.token_hex(4)}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    place.admin.create(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": RULES})
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": place.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    place.admin.create(f"{rbac}/clusterrolebindings", binding)
    try:
        kubeconfig = sandbox.kubeconfig_for(place.namespace, "default")
        scheduler = Scheduler(connect(kubeconfig=kubeconfig, user_agent="t/3"))
        try:
            place.add_claim("mine")
            place.add_pod("p1", claims=("mine",))
            found = prepare(scheduler, place, "p1", mine=0)
            assert (found.ready, found.why) == (True, "")
            scheduler.prebind.undo(found)
            assert place.held("mine") == ([], [])
            rules = [rule for rule in RULES if "resourceclaims/binding" not in rule["resources"]]
            place.admin.patch(f"{rbac}/clusterroles/{name}", {"rules": rules}, PatchType.MERGE)
            wait_until(lambda: not may_bind_claims(scheduler, place), timeout_s=60.0)
            assert (
                'cannot patch resource "resourceclaims/binding"'
                in prepare(scheduler, place, "p1", mine=0).why
            )
            assert place.held("mine") == ([], [])
        finally:
            scheduler.close()
    finally:
        place.admin.delete(f"{rbac}/clusterrolebindings/{name}")
        place.admin.delete(f"{rbac}/clusterroles/{name}")
