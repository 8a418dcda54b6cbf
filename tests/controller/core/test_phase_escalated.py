"""Escalated: a person's word, how it reaches the agent, and what came after it."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from controller.steps import WriteSpec
from kube.remediation import CANCEL, REPAIRED, Phase
from tests import build as make
from tests.build import NOW
from tests.controller.core.stage import INCIDENT, LOST, decide, stage


@pytest.mark.parametrize(
    ("given", "phase", "message"),
    [
        pytest.param({}, Phase.ESCALATED, "", id="nobody said anything"),
        pytest.param(
            {"condition": "False", "reported": []}, Phase.ESCALATED, "", id="a newer False gives nothing back"
        ),
        pytest.param(
            {"annotations": {REPAIRED: "2026-03-01T12:00:00Z"}},
            Phase.REVALIDATING,
            "a person says it was repaired (at 2026-03-01T12:00:00Z)",
            id="a person says it was repaired",
        ),
        pytest.param(
            {"annotations": {REPAIRED: "2026-03-01T11:00:00Z"}},
            Phase.ESCALATED,
            "is dated 2026-03-01T11:00:00Z, before the hand-over",
            id="a word from before the hand-over",
        ),
        pytest.param(
            {
                "annotations": {REPAIRED: "2026-03-01T11:59:57Z"},
                "repaired_at": datetime.fromisoformat("2026-03-01T11:59:57Z"),
            },
            Phase.ESCALATED,
            "",
            id="a word that was used up",
        ),
        pytest.param(
            {"annotations": {REPAIRED: "done"}},
            Phase.ESCALATED,
            "write a time like",
            id="a word without a time",
        ),
        pytest.param(
            {"annotations": {CANCEL: "2026-03-01T12:00:00Z"}}, Phase.CANCELLED, "", id="a person cancels"
        ),
        pytest.param({"policy": make.policy(paused=True)}, Phase.ESCALATED, "", id="paused"),
    ],
)
def test_escalated_ends_with_a_persons_word(given: dict[str, Any], phase: Phase, message: str) -> None:
    """A fault that hides is no repair: only a person's word leads back, and only to Revalidating."""
    decision = decide(stage(Phase.ESCALATED, **given))
    assert (decision.phase, decision.effects) == (phase, ())
    assert message in decision.message


SAID = datetime.fromisoformat("2026-03-01T12:00:00Z")


def test_the_agent_is_told_of_a_persons_repair() -> None:
    """NodeHealth says up to when everything was dealt with; what it expected is kept."""
    fleet = stage(
        Phase.REVALIDATING,
        reported=[LOST],
        repaired_at=SAID,
        health={"expected": 8},
        message="the agent is told that a person repaired it",
    )
    (step,) = decide(fleet).steps
    assert isinstance(step, WriteSpec)
    assert (step.spec.cleared_before, step.spec.cleared_by) == (SAID, f"a person, on {INCIDENT}")
    assert step.spec.expected is not None


@pytest.mark.parametrize(
    ("reported", "phase", "held_by"),
    [
        pytest.param(
            [LOST], Phase.REVALIDATING, "evidence", id="seen before the repair: the agent has not caught up"
        ),
        pytest.param(
            [make.finding(first_seen=NOW + timedelta(seconds=1))],
            Phase.DRAINING,
            "",
            id="seen after it: it stands",
        ),
    ],
)
def test_what_a_person_repaired_is_told_from_what_came_after(
    reported: list[Any], phase: Phase, held_by: str
) -> None:
    """A fault seen after the person's word is a new one."""
    fleet = stage(Phase.REVALIDATING, reported=reported, repaired_at=SAID, health={"cleared_before": SAID})
    decision = decide(fleet, NOW + timedelta(seconds=2))
    assert (decision.phase, decision.held_by) == (phase, held_by)
