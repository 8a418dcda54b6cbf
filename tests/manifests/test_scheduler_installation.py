"""The scheduler's kustomizations as kubectl builds them, and that what KAI Scheduler left in a cluster stays as it is."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # no stubs are pinned; only tests read YAML

from cli.uninstall_plan import ALL, CRD, OTHERS, PART_OF, PROGRAMS, RIGHTS, Bare, is_our_crd
from controller.scheduler.shell.config import OUR_NAME, parse
from sandbox.cluster import KubectlError, Sandbox
from sandbox.install import MANIFESTS, ManifestsMissing, create_absent, install, install_scheduler
from tests.manifests.verdicts import judged, queue

NAME = "nodemend-scheduler"


def built(sandbox: Sandbox, folder: str) -> list[dict[str, Any]]:
    text = sandbox.kubectl("kustomize", str(MANIFESTS / folder))
    return [document for document in yaml.safe_load_all(text) if document]


@pytest.fixture(scope="module")
def objects(sandbox: Sandbox) -> list[dict[str, Any]]:
    return built(sandbox, "scheduler")


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [o for o in objects if o["kind"] == kind]
    return found


def test_the_configuration_file_is_accepted_by_the_program(objects: list[dict[str, Any]]) -> None:
    """An unknown key is an error, so the shipped file is read by the very code that reads it in the cluster; it says
    nothing but the defaults."""
    text = one(objects, "ConfigMap")["data"]["scheduler.toml"]

    assert parse(text, "scheduler.toml") == parse("", "nothing")


def test_two_stand_apart_off_the_gpu_nodes_without_privilege(objects: list[dict[str, Any]]) -> None:
    """What holds for the controller holds for the scheduler; Kubernetes' own scheduler places it."""
    spec = one(objects, "Deployment")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    budget = one(objects, "PodDisruptionBudget")["spec"]

    assert (spec["replicas"], pod["schedulerName"]) == (2, "default-scheduler")
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]}
    ]
    # Replicas that hold, as beside KAI Scheduler, are not ready for as long as it is there: a drain need not wait for that.
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert budget["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys()
    assert [port["containerPort"] for port in container["ports"]] == [9478]
    assert [*container["command"], *container["args"]] == [
        NAME, "run", "--config", "/etc/nodemend/scheduler.toml",
    ]  # fmt: skip
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_it_talks_to_the_api_server_alone(objects: list[dict[str, Any]]) -> None:
    """Its metrics are read from anywhere in the cluster."""
    policy = one(objects, "NetworkPolicy")["spec"]
    template = one(objects, "Deployment")["spec"]["template"]
    opened = {(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]}

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert opened == {("TCP", 443), ("TCP", 6443)}


def test_the_names_fit_together(sandbox: Sandbox, objects: list[dict[str, Any]]) -> None:
    """The Lease keeps the name that the rights are for, and the image is that of the other programs."""
    rules = one(objects, "Role")["rules"]
    image = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"]
    controller = one(built(sandbox, "base"), "Deployment")

    assert [rule.get("resourceNames") for rule in rules] == [None, [NAME]]
    assert parse("", "nothing").leader.name == OUR_NAME == NAME
    assert image == controller["spec"]["template"]["spec"]["containers"][0]["image"]


def test_uninstall_finds_every_object_of_the_scheduler(objects: list[dict[str, Any]]) -> None:
    """Whatever the kustomization holds carries the label by which it is found again, and is of a kind that is looked for."""
    known = {kind.title for kind in (*PROGRAMS, *RIGHTS, *OTHERS)}

    assert {o["kind"] for o in objects} - known == set()
    assert [
        o["metadata"]["name"] for o in objects if o["metadata"]["labels"].get(PART_OF) != "nodemend"
    ] == []


def test_uninstall_cannot_find_what_is_shared_with_kai(sandbox: Sandbox) -> None:
    """No label of ours, no kind that is looked for, and no group of ours: objects of others depend on it."""
    shared = built(sandbox, "crds-kai")
    kinds = {kind.title for kind in ALL}
    definitions = [msgspec.convert(o, Bare, strict=False) for o in shared if o["kind"] == CRD.title]

    assert len(definitions) == 3
    assert not [one.metadata.name for one in definitions if is_our_crd(one)]
    assert {o["kind"] for o in shared} == {CRD.title, "PriorityClass"}
    assert "PriorityClass" not in kinds
    assert not [o["metadata"]["name"] for o in shared if PART_OF in o["metadata"].get("labels", {})]


def test_the_priority_classes_are_kais(sandbox: Sandbox) -> None:
    """By name and value: below 100 is preemptible for both."""
    classes = {
        o["metadata"]["name"]: o["value"] for o in built(sandbox, "crds-kai") if o["kind"] == "PriorityClass"
    }

    assert classes == {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}


def test_strict_makes_every_warning_a_refusal(scheduled: Sandbox) -> None:
    """Only what is stricter than KAI Scheduler warns, and the component leaves none of it out."""
    install_scheduler(scheduled, ["strict"])
    try:
        strict = actions(scheduled)
    finally:
        install_scheduler(scheduled)
    plain = actions(scheduled)

    assert {name for name, done in plain.items() if done == ["Warn"]} == {
        "nodemend-shared-grants",
        "nodemend-fractions",
        "nodemend-pod-group-sanity",
        "nodemend-queue-sanity",
    }
    assert {tuple(done) for done in strict.values()} == {("Deny",)}


def actions(sandbox: Sandbox) -> dict[str, list[str]]:
    found = json.loads(sandbox.kubectl("get", "validatingadmissionpolicybindings", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["spec"]["validationActions"] for one in found}


def test_every_policy_was_accepted(scheduled: Sandbox) -> None:
    """The real API server found no fault in any policy's types; no pod without such a mark waits for a policy."""
    policies = json.loads(scheduled.kubectl("get", "validatingadmissionpolicies", "-o", "json"))["items"]
    ours = {p["metadata"]["name"]: p for p in policies if p["metadata"]["name"].startswith("nodemend-")}
    about_pods = [
        p["spec"]
        for p in ours.values()
        if any("pods" in rule["resources"] for rule in p["spec"]["matchConstraints"]["resourceRules"])
        and "repairs" not in p["metadata"]["name"]
    ]

    assert not [name for name, p in ours.items() if p["status"]["typeChecking"]]
    assert len(about_pods) >= 4
    assert all(spec["matchConditions"] for spec in about_pods)


def test_an_unknown_component_and_absent_manifests_are_named(sandbox: Sandbox) -> None:
    """The errors say what there is, and where it should be run from."""
    with pytest.raises(ValueError, match="there are strict, namespace-queues, gpu-namespaces"):
        install_scheduler(sandbox, ["lenient"])
    with pytest.raises(ManifestsMissing, match="run from a clone"):
        install_scheduler(sandbox, manifests=sandbox.state_dir)


def test_create_tells_what_is_wrong_beside_what_is_there(scheduled: Sandbox) -> None:
    """AlreadyExists is as good as done, all else is said."""
    create_absent(scheduled, "-k", str(MANIFESTS / "crds-kai"))
    with pytest.raises(KubectlError, match="does not exist"):
        create_absent(scheduled, "-f", str(MANIFESTS / "nothing"))


@pytest.fixture(scope="module")
def with_kai(kubernetes_programs: Mapping[str, Path]) -> Iterator[Sandbox]:
    """A cluster where KAI Scheduler was installed: another Queue kind, a Queue of it, and another class `train`."""
    with Sandbox(programs=kubernetes_programs, with_kwok=False) as sandbox:
        open_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v2", "served": True, "storage": True, "subresources": {"status": {}}}
        kind = {"kind": "Queue", "listKind": "QueueList", "plural": "queues", "singular": "queue"}
        theirs = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "queues.scheduling.run.ai", "labels": {"app": "kai"}},
            "spec": {
                "group": "scheduling.run.ai",
                "names": kind,
                "scope": "Cluster",
                "versions": [{**version, "schema": {"openAPIV3Schema": open_}}],
            },
        }
        train = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "train"},
            "value": 55,
        }
        for body in (theirs, train):
            sandbox.kubectl("create", "-f", "-", stdin=json.dumps(body))
        sandbox.kubectl("wait", "--for=condition=Established", "crd/queues.scheduling.run.ai")
        named = queue("default-queue", resources={"gpu": {"quota": 3}}, theirs="kept")
        sandbox.kubectl("create", "-f", "-", stdin=json.dumps(named))
        yield sandbox


def test_what_kai_left_is_used_as_it_is(with_kai: Sandbox) -> None:
    """Its kind, its queue and its class are the same after the installation, to the last field; what it lacked is there."""
    held = ("crd/queues.scheduling.run.ai", "priorityclass/train", "queue/default-queue")
    before = [
        with_kai.kubectl("get", name, "-o", "jsonpath={.metadata.uid} {.spec} {.value}") for name in held
    ]
    install(with_kai, "observe")
    install_scheduler(with_kai)
    after = [
        with_kai.kubectl("get", name, "-o", "jsonpath={.metadata.uid} {.spec} {.value}") for name in held
    ]
    made = with_kai.kubectl(
        "get", "crd", "podgroups.scheduling.run.ai", "topologies.kai.scheduler", "-o", "name"
    )
    verdict = judged(with_kai, queue())

    assert after == before
    assert len(made.splitlines()) == 2
    assert with_kai.kubectl("get", "queues", "-o", "name").count("default-") == 2
    assert not verdict.taken
    assert "'nodemend-queue' denied request: spec.resources is missing" in verdict.words
