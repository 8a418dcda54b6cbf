"""The scheduler's rights, tried under its own token: what it needs works, what it must not do fails by RBAC."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import yaml  # no stubs are pinned; only tests read YAML

from controller.scheduler.grouper.kinds import KINDS
from kube import paths
from kube.api import Forbidden, NotFound, PatchType
from kube.session import Session
from sandbox.cluster import Sandbox
from sandbox.install import MANIFESTS
from tests.manifests.deeds import REPAIRS, SYSTEM, Deed, create, delete, job, merge, named, session, strategic
from tests.manifests.verdicts import pod, pod_group, queue

NODE, POD = "sched-rbac-node", "sched-rbac-pod"
LEASE = paths.lease(SYSTEM, "nodemend-scheduler")
QUEUES = paths.collection("scheduling.run.ai", "v2", "queues")
GROUPS = paths.collection("scheduling.run.ai", "v2alpha2", "podgroups", "default")
CLAIMS = paths.collection("resource.k8s.io", "v1", "resourceclaims", "default")
CLAIM = paths.member(CLAIMS, "sched-rbac-claim")
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "no-such-pod"}}
BINDING = named("no-such-pod", "Binding", "v1", target={"apiVersion": "v1", "kind": "Node", "name": NODE})
ALLOCATED = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
RESERVED = {"resource": "pods", "name": POD, "uid": "u"}

READ = (
    ("", "v1", "nodes"),
    ("", "v1", "pods"),
    ("", "v1", "namespaces"),
    ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "persistentvolumes"),
    ("storage.k8s.io", "v1", "storageclasses"),
    ("storage.k8s.io", "v1", "csinodes"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("resource.k8s.io", "v1", "resourceclaims"),
    ("resource.k8s.io", "v1", "resourceslices"),
    ("resource.k8s.io", "v1", "deviceclasses"),
    ("nodemend.dev", "v1alpha1", "nodehealths"),
    ("nodemend.dev", "v1alpha1", "remediations"),
    ("nodemend.dev", "v1alpha1", "remediationpolicies"),
    ("scheduling.run.ai", "v2", "queues"),
    ("scheduling.run.ai", "v2alpha2", "podgroups"),
    ("kai.scheduler", "v1alpha1", "topologies"),
    ("apps", "v1", "deployments"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
)
WEBHOOKS = paths.collection("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")


def event(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "sched-rbac-event", "namespace": namespace},
        "regarding": {"kind": "Pod", "name": POD, "namespace": namespace, "apiVersion": "v1"},
        "reason": "Tested",
        "action": "Test",
        "type": "Normal",
        "note": "n",
        "eventTime": "2026-11-29T12:00:00.000000Z",
        "reportingController": "nodemend-scheduler",
        "reportingInstance": "i",
    }


def condition(type_: str) -> dict[str, Any]:
    return {
        "status": {"conditions": [{"type": type_, "status": "False", "reason": "Tested", "message": "m"}]}
    }


def watch(path: str) -> Deed:
    return lambda api: list(api.stream(path, {"watch": "1", "timeoutSeconds": "1"}, read_timeout_s=10))


@pytest.fixture(scope="module")
def scene(scheduled: Sandbox) -> Iterator[Sandbox]:
    """What there is to try the rights on."""
    admin = scheduled.admin
    admin.create(paths.nodes(), named(NODE, "Node", "v1"))
    admin.create(paths.pods("default"), pod(name=POD))
    admin.create(QUEUES, queue("sched-rbac", resources={"gpu": {"quota": 0, "limit": -1}}))
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    spec = {"devices": {"requests": [request]}}
    admin.create(CLAIMS, named("sched-rbac-claim", "ResourceClaim", "resource.k8s.io/v1", spec=spec))
    with suppress(NotFound):  # a scheduler that another test ran in the same sandbox left its Lease
        admin.delete(LEASE)
    yield scheduled
    admin.patch(f"{CLAIM}/status", {"status": {"allocation": None, "reservedFor": None}}, PatchType.MERGE)
    removed = [
        paths.node(NODE),
        paths.member(QUEUES, "sched-rbac"),
        paths.member(GROUPS, "sched-rbac"),
        CLAIM,
        LEASE,
        paths.member(paths.events("default"), "sched-rbac-event"),
        paths.member(paths.events("kube-system"), "sched-rbac-event"),
    ]
    for path in removed:
        with suppress(NotFound):
            admin.delete(path)
    admin.delete(paths.pod("default", POD), {"gracePeriodSeconds": 0})


@pytest.fixture(scope="module")
def scheduler(scene: Sandbox) -> Iterator[Session]:
    opened = session(scene, SYSTEM, "nodemend-scheduler")
    yield opened
    opened.close()


MAY: list[tuple[Deed, str]] = [
    (watch(paths.pods()), "watch pods"),
    (watch(QUEUES), "watch queues"),
    (lambda api: api.get(paths.leases(SYSTEM)), "read the agents' Leases"),
    (
        create(
            paths.leases(SYSTEM),
            named("nodemend-scheduler", "Lease", "coordination.k8s.io/v1", spec={"holderIdentity": "x"}),
        ),
        "make the leader Lease",
    ),
    (merge(LEASE, {"spec": {"holderIdentity": "y"}}), "renew the leader Lease"),
    (create(GROUPS, pod_group("sched-rbac", queue="q", minMember=1)), "make a PodGroup"),
    (merge(paths.member(GROUPS, "sched-rbac"), {"spec": {"queue": "r"}}), "move a PodGroup"),
    (merge(f"{paths.member(GROUPS, 'sched-rbac')}/status", {"status": {"pending": 1}}), "say how it stands"),
    (
        merge(f"{paths.member(QUEUES, 'sched-rbac')}/status", {"status": {"allocated": {"cpu": 1}}}),
        "count a queue",
    ),
    (
        merge(paths.pod("default", POD), {"metadata": {"labels": {"kai.scheduler/subgroup-name": "a"}}}),
        "name a pod's subgroup",
    ),
    (strategic(paths.pod_status("default", POD), condition("PodScheduled")), "say why a pod waits"),
    (strategic(paths.node_status(NODE), condition("PodStartFailing")), "say that pods fail on a node"),
    (
        merge(CLAIM, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}),
        "keep a claim that has devices",
    ),
    (
        merge(
            f"{CLAIM}/status",
            {"status": {"allocation": {"devices": {"results": [ALLOCATED]}}, "reservedFor": [RESERVED]}},
        ),
        "allocate devices, for which Kubernetes 1.37 asks for `binding`",
    ),
    (create(paths.events("default"), event("default")), "tell of a pod"),
    (create(paths.events("kube-system"), event("kube-system")), "tell of a pod elsewhere"),
]
MUST_NOT: list[tuple[Deed, str]] = [
    (delete(paths.pod("default", POD)), "delete a pod, which would pass by its disruption budget"),
    (create(paths.pods("default"), pod(name="p")), "make a pod"),
    (delete(paths.node(NODE)), "delete a Node"),
    (strategic(paths.node(NODE), {"spec": {"unschedulable": True}}), "cordon"),
    (create(QUEUES, queue("q", resources={})), "make a queue"),
    (merge(paths.member(QUEUES, "sched-rbac"), {"spec": {"priority": 1}}), "change a queue"),
    (delete(paths.member(QUEUES, "sched-rbac")), "delete a queue"),
    (delete(paths.member(GROUPS, "sched-rbac")), "delete a PodGroup"),
    (merge(paths.policy("default"), {"spec": {"mode": "Enforce"}}), "change a policy"),
    (merge(paths.node_health_status("n"), {"status": {"driver": "1"}}), "write an agent's report"),
    (
        merge(paths.lease(SYSTEM, "nodemend-controller"), {"spec": {"holderIdentity": "x"}}),
        "lead the repairs",
    ),
    (create(paths.jobs(REPAIRS), job("j")), "start a repair"),
    (lambda api: api.get("/api/v1/secrets"), "read Secrets"),
    (lambda api: api.get(paths.collection("", "v1", "configmaps")), "read ConfigMaps"),
    (watch(paths.collection("apps", "v1", "deployments")), "watch Deployments"),
    (
        merge(
            paths.member(paths.collection("apps", "v1", "deployments", SYSTEM), "d"),
            {"spec": {"replicas": 0}},
        ),
        "scale a Deployment, KAI's among them",
    ),
    (delete(paths.member(WEBHOOKS, "mutating-kai-admission")), "take KAI's webhooks away"),
    (lambda api: api.create(paths.token_request(SYSTEM, "nodemend-controller"), {}), "ask for a token"),
    (
        lambda api: api.create(f"{paths.pod('default', POD)}/exec?command=id", {}),
        "enter a pod",
    ),
]


@pytest.mark.parametrize("resource", [pytest.param(one, id=one[2]) for one in READ])
def test_the_scheduler_reads(scheduler: Session, resource: tuple[str, str, str]) -> None:
    """Whatever a decision depends on."""
    scheduler.get(paths.collection(*resource))


@pytest.mark.parametrize("deed", [pytest.param(deed, id=name) for deed, name in MAY])
def test_the_scheduler_may(scheduler: Session, deed: Deed) -> None:
    """Whatever a cycle writes works under its own token, past RBAC and the policies."""
    deed(scheduler)


@pytest.mark.parametrize("deed", [pytest.param(deed, id=name) for deed, name in MUST_NOT])
def test_the_scheduler_must_not(scheduler: Session, deed: Deed) -> None:
    """It binds and evicts, and is neither an administrator nor the controller."""
    with pytest.raises(Forbidden, match="cannot"):
        deed(scheduler)


def test_the_scheduler_binds_and_evicts_through_the_subresources(scheduler: Session) -> None:
    """The rights are there: the server looks for the pod and answers that there is none."""
    for deed in (
        create(f"{paths.pod('default', 'no-such-pod')}/binding", BINDING),
        create(paths.eviction("default", "no-such-pod"), EVICTION),
    ):
        with pytest.raises(NotFound):
            deed(scheduler)


def test_every_owner_that_the_grouper_knows_may_be_read() -> None:
    """One entry more in the grouper's table is one line more in the rights, and nothing but `get`."""
    documents = yaml.safe_load_all((MANIFESTS / "scheduler" / "rbac.yaml").read_text())
    (role,) = [
        one
        for one in documents
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "nodemend-scheduler-owners")
    ]
    readable = {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "get" in rule["verbs"]
    }
    owners = {(one.group, f"{one.kind.lower()}s") for one in KINDS}

    assert owners - {("", "pods")} - readable == set()
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= {"get", "list"}
