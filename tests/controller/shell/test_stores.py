"""controller.stores and controller.sight: what wakes the loop, and when nothing is looked at."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from controller.sight import PodsOn, Sight
from controller.stores import STALE_AFTER_S, Stores
from controller.view import Settings
from kube.types import Lease, Node, NodeCondition, ObjectMeta, Pod, PodSpec, Taint
from tests.fakes import EPOCH, FakeClock


def node(version: int, **changes: Any) -> Node:
    return msgspec.structs.replace(
        Node(metadata=ObjectMeta(name="n", uid="u", resource_version=str(version))), **changes
    )


def pod(name: str, on: str, version: int = 5) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ml", uid=name, resource_version=str(version)),
        spec=PodSpec(node_name=on),
    )


class Wakes:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def with_condition(version: int, status: str, at: str) -> Node:
    condition = NodeCondition(type="GpuXidError", status=status)
    held = msgspec.structs.replace(condition, last_heartbeat_time=datetime.fromisoformat(at))
    found = node(version)
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=(held,)))


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        pytest.param(
            lambda s: s.nodes.apply("MODIFIED", with_condition(2, "False", "2026-01-01T00:05:00Z"), 1.0),
            0,
            id="a kubelet's heartbeat wakes nobody",
        ),
        pytest.param(
            lambda s: s.nodes.apply("MODIFIED", with_condition(2, "True", "2026-01-01T00:05:00Z"), 1.0),
            1,
            id="a condition that turns wakes",
        ),
        pytest.param(
            lambda s: s.nodes.apply(
                "MODIFIED",
                msgspec.structs.replace(
                    with_condition(2, "False", "2026-01-01T00:00:00Z"),
                    spec=msgspec.structs.replace(node(2).spec, taints=(Taint(key="a"),)),
                ),
                1.0,
            ),
            1,
            id="a taint wakes",
        ),
        pytest.param(lambda s: s.nodes.apply("DELETED", node(2), 1.0), 1, id="a node that goes wakes"),
        pytest.param(
            lambda s: s.leases.apply(
                "ADDED", Lease(metadata=ObjectMeta(name="n", resource_version="3")), 1.0
            ),
            0,
            id="the renewal of a Lease wakes nobody",
        ),
        pytest.param(
            lambda s: s.pods.apply("ADDED", pod("p", "quiet"), 1.0), 0, id="a pod elsewhere wakes nobody"
        ),
        pytest.param(
            lambda s: s.pods.apply("ADDED", pod("p", "ill"), 1.0), 1, id="a pod of an ill node wakes"
        ),
    ],
)
def test_only_what_may_change_a_decision_wakes_the_loop(change: Callable[[Stores], None], wakes: int) -> None:
    """At 1,500 nodes everything else would turn it without end."""
    count = Wakes()
    stores = Stores(count)
    stores.watched = frozenset({"ill"})
    stores.nodes.apply("ADDED", with_condition(1, "False", "2026-01-01T00:00:00Z"), 0.0)
    before = count.count
    change(stores)
    assert count.count - before == wakes


def sync(stores: Stores, at: float) -> None:
    """Let every list come in."""
    for store in stores.all().values():
        store.replace([], "10", at)


def test_nothing_is_looked_at_before_all_is_in_and_while_one_is_stale() -> None:
    """A break also starts anew since when the server is heard: an agent is not silent while we were deaf."""
    clock = FakeClock()
    stores = Stores(lambda: None)
    sight = Sight(
        stores,
        Settings(),
        clock.clock,
        guard=lambda *_: None,
        eviction_guard=lambda *_: None,
        validation_guard=lambda *_: None,
    )
    assert "not read yet: nodes" in (sight.why_not_look() or "")
    sync(stores, clock.monotonic())
    assert sight.why_not_look() is None
    first = sight.look(deliveries={}, evictions={}, failures={}).heard_since
    clock.advance(STALE_AFTER_S + 1)
    for name, store in stores.all().items():
        if name != "leases":
            store.heard("11", clock.monotonic())
    assert sight.why_not_look() == "the API server was not heard for 120 s about leases"
    stores.leases.heard("11", clock.monotonic())
    assert sight.why_not_look() is None
    second = sight.look(deliveries={}, evictions={}, failures={}).heard_since
    assert (first, second) == (EPOCH, clock.now())


def test_the_pods_of_a_node_do_not_change_within_one_instant() -> None:
    """Looked up when asked for, and the same from then on."""
    stores = Stores(lambda: None)
    stores.pods.apply("ADDED", pod("a", "n"), 0.0)
    pods = PodsOn(stores.pods)
    assert [one.metadata.name for one in pods["n"]] == ["a"]
    stores.pods.apply("ADDED", pod("b", "n", 6), 0.0)
    assert ([one.metadata.name for one in pods["n"]], pods["other"], list(pods)) == (["a"], (), ["n"])
