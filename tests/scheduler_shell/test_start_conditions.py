"""The condition `PodStartFailing`: when it is written, what its run-book says, and what a reader takes from it."""

import msgspec
import pytest

from checks.pod_starts import FAULT_CLASS, REPEATED_START_FAILURES
from controller.scheduler.shell.start_failures import (
    CONDITION,
    FIRST,
    FORGET_AFTER,
    LEAST,
    LONGEST,
    SHARE,
    WINDOW,
    StartFailures,
    condition_of,
    read_back,
)
from kube.types import Node, NodeCondition, ObjectMeta, Pod
from tests.scheduler_shell.start_words import NOW, minutes, turned_away

POOL = tuple(f"n{number}" for number in range(20))
THREE_OF_TWO = (turned_away("a-1", owner="a"), turned_away("a-2", owner="a"), turned_away("b-1", owner="b"))


def kube_node(*conditions: NodeCondition) -> Node:
    """Give a Node with these conditions."""
    bare = Node(metadata=ObjectMeta(name="n1"))
    status = msgspec.structs.replace(bare.status, conditions=conditions)
    return msgspec.structs.replace(bare, status=status)


def test_the_condition_is_written_on_change_only() -> None:
    """True with the words, then False; a node that never failed gets none."""
    assert condition_of(kube_node(), "", NOW) is None
    ill = condition_of(kube_node(), "3 pods failed", NOW)
    assert ill == NodeCondition(
        type="PodStartFailing",
        status="True",
        reason="RepeatedStartFailures",
        message="3 pods failed",
        last_transition_time=NOW,
    )
    assert ill is not None
    assert condition_of(kube_node(ill), "3 pods failed", minutes(5)) is None
    more = condition_of(kube_node(ill), "4 pods failed", minutes(5))
    assert more is not None
    assert more.last_transition_time == NOW
    well = condition_of(kube_node(ill), "", minutes(9))
    assert well is not None
    assert (well.status, well.reason, well.last_transition_time) == ("False", "PodsStart", minutes(9))
    assert condition_of(kube_node(well), "", minutes(10)) is None


def test_the_run_book_knows_the_words_and_the_numbers() -> None:
    """What is written on a Node is what `kubectl nodemend runbook` explains, with the very times and bounds."""
    assert (CONDITION, FAULT_CLASS.reasons) == ("PodStartFailing", (REPEATED_START_FAILURES,))
    ten, ten_first = (f"{int(span.total_seconds()) // 60} minutes" for span in (WINDOW, FIRST))
    longest, forgotten = (f"{int(span.total_seconds()) // 3600} hours" for span in (LONGEST, FORGET_AFTER))
    told = " ".join(FAULT_CLASS.runbook.split())
    for words in (
        f"{LEAST} failed pods of two workloads within {ten}",
        f"no new pod there for {ten_first}",
        f"up to {longest}",
        f"At most {SHARE} % of the pool",
        f"no pod for {forgotten}",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("minute", "pool", "aside", "probing"),
    [
        pytest.param(1, POOL, {"n1"}, {}, id="put aside"),
        pytest.param(11, POOL, set(), {"n1": 1}, id="on probation"),
        pytest.param(31, POOL, set(), {"n1": 4}, id="on probation, and nobody came"),
        pytest.param(1, ("n1", *POOL[5:]), {"n1"}, {}, id="in a small pool, one node at least"),
    ],
)
def test_a_condition_says_to_others_what_the_scheduler_does(
    minute: int, pool: tuple[str, ...], aside: set[str], probing: dict[str, int]
) -> None:
    """Whoever reads the Node alone, as kubectl nodemend does, comes to the same nodes."""
    memory = StartFailures()
    memory.took(THREE_OF_TWO, NOW)
    said = condition_of(kube_node(), memory.findings(minutes(minute), pool)["n1"], NOW)
    assert said is not None
    held, probed = read_back([kube_node(said)])
    assert (set(held), probed) == (aside, probing)
    assert (set(memory.aside(minutes(minute), pool)), memory.probing(minutes(minute), pool)) == (
        aside,
        probing,
    )


def test_a_condition_that_changes_nothing_reads_as_nothing() -> None:
    """Beyond the cap a node takes pods all the same, and one that is well again says False."""
    memory = StartFailures()
    memory.took([one for name in ("n1", "n2", "n3") for one in _three_of_two_on(name)], NOW)
    findings = memory.findings(minutes(1), POOL)
    assert "takes pods all the same" in findings["n3"]
    for why in (findings["n3"], ""):
        ill = condition_of(kube_node(), findings["n1"], NOW)
        assert ill is not None
        said = condition_of(kube_node(ill), why, NOW)
        assert said is not None
        assert read_back([kube_node(said), kube_node()]) == ({}, {})


def _three_of_two_on(node_name: str) -> list[Pod]:
    return [
        turned_away(f"{node_name}-{number}", node_name, owner=f"{'ab'[number % 2]}-on-{node_name}x")
        for number in range(3)
    ]
