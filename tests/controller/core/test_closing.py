"""What a closed incident answers for: its own evidence, and nothing that was seen only while it was being closed."""

from datetime import datetime, timedelta

import pytest

from controller.steps import Restore
from kube.nodehealth import HealthFinding
from kube.remediation import CANCEL, Phase, RemediationStatus
from tests import build as make
from tests.build import NOW
from tests.controller.core.stage import LOST, decide, stage
from tests.controller.core.world import World

LATER = make.finding("Xid48DoubleBitEcc", first_seen=NOW, index=5)


def reasons(status: RemediationStatus) -> set[str]:
    return {finding.reason for finding in status.evidence}


def test_a_fault_between_the_restore_and_the_close_opens_another_incident() -> None:
    """Killed after the Node was given back; meanwhile its GPU fell off the bus again. That fault was never repaired."""
    world = World(make.node(), *make.idle_nodes(9))
    world.fault()
    world.settle()
    world.reboot()
    world.settle()
    world.finish(world.only().status.attempts[-1].job)
    while not any(isinstance(step, Restore) for step in world.tick()):
        pass
    assert not world.nodes["gpu-1"].spec.unschedulable
    world.now += timedelta(minutes=1)
    world.fault()
    world.settle()
    assert [one.status.phase for one in world.remediations.values()] == [Phase.RETURNED, Phase.REPAIRING]
    assert world.nodes["gpu-1"].spec.unschedulable


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING, Phase.REPAIRING, Phase.ESCALATED])
@pytest.mark.parametrize(
    ("word", "evidence"),
    [
        pytest.param(NOW - timedelta(seconds=1), [LOST], id="a fault seen after the word"),
        pytest.param(NOW, [LOST, LATER], id="a fault seen before the word"),
    ],
)
def test_a_word_of_cancel_covers_what_was_seen_until_then(
    phase: Phase, word: datetime, evidence: list[HealthFinding]
) -> None:
    """The person cannot have meant a fault that came later, and the controller was away in between."""
    given = stage(phase, reported=[LOST, LATER], annotations={CANCEL: str(word)})
    decision = decide(given, NOW + timedelta(minutes=1))
    assert decision.phase is Phase.CANCELLED
    assert reasons(decision.status) == {finding.reason for finding in evidence}


@pytest.mark.parametrize("word", ["", "yes", "now", "2026-03-01 12:00"])
def test_a_word_of_cancel_counts_however_it_is_written(word: str) -> None:
    """At night somebody annotates by hand; a typing error must not let the drain go on."""
    given = stage(Phase.DRAINING, annotations={CANCEL: word}, pods=[make.pod()])
    decision = decide(given)
    assert (decision.phase, decision.effects) == (Phase.CANCELLED, ())
    assert decision.message == "a person cancelled it"


def test_evidence_seen_while_it_runs_is_attached_as_before() -> None:
    """Only the close is strict."""
    given = stage(Phase.DRAINING, reported=[LOST, LATER], pods=[make.pod()])
    status = decide(given).status
    assert reasons(status) == {LOST.reason, LATER.reason}
    assert status.timeline[-1].message.startswith("further evidence")
