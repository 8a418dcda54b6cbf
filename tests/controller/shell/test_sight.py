"""controller.sight: the guard asked again sees what was just read, and the rest of the fleet as the plan saw it."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from controller.fresh import Glance, Reread
from controller.sight import Sight
from controller.stores import Stores
from controller.survey import Survey
from controller.view import Fleet, Settings
from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.types import Node, NodeSpec, ObjectMeta, Pod, PodSpec
from tests.controller.shell.samples import NODE, remediation
from tests.fakes import FakeClock


def meta(name: str, version: int = 5, namespace: str = "") -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}", resource_version=str(version))


def pod(name: str, version: int = 5) -> Pod:
    return Pod(metadata=meta(name, version, "ml"), spec=PodSpec(node_name=NODE))


class Asked:
    """A guard that remembers what it was asked on."""

    def __init__(self) -> None:
        self.fleets: list[Fleet] = []
        self.surveys: list[Survey | None] = []

    def __call__(self, fleet: Fleet, _one: Remediation, _now: datetime, looked: Survey | None) -> str | None:
        self.fleets.append(fleet)
        self.surveys.append(looked)
        return "no"


def seen(**changes: Any) -> Reread:
    """What was read: exactly what the stores hold, but for the changes."""
    values: dict[str, Any] = {
        "node": Node(metadata=meta(NODE)),
        "health": NodeHealth(metadata=meta(NODE)),
        "remediation": remediation(),
        "policies": (RemediationPolicy(metadata=meta("gpus")),),
        "pods": (pod("a"),),
    }
    return Reread(**{**values, **changes})


def glanced(**changes: Any) -> Glance:
    """What an eviction reads: exactly what the stores hold, but for the changes."""
    return Glance(**{"node": Node(metadata=meta(NODE)), "remediation": remediation(), **changes})


def sight_of(stores: Stores, asked: Asked) -> Sight:
    """All guards are the same one."""
    return Sight(
        stores,
        Settings(),
        FakeClock().clock,
        guard=asked,
        eviction_guard=asked,
        validation_guard=asked,
    )


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def sight(asked: Asked) -> Sight:
    """Two nodes in the stores, looked at once."""
    stores = Stores(lambda: None)
    held = seen()
    stores.nodes.replace([held.node, Node(metadata=meta("other"))], "9", 0.0)
    stores.healths.replace([held.health], "9", 0.0)
    stores.remediations.replace([held.remediation], "900", 0.0)
    stores.policies.replace(held.policies, "9", 0.0)
    stores.pods.replace(held.pods, "9", 0.0)
    made = sight_of(stores, asked)
    made.look(deliveries={}, evictions={}, failures={})
    return made


def test_before_anything_was_planned_the_answer_is_no() -> None:
    """Nothing is known of the budget then."""
    never = sight_of(Stores(lambda: None), Asked())
    assert never.why_not_repair(seen()) == "nothing was planned yet"
    assert never.why_not_evict(glanced()) == "nothing was planned yet"


def test_where_nothing_changed_one_survey_serves_the_tick(sight: Sight, asked: Asked) -> None:
    """A Survey of 1,500 nodes for each of many repairs would hold up everything else."""
    assert [sight.why_not_repair(seen()) for _ in range(2)] == ["no", "no"]
    assert asked.surveys[0] is not None
    assert asked.surveys[0] is asked.surveys[1]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            {"node": Node(metadata=meta(NODE, 6), spec=NodeSpec(unschedulable=False))}, id="the Node"
        ),
        pytest.param({"health": NodeHealth(metadata=meta(NODE, 6))}, id="NodeHealth"),
        pytest.param(
            {"remediation": msgspec.structs.replace(remediation(), metadata=meta("inc-0123456789ab", 201))},
            id="the incident",
        ),
        pytest.param({"policies": (RemediationPolicy(metadata=meta("gpus", 6)),)}, id="the policy"),
        pytest.param(
            {
                "policies": (
                    RemediationPolicy(metadata=meta("gpus")),
                    RemediationPolicy(metadata=meta("hold")),
                )
            },
            id="a policy that came",
        ),
        pytest.param({"policies": ()}, id="a policy that went"),
        pytest.param({"pods": (pod("a"), pod("b"))}, id="a pod that came"),
        pytest.param({"pods": ()}, id="a pod that went"),
        pytest.param({"pods": (pod("a", 6),)}, id="a pod that changed"),
        pytest.param(
            {"node": Node(metadata=ObjectMeta(name=NODE, uid="x", resource_version="5"))},
            id="another machine",
        ),
    ],
)
def test_what_changed_meanwhile_is_judged_anew(sight: Sight, asked: Asked, changes: dict[str, Any]) -> None:
    """On the objects just read, with the other nodes as they were."""
    read = seen(**changes)
    sight.why_not_repair(read)
    (fleet,) = asked.fleets
    assert asked.surveys == [None]
    assert (fleet.nodes[NODE], fleet.healths[NODE], fleet.pods[NODE]) == (read.node, read.health, read.pods)
    assert fleet.remediations[read.remediation.metadata.name] == read.remediation
    assert tuple(fleet.policies.values()) == read.policies
    assert "other" in fleet.nodes


def test_evictions_of_one_tick_share_its_survey(sight: Sight, asked: Asked) -> None:
    """Nothing changed since the plan, so nothing is worked out anew for each of a thousand pods."""
    assert [sight.why_not_evict(glanced()) for _ in range(2)] == ["no", "no"]
    assert asked.surveys[0] is not None
    assert asked.surveys[0] is asked.surveys[1]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            {"node": Node(metadata=meta(NODE, 6), spec=NodeSpec(unschedulable=False))}, id="the Node"
        ),
        pytest.param(
            {"remediation": msgspec.structs.replace(remediation(), metadata=meta("inc-0123456789ab", 201))},
            id="the incident",
        ),
    ],
)
def test_an_eviction_is_judged_on_what_was_just_read(
    sight: Sight, asked: Asked, changes: dict[str, Any]
) -> None:
    """A person uncordoned, or said cancel, while the eviction waited behind others."""
    read = glanced(**changes)
    sight.why_not_evict(read)
    sight.why_not_validate(read)
    fleet, again = asked.fleets
    assert asked.surveys == [None, None]
    assert again == fleet
    assert (fleet.nodes[NODE], fleet.remediations[read.remediation.metadata.name]) == (
        read.node,
        read.remediation,
    )
    assert (NODE in fleet.healths, "other" in fleet.nodes) == (True, True)
