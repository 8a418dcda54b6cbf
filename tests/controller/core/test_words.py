"""A person's `repaired` carries the clock of a person's machine: it may be wrong, and must never cover what comes later."""

from datetime import datetime, timedelta

import pytest

from kube.policy import Mode
from kube.remediation import REPAIRED, Phase
from tests import build as make
from tests.build import NOW
from tests.controller.core.stage import decide, stage
from tests.controller.core.world import World


@pytest.mark.parametrize(
    ("word", "cleared", "message"),
    [
        pytest.param(NOW, NOW, "(at 2026-03-01T12:00:00Z)", id="a clock that is right"),
        pytest.param(
            NOW - timedelta(seconds=2),
            NOW - timedelta(seconds=2),
            "(at 2026-03-01T11:59:58Z)",
            id="a little late",
        ),
        pytest.param(
            NOW + timedelta(hours=1),
            NOW,
            "(at 2026-03-01T13:00:00Z, ahead of this clock: it counts up to 2026-03-01T12:00:00Z)",
            id="a clock that is an hour ahead",
        ),
    ],
)
def test_a_word_reaches_no_further_than_the_moment_it_was_heard(
    word: datetime, cleared: datetime, message: str
) -> None:
    """Else every fault of the next hour would count as dealt with."""
    status = decide(stage(Phase.ESCALATED, annotations={REPAIRED: word.isoformat()})).status
    assert (status.phase, status.repaired_at, status.cleared_before) == (Phase.REVALIDATING, word, cleared)
    assert message in status.message


def test_a_fault_after_a_word_from_the_future_is_a_new_one() -> None:
    """The agent is told the time of hearing once, and the node that fails again is not given back."""
    world = World(make.node(), *make.idle_nodes(9), policies=[make.policy(mode=Mode.QUARANTINE)])
    world.fault()
    world.settle()
    world.now += timedelta(minutes=5)
    world.say(REPAIRED, at=world.now + timedelta(hours=1))
    world.settle()
    assert world.healths["gpu-1"].spec.cleared_before == world.now
    world.now += timedelta(minutes=1)
    world.fault("gpu-1", world.seen())
    world.settle()
    assert world.only().status.phase is Phase.ESCALATED
    assert world.kinds().count("WriteSpec") == 1


def test_a_word_from_the_future_counts_once() -> None:
    """It still lies ahead when the incident escalates again: only a new word counts."""
    world = World(make.node(), *make.idle_nodes(9), policies=[make.policy(mode=Mode.QUARANTINE)])
    world.fault()
    world.settle()
    world.say(REPAIRED, at=world.now + timedelta(hours=10))
    world.settle()
    world.now += timedelta(minutes=1)
    world.fault("gpu-1", world.seen())
    world.settle()
    world.after(minutes=30)
    assert world.only().status.phase is Phase.ESCALATED
    world.say(REPAIRED)
    world.settle()
    assert world.only().status.phase is Phase.REVALIDATING
    assert world.healths["gpu-1"].spec.cleared_before == world.now
