"""Which nodes a (sub)group with a topology constraint is tried on, in order of preference. Pure.

Each try is the nodes of one domain that may hold all its pods: of the preferred level first and then wider ones up to the
required level, on each level the fullest first, so that wide holes stay whole. A group of which pods run already stays in
their domain of the required level; by `beside_siblings` the domains where most of them are come first below that, and score
best, so that a lost member's successor comes back to the others where it can.
Inside a try, nodes are scored by the order of the preferred level's domains.
Whether a domain may hold the pods is worked out from idle and releasing amounts. KAI counts how many of the largest pod each
node takes where all pods ask for the same kinds of resources, else it compares sums; both may say no to what would fit. By
`domain_holds_each_pod` the smallest pod is counted and sums are compared besides, shares of cards included, which only says
yes too often: placing is exact. Source: KAI Scheduler, plugins/topology; kai.md 6.4.
"""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from controller.scheduler import domain_room, explain, gangs
from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.domains import Domain, DomainTree
from controller.scheduler.model import ACTIVE_USED, PodSet, SubGroup, TopologyConstraint
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeSet, NodeState, TaskState

_NOT_THERE: Final = Fraction(1000)
"""How full a domain counts that lacks a resource altogether (KAI's number)."""


def node_sets(
    session: Session, job: JobState, group: SubGroup | PodSet, tasks: list[TaskState], only: NodeSet | None
) -> list[NodeSet | None]:
    """List the node sets on which these tasks of a group are tried, best first; none where no domain can hold them.

    None in the list = all nodes. Without a constraint that is `only` itself.
    """
    constraint = group.topology
    if constraint is None or not constraint.topology or not tasks:
        return [only]
    tree = _tree(session, constraint.topology)
    if tree is None:
        explain.wait_for_topology(session, job, f"topology {constraint.topology} does not exist", 0)
        return []
    bounds = _bounds(tree, constraint)
    if isinstance(bounds, str):
        explain.wait_for_topology(session, job, bounds, len(tree.paths))
        return []
    paths = _held_paths(job, group, tree)
    required, preferred = bounds
    beside: Counter[tuple[str, ...]] = Counter()
    if preferred and session.rules.beside_siblings:
        beside.update(path[:depth] for path in paths or () for depth in range(1, len(path) + 1))
    search = _Search(session, tree, tasks, only, required, preferred, beside)
    held = frozenset(path[:required] for path in paths) if required and paths is not None else None
    found = search.fitting(held)
    if not found:
        explain.wait_for_topology(session, job, search.why_none(held), len(tree.paths))
    return found


def domains_for_all(session: Session, job: JobState) -> list[NodeSet] | None:
    """List the domains, by path, of which one must hold the whole job; None = it has no such bound.

    None are listed where the topology or its level does not exist.
    """
    root = job.root
    constraint = root.topology or (root.pod_sets[0].topology if job.is_flat else None)
    if constraint is None or not constraint.required:
        return None
    tree = _tree(session, constraint.topology)
    depth = tree.depth(constraint.required) if tree is not None else None
    if tree is None or depth is None:
        return []
    return [NodeSet(("domain", tree.name, *each.path), frozenset(each.nodes)) for each in tree.level(depth)]


def _tree(session: Session, name: str) -> DomainTree | None:
    if name not in session.trees:
        spec = next((topology for topology in session.snapshot.topologies if topology.name == name), None)
        session.trees[name] = DomainTree(spec, session.ledger.nodes) if spec is not None else None
    return session.trees[name]


def _bounds(tree: DomainTree, constraint: TopologyConstraint) -> tuple[int, int | None] | str:
    """The depths of the required and of the preferred level (0 = no bound, None = no preference), or what is wrong."""
    required, preferred = tree.depth(constraint.required), tree.depth(constraint.preferred)
    for level, depth, kind in (
        (constraint.required, required, "required"),
        (constraint.preferred, preferred, "preferred"),
    ):
        if level and depth is None:
            return f"topology {tree.name} has no level {level}, which is {kind}"
    if not constraint.required and not constraint.preferred:
        return f"a constraint on topology {tree.name} names no level"
    return required or 0, preferred


def _held_paths(job: JobState, group: SubGroup | PodSet, tree: DomainTree) -> list[tuple[str, ...]] | None:
    """Where pods of the group have their places in the tree, one for each; None where none of them has one at all."""
    held = [
        task.node.index
        for pod_set in gangs.pod_sets(job, group)
        for task in pod_set.tasks
        if task.status in ACTIVE_USED and task.node is not None
    ]
    return [tree.paths[index] for index in held if index in tree.paths] if held else None


class _Search:
    """One look at the domains for one list of tasks. `beside`: how many pods of their group each domain has already."""

    def __init__(
        self,
        session: Session,
        tree: DomainTree,
        tasks: list[TaskState],
        only: NodeSet | None,
        required: int,
        preferred: int | None,
        beside: Counter[tuple[str, ...]],
    ) -> None:
        self._beside = beside
        self.tree = tree
        self.required = required
        self._preferred = preferred
        self._only = only
        self._count = len(tasks)
        self._nodes = session.ledger.nodes
        self._valid = [index for index in tree.root.nodes if only is None or index in only.nodes]
        self._asked = domain_room.added(domain_room.vector(task) for task in tasks)
        self._exact = session.rules.domain_holds_each_pod
        self._counted = None
        if self._exact:
            self._counted = domain_room.smallest(tasks)
        elif domain_room.are_alike(tasks):
            self._counted = domain_room.largest(tasks)
        self._shares = any(task.spec.request.is_shared for task in tasks)
        self._free: dict[tuple[str, ...], domain_room.Vector] = {}
        self._takes: dict[tuple[str, ...], int] = {}
        self._order: dict[tuple[str, ...], list[Domain]] = {}
        self.start = tree.narrowest(self._valid, preferred or required)
        self._measure(self.start)

    def fitting(self, held: frozenset[tuple[str, ...]] | None) -> list[NodeSet | None]:
        """Make the node sets of all domains that may hold the tasks, in order of preference."""
        if not self._fits(self.start):
            return []
        depth = self._preferred or self.required
        self._sort(self.start, depth)
        scores = self._scores() if self._preferred else {}
        ordered = list(_narrowest_first(self.start, self._order))
        valid = frozenset(self._valid)
        found: list[NodeSet | None] = []
        for domain in ordered:
            if not self.required <= domain.depth <= max(depth, self.required):
                continue
            if held is not None and domain.path[: self.required] not in held:
                continue
            if self._fits(domain):
                found.append(self._node_set(domain, valid, scores))
        return found

    def why_none(self, held: frozenset[tuple[str, ...]] | None) -> str:
        """Say that no domain can hold the tasks."""
        level = self.tree.levels[self.required - 1] if self.required else "any level"
        place = " in the domain where its other pods are" if held is not None else ""
        return f"no domain of {level} in topology {self.tree.name} has room for {self._count} pods{place}"

    def _node_set(self, domain: Domain, valid: frozenset[int], scores: dict[int, int]) -> NodeSet:
        outer = self._only
        key = ("topology", self.tree.name, *domain.path)
        if scores:
            order = [each.name for each in self._preferred_last()]
            key += ("by", *order)
        elif outer is not None and outer.scores:
            scores = outer.scores
        nodes = frozenset(index for index in domain.nodes if index in valid)
        return NodeSet(key + (("in", *outer.key) if outer is not None else ()), nodes, scores)

    # --- what a domain has ----------------------------------------------------------------------------------------

    def _measure(self, domain: Domain) -> tuple[domain_room.Vector, int]:
        free: domain_room.Vector = {}
        takes = 0
        if domain.children:
            for child in domain.children:
                below, some = self._measure(child)
                domain_room.add(free, below)
                takes += some
        else:
            for index in domain.nodes:
                node = self._nodes[index]
                now = domain_room.free(node, self._asked)
                domain_room.add(free, now)
                takes += self._accommodates(node, now)
        self._free[domain.path] = free
        self._takes[domain.path] = takes
        return free, takes

    def _accommodates(self, node: NodeState, free: domain_room.Vector) -> int:
        """How many pods like the counted one a node takes; all of them where that asks for nothing that could run out."""
        counted = self._counted
        if not counted:
            return self._count
        fits = node.idle_pods + node.releasing_pods
        for name, amount in counted.items():
            there = free[name]
            if name == domain_room.GPU and (self._shares if self._exact else amount < WHOLE_GPU):
                there += domain_room.shared_free(node)
            fits = min(fits, there // amount)
        return max(fits, 0)

    def _fits(self, domain: Domain) -> bool:
        if self._counted is not None and self._takes[domain.path] < self._count:
            return False
        if self._exact:
            return self._holds_sum(domain)
        return self._counted is not None or self._ratio(domain) <= 1

    def _holds_sum(self, domain: Domain) -> bool:
        free = dict.fromkeys(self._asked, 0)
        for index in domain.nodes:
            node = self._nodes[index]
            there = domain_room.free(node, self._asked)
            if self._shares and domain_room.GPU in there:
                there[domain_room.GPU] += domain_room.shared_free(node)
            # A node in debt takes nothing from what others have.
            domain_room.add(free, {name: max(amount, 0) for name, amount in there.items()})
        return all(free[name] >= amount for name, amount in self._asked.items())

    def _ratio(self, domain: Domain) -> Fraction:
        """How full the tasks would make what is free in a domain, by the scarcest resource."""
        free = self._free[domain.path]
        ratio = Fraction(0)
        for name, amount in self._asked.items():
            there = free.get(name, 0)
            ratio = max(ratio, Fraction(amount, there) if there > 0 else _NOT_THERE)
        return ratio

    # --- order ----------------------------------------------------------------------------------------------------

    def _sort(self, domain: Domain, deepest: int) -> None:
        self._order[domain.path] = sorted(
            domain.children, key=lambda child: (-self._beside[child.path], -self._ratio(child), child.path)
        )
        if domain.depth < deepest:
            for child in domain.children:
                self._sort(child, deepest)

    def _preferred_last(self) -> list[Domain]:
        """Give the domains of the preferred level, worst first: in a wide try the emptiest is good, the siblings' best."""
        level = [each for each in _narrowest_first(self.start, self._order) if each.depth == self._preferred]
        return sorted(level, key=lambda domain: self._beside[domain.path])

    def _scores(self) -> dict[int, int]:
        level = self._preferred_last()
        return {
            index: 10 * place // len(level) for place, domain in enumerate(level, 1) for index in domain.nodes
        }


def _narrowest_first(start: Domain, order: dict[tuple[str, ...], list[Domain]]) -> Iterable[Domain]:
    levels = [[start]]
    while levels[-1]:
        levels.append([child for each in levels[-1] for child in order.get(each.path, each.children)])
    for level in reversed(levels):
        yield from level
