"""Room for the member that a gang is about to lose is found before the drain takes it, and kept for its successor."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.finding import Urgency
from controller.scheduler.model import (
    Job,
    PodSet,
    Snapshot,
    SubGroup,
    Task,
    TaskStatus,
    TopologyConstraint,
)
from controller.scheduler.nodes import Claim, Device, DeviceRequest, Level, Node, Topology
from controller.scheduler.plan import Plan
from controller.scheduler.requests import Request
from controller.scheduler.shell.replacement_plans import (
    REPLACEMENT,
    Warm,
    could_move,
    held,
    plan_with_replacements,
    strip,
    without_room,
)
from controller.scheduler.shell.replacements import Leaving, Phantom, leaving, with_replacements
from kube.remediation import DrainRecord, Phase, Remediation
from tests import build
from tests.scheduler.words import NOW, bound, card, cluster, decide, evicted, job, node, queue

RACK = TopologyConstraint(topology="racks", required="rack")
RACKS = (Topology(name="racks", levels=(Level(node_label="rack"),)),)
GOES = {"a1": Leaving(why="inc-1: Xid79FallenOffBus")}


def host(name: str, gpus: int = 8, **changes: Any) -> Node:
    """Give a node of the rack that its name begins with."""
    return node(name, gpus, labels={"rack": name[0]}, **changes)


def drained(name: str, gpus: int = 8) -> Node:
    """Give a node that was quarantined: cordoned, and no capacity."""
    return host(name, gpus, cordoned=True, out=True)


def gang(*on: str, gpus: int = 8, pods: int | None = None, least: int | None = None) -> Job:
    """Give a gang that has to stay in one rack, with a pod on each of these nodes."""
    members = len(on) if pods is None else pods
    made = job("train", "team", pods=members, gpus=gpus, on=[(name, range(gpus)) for name in on])
    least = len(made.tasks) if least is None else least
    return msgspec.structs.replace(
        made, root=SubGroup(topology=RACK, pod_sets=(PodSet(min_available=least),))
    )


def place(nodes: Collection[Node], *jobs: Job, **changes: object) -> Snapshot:
    """Give a snapshot with racks and one team."""
    made = cluster(nodes, [queue("team", 64)], jobs)
    return msgspec.structs.replace(made, topologies=RACKS, **changes)


def planned(
    snapshot: Snapshot, going: dict[str, Leaving] = GOES, before: Collection[Phantom] = ()
) -> tuple[Plan, tuple[Phantom, ...]]:
    """Run a cycle with phantoms; the plan still holds them."""
    changed, phantoms = with_replacements(snapshot, going, before)
    return decide(changed), phantoms


def test_the_replacement_gets_room_in_the_domain_of_its_siblings() -> None:
    """Another rack has as much room, and is not taken; nobody is evicted, and what leaves the plan is empty."""
    snapshot = place([drained("a1"), host("a2"), host("a3"), host("b1"), host("b2")], gang("a1", "a2"))
    plan, phantoms = planned(snapshot)
    assert bound(plan) == {"train-0#replacement": "a3"}
    assert [(one.member, one.node) for one in phantoms] == [("train-0", "a1")]
    assert [(one.job, one.nodes) for one in held(plan, phantoms)] == [("train", ("a3",))]
    left = strip(plan, phantoms)
    assert (left.binds, left.pipelined, left.evictions, left.waits) == ((), (), (), ())


def test_nobody_else_takes_that_room() -> None:
    """A job of the same turn or a later one fits on the same node only, and waits."""
    snapshot = place(
        [drained("a1"), host("a2"), host("a3")], gang("a1", "a2"), job("new", "team", gpus=8, age_s=60)
    )
    assert bound(decide(snapshot)) == {"new-0": "a3"}
    plan, phantoms = planned(snapshot)
    assert bound(strip(plan, phantoms)) == {}
    assert [wait.job for wait in strip(plan, phantoms).waits] == ["new"]


def successor(task: Task) -> Task:
    """Give the pod that the workload's controller makes in the place of another."""
    return msgspec.structs.replace(task, id=f"{task.id}-new", status=TaskStatus.PENDING, node="", gpus=())


def test_the_room_is_kept_through_the_eviction_until_the_real_pod_has_it() -> None:
    """While the member ends, while it is gone, and when its successor comes: a job that is older waits all the time."""
    nodes = [drained("a1"), host("a2"), host("a3")]
    train, older = gang("a1", "a2"), job("older", "team", gpus=8, age_s=9999)
    first, second = train.tasks
    plan, phantoms = planned(place(nodes, train))
    ending = msgspec.structs.replace(
        train, tasks=(msgspec.structs.replace(first, status=TaskStatus.RELEASING), second)
    )
    alone = msgspec.structs.replace(train, tasks=(second,))
    for step in (ending, alone, alone):
        snapshot = place(nodes, step, older, promises=held(plan, phantoms))
        plan, phantoms = planned(snapshot, before=phantoms)
        assert bound(plan) == {"train-0#replacement": "a3"}
        assert bound(strip(plan, phantoms)) == {}
    made = msgspec.structs.replace(train, tasks=(second, successor(first)))
    plan, phantoms = planned(place(nodes, made, older, promises=held(plan, phantoms)), before=phantoms)
    assert phantoms == ()
    assert bound(plan) == {"train-0-new": "a3"}


def warm(snapshot: Snapshot) -> Warm:
    """Decide a cycle as the loop does."""
    return plan_with_replacements(snapshot, GOES, (), decide, could_move)


def test_a_cycle_with_replacements_gives_a_plan_without_and_what_the_next_one_needs() -> None:
    """The room is promised; and where there is none the wait names the domain that would hold the whole gang."""
    nodes = [drained("a1"), host("a2"), host("a3"), host("b1"), host("b2")]
    found = warm(place(nodes, gang("a1", "a2")))
    assert (found.plan.binds, found.plan.waits) == ((), ())
    assert ([one.nodes for one in found.promises], len(found.phantoms)) == ([("a3",)], 1)
    lacks = warm(place([nodes[0], nodes[1], *nodes[3:]], gang("a1", "a2")))
    assert lacks.promises == ()
    assert "the whole gang would have room on b1, b2" in lacks.plan.waits[0].message
    nothing = place(nodes, job("one", "team"))
    assert warm(nothing).plan == decide(nothing)


def test_nobody_is_evicted_because_a_phantom_took_the_last_room() -> None:
    """A job of higher priority gets the idle node, as it would without; it does not have the gang's healthy pod evicted."""
    urgent = job("urgent", "team", gpus=8, priority=90)
    snapshot = place([drained("a1"), host("a2"), host("a3")], gang("a1", "a2"))
    first = warm(snapshot)
    found = plan_with_replacements(
        place(snapshot.nodes, *snapshot.jobs, urgent, promises=first.promises), GOES, first.phantoms, decide
    )
    assert bound(found.plan) == {"urgent-0": "a3"}
    assert found.plan.evictions == ()


def test_room_is_not_kept_for_ever_for_a_pod_that_never_comes() -> None:
    """Two minutes after the member went the room is everybody's."""
    nodes, train = [drained("a1"), host("a2"), host("a3")], gang("a1", "a2")
    _, phantoms = planned(place(nodes, train))
    alone = msgspec.structs.replace(train, tasks=train.tasks[1:])
    later = place(nodes, alone, now=NOW + timedelta(minutes=3))
    assert with_replacements(later, GOES, phantoms)[1] == ()


def test_a_gang_without_room_in_its_domain_is_told_so_and_nobody_is_evicted() -> None:
    """Neither others, though the gang could preempt them, nor its own healthy members; another rack that would hold all of
    it is named."""
    weak = job("weak", "team", gpus=8, on=[("a3", range(8))], priority=1)
    snapshot = place([drained("a1"), host("a2"), host("a3"), host("b1"), host("b2")], gang("a1", "a2"), weak)
    changed, phantoms = with_replacements(snapshot, GOES)
    plan = decide(changed)
    assert (plan.evictions, plan.binds, without_room(plan, phantoms)) == ((), (), ("train",))
    moved = could_move(changed, "train")
    assert moved == ("b1", "b2")
    (wait,) = strip(plan, phantoms, {"train": moved}).waits
    assert (wait.code, wait.task) == (REPLACEMENT, "")
    assert wait.message.startswith(
        "train-0 will leave a1 (inc-1: Xid79FallenOffBus), and no room for a replacement"
    )
    assert "the whole gang would have room on b1, b2" in wait.message


def test_a_gang_that_nowhere_fits_is_not_said_to_move() -> None:
    """Rack b lacks a node."""
    weak = job("weak", "team", gpus=8, on=[("a3", range(8))])
    changed, _ = with_replacements(
        place([drained("a1"), host("a2"), host("a3"), host("b1")], gang("a1", "a2"), weak), GOES
    )
    assert could_move(changed, "train") == ()
    assert could_move(changed, "nobody") == ()


def test_a_replacement_may_wait_for_room_that_is_being_released() -> None:
    """It is pipelined and promised, and its gang waits for nothing."""
    ends = job("ends", "team", gpus=8, on=[("a3", range(8))])
    ends = msgspec.structs.replace(
        ends, tasks=(msgspec.structs.replace(ends.tasks[0], status=TaskStatus.RELEASING),)
    )
    plan, phantoms = planned(place([drained("a1"), host("a2"), host("a3")], gang("a1", "a2"), ends))
    assert [(one.job, one.nodes) for one in held(plan, phantoms)] == [("train", ("a3",))]
    left = strip(plan, phantoms)
    assert (left.pipelined, left.waits) == ((), ())


def test_a_gang_that_leaves_whole_moves_as_one() -> None:
    """All its nodes are drained: rack b takes all of it, none of it goes to what is left of rack a."""
    nodes = [drained("a1"), drained("a2"), host("a3"), host("b1"), host("b2")]
    plan, phantoms = planned(place(nodes, gang("a1", "a2")), dict.fromkeys(("a1", "a2"), GOES["a1"]))
    assert sorted(bound(plan).values()) == ["b1", "b2"]
    assert strip(plan, phantoms).binds == ()


@pytest.mark.parametrize(
    ("snapshot", "going"),
    [
        (place([drained("a1"), host("a3")], job("one", "team", on=[("a1", [0])])), GOES),
        (place([drained("a1"), host("a2"), host("a3")], gang("a1", "a2", least=1)), GOES),
        (place([host("a1"), host("a2"), host("a3")], gang("a1", "a2")), {}),
        (place([host("a1"), host("a2"), host("a3")], gang("a1", "a2")), {"a3": GOES["a1"]}),
        (
            place([drained("a1"), host("a2"), host("a3")], gang("a1", "a2"), suspected="breaker: too many"),
            GOES,
        ),
        (place([drained("a1"), host("a2"), host("a3")], gang("a1", "a2", pods=3, least=2)), GOES),
    ],
    ids=[
        "a job of one pod",
        "a gang that runs without it too",
        "no drain",
        "a drain elsewhere",
        "an observer that is suspected",
        "a real pod that waits already and takes its place",
    ],
)
def test_no_phantom_without_need(snapshot: Snapshot, going: dict[str, Leaving]) -> None:
    """Then everything is as it would be."""
    assert with_replacements(snapshot, going)[1] == ()


def test_of_a_drain_by_parts_only_who_has_one_goes() -> None:
    """Two pods of the gang are on the node, one with the sick card: its successor may have another card there."""
    sick = host("a1", 8, sick={0: "Xid95UncontainedEcc"})
    train = job("train", "team", gpus=2, on=[("a1", [0, 1]), ("a1", [2, 3])])
    going = {"a1": Leaving(why="inc-1", parts=(card("a1", 0),))}
    plan, phantoms = planned(place([sick], train), going)
    assert [one.member for one in phantoms] == ["train-0"]
    assert bound(plan) == {"train-0#replacement": "a1"}


def test_a_claim_that_is_made_for_each_pod_is_made_anew_for_the_phantom() -> None:
    """The member's devices stay where they are; the phantom is placed by a claim of its own."""
    ask = Request(dra_gpus=1, claims=("c-0",), cpu_milli=1000, memory_bytes=1 << 30)
    train = job("train", "team", on=[("a1", []), ("a2", [])], request=ask)
    claims = tuple(
        Claim(
            id=f"c-{number}",
            requests=(DeviceRequest(device_class="gpu.nvidia.com"),),
            devices=(f"gpu.nvidia.com/{name}/0",),
            reserved_for=(f"train-{number}",),
            from_template=True,
        )
        for number, name in enumerate(("a1", "a2"))
    )
    tasks = tuple(
        msgspec.structs.replace(task, request=msgspec.structs.replace(ask, claims=(f"c-{number}",)))
        for number, task in enumerate(train.tasks)
    )
    devices = tuple(
        Device(id=f"gpu.nvidia.com/{name}/0", device_class="gpu.nvidia.com", node=name)
        for name in ("a1", "a2", "a3")
    )
    snapshot = place(
        [drained("a1", 0), host("a2", 0), host("a3", 0)],
        msgspec.structs.replace(train, tasks=tasks),
        claims=claims,
        devices=devices,
    )
    plan, phantoms = planned(snapshot)
    assert bound(plan) == {"train-0#replacement": "a3"}
    assert strip(plan, phantoms).binds == ()


@given(
    st.lists(st.sampled_from(["a1", "a2", "a3", "b1", "b2"]), min_size=1, max_size=6),
    st.sets(st.sampled_from(["a1", "a2", "a3", "b1", "b2"])),
    st.lists(st.integers(1, 8), max_size=4),
    st.integers(1, 6),
)
def test_no_phantom_ever_leaves_a_plan(on: list[str], going: set[str], others: list[int], least: int) -> None:
    """Nor is anybody evicted for one, and of each gang no more are made than leave; what is promised is a place of a phantom
    or of the plan."""
    train = job("train", "team", on=[(name, []) for name in on], least=min(least, len(on)), gpus=1)
    names = ["a1", "a2", "a3", "b1", "b2"]
    hosts = [drained(name) if name in going else host(name) for name in names]
    waiting = [job(f"other-{number}", "team", gpus=gpus) for number, gpus in enumerate(others)]
    snapshot = place(hosts, train, *waiting)
    plan, phantoms = planned(snapshot, dict.fromkeys(going, GOES["a1"]))
    ids = {one.task.id for one in phantoms}
    left = strip(plan, phantoms)
    real = {task.id for one in snapshot.jobs for task in one.tasks}
    assert {one.task for one in left.binds} | {one.task for one in left.pipelined} <= real
    assert {one.task for one in left.evictions} <= real
    assert not ids & real
    assert not any(wait.task in ids for wait in left.waits)
    assert len(ids) <= sum(name in going for name in on)
    assert not any(one.gains == "train" for one in plan.evictions)
    assert evicted(left) == evicted(plan)
    assert {one.job for one in held(plan, phantoms)} <= {"train"} | {one.job for one in plan.promises}


# --- which nodes ------------------------------------------------------------------------------------------------------

INCIDENT = build.remediation().metadata.name
QUARANTINED = build.quarantined(build.node(), INCIDENT)


def drain(urgency: str = "now", **changes: object) -> DrainRecord:
    """Give the record of a drain under way."""
    record = DrainRecord(started_at=build.NOW, deadline=build.NOW, urgency=urgency)
    return msgspec.structs.replace(record, **changes)


@pytest.mark.parametrize(
    ("incident", "leaves"),
    [
        (build.remediation(phase=Phase.DRAINING, drain=drain()), True),
        (build.remediation(phase=Phase.QUARANTINED), True),
        (build.remediation(phase=Phase.WAITING, drain=drain(parts=("GPU-3",))), True),
        (build.remediation(phase=Phase.DRAINING, drain=drain("when-idle")), False),
        (build.remediation(phase=Phase.WAITING, drain=drain("when-idle")), False),
        (build.remediation(phase=Phase.DRAINING, drain=drain(finished_at=build.NOW)), False),
        (build.remediation(phase=Phase.DRAINING, drain=drain(), held_by="breaker"), False),
        (build.remediation(phase=Phase.QUARANTINED, held_by="budget"), False),
        (build.remediation(evidence=[build.idle_finding()], phase=Phase.QUARANTINED, name=INCIDENT), False),
        (build.remediation(evidence=[build.person_finding()], phase=Phase.QUARANTINED, name=INCIDENT), False),
        (build.remediation(phase=Phase.SUSPECTED), False),
        (build.remediation(phase=Phase.ESCALATED), False),
        (build.remediation(phase=Phase.RETURNED, drain=drain()), False),
        (build.remediation(build.node(uid="another"), phase=Phase.DRAINING, drain=drain()), False),
    ],
    ids=[
        "drained by eviction",
        "quarantined for what cannot wait",
        "drained by parts",
        "a drain that waits for running work",
        "waiting for a part to be idle",
        "a drain that is done",
        "a drain that the breaker holds",
        "a quarantine that the budget holds",
        "quarantined for what can wait",
        "quarantined for a person",
        "only suspected",
        "handed to a person",
        "closed",
        "about another machine of the same name",
    ],
)
def test_which_nodes_are_left(incident: Remediation, leaves: bool) -> None:
    """Whose pods are evicted now or in a moment, by an open incident about this very node."""
    found = leaving([incident], [QUARANTINED])
    assert set(found) == ({"gpu-1"} if leaves else set())
    if leaves:
        assert found["gpu-1"].parts == (incident.status.drain.parts if incident.status.drain else ())


def test_a_quarantine_for_the_repair_of_one_gpu_takes_its_pods_and_no_others() -> None:
    """Narrow containment: the others on the node run on behind the cordon."""
    waited = build.remediation(phase=Phase.QUARANTINED, drain=drain(parts=("GPU-3",)))
    assert leaving([waited], [QUARANTINED])["gpu-1"].parts == ("GPU-3",)


def test_a_clock_that_steps_back_does_not_keep_room_for_hours() -> None:
    """The member is gone, and its successor never came: two minutes by either sign."""
    nodes, train = [drained("a1"), host("a2"), host("a3")], gang("a1", "a2")
    _, before = planned(place(nodes, train))
    alone = msgspec.structs.replace(train, tasks=train.tasks[1:])
    for step, kept in ((timedelta(minutes=-1), True), (timedelta(hours=-1), False)):
        _, phantoms = with_replacements(place(nodes, alone, now=NOW + step), {}, before)
        assert bool(phantoms) is kept


def test_a_quarantine_that_is_not_on_the_node_yet_is_none() -> None:
    """And evidence that is urgent is what counts."""
    assert build.finding().urgency == Urgency.NOW
    assert leaving([build.remediation(phase=Phase.QUARANTINED)], [build.node()]) == {}
