"""What an agent says of a node: each finding takes away what its effect says, and no more."""

from dataclasses import dataclass

import pytest

from controller.scheduler.nodes import Node, PartHealth
from kube.nodehealth import NodeHealth
from kube.types import Lease
from kube.types import Node as KubeNode
from tests.scheduler.kube_words import fault, health, lease, node
from tests.scheduler.node_words import OK, SICK, STILL_OFFERED, UNKNOWN, seen


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
