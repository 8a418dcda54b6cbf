"""Narrow containment at its limits: what waits for its turn, what is handed to a person, whom a change of policy reaches."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.plan import plan
from controller.steps import Save
from controller.view import Fleet
from kube.policy import BudgetPolicy
from kube.remediation import Phase
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.open_node import EVICTS, SICK, WAITS, degraded, narrow, narrow_policy, work
from tests.controller.core.stage import decide, drain_record

OUT = make.reset_finding()
IDLE = degraded()
HOLDER = work("holder")
BUSY = {SICK: [HOLDER], "GPU-5": [work("neighbour")]}
STALE = {"observed_at": NOW - timedelta(minutes=6)}
ROOM = narrow_policy(budget=BudgetPolicy(max_unavailable="5"))


def test_a_node_left_open_to_a_person_is_cordoned_where_the_policy_says_cordon_by_now() -> None:
    """Under that policy other schedulers place pods, and they read nothing else."""
    found = decide(
        narrow(
            Phase.ESCALATED,
            [make.person_finding()],
            cards=BUSY,
            withheld=[SICK],
            policy=make.policy(),
            since=SEEN,
        )
    )
    assert (found.phase, found.status.before is None) == (Phase.ESCALATED, False)
    assert "contains by cordon: the node is cordoned too" in found.message


@pytest.mark.parametrize(
    ("drain", "limit"),
    [
        pytest.param(EVICTS, timedelta(minutes=30), id="its pods had to go: as long as a drain may take"),
        pytest.param(WAITS, timedelta(hours=24), id="it could wait: as long as it may"),
    ],
)
@pytest.mark.parametrize("given", [{"condition": "Unknown"}, {"health": STALE}], ids=["Unknown", "silence"])
def test_what_cannot_be_confirmed_for_too_long_is_handed_to_a_person(
    given: dict[str, Any], drain: Any, limit: timedelta
) -> None:
    """Else nobody would ever hear of it again."""
    finding = OUT if drain is EVICTS else IDLE
    base = {"cards": BUSY, "withheld": [SICK], "drain": drain, "held_by": "evidence", **given}
    still = decide(narrow(Phase.WAITING, [finding], held_since=NOW - limit + timedelta(seconds=1), **base))
    assert (still.phase, still.held_by) == (Phase.WAITING, "evidence")
    over = decide(narrow(Phase.WAITING, [finding], held_since=NOW - limit, **base))
    assert (over.phase, over.effects, over.status.before) == (Phase.ESCALATED, (), None)
    assert "could not be confirmed since" in over.message


def beside(*others: tuple[str, Phase, dict[str, Any]]) -> Fleet:
    """Build the fleet in which gpu-1 waits, idle by now, and other nodes of its pool are in these phases."""
    nodes = [make.node(name, conditions={IDLE.condition: ("True", SEEN)}) for name, _, _ in others]
    incidents = [
        make.remediation(node, [IDLE], phase=phase, since=SEEN, **status)
        for node, (_, phase, status) in zip(nodes, others, strict=True)
    ]
    healths = [make.health(node, [IDLE]) for node in nodes]
    healths = [
        msgspec.structs.replace(
            one,
            status=msgspec.structs.replace(
                one.status,
                parts=tuple(msgspec.structs.replace(p, offered=True, held=False) for p in one.status.parts),
            ),
        )
        for one in healths
    ]
    return narrow(
        Phase.WAITING,
        [IDLE],
        policy=ROOM,
        drain=WAITS,
        others=[*nodes, *make.idle_nodes(20)],
        other_remediations=incidents,
        other_healths=healths,
    )


def saved(fleet: Fleet) -> list[tuple[str, Phase]]:
    """Give the phases that are saved, by node."""
    steps = plan(fleet, NOW).steps
    return [(one.node, one.status.phase) for one in steps if isinstance(one, Save)]


def test_of_two_nodes_that_are_idle_one_is_cordoned() -> None:
    """The other works on until its repair may follow."""
    fleet = beside(("gpu-2", Phase.WAITING, {"drain": WAITS}))
    phases = [phase for _, phase in saved(fleet)]
    assert sorted(phases) == [Phase.QUARANTINED, Phase.WAITING]


HEADING = [
    ("gpu-2", Phase.QUARANTINED, {"before": make.before()}),
    ("gpu-2", Phase.DRAINING, {"before": make.before(), "drain": drain_record()}),
    (
        "gpu-2",
        Phase.DRAINING,
        {"before": make.before(), "drain": drain_record(urgency="when-idle", finished_at=SEEN)},
    ),
]
NOT_HEADING = [
    ("gpu-2", Phase.QUARANTINED, {"before": make.before(), "held_by": "breaker"}),
    ("gpu-2", Phase.DRAINING, {"before": make.before(), "drain": drain_record(urgency="when-idle")}),
    ("gpu-2", Phase.ESCALATED, {"before": make.before()}),
    ("gpu-2", Phase.REVALIDATING, {"before": make.before()}),
]


@pytest.mark.parametrize(
    ("other", "phase"),
    [
        *((one, Phase.WAITING) for one in HEADING),
        *((one, Phase.QUARANTINED) for one in NOT_HEADING),
    ],
    ids=[
        "it was cordoned for its repair",
        "its pods are evicted",
        "it is empty",
        "something holds it",
        "it waits for running work, maybe for a day",
        "a person has it",
        "it is proven",
    ],
)
def test_an_open_node_waits_for_those_on_their_way_to_a_repair(
    other: tuple[str, Phase, dict[str, Any]], phase: Phase
) -> None:
    """One repair at a time is what the policy allows."""
    found = decide(beside(other))
    assert (found.phase, found.held_by) == (phase, "budget" if phase is Phase.WAITING else "")


@pytest.mark.parametrize(
    ("created", "started", "evicted"),
    [
        (timedelta(seconds=1), None, False),
        (timedelta(0), None, False),
        (timedelta(seconds=-1), timedelta(milliseconds=100), False),
        (timedelta(seconds=-9), timedelta(seconds=-8), True),
        (timedelta(seconds=-9), None, True),
    ],
    ids=[
        "made after the report",
        "made in the second of the report",
        "by the node's own clock, which is ahead, it started after the report",
        "made and started before it",
        "made before it",
    ],
)
def test_a_pod_of_the_same_name_that_came_after_the_report_is_not_evicted(
    created: timedelta, started: timedelta | None, evicted: bool
) -> None:
    """A StatefulSet's next pod may have another card."""
    reported = NOW + timedelta(milliseconds=500)
    metadata = msgspec.structs.replace(HOLDER.metadata, creation_timestamp=NOW + created)
    status = msgspec.structs.replace(
        HOLDER.status, start_time=None if started is None else reported + started
    )
    newer = msgspec.structs.replace(HOLDER, metadata=metadata, status=status)
    fleet = narrow(
        Phase.WAITING,
        [OUT],
        cards={SICK: [newer]},
        withheld=[SICK],
        drain=EVICTS,
        message="x",
        health={"observed_at": reported},
        leases=[make.lease("gpu-1")],
    )
    first = decide(fleet, NOW + timedelta(seconds=1))
    (held,) = fleet.remediations.values()
    again = msgspec.structs.replace(held, status=first.status)
    found = decide(
        msgspec.structs.replace(fleet, remediations={again.metadata.name: again}), NOW + timedelta(seconds=1)
    )
    assert (found.phase, found.effects) == (Phase.WAITING, ("Evict",) if evicted else ())
