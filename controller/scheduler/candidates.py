"""The nodes a pod may go to, best first, without looking at all of them. Pure.

Pods that are alike share an index: the nodes that could ever take them, sorted by how good they are. Before it is used,
nodes that the ledger touched since are put where they belong now. What decides the order never depends on how much one pod
asks for, so pods of different sizes share an index too: a search starts at the first node with enough GPUs (or CPU) and
walks up until one has room. So a common pod costs a few comparisons, however many nodes are full.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from controller.scheduler import health_limits, score
from controller.scheduler import numa as zones
from controller.scheduler.fit import Shape
from controller.scheduler.fit_reasons import FitReasons
from controller.scheduler.node_index import NodeIndex
from controller.scheduler.requests import Request
from controller.scheduler.state import NodeSet, NodeState, TaskState

if TYPE_CHECKING:
    from controller.scheduler.session import Session

MOST_KEYS: Final = 600_000
"""How many keys all indexes may hold together; the one that was not used for longest goes first."""


class Candidates:
    """Finds nodes for pods, for one cycle. `reasons` says why where there is none."""

    def __init__(self, session: "Session") -> None:
        self._fit = session.fit
        self.reasons = FitReasons(session.fit)
        self._ledger = session.ledger
        self._settings = session.settings
        self._rules = session.rules
        self._spans = zones.Spans(session.ledger.nodes)
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
        if index.barren and not is_dynamic and self._is_barren(index, task):
            return
        nominated = self._nominated(task, shape, only, is_dynamic) if task.spec.nominated_node else None
        if nominated is not None:
            yield nominated
        found = nominated is not None
        ordered = self._by_liking if self._likes(task) else self._by_merit
        for node in ordered(task, index, is_dynamic, later):
            if node is not nominated:
                found = True
                yield node
        if not found and not is_dynamic:
            index.barren[task.spec.request] = len(self._ledger.changes)

    def _is_barren(self, index: NodeIndex, task: TaskState) -> bool:
        """Tell whether a pod like this one found nothing, and nothing changed since."""
        return index.barren.get(task.spec.request) == len(self._ledger.changes)

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
        node = self._ledger.node_by_name.get(task.spec.nominated_node)
        if node is None or (only is not None and node.index not in only.nodes):
            return None
        if self._fit.refusal(shape, node) is not None or self._ledger.why_not_room(task, node, True):
            return None
        return node if not is_dynamic or self._fit.why_not_others(task, node, True) is None else None

    def _by_merit(
        self, task: TaskState, index: NodeIndex, is_dynamic: bool, later: bool
    ) -> Iterator[NodeState]:
        by_span = self._spans.matter_to(task.spec.request)
        return (self._by_span if by_span else self._in_order)(task, index, is_dynamic, later)

    def _by_span(
        self, task: TaskState, index: NodeIndex, is_dynamic: bool, later: bool
    ) -> Iterator[NodeState]:
        """Give first, among nodes that have room alike, those where the pod would be on the fewest NUMA zones."""
        request = task.spec.request
        for rank in index.ranks:
            for is_second, runs in groupby(self._runs(task, index, 2 * rank), key=itemgetter(1)):
                spread: list[tuple[int, int, NodeState]] = []
                for nodes, _ in runs:
                    for node in nodes:
                        if not self._takes(task, node, is_dynamic, later, is_second):
                            continue
                        span = self._spans.of(request, node, is_second)
                        if span == 1:
                            yield node
                        else:
                            spread.append((span, len(spread), node))
                yield from (node for _, _, node in sorted(spread, key=itemgetter(0, 1)))

    def _in_order(
        self, task: TaskState, index: NodeIndex, is_dynamic: bool, later: bool
    ) -> Iterator[NodeState]:
        for rank in index.ranks:
            for nodes, is_second in self._runs(task, index, 2 * rank):
                for node in nodes:
                    if self._takes(task, node, is_dynamic, later, is_second):
                        yield node

    def _runs(
        self, task: TaskState, index: NodeIndex, section: int
    ) -> Iterator[tuple[Iterator[NodeState], bool]]:
        """Give the nodes of one rank run by run; a second run is that of nodes that have room only later."""
        request = task.spec.request
        if request.is_shared:
            for is_second in (False, True):
                yield index.sharing(request, section), is_second
            for is_second in (False, True):
                yield index.opening(request, section), is_second
            return
        start = request.gpus if request.asks_for_gpu else request.cpu_milli
        claims = self._fit.claims
        if request.dra_gpus and claims.are_its_own(task):
            start = request.dra_gpus if claims.need_as_many(task) else 0
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
        nodes = list(self._by_merit(task, index, is_dynamic, later))
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


def _is_claimed(node: NodeState) -> bool:
    """Tell whether pipelined pods claim more of something than is being released, so that idle room is not free later."""
    return (
        node.releasing_gpus < 0
        or node.releasing_cpu < 0
        or node.releasing_memory < 0
        or node.releasing_pods < 0
        or (bool(node.releasing_other) and min(node.releasing_other.values()) < 0)
        or node.numa is not None
    )
