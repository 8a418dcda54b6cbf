"""Gangs and nodes that are bad between nodes: whole or not at all, whatever the order."""

from itertools import permutations

import msgspec
import pytest

from controller.scheduler import fit
from controller.scheduler.cycle import open_session, run_cycle
from controller.scheduler.nodes import Gpu, Node, PartHealth
from controller.scheduler.requests import Request
from controller.scheduler.rules import DEFAULT
from tests.scheduler import words

PORT = "PortDown"


def bad(name: str = "bad", gpus: int = 8) -> Node:
    """Give a node with a dead InfiniBand port."""
    return words.node(name, gpus, no_multi_node=PORT)


@pytest.mark.parametrize(
    ("nodes", "pods", "least", "expected"),
    [
        pytest.param([bad(), words.node("good", 2)], 4, 4, ["bad"] * 4, id="whole on the bad node"),
        pytest.param([bad(gpus=3), words.node("good", 2)], 4, 4, [], id="never across it"),
        pytest.param(
            [bad(gpus=3), words.node("good", 4)], 4, 4, ["good"] * 4, id="whole on a good node, if not on it"
        ),
        pytest.param(
            [bad(gpus=3), words.node("g1", 2), words.node("g2", 2)],
            4,
            4,
            ["g1", "g1", "g2", "g2"],
            id="across good nodes",
        ),
        pytest.param([bad(gpus=1), words.node("good", 1)], 2, 1, ["bad", "good"], id="no gang, no limit"),
    ],
)
def test_a_gang_goes_whole_or_not_at_all(
    nodes: list[Node], pods: int, least: int, expected: list[str]
) -> None:
    """Where a gang of one-GPU pods ends."""
    job = words.job("j", "q", pods=pods, least=least)
    plan = run_cycle(words.cluster(nodes, [words.queue("q", 100)], [job]))
    assert sorted(one.node for one in plan.binds) == expected


def test_pods_without_gpus_of_a_gang_go_anywhere() -> None:
    """A gang of pods that talk over no GPU and no RDMA is not meant."""
    job = words.job("j", "q", pods=2, request=Request(cpu_milli=150_000))
    plan = run_cycle(words.cluster([bad(), words.node("good")], [words.queue("q", 100)], [job]))
    assert sorted(one.node for one in plan.binds) == ["bad", "good"]


def test_a_lost_member_comes_back_to_the_others() -> None:
    """A gang that sits on a bad node gets its missing member there and nowhere else."""
    job = words.job("j", "q", pods=3, on=[("bad", [0]), ("bad", [1])])
    plan = run_cycle(words.cluster([bad(gpus=3), words.node("good")], [words.queue("q", 100)], [job]))
    assert [one.node for one in plan.binds] == ["bad"]


def test_a_gang_across_nodes_grows_on_good_ones() -> None:
    """A port that died under a gang that lies across nodes stops no replacement on a good node."""
    job = words.job("j", "q", pods=3, on=[("bad", [0]), ("good", [0])])
    plan = run_cycle(words.cluster([bad(), words.node("good")], [words.queue("q", 100)], [job]))
    assert [one.node for one in plan.binds] == ["good"]


def test_every_order_ends_the_same() -> None:
    """Once one member is placed, the others are allowed the same nodes in every order."""
    snapshot = words.cluster(
        [bad(), words.node("good")], [words.queue("q", 100)], [words.job("j", "q", pods=3)]
    )
    seen = set()
    for order in permutations(range(3)):
        session = open_session(snapshot, DEFAULT)
        ledger = session.ledger
        tasks = [ledger.tasks[f"j-{index}"] for index in order]
        ledger.allocate(tasks[0], ledger.node_by_name["bad"])
        seen.add(
            tuple(fit.why_not(session, task, node, False) for task in tasks[1:] for node in ledger.nodes)
        )
    assert seen == {(None, PORT, None, PORT)}


def test_avoided_nodes_come_last() -> None:
    """Prefer-not sorts after everything else, bin-packing included."""
    jobs = [words.job("old", "q", on=[("a", [0])]), words.job("new", "q")]
    nodes = [words.node("a", avoid="PcieSpeedReduced"), words.node("b")]
    session = open_session(words.cluster(nodes, [words.queue("q", 100)], jobs), DEFAULT)
    found = session.candidates.best(session.ledger.tasks["new-0"], False, None)
    assert [node.name for node in found] == ["b", "a"]


@pytest.mark.parametrize(
    ("card", "request_", "first"),
    [
        pytest.param(
            Gpu(uuid="x", avoid="RowRemapPending"), Request(gpus=1), "b", id="kubelet might give it"
        ),
        pytest.param(
            Gpu(uuid="x", avoid="RowRemapPending"), Request(cpu_milli=1), "a", id="a CPU pod cares not"
        ),
        pytest.param(
            Gpu(uuid="x", avoid="RowRemapPending", health=PartHealth.SICK, offered=False),
            Request(gpus=1),
            "a",
            id="it is given to nobody anyway",
        ),
    ],
)
def test_an_avoided_card(card: Gpu, request_: Request, first: str) -> None:
    """One card to avoid makes its node the last for pods that might get it."""
    node = words.node("a", gpus=2)
    node = msgspec.structs.replace(node, gpus=(*node.gpus, card))
    job = words.job("new", "q", request=request_)
    session = open_session(
        words.cluster([node, words.node("b", gpus=3)], [words.queue("q", 100)], [job]), DEFAULT
    )
    found = [node.name for node in session.candidates.best(session.ledger.tasks["new-0"], False, None)]
    assert found[0] == first
