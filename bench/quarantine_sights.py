"""What a watch of the nodes shows while quarantines are measured."""

from collections.abc import Sequence

from bench.fleet import Ready
from bench.pairs import Pairs
from kube.remediation import QUARANTINE
from kube.types import Node

CONDITION = "GpuXidError"


class Looking:
    """What the watch shows: which nodes are ill, which are quarantined, and when that was first seen."""

    def __init__(self) -> None:
        self.one_by_one = Pairs()
        self.at_once = Pairs()
        self.ready = Ready()
        self.bare = Pairs()
        self._of: dict[str, Pairs] = {}

    def follow(self, pairs: Pairs, names: Sequence[str]) -> None:
        """Let the ends of these nodes count in `pairs`."""
        self._of.update(dict.fromkeys(names, pairs))

    def see(self, node: Node, at: float) -> None:
        self.ready.see(node, at)
        pairs = self._of.get(node.metadata.name)
        if pairs is None:
            return
        condition = node.condition(CONDITION)
        if pairs is not self.bare and condition is not None and condition.status == "True":
            pairs.begin_once(node.metadata.name, at)
        if quarantined(node):
            pairs.end(node.metadata.name, at)


def quarantined(node: Node) -> bool:
    """Tell whether a node is out: cordoned and tainted by an incident."""
    return node.spec.unschedulable and any(taint.key == QUARANTINE for taint in node.spec.taints)
