"""From Kubernetes objects to a snapshot: groups, queues, claims, and what cannot be read."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import PodSet, Quota, Snapshot, SubGroup, TopologyConstraint
from controller.scheduler.nodes import PartHealth
from controller.scheduler.plan import Promise
from controller.scheduler.pod_tasks import Binding
from controller.scheduler.snapshot import Objects, Options, build
from kube.scheduling import PodGroup, PriorityClass, Topology
from tests.scheduler.kube_words import NOW, fault, health, node, pod, uuid
from tests.scheduler.object_words import GROUP, HALF, ONE_GPU, RUNNING, built, group, only, queue, reservation


def test_the_tree_of_subgroups() -> None:
    """Parents by name, leaves with their minimum, levels by the label behind their alias."""
    topology = msgspec.convert(
        {
            "metadata": {"name": "net"},
            "spec": {"levels": [{"nodeLabel": "example.com/rack", "alias": "rack"}]},
        },
        Topology,
    )
    level = {"topology": "net", "requiredTopologyLevel": "rack"}
    parts = [
        {"name": "replica", "minSubGroup": 1},
        {"name": "a", "parent": "replica", "minMember": 2, "topologyConstraint": level},
        {"name": "b", "parent": "replica", "minMember": 1},
        {"name": "head", "minMember": 1},
    ]
    labelled = {**GROUP, "labels": {"kai.scheduler/subgroup-name": "a"}}
    job = only(built(pod(meta=labelled), pod_groups=(group(subGroups=parts),), topologies=(topology,)))
    rack = TopologyConstraint(topology="net", required="example.com/rack")
    assert job.root == SubGroup(
        groups=(
            SubGroup(
                name="replica",
                min_sub_group=1,
                pod_sets=(PodSet(name="a", min_available=2, topology=rack), PodSet(name="b")),
            ),
        ),
        pod_sets=(PodSet(name="head"),),
    )
    assert [task.pod_set for task in job.tasks] == ["a"]


CLASSES = tuple(
    msgspec.convert(
        {"metadata": {"name": name}, "value": value, "globalDefault": name == "plain"}, PriorityClass
    )
    for name, value in (("build", 100), ("train", 50), ("plain", 20))
)


@pytest.mark.parametrize(
    ("spec", "priority", "preemptible"),
    [
        pytest.param({"priorityClassName": "train"}, 50, True, id="train may be evicted"),
        pytest.param({"priorityClassName": "build"}, 100, False, id="from 100 on it may not"),
        pytest.param(
            {"priorityClassName": "build", "preemptibility": "preemptible"}, 100, True, id="unless it says so"
        ),
        pytest.param({"preemptibility": "non-preemptible"}, 20, False, id="nor a low one that says so"),
        pytest.param(
            {"priorityClassName": "gone"}, 20, True, id="a class that is gone is the cluster's default"
        ),
    ],
)
def test_priority(spec: dict[str, str], priority: int, preemptible: bool) -> None:
    """Priority and preemptibility are two things."""
    job = only(built(pod(meta=GROUP), pod_groups=(group(**spec),), priority_classes=CLASSES))
    assert (job.priority, job.preemptible) == (priority, preemptible)


def test_queues() -> None:
    """What is not set is 0 and lets nothing run, -1 is no bound, memory counts in 10^6; the oldest has rank 0."""
    resources = {"gpu": {"quota": 1.5, "limit": -1, "overQuotaWeight": 2}, "memory": {"quota": 10}}
    (made,) = built(queues=(queue(resources=resources, reclaimMinRuntime="1h30m"),)).queues
    assert made.quotas == (
        Quota(deserved=1500, limit=-1, weight=2000),
        Quota(),
        Quota(deserved=10_000_000),
    )
    assert (made.priority, made.reclaim_min_runtime_s, made.preempt_min_runtime_s) == (100, 5400, None)


def test_one_node_pool() -> None:
    """Nodes, queues and groups of other pools are not there."""
    pool = {"kai.scheduler/node-pool": "h100"}
    nodes = (node("n1"), node("n2", labels=pool))
    snapshot = built(nodes=nodes, queues=(queue(), queue("fast", pool="h100")), options=Options(pool="h100"))
    assert [one.name for one in snapshot.nodes] == ["n2"]
    assert [one.name for one in snapshot.queues] == ["fast"]
    assert snapshot.jobs == ()


def test_what_cannot_be_read_is_said_and_stops_nothing() -> None:
    """The message names the object; the others are there."""
    objects = Objects(
        nodes=(node("n1"), node("n2", labels={"nvidia.com/gpu.memory": "much"})),
        health=(health(),),
        queues=(queue(), queue("odd", preemptMinRuntime="soon")),
        pod_groups=(group(), group("odd", stalenessGracePeriod="never")),
        pods=(
            pod(meta=GROUP),
            pod("p2", meta={"annotations": {"pod-group-name": "train", "gpu-fraction": "x"}}),
        ),
    )
    snapshot, problems = build(objects, NOW)
    assert [(one.name, one.gpu_memory_known, len(one.gpus)) for one in snapshot.nodes] == [
        ("n1", True, 4),
        ("n2", False, 4),
    ]
    assert [one.name for one in snapshot.queues] == ["research"]
    assert [task.id for task in only(snapshot).tasks] == ["team/p1"]
    assert sorted(problem.split(":")[0] for problem in problems) == [
        "Node n2",
        "Pod team/p2",
        "PodGroup team/odd",
        "Queue odd",
    ]


def test_an_unreadable_label_of_a_node_with_claims_only() -> None:
    """It is said once, and stops nothing."""
    kube = node("n2", labels={"nvidia.com/gpu.memory": "much"})
    status = type(kube.status)(conditions=kube.status.conditions, allocatable={"cpu": "8"})
    bare = msgspec.structs.replace(kube, status=status)
    snapshot, problems = build(Objects(nodes=(node(), bare), health=(health(),)), NOW)
    assert [one.name for one in snapshot.nodes] == ["n1", "n2"]
    assert [problem.split(":")[0] for problem in problems] == ["Node n2"]


@pytest.mark.parametrize(
    ("groups", "annotations", "whose"),
    [
        pytest.param(
            (group(stalenessGracePeriod="never"),), GROUP["annotations"], "others", id="its PodGroup"
        ),
        pytest.param(
            (group(),), {**GROUP["annotations"], "gpu-fraction-num-devices": "-"}, "job", id="its annotation"
        ),
    ],
)
def test_what_runs_and_cannot_be_read_holds_its_card(
    groups: tuple[PodGroup, ...], annotations: dict[str, str], whose: str
) -> None:
    """Or else the card would be given away a second time."""
    running = pod(
        meta={"annotations": {**annotations, "gpu-fraction": "0.5"}, "labels": HALF["labels"]},
        spec={"nodeName": "n1"},
        status=RUNNING,
    )
    snapshot, problems = build(
        Objects(nodes=(node(gpus=1),), queues=(queue(),), pod_groups=groups, pods=(running,)), NOW
    )
    tasks = snapshot.others if whose == "others" else only(snapshot).tasks
    assert [(task.node, task.gpus) for task in tasks] == [("n1", ("n1/0",))]
    assert sum(not problem.startswith("NodeHealth: ") for problem in problems) == 1


def test_a_reservation_that_nobody_shares() -> None:
    """Kubelet gives its card to nobody else, so it is taken; not so where a bind is on its way to it, or it is done."""
    (other,) = built(reservation(), health=(health(),)).others
    assert (other.request.gpus, other.gpus) == (1, (uuid(1),))
    coming = Options(binding={"team/p1": Binding(node="n1", gpus=(uuid(1),))})
    assert built(reservation(), pod(meta=GROUP), health=(health(),), options=coming).others == ()
    assert built(reservation(phase="Failed"), health=(health(),)).others == ()
    gone = pod("p1", meta=HALF, spec={"nodeName": "n1"}, status={"phase": "Succeeded"})
    assert len(built(reservation(), gone, health=(health(),)).others) == 1


@pytest.mark.parametrize(("boot", "no_new_gpu"), [("b1", False), ("b2", True), ("", False)])
def test_what_an_agent_said_before_a_boot(boot: str, no_new_gpu: bool) -> None:
    """The card stays sick, but whether kubelet offers it again, and who holds what, is not known."""
    known = health(
        fault("part-out", gpu=0), gpu0={"offered": False}, gpu2={"held": True, "held_by": "team/p1"}
    )
    told = msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, boot_id="b1"))
    kube = node()
    info = msgspec.structs.replace(kube.status.node_info, boot_id=boot)
    kube = msgspec.structs.replace(kube, status=msgspec.structs.replace(kube.status, node_info=info))
    running = pod(meta=GROUP, spec={**ONE_GPU, "nodeName": "n1"}, status=RUNNING)
    snapshot = built(running, nodes=(kube,), health=(told,))
    assert snapshot.nodes[0].gpus[0].health is PartHealth.SICK
    assert bool(snapshot.nodes[0].no_new_gpu) is no_new_gpu
    assert [task.gpus for task in only(snapshot).tasks] == [() if no_new_gpu else (uuid(2),)]


def test_a_snapshot_can_be_planned() -> None:
    """The one sick GPU of four is fenced: three pods are bound, and the fourth waits."""
    known = health(fault("part-out", gpu=0), gpu0={"offered": False})
    pods = [pod(f"p{index}", meta=GROUP, spec=ONE_GPU) for index in range(4)]
    resources = {name: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for name in ("gpu", "cpu", "memory")}
    snapshot = built(*pods, nodes=(node(offered=3),), health=(known,), queues=(queue(resources=resources),))
    assert [gpu.health for gpu in snapshot.nodes[0].gpus].count(PartHealth.SICK) == 1
    assert len(run_cycle(snapshot).binds) == 3


def test_what_the_last_plan_left_to_the_next_cycle_is_kept() -> None:
    """The newer of two pods was promised the only card that is left: it is bound, and the reservation goes on."""
    resources = {name: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for name in ("gpu", "cpu", "memory")}
    pods = [
        pod("p1", meta=GROUP, spec=ONE_GPU),
        pod("p2", meta={"annotations": {"pod-group-name": "urgent"}}, spec=ONE_GPU),
    ]

    def told(**left: Any) -> Snapshot:
        groups = (group(), group("urgent"))
        ours = queue(resources=resources)
        return built(
            *pods, nodes=(node(offered=1),), pod_groups=groups, queues=(ours,), options=Options(**left)
        )

    promises = (Promise(job="team/urgent", nodes=("n1",)),)
    snapshot = told(promises=promises, reserved_for="team/train")
    assert (snapshot.promises, snapshot.reserved_for) == (promises, "team/train")
    assert [one.task for one in run_cycle(told()).binds] == ["team/p1"]
    assert [one.task for one in run_cycle(told(promises=promises)).binds] == ["team/p2"]


@given(st.randoms(use_true_random=False))
def test_order_does_not_matter(chance: random.Random) -> None:
    """The same objects in any order give the same snapshot."""
    pods = [pod(f"p{index}", meta=GROUP, spec=ONE_GPU) for index in range(5)]
    nodes = [node(f"n{index}") for index in range(3)]
    queues = [queue(f"q{index}") for index in range(3)]

    def shuffled() -> Snapshot:
        for objects in (pods, nodes, queues):
            chance.shuffle(objects)
        return built(*pods, nodes=tuple(nodes), queues=tuple(queues))

    assert shuffled() == shuffled()
