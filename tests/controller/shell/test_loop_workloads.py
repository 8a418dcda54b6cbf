"""controller.loop: a suspected workload is held over a change of leader, and what peers show reaches NodeHealth."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kube import paths
from kube.api import PatchType
from kube.remediation import WORKLOAD_ACKNOWLEDGED
from kube.timestamps import rfc3339
from tests.controller.shell.fleet import Fleet

ROOMY: dict[str, Any] = {
    "budget": {"maxUnavailable": "100%", "maxQuarantined": "100%", "maxRepairsInFlight": 8},
    "breaker": {"threshold": "100%", "minNodes": 50},
}


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Eight nodes under an Enforce policy whose limits leave room for all of them."""
    made = Fleet(policy=ROOMY)
    yield made
    made.stop()


def fail(fleet: Fleet, name: str) -> None:
    """Let a pod of one PyTorchJob leave a GSP timeout on a node."""
    fleet.clock.advance(600)
    owner = {"kind": "PyTorchJob", "name": "llm", "uid": "llm", "controller": True}
    pod = f"llm-worker-{name}"
    fleet.api.add(
        paths.pods("ml"),
        {
            "metadata": {"name": pod, "namespace": "ml", "uid": pod, "ownerReferences": [owner]},
            "spec": {"nodeName": name, "containers": [{"name": "c"}]},
        },
    )
    fleet.report(name, fault=True)
    (finding,) = fleet.api.read(paths.node_health(name))["status"]["findings"]
    finding |= {"reason": "Xid119GspTimeout", "effect": "part-out", "holder": f"ml/{pod}"}
    fleet.api.patch(paths.node_health_status(name), {"status": {"findings": [finding]}}, PatchType.MERGE)
    fleet.later(timedelta(seconds=1))
    if pod in fleet.api.names(paths.pods("ml")):
        fleet.api.remove(paths.pod("ml", pod))  # its controller starts it elsewhere
    fleet.later(timedelta(seconds=10))


def told(fleet: Fleet) -> dict[str, tuple[str, str]]:
    """Give phase and hold of each node's incident."""
    return {
        one["spec"]["nodeName"]: (one["status"]["phase"], one["status"].get("heldBy", ""))
        for one in fleet.incidents()
    }


def test_a_suspected_workload_is_held_over_a_change_of_leader(fleet: Fleet) -> None:
    """Two nodes are repaired; the third and the fourth are cordoned and wait, one page says so, a person lets them go."""
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        fail(fleet, name)
    fleet.stop()
    fleet.start()
    fail(fleet, "gpu-3")
    assert told(fleet) == {
        "gpu-0": ("Repairing", ""),
        "gpu-1": ("Repairing", ""),
        "gpu-2": ("Quarantined", "workload"),
        "gpu-3": ("Quarantined", "workload"),
    }
    assert (len(fleet.jobs()), fleet.sent("CREATE", "/eviction")) == (2, 2)
    (incident,) = [one for one in fleet.incidents() if one["spec"]["nodeName"] == "gpu-3"]
    assert incident["status"]["suspect"]["nodes"] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert incident["status"]["holders"] == [{"pod": "ml/llm-worker-gpu-3", "owner": "ml/llm"}]
    assert fleet.inbox.types().count("workload.open") == 1
    said = {"metadata": {"annotations": {WORKLOAD_ACKNOWLEDGED: rfc3339(fleet.clock.now())}}}
    fleet.api.patch(paths.policy("gpus"), said, PatchType.MERGE)
    fleet.later(timedelta(seconds=10))
    assert {phase for phase, _ in told(fleet).values()} == {"Repairing"}
    assert fleet.inbox.types().count("workload.resolve") == 1


def test_what_peers_show_reaches_the_node_that_stands_out(fleet: Fleet) -> None:
    """One write for each node, none when a peer reports the same again, and nothing else of the spec is touched."""
    for name in fleet.names:
        rate = 200_000 if name == "gpu-5" else 400_000
        ports = {"active": 8, "rateMbps": rate, "at": rfc3339(fleet.clock.now())}
        parts = [{"kind": "gpu", "model": "NVIDIA H100 80GB HBM3"}]
        status = {"fabricPorts": ports, "parts": parts}
        fleet.api.patch(paths.node_health_status(name), {"status": status}, PatchType.MERGE)
    release = {"spec": {"release": {"by": "somebody", "since": rfc3339(fleet.clock.now())}}}
    fleet.api.patch(paths.node_health("gpu-5"), release, PatchType.MERGE)
    fleet.turn()
    spec = fleet.api.read(paths.node_health("gpu-5"))["spec"]
    assert (spec["peers"]["ports"], spec["peers"]["rateMbps"], spec["peers"]["counted"]) == (8, 400_000, 7)
    assert spec["release"]["by"] == "somebody"
    fleet.stop()
    fleet.start()
    before = len(fleet.api.writes())
    fleet.later(timedelta(minutes=5))
    assert [r.path for r in fleet.api.writes()[before:] if "nodehealths" in r.path] == []
