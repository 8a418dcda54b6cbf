"""Nobody is evicted because something became Unknown, is drilled, or because the observer itself is suspected."""

from collections.abc import Callable

import msgspec
import pytest

from controller.scheduler import doubt
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Snapshot
from controller.scheduler.nodes import Device, Node, PartHealth
from controller.scheduler.plan import Evict, Plan
from tests.scheduler.words import bound, cluster, decide, evicted, job, node, queue

DARK = {0: "ProbeHung"}


def wanted_elsewhere(second: Node) -> Snapshot:
    """The owner of one GPU could start on the second node, or take back what a guest has on the first one."""
    runs = job("guest", "guest", on=[("a", [0])])
    return cluster([node("a", 1), second], [queue("guest"), queue("owner", 1)], [runs, job("asks", "owner")])


def test_a_place_that_went_dark_is_not_made_up_for_by_an_eviction() -> None:
    """With both cards in sight nobody goes; with the free one Unknown the owner waits, and the guest stays."""
    assert bound(decide(wanted_elsewhere(node("b", 1)))) == {"asks-0": "b"}
    plan = decide(wanted_elsewhere(node("b", 1, unknown=DARK)))
    assert (plan.binds, plan.evictions) == ((), ())


def test_what_would_be_evicted_in_full_sight_too_is_evicted() -> None:
    """The second card is in use anyway: that nobody knows how it is protects nobody on the first."""
    snapshot = wanted_elsewhere(node("b", 1, unknown=DARK))
    busy = job("busy", "owner", on=[("b", [0])])
    queues = (queue("guest"), queue("owner", 2))
    plan = decide(msgspec.structs.replace(snapshot, jobs=(*snapshot.jobs, busy), queues=queues))
    assert evicted(plan) == ["guest-0"]


def test_a_node_whose_kubelet_fell_silent_costs_nobody_a_pod() -> None:
    """The node is closed only because nothing is heard of it; the same node closed for a known reason is another matter."""
    silent = node("b", 1, closed="node(s) were unreachable", unseen=("closed",))
    assert decide(wanted_elsewhere(silent)).evictions == ()
    quarantined = node("b", 1, closed="node(s) were quarantined", out=True)
    assert evicted(decide(wanted_elsewhere(quarantined))) == ["guest-0"]


def _closed_device(snapshot: Snapshot) -> Snapshot:
    device = Device(id="gpu.nvidia.com/b/0", device_class="gpu.nvidia.com", node="b", closed="AgentSilent")
    return msgspec.structs.replace(snapshot, devices=(device,))


SIGHTS: dict[str, tuple[Callable[[], Snapshot], bool]] = {
    "all parts are in sight": (lambda: wanted_elsewhere(node("b", 1)), False),
    "a sick card is in sight": (lambda: wanted_elsewhere(node("b", 1, sick=DARK)), False),
    "an Unknown card is not": (lambda: wanted_elsewhere(node("b", 1, unknown=DARK)), True),
    "a closed device of a driver is not": (lambda: _closed_device(wanted_elsewhere(node("b", 1))), True),
}


@pytest.mark.parametrize(("make", "is_dark"), SIGHTS.values(), ids=SIGHTS.keys())
def test_what_counts_as_out_of_sight(make: Callable[[], Snapshot], is_dark: bool) -> None:
    """Only where something is Unknown there is a second look, and in that look nothing is."""
    seen = doubt.all_in_sight(make())
    assert (seen is not None) is is_dark
    if seen is not None:
        assert doubt.all_in_sight(seen) is None
        assert all(gpu.health is not PartHealth.UNKNOWN for one in seen.nodes for gpu in one.gpus)


def test_a_plan_is_held_against_who_would_go_anyway() -> None:
    """One more eviction than in full sight is one too many."""
    one, two = (Evict(task=name, job=name, node="a", action="reclaim", why="w") for name in ("one", "two"))
    assert doubt.evicts_only(Plan(evictions=(one,)), Plan(evictions=(one, two)))
    assert not doubt.evicts_only(Plan(evictions=(one, two)), Plan(evictions=(one,)))


def test_a_suspected_observer_stops_all_evictions_and_no_binding() -> None:
    """Half of the pool turned at once: what is free is given, and nothing is taken back."""
    snapshot = wanted_elsewhere(node("b", 1, sick=DARK))
    assert evicted(run_cycle(snapshot)) == ["guest-0"]
    assert run_cycle(msgspec.structs.replace(snapshot, suspected="1 of 2 nodes")).evictions == ()
