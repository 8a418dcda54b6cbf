"""Repairing, where the attempt ends before it was submitted: nothing was tried, so the ladder is as long as before."""

from typing import Any

import pytest

from kube.remediation import Phase
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import decide, reboot, stage

TRUE = {XID: "True"}
WITHDRAWN = reboot(result="Failed", finished_at=SEEN, message="withdrawn before it was submitted")


def test_an_attempt_for_a_boot_that_ended_is_withdrawn() -> None:
    """Somebody else booted the node: the evidence is void, and the reboot that was decided would end another boot.

    Nothing was tried, so the ladder's only rung is still there and nobody is paged.
    """
    decision = decide(
        stage(
            Phase.REPAIRING,
            node={"boot_id": "boot-2", "conditions": TRUE},
            health={"boot_id": "boot-1"},
        )
    )
    assert decision.phase is Phase.REPAIRING
    assert decision.status.attempts[0].result == "Failed"
    assert "booted again (boot boot-2)" in decision.message
    assert decision.status.notifications == ()


@pytest.mark.parametrize(
    ("given", "phase", "attempts"),
    [
        pytest.param(
            {"condition": "False", "reported": []}, Phase.REVALIDATING, 1, id="well in the new boot: proven"
        ),
        pytest.param({}, Phase.REPAIRING, 2, id="ill again in the new boot: the rung that was not used"),
        pytest.param({"condition": "Unknown"}, Phase.REPAIRING, 1, id="not heard yet: waited for"),
    ],
)
def test_after_a_withdrawn_attempt_it_goes_on(given: dict[str, Any], phase: Phase, attempts: int) -> None:
    """What was never submitted takes no rung of the ladder."""
    standing = make.finding(boot_id="boot-2", first_seen=SEEN)
    fleet = stage(
        Phase.REPAIRING,
        **{"reported": [standing], **given},
        node={"boot_id": "boot-2"},
        health={"boot_id": "boot-2"},
        attempts=(WITHDRAWN,),
    )
    decision = decide(fleet)
    assert (decision.phase, len(decision.status.attempts)) == (phase, attempts)


def test_an_attempt_that_ran_out_of_time_unsubmitted_takes_its_rung() -> None:
    """Otherwise an incident whose Job is refused for ever would be tried for ever."""
    late = reboot(result="Failed", finished_at=NOW, deadline=NOW, message="not submitted")
    assert decide(stage(Phase.REPAIRING, attempts=(late,))).phase is Phase.ESCALATED
