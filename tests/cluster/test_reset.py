"""A GPU is reset on a real control plane: NVML's handles dropped, GPU Operator's pods away and back, nvidia-smi, the proof.

The agent, the controller, the Job's program, NVML's child and the DaemonSet controller are real; the machine, its driver and
its pods are simulated.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest

from kube import paths
from kube.api import NotFound
from kube.nodehealth import NodeHealth
from kube.remediation import Phase, Remediation
from kube.types import ObjectMeta
from sandbox import nodes as simulated
from sandbox.actors import Actors, started
from sandbox.cluster import Sandbox
from sandbox.fake_nvml import FakeDriver
from sandbox.install import install
from sandbox.nodes import Reboots, SimulatedNode
from tests.sandbox.nvml_program import built_or_skip

T = TypeVar("T")
SICK, NEIGHBOUR = 3, 5
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
APP = "nvidia-device-plugin-daemonset"
NAMESPACE = "gpu-operator-of-reset"


def eventually(look: Callable[[], T | None], what: Callable[[], str], timeout_s: float = 120.0) -> T:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {timeout_s:g} s; {what()}")


def plugin() -> dict[str, Any]:
    """Describe the device plugin's DaemonSet as GPU Operator does: it runs where the Node's label says so."""
    labels = {"app": APP}
    pod = {
        "nodeSelector": {PLUGIN: "true", "nodemend.dev/test": "reset"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "plugin", "image": "plugin"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": APP, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@pytest.fixture(scope="module", autouse=True)
def operator(sandbox: Sandbox) -> Iterator[None]:
    """The namespace of GPU Operator, with its device plugin."""
    built_or_skip()
    sandbox.kubectl("create", "namespace", NAMESPACE)
    sandbox.kubectl("apply", "-f", "-", stdin=json.dumps(plugin()))
    yield
    sandbox.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def node(sandbox: Sandbox) -> Iterator[SimulatedNode]:
    """One node with a driver and GPU Operator's device plugin, under a policy of its own."""
    install(sandbox, "enforce", policy={"nodeSelector": {"nodemend.dev/test": "reset"}})
    (node,) = simulated.create(sandbox, ["reset-1"])
    node.reboots = Reboots(down_s=0.2, not_ready_s=0.2)
    node.install_driver()
    sandbox.kubectl("label", "node", node.name, "nodemend.dev/test=reset", f"{PLUGIN}=true")
    yield node
    sandbox.kubectl("delete", "remediations", "--all")
    sandbox.kubectl("delete", "jobs", "--all", "-n", "nodemend-repairs")
    node.delete(sandbox.admin)
    node.close()
    install(sandbox, "enforce", policy={"nodeSelector": {}, "sinks": []})


class Watch:
    """What a test looks at."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode, actors: Actors) -> None:
        self._sandbox, self._node, self._actors = sandbox, node, actors
        self.driver: FakeDriver = FakeDriver.attach(node.driver_root)

    def incident(self) -> Remediation | None:
        items = msgspec.json.decode(self._sandbox.admin.get(paths.remediations()))["items"]
        every = msgspec.convert(items, list[Remediation])
        return next((one for one in every if one.spec.node_name == self._node.name), None)

    def ended(self) -> Remediation | None:
        found = self.incident()
        return found if found is not None and found.status.phase is Phase.RETURNED else None

    def health(self) -> NodeHealth:
        """Read it; an empty one where the agent has not made it yet."""
        try:
            raw = self._sandbox.admin.get(paths.node_health(self._node.name))
        except NotFound:
            return NodeHealth(metadata=ObjectMeta(name=self._node.name))
        return msgspec.json.decode(raw, type=NodeHealth)

    def plugin_runs(self) -> bool | None:
        listed = self._sandbox.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name").split()
        return True if listed else None

    def reads_nvml(self) -> bool | None:
        found = any(s.name == "nvml" and s.readable for s in self.health().status.sources)
        return True if found and self.driver.clients() else None

    def story(self) -> str:
        log = self._actors.controllers[0].logs[-3000:]
        return f"{self.incident()}\n{self.health()}\n{log}"


def test_one_gpu_is_reset_while_the_machine_runs_on(sandbox: Sandbox, node: SimulatedNode) -> None:
    """Everybody is off the driver for it and on it again afterwards; nothing else of the machine was touched."""
    before = node.boot_id
    with started(sandbox, [node], agent_settings={"nvml": {"period": "5s"}}) as actors:
        watch = Watch(sandbox, node, actors)
        eventually(watch.reads_nvml, watch.story)
        eventually(watch.plugin_runs, watch.story)
        watch.driver.require_reset(SICK)
        # After this one the agent asks the GPU nothing more, until the reset is cleared.
        node.write_xid(119, "Timeout after 6s of waiting for RPC response from GPU0 GSP!", gpu=SICK)
        one = eventually(watch.ended, watch.story)
        eventually(watch.plugin_runs, watch.story)
        after, health = node.read(sandbox.admin), watch.health()

    assert [(a.kind, a.result) for a in one.status.attempts] == [
        ("reset-gpu", "Succeeded"),
        ("revalidate", "Succeeded"),
    ]
    resets = [watch.driver.resets(number) for number in range(8)]
    assert resets == [int(number == SICK) for number in range(8)]
    assert (node.boot_id, node.rebooted, after.spec.unschedulable) == (before, 0, False)
    assert after.metadata.labels[PLUGIN] == "true"
    assert (health.spec.release, health.status.released) == (None, None)
    assert [row.uuid for row in health.spec.cleared] == [node.gpus[SICK].uuid]
    assert health.status.findings == ()


def test_a_row_remap_that_waits_is_applied_once_the_node_is_idle(
    sandbox: Sandbox, node: SimulatedNode
) -> None:
    """What NVML alone shows goes the same way: found, waited for, reset, seen to be gone, given back."""
    before = node.boot_id
    with started(sandbox, [node], agent_settings={"nvml": {"period": "5s"}}) as actors:
        watch = Watch(sandbox, node, actors)
        eventually(watch.reads_nvml, watch.story)
        watch.driver.set(SICK, "remapped_rows", (3, 1, 1, 0))
        one = eventually(watch.ended, watch.story)
        after, health = node.read(sandbox.admin), watch.health()

    assert [finding.reason for finding in one.spec.evidence] == ["RowRemapPending"]
    assert [(a.kind, a.result) for a in one.status.attempts] == [
        ("reset-gpu", "Succeeded"),
        ("revalidate", "Succeeded"),
    ]
    assert [watch.driver.resets(number) for number in range(8)] == [int(n == SICK) for n in range(8)]
    assert (node.boot_id, after.spec.unschedulable) == (before, False)
    condition = after.condition("GpuRowRemapFault")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "RowRemapHealthy")
    assert health.status.findings == ()


def test_a_reset_that_is_refused_ends_in_a_reboot(sandbox: Sandbox, node: SimulatedNode) -> None:
    """Somebody holds the GPU whom nobody knows: the driver says so, and the next rung follows."""
    before = node.boot_id
    with started(sandbox, [node], agent_settings={"nvml": {"period": "5s"}}) as actors:
        watch = Watch(sandbox, node, actors)
        eventually(watch.reads_nvml, watch.story)
        watch.driver.process(SICK, 4242)
        node.write_xid(95, "Uncontained ECC error", gpu=SICK)
        one = eventually(watch.ended, watch.story)

    assert [(a.kind, a.result) for a in one.status.attempts] == [
        ("reset-gpu", "Failed"),
        ("reboot", "Succeeded"),
        ("revalidate", "Succeeded"),
    ]
    assert "In use by another client" in one.status.attempts[0].message
    assert node.boot_id != before
    assert node.read(sandbox.admin).metadata.labels[PLUGIN] == "true"
