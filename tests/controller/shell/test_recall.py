"""controller.recall: what the core is told of earlier requests, and no more."""

import pytest

from controller.outcome import Outcome, Result
from controller.recall import Recall
from controller.steps import Evict, RunRepair
from controller.view import Eviction, Failure
from tests.controller.shell.samples import INCIDENT, NODE, NOW

EVICT = Evict(node=NODE, incident=INCIDENT, namespace="ml", name="p", uid="u")
REPAIR = RunRepair(node=NODE, incident=INCIDENT, repair="reboot", attempt=1, job="j", boot_id="b")


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param([Result.DONE], Eviction(incident=INCIDENT, at=NOW), id="accepted"),
        pytest.param([Result.ABSENT], Eviction(incident=INCIDENT, at=NOW), id="gone"),
        pytest.param(
            [Result.BLOCKED] * 3,
            Eviction(incident=INCIDENT, at=NOW, refused="why", tries=3),
            id="refused in a row",
        ),
        pytest.param(
            [Result.BLOCKED, Result.MISCONFIGURED],
            Eviction(incident=INCIDENT, at=NOW, refused="why", tries=2),
            id="refused for different reasons",
        ),
        pytest.param([Result.THROTTLED], None, id="a busy server tells nothing about the pod"),
        pytest.param([Result.UNAVAILABLE], None, id="a lost answer tells nothing about the pod"),
    ],
)
def test_evictions(results: list[Result], expected: Eviction | None) -> None:
    """By pod, with the reason that is shown."""
    recall = Recall()
    for result in results:
        recall.took(
            Outcome(step=EVICT, result=result, why="why" if expected and expected.refused else ""), NOW
        )
    assert recall.evictions().get("u") == expected
    assert recall.failures() == {}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param(
            [Result.UNAVAILABLE] * 2,
            Failure(step="RunRepair", at=NOW, tries=2, why="why"),
            id="twice in a row",
        ),
        pytest.param(
            [Result.MISCONFIGURED],
            Failure(step="RunRepair", at=NOW, tries=1, why="why"),
            id="what a person must mend",
        ),
        pytest.param([Result.UNAVAILABLE, Result.DONE], None, id="made good"),
        pytest.param([Result.CONFLICT], None, id="the world moved on"),
        pytest.param([Result.REFUSED], None, id="a guard said no"),
        pytest.param([Result.NOT_LEADER], None, id="not ours to write"),
    ],
)
def test_failures(results: list[Result], expected: Failure | None) -> None:
    """By node; only writes that failed."""
    recall = Recall()
    for result in results:
        recall.took(Outcome(step=REPAIR, result=result, why="why"), NOW)
    assert recall.failures().get(NODE) == expected


def test_what_belongs_to_nothing_any_more_is_forgotten() -> None:
    """Closed incidents and removed Nodes."""
    recall = Recall()
    recall.took(Outcome(step=EVICT, result=Result.DONE), NOW)
    recall.took(Outcome(step=REPAIR, result=Result.UNAVAILABLE), NOW)
    recall.prune(incidents=(), has_node=lambda _: False)
    assert (recall.evictions(), recall.failures()) == ({}, {})
