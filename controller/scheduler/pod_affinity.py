"""Required and preferred pod affinity and anti-affinity, also as others hold it against a new pod. Pure.

Semantics: Kubernetes, "Inter-pod affinity and anti-affinity", as kube-scheduler's InterPodAffinity decides:

- affinity holds where, for every term, a pod that matches *all* terms is in the node's domain; where no such pod exists at
  all, a pod that matches its own terms may be the first, on any node that has the topology labels;
- anti-affinity is symmetric: a pod on the node's domain may refuse the new one by its own required terms;
- a term with no namespaces means the pod's own.
"""

from collections.abc import Iterable, Iterator, Mapping

from controller.scheduler.domain_counts import DomainCounts, PodLabels
from controller.scheduler.ledger import Ledger
from controller.scheduler.node_terms import selector_holds
from controller.scheduler.requests import ANYWHERE, Expression, PodTerm
from controller.scheduler.state import NodeState, TaskState

AFFINITY_REFUSED = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_REFUSED = "node(s) didn't match pod anti-affinity rules"
EXISTING_REFUSED = "node(s) didn't satisfy existing pods anti-affinity rules"

Namespaces = frozenset[str] | None


def namespaces_of(term: PodTerm, namespace: str) -> Namespaces:
    """Give the namespaces of a term held by a pod of this namespace; None = all."""
    if term.all_namespaces:
        return None
    return frozenset(term.namespaces or (namespace,))


def term_matches(term: PodTerm, holder_namespace: str, namespace: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a term of a pod in `holder_namespace` means a pod of this namespace and these labels."""
    namespaces = namespaces_of(term, holder_namespace)
    return (namespaces is None or namespace in namespaces) and selector_holds(term.selector, labels)


def _pairs(selector: tuple[Expression, ...]) -> list[tuple[str, str]] | None:
    """Give the labels of which a matching pod has one; None where the selector names none."""
    for each in selector:
        if each.operator == "In":
            return [(each.key, value) for value in each.values]
    return None


class _Held:
    """One distinct required anti-affinity term and the pods that hold it."""

    __slots__ = ("counts", "holders", "namespace", "term")

    def __init__(self, term: PodTerm, namespace: str) -> None:
        self.term = term
        self.namespace = namespace
        self.holders: list[TaskState] = []
        self.counts: DomainCounts | None = None


class PodAffinity:
    """Answers for one cycle; counts are made when first asked for. `terminating_counts`: see `is_counted`."""

    def __init__(self, ledger: Ledger, tasks: Iterable[TaskState], terminating_counts: bool) -> None:
        self._ledger = ledger
        self._tasks = list(tasks)
        self._terminating = terminating_counts
        self._labels: PodLabels | None = None
        self._wanted: dict[tuple[tuple[PodTerm, ...], str], tuple[DomainCounts, ...]] = {}
        self._held: dict[tuple[PodTerm, str], _Held] = {}
        self._held_by_pair: dict[tuple[str, str], list[_Held]] = {}
        self._held_by_none: list[_Held] = []
        self._against: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[_Held, ...]] = {}
        for task in self._tasks:
            if task.spec.constraints is not ANYWHERE:
                self._hold(task)

    @property
    def labels(self) -> PodLabels:
        """All pods by label, made when somebody first asks."""
        if self._labels is None:
            self._labels = PodLabels(self._tasks)
        return self._labels

    def _hold(self, task: TaskState) -> None:
        for term in task.spec.constraints.pod_anti_affinity:
            if term.weight:
                continue
            key = (term, task.spec.namespace)
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _Held(*key)
                pairs = _pairs(term.selector)
                if pairs is None:
                    self._held_by_none.append(held)
                for pair in pairs or ():
                    self._held_by_pair.setdefault(pair, []).append(held)
            held.holders.append(task)

    def concerns(self, task: TaskState) -> bool:
        """Tell whether other pods decide where this one may go: by its own terms or by theirs."""
        constraints = task.spec.constraints
        return bool(constraints.pod_affinity or constraints.pod_anti_affinity or self._held_against(task))

    def _held_against(self, task: TaskState) -> tuple[_Held, ...]:
        """Give the terms of others that mean this pod."""
        if not self._held:
            return ()
        spec = task.spec
        key = (spec.namespace, spec.labels)
        found = self._against.get(key)
        if found is None:
            labels = dict(spec.labels)
            maybe = [*self._held_by_none]
            for pair in spec.labels:
                maybe += self._held_by_pair.get(pair, ())
            found = self._against[key] = tuple(
                held for held in maybe if term_matches(held.term, held.namespace, spec.namespace, labels)
            )
        return found

    def why_not(self, task: TaskState, node: NodeState) -> str | None:
        """Say which of the three rules keeps a pod off a node."""
        constraints = task.spec.constraints
        if not (self._held or constraints.pod_affinity or constraints.pod_anti_affinity):
            return None
        required = tuple(term for term in constraints.pod_affinity if not term.weight)
        if required and not self._affinity_holds(task, required, node):
            return AFFINITY_REFUSED
        labels = node.spec.labels
        for term in constraints.pod_anti_affinity:
            if not term.weight and self._in_domain(self._counts((term,), task.spec.namespace)[0], labels):
                return ANTI_AFFINITY_REFUSED
        for held in self._held_against(task):
            if held.counts is None:
                held.counts = DomainCounts(
                    self._ledger, held.term.topology_key, held.holders, self._terminating
                )
            if self._in_domain(held.counts, labels):
                return EXISTING_REFUSED
        return None

    def liking(self, task: TaskState, node: NodeState) -> int:
        """Weigh a node by the pod's preferred terms: weight times pods in the domain, less what it would rather avoid."""
        constraints = task.spec.constraints
        labels = node.spec.labels
        namespace = task.spec.namespace
        return sum(
            sign * term.weight * self._in_domain(self._counts((term,), namespace)[0], labels)
            for sign, terms in ((1, constraints.pod_affinity), (-1, constraints.pod_anti_affinity))
            for term in terms
            if term.weight
        )

    @staticmethod
    def _in_domain(counts: DomainCounts, labels: Mapping[str, str]) -> int:
        counts.refresh()
        domain = labels.get(counts.key)
        return 0 if domain is None else counts.by_domain.get(domain, 0)

    def _affinity_holds(self, task: TaskState, terms: tuple[PodTerm, ...], node: NodeState) -> bool:
        labels = node.spec.labels
        if any(term.topology_key not in labels for term in terms):
            return False
        all_counts = self._counts(terms, task.spec.namespace)
        if all(self._in_domain(counts, labels) for counts in all_counts):
            return True
        if any(counts.total for counts in all_counts):
            return False
        own = dict(task.spec.labels)
        namespace = task.spec.namespace
        return all(term_matches(term, namespace, namespace, own) for term in terms)

    def _counts(self, terms: tuple[PodTerm, ...], namespace: str) -> tuple[DomainCounts, ...]:
        """Give, for each term's topology, the counts of the pods that all these terms mean."""
        key = (terms, namespace)
        found = self._wanted.get(key)
        if found is None:
            members = list(self._meant(terms, namespace))
            found = self._wanted[key] = tuple(
                DomainCounts(self._ledger, term.topology_key, members, self._terminating) for term in terms
            )
        return found

    def _meant(self, terms: tuple[PodTerm, ...], namespace: str) -> Iterator[TaskState]:
        first, *rest = terms
        labels = self.labels
        for task in labels.matching(first.selector, namespaces_of(first, namespace)):
            if all(
                term_matches(term, namespace, task.spec.namespace, labels.labels[task.id]) for term in rest
            ):
                yield task
