"""What a policy and the peers say of a node's ports, and how seldom it is written."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.expected import INSTANCE_TYPE_LABEL
from controller import peers
from controller.plan import plan
from controller.steps import WriteExpected
from controller.survey import survey
from controller.view import Fleet
from kube.nodehealth import Expected, FabricPorts, NodeHealth, Peers, SourceState
from kube.policy import ExpectedRule, RemediationPolicy
from kube.types import Node
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.world import World

NDR, HDR = (8, 400_000), (8, 200_000)
P5 = {INSTANCE_TYPE_LABEL: "p5"}
Shown = tuple[int, int] | None


def ported(node: Node, shown: Shown, held: Peers | None = None, **changes: Any) -> NodeHealth:
    """Build the NodeHealth of a node that shows these ports."""
    base = make.health(node, model=changes.pop("model", "H100"), observed_at=changes.pop("observed_at", SEEN))
    fabric = None if shown is None else FabricPorts(active=shown[0], rate_mbps=shown[1], at=SEEN)
    status = msgspec.structs.replace(base.status, fabric_ports=fabric, **changes)
    return msgspec.structs.replace(base, spec=msgspec.structs.replace(base.spec, peers=held), status=status)


def fleet_of(*shown: Shown, mine: Peers | None = None, policy: RemediationPolicy | None = None) -> Fleet:
    """Build nodes n0, n1, ... that show these ports; `mine` is what stands in n0's spec."""
    nodes = [make.node(f"n{number}", labels=P5) for number in range(len(shown))]
    healths = [
        ported(node, one, mine if number == 0 else None)
        for number, (node, one) in enumerate(zip(nodes, shown, strict=True))
    ]
    return make.fleet(*nodes, healths=healths, policies=[policy or make.policy()])


def written(fleet: Fleet, now: datetime = NOW) -> dict[str, WriteExpected]:
    """Give what is to be written, by node."""
    return {step.node: step for step in peers.expectations(survey(fleet, now), ())[0]}


def told(fleet: Fleet, now: datetime = NOW) -> tuple[int | None, int | None, int] | None:
    """Give the ports, the rate and the number of peers that n0 is told, None where it is told of none."""
    step = written(fleet, now).get("n0")
    found = step.peers if step is not None else fleet.healths["n0"].spec.peers
    return None if found is None else (found.ports, found.rate_mbps, found.counted)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        pytest.param([HDR, NDR, NDR, NDR], (8, 400_000, 3), id="all of mine are slow: three peers tell"),
        pytest.param([None, NDR, NDR, NDR], (8, 400_000, 3), id="a node that shows nothing yet is told too"),
        pytest.param([NDR, NDR, NDR], None, id="two peers are too few"),
        pytest.param([NDR, NDR, NDR, None], None, id="one that shows nothing does not vote"),
        pytest.param([NDR, NDR, NDR, HDR, HDR], (8, None, 4), id="half is no majority: no rate, but ports"),
        pytest.param([NDR, NDR, NDR, HDR], (8, 400_000, 3), id="two of three"),
        pytest.param([HDR, NDR, NDR, HDR, HDR, NDR, NDR], (8, 400_000, 6), id="my own vote does not count"),
        pytest.param([NDR, (7, 400_000), NDR, NDR], (8, 400_000, 3), id="a peer with a port down"),
        pytest.param([NDR, (7, 1), (6, 2), (5, 3)], None, id="they agree on nothing"),
        pytest.param([NDR, (8, 0), (8, 0), (8, 0)], (8, None, 3), id="a rate that nobody knows is none"),
        pytest.param([NDR, (0, 0), (0, 0), (0, 0)], None, id="no port is nothing to be held against"),
    ],
)
def test_the_peers_vote(shown: Sequence[Shown], expected: tuple[int | None, int | None, int] | None) -> None:
    """More than half of at least three others, ports and rate apart."""
    assert told(fleet_of(*shown)) == expected


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"observed_at": NOW - timedelta(hours=1)}, id="its agent is silent"),
        pytest.param({"node_uid": "another"}, id="it speaks of another Node object"),
        pytest.param({"boot_id": "an older one"}, id="it speaks of another boot"),
        pytest.param({"model": "A100"}, id="it holds other GPUs"),
        pytest.param(
            {"sources": (SourceState(name="infiniband", readable=False),)}, id="it cannot read its ports"
        ),
    ],
)
def test_who_does_not_vote(change: dict[str, Any]) -> None:
    """Only a fresh report of this very machine about the same kind of node counts: without the third there is no vote."""
    fleet = fleet_of(HDR, NDR, NDR, NDR)
    lost = ported(fleet.nodes["n3"], NDR, **change)
    leases = {name: lease for name, lease in fleet.leases.items() if name != "n3"}
    without = msgspec.structs.replace(fleet, healths={**fleet.healths, "n3": lost}, leases=leases)
    assert (told(fleet), told(without)) == ((8, 400_000, 3), None)


def test_a_quarantined_node_votes() -> None:
    """It shows what its hardware does, and one of them moves no majority."""
    fleet = fleet_of(HDR, NDR, NDR, NDR)
    cordoned = make.node("n3", labels=P5, unschedulable=True, conditions={"GpuXidError": "True"})
    assert told(msgspec.structs.replace(fleet, nodes={**fleet.nodes, "n3": cordoned})) == (8, 400_000, 3)


APART: tuple[Shown, ...] = ((7, 1), (6, 2), (5, 3))
OTHERS = Peers(ports=8, rate_mbps=400_000, counted=3, source="other nodes of instance type p4", at=SEEN)
HELD = Peers(ports=8, rate_mbps=400_000, counted=3, source="other nodes of instance type p5", at=SEEN)


@pytest.mark.parametrize(
    ("shown", "held", "after", "expected"),
    [
        pytest.param([HDR, NDR, NDR, NDR], HELD, 0, "nothing", id="as it stands"),
        pytest.param([HDR, NDR, NDR, NDR, NDR], HELD, 7200, "nothing", id="one more peer is no news"),
        pytest.param([HDR, NDR, NDR, NDR, NDR], HELD, 90_000, "written", id="but once a day"),
        pytest.param([HDR, HDR, HDR, HDR], HELD, 0, "later", id="another rate, seconds after the last"),
        pytest.param([HDR, HDR, HDR, HDR], HELD, 60, "written", id="another rate, a minute after the last"),
        pytest.param([HDR, *APART], HELD, 0, "later", id="no majority, seconds after"),
        pytest.param([HDR, *APART], HELD, 60, "removed", id="no majority"),
        pytest.param([HDR, NDR, HDR, None], HELD, 90_000, "nothing", id="too few are left to say otherwise"),
        pytest.param([HDR, None, None, None], HELD, 90_000, "nothing", id="nobody is left"),
        pytest.param([HDR, NDR, NDR], OTHERS, 60, "removed", id="too few, and it was said of another kind"),
    ],
)
def test_a_majority_that_flaps_is_written_once_a_minute(
    shown: Sequence[Shown], held: Peers, after: int, expected: str
) -> None:
    """What waits says until when, so that the plan looks again by itself."""
    now = NOW + timedelta(seconds=after)
    fleet = fleet_of(*shown, mine=held)
    fresh = {
        name: msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, observed_at=now))
        for name, one in fleet.healths.items()
    }
    steps, next_at = peers.expectations(survey(msgspec.structs.replace(fleet, healths=fresh), now), ())
    mine = [step for step in steps if step.node == "n0"]
    if expected in ("nothing", "later"):
        assert mine == []
        assert (next_at == SEEN + peers.SETTLE) == (expected == "later")
    else:
        assert [step.peers is None for step in mine] == [expected == "removed"]


def test_no_more_than_a_few_are_written_at_once() -> None:
    """A thousand nodes that join are told in slices, and the plan comes back for the rest at once."""
    fleet = fleet_of(*[NDR] * 100)
    steps, next_at = peers.expectations(survey(fleet, NOW), ("n1",))
    assert (len(steps), "n1" in {step.node for step in steps}) == (peers.WRITES_AT_ONCE, False)
    assert next_at is not None
    assert next_at < NOW + timedelta(seconds=1)


BY_HAND = Expected(gpus=7, source="card 3 removed, ticket 1234")
ROW = ExpectedRule(instance_type="p5", gpus=8, ports=32, rate_gbps=100)


@pytest.mark.parametrize(
    ("rows", "held", "expected"),
    [
        pytest.param(
            [ROW],
            None,
            Expected(gpus=8, source="policy gpus", ports=32, rate_mbps=100_000, ports_source="policy gpus"),
            id="its row",
        ),
        pytest.param(
            [msgspec.structs.replace(ROW, instance_type="p4d")], None, None, id="another type's row"
        ),
        pytest.param(
            [ExpectedRule(rate_gbps=400), ROW],
            None,
            Expected(rate_mbps=400_000, ports_source="policy gpus"),
            id="the first row for all counts",
        ),
        pytest.param(
            [ROW],
            BY_HAND,
            Expected(gpus=7, source=BY_HAND.source, ports=32, rate_mbps=100_000, ports_source="policy gpus"),
            id="a person's number of GPUs stays",
        ),
        pytest.param([], BY_HAND, BY_HAND, id="a person's word stays where the policy says nothing"),
        pytest.param([], Expected(gpus=8, source="policy gpus"), None, id="the policy's row is gone"),
        pytest.param(
            [], Expected(ports=8, ports_source="policy gone"), None, id="the policy that said it is another"
        ),
        pytest.param([], Expected(), Expected(), id="an empty word of somebody is left alone"),
    ],
)
def test_what_the_policy_expects(
    rows: list[ExpectedRule], held: Expected | None, expected: Expected | None
) -> None:
    """Authoritative, but for what a person wrote for this very node."""
    node = make.node("n0", labels=P5)
    health = make.health(node)
    health = msgspec.structs.replace(health, spec=msgspec.structs.replace(health.spec, expected=held))
    fleet = make.fleet(node, healths=[health], policies=[make.policy(expected=tuple(rows))])
    step = written(fleet).get("n0")
    assert (step.expected if step is not None else held) == expected
    assert (step is None) == (held == expected)


def test_a_policy_that_cannot_be_read_takes_nothing_away() -> None:
    """A typing error in it must not change what is expected of its nodes; its deletion does."""
    node = make.node("n0", labels=P5)
    held = Expected(gpus=8, source="policy gpus")
    health = make.health(node)
    health = msgspec.structs.replace(health, spec=msgspec.structs.replace(health.spec, expected=held))
    broken = make.fleet(node, healths=[health], policies=[make.policy(default_wait="soon")])
    gone = make.fleet(node, healths=[health], policies=[])
    assert "n0" not in written(broken)
    assert written(gone)["n0"].expected is None


def test_it_is_part_of_the_plan_and_comes_to_rest() -> None:
    """Written once; the next plan has nothing to write."""
    world = World(*(make.node(f"n{number}", labels=P5) for number in range(5)))
    for name, node in world.nodes.items():
        world.healths[name] = ported(node, HDR if name == "n0" else NDR)
    world.settle()
    spec = world.healths["n0"].spec.peers
    assert spec is not None
    assert (spec.ports, spec.rate_mbps, spec.counted, spec.source) == (
        8,
        400_000,
        4,
        "other nodes of instance type p5",
    )
    assert plan(world.fleet(), world.now).steps == ()


@given(
    shown=st.lists(
        st.none() | st.tuples(st.integers(0, 9), st.sampled_from([0, 200_000, 400_000])), max_size=9
    )
)
def test_what_is_told_is_what_most_others_show(shown: list[Shown]) -> None:
    """Against counting by hand, whatever they show."""
    fleet = fleet_of(*shown)
    for name, step in written(fleet).items():
        others = [one for number, one in enumerate(shown) if one is not None and f"n{number}" != name]
        assert step.peers is not None
        assert (step.peers.counted, len(others) >= peers.LEAST) == (len(others), True)
        assert 2 * sum(one[0] == step.peers.ports for one in others) > len(others)
        if step.peers.rate_mbps is not None:
            assert 2 * sum(one[1] == step.peers.rate_mbps for one in others) > len(others)
