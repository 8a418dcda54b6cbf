"""The books of a cycle as pods move: which cards they get, what is being released, who may claim it."""

from collections.abc import Callable

import pytest

from controller.scheduler import ledger as ledgers
from controller.scheduler.model import (
    Job,
    Order,
    PodSet,
    Queue,
    Snapshot,
    SubGroup,
    Task,
    TaskStatus,
)
from controller.scheduler.nodes import Gpu, Node
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler.ledger_words import HALF, NOW, ONE, OPEN, cards, gpu, load, place, pod, uuids


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
