"""The admission policies for agents on the real API server, for an account that RBAC hinders nowhere.

The agents' account is bound to cluster-admin while these tests run, so that each refusal is the policy's own and what RBAC
withholds already is withheld twice. The tokens are real ones, bound to Nodes.
"""

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # no stubs are pinned; only tests read YAML

from agent.record import new_object
from checks.check import discover
from kube import paths
from kube.api import Api, ApiError, Forbidden, PatchType
from kube.session import Session
from kube.types import Node
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from tests.manifests.admission import (
    FOREIGN,
    LEADER,
    LEASES,
    OTHER,
    OWN,
    condition,
    join,
    lease,
    refusal,
    table,
)
from tests.manifests.deeds import SYSTEM, Deed, create, delete, json_patch, merge, named, owned_by, strategic

ABSENT = "adm-absent"
POLICIES = Path(__file__).parents[2] / "manifests" / "base" / "admission-agent.yaml"
NODE_POLICY, HEALTH_POLICY, LEASE_POLICY = (
    f"nodemend-agent-{subject}" for subject in ("node", "node-health", "lease")
)


def labelled(thing: dict[str, Any]) -> dict[str, Any]:
    return {**thing, "metadata": {**thing["metadata"], "labels": {"a": "b"}}}


OURS = condition("GpuXidError")
MINE, MINE_STATUS = paths.node(OWN), paths.node_status(OWN)
MY_HEALTH, MY_HEALTH_STATUS = paths.node_health(OWN), paths.node_health_status(OWN)
MY_LEASE = paths.lease(SYSTEM, OWN)
REPORT = {"status": {"driver": "580.95.05", "publishedConditions": ["GpuXidError"]}}
RENEWAL = {"metadata": owned_by(OWN), "spec": {"holderIdentity": OWN, "leaseDurationSeconds": 90}}
TWICE = {"op": "add", "path": "/status/conditions/-", "value": OURS["status"]["conditions"][0]}
GONE = {"status": {"conditions": [{"$patch": "delete", "type": FOREIGN[7]}]}}
NEW = new_object(ABSENT, "u")

ON_ITS_NODE: list[tuple[Deed, str, str]] = [
    (strategic(paths.node_status(OTHER), OURS), "its own Node only", "another node's status"),
    (strategic(MINE_STATUS, {"metadata": {"labels": {"a": "b"}}}), "no label", "a label through the status"),
    (strategic(MINE_STATUS, {"metadata": {"labels": {"l1": None}}}), "no label", "taking a label away"),
    (strategic(MINE_STATUS, {"metadata": {"annotations": {"a": "b"}}}), "no label", "an annotation"),
    (strategic(MINE_STATUS, {"metadata": {"finalizers": ["a.b/c"]}}), "no label", "a finalizer"),
    (strategic(MINE, {"metadata": {"labels": {"a": "b"}}}), "the status of its Node", "a label"),
    (strategic(MINE, {"spec": {"unschedulable": True}}), "the status of its Node", "a cordon"),
    (delete(MINE), "the status of its Node", "deleting its Node"),
    (create(paths.nodes(), named(ABSENT, "Node", "v1")), "the status of its Node", "making a Node"),
    (strategic(MINE_STATUS, condition("Mine")), "its own types: Gpu", "a foreign condition, added"),
    (
        strategic(MINE_STATUS, condition(FOREIGN[3], status="True")),
        "its own types",
        "a foreign condition, changed",
    ),
    (strategic(MINE_STATUS, condition("Ready", status="True")), "its own types", "the kubelet's condition"),
    (strategic(MINE_STATUS, GONE), "its own types", "a foreign condition, deleted"),
    (merge(MINE_STATUS, OURS), "its own types", "all foreign conditions, by a list of its own"),
    (json_patch(MINE_STATUS, TWICE, TWICE), "stands once", "a condition of its own, twice"),
    (strategic(MINE_STATUS, condition("GpuXidError", status="Maybe")), "its status is", "a fourth status"),
    (strategic(MINE_STATUS, condition("GpuXidError", reason="a b")), "CamelCase", "a reason with a blank"),
    (strategic(MINE_STATUS, condition("GpuXidError", message="m" * 1025)), "1024", "a message too long"),
]
ON_ITS_HEALTH: list[tuple[Deed, str, str]] = [
    (merge(paths.node_health_status(OTHER), REPORT), "its own NodeHealth only", "another node's NodeHealth"),
    (create(paths.node_healths(), NEW), "its own NodeHealth only", "making another node's NodeHealth"),
    (
        merge(MY_HEALTH, {"spec": {"clearedBy": "me"}}),
        "the rest is the controller's",
        "clearing its evidence",
    ),
    (merge(MY_HEALTH, {"metadata": {"labels": {"a": "b"}}}), "the rest is the controller's", "labelling it"),
    (delete(MY_HEALTH), "the rest is the controller's", "deleting its NodeHealth"),
    (
        merge(MY_HEALTH_STATUS, {"status": {"publishedConditions": ["GpuXidError", FOREIGN[3]]}}),
        "of its own types: Gpu",
        "claiming a foreign condition, which the controller would turn Unknown for it",
    ),
]
BORN_WRONG: list[tuple[dict[str, Any], str]] = [
    ({**NEW, "spec": {"clearedBy": "me"}}, "a NodeHealth that begins with a spec"),
    (labelled(NEW), "a NodeHealth that begins with a label"),
    (named(ABSENT, "NodeHealth", "nodemend.dev/v1alpha1"), "a NodeHealth without owner"),
    ({**NEW, "metadata": {"name": ABSENT, **owned_by(OTHER)}}, "a NodeHealth that another Node owns"),
]
ON_ITS_LEASE: list[tuple[Deed, str, str]] = [
    (merge(paths.lease(SYSTEM, OTHER), RENEWAL), "its own Lease", "another node's Lease"),
    (create(LEASES, lease(ABSENT)), "its own Lease", "making another node's Lease"),
    (
        merge(paths.lease(SYSTEM, LEADER), {"spec": {"holderIdentity": OWN}}),
        "its own Lease",
        "the leader's Lease",
    ),
    (create(paths.leases("default"), lease(OWN)), "nodemend-system only", "a Lease elsewhere"),
    (merge(MY_LEASE, {"spec": {"holderIdentity": OTHER}}), "held by its node", "holding it for another"),
    (merge(MY_LEASE, {"metadata": owned_by(OTHER)}), "owned by its Node", "giving it to another Node"),
    (merge(MY_LEASE, {"metadata": {"labels": {"a": "b"}}}), "no label", "labelling its Lease"),
    (delete(MY_LEASE), "deletes no Lease", "deleting its Lease"),
]


@pytest.fixture(scope="module")
def agent(agents: AgentIdentities) -> Session:
    return agents.of(OWN)


@pytest.mark.parametrize(
    ("policy", "deed", "words"),
    [
        *table(ON_ITS_NODE, NODE_POLICY),
        *table(ON_ITS_HEALTH, HEALTH_POLICY),
        *table(ON_ITS_LEASE, LEASE_POLICY),
    ],
)
def test_an_agent_is_refused(agent: Session, policy: str, deed: Deed, words: str) -> None:
    """Whatever its RBAC were, it writes on its own node, and there its own."""
    assert words in refusal(agent, deed, policy)


@pytest.mark.parametrize(("body", "why"), [pytest.param(*row, id=row[1]) for row in BORN_WRONG])
def test_a_node_health_is_born_empty_and_owned(
    agents: AgentIdentities, installed: Sandbox, body: dict[str, Any], why: str
) -> None:
    """Its node's name alone is not enough: what an agent makes must go with its Node and say nothing for the controller."""
    installed.admin.create(paths.nodes(), named(ABSENT, "Node", "v1"))
    try:
        words = refusal(agents.of(ABSENT), create(paths.node_healths(), body), HEALTH_POLICY)
    finally:
        installed.admin.delete(paths.node(ABSENT))

    assert "owned by its Node alone" in words, why


@pytest.mark.parametrize(
    ("policy", "deed"),
    [
        pytest.param(NODE_POLICY, strategic(MINE_STATUS, OURS), id="conditions"),
        pytest.param(HEALTH_POLICY, merge(MY_HEALTH_STATUS, REPORT), id="NodeHealth"),
        pytest.param(HEALTH_POLICY, create(paths.node_healths(), NEW), id="a new NodeHealth"),
        pytest.param(LEASE_POLICY, merge(MY_LEASE, RENEWAL), id="the Lease"),
        pytest.param(LEASE_POLICY, delete(MY_LEASE), id="the end of a Lease"),
    ],
)
def test_a_token_without_a_node_writes_nothing(agents: AgentIdentities, policy: str, deed: Deed) -> None:
    """A token that was asked for by hand, bound to no pod and no node, is nobody's."""
    assert "carries no node" in refusal(agents.shared, deed, policy)


def test_the_leaders_lease_is_out_of_reach_for_every_node(agents: AgentIdentities) -> None:
    """Also for the agent of a Node that somebody named as the Lease."""
    words = refusal(agents.of(LEADER), create(LEASES, lease(LEADER)), LEASE_POLICY)

    assert "is the leader's" in words


STATUS_FIELDS: dict[str, Any] = {
    "addresses": [{"type": "InternalIP", "address": "10.9.9.9"}],
    "allocatable": {"nvidia.com/gpu": "16"},
    "capacity": {"nvidia.com/gpu": "16"},
    "config": {"error": "e"},
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 9999}},
    "declaredFeatures": ["Feature"],
    "features": {"supplementalGroupsPolicy": True},
    "images": [{"names": ["evil:1"], "sizeBytes": 1}],
    "nodeInfo": {"bootID": "another"},
    "phase": "Terminated",
    "runtimeHandlers": [{"name": "r", "features": {"userNamespaces": True}}],
    "volumesAttached": [{"name": "v", "devicePath": "/dev/v"}],
    "volumesInUse": ["v"],
}


def test_the_policy_is_tried_with_every_field_that_a_node_status_has(installed: Sandbox) -> None:
    """A Kubernetes that adds a field to Node.status fails here, until that field is tried below like the others."""
    openapi = msgspec.json.decode(installed.admin.get("/openapi/v3/api/v1"))
    served = openapi["components"]["schemas"]["io.k8s.api.core.v1.NodeStatus"]["properties"]

    assert sorted(served) == sorted([*STATUS_FIELDS, "conditions"])


@pytest.mark.parametrize("field", [pytest.param(name, id=name) for name in STATUS_FIELDS])
def test_no_field_of_the_status_but_conditions_may_change(
    agents: AgentIdentities, installed: Sandbox, field: str
) -> None:
    """The very patch is accepted of the admin, so that it is the policy that refuses and not a patch that does nothing."""
    patch, query = {"status": {field: STATUS_FIELDS[field]}}, {"dryRun": "All"}
    before = read(installed.admin)["status"].get(field)
    after = msgspec.json.decode(installed.admin.patch(MINE_STATUS, patch, PatchType.MERGE, query))
    if after["status"].get(field) == before:
        assert (
            field == "config"
        )  # kubelet's dynamic configuration: still served, and dropped by the server itself
        return
    words = refusal(
        agents.of(OWN), lambda api: api.patch(MINE_STATUS, patch, PatchType.MERGE, query), NODE_POLICY
    )

    assert "nothing of the status but conditions" in words


def test_the_condition_types_are_those_of_the_checks() -> None:
    """A new check's condition is refused until the policy knows it: put the line that this test prints into the policy."""
    documents = list(yaml.safe_load_all(POLICIES.read_text()))
    policies = {
        d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "ValidatingAdmissionPolicy"
    }
    wanted = sorted(check.condition for check in discover() if check.condition)

    for name in (NODE_POLICY, HEALTH_POLICY):
        variables = {entry["name"]: entry["expression"] for entry in policies[name]["variables"]}
        assert variables["types"] == str(wanted), f'manifests/base/{POLICIES.name}: expression: "{wanted}"'
        assert ast.literal_eval(variables["types"]) == wanted


def read(api: Api) -> dict[str, Any]:
    node: dict[str, Any] = msgspec.json.decode(api.get(MINE))
    return node


def shown(raw: bytes) -> tuple[str, int]:
    """The status of our condition, and how many others stand."""
    node = msgspec.json.decode(raw, type=Node)
    ours = node.condition("GpuXidError")
    others = [one for one in node.status.conditions if one.type != "GpuXidError"]
    return (ours.status if ours is not None else "absent"), len(others)


def test_an_agent_sets_changes_and_removes_its_own_conditions(agent: Session, installed: Sandbox) -> None:
    """On a Node as full as a real one, so that the policy stays within the API server's cost limits."""
    others = len(read(installed.admin)["status"]["conditions"]) - 1
    removal = {"status": {"conditions": [{"$patch": "delete", "type": "GpuXidError"}]}}
    patches = [condition("GpuXidError", status=status) for status in ("True", "Unknown", "False")]
    seen = [
        shown(agent.patch(MINE_STATUS, patch, PatchType.STRATEGIC)) for patch in (*patches, removal, OURS)
    ]

    assert others >= len(FOREIGN)
    assert seen == [(status, others) for status in ("True", "Unknown", "False", "absent", "False")]


def test_an_agent_makes_and_writes_its_own_node_health_and_lease(
    agents: AgentIdentities, installed: Sandbox
) -> None:
    """From nothing, as on a node that has just joined."""
    uid = join(installed.admin, ABSENT)
    agent = agents.of(ABSENT)
    agent.create(paths.node_healths(), new_object(ABSENT, uid))
    agent.patch(paths.node_health_status(ABSENT), REPORT, PatchType.MERGE)
    agent.create(LEASES, lease(ABSENT, uid))
    renewal = {"metadata": owned_by(ABSENT, uid), "spec": {"holderIdentity": ABSENT, "leaseTransitions": 1}}
    agent.patch(paths.lease(SYSTEM, ABSENT), renewal, PatchType.MERGE)
    health = msgspec.json.decode(installed.admin.get(paths.node_health(ABSENT)))
    for path in (paths.node_health(ABSENT), paths.lease(SYSTEM, ABSENT), paths.node(ABSENT)):
        installed.admin.delete(path)

    assert health["status"]["driver"] == "580.95.05"


def test_the_policies_are_nobody_elses_concern(installed: Sandbox) -> None:
    """Kubelets, the controller and people change Nodes, NodeHealths and Leases as before."""
    for deed in (
        strategic(MINE_STATUS, {"status": {"capacity": {"example.com/x": "1"}}}),
        strategic(MINE, {"metadata": {"labels": {"a": "b"}}}),
        merge(MY_HEALTH, {"spec": {"clearedBy": "x"}}),
    ):
        deed(installed.admin)


def test_a_refusal_is_no_other_error(agent: Session) -> None:
    """403: an agent that took it for a conflict would think that its Node was another one."""
    with pytest.raises(ApiError) as refused:
        strategic(paths.node_status(OTHER), OURS)(agent)

    assert type(refused.value) is Forbidden
