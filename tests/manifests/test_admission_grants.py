"""Who may say which GPU a pod was given, and what the scheduler may change of others' objects, on the real API server."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kube import paths
from kube.api import Api, Forbidden, NotFound, PatchType
from kube.session import Session
from sandbox.cluster import Sandbox
from tests.fakes import wait_until
from tests.manifests.admission import BINDINGS, may_all
from tests.manifests.deeds import SYSTEM, Deed, create, json_patch, merge, named, session, strategic
from tests.manifests.verdicts import KAI_BINDER, SCHEDULER_ACCOUNT, judged, pod

GRANT, RECEIVED, NUMA, GROUP = (
    "nodemend.dev/gpu-grant",
    "received-resource-type",
    "kai.scheduler/numa-placement-predicted",
    "pod-group-name",
)
NODE = "grant-node"
WAITING, BOUND = "grant-waiting", "grant-bound"
CLAIMS = paths.collection("resource.k8s.io", "v1", "resourceclaims", "default")
VOLUMES = paths.collection("", "v1", "persistentvolumes")
VOLUME_CLAIMS = paths.collection("", "v1", "persistentvolumeclaims", "default")
A_CLAIM, A_VOLUME, A_VOLUME_CLAIM = (
    paths.member(CLAIMS, "grant-claim"),
    paths.member(VOLUMES, "grant-volume"),
    paths.member(VOLUME_CLAIMS, "grant-volume"),
)
FIRST = {"metadata": {"annotations": {GRANT: "{}", RECEIVED: "Fraction", GROUP: "g"}}}


def binding(name: str, **annotations: str) -> dict[str, Any]:
    made = named(name, "Binding", "v1", target={"apiVersion": "v1", "kind": "Node", "name": NODE})
    made["metadata"]["annotations"] = annotations
    return made


def bind(name: str) -> str:
    return f"{paths.pod('default', name)}/binding"


@pytest.fixture(scope="module")
def scene(scheduled: Sandbox) -> Iterator[Sandbox]:
    """A Node, a pod that waits and one that was bound with a grant, a claim and a volume."""
    admin = scheduled.admin
    condition = {"type": "GpuXidError", "status": "False", "reason": "NoXid", "message": "m"}
    admin.create(paths.nodes(), named(NODE, "Node", "v1", status={"conditions": [condition]}))
    for name in (WAITING, BOUND):
        admin.create(paths.pods("default"), pod(name=name))
    scheduler = session(scheduled, SYSTEM, "nodemend-scheduler")
    scheduler.create(bind(BOUND), binding(BOUND, **{GRANT: "{}", RECEIVED: "Fraction", GROUP: "g"}))
    scheduler.close()
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    admin.create(
        CLAIMS,
        named(
            "grant-claim",
            "ResourceClaim",
            "resource.k8s.io/v1",
            spec={"devices": {"requests": [request]}},
        ),
    )
    size = {"storage": "1Gi"}
    modes = ["ReadWriteOnce"]
    admin.create(
        VOLUMES,
        named(
            "grant-volume",
            "PersistentVolume",
            "v1",
            spec={
                "capacity": size,
                "accessModes": modes,
                "hostPath": {"path": "/x"},
                "storageClassName": "s",
            },
        ),
    )
    claim = {"accessModes": modes, "storageClassName": "none", "resources": {"requests": size}}
    admin.create(VOLUME_CLAIMS, named("grant-volume", "PersistentVolumeClaim", "v1", spec=claim))
    yield scheduled
    for path in (
        paths.node(NODE),
        A_CLAIM,
        A_VOLUME,
        A_VOLUME_CLAIM,
    ):
        with suppress(NotFound):
            admin.delete(path)
    for name in (WAITING, BOUND):
        with suppress(NotFound):
            admin.delete(paths.pod("default", name), {"gracePeriodSeconds": 0})


def test_a_grant_in_the_schedulers_binding_becomes_the_pods(scene: Sandbox) -> None:
    """One request binds and grants."""
    shown = scene.kubectl("get", "pod", BOUND, "-o", "jsonpath={.spec.nodeName} {.metadata.annotations}")

    assert shown.startswith(f"{NODE} ")
    assert f'"{GRANT}":"{{}}"' in shown


FORGED: list[tuple[Deed, str]] = [
    (create(paths.pods("default"), pod({GRANT: "{}"}, name="forged")), "a pod made with a grant"),
    (merge(paths.pod("default", WAITING), {"metadata": {"annotations": {GRANT: "{}"}}}), "a grant added"),
    (merge(paths.pod("default", BOUND), {"metadata": {"annotations": {GRANT: "more"}}}), "a grant changed"),
    (merge(paths.pod("default", BOUND), {"metadata": {"annotations": {GRANT: None}}}), "a grant taken away"),
    (
        merge(paths.pod_status("default", BOUND), {"metadata": {"annotations": {GRANT: "more"}}}),
        "a grant changed through the status",
    ),
    (create(bind(WAITING), binding(WAITING, **{GRANT: "{}"})), "a grant in another's Binding"),
    (
        create("/api/v1/namespaces/default/bindings", binding(WAITING, **{GRANT: "{}"})),
        "a grant in a Binding of the old sort",
    ),
]


@pytest.mark.parametrize("deed", [pytest.param(deed, id=name) for deed, name in FORGED])
def test_nobody_else_writes_a_grant(scene: Sandbox, deed: Deed) -> None:
    """Not even a cluster's administrator: the node believes what it says."""
    with pytest.raises(Forbidden, match="only nodemend-scheduler writes it, not sandbox-admin; leave it out"):
        deed(scene.admin)


def test_a_pod_that_has_a_grant_lives_on(scene: Sandbox) -> None:
    """Everybody else goes on writing what is his own."""
    at = paths.pod("default", BOUND)
    scene.admin.patch(at, {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE)
    scene.admin.patch(f"{at}/status", {"status": {"phase": "Running"}}, PatchType.MERGE)


@pytest.mark.parametrize(
    ("body", "verb", "words"),
    [
        pytest.param(pod({RECEIVED: "Regular"}), "create", f"annotation {RECEIVED} says", id="what it got"),
        pytest.param(pod({NUMA: "[]"}), "create", f"annotation {NUMA} says", id="where in the machine"),
        pytest.param(
            pod(labels={"runai-gpu-group": "x"}), "create", "label runai-gpu-group says", id="a group"
        ),
        pytest.param(
            pod(labels={"runai-gpu-group/x": "x"}), "create", "label runai-gpu-group", id="of several groups"
        ),
        pytest.param(
            pod({GRANT: "{}", RECEIVED: "Fraction", GROUP: "another"}, name=BOUND),
            "apply",
            "annotation pod-group-name is g on a pod that was bound",
            id="another group for a pod that runs",
        ),
    ],
)
def test_marks_that_kai_writes_too_are_warned_of(
    scene: Sandbox, body: dict[str, Any], verb: str, words: str
) -> None:
    """KAI Scheduler lets anybody write them; its own accounts and our scheduler hear nothing."""
    if verb == "apply":
        body["spec"] |= {"nodeName": NODE}
    by_anybody = judged(scene, body, verb)

    assert by_anybody.taken
    assert words in by_anybody.words
    for account in (SCHEDULER_ACCOUNT, KAI_BINDER):
        theirs = judged(scene, body, verb, account) if GRANT not in str(body) else None
        assert theirs is None or (theirs.taken, theirs.words) == (True, "")


def test_a_pod_may_be_given_its_group_until_it_is_bound(scene: Sandbox) -> None:
    """KAI's pod grouper writes it after the pod is made, and so may a workload's own controller."""
    assert judged(scene, pod({GROUP: "g"})).words == ""


@pytest.fixture(scope="module")
def scheduler(scene: Sandbox) -> Iterator[Session]:
    """The scheduler's account, which RBAC hinders nowhere while these tests run."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    account = {"kind": "ServiceAccount", "name": "nodemend-scheduler", "namespace": SYSTEM}
    scene.admin.create(
        BINDINGS,
        named(
            "adm-scheduler",
            "ClusterRoleBinding",
            "rbac.authorization.k8s.io/v1",
            roleRef=role,
            subjects=[account],
        ),
    )
    opened = session(scene, SYSTEM, "nodemend-scheduler")
    wait_until(lambda: may_all(opened), 30)
    yield opened
    opened.close()
    scene.admin.delete(f"{BINDINGS}/adm-scheduler")


def marks(**annotations: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


def condition(type_: str, **fields: str) -> dict[str, Any]:
    entry = {"type": type_, "status": "True", "reason": "Seen", "message": "m", **fields}
    return {"status": {"conditions": [entry]}}


POD, STATUS = paths.pod("default", WAITING), paths.pod_status("default", WAITING)
OWN: list[tuple[Deed, str]] = [
    (merge(POD, {"metadata": {"labels": {"kai.scheduler/subgroup-name": "a"}}}), "the subgroup of a pod"),
    (merge(POD, marks(**{RECEIVED: "Regular", GROUP: "g"})), "what a pod got"),
    (strategic(STATUS, condition("PodScheduled", status="False")), "why a pod waits"),
    (merge(STATUS, {"status": {"nominatedNodeName": NODE}}), "where a pod is expected"),
    (strategic(paths.node_status(NODE), condition("PodStartFailing")), "that pods fail to start on a node"),
    (merge(A_VOLUME_CLAIM, marks(**{"volume.kubernetes.io/selected-node": NODE})), "a node for a volume"),
    (
        merge(
            A_VOLUME,
            {
                **marks(**{"pv.kubernetes.io/bound-by-controller": "yes"}),
                "spec": {"claimRef": {"namespace": "default", "name": "grant-volume"}},
            },
        ),
        "a claim for a volume",
    ),
    (
        merge(A_CLAIM, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}),
        "that a claim has devices",
    ),
]
OTHERS: list[tuple[Deed, str, str]] = [
    (
        json_patch(POD, {"op": "replace", "path": "/spec/containers/0/image", "value": "evil:1"}),
        "nothing of a spec",
        "another image",
    ),
    (merge(POD, {"spec": {"activeDeadlineSeconds": 1}}), "nothing of a spec", "the end of a pod"),
    (
        merge(POD, {"metadata": {"finalizers": ["a.b/c"]}}),
        "labels and annotations, nothing else",
        "a finalizer",
    ),
    (merge(POD, marks(**{"kubernetes.io/config": "x"})), "its own marks alone", "an annotation of others"),
    (merge(POD, {"metadata": {"labels": {"app": "x"}}}), "its own marks alone", "a label of others"),
    (merge(STATUS, {"status": {"phase": "Failed"}}), "nominatedNodeName", "the phase of a pod"),
    (merge(STATUS, {"status": {"podIP": "10.0.0.1"}}), "nominatedNodeName", "a pod's address"),
    (strategic(STATUS, condition("Ready")), "PodScheduled and DisruptionTarget", "that a pod is ready"),
    (
        strategic(paths.node_status(NODE), condition("GpuXidError")),
        "the condition PodStartFailing",
        "an agent's condition",
    ),
    (
        merge(paths.node_status(NODE), {"status": {"capacity": {"nvidia.com/gpu": "9"}}}),
        "the condition PodStartFailing",
        "the capacity of a node",
    ),
    (
        strategic(paths.node_status(NODE), condition("PodStartFailing", reason="a b")),
        "one CamelCase word",
        "a reason with a blank",
    ),
    (strategic(paths.node(NODE), {"spec": {"unschedulable": True}}), "the status of a Node", "a cordon"),
    (lambda api: api.delete(paths.node(NODE)), "the status of a Node", "the end of a node"),
    (
        merge(paths.node_status(NODE), {"metadata": {"labels": {"a": "b"}}}),
        "no label",
        "a label through the status",
    ),
    (merge(A_VOLUME_CLAIM, marks(a="b")), "its own marks alone", "an annotation of a volume claim"),
    (
        merge(A_VOLUME_CLAIM, {"spec": {"volumeName": "another"}}),
        "nothing of a spec",
        "the volume of a volume claim",
    ),
    (
        merge(A_VOLUME, {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}}),
        "nothing of a spec",
        "what becomes of a volume",
    ),
    (
        merge(A_CLAIM, {"metadata": {"finalizers": ["a.b/c"]}}),
        "one finalizer",
        "another finalizer",
    ),
    (merge(A_CLAIM, marks(a="b")), "finalizers, nothing else", "an annotation of a claim of devices"),
]


@pytest.mark.parametrize("deed", [pytest.param(deed, id=name) for deed, name in OWN])
def test_the_scheduler_writes(scheduler: Session, deed: Deed) -> None:
    """What it decides stands where others look for it."""
    deed(scheduler)


@pytest.mark.parametrize(
    ("deed", "words"), [pytest.param(deed, words, id=name) for deed, words, name in OTHERS]
)
def test_the_scheduler_is_refused(scheduler: Api, deed: Deed, words: str) -> None:
    """Whatever its RBAC were, it changes nothing of others."""
    with pytest.raises(Forbidden, match="ValidatingAdmissionPolicy 'nodemend-scheduler-") as refused:
        deed(scheduler)

    assert words in str(refused.value)
