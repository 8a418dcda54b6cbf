"""What Kubernetes says of a node, how many cards it has, and what nobody can tell."""

from datetime import timedelta

import msgspec
import pytest

from checks.check import discover
from controller.scheduler.node_cards import cards_of
from controller.scheduler.node_findings import GPU_CONDITIONS, PORT_CONDITION, STORAGE_CONDITIONS, Seen
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from kube.nodehealth import NodeHealth
from kube.types import Node as KubeNode
from kube.types import ObjectMeta, OwnerReference
from tests.scheduler.kube_words import NOW, fault, health, lease, node
from tests.scheduler.node_words import OK, SICK, STILL_OFFERED, UNKNOWN, seen


@pytest.mark.parametrize(
    ("kube", "rules", "closed", "out"),
    [
        pytest.param(node(), DEFAULT, "", False, id="a ready node is open"),
        pytest.param(
            node(conditions={"Ready": "False"}),
            DEFAULT,
            "node(s) were not ready",
            True,
            id="NotReady is no capacity",
        ),
        pytest.param(
            node(conditions={"Ready": "Unknown"}),
            DEFAULT,
            "node(s) were unreachable",
            False,
            id="silence stays capacity",
        ),
        pytest.param(
            node(conditions={"Ready": "Unknown"}),
            COMPATIBLE,
            "node(s) were unreachable",
            True,
            id="KAI takes it off the total",
        ),
        pytest.param(
            node(conditions={"DiskPressure": "True"}),
            DEFAULT,
            "node(s) had condition: DiskPressure",
            False,
            id="pressure passes",
        ),
        pytest.param(
            node(conditions={"DiskPressure": "True"}),
            COMPATIBLE,
            "node(s) had condition: DiskPressure",
            True,
            id="for KAI pressure is the end",
        ),
        pytest.param(
            node(unschedulable=True), DEFAULT, "", True, id="a cordon is no capacity, and closes by itself"
        ),
    ],
)
def test_kubernetes_own_conditions(kube: KubeNode, rules: Rules, closed: str, out: bool) -> None:
    """What Kubernetes says of a node."""
    found = seen(kube, rules=rules)
    assert (found.closed, found.out, found.cordoned) == (closed, out, kube.spec.unschedulable)


@pytest.mark.parametrize(
    ("kube", "known", "count", "whole"),
    [
        pytest.param(node(), health(), 4, None, id="all are offered"),
        pytest.param(node(offered=3), health(), 4, 3, id="kubelet gives one less than the agent names"),
        pytest.param(node(offered=3), None, 4, 3, id="without an agent the hardware's count is the capacity"),
        pytest.param(
            node(gpus=3, labels={"nvidia.com/gpu.count": "4"}),
            None,
            4,
            3,
            id="or the label, where that is more",
        ),
        pytest.param(node(gpus=0), None, 0, None, id="no GPU"),
        pytest.param(
            node(labels={"nvidia.com/mig.strategy": "mixed"}),
            None,
            4,
            None,
            id="with the strategy mixed kubelet gives cards that are not cut",
        ),
        pytest.param(
            node(labels={"nvidia.com/mig.strategy": "mixed"}),
            health(gpu0={"mig": True}),
            3,
            None,
            id="one card of four is cut",
        ),
        pytest.param(
            node(gpus=14, labels={"nvidia.com/mig.strategy": "single"}),
            health(gpus=2, gpu0={"mig": True}, gpu1={"mig": True}),
            14,
            None,
            id="with the strategy single each instance is a GPU",
        ),
        pytest.param(
            node(
                gpus=14,
                labels={
                    "nvidia.com/mig.strategy": "single",
                    "nvidia.com/gpu.product": "NVIDIA-H100-MIG-1g.10gb",
                },
            ),
            None,
            14,
            None,
            id="as the product's name says where no agent does",
        ),
        pytest.param(
            node(offered=3, labels={"nvidia.com/mig.strategy": "single"}),
            None,
            4,
            3,
            id="a strategy alone cuts no card",
        ),
    ],
)
def test_how_many_cards(kube: KubeNode, known: NodeHealth | None, count: int, whole: int | None) -> None:
    """What the hardware has, and what kubelet gives of it."""
    found = seen(kube, known)
    assert (len(found.gpus), found.whole_gpus) == (count, whole)


CUT = {"mig": True}


@pytest.mark.parametrize(
    ("kube", "known", "sick", "no_new_gpu"),
    [
        pytest.param(
            node(gpus=14, labels={"nvidia.com/mig.strategy": "single"}),
            health(fault("part-out", gpu=0), gpus=2, gpu0=CUT, gpu1=CUT),
            7,
            STILL_OFFERED,
            id="one of two cards cut alike has half of the instances",
        ),
        pytest.param(
            node(gpus=7, labels={"nvidia.com/mig.strategy": "single"}),
            health(fault("part-out", gpu=0), gpus=2, gpu0={**CUT, "offered": False}, gpu1=CUT),
            0,
            "",
            id="a card that kubelet withdrew has none of those that it gives",
        ),
        pytest.param(
            node(labels={"nvidia.com/mig.strategy": "mixed"}),
            health(fault("part-out", gpu=0), gpu0=CUT),
            0,
            STILL_OFFERED,
            id="a cut card among whole ones may still be given by instance",
        ),
        pytest.param(
            node(labels={"nvidia.com/mig.strategy": "mixed"}),
            health(fault("part-out", gpu=0), gpu0={**CUT, "offered": False}),
            0,
            "",
            id="unless kubelet withdrew it",
        ),
        pytest.param(
            node(labels={"nvidia.com/mig.strategy": "single"}),
            health(fault("part-out", gpu=0), gpu0={"offered": False}),
            1,
            "",
            id="where no card is cut the strategy is about nothing",
        ),
        pytest.param(
            node(), health(fault("part-out", gpu=9)), 0, STILL_OFFERED, id="a card that is not in the list"
        ),
        pytest.param(
            node(), health(fault("part-out", gpu=1), gpus=0), 1, STILL_OFFERED, id="no card is in the list"
        ),
    ],
)
def test_cards_that_nobody_can_tell_apart(
    kube: KubeNode, known: NodeHealth, sick: int, no_new_gpu: str
) -> None:
    """As much leaves the total as is proven sick, and kubelet might give any of it as long as it was not withdrawn."""
    found = seen(kube, known)
    assert ([gpu.health for gpu in found.gpus].count(SICK), found.no_new_gpu) == (sick, no_new_gpu)


def test_instances_that_nobody_sees() -> None:
    """They take no new pod, which is said to come of not knowing."""
    found = seen(node(conditions={"GpuXidError": "Unknown"}), health())
    assert (found.no_new_mig, found.unseen) == ("node(s) had Unknown GpuXidError: Said", ("no_new_mig",))


@pytest.mark.parametrize("known", [None, health(), health(fault("part-out", gpu=0, condition="GpuEccFault"))])
def test_a_fault_without_a_finding(known: NodeHealth | None) -> None:
    """What is said to be ill, and nobody says which part and how bad, is as good as Unknown."""
    found = seen(node(conditions={"GpuXidError": "True"}), known)
    assert UNKNOWN in {gpu.health for gpu in found.gpus}
    assert not seen(node(conditions={"GpuXidError": "True"}), health(fault("none", gpu=0))).no_new_mig


def test_the_lease_of_another_machine_of_that_name() -> None:
    """It is no sign of life of this one's agent."""
    kube, heard = node(), lease(1)
    mine = msgspec.structs.replace(kube, metadata=msgspec.structs.replace(kube.metadata, uid="new"))
    for uid, health_now in (("new", OK), ("old", UNKNOWN)):
        owned = msgspec.structs.replace(
            heard, metadata=ObjectMeta(owner_references=(OwnerReference(kind="Node", uid=uid),))
        )
        assert {gpu.health for gpu in seen(mine, health(), heard=owned, asked=True).gpus} == {health_now}


def test_resources() -> None:
    """Amounts are integers in the cycle's units; the label of a card's memory is MiB, or bytes where it is that great."""
    found = seen(known=health())
    assert (found.cpu_milli, found.memory_bytes, found.pods) == (63_500, 500 << 30, 110)
    assert found.other == {"rdma/hca": 8}
    assert {gpu.memory_mib for gpu in found.gpus} == {81_559}
    in_bytes = seen(node(labels={"nvidia.com/gpu.memory": str(81_559 << 20)}))
    assert {gpu.memory_mib for gpu in in_bytes.gpus} == {81_559}


def test_a_node_without_the_memory_label() -> None:
    """Nobody may ask for MiB there."""
    kube = node(labels={"nvidia.com/gpu.memory": ""})
    assert not seen(kube).gpu_memory_known


def test_cards_behind_a_resource_driver_are_no_cards_of_kubelet() -> None:
    """A node that offers its GPUs as claims alone gives none as a resource, but its cards are known."""
    kube = node(gpus=4)
    status = type(kube.status)(conditions=kube.status.conditions, allocatable={"cpu": "8"})
    bare = KubeNode(metadata=kube.metadata, status=status)
    assert seen(bare, health()).gpus == ()
    assert len(cards_of(Seen(node=bare, health=health()), NOW + timedelta(seconds=1))) == 4


def test_the_conditions_are_those_that_checks_publish() -> None:
    """A new class of faults is not silently no reason to stop."""
    published = {check.condition for check in discover() if check.condition}
    assert published == GPU_CONDITIONS | STORAGE_CONDITIONS | {PORT_CONDITION}
