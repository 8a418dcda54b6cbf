"""`uninstall` and `release` on a real Kubernetes, with nodemend's own agents and controller, as processes that are killed.

A sandbox of its own: it takes away what other tests of the process stand on. Each test installs, lets a GPU fail, takes
nodemend off in its way, and looks at the Nodes as an administrator would.
"""

import json
import os
import pty
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.assess import CONDITION_TYPES
from controller.gpu_clients import CLIENT_LABELS, OFF, ON
from controller.incident import Mark, read_mark
from kube import paths
from kube.api import PatchType
from kube.remediation import QUARANTINE
from kube.types import Node
from sandbox import actors
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import SimulatedNode, create

ROOT = Path(__file__).parents[2]
OFF_THE_BUS = (79, "GPU has fallen off the bus.")
KAI = (("queues", "scheduling.run.ai", "Queue"), ("topologies", "kai.scheduler", "Topology"))
# Shorter than in production, so that a dead controller's Lease runs out sooner.
LEASE = {"lease_duration": "8s", "renew_deadline": "6s", "retry_period": "1s"}
THEIR_CONDITION = {
    "type": "TheirFault",
    "status": "True",
    "reason": "Theirs",
    "message": "said by others",
    "lastTransitionTime": "2026-11-29T03:00:00Z",
    "lastHeartbeatTime": "2026-11-29T03:00:00Z",
}
THEIR_TAINTS = [
    {"key": "example.com/first", "value": "a", "effect": "NoSchedule"},
    {"key": "example.com/last", "effect": "PreferNoSchedule"},
]

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def own(kubernetes_programs: Mapping[str, Path]) -> Iterator[Sandbox]:
    """A Kubernetes for this file, with KAI Scheduler's kinds in it."""
    with Sandbox(programs=kubernetes_programs) as sandbox:
        definitions = [_crd(plural, group, kind) for plural, group, kind in KAI]
        sandbox.kubectl(
            "apply", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": definitions})
        )
        sandbox.kubectl("wait", "--for=condition=Established", "crd", "--all")
        for _, group, kind in KAI:
            theirs = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "theirs"}}
            sandbox.kubectl("apply", "-f", "-", stdin=json.dumps(theirs))
        yield sandbox


class Scene:
    """nodemend installed and at work on three machines with words of others on them.

    `sick` and `held` have lost a GPU and are quarantined; a person cordoned `held` before, and `spare`, which stays well.
    """

    def __init__(self, sandbox: Sandbox, nodes: Sequence[SimulatedNode], stack: ExitStack) -> None:
        self.sandbox = sandbox
        self.sick, self.held, spare = (node.name for node in nodes)
        for name in (self.sick, self.held, spare):
            _prepare(sandbox, name, cordoned=name != self.sick)
        self.before = {node.name: theirs(sandbox, node.name) for node in nodes}
        budget = {"maxUnavailable": "100%", "maxQuarantined": "100%"}
        breaker = {"threshold": "100%"}
        install(sandbox, "enforce", policy={"mode": "Quarantine", "budget": budget, "breaker": breaker})
        # The ServiceAccount is another one since the last test took the namespace away; its old token is worth nothing.
        account = (actors.SYSTEM_NAMESPACE, actors.CONTROLLER)
        sandbox.token_file(*account).write_text(sandbox.token(*account))
        started = actors.started(sandbox, nodes[:2], settings={"leader": LEASE})
        (self.controller,) = stack.enter_context(started).controllers
        for node in nodes[:2]:
            node.write_xid(*OFF_THE_BUS)
        try:
            wait_until(
                lambda: all(is_quarantined(sandbox, n.name) for n in nodes[:2]), "both to be quarantined"
            )
        except AssertionError:
            for name in (self.controller.name, *(f"agent-{node.name}" for node in nodes[:2])):
                print(f"== the end of the log of {name}", sandbox.logs(name)[-4000:], sep="\n")
            raise

    def uninstall(self, *more: str) -> subprocess.CompletedProcess[str]:
        return type_command(self.sandbox, "uninstall", "--yes", *more)

    def is_as_before(self) -> None:
        """Look at the Nodes: what is others' is the same to the byte, what is ours is gone."""
        deadline = time.monotonic() + 15  # Kubernetes' own taint follows an uncordon a moment later
        while self._theirs() != self.before and time.monotonic() < deadline:
            time.sleep(0.2)
        assert self._theirs() == self.before
        for name in self.before:
            held = raw_node(self.sandbox, name)
            assert QUARANTINE not in json.dumps(held)
            assert not {one["type"] for one in held["status"]["conditions"]} & CONDITION_TYPES

    def _theirs(self) -> dict[str, Any]:
        return {name: theirs(self.sandbox, name) for name in self.before}

    def is_gone(self) -> None:
        """Look for everything else: no object, no namespace, no kind of ours; KAI's kinds and their objects are there."""
        kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,ns,crd"
        everywhere = (
            "deployments,daemonsets,roles,rolebindings,configmaps,serviceaccounts,jobs,leases,networkpolicies"
        )
        for words in ((kinds,), (everywhere, "-A")):
            assert "nodemend" not in self.sandbox.kubectl("get", *words, "-o", "name")
        for plural, group, kind in KAI:
            kept = self.sandbox.kubectl("get", f"{plural}.{group}", "-o", "name")
            assert kept == f"{kind.lower()}.{group}/theirs\n"


@pytest.fixture
def scene(own: Sandbox) -> Iterator[Scene]:
    with ExitStack() as stack:
        unique = secrets.token_hex(2)
        nodes = create(own, [f"{role}-{unique}" for role in ("sick", "held", "spare")])
        for node in nodes:
            stack.callback(node.close)
            stack.callback(node.delete, own.admin)
        yield Scene(own, nodes, stack)


def test_beside_a_live_controller(scene: Scene) -> None:
    """Incidents are cancelled and closed by the controller; the cordon from before stays, everything of ours goes."""
    mark = read_mark(msgspec.json.decode(scene.sandbox.admin.get(paths.node(scene.held)), type=Node))
    assert isinstance(mark, Mark)
    assert (mark.unschedulable_before, mark.cordoned) == (True, False)
    assert answer_no(scene.sandbox, "uninstall") == 1
    refused = type_command(scene.sandbox, "release", "--all", "--yes")
    assert (refused.returncode, "a controller leads" in refused.stderr) == (1, True)
    answer = scene.uninstall()
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
    assert answer.stdout.count("closed, its node is as it was found") == 2
    scene.is_as_before()
    scene.is_gone()
    assert type_command(scene.sandbox, "uninstall", "--yes").returncode == 0


def test_killed_half_way_beside_a_dead_controller(scene: Scene) -> None:
    """Kill -9 of the controller, then of the command in two places: the third run brings it to its end."""
    scene.controller.kill()
    client = {"metadata": {"labels": {CLIENT_LABELS[0]: OFF}}}  # as a reset that was under way leaves it
    scene.sandbox.admin.patch(paths.node(scene.sick), client, PatchType.MERGE)
    for last_words in ("deleted DaemonSet", "put back as it was found"):
        kill_after(scene.sandbox, last_words)
    answer = scene.uninstall()
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
    scene.is_as_before()
    scene.is_gone()


def test_a_namespace_deleted_by_hand(scene: Scene) -> None:
    """Namespace and kinds were simply deleted: `release --all` restores the Nodes from what stands on them alone."""
    scene.controller.kill()
    scene.sandbox.kubectl("delete", "namespace", "nodemend-system", "nodemend-repairs")
    scene.sandbox.kubectl("delete", "crd", "nodehealths.nodemend.dev", "remediations.nodemend.dev")
    assert is_quarantined(scene.sandbox, scene.sick)
    seen = type_command(scene.sandbox, "release", "--all", "--dry-run")
    assert (seen.returncode, is_quarantined(scene.sandbox, scene.sick)) == (0, True)
    assert "GpuXidError on 2" in seen.stdout
    answer = type_command(scene.sandbox, "release", "--all", "--yes")
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
    assert f"{scene.held}: everything of nodemend's taken off; it stays cordoned" in answer.stdout
    scene.is_as_before()
    assert scene.uninstall().returncode == 0  # and it takes away what is left beside Nodes
    scene.is_gone()


# What an administrator does and sees


def type_command(sandbox: Sandbox, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program as its own process, without a terminal."""
    return subprocess.run(
        _command(sandbox, *words),
        cwd=ROOT,
        env=sandbox.environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def answer_no(sandbox: Sandbox, *words: str) -> int:
    """Type it on a terminal and say no; give the exit code."""
    theirs, ours = pty.openpty()
    command = _command(sandbox, *words)
    with subprocess.Popen(
        command, cwd=ROOT, env=sandbox.environment(), stdin=ours, stdout=ours, stderr=ours
    ) as process:
        os.close(ours)
        os.write(theirs, b"n\n")
        shown = ""
        while "Go on?" not in shown:
            shown += os.read(theirs, 65536).decode()
        code = process.wait(60)
    os.close(theirs)
    return code


def kill_after(sandbox: Sandbox, words: str) -> None:
    """Run `uninstall` and kill -9 it as soon as it has said these words."""
    command = _command(sandbox, "uninstall", "--yes")
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=sandbox.environment(),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = next((line for line in process.stdout if words in line), None)
        process.kill()
    assert said is not None, f"it ended without saying {words!r}"


def _command(sandbox: Sandbox, *words: str) -> list[str]:
    return [sys.executable, "-m", "cli", "--kubeconfig", str(sandbox.admin_kubeconfig), *words]


def raw_node(sandbox: Sandbox, name: str) -> dict[str, Any]:
    """Read a Node without what the server keeps for itself."""
    held: dict[str, Any] = json.loads(sandbox.admin.get(paths.node(name)))
    held["metadata"].pop("managedFields")
    return held


def theirs(sandbox: Sandbox, name: str) -> dict[str, Any]:
    """Give what is others' on a Node: labels, annotations, spec, conditions but kubelet's."""
    held = raw_node(sandbox, name)
    conditions = [one for one in held["status"]["conditions"] if one["type"] == "TheirFault"]
    metadata = {field: held["metadata"].get(field) for field in ("labels", "annotations")}
    return {**metadata, "spec": held["spec"], "conditions": conditions}


def is_quarantined(sandbox: Sandbox, name: str) -> bool:
    held = raw_node(sandbox, name)
    keys = [taint["key"] for taint in held["spec"].get("taints", [])]
    return QUARANTINE in keys and QUARANTINE in held["metadata"]["annotations"]


def wait_until(true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.2)


def _prepare(sandbox: Sandbox, name: str, *, cordoned: bool) -> None:
    """Put others' words on a Node: a condition, an annotation, taints on both sides of where ours will be; a cordon."""
    admin = sandbox.admin
    words = {"annotations": {"example.com/note": "keep"}, "labels": {CLIENT_LABELS[0]: ON}}
    admin.patch(paths.node(name), {"metadata": words}, PatchType.MERGE)
    spec = {"unschedulable": cordoned or None, "taints": THEIR_TAINTS}
    admin.patch(paths.node(name), {"spec": spec}, PatchType.MERGE)
    admin.patch(paths.node_status(name), {"status": {"conditions": [THEIR_CONDITION]}}, PatchType.STRATEGIC)
    if cordoned:
        wait_until(
            lambda: "node.kubernetes.io/unschedulable" in json.dumps(raw_node(sandbox, name)), "the cordon"
        )


def _crd(plural: str, group: str, kind: str) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }
