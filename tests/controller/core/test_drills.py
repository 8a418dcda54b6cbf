"""A drill of any reason, under a policy that enforces: an incident is told, and nothing is taken from anybody."""

from datetime import datetime, timedelta

import msgspec
import pytest

from checks.check import Check, discover
from checks.finding import Reason, Severity
from controller.plan import plan
from controller.steps import Evict, Open, Quarantine, RunRepair, RunValidation, Save, StopClients
from kube.nodehealth import HealthFinding, HealthPart
from kube.remediation import Phase
from tests import build as make
from tests.build import NOW

TAKING = (Quarantine, Evict, StopClients, RunRepair, RunValidation)
FAULTS = [
    pytest.param(check, reason, id=reason.name)
    for check in discover()
    for reason in check.reasons
    if reason.severity is Severity.FAULT
]


def drilled(check: Check, reason: Reason, at: datetime) -> HealthFinding:
    found = make.finding(
        reason.name,
        condition=check.condition,
        effect=reason.effect,
        urgency=reason.urgency,
        action=reason.action,
        first_seen=at,
        last_seen=at,
        drill=True,
    )
    return msgspec.structs.replace(found, part=HealthPart(kind=check.part_kind.value, name="drill"))


@pytest.mark.parametrize(("check", "reason"), FAULTS)
def test_a_drill_takes_nothing_from_anybody(check: Check, reason: Reason) -> None:
    """Not at its beginning, nor later in whatever phase before a repair its incident may be."""
    node = make.node(conditions={check.condition: ("True", NOW)})
    finding = drilled(check, reason, NOW)
    for minutes in (0, 5, 59):
        now = NOW + timedelta(minutes=minutes)
        health = make.health(node, [finding], published=[check.condition], observed_at=now)
        fleet = make.fleet(node, *make.idle_nodes(9), healths=[health])
        steps = list(plan(fleet, now).steps)
        for phase in (Phase.SUSPECTED, Phase.WAITING):
            incident = make.remediation(node, [finding], phase=phase, opened_at=NOW)
            going = make.fleet(node, *make.idle_nodes(9), healths=[health], remediations=[incident])
            steps += plan(going, now).steps
        assert [step for step in steps if isinstance(step, TAKING)] == []
        assert any(isinstance(step, Open | Save) for step in steps), "an incident says so"


def test_the_same_fault_without_the_mark_takes_the_node() -> None:
    """Or the test above would prove nothing."""
    node = make.node(conditions={make.XID: "True"})
    fleet = make.fleet(node, *make.idle_nodes(9), healths=[make.health(node, [make.finding()])])
    (opened,) = [step for step in plan(fleet, NOW).steps if isinstance(step, Open)]
    assert opened.status.phase is Phase.QUARANTINED


def test_a_drill_of_a_warning_opens_nothing() -> None:
    """It is shown in NodeHealth and Events."""
    node = make.node()
    warned = make.finding("KubeletDown", condition="", severity=Severity.WARNING, effect="none", drill=True)
    fleet = make.fleet(node, *make.idle_nodes(9), healths=[make.health(node, [warned])])
    assert [step for step in plan(fleet, NOW).steps if isinstance(step, (*TAKING, Open))] == []
