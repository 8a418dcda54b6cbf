"""Right before a request: is the world still the one that was planned on?"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.scheduler.shell.look_again import LookAgain
from controller.scheduler.shell.stores import STALE_AFTER_S, Stores
from kube.nodehealth import HealthFinding, HealthPart, NodeHealth, NodeHealthStatus, PartState
from kube.types import NodeCondition, ObjectMeta
from tests.fakes import EPOCH, FakeClock
from tests.scheduler_shell.shell_words import OURS, order, ready_node, victims, waiting_pod

AT = 1000.0
KNOWN = "what is known of node a changed"
FAULT = HealthFinding(
    condition="GpuXidError",
    reason="Xid79",
    severity="Fault",
    effect="gpu",
    urgency="now",
    action="reset",
    part=HealthPart(kind="gpu", uuid="GPU-1"),
    first_seen=EPOCH,
    last_seen=EPOCH,
)
SEEN_AGAIN = msgspec.structs.replace(FAULT, last_seen=EPOCH + timedelta(minutes=1), count=2)
PART = PartState(kind="gpu", uuid="GPU-1", offered=True)
SAID: dict[str, Any] = {"node_uid": "node-uid", "boot_id": "b", "findings": (FAULT,)}


class World:
    """Stores that show what an order was decided on."""

    def __init__(self) -> None:
        self.time = FakeClock(monotonic=AT)
        self.stores = Stores(lambda: None, OURS)
        for store in self.stores.all().values():
            store.replace((), "1", AT)
        self.order = order("p", node=ready_node())
        self.stores.nodes.apply("ADDED", self.order.node, AT)
        self.stores.pods.apply("ADDED", self.order.pod, AT)
        self.look = LookAgain(self.stores, self.time.clock)

    def node(
        self, *, version: str = "2", uid: str = "node-uid", ready: str = "True", fault: str = ""
    ) -> None:
        node = ready_node(version=version, uid=uid, ready=ready)
        if fault:
            conditions = (*node.status.conditions, NodeCondition(type=fault, status="True"))
            node = msgspec.structs.replace(
                node, status=msgspec.structs.replace(node.status, conditions=conditions)
            )
        self.stores.nodes.apply("MODIFIED", node, AT)

    def pod(self, *, uid: str = "", node: str = "", ending: bool = False) -> None:
        pod = waiting_pod("p", uid=uid, node=node)
        meta = msgspec.structs.replace(
            pod.metadata, resource_version="2", deletion_timestamp=EPOCH if ending else None
        )
        self.stores.pods.apply("MODIFIED", msgspec.structs.replace(pod, metadata=meta), AT)

    def told(self, **changes: Any) -> None:
        """Let the agent say something, in the place of what it said when the order was made."""
        self.order = msgspec.structs.replace(self.order, health=_health(PART, NodeHealthStatus(**SAID)))
        part = {name: changes.pop(name) for name in ("held", "offered") if name in changes}
        status = NodeHealthStatus(**{**SAID, **changes})
        self.stores.healths.apply("ADDED", _health(msgspec.structs.replace(PART, **part), status), AT)


def _health(part: PartState, status: NodeHealthStatus) -> NodeHealth:
    meta = ObjectMeta(name="a", uid="h", resource_version="2")
    return NodeHealth(metadata=meta, status=msgspec.structs.replace(status, parts=(part,)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda _world: None, "", id="nothing changed"),
        pytest.param(lambda world: world.node(), "", id="a heartbeat"),
        pytest.param(
            lambda world: world.node(fault="GpuXidError"), "node a changed", id="a fault of the node"
        ),
        pytest.param(
            lambda world: world.node(ready="False"), "node a changed", id="a node that is not Ready"
        ),
        pytest.param(
            lambda world: world.node(uid="made anew"), "node a changed", id="a node that was made anew"
        ),
        pytest.param(lambda world: world.told(), "", id="an agent that says the same"),
        pytest.param(lambda world: world.told(held=True), "", id="a pod that got a card"),
        pytest.param(lambda world: world.told(findings=(SEEN_AGAIN,)), "", id="a fault that was seen again"),
        pytest.param(lambda world: world.told(findings=()), KNOWN, id="a fault that is gone"),
        pytest.param(lambda world: world.told(offered=False), KNOWN, id="a card that kubelet offers no more"),
        pytest.param(lambda world: world.told(boot_id="c"), KNOWN, id="a machine that was booted"),
        pytest.param(lambda world: world.pod(ending=True), "is being deleted", id="a pod that is deleted"),
        pytest.param(lambda world: world.pod(uid="another"), "the pod is gone", id="another pod of the name"),
        pytest.param(
            lambda world: world.pod(node="b"), "on node b already", id="a pod that somebody else bound"
        ),
        pytest.param(
            lambda world: world.time.advance(STALE_AFTER_S + 1), "not heard", id="a server that is not heard"
        ),
    ],
)
def test_when_a_bind_is_not_sent(change: Callable[[World], None], why: str) -> None:
    """What decides changed; heartbeats do not."""
    world = World()
    change(world)
    found = world.look.why_not(world.order)
    assert why in found
    assert bool(found) == bool(why)


def test_a_node_that_is_gone_takes_nothing() -> None:
    """Its name may come back, as another machine."""
    world = World()
    world.stores.nodes.apply("DELETED", ready_node(version="2"), AT)
    assert world.look.why_not(world.order) == "node a is gone"


@pytest.mark.parametrize(
    ("node", "uid", "late", "why"),
    [
        pytest.param("a", "", False, "", id="still there"),
        pytest.param("b", "", False, "is not on node a any more", id="elsewhere by now"),
        pytest.param("b", "another", False, "", id="gone, and another has its name: the server says so"),
        pytest.param("a", "", True, "not heard", id="a server that is not heard"),
    ],
)
def test_when_a_set_of_victims_is_not_sent(node: str, uid: str, late: bool, why: str) -> None:
    """Nothing destructive on old evidence."""
    world = World()
    world.stores.pods.apply("ADDED", waiting_pod("v0", node="a"), AT)
    moved = waiting_pod("v1", node=node, uid=uid)
    world.stores.pods.apply("ADDED", moved, AT)
    if late:
        world.time.advance(STALE_AFTER_S + 1)
    found = world.look.why_not_evict(victims("v0", "v1", "gone"))
    assert why in found
    assert bool(found) == bool(why)
