"""`queues`, `why`, `gpus` and `simulate` against a real API server, as an operator types them.

Real Jobs of the real controllers wait, nothing schedules them: no group is written on any pod, so the commands have to find
out by themselves what belongs together. A node pool of its own keeps everything else in this cluster out of the tables.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube import paths
from kube.api import PatchType
from kube.clock import SYSTEM
from kube.timestamps import rfc3339
from sandbox import nodes
from sandbox.cluster import Sandbox
from sandbox.install import MANIFESTS, create_absent, install
from tests.fakes import wait_until

ROOT = Path(__file__).parents[2]
POOL = "cli"
POOL_LABEL = {"kai.scheduler/node-pool": POOL}
NODES = ("cli-gpu-1", "cli-gpu-2")
SICK = "GPU-cli-3"
Raw = dict[str, Any]


class Operator:
    """A person with the operator's ClusterRole and nothing else (or with nothing), and what there is to look at."""

    def __init__(
        self, sandbox: Sandbox, namespace: str, account: str = "operator", *, bound: bool = True
    ) -> None:
        self.sandbox = sandbox
        self.namespace = namespace
        sandbox.kubectl("-n", namespace, "create", "serviceaccount", account)
        if bound:
            who = f"--serviceaccount={namespace}:{account}"
            sandbox.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=nodemend-operator", who)
        self._kubeconfig = sandbox.kubeconfig_for(namespace, account)

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program as its own process, without a terminal."""
        return subprocess.run(
            [sys.executable, "-m", "cli", "--kubeconfig", str(self._kubeconfig), *words],
            cwd=ROOT,
            env=self.sandbox.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def told(self, *words: str) -> Any:
        """Run a command that has to succeed, and give its JSON."""
        answer = self.type(*words, "--pool", POOL, "--json")
        assert (answer.returncode, answer.stderr) == (0, "")
        return json.loads(answer.stdout)

    def create(self, *objects: Raw) -> None:
        for one in objects:
            self.sandbox.kubectl("--namespace", self.namespace, "create", "-f", "-", stdin=json.dumps(one))

    def pods(self) -> list[Raw]:
        return list(msgspec.json.decode(self.sandbox.admin.get(paths.pods(self.namespace)))["items"])


def _queue(name: str, parent: str, quota: int, limit: int = -1) -> Raw:
    rest = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1}, "cpu": rest, "memory": rest}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name, "labels": POOL_LABEL},
        "spec": {"resources": resources, **({"parentQueue": parent} if parent else {})},
    }


def _job(name: str, queue: str, pods: int, gpus: int, minimum: int = 1) -> Raw:
    labels = {"kai.scheduler/queue": queue, **POOL_LABEL}
    limits = {"nvidia.com/gpu": gpus, "cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    spec = {"schedulerName": "nodemend-scheduler", "restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kai.scheduler/batch-min-member": str(minimum)},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _health(sandbox: Sandbox, name: str) -> None:
    """Report a node whose third GPU is sick and fenced."""
    uid = json.loads(sandbox.admin.get(paths.node(name)))["metadata"]["uid"]
    boot = json.loads(sandbox.admin.get(paths.node(name)))["status"]["nodeInfo"]["bootID"]
    now = rfc3339(SYSTEM.now())
    parts = [
        {
            "kind": "gpu",
            "uuid": f"GPU-cli-{n}",
            "index": n,
            "model": "NVIDIA-H200",
            "memoryMiB": 143000,
            "offered": n != 3,
        }
        for n in range(8)
    ]
    found = {
        "condition": "GpuXidError",
        "reason": "Xid48DoubleBitEcc",
        "severity": "Fault",
        "effect": "part-out",
        "urgency": "now",
        "action": "RESET_GPU",
        "part": {"kind": "gpu", "uuid": SICK, "index": 3},
        "firstSeen": now,
        "lastSeen": now,
        "count": 1,
        "bootID": boot,
    }
    body = {
        "apiVersion": "nodemend.dev/v1alpha1",
        "kind": "NodeHealth",
        "metadata": {"name": name},
        "spec": {},
    }
    sandbox.admin.create(paths.node_healths(), body)
    status = {
        "observedAt": now,
        "nodeUID": uid,
        "bootID": boot,
        "parts": parts,
        "findings": [found],
        "publishedConditions": [],
    }
    sandbox.admin.patch(paths.node_health_status(name), {"status": status}, PatchType.MERGE)
    spec = {"holderIdentity": name, "leaseDurationSeconds": 300, "renewTime": now.replace("Z", ".000000Z")}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": spec,
    }
    sandbox.admin.create(paths.leases("nodemend-system"), lease)


@pytest.fixture(scope="module")
def operator(sandbox: Sandbox) -> Iterator[Operator]:
    """Two nodes of eight GPUs, one with a sick card; a department of two projects; a Job that runs, two that wait."""
    namespace = "cli-scheduler"
    sandbox.create_namespace(namespace)
    install(sandbox, "observe")
    create_absent(sandbox, "-k", str(MANIFESTS / "crds-kai"))
    made = nodes.create(sandbox, NODES)
    for node in made:
        sandbox.admin.patch(paths.node(node.name), {"metadata": {"labels": POOL_LABEL}}, PatchType.MERGE)
    _health(sandbox, NODES[0])
    person = Operator(sandbox, namespace)
    person.create(
        _queue("cli-research", "", 12),
        _queue("cli-alpha", "cli-research", 8),
        _queue("cli-beta", "cli-research", 4, 10),
        _job("lent", "cli-beta", 2, 4),
    )
    wait_until(lambda: len(person.pods()) == 2, 30.0)
    for pod in person.pods():
        bound = {"target": {"kind": "Node", "name": NODES[1]}, "metadata": {"name": pod["metadata"]["name"]}}
        sandbox.admin.create(f"{paths.pod(namespace, pod['metadata']['name'])}/binding", bound)
    person.create(_job("train", "cli-alpha", 2, 4, minimum=2), _job("more", "cli-beta", 1, 4))
    wait_until(lambda: len(person.pods()) == 5, 30.0)
    wait_until(lambda: sum(pod["status"]["phase"] == "Running" for pod in person.pods()) == 2, 30.0)
    yield person
    for queue in ("cli-research", "cli-alpha", "cli-beta"):
        sandbox.kubectl("delete", "queues.scheduling.run.ai", queue)
    sandbox.admin.delete(paths.node_health(NODES[0]))
    sandbox.kubectl("delete", "namespace", namespace, "--wait=false")
    for node in made:
        node.delete(sandbox.admin)
        node.close()


def test_an_operator_reads_what_the_scheduler_would_do(operator: Operator, tmp_path: Path) -> None:
    """All four commands, one cluster: the numbers agree with each other, nothing is missing, nothing is written."""
    told = operator.told("queues")
    rows = {row["queue"]: {one["resource"]: one for one in row["amounts"]}["gpu"] for row in told["queues"]}
    assert told["total"]["gpu"] == 15_000
    assert {name: (row["allocated"], row["requested"]) for name, row in rows.items()} == {
        "cli-research": (8_000, 20_000),
        "cli-alpha": (0, 8_000),
        "cli-beta": (8_000, 12_000),
    }
    assert [line for line in told["incomplete"] if line.startswith("NOT READ")] == []

    gpus = operator.told("gpus")
    assert (gpus["total"], gpus["sick"], gpus["usable"], gpus["free"]) == (16, 1, 15, 7)
    assert [row["uuid"] for row in operator.told("gpus", NODES[0], "--sick")["gpus"]] == [SICK]

    train = next(
        pod["metadata"]["name"] for pod in operator.pods() if pod["metadata"]["name"].startswith("train")
    )
    story = operator.told("why", f"{operator.namespace}/{train}")
    assert (story["group"]["pods"], story["group"]["needs"], story["group"]["queue"]) == (2, 2, "cli-alpha")
    assert [(victim["action"], victim["node"]) for victim in story["victims"]] == [("reclaim", NODES[1])]
    assert story["ill"] == [f"{NODES[0]}: GPU 3 {SICK} is Sick: Xid48DoubleBitEcc, fenced"]
    more = next(
        pod["metadata"]["name"] for pod in operator.pods() if pod["metadata"]["name"].startswith("more")
    )
    assert operator.told("why", more, "-n", operator.namespace)["code"] == "OverLimit"

    lost = operator.told("simulate", "--lose", NODES[0])
    assert any(row["job"].startswith(f"{operator.namespace}/pg-train") for row in lost["waits"])
    file = tmp_path / "next.yaml"
    file.write_text(json.dumps(_job("next", "cli-alpha", 1, 1)))
    added = operator.told("simulate", str(file), "-n", operator.namespace)
    assert added["changed"] == [f"+ Pod {operator.namespace}/next-0"]
    assert added["settled"]

    account = f"system:serviceaccount:{operator.namespace}:operator"
    assert [e["verb"] for e in operator.sandbox.audit_events() if e["user"]["username"] == account] == []


def test_tables_for_people(operator: Operator) -> None:
    """The same as text: what stands first is the answer."""
    queues = operator.type("queues", "--pool", POOL)
    assert (queues.returncode, queues.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in queues.stdout.splitlines()]
    assert lines[1].startswith("QUEUE PRIORITY QUOTA LIMIT WEIGHT FAIR SHARE ALLOCATED")
    assert [line.split()[0] for line in lines[2:5]] == ["cli-research", "cli-alpha", "cli-beta"]
    gpus = operator.type("gpus", "--pool", POOL)
    assert "16 GPUs: 15 usable, 1 sick, 0 unknown; 7 free" in gpus.stdout
    name = next(pod["metadata"]["name"] for pod in operator.pods() if pod["status"]["phase"] == "Running")
    why = operator.type("why", name, "-n", operator.namespace, "--pool", POOL)
    assert f"it runs on {NODES[1]}" in why.stdout
    assert "queue cli-beta holds GPU 8, 4 above its quota" in why.stdout


def test_who_may_read_too_little_is_told_what(sandbox: Sandbox, namespace: str) -> None:
    """Without the role: one sentence that names the list, exit code 3."""
    create_absent(sandbox, "-k", str(MANIFESTS / "crds-kai"))
    answer = Operator(sandbox, namespace, "stranger", bound=False).type("queues")
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (3, "", 1)
    assert "not allowed to list queues.scheduling.run.ai" in answer.stderr
