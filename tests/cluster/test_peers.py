"""The node on which every port is slow, on the real API server: agents show, the controller counts, the odd agent finds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube import paths
from kube.nodehealth import NodeHealth
from sandbox import nodes as simulated
from sandbox.actors import start_agent, start_controller
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import SimulatedNode
from sandbox.rdma_machines import HDR, h100_ndr
from sandbox.sysfs_infiniband import SysMachine, SysPort, Tree, render
from tests.fakes import wait_until

NAMES = tuple(f"fabric-{number}" for number in range(4))
SLOW = NAMES[2]
CONDITION = "InfinibandPortDegraded"
SOON: Mapping[str, Any] = {
    "infiniband": {"period": "2s"},
    "checks": {"infiniband": {"down_seconds": 4, "up_seconds": 4}},
}


@pytest.fixture(scope="module")
def trees(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tree]]:
    """Four nodes of one kind, eight ports each, those of one at half of the rate; their agents and a controller."""
    install(sandbox, "observe")
    nodes = simulated.create(sandbox, NAMES)
    trees = {node.name: rendered(node, tmp_path_factory.mktemp(node.name)) for node in nodes}
    agents = [
        start_agent(sandbox, node, settings={**SOON, "roots": {"sys": str(trees[node.name].sys)}})
        for node in nodes
    ]
    controllers = start_controller(sandbox)
    try:
        yield trees
    finally:
        for controller in controllers:
            controller.stop()
        for agent in agents:
            agent.stop()
        for node in nodes:
            node.delete(sandbox.admin)
            node.close()


def rendered(node: SimulatedNode, folder: Path) -> Tree:
    whole = h100_ndr()
    gpus = tuple((gpu.pci, gpu.index // 4) for gpu in node.gpus)
    ports = (SysPort(rate=HDR if node.name == SLOW else SysPort().rate),)
    # In a PCI domain of their own: the simulated GPUs have these addresses.
    hcas = tuple(
        msgspec.structs.replace(
            hca, pci=f"0001{hca.pci[4:]}", ports=ports if hca.hca_type == "MT4129" else hca.ports
        )
        for hca in whole.hcas
    )
    return render(SysMachine(hcas=hcas, gpus=gpus, bonds=whole.bonds), folder)


def health(sandbox: Sandbox, name: str) -> NodeHealth:
    return msgspec.json.decode(sandbox.admin.get(paths.node_health(name)), type=NodeHealth)


def reasons(sandbox: Sandbox, name: str) -> list[str]:
    return [finding.reason for finding in health(sandbox, name).status.findings]


def statuses(sandbox: Sandbox) -> dict[str, str]:
    """Give the condition of each node, empty where there is none yet."""
    seen = {}
    for name in NAMES:
        raw = msgspec.json.decode(sandbox.admin.get(paths.node(name)))
        rows = [row["status"] for row in raw["status"]["conditions"] if row["type"] == CONDITION]
        seen[name] = rows[0] if rows else ""
    return seen


def test_the_slow_node_is_found_by_its_peers(sandbox: Sandbox, trees: dict[str, Tree]) -> None:
    """Its own look, and what it validated itself, say that all is well; no other node is touched."""
    expected = {name: "True" if name == SLOW else "False" for name in NAMES}
    wait_until(lambda: statuses(sandbox) == expected, 120)
    # NodeHealth is written a moment after the condition.
    wait_until(lambda: reasons(sandbox, SLOW) == ["RateBelowExpected"] * 8, 30)
    slow = health(sandbox, SLOW)
    assert slow.status.fabric_ports is not None
    assert (slow.status.fabric_ports.active, slow.status.fabric_ports.rate_mbps) == (8, 200_000)
    assert slow.spec.peers is not None
    assert (slow.spec.peers.ports, slow.spec.peers.rate_mbps, slow.spec.peers.counted) == (8, 400_000, 3)
    for name in set(NAMES) - {SLOW}:
        # Two of its three peers show 400 and one shows 200.
        assert (reasons(sandbox, name), health(sandbox, name).spec.peers is not None) == ([], True)

    for number in (0, 3, 4, 5, 6, 9, 10, 11):
        trees[SLOW].set(f"mlx5_{number}", "rate", SysPort().rate)
    wait_until(lambda: statuses(sandbox) == dict.fromkeys(NAMES, "False"), 60)
