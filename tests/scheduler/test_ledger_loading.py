"""The books of a cycle as they are opened: what runs, what counts as capacity, what there is room for."""

import pytest

from controller.scheduler.model import (
    Task,
)
from controller.scheduler.nodes import Device, Gpu, Node, PartHealth
from controller.scheduler.requests import Constraints, Request, Taint, Toleration
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler.ledger_words import HALF, ONE, cards, gpu, load, place, pod, uuids


def test_what_runs_is_off_what_is_idle_and_on_the_whole_path_of_queues() -> None:
    """A whole and a half GPU leave one of three idle, and count for the queue and for the one above."""
    books = load(
        [Node(name="a", cpu_milli=9, gpus=cards(3))], [pod("w", ONE, "a"), pod("h", HALF, "a"), pod("p", ONE)]
    )
    assert (books.nodes[0].idle_gpus, books.nodes[0].idle_pods) == (1, 108)
    for name in ("team", "all"):
        assert books.queues[name].allocated[0] == 1500
        assert books.queues[name].requested[0] == 2500


def test_named_cards_are_held_and_unnamed_ones_taken_from_what_is_left() -> None:
    """The pod whose card is not known comes first in order, and still does not get the card that another one names."""
    books = load([Node(name="a", gpus=cards(2))], [pod("any", ONE, "a"), pod("sure", ONE, "a", ("card-0",))])
    assert [device.uuid for device in books.tasks["any"].devices] == ["card-1"]
    assert [device.uuid for device in books.tasks["sure"].devices] == ["card-0"]


@pytest.mark.parametrize(("rules", "counts"), [(DEFAULT, 0), (COMPATIBLE, 1000)])
def test_a_pod_on_a_node_that_is_gone_holds_nothing(rules: Rules, counts: int) -> None:
    """What it held left the total with its node, and so left its queue; for KAI its queue has it until the pod is gone."""
    books = load([Node(name="a", gpus=cards(1))], [pod("lost", ONE, "gone")], rules)
    assert books.tasks["lost"].node is None
    assert books.queues["team"].allocated[0] == counts
    books.evict(books.tasks["lost"], "because")
    assert books.queues["team"].allocated[0] == 0
    books.unevict(books.tasks["lost"])
    assert books.queues["team"].allocated[0] == counts


def test_more_pods_than_cards_leave_a_node_in_debt() -> None:
    """Two whole pods on one card: freeing one of them gives nothing to a third."""
    books = load([Node(name="a", gpus=cards(1))], [pod("x", ONE, "a"), pod("y", ONE, "a"), pod("z", ONE)])
    assert books.nodes[0].idle_gpus == -1
    books.evict(books.tasks["y"], "because")
    assert books.why_not_room(books.tasks["z"], books.nodes[0], later=True) == "Insufficient nvidia.com/gpu"


def test_a_sick_card_leaves_the_total_and_what_is_on_it_leaves_allocated() -> None:
    """Three of four cards count; the pod on the sick one counts nothing, and frees nothing when it goes."""
    node = Node(name="a", gpus=(gpu(0, PartHealth.SICK, why="Xid79FallenOffBus"), *cards(4)[1:]))
    books = load([node], [pod("ill", ONE, "a", ("card-0",)), pod("well", ONE, "a", ("card-1",))])
    assert books.total[0] == 3000
    assert books.queues["team"].allocated[0] == 1000
    books.evict(books.tasks["ill"], "because")
    assert (books.nodes[0].idle_gpus, books.nodes[0].releasing_gpus) == (2, 0)


def test_an_unknown_card_stays_in_the_total_and_takes_nothing_new() -> None:
    """What is on it counts on; it is never given out again."""
    node = Node(name="a", gpus=(gpu(0, PartHealth.UNKNOWN, why="ProbeHung"),))
    books = load([node], [pod("on", HALF, "a"), pod("p", HALF), pod("w", ONE)])
    assert (books.total[0], books.queues["team"].allocated[0]) == (1000, 500)
    for name in ("p", "w"):
        assert books.why_not_room(books.tasks[name], books.nodes[0], later=False) is not None
        assert uuids(books, name, later=True) is None


@pytest.mark.parametrize(("rules", "whole"), [(DEFAULT, 7), (COMPATIBLE, 8)])
def test_the_smaller_device_count_is_believed(rules: Rules, whole: int) -> None:
    """Kubelet gives seven of eight: seven at most are given, counting those in use."""
    books = load([Node(name="a", gpus=cards(8), whole_gpus=7)], [pod("on", HALF, "a", ("card-7",))], rules)
    assert books.nodes[0].idle_gpus == whole - 1
    assert books.total[0] == 7000


OUT: dict[str, tuple[Node, int, int]] = {
    "a node that is no capacity takes its pods out of allocated": (
        Node(name="a", gpus=cards(2), out=True),
        0,
        0,
    ),
    "a taint that nobody tolerates does so too": (
        Node(name="a", gpus=cards(2), taints=(Taint(key="gone", effect="NoSchedule"),)),
        0,
        0,
    ),
    "a taint that somebody tolerates does not": (
        Node(name="a", gpus=cards(2), taints=(Taint(key="known", effect="NoSchedule"),)),
        2000,
        1000,
    ),
    "a taint that only asks does not": (
        Node(name="a", gpus=cards(2), taints=(Taint(key="gone", effect="PreferNoSchedule"),)),
        2000,
        1000,
    ),
}


@pytest.mark.parametrize(("node", "total", "held"), OUT.values(), ids=OUT.keys())
def test_what_is_no_capacity(node: Node, total: int, held: int) -> None:
    """Total and allocated go together."""
    tolerant = Task(
        id="t", job="job", constraints=Constraints(tolerations=(Toleration(key="known", operator="Exists"),))
    )
    books = load([node], [pod("on", ONE, "a"), tolerant])
    assert (books.total[0], books.queues["team"].allocated[0]) == (total, held)


def test_pods_of_other_schedulers_take_from_node_and_total() -> None:
    """They belong to no queue."""
    books = load([Node(name="a", gpus=cards(2))], [], others=(pod("stranger", ONE, "a"),))
    assert (books.total[0], books.nodes[0].idle_gpus) == (1000, 1)
    assert books.queues["team"].allocated[0] == 0


def test_devices_of_gpu_classes_are_capacity() -> None:
    """Two devices of a class of GPUs count, one of network cards does not."""
    devices = tuple(
        Device(id=f"d/{n}", device_class=kind, node="a")
        for n, kind in enumerate(("gpu.nvidia.com", "gpu.nvidia.com", "nic.example"))
    )
    assert load([Node(name="a")], [], devices=devices).total[0] == 2000


@pytest.mark.parametrize(
    ("profile", "rules", "counted"),
    [
        ("1g.10gb", DEFAULT, 142),
        ("3g.40gb", DEFAULT, 428),
        ("1g.10gb.me", DEFAULT, 142),
        ("1g.10gb", COMPATIBLE, 1000),
        ("3g.40gb", COMPATIBLE, 3000),
        ("1g.10gb.me", COMPATIBLE, 0),
        ("whatever", DEFAULT, 0),
    ],
)
def test_what_a_mig_instance_counts(profile: str, rules: Rules, counted: int) -> None:
    """Sevenths of a GPU, or as KAI counts it the slices as whole ones; for request and capacity alike."""
    node = Node(name="a", mig={profile: 2}, mig_strategy="mixed")
    books = load([node], [pod("m", Request(mig=((profile, 1),)))], rules)
    place(books, "m")
    assert (books.total[0], books.queues["team"].allocated[0]) == (2 * counted, counted)
    assert books.nodes[0].idle_other == {f"nvidia.com/mig-{profile}": 1}


def test_memory_counts_by_the_smallest_card_until_it_is_placed() -> None:
    """20,000 MiB are a half of the smallest card, and a quarter, rounded up to hundredths, of the one that it gets."""
    small = Node(name="b", gpus=(Gpu(uuid="small", memory_mib=40_000),))
    books = load([Node(name="a", gpus=cards(1)), small], [pod("m", Request(gpu_memory_mib=20_001))])
    assert books.queues["team"].requested[0] == 510
    place(books, "m")
    assert books.queues["team"].allocated[0] == 260
    assert (books.tasks["m"].milli, books.tasks["m"].mib) == (250, 20_001)


@pytest.mark.parametrize(("rules", "fit"), [(DEFAULT, True), (COMPATIBLE, False)])
def test_two_halves_of_a_card_that_is_no_multiple_of_hundred(rules: Rules, fit: bool) -> None:
    """46,068 MiB hold two pods of 23,034: KAI floors the card and takes one."""
    node = Node(name="a", gpus=(Gpu(uuid="card", memory_mib=46_068),))
    books = load(
        [node], [pod("x", Request(gpu_memory_mib=23_034)), pod("y", Request(gpu_memory_mib=23_034))], rules
    )
    place(books, "x")
    assert (books.why_not_room(books.tasks["y"], books.nodes[0], later=False) is None) is fit


ROOM: dict[str, tuple[Node, Request, str | None]] = {
    "all is there": (
        Node(name="a", gpus=cards(1), cpu_milli=1, memory_bytes=1),
        Request(gpus=1, cpu_milli=1),
        None,
    ),
    "no place for a pod": (Node(name="a", pods=0), Request(), "Too many pods"),
    "no CPU": (Node(name="a"), Request(cpu_milli=1), "Insufficient cpu"),
    "no memory": (Node(name="a"), Request(memory_bytes=1), "Insufficient memory"),
    "nothing asked for": (Node(name="a"), Request(best_effort=True), None),
    "no GPU": (Node(name="a"), ONE, "Insufficient nvidia.com/gpu"),
    "an extended resource short": (
        Node(name="a", gpus=cards(1), other={"rdma/hca": 1}),
        Request(gpus=1, other=(("rdma/hca", 2),)),
        "Insufficient rdma/hca",
    ),
    "no such MIG instance": (
        Node(name="a", mig={"1g.10gb": 2}),
        Request(mig=(("2g.20gb", 1),)),
        "Insufficient nvidia.com/mig-2g.20gb",
    ),
    "a share of a card that is cut": (
        Node(name="a", mig={"1g.10gb": 2}, gpus=cards(1)),
        HALF,
        "node(s) had GPUs that are cut into MIG instances",
    ),
    "a whole GPU beside mixed MIG": (
        Node(name="a", mig={"1g.10gb": 2}, mig_strategy="mixed", gpus=cards(1)),
        ONE,
        "node(s) had GPUs that are cut into MIG instances",
    ),
    "a whole GPU that is a MIG instance": (
        Node(name="a", mig={"1g.10gb": 2}, mig_strategy="single", gpus=cards(1)),
        ONE,
        None,
    ),
    "memory of cards of unknown memory": (
        Node(name="a", gpus=cards(1), gpu_memory_known=False),
        Request(gpu_memory_mib=1),
        "node(s) had GPUs of unknown memory",
    ),
    "more memory than a card has": (
        Node(name="a", gpus=cards(1)),
        Request(gpu_memory_mib=80_001),
        "Insufficient nvidia.com/gpu: no card has room for the share",
    ),
    "shares of more cards than there are": (
        Node(name="a", gpus=cards(1)),
        Request(portion=100, devices=2),
        "Insufficient nvidia.com/gpu: no card has room for the share",
    ),
}


@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE])
@pytest.mark.parametrize(("node", "request_", "why"), ROOM.values(), ids=ROOM.keys())
def test_room(node: Node, request_: Request, why: str | None, rules: Rules) -> None:
    """The node says what it lacks, in kube-scheduler's words."""
    books = load([node], [pod("p", request_)], rules)
    assert books.why_not_room(books.tasks["p"], books.nodes[0], later=False) == why
