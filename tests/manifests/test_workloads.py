"""What the pods of the manifests may and may not have, and that what selects them selects them, as kubectl builds them."""

import json
from typing import Any

import pytest
import yaml  # no stubs are pinned; only tests read YAML

from sandbox.cluster import Sandbox
from sandbox.install import MANIFESTS

AGENT, CONTROLLER = "nodemend-agent", "nodemend-controller"


@pytest.fixture(scope="module")
def base(sandbox: Sandbox) -> list[dict[str, Any]]:
    text = sandbox.kubectl("kustomize", str(MANIFESTS / "base"))
    return [document for document in yaml.safe_load_all(text) if document]


def one(base: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [o for o in base if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def template(base: list[dict[str, Any]], name: str) -> dict[str, Any]:
    kind = {AGENT: "DaemonSet", CONTROLLER: "Deployment"}[name]
    found: dict[str, Any] = one(base, kind, name)["spec"]["template"]
    return found


def test_the_agent_is_privileged_and_nothing_more(base: list[dict[str, Any]]) -> None:
    """It reads the host's trees, opens its devices, writes in one folder, and shares no namespace of the host."""
    pod = template(base, AGENT)["spec"]
    (container,) = pod["containers"]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}

    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert writable == {"/dev", "/dev/kmsg", "/var/lib/nodemend"}


def test_the_controller_has_no_privilege_at_all(base: list[dict[str, Any]]) -> None:
    """What the Pod Security Standards call restricted, although its namespace would admit more."""
    pod = template(base, CONTROLLER)["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_a_token_is_mounted_where_it_is_asked_for(base: list[dict[str, Any]]) -> None:
    """No account hands one out by itself: a pod that somebody adds to a namespace of ours gets none unasked."""
    accounts = [o for o in base if o["kind"] == "ServiceAccount"]

    assert len(accounts) == 3
    assert not [o["metadata"]["name"] for o in accounts if o["automountServiceAccountToken"]]
    for name in (AGENT, CONTROLLER):
        assert template(base, name)["spec"]["automountServiceAccountToken"]


def test_the_controllers_stand_apart(base: list[dict[str, Any]]) -> None:
    """Two on one node would be one; a drain takes one at a time."""
    affinity = template(base, CONTROLLER)["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    budget = one(base, "PodDisruptionBudget", CONTROLLER)["spec"]
    labels = template(base, CONTROLLER)["metadata"]["labels"].items()

    assert rule["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert rule["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= labels
    assert budget["selector"]["matchLabels"].items() <= labels
    assert budget["maxUnavailable"] == 1


@pytest.mark.parametrize(
    ("name", "egress"),
    [
        pytest.param(AGENT, {("TCP", 443), ("TCP", 6443)}, id="the agent: the API server"),
        pytest.param(
            CONTROLLER,
            {("TCP", 443), ("TCP", 6443), *((way, port) for way in ("UDP", "TCP") for port in (53, 5353))},
            id="the controller: the API server, DNS and receivers of pages",
        ),
    ],
)
def test_a_program_talks_to_whom_it_must(
    base: list[dict[str, Any]], name: str, egress: set[tuple[str, int]]
) -> None:
    """Each NetworkPolicy selects its program's pods and opens their port for metrics, by its name."""
    policy = one(base, "NetworkPolicy", name)["spec"]
    pod = template(base, name)
    (container,) = pod["spec"]["containers"]
    (incoming,) = policy["ingress"]
    opened = {(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]}

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert [port["port"] for port in incoming["ports"]] == [port["name"] for port in container["ports"]]
    assert opened == egress


def test_repairs_talk_to_nobody(base: list[dict[str, Any]]) -> None:
    """Every pod of the namespace, both ways."""
    policy = one(base, "NetworkPolicy", "nodemend-repairs")

    assert policy["metadata"]["namespace"] == "nodemend-repairs"
    assert policy["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_critical_classes_are_admitted_where_a_quota_must_name_them(base: list[dict[str, Any]]) -> None:
    """The quota of nodemend-system names exactly the classes that the pods there have."""
    quota = one(base, "ResourceQuota", "nodemend-critical-pods")["spec"]
    (scope,) = quota["scopeSelector"]["matchExpressions"]
    used = {template(base, name)["spec"]["priorityClassName"] for name in (AGENT, CONTROLLER)}

    assert set(scope["values"]) == used


def test_everything_was_accepted_and_is_counted(installed: Sandbox, base: list[dict[str, Any]]) -> None:
    """The real API server took it all, found no fault in a policy's types, and counts what the quotas bound."""
    policies = json.loads(installed.kubectl("get", "validatingadmissionpolicies", "-o", "json"))["items"]
    bindings = json.loads(installed.kubectl("get", "validatingadmissionpolicybindings", "-o", "json"))[
        "items"
    ]
    quotas = json.loads(installed.kubectl("get", "resourcequotas", "-A", "-o", "json"))["items"]
    named = {o["metadata"]["name"] for o in base if o["kind"] == "ValidatingAdmissionPolicy"}
    ours = {p["metadata"]["name"]: p for p in policies if p["metadata"]["name"] in named}

    assert len(ours) == 9
    assert {b["spec"]["policyName"] for b in bindings} >= ours.keys()
    assert not [p["status"]["typeChecking"] for p in ours.values() if p["status"]["typeChecking"]]
    assert all(p["spec"]["failurePolicy"] == "Fail" for p in ours.values())
    assert all(
        b["spec"]["validationActions"] == ["Deny"] for b in bindings if b["spec"]["policyName"] in ours
    )
    assert not [q["metadata"]["name"] for q in quotas if "hard" not in q["status"]]
