"""A cluster as KAI Scheduler leaves it, described by us: programs, webhooks, what it wrote, and the documented way over.

KAI's programs are played by Deployments whose pods do nothing, so its webhooks are answered by nobody; all else is the real
API server, its controllers and KWOK. The commands are those of docs/migration-kai.md, taken from there.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kube import paths
from kube.api import ApiError, PatchType
from sandbox.cluster import Sandbox
from tests.cluster.scheduler_stage import POOL_LABEL, QUEUE_LABEL, SchedulerStage
from tests.scheduler_shell.kai_words import (
    BINDER_FLAGS,
    FOR_KAI,
    KAI_NAMESPACE,
    MUTATING,
    REGISTRY,
    SHARD_FLAGS,
    VALIDATING,
    deployment_body,
    entry,
    webhook_body,
)

Raw = dict[str, Any]
ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "migration-kai.md"
KAI = "kai-scheduler"
RESERVATIONS = "kai-resource-reservation"
GROUP = "5d0a6a2e-6b1c-4f0e-9d55-3a3a1f2b7c11"
CARD = "GPU-5b1f3c8e-0000-4444-8888-00000000000a"
BIND_REQUESTS = "bindrequests.scheduling.run.ai"
PROGRAMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "kai-operator": ("operator", ()),
    "kai-scheduler-default": ("scheduler", SHARD_FLAGS),
    "binder": ("binder", BINDER_FLAGS),
    "pod-grouper": ("podgrouper", ("--scheduler-name=kai-scheduler",)),
    "podgroup-controller": ("podgroupcontroller", ("--scheduler-name", KAI)),
    "queue-controller": ("queuecontroller", ()),
    "admission": ("admission", ("--scheduler-name", KAI)),
}


class KaiCluster:
    """KAI and what it placed on a stage of two nodes: 4 whole GPUs and two parts of a shared one on the first."""

    def __init__(self, stage: SchedulerStage) -> None:
        self.stage, self.sandbox, self.admin = stage, stage.sandbox, stage.admin
        self.kept: dict[str, Raw] = {}

    # What is there

    def install(self) -> None:
        """Start KAI's programs, without its webhooks."""
        self.sandbox.kubectl("create", "namespace", KAI_NAMESPACE)
        self.sandbox.kubectl("create", "namespace", RESERVATIONS)
        self.sandbox.kubectl("create", "-f", "-", stdin=json.dumps(_definition()))
        self.sandbox.kubectl("wait", "--for=condition=Established", f"crd/{BIND_REQUESTS}")
        for name, (image, args) in PROGRAMS.items():
            body = deployment_body(
                name, f"{REGISTRY}/{image}:v0.17.0", args=args, managed=name != "kai-operator"
            )
            self.admin.create(paths.collection("apps", "v1", "deployments", KAI_NAMESPACE), body)
        for name in PROGRAMS:
            self.sandbox.kubectl("-n", KAI_NAMESPACE, "rollout", "status", f"deployment/{name}")

    def scale(self, replicas: int, *names: str) -> None:
        self.sandbox.kubectl("-n", KAI_NAMESPACE, "scale", f"--replicas={replicas}", "deployment", *names)

    def place(self, queue: str) -> None:
        """Let KAI have placed: `trained-0` and `-1` with 2 GPUs each, `half` and `quarter` on one card."""
        node = self.stage.nodes[0]
        self.group("pg-trained", queue, 2)
        for name in ("trained-0", "trained-1"):
            marks = {"pod-group-name": "pg-trained", "received-resource-type": "Regular"}
            self._placed(name, queue, 2, node, marks)
        reservation = {
            "metadata": {
                "name": "gpu-reservation-1f0e2d3c",
                "namespace": RESERVATIONS,
                "labels": {"app": RESERVATIONS, "runai-gpu-group": GROUP},
                "annotations": {"run.ai/reserve_for_gpu_index": CARD, "karpenter.sh/do-not-disrupt": "true"},
            },
            "spec": {**self.pod("", queue)["spec"], "schedulerName": "default-scheduler", "nodeName": node},
        }
        self.admin.create(paths.pods(RESERVATIONS), reservation)
        for name, part in (("half", "0.5"), ("quarter", "0.25")):
            self.group(f"pg-{name}", queue, 1)
            marks = {
                "pod-group-name": f"pg-{name}",
                "received-resource-type": "Fraction",
                **_part(name, part),
            }
            self._placed(name, queue, 0, node, marks, {"runai-gpu-group": GROUP})
        self.stage.until(
            lambda: all(self.phase(name) == "Running" for name in self.running), "what KAI placed to run"
        )
        done = {"podName": "trained-0", "selectedNode": node, "receivedResourceType": "Regular"}
        self.bind_request("trained-0", done, "Succeeded")
        self.kept = {name: self.seen(name) for name in self.running}

    running = ("trained-0", "trained-1", "half", "quarter")

    def line_up(self, queue: str) -> None:
        """Let pods wait: a gang of two with 4 GPUs each that KAI grouped, four single ones, and one that asks for a part."""
        self.group("pg-queued", queue, 2)
        for name in ("queued-0", "queued-1"):
            self.create(self.pod(name, queue, 4, {"pod-group-name": "pg-queued"}))
        open_one = {
            "podName": "queued-0",
            "selectedNode": self.stage.nodes[0],
            "receivedResourceType": "Regular",
        }
        self.bind_request("queued-0", open_one, "")
        for number in range(4):
            self.create(self.pod(f"single-{number}", queue, 1))
        self.create(self.pod("part", queue, 0, _part("part", "0.5")))

    def guard(self) -> None:
        """Configure KAI's webhooks; nobody answers them here."""
        admission = "admission.kai-scheduler.svc"
        both: Raw = {"matchConditions": [FOR_KAI]}
        hooks = [
            webhook_body(MUTATING, "mutating-kai-admission", entry(admission, "/mutate--v1-pod", **both)),
            webhook_body(
                VALIDATING, "validating-kai-admission", entry(admission, "/validate--v1-pod", **both)
            ),
            webhook_body(VALIDATING, "kai-queue-validation-v2", _of("queue", "queues", "v2")),
            webhook_body(
                VALIDATING, "kai-podgroup-validation-v2alpha2", _of("podgroup", "podgroups", "v2alpha2")
            ),
        ]
        for hook in hooks:
            self.sandbox.kubectl("create", "-f", "-", stdin=json.dumps(hook))

    def group(self, name: str, queue: str, least: int) -> None:
        """Make a PodGroup as KAI's grouper does."""
        top = "apiVersion: batch/v1\nkind: Job\n"
        body = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "labels": {POOL_LABEL: self.stage.pool, QUEUE_LABEL: queue},
                "annotations": {"kai.scheduler/top-owner-metadata": top},
            },
            "spec": {"queue": queue, "minMember": least, "priorityClassName": "train"},
        }
        self.admin.create(paths.pod_groups(self.stage.namespace), body)

    def bind_request(self, name: str, spec: Raw, phase: str) -> None:
        where = paths.collection("scheduling.run.ai", "v1alpha2", "bindrequests", self.stage.namespace)
        labels = {"selected-node": spec["selectedNode"]}
        body = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "spec": spec}
        self.admin.create(where, {**body, "metadata": {"name": name, "labels": labels}})
        if phase:
            status = {"status": {"phase": phase}}
            self.admin.patch(f"{paths.member(where, name)}/status", status, PatchType.MERGE)

    def pod(self, name: str, queue: str, gpus: int = 1, marks: Mapping[str, str] | None = None) -> Raw:
        """Describe a pod that names KAI's scheduler, and ends at once when it is asked to."""
        resources = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}
        metadata: Raw = {
            "name": name,
            "labels": {QUEUE_LABEL: queue, POOL_LABEL: self.stage.pool},
            "annotations": dict(marks or {}),
        }
        spec: Raw = {
            "schedulerName": KAI,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.invalid/work:1", "resources": resources}],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def create(self, body: Raw) -> None:
        self.admin.create(paths.pods(self.stage.namespace), body)

    def _placed(
        self,
        name: str,
        queue: str,
        gpus: int,
        node: str,
        marks: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        body = self.pod(name, queue, gpus, marks)
        body["metadata"]["labels"] |= labels or {}
        self.create(body)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.admin.create(paths.binding(self.stage.namespace, name), binding)
        bound = {"type": "PodBound", "status": "True", "reason": "Bound", "message": f"bound to {node}"}
        status = {"status": {"conditions": [bound]}}
        self.admin.patch(paths.pod_status(self.stage.namespace, name), status, PatchType.STRATEGIC)

    # Looking

    def phase(self, name: str) -> str:
        return str(self.stage.read(paths.pod(self.stage.namespace, name))["status"].get("phase", ""))

    def seen(self, name: str) -> Raw:
        """Give what must stay of a pod: all but what the kubelet's player writes, with KAI's own condition."""
        pod = self.stage.read(paths.pod(self.stage.namespace, name))
        meta = {key: pod["metadata"].get(key) for key in ("uid", "labels", "annotations", "finalizers")}
        conditions = [one for one in pod["status"]["conditions"] if one["type"] == "PodBound"]
        return {"metadata": meta, "spec": pod["spec"], "conditions": conditions}

    def bind_requests(self) -> dict[str, str]:
        """Give the phase of each, by name."""
        where = paths.collection("scheduling.run.ai", "v1alpha2", "bindrequests", self.stage.namespace)
        items = self.stage.read(where)["items"]
        return {one["metadata"]["name"]: one.get("status", {}).get("phase", "") for one in items}

    # The documented way

    def follow(self, title: str, cwd: Path, *, block: int | None = None) -> str:
        """Type the commands of a section, as printed; give what they printed. Raises AssertionError with their words."""
        said = []
        for number, script in enumerate(blocks()[title]):
            if block is not None and number != block:
                continue
            ours = [line for line in script.splitlines() if line.startswith("kubectl nodemend ")]
            rest = "\n".join(line for line in script.splitlines() if line not in ours)
            said.append(self._run(["bash", "-euo", "pipefail", "-c", rest], cwd))
            for line in ours:
                words = shlex.split(line)[2:]
                config = ("--kubeconfig", str(self.sandbox.admin_kubeconfig))
                command = [sys.executable, "-m", "cli", *config, *words, "--pool", self.stage.pool]
                said.append(self._run(command, ROOT))
        return "\n".join(said)

    def _run(self, command: list[str], cwd: Path) -> str:
        kubectl = Path(self.sandbox.programs["kubectl"]).parent
        env = self.sandbox.environment(
            {"KUBECONFIG": str(self.sandbox.admin_kubeconfig), "PATH": f"{kubectl}:{os.environ['PATH']}"}
        )
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def blocks() -> dict[str, list[str]]:
    """Give the commands of the document by the title of their section, indentation taken off."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^##+ ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]:
        title = part.splitlines()[0].partition(":")[0]
        for pad, text in re.findall(r"^( *)```\n(.*?)^ *```$", part, flags=re.MULTILINE | re.DOTALL):
            lines = [line.removeprefix(pad) for line in text.splitlines()]
            found.setdefault(title, []).append("\n".join(lines))
    return found


@contextmanager
def kai_on(stage: SchedulerStage) -> Iterator[KaiCluster]:
    """Install KAI on two nodes and take all of it away again."""
    kai = KaiCluster(stage)
    stage.add_nodes(2)
    try:
        kai.install()
        yield kai
    finally:
        _take_away(stage.sandbox)


def _take_away(sandbox: Sandbox) -> None:
    hooks = paths.collection("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
    checks = hooks.replace("mutating", "validating")
    named = [
        (hooks, "mutating-kai-admission"),
        (checks, "validating-kai-admission"),
        (checks, "kai-queue-validation-v2"),
        (checks, "kai-podgroup-validation-v2alpha2"),
    ]
    for where, name in named:
        with suppress(ApiError):
            sandbox.admin.delete(paths.member(where, name))
    sandbox.kubectl("-n", RESERVATIONS, "delete", "pods", "--all", "--grace-period=0", "--force")
    sandbox.kubectl("delete", "namespace", KAI_NAMESPACE, RESERVATIONS)
    sandbox.kubectl("delete", "crd", BIND_REQUESTS)


def _part(name: str, part: str) -> dict[str, str]:
    return {"gpu-fraction": part, "runai/shared-gpu-configmap": f"{name}-a1b2c3d-shared-gpu"}


def _of(kind: str, plural: str, version: str) -> Raw:
    rule = {
        "apiGroups": ["scheduling.run.ai"],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [plural],
    }
    path = f"/validate-scheduling-run-ai-{version}-{kind}"
    return entry(f"{kind}-validation.kai.scheduler", path, f"{kind}-controller", rules=[rule])


def _definition() -> Raw:
    """Define BindRequest, with the fields that matter here."""
    text = {"type": "string"}
    spec = {
        "type": "object",
        "properties": {"podName": text, "selectedNode": text, "receivedResourceType": text},
    }
    status = {
        "type": "object",
        "properties": {"phase": text, "reason": text, "failedAttempts": {"type": "integer"}},
    }
    version = {
        "name": "v1alpha2",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    names = {"kind": "BindRequest", "plural": "bindrequests", "singular": "bindrequest"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": BIND_REQUESTS},
        "spec": {
            "group": "scheduling.run.ai",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }
