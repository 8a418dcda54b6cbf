"""A verdict needs the condition and the proof, of this Node and of this boot."""

from datetime import timedelta

import pytest

from controller.assess import Verdict, assess, key, name_parts, needs_person, rank
from controller.view import Settings
from kube.nodehealth import HealthFinding, NodeHealth
from kube.types import Lease, Node
from tests import build as make
from tests.build import NOW, SEEN, XID

LOST = make.finding()
PODS_FAIL = "PodStartFailing"
IDLE = make.idle_finding(index=1)
TRUE = {XID: "True"}
ILL = make.node(conditions=TRUE)


def judge(node: Node, health: NodeHealth | None, lease: Lease | None = None) -> Verdict:
    return assess(node, health, lease, Settings(), NOW)


@pytest.mark.parametrize(
    ("node", "health", "standing", "doubt"),
    [
        pytest.param(make.node(), make.health(), (), "", id="a healthy node"),
        pytest.param(ILL, make.health(findings=[LOST]), (LOST,), "", id="a fault in both places stands"),
        pytest.param(
            ILL, make.health(findings=[IDLE, LOST]), (LOST, IDLE), "", id="the worst fault comes first"
        ),
        pytest.param(
            ILL, None, (), "there is no NodeHealth for this node", id="a condition without NodeHealth"
        ),
        pytest.param(
            ILL,
            make.health(),
            (),
            "GpuXidError is True but NodeHealth holds no standing finding for it",
            id="a condition without a finding",
        ),
        pytest.param(
            make.node(conditions={XID: "False"}),
            make.health(findings=[LOST]),
            (),
            "",
            id="a finding without a condition",
        ),
        pytest.param(
            make.node(conditions={XID: "Unknown"}),
            make.health(findings=[LOST]),
            (),
            "",
            id="Unknown is no fault, whatever NodeHealth still holds",
        ),
        pytest.param(
            ILL,
            make.health(findings=[make.finding(severity="Warning")]),
            (),
            "GpuXidError is True but NodeHealth holds no standing finding for it",
            id="a warning proves nothing",
        ),
        pytest.param(
            ILL,
            make.health(findings=[make.finding(effect="none")]),
            (),
            "",
            id="an effect of none asks for nothing",
        ),
        pytest.param(
            ILL,
            make.health(findings=[LOST], node_uid="uid-of-before"),
            (),
            "NodeHealth was reported for another Node object of this name",
            id="a report about the Node of before",
        ),
        pytest.param(
            ILL,
            make.health(findings=[LOST], boot_id="boot-0"),
            (),
            "NodeHealth was reported in boot boot-0, the node runs boot boot-1 now",
            id="a report of an earlier boot",
        ),
        pytest.param(
            ILL,
            make.health(findings=[LOST], cleared_before=SEEN),
            (),
            "",
            id="what a person cleared, and the agent not yet",
        ),
        pytest.param(
            ILL,
            make.health(findings=[LOST], cleared_before=SEEN - timedelta(seconds=1)),
            (LOST,),
            "",
            id="what was seen again after it was cleared",
        ),
        pytest.param(
            make.node(conditions={"GpuUnheardOf": "True"}),
            make.health(findings=[make.finding(condition="GpuUnheardOf")], published=["GpuUnheardOf"]),
            (make.finding(condition="GpuUnheardOf"),),
            "",
            id="a type that only a newer agent knows",
        ),
        pytest.param(
            make.node(conditions={"MemoryPressure": "True"}),
            make.health(published=["MemoryPressure", "Ready"]),
            (),
            "",
            id="Kubernetes' own type, which a NodeHealth claims",
        ),
        pytest.param(
            make.node(conditions={PODS_FAIL: "True"}),
            make.health(),
            (),
            "",
            id="pods that fail to start, which the scheduler says and nobody repairs",
        ),
        pytest.param(
            make.node(conditions={PODS_FAIL: "True"}),
            make.health(findings=[make.finding(condition=PODS_FAIL)], published=[PODS_FAIL]),
            (),
            "",
            id="pods that fail to start, which a NodeHealth claims as a fault",
        ),
        pytest.param(
            make.node(conditions={"KernelDeadlock": "True"}),
            make.health(),
            (),
            "",
            id="another program's condition",
        ),
    ],
)
def test_a_fault_stands_only_with_proof(
    node: Node, health: NodeHealth | None, standing: tuple[HealthFinding, ...], doubt: str
) -> None:
    """What stands has a True condition and a fault in a report about this Node and boot; else the doubt is said."""
    verdict = judge(node, health)
    assert verdict.standing == standing
    if node.condition(XID) is None or health is not None or doubt:
        assert verdict.doubt == doubt


def test_unknown_is_told_apart() -> None:
    """Unknown types are listed, and are not standing."""
    verdict = judge(make.node(conditions={XID: "Unknown", "GpuMissing": "True"}), make.health())
    assert (verdict.unknown, verdict.unproven) == ((XID,), ("GpuMissing",))


OLD = NOW - timedelta(minutes=6)
AHEAD = NOW + timedelta(days=1)


@pytest.mark.parametrize(
    ("observed", "lease", "fresh"),
    [
        pytest.param(SEEN, None, True, id="a report of a moment ago"),
        pytest.param(OLD, None, False, id="a report of six minutes ago"),
        pytest.param(OLD, make.lease(renewed=SEEN), True, id="an old report of an agent that lives"),
        pytest.param(
            OLD, make.lease(renewed=SEEN, node_uid="uid-of-before"), False, id="a Lease of the Node of before"
        ),
        pytest.param(None, None, False, id="an agent that was never heard"),
        pytest.param(AHEAD, None, False, id="a report from the future"),
        pytest.param(AHEAD, make.lease(renewed=OLD), False, id="and its agent is silent"),
        pytest.param(AHEAD, make.lease(renewed=SEEN), True, id="and its agent lives"),
        pytest.param(
            OLD, make.lease(renewed=NOW + timedelta(seconds=1)), True, id="a Lease heard after the look began"
        ),
    ],
)
def test_evidence_is_confirmed_by_a_sign_of_life(observed: object, lease: Lease | None, fresh: bool) -> None:
    """Either the report or the Lease of this Node's agent is younger than five minutes."""
    health = make.health(findings=[LOST], observed_at=observed)  # type: ignore[arg-type]
    assert judge(ILL, health, lease).fresh == fresh


def test_a_report_about_another_node_is_no_sign_of_life() -> None:
    """The agent of the Node of before says nothing about this one."""
    assert judge(ILL, make.health(node_uid="uid-of-before")).confirmed_at is None


def test_the_same_fault_seen_more_often_is_the_same_evidence() -> None:
    """Counts and last-seen times do not make new evidence; a new first-seen time or boot does."""
    again = make.finding(last_seen=NOW, count=99)
    later = make.finding(first_seen=NOW)
    assert key(again) == key(LOST)
    assert key(later) != key(LOST)
    assert key(make.finding(boot_id="boot-2")) != key(LOST)


def test_words_that_this_version_does_not_know_are_taken_with_care() -> None:
    """An unknown effect takes the node without the rights of node-out; an unknown urgency is a person's."""
    strange = make.finding(effect="half-out", urgency="tomorrow")
    assert 0 < rank(strange) < rank(LOST)
    assert needs_person(strange)


def test_many_findings_are_named_in_one_line() -> None:
    """The first three are named, the rest counted."""
    many = [make.finding(index=number) for number in range(5)]
    assert name_parts(many) == (
        "Xid79FallenOffBus on GPU 0 at 0000:00:00, Xid79FallenOffBus on GPU 1 at 0000:01:00, "
        "Xid79FallenOffBus on GPU 2 at 0000:02:00 and 2 more"
    )
