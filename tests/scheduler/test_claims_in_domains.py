"""Gangs with ResourceClaims under a topology constraint: domains are counted without devices, so placing has to find out."""

from dataclasses import dataclass

import msgspec
import pytest

from controller.scheduler.model import Job, PodSet, Snapshot, SubGroup, TopologyConstraint
from controller.scheduler.nodes import Claim, Device, Level, Topology
from controller.scheduler.requests import Request
from tests.scheduler import words
from tests.scheduler.test_claims import claim, device

NET = Topology(name="net", levels=(Level(node_label="rack"), Level(node_label="host")))
RACK = TopologyConstraint(topology="net", required="rack")
PREFER_RACK = TopologyConstraint(topology="net", preferred="rack")


def _gang(constraint: TopologyConstraint, pods: int = 2, shared: str = "", **changes: object) -> Job:
    made = words.job("gang", "q", pods=pods)
    tasks = tuple(
        msgspec.structs.replace(
            task, request=Request(claims=(shared or f"c{n}",), dra_gpus=1, cpu_milli=1000)
        )
        for n, task in enumerate(made.tasks)
    )
    root = SubGroup(pod_sets=(PodSet(min_available=pods),), topology=constraint)
    return msgspec.structs.replace(made, root=root, tasks=tasks, **changes)


def _world(devices: dict[str, int], *jobs: Job, claims: tuple[Claim, ...] = ()) -> Snapshot:
    """Nodes by rack and number with so many devices each: "a1" is in rack a."""
    nodes = [words.node(name, 0, labels={"rack": name[0], "host": name}) for name in devices]
    parts: list[Device] = [device(name, n) for name, count in devices.items() for n in range(count)]
    found = words.cluster(nodes, [words.queue("q", 100)], jobs)
    own = tuple(claim(f"c{n}", from_template=True) for n in range(4))
    return msgspec.structs.replace(
        found, topologies=(NET,), devices=tuple(parts), claims=(*own, claim("single"), *claims)
    )


@dataclass(frozen=True)
class Case:
    """A gang, the devices of each node, and which devices its pods get, in order."""

    id: str
    gang: Job
    devices: dict[str, int]
    given: list[str]


CASES = [
    Case("the rack that has devices for both", _gang(RACK), {"a1": 1, "a2": 0, "b1": 1, "b2": 1}, ["b1/0", "b2/0"]),
    Case("both on one node of the rack", _gang(RACK), {"a1": 1, "b1": 2, "b2": 0}, ["b1/0", "b1/1"]),
    Case("no rack has devices for both", _gang(RACK), {"a1": 1, "a2": 0, "b1": 1}, []),
    Case("a preferred rack that holds one only", _gang(PREFER_RACK), {"a1": 1, "b1": 1}, ["a1/0", "b1/0"]),
    Case("three, where one rack has two", _gang(RACK, 3), {"a1": 2, "b1": 1, "b2": 1, "b3": 1}, ["b1/0", "b2/0", "b3/0"]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_gang_with_claims_binds_inside_a_domain(case: Case) -> None:
    """The domain where all of it gets its devices, or none."""
    plan = words.decide(_world(case.devices, case.gang))
    given = sorted(
        part.removeprefix("d/") for one in plan.binds for _, parts in one.devices for part in parts
    )
    assert given == case.given
    assert len(plan.binds) == len(case.given)
    assert all(one.devices[0][1][0].split("/")[1] == one.node for one in plan.binds)


def test_devices_of_a_domain_that_was_tried_in_vain_are_free() -> None:
    """A pod that comes after the gang gets the device that the gang held for a moment."""
    single = words.job("single", "q", age_s=60, request=Request(claims=("single",), dra_gpus=1))
    plan = words.decide(_world({"a1": 1, "a2": 0}, _gang(RACK), single))
    assert {one.task: one.devices for one in plan.binds} == {"single-0": (("single", ("d/a1/0",)),)}


def test_a_claim_that_has_devices_already_says_which_domain() -> None:
    """The pods share it: they go where it is, though another rack comes first."""
    held = claim("held", devices=("d/b2/0",))
    plan = words.decide(
        _world({"a1": 2, "a2": 2, "b1": 1, "b2": 1}, _gang(RACK, shared="held"), claims=(held,))
    )
    assert words.bound(plan) == {"gang-0": "b2", "gang-1": "b2"}


def test_a_lost_member_with_a_claim_comes_back_to_the_domain() -> None:
    """Its new claim is served from a device in the rack where the others are."""
    gang = _gang(RACK)
    stays = msgspec.structs.replace(
        words.job("gang", "q", on=[("b1", [])]).tasks[0],
        request=Request(claims=("held",), dra_gpus=1, cpu_milli=1000),
    )
    gang = msgspec.structs.replace(gang, tasks=(stays, gang.tasks[1]))
    held = claim("held", from_template=True, devices=("d/b1/0",), reserved_for=("gang-0",))
    plan = words.decide(_world({"a1": 2, "b1": 1, "b2": 1}, gang, claims=(held,)))
    assert {one.task: one.devices for one in plan.binds} == {"gang-1": (("c1", ("d/b2/0",)),)}
