"""controller.pacing: no answer of the server makes the loop spin, and nothing waits longer than it says."""

import pytest

from controller.outcome import Outcome, Result
from controller.pacing import Pacing
from controller.steps import Evict, Save, Step
from tests.controller.shell.samples import INCIDENT, NODE, status

EVICT = Evict(node=NODE, incident=INCIDENT, namespace="ml", name="train-0", uid="u1")
SAVE = Save(node=NODE, name=INCIDENT, resource_version="1", status=status())


def waits(step: Step, results: list[tuple[Result, float | None]]) -> list[float]:
    """Give how long the step is held after each result in turn, asked for again at the first moment it may go."""
    pacing, now, held = Pacing(lambda: 1.0), 1000.0, []
    for result, wish in results:
        pacing.took(Outcome(step=step, result=result, wait_s=wish), now)
        until = pacing.next_at(now)
        held.append(0.0 if until is None else round(until - now, 3))
        now += held[-1]
        assert pacing.may(step, now)
    return held


@pytest.mark.parametrize(
    ("step", "results", "expected"),
    [
        pytest.param(SAVE, [(Result.DONE, None)] * 2, [0.0, 0.0], id="success is not held"),
        pytest.param(
            SAVE, [(Result.CONFLICT, None)] * 8, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0], id="a conflict"
        ),
        pytest.param(
            SAVE, [(Result.UNAVAILABLE, None)] * 8, [0.5, 1, 2, 4, 8, 16, 30, 30], id="a server that is away"
        ),
        pytest.param(
            EVICT, [(Result.BLOCKED, 10.0), (Result.BLOCKED, None)], [10.0, 10.0], id="a budget's own wish"
        ),
        pytest.param(EVICT, [(Result.THROTTLED, 40.0)], [40.0], id="a busy server's own wish, however long"),
        pytest.param(
            EVICT, [(Result.MISCONFIGURED, None)] * 4, [60, 120, 240, 300], id="what a person must mend"
        ),
        pytest.param(EVICT, [(Result.DONE, None)], [10.0], id="an eviction until the watch shows it"),
        pytest.param(
            SAVE,
            [
                (Result.UNAVAILABLE, None),
                (Result.UNAVAILABLE, None),
                (Result.DONE, None),
                (Result.UNAVAILABLE, None),
            ],
            [0.5, 1, 0.0, 0.5],
            id="a success starts the row anew",
        ),
        pytest.param(SAVE, [(Result.DRY_RUN, None)] * 2, [60, 60], id="what dry_run never sends"),
    ],
)
def test_waits_grow_and_are_bounded(
    step: Step, results: list[tuple[Result, float | None]], expected: list[float]
) -> None:
    """By kind of answer; the server's own wish is kept."""
    assert waits(step, results) == expected


def test_one_pods_refusal_holds_no_other_pod() -> None:
    """Each pod has a pace of its own."""
    pacing = Pacing(lambda: 1.0)
    pacing.took(Outcome(step=EVICT, result=Result.BLOCKED), 0.0)
    other = Evict(node=NODE, incident=INCIDENT, namespace="ml", name="train-1", uid="u2")
    assert (pacing.may(EVICT, 1.0), pacing.may(other, 1.0)) == (False, True)


def test_what_is_long_past_is_forgotten() -> None:
    """So that memory is bounded by what happened lately."""
    pacing = Pacing(lambda: 1.0)
    pacing.took(Outcome(step=SAVE, result=Result.UNAVAILABLE), 0.0)
    pacing.prune(700.0)
    pacing.took(Outcome(step=SAVE, result=Result.UNAVAILABLE), 700.0)
    assert pacing.next_at(700.0) == 700.5
