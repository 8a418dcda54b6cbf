"""Many agents in one process, on the real API server: the product's conditions, NodeHealths and Leases."""

import json
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from kube import paths
from kube.api import PatchType
from kube.nodehealth import NodeHealth
from kube.types import Lease
from sandbox import nodes as simulated
from sandbox import power
from sandbox.agents import AgentHost
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from sandbox.install import install
from sandbox.nodes import Reboots, SimulatedNode

COUNT = 12


@pytest.fixture(scope="module")
def fleet(sandbox: Sandbox) -> Iterator[list[SimulatedNode]]:
    install(sandbox)
    nodes = simulated.create(sandbox, [f"hosted-{number}" for number in range(COUNT)])
    identities = AgentIdentities(sandbox)
    host = AgentHost(identities, nodes)
    host.start()
    yield nodes
    host.stop()
    identities.close()
    for node in nodes:
        node.delete(sandbox.admin)
        node.close()


def wait(look: Callable[[], object], wanted: object, timeout_s: float = 30.0) -> object:
    deadline = time.monotonic() + timeout_s
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


def statuses(sandbox: Sandbox, nodes: list[SimulatedNode]) -> list[str]:
    conditions = [node.read(sandbox.admin).condition("GpuXidError") for node in nodes]
    return [condition.status if condition else "absent" for condition in conditions]


def health(sandbox: Sandbox, node: SimulatedNode) -> NodeHealth:
    return msgspec.json.decode(sandbox.admin.get(paths.node_health(node.name)), type=NodeHealth)


def test_every_node_gets_its_condition_its_report_and_its_lease(
    sandbox: Sandbox, fleet: list[SimulatedNode]
) -> None:
    """Nothing was written by hand: NodeHealth names the parts that the machine's files show."""
    healthy = ["False"] * COUNT
    assert wait(lambda: statuses(sandbox, fleet), healthy) == healthy

    first = health(sandbox, fleet[0])
    assert [part.uuid for part in first.status.parts] == [gpu.uuid for gpu in fleet[0].gpus]
    assert first.status.boot_id == fleet[0].boot_id
    leased = sorted(node.name for node in fleet)
    assert wait(lambda: leases(sandbox), leased) == leased


def leases(sandbox: Sandbox) -> list[str]:
    raw = json.loads(sandbox.kubectl("get", "leases", "-n", "nodemend-system", "-o", "json"))
    found = msgspec.convert(raw["items"], list[Lease])
    return sorted(one.metadata.name for one in found if one.metadata.name.startswith("hosted-"))


def test_a_fault_here_is_no_fault_there(sandbox: Sandbox, fleet: list[SimulatedNode]) -> None:
    """Half of the fleet fails in one instant, the other half stays as it is."""
    wait(lambda: statuses(sandbox, fleet), ["False"] * COUNT)
    sick, well = fleet[: COUNT // 2], fleet[COUNT // 2 :]
    for node in sick:
        node.write_xid(79, "GPU has fallen off the bus.", gpu=1)

    assert wait(lambda: statuses(sandbox, sick), ["True"] * len(sick)) == ["True"] * len(sick)
    assert statuses(sandbox, well) == ["False"] * len(well)


def test_a_clearing_reaches_the_agent_through_the_shared_watch(
    sandbox: Sandbox, fleet: list[SimulatedNode]
) -> None:
    """NodeHealth.spec.clearedBefore, as the controller writes it, takes the fault back."""
    node = fleet[0]
    node.write_xid(79, "GPU has fallen off the bus.", gpu=2)
    wait(lambda: any(one.part.index == 2 for one in health(sandbox, node).status.findings), True)
    seen = max(finding.last_seen for finding in health(sandbox, node).status.findings)
    spec = {"spec": {"clearedBefore": seen.isoformat(), "clearedBy": "test"}}
    sandbox.admin.patch(paths.node_health(node.name), spec, PatchType.MERGE)

    assert wait(lambda: statuses(sandbox, [node]), ["False"]) == ["False"]


def test_a_hosted_agent_dies_and_comes_back_with_its_machine(
    sandbox: Sandbox, fleet: list[SimulatedNode]
) -> None:
    """After the reboot the new boot's agent finds nothing, and says so with the new boot id."""
    node = fleet[1]
    node.reboots = Reboots(down_s=0.1, not_ready_s=0.1)
    node.write_xid(79, "GPU has fallen off the bus.", gpu=2)
    wait(lambda: statuses(sandbox, [node]), ["True"])
    power.reboot(node, sandbox.admin)

    assert wait(lambda: statuses(sandbox, [node]), ["False"]) == ["False"]
    assert wait(lambda: health(sandbox, node).status.boot_id, node.boot_id) == node.boot_id
