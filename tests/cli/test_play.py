"""Cycle after cycle: what a plan leaves behind, and that it comes to an end."""

import msgspec
import pytest

from cli.play import MOST_CYCLES, after, play
from controller.scheduler.model import Job, Snapshot, Task, TaskStatus
from controller.scheduler.nodes import Claim
from controller.scheduler.plan import Bind, Evict, Plan
from controller.scheduler.requests import Request
from controller.scheduler.rules import DEFAULT
from tests.cli.objects import NOW

RUNNING = Task(id="team/runs", job="team/j", status=TaskStatus.RUNNING, node="n1", gpus=("GPU-1",))
WAITS = Task(id="team/waits", job="team/j", request=Request(gpus=1))


def world(*tasks: Task, claims: tuple[Claim, ...] = ()) -> Snapshot:
    job = Job(id="team/j", queue="q", created_at=NOW, tasks=tasks)
    return Snapshot(now=NOW, jobs=(job,), claims=claims)


def bound(**devices: tuple[str, ...]) -> Bind:
    given = tuple((f"team/{name}", ids) for name, ids in devices.items())
    return Bind(task="team/waits", job="team/j", node="n2", gpus=("GPU-9",), devices=given)


EVICTED = Evict(task="team/runs", job="team/j", node="n1", action="reclaim", why="because")


def test_what_is_bound_runs_there() -> None:
    """On its node and its card, and its job has started."""
    (job,) = after(world(WAITS), Plan(binds=(bound(),), started=("team/j",)), frozenset()).jobs
    assert job.tasks == (
        msgspec.structs.replace(WAITS, status=TaskStatus.RUNNING, node="n2", gpus=("GPU-9",)),
    )
    assert (job.started_at, job.pending_since) == (NOW, None)


@pytest.mark.parametrize(
    ("again", "left"),
    [
        pytest.param(frozenset({"team/runs"}), [(TaskStatus.PENDING, "", ())], id="made again, it waits"),
        pytest.param(frozenset(), [], id="else it is gone"),
    ],
)
def test_what_is_evicted(again: frozenset[str], left: list[tuple[TaskStatus, str, tuple[str, ...]]]) -> None:
    """A pod that a controller makes again waits anew."""
    (job,) = after(world(RUNNING), Plan(evictions=(EVICTED,)), again).jobs
    assert [(task.status, task.node, task.gpus) for task in job.tasks] == left
    assert job.restarts == 1


def test_claims_follow_their_pods() -> None:
    """What a bind gives its claim is taken; what an evicted pod alone held is free."""
    mine, theirs = (
        Claim(id="team/mine"),
        Claim(id="team/theirs", devices=("d1",), reserved_for=("team/runs",)),
    )
    plan = Plan(binds=(bound(mine=("d2",)),), evictions=(EVICTED,))
    found = {
        claim.id: claim
        for claim in after(world(RUNNING, WAITS, claims=(mine, theirs)), plan, frozenset()).claims
    }
    assert (found["team/mine"].devices, found["team/mine"].reserved_for) == (("d2",), ("team/waits",))
    assert (found["team/theirs"].devices, found["team/theirs"].reserved_for) == ((), ())


def test_what_ends_has_ended_one_cycle_later() -> None:
    """A pod that was told to end holds its place for one cycle."""
    ending = msgspec.structs.replace(RUNNING, status=TaskStatus.RELEASING)
    outcome = play(world(ending), DEFAULT, frozenset())
    assert (outcome.cycles, outcome.settled) == (2, True)
    assert outcome.cycles < MOST_CYCLES
