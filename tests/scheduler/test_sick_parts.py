"""Sick and unknown parts, taints, cordons and a suspected observer: the ground that no other scheduler tests."""

from collections.abc import Callable

import msgspec
import pytest

from controller.scheduler.model import Job, Snapshot
from controller.scheduler.nodes import Claim, Device, DeviceRequest, DeviceTaint, Node
from controller.scheduler.plan import Plan
from controller.scheduler.requests import Constraints, Request, Taint, Toleration
from controller.scheduler.rules import COMPATIBLE
from tests.scheduler.words import bound, card, cluster, decide, evicted, job, node, queue

XID = "Xid79FallenOffBus"
NO_SCHEDULE = Taint(key="maintenance", value="soon", effect="NoSchedule")
CORDON = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule")


def plan_for(nodes: list[Node], jobs: list[Job], gpus: int = 16) -> Plan:
    """Decide for one queue with so much quota."""
    return decide(cluster(nodes, [queue("team", gpus)], jobs))


WHERE: dict[str, tuple[Callable[[], list[Node]], Job, str]] = {
    "a node whose only free card is sick is passed by": (
        lambda: [node("a", 1, sick={0: XID}), node("b", 1)],
        job("pod", "team"),
        "b",
    ),
    "a card of which nothing is known takes nothing new": (
        lambda: [node("a", 1, unknown={0: "ProbeHung"}), node("b", 1)],
        job("pod", "team"),
        "b",
    ),
    "a node that no agent can vouch for still takes work without a GPU": (
        lambda: [node("a", 1, unknown={0: "ProbeHung"})],
        job("pod", "team", request=Request(cpu_milli=1000, memory_bytes=1 << 30)),
        "a",
    ),
    "a node that kubelet's plugin could give a sick card on takes no new GPU pod": (
        lambda: [node("a", no_new_gpu="Xid48DoubleBitEcc"), node("b", 1)],
        job("pod", "team"),
        "b",
    ),
    "a node with a broken NVLink takes no pod of several GPUs": (
        lambda: [node("a", 2, no_multi_gpu="NvLinkDown"), node("b", 8)],
        job("pod", "team", gpus=2),
        "b",
    ),
    "a node with a broken NVLink still takes a pod of one GPU": (
        lambda: [node("a", 2, no_multi_gpu="NvLinkDown")],
        job("pod", "team", gpus=1),
        "a",
    ),
    "a node with a slow port takes no pod that asks for RDMA": (
        lambda: [node("a", 1, no_multi_node="RateBelowExpected"), node("b", 8)],
        job("pod", "team", request=Request(gpus=1, cpu_milli=1000, memory_bytes=1 << 30, rdma=True)),
        "b",
    ),
    "a node with a slow port takes a pod that does not": (
        lambda: [node("a", 1, no_multi_node="RateBelowExpected")],
        job("pod", "team"),
        "a",
    ),
    "a node to avoid is taken last, though it is the fuller one": (
        lambda: [node("a", 1, avoid="RowRemapPending"), node("b", 8)],
        job("pod", "team"),
        "b",
    ),
    "a node to avoid is taken where there is no other": (
        lambda: [node("a", 1, avoid="RowRemapPending"), node("b", 1, sick={0: XID})],
        job("pod", "team"),
        "a",
    ),
    "a quarantined node takes nothing": (
        lambda: [node("a", 1, closed="quarantined"), node("b", 8)],
        job("pod", "team"),
        "b",
    ),
    "a taint is respected": (
        lambda: [node("a", 1, taints=(NO_SCHEDULE,)), node("b", 8)],
        job("pod", "team"),
        "b",
    ),
    "a taint that is tolerated is no bar": (
        lambda: [node("a", 1, taints=(NO_SCHEDULE,))],
        job("pod", "team", constraints=Constraints(tolerations=(Toleration(operator="Exists"),))),
        "a",
    ),
    "a cordon keeps a pod away": (
        lambda: [node("a", 1, cordoned=True), node("b", 8)],
        job("pod", "team"),
        "b",
    ),
    "a cordon may be tolerated": (
        lambda: [node("a", 1, cordoned=True)],
        job("pod", "team", constraints=Constraints(tolerations=(CORDON,))),
        "a",
    ),
}


@pytest.mark.parametrize(("nodes", "one", "where"), WHERE.values(), ids=WHERE.keys())
def test_where_a_pod_goes(nodes: Callable[[], list[Node]], one: Job, where: str) -> None:
    """The pod is bound to that node, and to none other."""
    assert bound(plan_for(nodes(), [one])) == {f"{one.id}-0": where}


WAITS: dict[str, tuple[Callable[[], list[Node]], Job, str]] = {
    "every card is sick": (
        lambda: [node("a", 2, sick={0: XID, 1: XID})],
        job("pod", "team"),
        XID,
    ),
    "nothing is known of the cards": (
        lambda: [node("a", 1, unknown={0: "ProbeHung"})],
        job("pod", "team"),
        "ProbeHung",
    ),
    "the node is quarantined": (
        lambda: [node("a", 1, closed="quarantined")],
        job("pod", "team"),
        "quarantined",
    ),
    "the taint is not tolerated": (
        lambda: [node("a", 1, taints=(NO_SCHEDULE,))],
        job("pod", "team"),
        "untolerated taint",
    ),
    "the cards are all in use": (
        lambda: [node("a", 1)],
        job("pod", "team", gpus=2),
        "nvidia.com/gpu",
    ),
}


@pytest.mark.parametrize(("nodes", "one", "words"), WAITS.values(), ids=WAITS.keys())
def test_a_wait_says_why(nodes: Callable[[], list[Node]], one: Job, words: str) -> None:
    """Nothing is bound, and the message names the reason, as kube-scheduler words it."""
    plan = plan_for(nodes(), [one])
    assert not plan.binds
    [wait] = plan.waits
    assert words in wait.message
    assert wait.message.startswith("0/1 nodes are available") or "0/1 nodes" in wait.message


def test_a_sick_card_leaves_the_total_and_an_unknown_one_stays() -> None:
    """Of four nodes of two cards: one card sick, one unknown; seven count."""
    nodes = [node(name, 2) for name in "ab"] + [node("c", 2, sick={0: XID}), node("d", 2, unknown={0: "x"})]
    assert plan_for(nodes, []).total[0] == 7_000


def test_a_silent_kubelet_stays_capacity_though_kubernetes_taints_its_node() -> None:
    """The taint says the condition over again, and nobody tolerates it; another taint takes the node off the total."""
    silence = tuple(
        Taint(key="node.kubernetes.io/unreachable", effect=effect) for effect in ("NoSchedule", "NoExecute")
    )
    runs = [job("one", "team", on=[("a", [0])])]
    nodes = [
        node("a", 2, closed="node(s) were unreachable", taints=silence),
        node("b", 1, taints=(NO_SCHEDULE,)),
    ]
    plan = plan_for(nodes, runs)
    assert (plan.total[0], plan.shares[0].allocated[0]) == (2_000, 1_000)


def test_what_runs_on_a_node_that_is_gone_leaves_what_its_queue_has() -> None:
    """The Node was deleted and its pods are not yet: they hold nothing that anybody could get."""
    runs = [job("one", "team", on=[("a", [0])]), job("two", "team", on=[("gone", [0])])]
    [share] = plan_for([node("a", 2)], runs).shares
    assert share.allocated[0] == 1_000


def test_what_runs_on_a_sick_card_leaves_what_its_queue_has() -> None:
    """A queue is not held to be over-served by a card that is proven sick; on an unknown one it is."""
    runs = [job("one", "team", on=[("a", [0])]), job("two", "team", on=[("b", [0])])]
    nodes = [node("a", 1, sick={0: XID}), node("b", 1, unknown={0: "ProbeHung"})]
    [share] = plan_for(nodes, runs).shares
    assert share.allocated[0] == 1_000


def test_a_card_that_becomes_unknown_costs_nobody_a_pod() -> None:
    """The owner is entitled to the borrowed GPU of a cluster, half of which nobody can see: it waits for a fact."""
    before = borrowed([node("a", 2), node("b", 2)])
    after = borrowed([node("a", 2), node("b", 2, unknown={0: "AgentSilent", 1: "AgentSilent"})])
    assert evicted(decide(before)) == evicted(decide(after)) == []


def borrowed(nodes: list[Node]) -> Snapshot:
    """Give two queues of two GPUs each, both at home, one of them wanting more."""
    runs = [job(f"one-{n}", "one", on=[("a", [n])]) for n in range(2)]
    runs += [job(f"two-{n}", "two", on=[("b", [n])]) for n in range(2)]
    return cluster(nodes, [queue("one", 2), queue("two", 2)], [*runs, job("more", "one")])


def test_a_lost_card_makes_a_shortage_that_is_shared() -> None:
    """Of eight cards four are sick: both queues are entitled to two of the four that are left, whoever runs on them."""
    nodes = [node("a", 4), node("b", 4, sick=dict.fromkeys(range(4), XID))]
    runs = [job(f"one-{n}", "one", on=[("a", [n])]) for n in range(4)]
    waits = [job(f"two-{n}", "two") for n in range(4)]
    plan = decide(cluster(nodes, [queue("one", 4), queue("two", 4)], [*runs, *waits]))
    assert {share.queue: share.fair_share[0] for share in plan.shares} == {"one": 2_000, "two": 2_000}
    assert len(evicted(plan)) == 2


def test_nothing_is_taken_back_while_the_observer_is_suspected() -> None:
    """The breaker is open: new pods are placed, and nobody is evicted because of what was seen."""
    nodes = [node("a", 4), node("b", 4, sick=dict.fromkeys(range(4), XID)), node("c", 1)]
    runs = [job(f"one-{n}", "one", on=[("a", [n])]) for n in range(4)]
    waits = [job(f"two-{n}", "two") for n in range(4)]
    snapshot = cluster(nodes, [queue("one", 4), queue("two", 4)], [*runs, *waits])
    plan = decide(msgspec.structs.replace(snapshot, suspected="4 of 9 GPUs turned within 10 min"))
    assert plan.evictions == ()
    assert bound(plan) == {"two-0-0": "c"}


def test_a_gang_that_needs_a_slow_port_stays_on_one_node_or_goes_round_it() -> None:
    """A gang over two nodes avoids the one with the slow port; the same gang inside that one node is welcome."""
    slow = node("a", 2, no_multi_node="PortDown")
    over_two = job("gang", "team", pods=2, gpus=2)
    assert set(bound(plan_for([slow, node("b", 2), node("c", 2)], [over_two])).values()) == {"b", "c"}
    assert bound(plan_for([slow, node("b", 2)], [over_two])) == {}
    inside = job("gang", "team", pods=2, gpus=1)
    assert set(bound(plan_for([slow], [inside])).values()) == {"a"}


def test_a_tainted_device_takes_no_pod_that_does_not_tolerate_it() -> None:
    """One of two devices carries the driver's taint: the claim gets the other; KAI gives the tainted one."""
    taint = DeviceTaint(key="gpu.nvidia.com/xid", value="79", effect="NoSchedule")
    devices = (
        Device(id="gpu.nvidia.com/a/0", device_class="gpu.nvidia.com", node="a", taints=(taint,)),
        Device(id="gpu.nvidia.com/b/0", device_class="gpu.nvidia.com", node="b"),
    )
    claim = Claim(id="claim", requests=(DeviceRequest(device_class="gpu.nvidia.com"),), from_template=True)
    asks = Request(claims=("claim",), dra_gpus=1, cpu_milli=1000, memory_bytes=1 << 30)
    snapshot = cluster([node("a", 0), node("b", 0)], [queue("team", 2)], [job("pod", "team", request=asks)])
    snapshot = msgspec.structs.replace(snapshot, devices=devices, claims=(claim,))
    [bind] = decide(snapshot).binds
    assert (bind.node, bind.devices) == ("b", (("claim", ("gpu.nvidia.com/b/0",)),))
    assert bound(decide(snapshot, COMPATIBLE)) == {"pod-0": "a"}


def test_a_fraction_never_joins_a_card_that_turned_sick() -> None:
    """Half of a card is free and the card is sick: the packer goes elsewhere."""
    half = Request(portion=500, cpu_milli=1000, memory_bytes=1 << 30)
    runs = job("runs", "team", request=half, on=[("a", [0])])
    plan = plan_for([node("a", 1, sick={0: XID}), node("b", 1)], [runs, job("asks", "team", request=half)])
    assert [bind.gpus for bind in plan.binds] == [(card("b", 0),)]
