"""Narrow containment on a real control plane: who is left alone, who is evicted, and how long the node stays open.

The agent, the controller, the reset's program and kubelet's PodResources protocol are real; the machine, its driver,
kubelet's choice of cards and the pods are simulated.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from kube import paths
from kube.api import NotFound
from kube.nodehealth import NodeHealth, PartState
from kube.remediation import Phase, Remediation
from kube.types import ObjectMeta
from sandbox import nodes as simulated
from sandbox.actors import Actors, started
from sandbox.cluster import Sandbox
from sandbox.fake_nvml import FakeDriver
from sandbox.install import install
from sandbox.nodes import Reboots, SimulatedNode
from sandbox.pod_resources import PodResourcesServer, allocatable, pod
from tests.agent.pod_resources_server import socket_path
from tests.sandbox.nvml_program import built_or_skip

T = TypeVar("T")
SICK, NEIGHBOUR = 3, 5
NAMESPACE = "narrow"
GPU = "nvidia.com/gpu"
NARROW = {
    "containment": "narrow",
    "nodeSelector": {"nodemend.dev/test": "narrow"},
    "drain": {"unmanagedPods": "evict"},
}
CORDON: dict[str, Any] = {"containment": "cordon", "nodeSelector": {}, "drain": {"unmanagedPods": "block"}}


class Kubelet:
    """Says which GPU each pod has for as long as the pod is there; `withheld` are the GPUs that it offers to nobody."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode, path: Path) -> None:
        self.withheld: set[str] = set()
        self._sandbox, self._node = sandbox, node
        self._cards: dict[str, str] = {}
        self.server = PodResourcesServer(path)
        self.server.answer_by(self._answer)

    def start_pod(self, name: str, gpu: int) -> None:
        """Let nodemend-scheduler have placed a pod, and kubelet have given it this GPU."""
        self._cards[name] = self._node.gpus[gpu].uuid
        container = {"name": "c", "image": "example.invalid/work:1", "resources": {"limits": {GPU: "1"}}}
        spec = {
            "nodeName": self._node.name,
            "schedulerName": "nodemend-scheduler",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        self._sandbox.admin.create(paths.pods(NAMESPACE), {"metadata": {"name": name}, "spec": spec})

    def has_pod(self, name: str) -> bool:
        try:
            self._sandbox.admin.get(paths.pod(NAMESPACE, name))
        except NotFound:
            return False
        return True

    def _answer(self, method: str, _context: Any) -> bytes:
        if method != "List":
            return allocatable(GPU, *(one.uuid for one in self._node.gpus if one.uuid not in self.withheld))
        running = [name for name in self._cards if self.has_pod(name)]
        return b"".join(pod(NAMESPACE, name, GPU, self._cards[name]) for name in running)


class Scene:
    """A node with two pods on GPUs of their own, and what a test looks at."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode, kubelet: Kubelet, actors: Actors) -> None:
        self.sandbox, self.node, self.kubelet, self.actors = sandbox, node, kubelet, actors
        self.driver = FakeDriver.attach(node.driver_root)
        self.open_until_reset = True

    def wait(self, look: Callable[[], T | None], timeout_s: float = 150.0) -> T:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._watch_cordon()
            if (found := look()) is not None:
                return found
            time.sleep(0.1)
        log = self.actors.controllers[0].logs[-3000:]
        raise AssertionError(f"waited {timeout_s:g} s; {self.incident()}\n{self.health()}\n{log}")

    def _watch_cordon(self) -> None:
        """Note a cordon that came while a pod still had the sick GPU; a reset ends what kubelet withheld."""
        cordoned = self.node.read(self.sandbox.admin).spec.unschedulable
        if cordoned and self.kubelet.has_pod("holder"):
            self.open_until_reset = False
        if self.driver.resets(SICK):
            self.kubelet.withheld.clear()

    def incident(self) -> Remediation | None:
        items = msgspec.json.decode(self.sandbox.admin.get(paths.remediations()))["items"]
        every = msgspec.convert(items, list[Remediation])
        return next((one for one in every if one.spec.node_name == self.node.name), None)

    def is_in(self, phase: Phase) -> Remediation | None:
        found = self.incident()
        return found if found is not None and found.status.phase is phase else None

    def health(self) -> NodeHealth:
        try:
            raw = self.sandbox.admin.get(paths.node_health(self.node.name))
        except NotFound:
            return NodeHealth(metadata=ObjectMeta(name=self.node.name))
        return msgspec.json.decode(raw, type=NodeHealth)

    def part(self) -> PartState | None:
        uuid = self.node.gpus[SICK].uuid
        return next((part for part in self.health().status.parts if part.uuid == uuid), None)

    def is_known(self, *, offered: bool) -> bool | None:
        """Tell whether the agent has heard from kubelet who has the GPU, and whether it is offered."""
        part = self.part()
        known = part is not None and part.offered is offered and part.held_by == f"{NAMESPACE}/holder"
        return True if known else None


@pytest.fixture(scope="module", autouse=True)
def namespace(sandbox: Sandbox) -> Iterator[None]:
    """A namespace for the pods of a team."""
    sandbox.create_namespace(NAMESPACE)
    yield
    sandbox.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def scene(sandbox: Sandbox) -> Iterator[Scene]:
    """One node with a driver and a kubelet of its own, under a policy that says narrow."""
    built_or_skip()
    install(sandbox, "enforce", policy=NARROW)
    (node,) = simulated.create(sandbox, ["narrow-1"])
    node.reboots = Reboots(down_s=0.2, not_ready_s=0.2)
    node.install_driver()
    sandbox.kubectl("label", "node", node.name, "nodemend.dev/test=narrow")
    with socket_path() as path:
        kubelet = Kubelet(sandbox, node, path)
        kubelet.start_pod("holder", SICK)
        kubelet.start_pod("neighbour", NEIGHBOUR)
        settings = {
            "nvml": {"period": "5s"},
            "kubelet": {"enabled": True, "interval": "5s", "pod_resources": str(path)},
        }
        with kubelet.server, started(sandbox, [node], agent_settings=settings) as actors:
            yield Scene(sandbox, node, kubelet, actors)
    sandbox.kubectl("delete", "remediations", "--all")
    sandbox.kubectl("delete", "jobs", "--all", "-n", "nodemend-repairs")
    sandbox.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force")
    node.delete(sandbox.admin)
    node.close()
    install(sandbox, "enforce", policy={**CORDON, "sinks": []})


def ended(scene: Scene, one: Remediation) -> None:
    """Hold the end against what narrow containment promises."""
    assert [(a.kind, a.result) for a in one.status.attempts] == [
        ("reset-gpu", "Succeeded"),
        ("revalidate", "Succeeded"),
    ]
    assert scene.open_until_reset
    assert scene.kubelet.has_pod("neighbour")
    assert [scene.driver.resets(number) for number in (SICK, NEIGHBOUR)] == [1, 0]
    node = json.loads(scene.sandbox.admin.get(paths.node(scene.node.name)))
    assert "unschedulable" not in node["spec"]
    assert not node["spec"].get("taints")


def test_a_degraded_gpu_leaves_the_node_open_and_is_repaired_once_its_pod_has_ended(scene: Scene) -> None:
    """Nobody is evicted: the node waits, open, for as long as the pod runs."""
    scene.wait(lambda: scene.is_known(offered=True))
    scene.driver.set(SICK, "remapped_rows", (3, 1, 1, 0))
    waits = scene.wait(lambda: scene.is_in(Phase.WAITING))
    uuid = scene.node.gpus[SICK].uuid
    assert f"the node stays open until {uuid} is idle" in waits.status.message
    time.sleep(5)
    assert scene.is_in(Phase.WAITING) is not None
    assert scene.kubelet.has_pod("holder")
    assert not scene.node.read(scene.sandbox.admin).spec.unschedulable

    scene.sandbox.admin.delete(paths.pod(NAMESPACE, "holder"))
    one = scene.wait(lambda: scene.is_in(Phase.RETURNED))
    ended(scene, one)
    assert [finding.reason for finding in one.spec.evidence] == ["RowRemapPending"]


def test_a_sick_gpu_that_kubelet_withholds_costs_the_pod_that_has_it_and_no_other(scene: Scene) -> None:
    """That pod is evicted while the node is open; the GPU is reset and proven beside the neighbour's work."""
    scene.wait(lambda: scene.is_known(offered=True))
    scene.kubelet.withheld.add(scene.node.gpus[SICK].uuid)
    scene.wait(lambda: scene.is_known(offered=False))
    scene.node.write_xid(95, "Uncontained ECC error", gpu=SICK)
    one = scene.wait(lambda: scene.is_in(Phase.RETURNED))
    ended(scene, one)
    assert not scene.kubelet.has_pod("holder")
    phases = list(dict.fromkeys(entry.phase for entry in one.status.timeline))
    assert phases[:3] == ["Suspected", "Waiting", "Quarantined"]
