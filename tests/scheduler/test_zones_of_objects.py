"""NUMA zones from Kubernetes objects: of nodes, of pods that are there, and what of a pod is aligned."""

from typing import Any

import msgspec
import pytest

from controller.scheduler.amounts import Amount
from controller.scheduler.model import Snapshot, Task
from controller.scheduler.nodes import NumaTopology
from controller.scheduler.pod_request import request_of
from controller.scheduler.pod_tasks import Binding
from controller.scheduler.requests import Alignment
from controller.scheduler.snapshot import Objects, Options, build
from kube.scheduling import NodeResourceTopology
from tests.scheduler.kube_words import NOW, health, node, pod
from tests.scheduler.object_words import GROUP, RUNNING, built, group, only, queue
from tests.scheduler.words import bound, decide

GPU = "nvidia.com/gpu"
FOUR = {"cpu": "4", "memory": "1Gi", GPU: "1"}
ALL_OF_FOUR = (("cpu", 4000), ("memory", 1 << 30), (GPU, 1))


def zoned(
    name: str = "n1",
    cpu: str = "8",
    zones: tuple[str, ...] = ("node-0", "node-1"),
    policy: str = "single-numa-node",
) -> NodeResourceTopology:
    """Give the object of a node with zones that are alike."""
    resources = [
        {"name": "cpu", "allocatable": cpu, "available": cpu},
        {"name": GPU, "allocatable": "2", "available": "2"},
    ]
    raw = {
        "metadata": {"name": name},
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}],
        "zones": [{"name": zone, "type": "Node", "resources": resources} for zone in zones],
    }
    return msgspec.convert(raw, NodeResourceTopology)


def container(limits: dict[str, str], restart: str = "", **requests: str) -> dict[str, Any]:
    """Give a container with these limits; `requests` are lower ones."""
    return {"resources": {"limits": limits, "requests": requests}, "restartPolicy": restart}


def numas(snapshot: Snapshot) -> dict[str, NumaTopology | None]:
    """Give the zones by node."""
    return {one.name: one.numa for one in snapshot.nodes}


def test_a_node_has_the_zones_that_its_object_tells() -> None:
    """Each node its own; an object of a node that is not there is nobody's."""
    snapshot = built(nodes=(node("n1"), node("n2")), node_topologies=(zoned("n2"), zoned("gone")))
    found = numas(snapshot)
    assert found["n1"] is None
    assert found["n2"] is not None
    assert [(zone.id, zone.allocatable) for zone in found["n2"].zones] == [
        ("node-0", {"cpu": 8000, GPU: 2}),
        ("node-1", {"cpu": 8000, GPU: 2}),
    ]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param(zoned(cpu="many"), "'many' is no quantity", id="no quantity"),
        pytest.param(zoned(cpu="-1"), "cpu is '-1': must not be below 0", id="less than nothing"),
        pytest.param(zoned(zones=("a", "a")), "names zone 'a' twice", id="one zone twice"),
        pytest.param(
            zoned(zones=tuple(f"node-{n}" for n in range(33))),
            "33 NUMA zones: must be 16 or fewer",
            id="far too many",
        ),
    ],
)
def test_an_object_that_cannot_be_read_is_one_problem(broken: NodeResourceTopology, said: str) -> None:
    """It is named once, its node works as one of which nobody tells the zones, and the others have theirs."""
    objects = Objects(
        nodes=(node("n1"), node("n2")),
        health=(health(),),
        node_topologies=(broken, zoned("n2")),
        queues=(queue(),),
        pod_groups=(group(),),
        pods=(pod(meta=GROUP, spec={"containers": [container(FOUR)]}),),
    )
    snapshot, problems = build(objects, NOW)
    (problem,) = problems
    assert problem.startswith("NodeResourceTopology n1: ")
    assert said in problem
    assert [name for name, numa in numas(snapshot).items() if numa is not None] == ["n2"]
    assert only(snapshot).tasks[0].request.alignment is not None


def test_a_broken_object_of_another_pool_is_not_ours_to_report() -> None:
    """Only what belongs to a node of the pool is read."""
    other = node("n2", labels={"kai.scheduler/node-pool": "other"})
    assert numas(built(nodes=(node("n1"), other), node_topologies=(zoned("n2", cpu="many"),))) == {"n1": None}


RECORD = '[{"zone": "node-1", "amount": {"cpu": "4"}}]'


def running(record: str = RECORD, **options: Any) -> Task:
    """Give a pod on a node with zones, with this record."""
    annotations = {**GROUP["annotations"], "kai.scheduler/numa-placement-observed": record}
    there = pod(
        meta={"annotations": annotations},
        spec={"nodeName": "n1", "containers": [container(FOUR)]},
        status=RUNNING,
    )
    return only(built(there, **options)).tasks[0]


def test_a_pod_has_the_zones_that_are_recorded_on_it() -> None:
    """Where some node has zones; elsewhere nobody looks."""
    assert running(node_topologies=(zoned(),)).zones == (("node-1", (("cpu", 4000),)),)
    assert running().zones == ()


@pytest.mark.parametrize("record", ["", "{", '[{"zone": "node-1", "amount": {"cpu": "-4"}}]'])
def test_a_record_that_cannot_be_read_is_none(record: str) -> None:
    """The pod is there all the same, in zones that nobody knows."""
    task = running(record, node_topologies=(zoned(),))
    assert (task.node, task.zones) == ("n1", ())


def test_a_bind_on_its_way_brings_its_zones() -> None:
    """What was decided and does not show yet is taken."""
    zones = (("node-0", (("cpu", 4000),)),)
    coming = Options(binding={"team/p1": Binding(node="n1", zones=zones)})
    asked = pod(meta=GROUP, spec={"containers": [container(FOUR)]})
    assert only(built(asked, node_topologies=(zoned(),), options=coming)).tasks[0].zones == zones


def test_without_zones_anywhere_nothing_is_aligned() -> None:
    """The request of a cluster without NodeResourceTopology is as it always was."""
    asked = pod(meta=GROUP, spec={"containers": [container(FOUR)]})
    assert only(built(asked)).tasks[0].request.alignment is None
    aligned = only(built(asked, node_topologies=(zoned(),))).tasks[0].request.alignment
    assert aligned == Alignment(guaranteed=True, pod=ALL_OF_FOUR, containers=(ALL_OF_FOUR,))


Units = tuple[tuple[Amount, ...], ...]


@pytest.mark.parametrize(
    ("spec", "guaranteed", "total", "beside", "before"),
    [
        pytest.param(
            {"containers": [container(FOUR, cpu="2")]},
            False,
            ((GPU, 1),),
            (((GPU, 1),),),
            (),
            id="burstable: devices",
        ),
        pytest.param(
            {"containers": [container(FOUR), container({"cpu": "1"})]},
            False,
            ((GPU, 1),),
            (((GPU, 1),),),
            (),
            id="one container without memory makes the pod burstable",
        ),
        pytest.param(
            {
                "containers": [
                    container({"cpu": "2500m", "memory": "1k"}),
                    container({"cpu": "2", "memory": "1k"}),
                ]
            },
            True,
            (("cpu", 2000), ("memory", 2000)),
            ((("memory", 1000),), (("cpu", 2000), ("memory", 1000))),
            (),
            id="part of a CPU is shared",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "2", "memory": "1k", "hugepages-2Mi": "2Mi"})],
                "initContainers": [
                    container({"cpu": "1", "memory": "1k"}, "Always"),
                    container({"cpu": "5", "memory": "1k"}),
                ],
            },
            True,
            (("cpu", 6000), ("hugepages-2Mi", 2 << 20), ("memory", 2000)),
            (
                (("cpu", 1000), ("memory", 1000)),
                (("cpu", 2000), ("hugepages-2Mi", 2 << 20), ("memory", 1000)),
            ),
            ((("cpu", 5000), ("memory", 1000)),),
            id="sidecars run beside, the others before",
        ),
        pytest.param(
            {"containers": [container({**FOUR, "rdma/hca": "1", "ephemeral-storage": "1Gi"}, cpu="1")]},
            False,
            ((GPU, 1), ("rdma/hca", 1)),
            (((GPU, 1), ("rdma/hca", 1)),),
            (),
            id="every device, and nothing else",
        ),
        pytest.param(
            {"containers": [container(FOUR)], "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}},
            False,
            ((GPU, 1),),
            (((GPU, 1),),),
            (),
            id="resources of the whole pod: no CPU of its own",
        ),
    ],
)
def test_what_kubelet_aligns(
    spec: dict[str, Any], guaranteed: bool, total: tuple[Amount, ...], beside: Units, before: Units
) -> None:
    """Whole CPUs, memory and huge pages of Guaranteed pods, devices of all."""
    found = request_of(pod(spec=spec), zoned=True).alignment
    assert found == Alignment(guaranteed=guaranteed, pod=total, containers=beside, init=before)


@pytest.mark.parametrize(
    "limits",
    [pytest.param({}, id="best effort"), pytest.param({"cpu": "1"}, id="burstable without a device")],
)
def test_what_holds_nothing_alone_is_not_aligned(limits: dict[str, str]) -> None:
    """Kubelet asks nobody where to put it."""
    assert request_of(pod(spec={"containers": [container(limits)]}), zoned=True).alignment is None


def test_a_pod_goes_where_one_zone_has_room() -> None:
    """Each zone of the first node has 4 CPUs, of the second 8; the pod needs 6 in one."""
    asked = pod(meta=GROUP, spec={"containers": [container({**FOUR, "cpu": "6"})]})
    objects = {"nodes": (node("n1"), node("n2")), "node_topologies": (zoned("n1", cpu="4"), zoned("n2"))}
    parts = {"queues": (queue(resources={"gpu": {"quota": -1, "limit": -1}, **UNBOUND}),)}
    assert bound(decide(built(asked, **objects, **parts))) == {"team/p1": "n2"}


UNBOUND = {"cpu": {"quota": -1, "limit": -1}, "memory": {"quota": -1, "limit": -1}}
