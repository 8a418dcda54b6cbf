"""Volumes before a bind: ask for them, take those that are there, wait without blocking, give up in time."""

from collections.abc import Callable
from typing import Any

import pytest

from controller.scheduler.shell.prebind import Prepared
from kube import paths
from kube.api import Conflict
from kube.types import Pod
from tests.fake_api import request_to
from tests.scheduler_shell.prebind_stage import STORAGE_CLASSES, VOLUME_CLAIMS, Cluster, to_bind

NONE = "kubernetes.io/no-provisioner"
SELECTED = "volume.kubernetes.io/selected-node"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}
DATA = paths.volume_claim("team", "data")


def scene(provisioner: str = "disk.example.com") -> tuple[Cluster, Pod]:
    """Give a node, a class that waits for its first consumer, a claim of it, and a pod that uses it."""
    cluster = Cluster()
    cluster.node()
    cluster.storage(provisioner)
    cluster.volume_claim()
    pod = cluster.pod(volumes=("data",))
    cluster.wrote()
    return cluster, pod


def prepare(cluster: Cluster, pod: Pod) -> Prepared:
    return cluster.prebind.prepare(to_bind(), pod)


def claimed_by(cluster: Cluster, volume: str) -> str | None:
    ref = cluster.api.read(paths.volume(volume))["spec"].get("claimRef")
    return None if ref is None else ref["name"]


def test_a_bound_claim_costs_nothing() -> None:
    """No request; nothing to take back."""
    cluster, pod = scene()
    cluster.volume("v1")
    cluster.bind_volume()
    cluster.wrote()
    found = prepare(cluster, pod)
    assert (found.ready, found.undo, cluster.api.requests) == (True, (), [])


def test_the_provisioner_is_told_the_node_and_the_pod_waits() -> None:
    """One write, then none until the volume is bound; then the pod is ready, and the volume is not taken back."""
    cluster, pod = scene()
    found = [prepare(cluster, pod) for _ in range(3)]
    assert [(one.ready, one.waits) for one in found] == [(False, True)] * 3
    assert 'persistentvolumeclaim "data": waiting for its volume' in found[0].why
    assert (cluster.wrote(), cluster.selected()) == (["team/persistentvolumeclaims/data"], "n1")
    cluster.volume("v1")
    cluster.change(DATA, {"spec": {"volumeName": "v1"}})
    assert prepare(cluster, pod).waits
    cluster.bind_volume()
    ready = prepare(cluster, pod)
    assert (ready.ready, ready.undo) == (True, ())


def test_undo_while_waiting_takes_the_node_back() -> None:
    """The gang could not start: the claim is as it was."""
    cluster, pod = scene()
    cluster.prebind.undo(prepare(cluster, pod))
    assert cluster.selected() is None
    assert prepare(cluster, pod).waits
    assert cluster.selected() == "n1"


def test_the_deadline() -> None:
    """After 120 s the pod goes back and the node is taken back; the next time has a deadline of its own."""
    cluster, pod = scene()
    assert prepare(cluster, pod).waits
    cluster.clock.advance(119)
    assert prepare(cluster, pod).waits
    cluster.clock.advance(1)
    late = prepare(cluster, pod)
    assert (late.ready, late.waits, late.undo, cluster.selected()) == (False, False, (), None)
    assert late.why.endswith("given up after 120 s")
    assert prepare(cluster, pod).waits


def test_bound_in_the_very_moment_of_giving_up() -> None:
    """What is bound stays bound, and the next try finds it so."""
    cluster, pod = scene()
    prepare(cluster, pod)
    cluster.clock.advance(120)
    cluster.hears = False
    cluster.bind_volume(volume="")
    cluster.change(DATA, {"spec": {"volumeName": "v1"}})
    assert not prepare(cluster, pod).waits
    assert cluster.selected() == "n1"
    cluster.hear()
    assert prepare(cluster, pod).ready


def test_provisioning_failed() -> None:
    """The provisioner took the annotation away: the pod goes back, and is not waited for; the next try asks anew."""
    cluster, pod = scene()
    prepare(cluster, pod)
    cluster.change(DATA, {"metadata": {"annotations": {SELECTED: None}}})
    failed = prepare(cluster, pod)
    assert (failed.ready, failed.waits) == (False, False)
    assert "could not be made for node n1" in failed.why
    assert prepare(cluster, pod).waits


def test_a_former_leader_asked_already() -> None:
    """The node is written: wait, and take it back at the deadline as if it were our own."""
    cluster, pod = scene()
    cluster.change(DATA, {"metadata": {"annotations": {SELECTED: "n1"}}})
    cluster.wrote()
    assert prepare(cluster, pod).waits
    assert cluster.wrote() == []
    cluster.clock.advance(120)
    prepare(cluster, pod)
    assert cluster.selected() is None


def _other_node(cluster: Cluster) -> None:
    cluster.change(DATA, {"metadata": {"annotations": {SELECTED: "n2"}}})


def _far(cluster: Cluster) -> None:
    cluster.volume("v1", node="n2")
    cluster.bind_volume()


def _immediate(cluster: Cluster) -> None:
    cluster.change(f"{STORAGE_CLASSES}/late", {"volumeBindingMode": "Immediate"})


def _of_another_pod(cluster: Cluster) -> None:
    owner = {"kind": "Pod", "name": "p1", "uid": "before", "controller": True}
    cluster.change(DATA, {"metadata": {"ownerReferences": [owner]}})


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        pytest.param(lambda cluster: cluster.remove(DATA), "is not there", id="claim deleted"),
        pytest.param(
            lambda cluster: cluster.change(DATA, {"metadata": DELETED}),
            "is being deleted",
            id="claim being deleted",
        ),
        pytest.param(_of_another_pod, "made for another pod", id="pod recreated, the claim is the old one's"),
        pytest.param(_other_node, "is being made for node n2", id="made for another node"),
        pytest.param(_far, "v1 cannot be reached from node n1", id="bound meanwhile, elsewhere"),
        pytest.param(_immediate, "has no volume yet", id="not ours to bind"),
        pytest.param(
            lambda cluster: cluster.remove(f"{paths.nodes()}/n1"), "node n1 is gone", id="node gone"
        ),
    ],
)
def test_refusals(happens: Callable[[Cluster], None], why: str) -> None:
    """The pod goes back, and nothing is written."""
    cluster, pod = scene()
    happens(cluster)
    cluster.wrote()
    found = prepare(cluster, pod)
    assert (found.ready, found.waits, why in found.why) == (False, False, True), found.why
    assert cluster.wrote() == []


def test_a_volume_that_is_there_is_reserved_for_the_claim() -> None:
    """The smallest that fits and that the node reaches; the volume controller does the rest."""
    cluster, pod = scene(NONE)
    for name, size, node in (("large", "3Gi", "n1"), ("fits", "2Gi", "n1"), ("far", "1Gi", "n2")):
        cluster.volume(name, node, size)
    cluster.volume("small", size="1Mi")
    assert prepare(cluster, pod).waits
    volume = cluster.api.read(paths.volume("fits"))
    assert volume["spec"]["claimRef"]["uid"] == "uid-data"
    assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert [claimed_by(cluster, name) for name in ("large", "far", "small")] == [None] * 3
    assert prepare(cluster, pod).waits
    assert cluster.wrote() == ["/api/v1/persistentvolumes/fits"]
    cluster.bind_volume(volume="fits")
    assert prepare(cluster, pod).ready


def test_a_volume_is_given_back_before_it_is_bound_and_not_after() -> None:
    """At the deadline."""
    cluster, pod = scene(NONE)
    cluster.volume("v1")
    cluster.prebind.undo(prepare(cluster, pod))
    volume = cluster.api.read(paths.volume("v1"))
    assert ("claimRef" in volume["spec"], volume["metadata"].get("annotations")) == (False, {})
    waiting = prepare(cluster, pod)
    cluster.bind_volume()
    cluster.prebind.undo(waiting)
    assert claimed_by(cluster, "v1") == "data"


def test_what_an_administrator_reserved_stays_reserved() -> None:
    """The volume names the claim, without its UID: it is taken, and not given back to everybody."""
    cluster, pod = scene(NONE)
    cluster.volume("v1", claimRef={"namespace": "team", "name": "data"})
    cluster.prebind.undo(prepare(cluster, pod))
    volume = cluster.api.read(paths.volume("v1"))
    assert (volume["spec"]["claimRef"]["uid"], volume["metadata"].get("annotations")) == ("uid-data", None)


def test_somebody_else_takes_the_volume_in_between() -> None:
    """Conflict: look again, and take the next one."""
    cluster, pod = scene(NONE)
    cluster.volume("a")
    cluster.volume("b")

    def take(_path: str) -> None:
        cluster.before_patch = lambda _path: None
        ref = {"namespace": "team", "name": "other", "uid": "other"}
        cluster.change(paths.volume("a"), {"spec": {"claimRef": ref}})

    cluster.before_patch = take
    assert prepare(cluster, pod).waits
    assert (claimed_by(cluster, "a"), claimed_by(cluster, "b")) == ("other", "data")


def test_two_claims_of_one_pod_get_two_volumes() -> None:
    """Or the pod goes back, and the one that it had is free again."""
    cluster, _ = scene(NONE)
    cluster.volume_claim("more")
    both = cluster.pod("p2", volumes=("data", "more"))
    cluster.volume("a")
    found = prepare(cluster, both)
    assert (found.waits, claimed_by(cluster, "a")) == (False, None)
    assert "no free volume of class late can be reached from node n1" in found.why
    cluster.volume("b")
    assert prepare(cluster, both).waits
    assert {claimed_by(cluster, "a"), claimed_by(cluster, "b")} == {"data", "more"}


def test_a_volume_taken_back_by_its_controller() -> None:
    """It was reserved for the claim and is not any more: the pod goes back."""
    cluster, pod = scene(NONE)
    cluster.volume("v1")
    assert prepare(cluster, pod).waits
    cluster.change(paths.volume("v1"), {"spec": {"claimRef": None}})
    found = prepare(cluster, pod)
    assert (found.waits, "volume v1 was taken back" in found.why) == (False, True)


@pytest.mark.parametrize(
    ("times", "waits"), [pytest.param(2, True, id="twice"), pytest.param(3, False, id="three times")]
)
def test_conflicts(times: int, waits: bool) -> None:
    """Read again, decide again, three times at most."""
    cluster, pod = scene()
    cluster.api.fail_next(request_to("PATCH", "/data"), Conflict("modified", code=409), times=times)
    found = prepare(cluster, pod)
    assert (found.waits, len(found.undo)) == (waits, int(waits))


def test_claims_are_taken_back_when_the_volume_fails() -> None:
    """A pod with both: the devices go back with it."""
    cluster, _ = scene(NONE)
    cluster.claim()
    spec: dict[str, Any] = {
        "schedulerName": "nodemend-scheduler",
        "resourceClaims": [{"name": "c1", "resourceClaimName": "c1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    cluster.add(paths.pods("team"), {"metadata": {"name": "both", "uid": "uid-both"}, "spec": spec})
    pod = cluster.pods.get("team/both")
    assert pod is not None
    bind = to_bind(task="team/both", c1="0")
    assert not cluster.prebind.prepare(bind, pod).ready
    assert (cluster.devices(), cluster.users()) == ([], [])
    cluster.volume("v1")
    waiting = cluster.prebind.prepare(bind, pod)
    assert (waiting.waits, cluster.users()) == (True, ["both"])
    cluster.bind_volume()
    cluster.wrote()
    assert cluster.prebind.prepare(bind, pod).ready
    assert cluster.wrote() == []


def test_an_ephemeral_volumes_claim() -> None:
    """Named for the pod, and waited for like any other."""
    cluster, _ = scene()
    spec = {"volumes": [{"name": "tmp", "ephemeral": {}}]}
    cluster.add(paths.pods("team"), {"metadata": {"name": "e", "uid": "uid-e"}, "spec": spec})
    pod = cluster.pods.get("team/e")
    assert pod is not None
    assert "is not there" in prepare(cluster, pod).why
    cluster.volume_claim("e-tmp")
    assert prepare(cluster, pod).waits
    assert cluster.selected("e-tmp") == "n1"
    assert cluster.api.names(VOLUME_CLAIMS) == ["data", "e-tmp"]
