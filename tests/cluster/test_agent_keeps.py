"""What an agent keeps on the real API server: a fault over the loss of its state, and its condition over a removal."""

import shutil
import time
from collections.abc import Iterator

import msgspec
import pytest

from kube import paths
from kube.api import PatchType
from kube.types import Node, NodeCondition
from sandbox import nodes as simulated
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import SimulatedNode
from tests.cluster.stage import CONDITION, OFF_THE_BUS, Stage, standing, take_away

pytestmark = pytest.mark.cluster

# The agent looks at its Node every half minute.
_LOOKED_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def stage(sandbox: Sandbox) -> Iterator[Stage]:
    """Agents and no controller."""
    install(sandbox, "observe")
    sandbox.create_namespace("agent-keeps")
    with standing(sandbox, "agent-keeps") as stage:
        yield stage
    sandbox.kubectl("delete", "namespace", "agent-keeps", "--wait=false")


def ill(stage: Stage, name: str) -> SimulatedNode:
    """A node of that name whose fault stands on the Node and in NodeHealth."""
    (node,) = simulated.create(stage.sandbox, [name])
    stage.apply_policy(name, mode="Observe")
    stage.start_agents([node])
    node.write_xid(*OFF_THE_BUS, gpu=3)
    stage.wait(lambda: stage.status_of(name) == "True", f"{CONDITION} on {name}")
    stage.wait(lambda: bool(findings(stage, name)), f"the finding in NodeHealth of {name}")
    return node


def findings(stage: Stage, name: str) -> list[str]:
    health = stage.watching.healths.get(name)
    return [finding.reason for finding in health.status.findings] if health is not None else []


def condition(stage: Stage, name: str) -> NodeCondition | None:
    node = stage.watching.nodes.get(name)
    return node.condition(CONDITION) if node is not None else None


def test_an_agent_that_lost_its_state_keeps_the_fault(stage: Stage) -> None:
    """An empty state folder, and a kernel log that has dropped the line: NodeHealth remembers, the condition stays True."""
    node = ill(stage, "lost-its-state")
    before = condition(stage, node.name)
    agent = stage.agents[node.name]
    told: list[str] = []
    stage.watching.nodes.subscribe(
        lambda _change, seen: told.append(stage.status_of(node.name)) if seen is not None else None
    )
    agent.power_off()
    for number in range(1000):
        node.write_kernel_line(
            f"eth0: a line that pushes others out of the ring, number {number:04}", level=6
        )
    shutil.rmtree(node.machine.state_dir)
    node.machine.state_dir.mkdir()
    agent.power_on()
    stage.wait(lambda: agent.starts == 2, "the agent to start again")
    agent.wait_ready(60)
    time.sleep(5.0)
    after = condition(stage, node.name)
    assert before is not None
    assert after is not None
    assert (after.reason, after.message) == (before.reason, before.message)
    assert after.last_transition_time == before.last_transition_time
    assert "Xid79FallenOffBus" in findings(stage, node.name)
    assert set(told) <= {"True"}
    take_away(stage, [node])


def test_a_condition_that_somebody_removed_comes_back(stage: Stage) -> None:
    """The agent watches its Node and puts back what is missing, often before anybody else sees it gone."""
    node = ill(stage, "condition-removed")
    before = condition(stage, node.name)
    body = {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}
    answer = stage.admin.patch(paths.node_status(node.name), body, PatchType.STRATEGIC)
    assert msgspec.json.decode(answer, type=Node).condition(CONDITION) is None
    stage.wait(lambda: stage.status_of(node.name) == "True", "the condition to be back", _LOOKED_WITHIN_S)
    after = condition(stage, node.name)
    assert before is not None
    assert after is not None
    assert (after.reason, after.message) == (before.reason, before.message)
    take_away(stage, [node])


def test_node_health_is_a_table_that_people_can_read(stage: Stage) -> None:
    """`kubectl get nodehealth`: which node, which fault, which card, one line each, on a usual terminal."""
    node = ill(stage, "readable")
    header, row = stage.sandbox.kubectl("get", "nodehealth", node.name).splitlines()
    assert header.split() == ["NAME", "WORST", "SEVERITY", "PART", "PCI", "DRIVER", "OBSERVED", "AGE"]
    pci = node.gpus[3].pci.removesuffix(".0")
    assert row.split()[:6] == [node.name, "Xid79FallenOffBus", "Fault", "gpu", pci, "580.95.05"]
    assert max(len(header), len(row)) <= 120
    take_away(stage, [node])
