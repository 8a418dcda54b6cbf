"""Room for the member that a gang is about to lose, where its rack is only preferred, and where other members are done."""

import msgspec

from controller.scheduler.model import Job, PodSet, SubGroup, TaskStatus, TopologyConstraint
from controller.scheduler.shell.replacement_plans import held
from tests.scheduler.words import bound, job
from tests.scheduler_shell.test_replacements import drained, gang, host, place, planned

PREFERRED = TopologyConstraint(topology="racks", preferred="rack")


def _preferred(*on: str) -> Job:
    made = gang(*on)
    root = SubGroup(topology=PREFERRED, pod_sets=(PodSet(min_available=len(on)),))
    return msgspec.structs.replace(made, root=root)


def test_room_is_kept_in_the_preferred_domain_of_the_siblings() -> None:
    """Another rack is fuller, which would be taken first for a gang that is nowhere yet."""
    nodes = [drained("a1"), host("a2"), host("a3"), host("a4"), host("b1")]
    plan, phantoms = planned(place(nodes, _preferred("a1", "a2")))
    assert bound(plan) == {"train-0#replacement": "a3"}
    assert [(one.job, one.nodes) for one in held(plan, phantoms)] == [("train", ("a3",))]


def test_room_is_kept_elsewhere_where_that_domain_is_full() -> None:
    """A preference holds up nobody."""
    nodes = [drained("a1"), host("a2"), host("a3"), host("b1")]
    busy = job("busy", "team", gpus=8, on=[("a3", range(8))])
    plan, _ = planned(place(nodes, _preferred("a1", "a2"), busy))
    assert bound(plan) == {"train-0#replacement": "b1"}


def test_room_is_kept_for_a_member_beside_others_that_are_done() -> None:
    """One of three has succeeded, and no three will ever live again."""
    made = gang("a1", "a2", "a3")
    done = msgspec.structs.replace(made.tasks[2], status=TaskStatus.SUCCEEDED, node="", gpus=())
    part = msgspec.structs.replace(made, tasks=(*made.tasks[:2], done))
    plan, phantoms = planned(place([drained("a1"), host("a2"), host("a3")], part))
    assert bound(plan) == {"train-0#replacement": "a3"}
    assert [one.member for one in phantoms] == ["train-0"]
