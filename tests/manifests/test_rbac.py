"""Rights, tried by doing things under the ServiceAccounts' own tokens: what is needed works, what must not be done fails."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kube import paths
from kube.api import ApiError, Forbidden, NotFound, PatchType
from kube.session import Session
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from tests.fakes import wait_until
from tests.manifests.deeds import REPAIRS, SYSTEM, Deed, job, merge, named, owned_by, session, strategic

NODE = "rbac-node"
LEADER = paths.lease(SYSTEM, "nodemend-controller")
OTHER_LEASE = paths.lease(SYSTEM, NODE)
KUBE_SYSTEM_POD = paths.pod("kube-system", "no-such-pod")


def lease(name: str) -> dict[str, Any]:
    return named(name, "Lease", "coordination.k8s.io/v1", spec={"holderIdentity": "test"})


CONDITION = {
    "status": {"conditions": [{"type": "GpuXidError", "status": "False", "reason": "NoXid", "message": "m"}]}
}
CORDON = {"spec": {"unschedulable": True}}
ANNOTATE = {"metadata": {"annotations": {"nodemend.dev/test": "x"}}}
HEALTH = named(NODE, "NodeHealth", "nodemend.dev/v1alpha1")
STORY = named(
    "inc-000000000001",
    "Remediation",
    "nodemend.dev/v1alpha1",
    spec={
        "nodeName": NODE,
        "nodeUID": "u",
        "policy": "default",
        "openedAt": "2026-11-29T12:00:00Z",
        "evidence": [
            {
                "condition": "GpuXidError",
                "reason": "Xid79FallenOffBus",
                "severity": "Fault",
                "effect": "node-out",
                "urgency": "now",
                "action": "REBOOT",
                "part": {"kind": "gpu"},
                "firstSeen": "2026-11-29T12:00:00Z",
                "lastSeen": "2026-11-29T12:00:00Z",
            }
        ],
    },
)
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "no-such-pod"}}
EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "rbac-event", "namespace": "default"},
    "regarding": {"kind": "Node", "name": NODE, "apiVersion": "v1"},
    "reason": "Tested",
    "action": "Test",
    "type": "Normal",
    "note": "n",
    "eventTime": "2026-11-29T12:00:00.000000Z",
    "reportingController": "nodemend-controller",
    "reportingInstance": "i",
}

WARNING = {
    **EVENT,
    "metadata": {"name": "rbac-warning"},
    "type": "Warning",
    "reportingController": "nodemend.dev/agent",
    "reportingInstance": NODE,
}
SEEN_AGAIN = {"series": {"count": 2, "lastObservedTime": "2026-11-29T12:10:00.000000Z"}}
EVENT_ELSEWHERE = {**EVENT, "metadata": {"name": "rbac-event", "namespace": "kube-system"}}


@pytest.fixture(scope="module")
def scene(installed: Sandbox) -> Iterator[Sandbox]:
    """A Node, a NodeHealth, a Remediation, a Lease of an agent and the leader's, to act upon."""
    admin = installed.admin
    admin.create(paths.nodes(), named(NODE, "Node", "v1"))
    admin.create(paths.node_healths(), HEALTH)
    admin.create(paths.remediations(), STORY)
    with suppress(NotFound):  # a controller that another test ran in the same sandbox left its Lease
        admin.delete(paths.lease(SYSTEM, "nodemend-controller"))
    for name in (NODE, "nodemend-controller"):
        admin.create(paths.leases(SYSTEM), lease(name))
    yield installed
    removed = [
        paths.node(NODE),
        paths.node_health(NODE),
        paths.remediation("inc-000000000001"),
        OTHER_LEASE,
        LEADER,
        paths.job(REPAIRS, "rbac-job"),
        f"{paths.events('default')}/rbac-event",
    ]
    for path in removed:
        try:
            admin.delete(path)
        except NotFound:
            continue


@pytest.fixture(scope="module")
def agent(scene: Sandbox) -> Iterator[Session]:
    identities = AgentIdentities(scene)
    yield identities.of(NODE)
    identities.close()


@pytest.fixture(scope="module")
def controller(scene: Sandbox) -> Iterator[Session]:
    opened = session(scene, SYSTEM, "nodemend-controller")
    yield opened
    opened.close()


def watch(path: str) -> Deed:
    return lambda api: list(api.stream(path, {"watch": "1", "timeoutSeconds": "1"}, read_timeout_s=10))


AGENT_MAY: list[tuple[Deed, str]] = [
    (lambda api: api.get(paths.node(NODE)), "read its Node"),
    (watch(paths.nodes()), "watch its Node"),
    (strategic(paths.node_status(NODE), CONDITION), "publish its conditions"),
    (lambda api: api.get(paths.node_healths()), "list NodeHealths"),
    (watch(paths.node_healths()), "watch its NodeHealth"),
    (merge(paths.node_health_status(NODE), {"status": {"driver": "1"}}), "report its status"),
    (merge(OTHER_LEASE, {"metadata": owned_by(NODE), "spec": {"holderIdentity": NODE}}), "renew its Lease"),
    (lambda api: api.create(paths.events("default"), WARNING), "tell of a warning"),
    (merge(paths.member(paths.events("default"), "rbac-warning"), SEEN_AGAIN), "count it again"),
]
AGENT_MUST_NOT: list[tuple[Deed, str]] = [
    (strategic(paths.node(NODE), CORDON), "cordon"),
    (lambda api: api.delete(paths.node(NODE)), "delete a Node"),
    (lambda api: api.get(paths.pods()), "list pods"),
    (lambda api: api.create(paths.eviction("default", "p"), EVICTION), "evict"),
    (lambda api: api.delete(paths.node_health(NODE)), "delete a NodeHealth"),
    (merge(paths.node_health(NODE), {"spec": {"clearedBy": "x"}}), "clear evidence as a person or a repair"),
    (lambda api: api.get(paths.remediations()), "read Remediations"),
    (lambda api: api.get(paths.policies()), "read policies"),
    (lambda api: api.create(paths.jobs(REPAIRS), job("j")), "start a repair"),
    (lambda api: api.get(paths.leases("kube-node-lease")), "read the kubelets' Leases"),
    (lambda api: api.get("/api/v1/secrets"), "read secrets"),
    (lambda api: api.get(paths.events("default")), "read events"),
    (lambda api: api.create(paths.events(SYSTEM), WARNING), "tell of it elsewhere"),
]
CONTROLLER_MAY: list[tuple[Deed, str]] = [
    (lambda api: api.get(paths.nodes()), "list Nodes"),
    (watch(paths.nodes()), "watch Nodes"),
    (lambda api: api.get(paths.pods()), "list pods"),
    (lambda api: api.get(paths.daemonsets()), "list DaemonSets"),
    (strategic(paths.node(NODE), CORDON), "cordon"),
    (strategic(paths.node_status(NODE), CONDITION), "turn a silent agent's condition Unknown"),
    (merge(paths.node_health(NODE), {"spec": {"clearedBy": "x"}}), "clear evidence"),
    (lambda api: api.create(paths.jobs(REPAIRS), job("rbac-job", suspend=True)), "start a repair"),
    (lambda api: api.get(paths.jobs(REPAIRS)), "list repairs"),
    (lambda api: api.delete(paths.job(REPAIRS, "rbac-job")), "call back a repair that has not begun"),
    (lambda api: api.get(paths.remediations()), "list Remediations"),
    (merge(paths.remediation_status("inc-000000000001"), {"status": {"message": "m"}}), "save a Remediation"),
    (merge(paths.policy_status("default"), {"status": {"problems": []}}), "save a policy's status"),
    (lambda api: api.get(paths.leases(SYSTEM)), "read the agents' Leases"),
    (merge(LEADER, {"spec": {"holderIdentity": "x"}}), "renew the leader Lease"),
    (lambda api: api.create(paths.events("default"), EVENT), "write an event"),
    (lambda api: api.delete(paths.remediation("inc-000000000001")), "delete an old Remediation"),
    (lambda api: api.create(paths.remediations(), STORY), "open a Remediation"),
]
CONTROLLER_MUST_NOT: list[tuple[Deed, str]] = [
    (lambda api: api.delete(KUBE_SYSTEM_POD), "delete a pod, which would pass by its disruption budget"),
    (lambda api: api.delete(paths.node(NODE)), "delete a Node"),
    (lambda api: api.create(paths.jobs("default"), job("j")), "start a Job elsewhere"),
    (lambda api: api.get(paths.jobs("default")), "read Jobs elsewhere"),
    (lambda api: api.delete(paths.job("default", "no-such-job")), "delete a Job elsewhere"),
    (merge(OTHER_LEASE, {"spec": {"holderIdentity": "x"}}), "renew an agent's Lease"),
    (merge(paths.policy("default"), {"spec": {"mode": "Enforce"}}), "change a policy"),
    (merge(paths.remediation("inc-000000000001"), ANNOTATE), "answer its own incident as a person"),
    (merge(paths.node_health_status(NODE), {"status": {"driver": "1"}}), "write an agent's report"),
    (lambda api: api.create(paths.node_healths(), HEALTH), "make up a NodeHealth"),
    (lambda api: api.create(paths.pods(REPAIRS), named("p", "Pod", "v1")), "start a pod by itself"),
    (lambda api: api.create(paths.events("kube-system"), EVENT_ELSEWHERE), "write an event elsewhere"),
    (lambda api: api.get("/api/v1/secrets"), "read secrets"),
    (lambda api: api.create(paths.token_request(REPAIRS, "nodemend-repair"), {}), "ask for a token"),
]


def table(rows: list[tuple[Deed, str]]) -> list[Any]:
    return [pytest.param(deed, id=name) for deed, name in rows]


@pytest.mark.parametrize("deed", table(AGENT_MAY))
def test_the_agent_may(agent: Session, deed: Deed) -> None:
    """Whatever it needs on its node works under its own token."""
    deed(agent)


@pytest.mark.parametrize("deed", table(AGENT_MUST_NOT))
def test_the_agent_must_not(agent: Session, deed: Deed) -> None:
    """An agent that was taken over can neither cordon, nor evict, nor repair, nor look around."""
    with pytest.raises(Forbidden):
        deed(agent)


@pytest.mark.parametrize("deed", table(CONTROLLER_MAY))
def test_the_controller_may(controller: Session, deed: Deed) -> None:
    """Whatever its steps need works under its own token."""
    deed(controller)


@pytest.mark.parametrize("deed", table(CONTROLLER_MUST_NOT))
def test_the_controller_must_not(controller: Session, deed: Deed) -> None:
    """It evicts and never deletes, repairs only through Jobs in its own namespace, and cannot change its own orders."""
    with pytest.raises(Forbidden):
        deed(controller)


def test_the_controller_evicts_through_the_eviction_api(controller: Session) -> None:
    """The right is there: the server looks for the pod and answers that there is none."""
    with pytest.raises(NotFound):
        controller.create(paths.eviction("default", "no-such-pod"), EVICTION)


def test_the_repair_account_may_nothing(scene: Sandbox) -> None:
    """Its token, had a pod one, would open nothing: not even what stands in its own namespace."""
    repair = session(scene, REPAIRS, "nodemend-repair")
    deeds: list[Deed] = [
        lambda api: api.get(paths.node(NODE)),
        lambda api: api.get(paths.pods(REPAIRS)),
        lambda api: api.get(paths.jobs(REPAIRS)),
        lambda api: api.get(paths.remediations()),
        lambda api: api.get(f"/api/v1/namespaces/{REPAIRS}/secrets"),
    ]
    try:
        for deed in deeds:
            with pytest.raises(Forbidden):
                deed(repair)
    finally:
        repair.close()


def test_a_pod_of_a_repair_gets_no_token(scene: Sandbox, controller: Session) -> None:
    """No volume with a token is put into a pod that runs as the repair account."""
    controller.create(paths.jobs(REPAIRS), job("rbac-pod"))
    query = {"labelSelector": "batch.kubernetes.io/job-name=rbac-pod"}
    wait_until(lambda: bool(msgspec.json.decode(scene.admin.get(paths.pods(REPAIRS), query))["items"]), 30)
    (made,) = msgspec.json.decode(scene.admin.get(paths.pods(REPAIRS), query))["items"]
    controller.delete(paths.job(REPAIRS, "rbac-pod"), {"propagationPolicy": "Background"})

    assert "volumes" not in made["spec"]


LOOKED_AT = (
    ("", "v1", "pods"),
    ("", "v1", "namespaces"),
    ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "persistentvolumes"),
    ("storage.k8s.io", "v1", "storageclasses"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    ("resource.k8s.io", "v1", "resourceclaims"),
    ("resource.k8s.io", "v1", "resourceslices"),
    ("resource.k8s.io", "v1", "deviceclasses"),
    ("apps", "v1", "replicasets"),
    ("batch", "v1", "jobs"),
)
"""What `queues`, `why`, `gpus` and `simulate` read of Kubernetes itself."""


def test_a_person_with_the_operator_role_may_answer_incidents_and_nothing_else(scene: Sandbox) -> None:
    """`repaired` and `cancel` work; changing a policy, cordoning or evicting needs other rights."""
    admin = scene.admin
    binding = named(
        "rbac-operator",
        "ClusterRoleBinding",
        "rbac.authorization.k8s.io/v1",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodemend-operator"},
        subjects=[{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    )
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    admin.create(bindings, binding)
    person = session(scene, "default", "default")
    story = paths.remediation("inc-000000000001")
    try:
        for path in (paths.nodes(), paths.node_healths(), paths.remediations(), paths.policies()):
            person.get(path)
        for group, version, plural in LOOKED_AT:
            person.get(paths.collection(group, version, plural))
        person.patch(story, ANNOTATE, PatchType.MERGE)
        for refused in (
            merge(paths.remediation_status("inc-000000000001"), {"status": {"phase": "Returned"}}),
            merge(paths.policy("default"), {"spec": {"mode": "Enforce"}}),
            strategic(paths.node(NODE), CORDON),
            merge(paths.node_health(NODE), ANNOTATE),
        ):
            with pytest.raises(Forbidden):
                refused(person)
    finally:
        admin.delete(f"{bindings}/rbac-operator")
        person.close()


def test_every_refusal_here_is_rbacs(agent: Session) -> None:
    """The words name the account and the right, so that an admission policy is not mistaken for RBAC."""
    with pytest.raises(ApiError, match=r"nodemend-agent.*cannot list resource"):
        agent.get(paths.pods())
