"""Tests of the room that is kept for the job that waits longest."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import process_time

import msgspec
import pytest

from controller.scheduler import rules
from controller.scheduler.actions import allocate, consolidate
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Job, Queue, Snapshot
from controller.scheduler.nodes import Node
from controller.scheduler.plan import Plan
from controller.scheduler.requests import Request
from tests.scheduler.words import bound, cluster, job, node, queue

KAI = msgspec.structs.replace(rules.DEFAULT, reservation=False)


def _plan(snapshot: Snapshot, reserved_for: str = "", which: rules.Rules = rules.DEFAULT) -> Plan:
    snapshot = msgspec.structs.replace(snapshot, reserved_for=reserved_for)
    return run_cycle(snapshot, which, actions=(allocate.run,))


def _busy(name: str, on: str, gpus: Sequence[int], of: str = "q") -> Job:
    return job(name, of, gpus=len(gpus), on=[(on, gpus)], age_s=9000)


GANG = job("gang", "q", pods=2, gpus=8, age_s=600)
NODES = [node("n0"), node("n1")]
ALMOST = [_busy("busy-0", "n0", [0]), _busy("busy-1", "n1", [0])]
"""Two nodes with seven GPUs free each: the gang of two times eight waits for one pod on each."""


@dataclass(frozen=True)
class Case:
    """Who waits beside the gang, and what is bound; each of its two pods asks for `each` GPUs."""

    id: str
    others: list[Job]
    binds: list[str]
    each: int = 8
    holder: str = "gang"
    reserved_for: str = ""
    nodes: list[Node] = field(default_factory=lambda: NODES)
    busy: list[Job] = field(default_factory=lambda: ALMOST)
    queues: list[Queue] = field(default_factory=lambda: [queue("q", 24)])


CASES = [
    Case("a younger job does not take what the gang gathers", [job("small", "q", gpus=7, age_s=60)], []),
    Case("an older job, whose turn is first, is served", [job("small", "q", gpus=7, age_s=900)], ["small-0"]),
    Case(
        "last cycle's holder is kept room for before anybody's turn",
        [job("small", "q", gpus=7, age_s=900)],
        [],
        reserved_for="gang",
    ),
    Case(
        "a job with a higher priority is first, unless room is kept already",
        [job("small", "q", gpus=7, age_s=60, priority=90)],
        ["small-0"],
    ),
    Case(
        "another node is free to all",
        [job("small", "q", gpus=7, age_s=60)],
        ["small-0"],
        nodes=[*NODES, node("n2", 7)],
    ),
    Case(
        "pods without a GPU go where the gang leaves CPU",
        [job("web", "q", request=Request(cpu_milli=1000), age_s=60)],
        ["web-0"],
    ),
    Case(
        "room beyond the claim is for all",
        [job("more", "q", gpus=2, age_s=60), job("fits", "q", gpus=1, age_s=50)],
        ["fits-0"],
        each=3,
        nodes=[node("n0"), node("n1")],
        busy=[_busy("busy-0", "n0", range(6)), _busy("busy-1", "n1", range(4))],
        queues=[queue("q", 16)],
    ),
    Case(
        "no room is kept for more than the queue may have of right",
        [job("small", "p", gpus=7, age_s=60)],
        ["small-0"],
        holder="",
        queues=[queue("q", 8), queue("p", 8)],
    ),
    Case(
        "no room is kept for what could never fit",
        [job("small", "q", gpus=7, age_s=60)],
        ["small-0"],
        holder="",
        nodes=[node("n0"), node("n1", sick={0: "Xid79FallenOffBus"})],
        busy=[_busy("busy-0", "n0", [0]), _busy("busy-1", "n1", [1])],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_room_is_kept(case: Case) -> None:
    """Others take what the holder has not gathered."""
    gang = job("gang", "q", pods=2, gpus=case.each, age_s=600)
    plan = _plan(cluster(case.nodes, case.queues, [*case.busy, gang, *case.others]), case.reserved_for)
    assert sorted(bound(plan)) == case.binds
    assert plan.reserved_for == case.holder


def test_in_kai_the_gang_starves() -> None:
    """Without the rule, whatever fits is bound."""
    small = job("small", "q", gpus=7, age_s=60)
    plan = _plan(cluster(NODES, [queue("q", 24)], [*ALMOST, GANG, small]), which=KAI)
    assert bound(plan) == {"small-0": "n0"}
    assert plan.reserved_for == ""


def test_who_is_kept_off_is_told_for_whom() -> None:
    """The wait names the holder."""
    small = job("small", "q", gpus=7, age_s=60)
    plan = _plan(cluster(NODES, [queue("q", 24)], [*ALMOST, GANG, small]))
    assert "2 nodes keep room for job gang" in next(
        wait.message for wait in plan.waits if wait.job == "small"
    )


def test_the_holder_starts_as_soon_as_its_room_is_there() -> None:
    """What was kept is the holder's, and nothing is kept any more."""
    plan = _plan(cluster(NODES, [queue("q", 24)], [GANG, job("small", "q", gpus=7, age_s=900)]), "gang")
    assert bound(plan) == {"gang-0": "n0", "gang-1": "n1"}
    assert plan.reserved_for == ""


def test_a_gang_waits_as_long_as_what_runs_and_no_longer() -> None:
    """Small jobs come all the time; the gang starts when those that ran before it have ended."""
    holder = ""
    running = [*ALMOST]
    for cycle_number in range(4):
        newcomer = job(f"new-{cycle_number}", "q", gpus=1, age_s=50 - cycle_number)
        plan = _plan(cluster(NODES, [queue("q", 24)], [*running, GANG, newcomer]), holder)
        holder = plan.reserved_for
        if cycle_number < 3:
            assert not plan.binds
            running = running[: 2 - cycle_number]
    assert set(bound(plan)) == {"gang-0", "gang-1"}


def test_the_holder_may_move_others_to_where_it_would_have_gone() -> None:
    """Two nodes half full: by moving one job to the other the holder gets a whole node, as without the rule."""
    running = [_busy("a", "n0", range(4)), _busy("b", "n1", range(4))]
    whole = job("whole", "q", gpus=8, age_s=60)
    plan = run_cycle(
        cluster(NODES, [queue("q", 24)], [*running, whole]), actions=(allocate.run, consolidate.run)
    )
    assert [each.job for each in plan.pipelined if each.job == "whole"] == ["whole"]
    assert [bool(each.moved_to) for each in plan.evictions] == [True]
    assert plan.reserved_for == "whole"


def test_whoever_had_others_evicted_is_first_in_the_next_cycle() -> None:
    """The GPU that an eviction freed is kept for the job it was freed for, even if that asks for one only."""
    jobs = [_busy("busy", "n0", range(7)), job("first", "q", age_s=60), job("older", "q", age_s=900)]
    snapshot = cluster([node("n0")], [queue("q", 8)], jobs)
    assert bound(_plan(snapshot)) == {"older-0": "n0"}
    assert bound(_plan(snapshot, "first")) == {"first-0": "n0"}


def test_jobs_that_no_node_could_ever_take_cost_little() -> None:
    """One tenant's thousand pods of nine GPUs each must not keep everybody else waiting for seconds."""
    nodes = [node(f"n{index}") for index in range(500)]
    jobs = [job(f"vain-{index}", "q", gpus=9, age_s=600) for index in range(2000)]
    snapshot = cluster(nodes, [queue("q", 4000)], [*jobs, job("small", "q")])
    began = process_time()
    plan = _plan(snapshot)
    assert process_time() - began < 0.5  # 0.1 s; 1.1 s where each of them looks at every node
    assert set(bound(plan)) == {"small-0"}
    assert (plan.reserved_for, len(plan.waits)) == ("", 2000)
