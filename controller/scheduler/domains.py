"""The nodes of a Topology as a tree of domains: zones, blocks, racks, hosts. Pure.

A node belongs to the tree where it carries the label of every level. A domain is named by the labels' values from the widest
level down, so that rack 1 of one block and rack 1 of another are two.
"""

from collections.abc import Iterable

from controller.scheduler.nodes import Topology
from controller.scheduler.state import NodeState


class Domain:
    """One domain; `depth` 0 is the root with all nodes of the tree, 1 the widest level. `path`: label values, widest first.

    `nodes` by their index, sorted. `children` sorted by path.
    """

    __slots__ = ("children", "depth", "nodes", "path")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self.depth = len(path)
        self.nodes: list[int] = []
        self.children: list[Domain] = []

    @property
    def name(self) -> str:
        """Name it for people."""
        return ".".join(self.path) or "the whole topology"


class DomainTree:
    """The domains of one Topology; `levels` are the node labels, widest first."""

    def __init__(self, topology: Topology, nodes: Iterable[NodeState]) -> None:
        self.name = topology.name
        self.levels = tuple(level.node_label for level in topology.levels)
        self._depths = {level.alias: depth for depth, level in enumerate(topology.levels, 1) if level.alias}
        self._depths |= {level: depth for depth, level in enumerate(self.levels, 1)}
        self.root = Domain(())
        found: dict[tuple[str, ...], Domain] = {(): self.root}
        self.paths: dict[int, tuple[str, ...]] = {}
        for node in nodes:
            labels = node.spec.labels
            if not all(level in labels for level in self.levels):
                continue
            path = tuple(labels[level] for level in self.levels)
            self.paths[node.index] = path
            self.root.nodes.append(node.index)
            for depth in range(1, len(path) + 1):
                if path[:depth] not in found:
                    found[path[:depth]] = domain = Domain(path[:depth])
                    found[path[: depth - 1]].children.append(domain)
                found[path[:depth]].nodes.append(node.index)
        for domain in found.values():
            domain.children.sort(key=lambda child: child.path)
        self._domains = found

    def depth(self, level: str) -> int | None:
        """Give the depth of a level by its node label or alias; None where the topology has no such level."""
        return self._depths.get(level)

    def level(self, depth: int) -> list[Domain]:
        """Give the domains of a depth, by path."""
        return sorted(
            (each for each in self._domains.values() if each.depth == depth), key=lambda each: each.path
        )

    def at(self, path: tuple[str, ...]) -> Domain:
        """Give the domain of a path.

        Raises KeyError where there is none.
        """
        return self._domains[path]

    def narrowest(self, nodes: Iterable[int], deepest: int) -> Domain:
        """Give the smallest domain that holds all these nodes of the tree, no deeper than `deepest`."""
        common: tuple[str, ...] | None = None
        for index in nodes:
            path = self.paths[index]
            if common is None:
                common = path[:deepest]
            elif path[: len(common)] != common:
                common = common[: _shared(path, common)]
            if not common:
                break
        return self.at(common or ())


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
