"""The nodes a pod may go to, best first, without looking at all of them. Pure.

Pods that are alike share an index: the nodes that could ever take them, sorted by how good they are. Before it is used,
nodes that the ledger touched since are put where they belong now. What decides the order never depends on how much one pod
asks for, so pods of different sizes share an index too: a search starts at the first node with enough GPUs (or CPU) and
walks up until one has room. So a common pod costs a few comparisons, however many nodes are full.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Final

from controller.scheduler import health_limits, node_terms, score
from controller.scheduler.fit import Fit, Shape
from controller.scheduler.fit_reasons import FitReasons
from controller.scheduler.model import Order, Request, Settings
from controller.scheduler.rules import Rules
from controller.scheduler.state import NodeSet, NodeState, TaskState

if TYPE_CHECKING:
    from controller.scheduler.session import Session

_INDEX_BITS: Final = 24
_FREE_BITS: Final = 56
_SECTION_SHIFT: Final = _INDEX_BITS + _FREE_BITS
_INDEX_MASK: Final = (1 << _INDEX_BITS) - 1
_BELOW_SECTION: Final = (1 << _SECTION_SHIFT) - 1
MOST_KEYS: Final = 600_000
"""How many keys all indexes may hold together; the one that was not used for longest goes first."""

CPU, WHOLE, SHARED = "cpu", "whole", "shared"


class NodeIndex:
    """Nodes sorted by one kind of score. A key is section, free and node index, packed into one integer.

    A section is twice the rank of what never changes (to avoid, topology score, what the pod prefers), plus a group: 1 = a
    node with GPUs for a pod that needs none, or no room on a card that is shared already.
    """

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
                del keys[bisect_left(keys, before)]
                insort(keys, now)
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


def _merit(node: NodeState, shape: Shape, only: NodeSet | None, rules: Rules) -> tuple[int, int, int]:
    """Weigh what never changes about a node for pods of this shape, smaller = better."""
    liked = node_terms.preference(shape.constraints, node.spec) if rules.soft_preferences else 0
    domain = only.scores.get(node.index, 0) if only is not None else 0
    return (health_limits.is_avoided(node.spec, shape.request), -domain, -liked)


def _is_claimed(node: NodeState) -> bool:
    """Tell whether pipelined pods claim more of something than is being released, so that idle room is not free later."""
    return (
        node.releasing_gpus < 0
        or node.releasing_cpu < 0
        or node.releasing_memory < 0
        or node.releasing_pods < 0
        or min(node.releasing_other.values(), default=0) < 0
    )


def _kind(request: Request) -> str:
    if not request.asks_for_gpu:
        return CPU
    return SHARED if request.is_shared else WHOLE


class Candidates:
    """Finds nodes for pods, for one cycle. `reasons` says why where there is none."""

    def __init__(self, session: "Session") -> None:
        self._fit = session.fit
        self.reasons = FitReasons(session.fit)
        self._ledger = session.ledger
        self._settings = session.settings
        self._rules = session.rules
        self._indexes: dict[tuple[object, ...], NodeIndex] = {}
        self._size = 0

    def best(self, task: TaskState, later: bool, only: NodeSet | None) -> Iterator[NodeState]:
        """Give the nodes that take a pod, best first: such as have room now before such as will have it.

        A node with room now is given only if that also stands against what pipelined pods claim there. The caller binds
        where `Fit.why_not(task, node, False)` is None and pipelines elsewhere; with `later` it pipelines everywhere. Names
        decide between equals (nodes are in order of their names).
        """
        shape, is_dynamic = self._fit.of(task)
        index = self._index(shape, task.spec.request, only)
        index.refresh()
        if not is_dynamic and index.barren.get(task.spec.request) == len(self._ledger.changes):
            return
        nominated = self._nominated(task, shape, only, is_dynamic)
        if nominated is not None:
            yield nominated
        found = nominated is not None
        ordered = self._by_liking if self._likes(task) else self._in_order
        for node in ordered(task, index, is_dynamic, later):
            if node is not nominated:
                found = True
                yield node
        if not found and not is_dynamic:
            index.barren[task.spec.request] = len(self._ledger.changes)

    def _index(self, shape: Shape, request: Request, only: NodeSet | None) -> NodeIndex:
        about = score.about(request)
        key = (shape.key, about, only.key if only is not None else None)
        index = self._indexes.pop(key, None)
        if index is None:
            index = NodeIndex(self._fit, shape, about, only, self._settings, self._rules)
            self._size += len(index)
            while self._size > MOST_KEYS and self._indexes:
                self._size -= len(self._indexes.pop(next(iter(self._indexes))))
        self._indexes[key] = index
        return index

    def _nominated(
        self, task: TaskState, shape: Shape, only: NodeSet | None, is_dynamic: bool
    ) -> NodeState | None:
        """Give the pod's nominated node if it takes the pod."""
        name = task.spec.nominated_node
        node = self._ledger.node_by_name.get(name) if name else None
        if node is None or (only is not None and node.index not in only.nodes):
            return None
        if self._fit.refusal(shape, node) is not None or self._ledger.why_not_room(task, node, True):
            return None
        return node if not is_dynamic or self._fit.why_not_others(task, node, True) is None else None

    def _in_order(
        self, task: TaskState, index: NodeIndex, is_dynamic: bool, later: bool
    ) -> Iterator[NodeState]:
        for rank in index.ranks:
            for nodes, is_second in self._runs(task.spec.request, index, 2 * rank):
                for node in nodes:
                    if self._takes(task, node, is_dynamic, later, is_second):
                        yield node

    def _runs(
        self, request: Request, index: NodeIndex, section: int
    ) -> Iterator[tuple[Iterator[NodeState], bool]]:
        """Give the nodes of one rank run by run; a second run is that of nodes that have room only later."""
        if request.is_shared:
            for is_second in (False, True):
                yield index.sharing(request, section), is_second
            for is_second in (False, True):
                yield index.opening(request, section), is_second
            return
        start = request.gpus if request.asks_for_gpu else request.cpu_milli
        groups = (0,) if request.asks_for_gpu else (0, 1)
        for is_second in (False, True):
            for group in groups:
                yield index.walk(section + group, start), is_second

    def _takes(
        self, task: TaskState, node: NodeState, is_dynamic: bool, later: bool, is_second: bool
    ) -> bool:
        """Tell whether a node belongs to the first run (room now, and later too) or to the second (only later)."""
        ledger, fit = self._ledger, self._fit
        if ledger.why_not_room(task, node, False) is None and (
            not is_dynamic or fit.why_not_others(task, node, later) is None
        ):
            return not is_second and (not _is_claimed(node) or ledger.why_not_room(task, node, True) is None)
        return (
            is_second
            and ledger.why_not_room(task, node, True) is None
            and (not is_dynamic or fit.why_not_others(task, node, True) is None)
        )

    def _likes(self, task: TaskState) -> bool:
        """Tell whether the pod would rather be near some pods, or away from them."""
        constraints = task.spec.constraints
        if not constraints.is_dynamic or not self._settings.predicates:
            return False
        return any(term.weight for term in (*constraints.pod_affinity, *constraints.pod_anti_affinity)) or (
            self._rules.topology_spread and any(not spread.hard for spread in constraints.spread)
        )

    def _by_liking(
        self, task: TaskState, index: NodeIndex, is_dynamic: bool, later: bool
    ) -> Iterator[NodeState]:
        """Sort all that take the pod by the pods near it; equals stay in the order that they have anyway.

        Nodes to avoid stay last all the same.
        """
        fit, request = self._fit, task.spec.request
        nodes = list(self._in_order(task, index, is_dynamic, later))
        found = [
            (
                health_limits.is_avoided(node.spec, request),
                -fit.affinity.liking(task, node),
                fit.spread.crowding(task, node) if self._rules.topology_spread else 0,
                place,
            )
            for place, node in enumerate(nodes)
        ]
        for *_, place in sorted(found):
            yield nodes[place]
