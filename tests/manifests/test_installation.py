"""The kustomizations as kubectl builds them, and what stands in the cluster after they were applied."""

import json
import tomllib
from typing import Any

import pytest
import yaml  # no stubs are pinned; only tests read YAML

from agent.config import parse as parse_agent
from checks.check import discover
from cli.uninstall_plan import CRD, NAMESPACE, NAMESPACES, OTHERS, PART_OF, PROGRAMS, RIGHTS
from controller.config import parse as parse_controller
from controller.repairs import AGENT_CONFIG
from sandbox.cluster import Sandbox
from sandbox.install import MANIFESTS, ManifestsMissing, install


def built(sandbox: Sandbox, folder: str) -> list[dict[str, Any]]:
    text = sandbox.kubectl("kustomize", str(MANIFESTS / folder))
    return [document for document in yaml.safe_load_all(text) if document]


def find(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"].startswith(name)]
    return found


@pytest.mark.parametrize(
    ("overlay", "mode"),
    [
        pytest.param("observe", "Observe", id="observe touches nothing"),
        pytest.param("enforce", "Enforce", id="enforce repairs"),
    ],
)
def test_an_overlay_is_the_base_with_its_mode(sandbox: Sandbox, overlay: str, mode: str) -> None:
    """Both overlays differ in the policy and in nothing else."""
    objects = built(sandbox, f"overlays/{overlay}")
    (policy,) = [o for o in objects if o["kind"] == "RemediationPolicy"]
    rest = [o for o in objects if o["kind"] != "RemediationPolicy"]

    assert (policy["metadata"]["name"], policy["spec"]["mode"]) == ("default", mode)
    assert rest == built(sandbox, "base")


def test_the_configuration_files_are_accepted_by_the_programs(sandbox: Sandbox) -> None:
    """An unknown key is an error, so the shipped files are read by the very code that reads them in the cluster."""
    objects = built(sandbox, "base")
    agent = find(objects, "ConfigMap", "nodemend-agent-config")["data"]["agent.toml"]
    controller = find(objects, "ConfigMap", "nodemend-controller-config")["data"]["controller.toml"]

    assert parse_agent(agent, "agent.toml", discover(), {"NODE_NAME": "n"}).node_name == "n"
    assert parse_controller(controller, "controller.toml").jobs.namespace == "nodemend-repairs"


def test_repairs_run_the_image_of_the_programs(sandbox: Sandbox) -> None:
    """kustomize sets the image of the workloads, a file that of the repairs: they must be the same."""
    objects = built(sandbox, "base")
    config = tomllib.loads(
        find(objects, "ConfigMap", "nodemend-controller-config")["data"]["controller.toml"]
    )
    images = {
        container["image"]
        for kind in ("DaemonSet", "Deployment")
        for o in objects
        if o["kind"] == kind
        for container in o["spec"]["template"]["spec"]["containers"]
    }

    assert images == {config["jobs"]["image"]}


def test_a_revalidation_judges_by_the_agents_settings(sandbox: Sandbox) -> None:
    """The Job mounts that ConfigMap by name from its own namespace; both hold the same file."""
    maps = [o for o in built(sandbox, "base") if o["kind"] == "ConfigMap"]
    (own,) = [o for o in maps if o["metadata"]["name"] == AGENT_CONFIG]

    assert own["metadata"]["namespace"] == "nodemend-repairs"
    assert own["data"] == find(maps, "ConfigMap", "nodemend-agent-config")["data"]


def test_the_leader_lease_keeps_its_name(sandbox: Sandbox) -> None:
    """kustomize rewrites names that look like those it generates, resourceNames included: ours must not."""
    (role,) = [
        o
        for o in built(sandbox, "base")
        if o["kind"] == "Role"
        and o["metadata"]["name"] == "nodemend-controller"
        and o["metadata"]["namespace"] == "nodemend-system"
    ]

    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, ["nodemend-controller"]]


def test_workloads_are_what_a_cluster_needs(sandbox: Sandbox) -> None:
    """The agent goes where it is needed and never all at once; the controller stands twice, off the GPU nodes, beside the
    control plane where there is no other place."""
    objects = built(sandbox, "base")
    agent = find(objects, "DaemonSet", "nodemend-agent")["spec"]
    controller = find(objects, "Deployment", "nodemend-controller")["spec"]
    pod = agent["template"]["spec"]
    (term,) = controller["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]

    assert agent["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "10%"
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert controller["replicas"] == 2
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]}
    ]
    assert [one["key"] for one in controller["template"]["spec"]["tolerations"]] == [
        "node-role.kubernetes.io/control-plane"
    ]
    for template in (pod, controller["template"]["spec"]):
        (container,) = template["containers"]
        assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys()
        assert "limits" in container["resources"]


def test_nothing_is_aggregated_into_other_roles(installed: Sandbox) -> None:
    """Whoever is `admin` or `edit` in a namespace gains nothing over policies, which are root on the fleet."""
    roles = json.loads(installed.kubectl("get", "clusterroles", "-o", "json"))["items"]
    labels = {
        label
        for role in roles
        if role["metadata"]["name"].startswith("nodemend")
        for label in role["metadata"].get("labels", {})
    }
    granted = [
        (role["metadata"]["name"], rule["verbs"])
        for role in roles
        if role["metadata"]["name"].startswith("nodemend")
        for rule in role["rules"] or []
        if "remediationpolicies" in rule["resources"]
    ]

    assert not [label for label in labels if "aggregate-to" in label]
    assert granted
    assert not [g for g in granted if set(g[1]) - {"get", "list", "watch"}]


def test_the_repairs_namespace_admits_privileged_pods_and_hands_out_no_token(installed: Sandbox) -> None:
    """A repair needs the machine and never the API."""
    namespace = json.loads(installed.kubectl("get", "namespace", "nodemend-repairs", "-o", "json"))
    account = json.loads(
        installed.kubectl("get", "sa", "nodemend-repair", "-n", "nodemend-repairs", "-o", "json")
    )

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert account["automountServiceAccountToken"] is False


def test_uninstall_finds_every_object(sandbox: Sandbox) -> None:
    """Whatever the base holds carries the label by which it is found again, and is of a kind that is looked for."""
    objects = built(sandbox, "base")
    known = {kind.title for kind in (*PROGRAMS, *RIGHTS, *OTHERS, NAMESPACE, CRD)}

    assert {one["kind"] for one in objects} - known == set()
    assert [
        one["metadata"]["name"] for one in objects if one["metadata"]["labels"].get(PART_OF) != "nodemend"
    ] == []
    assert {one["metadata"]["name"] for one in objects if one["kind"] == "Namespace"} == set(NAMESPACES)


def test_installing_twice_changes_nothing(installed: Sandbox) -> None:
    """`install` may be called again, and merges what a caller wants of the policy."""
    install(installed, "enforce", policy={"budget": {"maxRepairsInFlight": 3}})
    changed = json.loads(installed.kubectl("get", "rempol", "default", "-o", "json"))["spec"]
    install(installed, "enforce")
    again = json.loads(installed.kubectl("get", "rempol", "default", "-o", "json"))["spec"]
    deployment = json.loads(
        installed.kubectl("get", "deploy", "nodemend-controller", "-n", "nodemend-system", "-o", "json")
    )

    assert (changed["budget"]["maxRepairsInFlight"], again["budget"]["maxRepairsInFlight"]) == (3, 1)
    assert changed["budget"]["maxUnavailable"] == "10%"
    assert deployment["spec"]["replicas"] == 0


def test_an_unknown_overlay_and_absent_manifests_are_named(sandbox: Sandbox) -> None:
    """The errors say what there is, and where it should be run from."""
    with pytest.raises(ValueError, match="there are observe, enforce"):
        install(sandbox, "production")
    with pytest.raises(ManifestsMissing, match="run from a clone"):
        install(sandbox, "enforce", manifests=sandbox.state_dir)
