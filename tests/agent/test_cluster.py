"""The agent against a real API server: under its own rights, on Nodes that go and come, over an outage."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import pytest

from agent.publish import patch_body
from checks.condition import Condition, Status
from kube import paths
from kube.api import ApiError, Invalid, NotFound, PatchType
from kube.nodehealth import NodeHealth
from kube.types import Lease, Node, NodeCondition
from sandbox import nodes as simulated
from sandbox.actors import AgentActor, start_agent
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import SimulatedNode

T = TypeVar("T")
OFF_THE_BUS = (79, "GPU has fallen off the bus.")
APPLICATION = (13, "Graphics Exception")


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = 60.0) -> T:
    """Wait for something that is not there yet; an API server that is away counts as that."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
        except ApiError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:g} s for {what}")


class Seen:
    """A simulated node with its real agent, and what the API server shows of both."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode, actor: AgentActor) -> None:
        self.sandbox = sandbox
        self.node = node
        self.actor = actor

    def condition(self, status: str) -> NodeCondition:
        def look() -> NodeCondition | None:
            seen = self.node.read(self.sandbox.admin).condition("GpuXidError")
            return seen if seen is not None and seen.status == status else None

        return eventually(look, f"GpuXidError={status}")

    def health(self) -> NodeHealth:
        return msgspec.json.decode(self.sandbox.admin.get(paths.node_health(self.node.name)), type=NodeHealth)

    def lease(self) -> Lease | None:
        raw = self.sandbox.admin.get(paths.lease("nodemend-system", self.node.name))
        return msgspec.json.decode(raw, type=Lease)

    def finding(self, reason: str) -> NodeHealth:
        def look() -> NodeHealth | None:
            health = self.health()
            return health if any(row.reason == reason for row in health.status.findings) else None

        return eventually(look, f"{reason} in NodeHealth")


@pytest.fixture
def seen(sandbox: Sandbox) -> Iterator[Seen]:
    install(sandbox)
    (node,) = simulated.create(sandbox, [f"agent-{uuid.uuid4().hex[:8]}"])
    actor = start_agent(sandbox, node)
    yield Seen(sandbox, node, actor)
    actor.stop()
    with contextlib.suppress(NotFound):
        node.delete(sandbox.admin)
    node.close()


def test_a_fault_stands_on_node_nodehealth_and_lease(seen: Seen) -> None:
    """Under the agent's own ServiceAccount, everything that the controller needs is there, and of the right owner."""
    seen.condition("False")
    began = time.monotonic()
    seen.node.write_xid(*OFF_THE_BUS, gpu=2)
    raised = seen.condition("True")
    took = time.monotonic() - began
    health = seen.finding("Xid79FallenOffBus")
    node = seen.node.read(seen.sandbox.admin)
    print(f"kernel line to condition: {took * 1000:.0f} ms")
    assert raised.reason == "Xid79FallenOffBus"
    assert [owner.uid for owner in health.metadata.owner_references] == [node.metadata.uid]
    assert (health.status.node_uid, health.status.boot_id) == (node.metadata.uid, seen.node.boot_id)
    assert "GpuXidError" in health.status.published_conditions
    assert len(health.status.parts) == 8
    (row,) = health.status.findings
    assert (row.part.uuid, row.severity, row.drill) == (seen.node.gpus[2].uuid, "Fault", False)
    source = next(s for s in health.status.sources if s.name == "kernel-log")
    assert (source.readable, source.lost) == (True, 0)
    assert source.sequence is not None
    lease = eventually(seen.lease, "the agent's Lease")
    assert [owner.uid for owner in lease.metadata.owner_references] == [node.metadata.uid]
    assert lease.spec.renew_time is not None
    assert datetime.now(UTC) - lease.spec.renew_time < timedelta(minutes=1)


def test_an_application_error_is_a_warning_and_leaves_the_condition(seen: Seen) -> None:
    """It is seen in NodeHealth; the Node's condition is not touched."""
    before = seen.condition("False")
    seen.node.write_xid(*APPLICATION)
    health = seen.finding("Xid13GraphicsException")
    assert [row.severity for row in health.status.findings] == ["Warning"]
    assert seen.condition("False") == before


def test_a_node_that_is_made_anew_gets_its_condition_again(seen: Seen) -> None:
    """The garbage collector takes NodeHealth and Lease of the old Node; the new one has its own, and the fault."""
    seen.condition("False")
    seen.node.write_xid(*OFF_THE_BUS)
    seen.condition("True")
    old = seen.node.read(seen.sandbox.admin).metadata.uid
    simulated.await_calm(seen.sandbox.admin, seen.node)
    seen.node.delete(seen.sandbox.admin)
    time.sleep(1)
    new = seen.node.register(seen.sandbox.admin).metadata.uid
    assert new != old
    seen.condition("True")

    def own() -> NodeHealth | None:
        health = seen.health()
        ours = [owner.uid for owner in health.metadata.owner_references] == [new]
        return health if ours and health.status.node_uid == new else None

    health = eventually(own, "a NodeHealth of the new Node", 90)
    assert [row.reason for row in health.status.findings] == ["Xid79FallenOffBus"]


def test_a_fault_during_an_outage_is_published_after_it(seen: Seen) -> None:
    """The API server goes away; the agent judges on, and publishes within seconds of its return."""
    seen.condition("False")
    seen.sandbox.stop_apiserver()
    try:
        seen.node.write_xid(*OFF_THE_BUS)
        time.sleep(3)
    finally:
        seen.sandbox.start_apiserver()
    began = time.monotonic()
    seen.condition("True")
    print(f"published {time.monotonic() - began:.1f} s after the server's return")
    seen.finding("Xid79FallenOffBus")
    assert time.monotonic() - began < 40


def test_a_clearing_ends_the_condition(seen: Seen) -> None:
    """NodeHealth.spec.clearedBefore is watched, so it takes effect at once."""
    seen.condition("False")
    seen.node.write_xid(*OFF_THE_BUS)
    seen.finding("Xid79FallenOffBus")
    cleared = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"spec": {"clearedBefore": cleared, "clearedBy": "a person"}}
    seen.sandbox.admin.patch(paths.node_health(seen.node.name), body, PatchType.MERGE)
    seen.condition("False")


def test_the_server_refuses_a_patch_for_another_uid(sandbox: Sandbox) -> None:
    """What the publisher relies on: the UID in a status patch is a precondition, and it is said to be refused."""
    name = f"uid-{uuid.uuid4().hex[:8]}"
    raw = sandbox.admin.create(paths.nodes(), {"metadata": {"name": name}})
    node = msgspec.json.decode(raw, type=Node)
    now = datetime.now(UTC)
    condition = Condition(
        type="GpuXidError", status=Status.TRUE, reason="R", message="m", last_transition=now
    )
    body = patch_body([condition], [], node, now)
    body["metadata"]["uid"] = str(uuid.uuid4())
    with pytest.raises(Invalid):
        sandbox.admin.patch(paths.node_status(name), body, PatchType.STRATEGIC)
    body = patch_body([condition], ["Gone"], node, now)
    answer = msgspec.json.decode(
        sandbox.admin.patch(paths.node_status(name), body, PatchType.STRATEGIC), type=Node
    )
    assert [c.type for c in answer.status.conditions] == ["GpuXidError"]
    body = patch_body([], ["GpuXidError"], answer, now)
    answer = msgspec.json.decode(
        sandbox.admin.patch(paths.node_status(name), body, PatchType.STRATEGIC), type=Node
    )
    assert answer.status.conditions == ()
    sandbox.admin.delete(paths.node(name))
