"""The books of a cycle: what whole and shared pods take, what is being released, who may claim it, what queues hold."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from controller.scheduler import ledger as ledgers
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import (
    Job,
    Order,
    PodSet,
    Queue,
    Quota,
    Settings,
    Snapshot,
    SubGroup,
    Task,
    TaskStatus,
)
from controller.scheduler.nodes import Device, Gpu, Node, PartHealth
from controller.scheduler.requests import Constraints, Request, Taint, Toleration
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OPEN = Quota(deserved=-1, limit=-1, weight=1000)
HALF = Request(portion=500)
ONE = Request(gpus=1)


def gpu(index: int, health: PartHealth = PartHealth.HEALTHY, why: str = "", avoid: str = "") -> Gpu:
    """Give a card of 80,000 MiB."""
    return Gpu(uuid=f"card-{index}", index=index, memory_mib=80_000, health=health, why=why, avoid=avoid)


def cards(count: int) -> tuple[Gpu, ...]:
    """Give so many healthy cards."""
    return tuple(gpu(index) for index in range(count))


def pod(
    name: str, request: Request, on: str = "", held: tuple[str, ...] = (), status: str = "Running"
) -> Task:
    """Give a pod, pending where it is on no node."""
    return Task(
        id=name,
        job="job",
        request=request,
        node=on,
        gpus=held,
        status=TaskStatus(status if on else "Pending"),
    )


def load(
    nodes: list[Node],
    pods: list[Task],
    rules: Rules = DEFAULT,
    order: Order = Order.BINPACK,
    preemptible: bool = True,
    others: tuple[Task, ...] = (),
    devices: tuple[Device, ...] = (),
) -> Ledger:
    """Load these pods as one job of the queue team, below the queue all."""
    queues = (Queue(name="all", quotas=(OPEN,) * 3), Queue(name="team", parent="all", quotas=(OPEN,) * 3))
    job = Job(id="job", queue="team", created_at=NOW, preemptible=preemptible, tasks=tuple(pods))
    return ledgers.build(
        Snapshot(
            now=NOW,
            nodes=tuple(nodes),
            queues=queues,
            jobs=(job,),
            others=others,
            devices=devices,
            settings=Settings(gpu_sharing_order=order),
        ),
        rules,
    )


def uuids(books: Ledger, name: str, later: bool = False) -> tuple[str, ...] | None:
    """Give the UUIDs that a pod would get on the first node."""
    chosen = books.choose_devices(books.tasks[name], books.nodes[0], later)
    return None if chosen is None else tuple(device.uuid for device in chosen)


def place(books: Ledger, *names: str) -> None:
    """Allocate pods on the first node, on the cards of its choice."""
    for name in names:
        books.allocate(books.tasks[name], books.nodes[0])


# --- loading ---------------------------------------------------------------------------------------------------------


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


# --- room ------------------------------------------------------------------------------------------------------------

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


# --- which card ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "cards_"),
    [(Order.BINPACK, ("card-1",)), (Order.SPREAD, ("card-3",))],
    ids=["binpack", "spread"],
)
def test_which_card_a_share_gets(order: Order, cards_: tuple[str, ...]) -> None:
    """Bin-pack takes the fullest with room, spread an empty one."""
    running = [
        pod("x", Request(portion=200), "a", ("card-0",)),
        pod("y", Request(portion=400), "a", ("card-1",)),
        pod("z", Request(portion=700), "a", ("card-2",)),
    ]
    books = load([Node(name="a", gpus=cards(4))], [*running, pod("p", HALF)], order=order)
    assert uuids(books, "p") == cards_


def test_spread_takes_the_emptiest_where_no_card_is_empty() -> None:
    """Of two shared cards the one with more room."""
    running = [
        pod("x", Request(portion=400), "a", ("card-0",)),
        pod("y", Request(portion=200), "a", ("card-1",)),
    ]
    books = load([Node(name="a", gpus=cards(2))], [*running, pod("p", HALF)], order=Order.SPREAD)
    assert uuids(books, "p") == ("card-1",)


def test_shares_of_several_cards_are_on_several_cards() -> None:
    """Three shares go to the shared card and two empty ones."""
    books = load(
        [Node(name="a", gpus=cards(4))],
        [pod("x", HALF, "a", ("card-2",)), pod("p", Request(portion=500, devices=3))],
    )
    assert uuids(books, "p") == ("card-2", "card-0", "card-1")


def test_a_card_to_avoid_comes_last() -> None:
    """Though it is the lowest, and for a share the fuller one."""
    node = Node(name="a", gpus=(gpu(0, avoid="RowRemapPending"), *cards(3)[1:]))
    books = load([node], [pod("x", HALF, "a", ("card-0",)), pod("p", HALF), pod("w", ONE)])
    assert uuids(books, "p") == ("card-1",)
    assert uuids(books, "w") == ("card-1",)


# --- releasing and claims --------------------------------------------------------------------------------------------


def test_what_is_being_released_is_free_later_only() -> None:
    """A pod that ends gives its card to a claim, and to nobody now."""
    books = load(
        [Node(name="a", gpus=cards(1))],
        [pod("x", ONE, "a", status="Releasing"), pod("p", ONE), pod("q", HALF)],
    )
    node = books.nodes[0]
    for name in ("p", "q"):
        assert books.why_not_room(books.tasks[name], node, later=False) is not None
        assert books.why_not_room(books.tasks[name], node, later=True) is None
    assert books.queues["team"].allocated[0] == 0
    books.pipeline(books.tasks["p"], node)
    assert books.queues["team"].allocated[0] == 1000
    assert books.why_not_room(books.tasks["q"], node, later=True) is not None
    assert uuids(books, "q", later=True) is None


def test_what_is_stuck_is_free_neither_now_nor_later() -> None:
    """It was told to end too long ago to be believed."""
    books = load(
        [Node(name="a", gpus=cards(1))], [pod("x", ONE, "a", status="StuckInReleasing"), pod("p", ONE)]
    )
    assert books.why_not_room(books.tasks["p"], books.nodes[0], later=True) == "Insufficient nvidia.com/gpu"
    assert books.queues["team"].allocated[0] == 0


def test_a_shared_card_is_a_whole_one_again_once_all_on_it_is_being_released() -> None:
    """Not with the first of two pods, but with the second."""
    books = load(
        [Node(name="a", gpus=cards(1))], [pod("x", HALF, "a", ("card-0",)), pod("y", HALF, "a", ("card-0",))]
    )
    books.evict(books.tasks["x"], "because")
    assert books.nodes[0].releasing_gpus == 0
    books.evict(books.tasks["y"], "because")
    assert books.nodes[0].releasing_gpus == 1


def test_claims_of_shares_meet_on_one_card() -> None:
    """The second share joins the first on the card that becomes free, and a third finds no room."""
    books = load(
        [Node(name="a", gpus=cards(1))], [pod("x", ONE, "a"), *(pod(name, HALF) for name in ("p", "q", "r"))]
    )
    books.evict(books.tasks["x"], "because")
    for name in ("p", "q"):
        books.pipeline(books.tasks[name], books.nodes[0])
    assert books.nodes[0].releasing_gpus == 0
    assert uuids(books, "r", later=True) is None


@pytest.mark.parametrize(
    ("rules", "now"),
    [(DEFAULT, ("card-1",)), (COMPATIBLE, None)],
    ids=["start at once", "wait for the fuller"],
)
def test_a_share_beside_what_is_being_released(rules: Rules, now: tuple[str, ...] | None) -> None:
    """The fuller card has room only later: KAI waits for it, we take the empty one at once."""
    running = [pod("x", Request(portion=400), "a", ("card-0",)), pod("y", HALF, "a", ("card-0",))]
    books = load([Node(name="a", gpus=cards(2))], [*running, pod("p", HALF)], rules)
    books.evict(books.tasks["y"], "because")
    assert books.why_not_room(books.tasks["p"], books.nodes[0], later=False) is None
    assert uuids(books, "p") == now
    assert uuids(books, "p", later=True) == ("card-0",)


# --- moves -----------------------------------------------------------------------------------------------------------


def test_a_pod_that_is_moved_claims_there_and_is_released_here() -> None:
    """It counts for its queue again, and both nodes have it."""
    books = load([Node(name="a", gpus=cards(1)), Node(name="b", gpus=cards(1))], [pod("x", ONE, "a")])
    task, (here, there) = books.tasks["x"], books.nodes
    books.evict(task, "because")
    books.pipeline(task, there)
    assert (task.status, task.node, task.evicted) == (TaskStatus.PIPELINED, there, "because")
    assert (here.releasing_gpus, there.releasing_gpus) == (1, -1)
    assert "x" in here.tasks
    assert "x" in there.tasks
    assert books.queues["team"].allocated[0] == 1000
    books.unevict(task)
    assert (task.status, task.node, task.evicted) == (TaskStatus.RUNNING, here, "")
    assert (here.releasing_gpus, there.releasing_gpus) == (0, 0)
    assert "x" not in there.tasks


@pytest.mark.parametrize(
    ("request_", "rules", "status"),
    [
        (ONE, DEFAULT, TaskStatus.RUNNING),
        (ONE, COMPATIBLE, TaskStatus.RUNNING),
        (HALF, DEFAULT, TaskStatus.RUNNING),
        (HALF, COMPATIBLE, TaskStatus.PIPELINED),
    ],
)
def test_a_pod_that_would_be_moved_to_where_it_is_stays(
    request_: Request, rules: Rules, status: TaskStatus
) -> None:
    """But KAI gives a card that would be empty a new name, and takes a share there for moved."""
    books = load([Node(name="a", gpus=cards(1))], [pod("x", request_, "a")], rules)
    books.evict(books.tasks["x"], "because")
    books.pipeline(books.tasks["x"], books.nodes[0])
    assert books.tasks["x"].status is status


def test_a_gang_of_which_one_waits_waits_as_a_whole() -> None:
    """What was allocated since the mark becomes claims, what was before stays."""
    books = load(
        [Node(name="a", gpus=cards(4))],
        [pod(name, request) for name, request in (("x", ONE), ("y", ONE), ("z", HALF))],
    )
    place(books, "x")
    mark = books.mark()
    place(books, "y", "z")
    books.to_pipelined(books.jobs["job"], mark)
    statuses = [books.tasks[name].status for name in ("x", "y", "z")]
    assert statuses == [TaskStatus.ALLOCATED, TaskStatus.PIPELINED, TaskStatus.PIPELINED]
    assert (books.nodes[0].idle_gpus, books.nodes[0].releasing_gpus) == (3, -2)
    assert books.queues["team"].allocated[0] == 2500
    books.undo_to(mark)
    assert (books.nodes[0].idle_gpus, books.nodes[0].releasing_gpus) == (3, 0)


def test_a_claim_that_is_evicted_is_gone() -> None:
    """The pod is pending again, as if it had never claimed anything."""
    books = load([Node(name="a", gpus=cards(1))], [pod("x", ONE, "a", status="Releasing"), pod("p", ONE)])
    books.pipeline(books.tasks["p"], books.nodes[0])
    books.evict(books.tasks["p"], "because")
    assert (books.tasks["p"].status, books.tasks["p"].node) == (TaskStatus.PENDING, None)
    assert books.nodes[0].releasing_gpus == 1


def test_what_cannot_be_done_is_refused() -> None:
    """Each of these would make the books lie."""
    books = load([Node(name="a", gpus=cards(1))], [pod("x", ONE, "a"), pod("p", ONE), pod("h", HALF)])
    tasks, node = books.tasks, books.nodes[0]
    wrongs: tuple[Callable[[], None], ...] = (
        lambda: books.allocate(tasks["x"], node),
        lambda: books.allocate(tasks["p"], node),
        lambda: books.pipeline(tasks["x"], node),
        lambda: books.pipeline(tasks["h"], node),
        lambda: books.evict(tasks["p"], "because"),
        lambda: books.unevict(tasks["x"]),
    )
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"\w"):
            wrong()


def test_quota_without_preemption_and_members_of_subgroups_are_counted() -> None:
    """What is not preemptible counts besides, and each leaf subgroup knows how many of its pods hold something."""
    root = SubGroup(pod_sets=(PodSet(name="l"), PodSet(name="w", min_available=2)))
    tasks = tuple(Task(id=name, job="j", pod_set=name[0], request=ONE) for name in ("l0", "w0", "w1"))
    job = Job(id="j", queue="q", created_at=NOW, preemptible=False, root=root, tasks=tasks)
    books = ledgers.build(
        Snapshot(
            now=NOW,
            nodes=(Node(name="a", gpus=cards(4)),),
            queues=(Queue(name="q", quotas=(OPEN,) * 3),),
            jobs=(job,),
        ),
        DEFAULT,
    )
    place(books, "l0", "w1")
    assert {name: pods.held for name, pods in books.jobs["j"].pod_sets.items()} == {"l": 1, "w": 1}
    assert books.queues["q"].allocated_np[0] == 2000


def test_what_is_held_of_a_model_follows_every_move() -> None:
    """A queue with a quota for the model knows what it holds of it, by the pod's card."""
    quota = Queue(name="q", quotas=(OPEN,) * 3, models=(("H100", OPEN),))
    job = Job(id="j", queue="q", created_at=NOW, tasks=(Task(id="p", job="j", request=ONE),))
    node = Node(name="a", gpus=(Gpu(uuid="card", memory_mib=80_000, model="H100"),))
    books = ledgers.build(Snapshot(now=NOW, nodes=(node,), queues=(quota,), jobs=(job,)), DEFAULT)
    mark = books.mark()
    place(books, "p")
    assert books.queues["q"].by_model["H100"][0] == 1000
    books.evict(books.tasks["p"], "because")
    assert books.queues["q"].by_model["H100"][0] == 0
    books.undo_to(mark)
    assert books.queues["q"].by_model["H100"][0] == 0


def test_others_keep_books_of_their_own_in_step() -> None:
    """What they journal is undone in its turn."""
    books = load([Node(name="a", gpus=cards(2))], [pod("p", ONE)])
    seen: list[int] = []
    mark = books.mark()
    place(books, "p")
    books.journal(lambda: seen.append(books.nodes[0].idle_gpus))
    books.undo_to(mark)
    assert seen == [1]
    assert books.nodes[0].idle_gpus == 2
