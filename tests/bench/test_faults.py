"""What is written when: spread over the nodes, visible one by one, the storm in front of the next fault."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.faults import GPUS, MOST_PER_NODE, Line, faults, storm, why_not_application
from bench.reporters import inventory
from checks.check import Context
from checks.condition import Status, fold
from checks.observation import KERNEL_LOG, KernelRecord, Observation, SourceRead
from checks.xid import CHECK
from sandbox.nodes import xid_line

NOW = datetime(2026, 3, 1, tzinfo=UTC)
BOOT = "5d0c5a10-0000-4000-8000-000000000001"


def record(sequence: int, line: Line) -> KernelRecord:
    """What an agent reads of a line."""
    pci = inventory("n").parts[line.gpu].pci
    return KernelRecord(
        boot_id=BOOT,
        sequence=sequence,
        facility=0,
        level=4,
        monotonic_us=sequence,
        seen_at=NOW,
        text=xid_line(f"{pci}.0", line.code, line.text, pid=line.pid),
    )


def test_every_fault_is_named_first_in_the_message_when_it_comes() -> None:
    """However many stand before it, the check's own message shows the newest: else a sample could never be seen."""
    lines, told = faults(count=MOST_PER_NODE, nodes=1, rate=1.0)
    assert told == (MOST_PER_NODE,)
    context = Context(now=NOW, boot_id=BOOT, cleared_before=None, parts=inventory("n").parts, settings={})
    memory, previous = None, None
    for number, line in enumerate(lines):
        seen: list[Observation] = [record(number, line), SourceRead(source=KERNEL_LOG, seen_at=NOW)]
        judged = CHECK.judge(seen, memory, context)
        memory = judged.memory
        previous = fold(
            CHECK.condition,
            findings=judged.findings,
            unreadable=None,
            healthy=CHECK.healthy,
            previous=previous,
            now=NOW,
        )
        assert previous.status is Status.TRUE
        words = f"at {inventory('n').parts[line.gpu].pci}: {line.reason}"
        assert words in previous.message.split(";")[0]


def test_faults_go_round_the_nodes_at_their_rate() -> None:
    """An open loop: each has its time beforehand."""
    lines, told = faults(count=5, nodes=2, rate=4.0)
    assert [(line.at_s, line.node, line.gpu) for line in lines] == [
        (0.0, 0, 7),
        (0.25, 1, 7),
        (0.5, 0, 6),
        (0.75, 1, 6),
        (1.0, 0, 5),
    ]
    assert told == (3, 2)


def test_a_second_phase_goes_on_where_the_first_ended() -> None:
    """No fault is written twice: the second time it would change nothing."""
    first, told = faults(count=20, nodes=2, rate=1.0)
    second, _ = faults(count=12, nodes=2, rate=1.0, told=told)
    keys = [(line.node, line.gpu, line.code) for line in (*first, *second)]
    assert len(keys) == len(set(keys))


def test_more_than_a_node_can_show_is_refused() -> None:
    """It names the limit."""
    with pytest.raises(ValueError, match=f"at most {MOST_PER_NODE}"):
        faults(count=MOST_PER_NODE + 1, nodes=1, rate=1.0)


def test_the_storm_holds_application_xids_only() -> None:
    """By the catalogue's own word: a fault among them would be a sample that nobody counts."""
    lines, _ = faults(count=8, nodes=4, rate=2.0)
    codes = {line.code for line in storm(lines, rate=100.0, lead_s=1.0)}
    assert len(codes) > 1
    assert [why_not_application(code) for code in codes] == [None] * len(codes)


@pytest.mark.parametrize(
    ("code", "word"),
    [
        pytest.param(79, "turns the condition True", id="a hardware fault is none"),
        pytest.param(65000, "not in the catalogue", id="a code that nobody knows is none"),
    ],
)
def test_why_not_application(code: int, word: str) -> None:
    """The refusal says why."""
    assert word in (why_not_application(code) or "")


@given(st.integers(1, 40), st.integers(1, 8), st.sampled_from([1.0, 4.5, 10.0]))
def test_each_line_of_the_storm_goes_to_the_node_that_fails_next(count: int, nodes: int, rate: float) -> None:
    """In front of its fault, at an even rate from the lead on until the last fault, over all GPUs."""
    lines, _ = faults(count=min(count, nodes * MOST_PER_NODE), nodes=nodes, rate=rate)
    beside = storm(lines, rate=100.0, lead_s=2.0)
    for line in beside:
        following = next(one for one in lines if one.at_s >= line.at_s)
        assert following.node == line.node
        assert 0 <= line.gpu < GPUS
    gaps = [after.at_s - before.at_s for before, after in pairwise(beside)]
    assert all(abs(gap - 0.01) < 1e-9 for gap in gaps)
    assert len(beside) == int((lines[-1].at_s + 2.0) * 100.0)
