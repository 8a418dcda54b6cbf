"""One plan: what is opened, in which order, what each takes from the next, and what is said about every node."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.incident import name_of
from controller.plan import MOVED_ON_AT_LEAST, OPENED_AT_ONCE, plan
from controller.steps import Open, Save, SavePolicy
from controller.view import Fleet
from kube.policy import BreakerPolicy, BudgetPolicy
from kube.remediation import DrainRecord, Phase
from kube.types import Node
from tests import build as make
from tests.build import LONG_AGO, NOW, SEEN, XID

LOST = make.finding()


CALM = make.policy(
    budget=BudgetPolicy(max_unavailable="100%", max_quarantined="100%"),
    breaker=BreakerPolicy(threshold="100%"),
)


def sick(count: int, **fields: Any) -> list[Node]:
    return [make.node(f"gpu-{n}", **{"conditions": {XID: "True"}, **fields}) for n in range(1, count + 1)]


def ill_fleet(count: int, spare: int = 0, **given: Any) -> Fleet:
    nodes = sick(count)
    return make.fleet(
        *nodes, *make.idle_nodes(spare), healths=[make.health(n, [LOST]) for n in nodes], **given
    )


def opened(fleet: Fleet) -> list[Open]:
    return [step for step in plan(fleet, NOW).steps if isinstance(step, Open)]


def test_a_healthy_fleet_is_left_in_peace() -> None:
    """Nothing is done and nothing is said; only the first numbers of the policy are written."""
    planned = plan(make.fleet(*make.idle_nodes(20)), NOW)
    assert [type(step) for step in planned.steps] == [SavePolicy]
    assert planned.explanations == {}


def test_pods_that_fail_to_start_open_no_incident() -> None:
    """The scheduler's own condition is for people: no cordon, no page, no word, and no part in breaker or budget."""
    pods_fail = [make.node(f"gpu-{n}", conditions={"PodStartFailing": "True"}) for n in range(1, 9)]
    planned = plan(make.fleet(*pods_fail), NOW)
    assert [type(step) for step in planned.steps] == [SavePolicy]
    assert planned.explanations == {}


def test_a_fault_opens_an_incident_with_everything_latched() -> None:
    """The machine, the boot, the policy and the evidence, under a name that follows from the evidence."""
    (step,) = opened(ill_fleet(1, 9))
    assert step.name == name_of("uid-gpu-1", LOST)
    assert (step.spec.node_uid, step.spec.provider_id, step.spec.boot_id) == (
        "uid-gpu-1",
        "cloud:///gpu-1",
        "boot-1",
    )
    assert (step.spec.policy, step.spec.opened_at) == ("gpus", NOW)
    assert [f.reason for f in step.spec.evidence] == [LOST.reason]
    assert step.status.phase is Phase.QUARANTINED
    assert [entry.phase for entry in step.status.timeline] == ["Suspected", "Quarantined"]


def test_several_faults_are_one_incident() -> None:
    """All evidence is attached, the worst one names it (NVIDIA/NVSentinel#1025)."""
    node = make.node(conditions={XID: "True", "GpuThrottled": "True"})
    findings = [
        make.idle_finding(index=1),
        make.finding("HwSlowdown", condition="GpuThrottled", effect="prefer-not"),
        LOST,
    ]
    health = make.health(node, findings, published=[XID, "GpuThrottled"])
    (step,) = opened(make.fleet(node, *make.idle_nodes(9), healths=[health]))
    assert step.name == name_of("uid-gpu-1", LOST)
    assert [f.reason for f in step.spec.evidence] == [
        "Xid79FallenOffBus",
        "HwSlowdown",
        "Xid63RowRemapPending",
    ]


def test_a_drill_never_names_an_incident_of_a_real_fault() -> None:
    """However bad it pretends to be."""
    node = make.node(conditions={XID: "True"})
    real = make.idle_finding(index=1)
    (step,) = opened(
        make.fleet(node, *make.idle_nodes(9), healths=[make.health(node, [make.finding(drill=True), real])])
    )
    assert step.name == name_of("uid-gpu-1", real)
    assert step.status.phase is Phase.QUARANTINED


@pytest.mark.parametrize(
    ("phase", "opens"),
    [
        pytest.param(Phase.CANCELLED, False, id="a person cancelled it"),
        pytest.param(Phase.RETURNED, False, id="the node was returned: old evidence is void"),
        pytest.param(Phase.CLEARED, True, id="it was gone, and stands again"),
        pytest.param(Phase.ESCALATED, False, id="it is open"),
    ],
)
def test_the_same_evidence_opens_once(phase: Phase, opens: bool) -> None:
    """And the explanation says which incident dealt with it."""
    closed = make.remediation(phase=phase, closed_at=NOW, opened_at=LONG_AGO)
    fleet = ill_fleet(1, 9, remediations=[closed])
    assert bool(opened(fleet)) == opens
    if phase is Phase.CANCELLED:
        assert plan(fleet, NOW).explanations["gpu-1"] == (
            f"the fault stands, but incident {closed.metadata.name} ended as Cancelled with the same evidence: "
            "only new evidence opens another"
        )


def test_new_evidence_opens_another_after_a_cancel() -> None:
    """The person's word was about what they knew."""
    closed = make.remediation(phase=Phase.CANCELLED, closed_at=NOW, opened_at=LONG_AGO)
    node = make.node(conditions={XID: "True"})
    again = make.finding(first_seen=NOW)
    fleet = make.fleet(
        node, *make.idle_nodes(9), healths=[make.health(node, [LOST, again])], remediations=[closed]
    )
    (step,) = opened(fleet)
    assert step.name == name_of("uid-gpu-1", again)
    assert len(step.spec.evidence) == 1


def test_a_cleared_incident_that_comes_back_has_another_name() -> None:
    """The object of the first one still exists."""
    closed = make.remediation(phase=Phase.CLEARED, closed_at=NOW)
    (step,) = opened(ill_fleet(1, 9, remediations=[closed]))
    assert step.name == name_of("uid-gpu-1", LOST, 1)


def test_the_last_place_is_given_once() -> None:
    """Two faults in the same instant, room for one: one is quarantined, the other waits by name."""
    nodes = sick(2)
    idle = [make.idle_finding(index=n) for n in (1, 2)]
    fleet = make.fleet(
        *nodes, *make.idle_nodes(18), healths=[make.health(n, [f]) for n, f in zip(nodes, idle, strict=True)]
    )
    tight = msgspec.structs.replace(
        fleet, policies={"gpus": make.policy(budget=BudgetPolicy(max_unavailable="1"))}
    )
    found = [(step.node, step.status.phase, step.status.held_by) for step in opened(tight)]
    assert found == [("gpu-1", Phase.QUARANTINED, ""), ("gpu-2", Phase.SUSPECTED, "budget")]


def test_lost_gpus_go_first() -> None:
    """Where there is not room for all, those that lost the most are taken out."""
    nodes = sick(3)
    findings = [make.idle_finding(), make.idle_finding(), LOST]
    fleet = make.fleet(
        *nodes,
        *make.idle_nodes(57),
        healths=[make.health(n, [f]) for n, f in zip(nodes, findings, strict=True)],
        policies=[make.policy(budget=BudgetPolicy(max_unavailable="1", max_quarantined="1"))],
    )
    assert [(step.node, step.status.phase) for step in opened(fleet)] == [
        ("gpu-3", Phase.QUARANTINED),
        ("gpu-1", Phase.SUSPECTED),
        ("gpu-2", Phase.SUSPECTED),
    ]


def test_one_repair_is_decided_at_a_time() -> None:
    """Two drained nodes in one plan, one slot."""
    remediations = []
    nodes = []
    for node in sick(2):
        one = make.remediation(
            node,
            phase=Phase.DRAINING,
            before=make.before(),
            opened_at=NOW - timedelta(hours=int(node.metadata.name[-1])),
            drain=DrainRecord(started_at=SEEN, deadline=NOW + timedelta(hours=1), urgency="now"),
        )
        remediations.append(one)
        nodes.append(make.quarantined(node, one.metadata.name))
    fleet = make.fleet(
        *nodes, healths=[make.health(n, [LOST]) for n in nodes], remediations=remediations, policies=[CALM]
    )
    saved = {step.node: step.status.phase for step in plan(fleet, NOW).steps if isinstance(step, Save)}
    assert saved == {"gpu-2": Phase.REPAIRING, "gpu-1": Phase.DRAINING}


def test_half_of_the_fleet_at_once_trips_the_breaker() -> None:
    """Lost GPUs are cordoned up to thirty per cent, the rest waits, and the policy says so by name."""
    planned = plan(ill_fleet(4, 4), NOW)
    phases = [step.status.phase for step in planned.steps if isinstance(step, Open)]
    held = {step.status.held_by for step in planned.steps if isinstance(step, Open)}
    assert (phases.count(Phase.QUARANTINED), phases.count(Phase.SUSPECTED)) == (2, 2)
    assert held == {"", "breaker"}
    (saved,) = [step for step in planned.steps if isinstance(step, SavePolicy)]
    (pool,) = saved.status.pools
    assert pool.breaker.startswith("breaker: more than 10% of pool default turned ill within 10 min")
    assert pool.breaker_since == NOW
    (page,) = saved.status.notifications
    assert (page.transition, page.sink) == ("open", "pager")
    assert page.id.startswith("breaker-")


def test_a_storm_is_taken_in_slices() -> None:
    """One plan opens so many and says that there is more."""
    planned = plan(ill_fleet(OPENED_AT_ONCE + 10, policies=[CALM]), NOW)
    assert sum(isinstance(step, Open) for step in planned.steps) == OPENED_AT_ONCE
    assert planned.recheck_at == NOW + timedelta(milliseconds=20)


@pytest.mark.parametrize(
    ("contained", "new", "moved_on"),
    [
        pytest.param(80, 0, OPENED_AT_ONCE, id="without new faults a slice of the contained begins to drain"),
        pytest.param(80, 4, OPENED_AT_ONCE - 4, id="a few new faults leave the rest of the slice"),
        pytest.param(
            80, OPENED_AT_ONCE + 10, MOVED_ON_AT_LEAST, id="in a storm the contained go on, but only just"
        ),
        pytest.param(2, OPENED_AT_ONCE, 2, id="few contained ones go on in any case"),
    ],
)
def test_sick_nodes_are_taken_out_before_contained_ones_move_on(
    contained: int, new: int, moved_on: int
) -> None:
    """What keeps new work off a sick node comes first; nothing stands still, and what waits is decided again soon."""
    out = [
        make.quarantined(node, name_of(node.metadata.uid, LOST))
        for node in (make.node(f"out-{n}", conditions={XID: "True"}) for n in range(contained))
    ]
    nodes = [*out, *sick(new)]
    fleet = make.fleet(
        *nodes,
        healths=[make.health(n, [LOST]) for n in nodes],
        remediations=[make.remediation(n, phase=Phase.QUARANTINED, before=make.before()) for n in out],
        policies=[CALM],
    )
    planned = plan(fleet, NOW)
    saves = [step for step in planned.steps if isinstance(step, Save)]
    assert [step.status.phase for step in saves] == [Phase.DRAINING] * moved_on
    assert sum(isinstance(step, Open) for step in planned.steps) == min(new, OPENED_AT_ONCE)
    waits = moved_on < contained or new > OPENED_AT_ONCE
    assert (planned.recheck_at == NOW + timedelta(milliseconds=20)) is waits


def test_pages_and_recoveries_never_wait_for_a_storm() -> None:
    """Only what moves a contained incident on is put off: not the hand-over to a person, not the way back."""
    person = make.person_finding()
    named = [
        make.quarantined(node, name_of(node.metadata.uid, person))
        for node in (make.node(f"person-{n}", conditions={XID: "True"}) for n in range(20))
    ]
    well = [
        make.quarantined(node, name_of(node.metadata.uid, LOST))
        for node in (make.node(f"well-{n}") for n in range(20))
    ]
    ill = sick(OPENED_AT_ONCE + 10)
    fleet = make.fleet(
        *named,
        *well,
        *ill,
        healths=[
            *(make.health(n, [person]) for n in named),
            *(make.health(n, [LOST]) for n in ill),
        ],
        remediations=[
            *(make.remediation(n, [person], phase=Phase.QUARANTINED, before=make.before()) for n in named),
            *(make.remediation(n, phase=Phase.QUARANTINED, before=make.before()) for n in well),
        ],
        policies=[CALM],
    )
    phases = [step.status.phase for step in plan(fleet, NOW).steps if isinstance(step, Save)]
    assert phases.count(Phase.ESCALATED) == len(named)
    assert phases.count(Phase.REVALIDATING) == len(well)


def test_equal_fleets_give_equal_plans() -> None:
    """The order in which the stores list objects does not matter."""
    fleet = ill_fleet(5, 5, remediations=[make.remediation(make.node("gpu-2"))])
    turned = msgspec.structs.replace(
        fleet,
        nodes=dict(reversed(list(fleet.nodes.items()))),
        healths=dict(reversed(list(fleet.healths.items()))),
        policies=dict(reversed(list(fleet.policies.items()))),
    )
    assert plan(fleet, NOW) == plan(turned, NOW)


@pytest.mark.parametrize(
    ("node", "health", "line"),
    [
        pytest.param(
            make.node(conditions={XID: "True"}),
            make.health(),
            "nothing is done without proof: GpuXidError is True but NodeHealth holds no standing finding for it",
            id="a condition without a finding",
        ),
        pytest.param(
            make.node(conditions={XID: "Unknown"}),
            make.health(),
            "GpuXidError is Unknown, which causes nothing",
            id="Unknown",
        ),
        pytest.param(
            make.node(conditions={XID: "True"}, labels={"pool": "other"}),
            make.health(findings=[LOST]),
            "no policy selects this node",
            id="a node of no policy",
        ),
    ],
)
def test_every_node_that_is_not_simply_well_is_explained(node: Node, health: Any, line: str) -> None:
    """Also where nothing is done."""
    policy = make.policy(node_selector={"nvidia.com/gpu.present": "true"})
    fleet = make.fleet(node, healths=[health], policies=[policy])
    planned = plan(fleet, NOW)
    assert planned.explanations == {"gpu-1": line}
    assert not [step for step in planned.steps if not isinstance(step, SavePolicy)]
