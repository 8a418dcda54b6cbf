"""What a Node takes, by its conditions and by its agent: each finding takes away what its effect says, and no more."""

from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest

from checks.check import discover
from controller.scheduler.health import node_of
from controller.scheduler.node_cards import cards_of
from controller.scheduler.node_findings import GPU_CONDITIONS, PORT_CONDITION, STORAGE_CONDITIONS, Seen
from controller.scheduler.nodes import Node, PartHealth
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from kube.nodehealth import NodeHealth
from kube.types import Lease, ObjectMeta, OwnerReference
from kube.types import Node as KubeNode
from tests.scheduler.kube_words import NOW, fault, health, lease, node

OK, SICK, UNKNOWN = PartHealth.HEALTHY, PartHealth.SICK, PartHealth.UNKNOWN
STILL_OFFERED = "node(s) had a sick GPU that kubelet still offers: Xid48DoubleBitEcc"


def seen(
    kube: KubeNode | None = None,
    known: NodeHealth | None = None,
    rules: Rules = DEFAULT,
    heard: Lease | None = None,
    asked: bool = False,
) -> Node:
    """Give the node as the cycle sees it."""
    return node_of(Seen(node=kube or node(), health=known, lease=heard, leases_known=asked), NOW, rules)


@dataclass(frozen=True)
class Narrowed:
    """What is left of a node: the health of its four GPUs, and why it takes less."""

    cards: tuple[PartHealth, ...] = (OK, OK, OK, OK)
    closed: str = ""
    out: bool = False
    no_new_gpu: str = ""
    no_multi_gpu: str = ""
    no_multi_node: str = ""
    avoid: str = ""


def narrowed(found: Node) -> Narrowed:
    """Give what is left of a node."""
    return Narrowed(
        cards=tuple(gpu.health for gpu in found.gpus),
        closed=found.closed,
        out=found.out,
        no_new_gpu=found.no_new_gpu,
        no_multi_gpu=found.no_multi_gpu,
        no_multi_node=found.no_multi_node,
        avoid=found.avoid,
    )


SAID = "node(s) had GpuXidError: Xid48DoubleBitEcc"
PORT = "node(s) had InfinibandPortDegraded: PortDown"


@pytest.mark.parametrize(
    ("known", "left"),
    [
        pytest.param(None, Narrowed(), id="a node that no agent ever reported is taken as it is"),
        pytest.param(health(), Narrowed(), id="a healthy node takes everything"),
        pytest.param(
            health(fault("part-out", gpu=1)),
            Narrowed(cards=(OK, SICK, OK, OK), no_new_gpu=STILL_OFFERED),
            id="a sick GPU that kubelet offers closes the node to new GPU pods",
        ),
        pytest.param(
            health(fault("part-out", gpu=1), gpu1={"offered": False}),
            Narrowed(cards=(OK, SICK, OK, OK)),
            id="a sick GPU that kubelet withdrew is alone",
        ),
        pytest.param(
            health(fault("part-out", gpu=1), gpu1={"offered": None}),
            Narrowed(cards=(OK, SICK, OK, OK), no_new_gpu=STILL_OFFERED),
            id="where nobody knows whether it is offered, it is",
        ),
        pytest.param(
            health(
                fault("node-out", gpu=2, condition="GpuMissing", reason="GpuLost"), gpu2={"offered": False}
            ),
            Narrowed(cards=(OK, OK, SICK, OK), closed="node(s) had GpuMissing: GpuLost", out=True),
            id="a lost GPU takes the node, fenced or not",
        ),
        pytest.param(
            health(fault("no-multi-gpu", gpu=0)),
            Narrowed(no_multi_gpu=SAID),
            id="a dead NVLink keeps pods of several GPUs off",
        ),
        pytest.param(
            health(
                fault("no-multi-node", kind="port", condition="InfinibandPortDegraded", reason="PortDown")
            ),
            Narrowed(no_multi_node=PORT),
            id="a dead port keeps off who talks over it",
        ),
        pytest.param(
            health(fault("part-out", kind="port", condition="InfinibandPortDegraded", reason="PortDown")),
            Narrowed(no_multi_node=PORT),
            id="a port that is out is no more than that",
        ),
        pytest.param(
            health(fault("part-out", kind="nvswitch")),
            Narrowed(no_multi_gpu=SAID),
            id="an NVSwitch that is out joins no GPUs",
        ),
        pytest.param(
            health(fault("part-out", kind="mount")),
            Narrowed(closed=SAID, out=True),
            id="a mount that is out is under every pod",
        ),
        pytest.param(
            health(fault("prefer-not", kind="node")),
            Narrowed(avoid=SAID),
            id="prefer-not on the node makes it the last choice",
        ),
        pytest.param(
            health(fault("prefer-not", gpu=0)), Narrowed(), id="prefer-not on a GPU is that GPU's alone"
        ),
        pytest.param(
            health(fault("part-out", gpu=1, severity="Warning")),
            Narrowed(),
            id="a warning takes nothing away",
        ),
        pytest.param(
            health(fault("half-out", gpu=3)),
            Narrowed(cards=(OK, OK, OK, SICK), closed=SAID, out=True, no_new_gpu=STILL_OFFERED),
            id="an effect of a newer agent counts as the worst",
        ),
    ],
)
def test_effects_narrow(known: NodeHealth | None, left: Narrowed) -> None:
    """Degraded is not dead."""
    assert narrowed(seen(known=known)) == left


def test_avoided_card() -> None:
    """A card with prefer-not says why it is taken last."""
    found = seen(known=health(fault("prefer-not", gpu=2)))
    assert [gpu.avoid for gpu in found.gpus] == ["", "", "Xid48DoubleBitEcc", ""]


@pytest.mark.parametrize(
    ("kube", "known", "heard", "left"),
    [
        pytest.param(
            node(conditions={"GpuXidError": "Unknown"}),
            health(),
            None,
            Narrowed(cards=(UNKNOWN,) * 4),
            id="a GPU class that is Unknown closes the GPUs and leaves the node",
        ),
        pytest.param(
            node(conditions={"GpuXidError": "Unknown"}),
            health(fault("part-out", gpu=0), gpu0={"offered": False}),
            None,
            Narrowed(cards=(SICK, UNKNOWN, UNKNOWN, UNKNOWN)),
            id="losing sight of a sick GPU does not heal it",
        ),
        pytest.param(
            node(conditions={"InfinibandPortDegraded": "Unknown"}),
            health(),
            None,
            Narrowed(no_multi_node="node(s) had Unknown InfinibandPortDegraded: Said"),
            id="ports that nobody sees carry nothing new",
        ),
        pytest.param(
            node(conditions={"SharedStorageFault": "Unknown"}),
            health(),
            None,
            Narrowed(closed="node(s) had Unknown SharedStorageFault: Said"),
            id="storage that nobody sees takes no new pod, and the node stays capacity",
        ),
        pytest.param(
            node(conditions={"SomebodyElses": "Unknown"}),
            health(),
            None,
            Narrowed(),
            id="conditions of others say nothing",
        ),
        pytest.param(
            node(),
            health(),
            lease(301),
            Narrowed(
                cards=(UNKNOWN,) * 4, no_multi_node="node(s) had Unknown InfinibandPortDegraded: AgentSilent"
            ),
            id="a silent agent knows nothing of what it published",
        ),
        pytest.param(
            node(),
            health(),
            lease(299),
            Narrowed(),
            id="an agent that was heard within five minutes is not silent",
        ),
        pytest.param(
            node(), None, lease(900), Narrowed(), id="an agent that never reported cannot fall silent"
        ),
    ],
)
def test_unknown(kube: KubeNode, known: NodeHealth | None, heard: Lease | None, left: Narrowed) -> None:
    """Unknown stops new placement on that part and nothing else."""
    assert narrowed(seen(kube, known, heard=heard, asked=heard is not None)) == left


def test_a_lease_that_is_gone_is_silence() -> None:
    """Somebody looked and found none."""
    assert {gpu.health for gpu in seen(known=health(), asked=True).gpus} == {UNKNOWN}


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
