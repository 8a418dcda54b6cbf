"""Why no node takes a pod: counted, by the condition's reason where a part is ill, and bounded."""

import pytest

from controller.scheduler import fit_reasons
from controller.scheduler.cycle import open_session
from controller.scheduler.nodes import Node
from controller.scheduler.plan import Reason
from controller.scheduler.requests import Request, Taint
from controller.scheduler.rules import DEFAULT
from tests.scheduler import words


def reasons(nodes: list[Node], request: Request) -> tuple[str, dict[str, int]]:
    """Ask all nodes about one pod."""
    job = words.job("new", "q", request=request)
    session = open_session(words.cluster(nodes, [words.queue("q", 100)], [job]), DEFAULT)
    message, found = fit_reasons.why_no_node(session, session.ledger.tasks["new-0"])
    return message, {reason.text: reason.count for reason in found}


def test_reasons_are_counted_the_most_frequent_first() -> None:
    """Small nodes, a tainted one and two closed ones, in one sentence."""
    nodes = [
        *(words.node(f"s{index}", 1) for index in range(3)),
        *(words.node(f"x{index}", closed="GpuXidError") for index in range(2)),
        words.node("t", taints=(Taint(key="k", value="v", effect="NoSchedule"),)),
    ]
    message, _ = reasons(nodes, Request(gpus=2))
    assert message == (
        "0/6 nodes are available: 3 Insufficient nvidia.com/gpu, 2 GpuXidError, 1 node(s) had untolerated taint {k: v}."
    )


@pytest.mark.parametrize(
    ("node", "gpus", "text"),
    [
        pytest.param(
            words.node("n", 2, sick={0: "Xid167PcieFatalTimeout"}),
            2,
            "node(s) had a sick GPU: Xid167PcieFatalTimeout",
            id="a sick card",
        ),
        pytest.param(
            words.node("n", 2, sick={0: ""}), 2, "node(s) had a sick GPU", id="a sick card without a reason"
        ),
        pytest.param(
            words.node("n", 2, unknown={1: "GpuXidError: AgentSilent"}),
            2,
            "node(s) had a GPU whose health is unknown (GpuXidError: AgentSilent)",
            id="an Unknown card",
        ),
        pytest.param(
            words.node("n", 2, unknown={1: ""}),
            2,
            "node(s) had a GPU whose health is unknown",
            id="an Unknown card without a reason",
        ),
        pytest.param(
            words.node("n", 2, sick={1: "UncorrectableEcc"}, unknown={0: "GpuXidError: AgentSilent"}),
            2,
            "node(s) had a sick GPU: UncorrectableEcc",
            id="the worse",
        ),
        pytest.param(
            words.node("n", 4, sick={1: "Xid48DoubleBitEcc", 3: "Xid95UncontainedEcc"}),
            4,
            "node(s) had a sick GPU: Xid48DoubleBitEcc",
            id="the first of several",
        ),
        pytest.param(
            words.node("n", 2, sick={0: "GpuXidError"}),
            3,
            "Insufficient nvidia.com/gpu",
            id="too small anyway",
        ),
        pytest.param(
            words.node("n", 2, sick={0: "GpuXidError"}, pods=0),
            2,
            "Too many pods",
            id="full in another way",
        ),
    ],
)
def test_a_part_that_would_have_been_enough_is_named(node: Node, gpus: int, text: str) -> None:
    """An operator reads what is ill, not that a node is small."""
    assert reasons([node], Request(gpus=gpus)) == (f"0/1 nodes are available: 1 {text}.", {text: 1})


def test_many_reasons_are_summed_up() -> None:
    """A message stays short on a cluster where every node has a reason of its own."""
    nodes = [words.node(f"n{index:02}", closed=f"Reason{index:02}") for index in range(30)]
    message, found = reasons(nodes, Request(gpus=1))
    assert len(found) == fit_reasons.MOST_REASONS + 1
    assert sum(found.values()) == 30
    assert len(message) < 400


def test_after_many_kinds_of_pods_nodes_are_not_looked_at_again() -> None:
    """Beyond a bound only what nodes refuse for good is told; the rest is called full."""
    jobs = [
        words.job(f"j{index:03}", "q", request=Request(gpus=9 + index))
        for index in range(fit_reasons.MOST_COUNTS + 1)
    ]
    nodes = [words.node("a"), words.node("b", closed="GpuXidError")]
    session = open_session(words.cluster(nodes, [words.queue("q", 100)], jobs), DEFAULT)
    answers = [fit_reasons.why_no_node(session, task) for task in session.ledger.tasks.values()]
    ill = Reason(text="GpuXidError", count=1)
    assert answers[0][1] == (ill, Reason(text="Insufficient nvidia.com/gpu", count=1))
    assert answers[-1][1] == (ill, Reason(text=fit_reasons.NO_ROOM, count=1))


def test_an_empty_pool() -> None:
    """No nodes at all is said as such."""
    assert reasons([], Request(gpus=1))[0] == "0/0 nodes are available: the pool has no nodes."
