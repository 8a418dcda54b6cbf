"""What time alone does: agents that fall silent, and incidents that are old."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.plan import plan
from controller.steps import Delete, Open, Silence
from controller.view import Fleet, Settings
from kube.remediation import Notification, Phase
from tests import build as make
from tests.build import NOW, XID
from tests.controller.core.stage import decide, stage

LOST = make.finding()


def opened(fleet: Fleet) -> list[Open]:
    return [step for step in plan(fleet, NOW).steps if isinstance(step, Open)]


MINUTES = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("given", "turned"),
    [
        pytest.param({"observed": 4}, {}, id="heard four minutes ago"),
        pytest.param(
            {"observed": 6}, {XID: ("Unknown", "AgentSilent")}, id="False turns Unknown after five minutes"
        ),
        pytest.param({"observed": 6, "leased": 1}, {}, id="an agent that renews its Lease is not silent"),
        pytest.param({"observed": 6, "status": "Unknown"}, {}, id="Unknown stays as it is"),
        pytest.param({"observed": 6, "status": "True"}, {XID: ("True", "TrueReason")}, id="True stays True"),
        pytest.param({"observed": None}, {}, id="an agent that was never there"),
        pytest.param(
            {"observed": 6, "deaf": 0.5}, {}, id="the controller itself was deaf until a moment ago"
        ),
        pytest.param(
            {"observed": 6, "deaf": 1},
            {XID: ("Unknown", "AgentSilent")},
            id="the controller hears for a minute",
        ),
        pytest.param(
            {"observed": 6, "type": "KernelDeadlock"}, {}, id="other programs' conditions are not ours"
        ),
        pytest.param(
            {"observed": 6, "type": "PodStartFailing", "published": ["PodStartFailing"]},
            {},
            id="what the scheduler says is not the agent's, whatever NodeHealth claims",
        ),
    ],
)
def test_silence(given: dict[str, Any], turned: dict[str, tuple[str, str]]) -> None:
    """A silent agent's False is Unknown; its True says when it was last confirmed; nothing else is touched."""
    type_ = given.get("type", XID)
    node = make.node(conditions={type_: given.get("status", "False")})
    seen = given.get("observed")
    health = make.health(
        node,
        observed_at=None if seen is None else NOW - seen * MINUTES,
        published=given.get("published", [XID]),
    )
    leases = [make.lease(renewed=NOW - given["leased"] * MINUTES)] if "leased" in given else []
    heard = NOW - given["deaf"] * MINUTES if "deaf" in given else None
    fleet = make.fleet(node, healths=[health], leases=leases, heard_since=heard)
    found = [step for step in plan(fleet, NOW).steps if isinstance(step, Silence)]
    assert {c[0]: (c[1], c[2]) for step in found for c in step.conditions} == turned


def test_silence_is_said_once() -> None:
    """A True that already says when it was confirmed is left; so is a False that was turned."""
    node = make.node(conditions={XID: "True"})
    health = make.health(node, observed_at=NOW - 6 * MINUTES)
    (step,) = [s for s in plan(make.fleet(node, healths=[health]), NOW).steps if isinstance(s, Silence)]
    message = step.conditions[0][3]
    assert "last confirmed at 2026-03-01T11:54:00Z" in message
    told = msgspec.structs.replace(
        node.status,
        conditions=tuple(msgspec.structs.replace(c, message=message) for c in node.status.conditions),
    )
    again = make.fleet(msgspec.structs.replace(node, status=told), healths=[health])
    assert not [s for s in plan(again, NOW).steps if isinstance(s, Silence)]


def test_an_unknown_of_silence_starts_nothing() -> None:
    """Silence by itself opens no incident."""
    node = make.node(conditions={XID: "Unknown"})
    fleet = make.fleet(node, healths=[make.health(node, observed_at=NOW - timedelta(hours=5))])
    assert not opened(fleet)


OLD = NOW - timedelta(days=31)


WAITING = Notification(
    id="i-1-pager", sink="pager", transition="resolve", sequence=1, summary="x", created_at=OLD
)


@pytest.mark.parametrize(
    ("given", "deleted"),
    [
        pytest.param({}, True, id="closed a month ago"),
        pytest.param({"closed_at": NOW - timedelta(days=29)}, False, id="closed less than a month ago"),
        pytest.param({"notifications": (WAITING,)}, False, id="it still owes a message"),
        pytest.param({"marked": True, "before": make.before()}, False, id="its mark is still on the Node"),
        pytest.param({"phase": Phase.ESCALATED, "closed_at": None}, False, id="it is open"),
        pytest.param({"reported": [LOST]}, False, id="its fault stands: it is the memory of a person's word"),
    ],
)
def test_old_incidents_are_forgotten(given: dict[str, Any], deleted: bool) -> None:
    """Unless they are still needed."""
    fields = {"reported": [], "condition": "False", "closed_at": OLD, **given}
    fleet = stage(fields.pop("phase", Phase.CANCELLED), **fields)
    decision = decide(fleet)
    assert any(isinstance(step, Delete) for step in decision.steps) == deleted


def test_the_time_to_forget_is_the_configurations() -> None:
    """`retention` counts from the closing."""
    fleet = stage(
        Phase.RETURNED,
        reported=[],
        condition="False",
        closed_at=NOW - timedelta(hours=2),
        settings=Settings(retention=timedelta(hours=1)),
    )
    assert decide(fleet).effects == ("Delete",)
