"""PodTopologySpread: pods of a kind evenly over the domains of a node label. Pure; rule topology_spread, KAI has none.

Semantics: Kubernetes, "Pod Topology Spread Constraints", as kube-scheduler's PodTopologySpread filters. Domains are those of
eligible nodes: they carry the labels of all hard constraints and, as the policies say, match the pod's node affinity and
have no taint that it does not tolerate. Pods that are ending do not count. Too few domains (minDomains) make the minimum 0.
"""

from controller.scheduler.domain_counts import DomainCounts
from controller.scheduler.ledger import Ledger
from controller.scheduler.node_terms import selector_holds, why_not_affinity, why_not_taints
from controller.scheduler.nodes import Node
from controller.scheduler.pod_affinity import PodAffinity
from controller.scheduler.requests import Constraints, Spread
from controller.scheduler.state import NodeState, TaskState

SPREAD_REFUSED = "node(s) didn't match pod topology spread constraints"
LABEL_REFUSED = "node(s) didn't match pod topology spread constraints (missing required label)"


class _Domains:
    """One constraint of pods of one namespace: its counts, and the emptiest eligible domain."""

    __slots__ = ("counts", "every", "lowest", "seen")

    def __init__(self, counts: DomainCounts, every: frozenset[str]) -> None:
        self.counts = counts
        self.every = every
        self.lowest = 0
        self.seen = -1


class TopologySpread:
    """Answers for one cycle; counts are made when first asked for."""

    def __init__(self, ledger: Ledger, pods: PodAffinity) -> None:
        self._ledger = ledger
        self._pods = pods
        self._domains: dict[tuple[Spread, str, Constraints], _Domains] = {}
        self._of_task: dict[str, list[tuple[Spread, _Domains, bool]]] = {}

    def why_not(self, task: TaskState, node: NodeState) -> str | None:
        """Say that a hard constraint would be skewed too far by one more pod on this node."""
        labels = node.spec.labels
        for spread, found, itself in self._hard(task):
            domain = labels.get(spread.topology_key)
            if domain is None:
                return LABEL_REFUSED
            lowest = self._lowest(found, spread)
            if found.counts.by_domain.get(domain, 0) + itself - lowest > spread.max_skew:
                return SPREAD_REFUSED
        return None

    def _hard(self, task: TaskState) -> list[tuple[Spread, _Domains, bool]]:
        """Give a pod's hard constraints, with whether it is itself of the kind that is spread."""
        found = self._of_task.get(task.id)
        if found is None:
            own = dict(task.spec.labels)
            found = self._of_task[task.id] = [
                (spread, self._of(task, spread), selector_holds(spread.selector, own))
                for spread in task.spec.constraints.spread
                if spread.hard
            ]
        return found

    def crowding(self, task: TaskState, node: NodeState) -> int:
        """Count the pods already in the node's domains, over the soft constraints (ScheduleAnyway)."""
        crowd = 0
        for spread in task.spec.constraints.spread:
            if not spread.hard:
                found = self._of(task, spread)
                found.counts.refresh()
                crowd += found.counts.by_domain.get(node.spec.labels.get(spread.topology_key, ""), 0)
        return crowd

    def _lowest(self, found: _Domains, spread: Spread) -> int:
        counts = found.counts
        counts.refresh()
        moves = len(self._ledger.changes)
        if found.seen != moves:
            found.seen = moves
            occupied = counts.by_domain
            is_full = len(occupied) >= len(found.every) >= spread.min_domains
            found.lowest = min(occupied.values(), default=0) if is_full else 0
        return found.lowest

    def _of(self, task: TaskState, spread: Spread) -> _Domains:
        spec = task.spec
        key = (spread, spec.namespace, spec.constraints)
        found = self._domains.get(key)
        if found is None:
            nodes = self._ledger.nodes
            eligible = bytearray(_is_eligible(node.spec, spec.constraints, spread) for node in nodes)
            members = self._pods.labels.matching(spread.selector, frozenset((spec.namespace,)))
            every = frozenset(node.spec.labels[spread.topology_key] for node in nodes if eligible[node.index])
            counts = DomainCounts(self._ledger, spread.topology_key, members, False, eligible)
            found = self._domains[key] = _Domains(counts, every)
        return found


def _is_eligible(node: Node, constraints: Constraints, spread: Spread) -> bool:
    """Tell whether a node's domain takes part: with the keys of all hard constraints, or of the soft one asked about."""
    if spread.topology_key not in node.labels:
        return False
    if spread.hard and any(each.hard and each.topology_key not in node.labels for each in constraints.spread):
        return False
    if spread.honor_affinity and why_not_affinity(constraints, node):
        return False
    return not (spread.honor_taints and why_not_taints(constraints.tolerations, node.taints))
