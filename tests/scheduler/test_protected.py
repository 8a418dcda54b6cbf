"""Whom a PodDisruptionBudget protects is no victim: the next best set is taken, or nobody."""

import msgspec
import pytest

from controller.scheduler.model import Job, Snapshot
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler.words import cluster, decide, evicted, job, node, queue

BUDGET = "PodDisruptionBudget web allows no eviction now"


def protected(made: Job, *numbers: int) -> Job:
    """Give a job of which some pods cannot be evicted now."""
    tasks = tuple(
        msgspec.structs.replace(task, protected=BUDGET) if index in numbers else task
        for index, task in enumerate(made.tasks)
    )
    return msgspec.structs.replace(made, tasks=tasks)


def lent(*borrowers: Job) -> Snapshot:
    """An owner asks for the two GPUs of its quota; others borrowed them."""
    return cluster(
        [node("a", 2)],
        [queue("owner", 2), queue("guest", 0)],
        [*borrowers, job("asks", "owner")],
    )


@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["default", "compatible"])
def test_the_next_victim_is_taken_where_the_first_choice_is_protected(rules: Rules) -> None:
    """The newer one would go; it cannot, so the older one goes."""
    newer, older = job("newer", "guest", on=[("a", [0])], age_s=60), job("older", "guest", on=[("a", [1])])
    assert evicted(decide(lent(newer, older), rules)) == ["newer-0"]
    assert evicted(decide(lent(protected(newer, 0), older), rules)) == ["older-0"]


@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["default", "compatible"])
def test_nobody_is_evicted_where_all_are_protected(rules: Rules) -> None:
    """A gang with one protected member cannot leave in one piece either."""
    gang = job("gang", "guest", pods=2, on=[("a", [0]), ("a", [1])])
    assert evicted(decide(lent(gang), rules)) == ["gang-0", "gang-1"]
    assert evicted(decide(lent(protected(gang, 1)), rules)) == []


def test_a_surplus_pod_beside_a_protected_one_can_still_go() -> None:
    """Of two pods of which one is needed, that goes which may."""
    elastic = job("elastic", "guest", pods=2, least=1, on=[("a", [0]), ("a", [1])])
    assert evicted(decide(lent(protected(elastic, 1)))) == ["elastic-0"]
