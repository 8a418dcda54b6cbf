"""Nodes sorted by one kind of score, kept sorted as the ledger changes them. Pure.

A key is section, free and node index, packed into one integer. A section is twice the rank of what never changes (to avoid,
topology score, what the pod prefers), plus a group: 1 = a node with GPUs for a pod that needs none, or no room on a card
that is shared already. Nothing in a key depends on how much one pod asks for, but for shares, which are told apart by
rounded sizes (`score.about`).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import merge
from typing import Final

from controller.scheduler import health_limits, node_terms, score
from controller.scheduler.fit import Fit, Shape
from controller.scheduler.model import Order, Settings
from controller.scheduler.requests import Request
from controller.scheduler.rules import Rules
from controller.scheduler.state import NodeSet, NodeState

_INDEX_BITS: Final = 24
_FREE_BITS: Final = 56
_SECTION_SHIFT: Final = _INDEX_BITS + _FREE_BITS
_INDEX_MASK: Final = (1 << _INDEX_BITS) - 1
_BELOW_SECTION: Final = (1 << _SECTION_SHIFT) - 1

CPU, WHOLE, SHARED = "cpu", "whole", "shared"


class NodeIndex:
    """The nodes that could ever take pods of a shape. `barren`: for a request that found nothing, when that was."""

    def __init__(
        self,
        fit: Fit,
        shape: Shape,
        request: Request,
        only: NodeSet | None,
        settings: Settings,
        rules: Rules,
    ) -> None:
        self._ledger = fit.ledger
        self._fit = fit
        self._kind = _kind(request)
        self._request = request
        self._order = settings.cpu_order if self._kind == CPU else settings.gpu_order
        self._joins_sharers = Order.BINPACK is settings.gpu_order is settings.gpu_sharing_order
        self.barren: dict[Request, int] = {}
        self.revision = 0
        nodes = self._ledger.nodes
        if only is not None:
            nodes = [nodes[index] for index in sorted(only.nodes)]
        nodes = [node for node in nodes if fit.refusal(shape, node) is None]
        merits = {node.index: _merit(node, shape, only, rules) for node in nodes}
        ranks = {merit: rank for rank, merit in enumerate(sorted(set(merits.values())))}
        self.ranks = range(len(ranks))
        self._base = {index: 2 * ranks[merit] for index, merit in merits.items()}
        self._cursor = 0
        self._key_of: dict[int, int] = {}
        self.keys: list[int] = []
        self._sort_all()

    def __len__(self) -> int:
        return len(self.keys)

    def _sort_all(self) -> None:
        nodes = self._ledger.nodes
        self._key_of = {index: self._key(nodes[index]) for index in self._base}
        self.keys = sorted(self._key_of.values())
        self._cursor = len(self._ledger.changes)
        self.revision += 1

    def _key(self, node: NodeState) -> int:
        section = self._base[node.index]
        if self._kind == CPU:
            free = score.free_cpu(node, self._order)
            section += not score.is_cpu_only(node, self._fit.claims.has_gpus(node))
        elif self._request.dra_gpus:
            free = self._fit.claims.free_gpus(node)
        else:
            free = score.free_gpus(node, self._order)
            if self._kind == SHARED:
                section += not (self._joins_sharers and score.has_shared_room(node, self._request))
        return section << _SECTION_SHIFT | free << _INDEX_BITS | node.index

    def refresh(self) -> None:
        """Put the nodes that changed where they belong now."""
        changes = self._ledger.changes
        behind = len(changes) - self._cursor
        if not behind:
            return
        if behind > 2 * len(self.keys) + 16:
            self._sort_all()
            return
        nodes, keys, key_of = self._ledger.nodes, self.keys, self._key_of
        for index in changes[self._cursor :] if behind < 3 else dict.fromkeys(changes[self._cursor :]):
            before = key_of.get(index)
            if before is None:
                continue
            now = self._key(nodes[index])
            if now != before:
                _move(keys, bisect_left(keys, before), now)
                key_of[index] = now
                self.revision += 1
        self._cursor = len(changes)

    def sharing(self, request: Request, section: int) -> Iterator[NodeState]:
        """Give the nodes that have room for a share on a card that is shared already, where those are preferred."""
        if self._joins_sharers:
            is_exact = self._is_exact(request)
            for node in self.walk(section, 0):
                if is_exact or score.has_shared_room(node, request):
                    yield node

    def opening(self, request: Request, section: int) -> Iterator[NodeState]:
        """Give the other nodes. Where sharing is preferred these have no such room, so some whole cards must be free."""
        if not self._joins_sharers:
            return self.walk(section + 1, 0)
        rest = self.walk(section + 1, request.devices)
        if self._is_exact(request):
            return rest
        between = (
            node for node in self.walk(section, request.devices) if not score.has_shared_room(node, request)
        )
        return merge(rest, between, key=lambda node: self._key_of[node.index] & _BELOW_SECTION)

    def _is_exact(self, request: Request) -> bool:
        """Tell whether the index was made for shares of just this size."""
        made_for = self._request
        return request.portion == made_for.portion and request.gpu_memory_mib == made_for.gpu_memory_mib

    def walk(self, section: int, start: int) -> Iterator[NodeState]:
        """Give the nodes of a section from this much free on, even while the index is being kept up to date."""
        nodes, keys = self._ledger.nodes, self.keys
        start = start if self._order is Order.BINPACK else 0
        end = (section + 1) << _SECTION_SHIFT
        place = bisect_left(keys, section << _SECTION_SHIFT | start << _INDEX_BITS)
        while place < len(keys) and (key := keys[place]) < end:
            revision = self.revision
            yield nodes[key & _INDEX_MASK]
            if revision == self.revision:
                place += 1
            else:
                keys = self.keys
                place = bisect_right(keys, key)


def _move(keys: list[int], place: int, key: int) -> None:
    """Change a key at its place. A node that fills up mostly stays where it is among the others, and nothing has to move."""
    is_after = not place or keys[place - 1] < key
    if is_after and (place + 1 == len(keys) or key < keys[place + 1]):
        keys[place] = key
    else:
        del keys[place]
        insort(keys, key)


def _merit(node: NodeState, shape: Shape, only: NodeSet | None, rules: Rules) -> tuple[int, int, int]:
    """Weigh what never changes about a node for pods of this shape, smaller = better."""
    liked = node_terms.preference(shape.constraints, node.spec) if rules.soft_preferences else 0
    domain = only.scores.get(node.index, 0) if only is not None else 0
    return (health_limits.is_avoided(node.spec, shape.request), -domain, -liked)


def _kind(request: Request) -> str:
    if not request.asks_for_gpu:
        return CPU
    return SHARED if request.is_shared else WHOLE
