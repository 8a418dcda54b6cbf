"""A node as the cycle sees it, and what is left of it."""

from controller.scheduler.health import node_of
from controller.scheduler.node_findings import Seen
from controller.scheduler.nodes import Node, PartHealth
from controller.scheduler.rules import DEFAULT, Rules
from kube.nodehealth import NodeHealth
from kube.types import Lease
from kube.types import Node as KubeNode
from tests.scheduler.kube_words import NOW, node

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
