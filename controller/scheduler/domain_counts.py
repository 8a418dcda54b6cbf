"""How many of certain pods are in each topology domain, kept up to date as the ledger moves pods. Pure.

Inter-pod affinity and topology spread both ask it. Which pods are meant is fixed (labels do not change within a cycle), so a
count is made once from those pods alone, and afterwards only nodes that changed are counted again.
"""

from collections.abc import Iterable, Mapping

from controller.scheduler.ledger import Ledger
from controller.scheduler.model import TaskStatus
from controller.scheduler.node_terms import selector_holds
from controller.scheduler.requests import Expression
from controller.scheduler.state import NodeState, TaskState

GONE = frozenset({TaskStatus.PENDING, TaskStatus.GATED, TaskStatus.SUCCEEDED, TaskStatus.FAILED})


def is_counted(task: TaskState, terminating_counts: bool) -> bool:
    """Tell whether a pod counts as being on its node.

    What this cycle evicts never does: whoever takes its place waits until it is gone (KAI leaves it out likewise). A pod
    that ends by itself counts for KAI and kube-scheduler's affinity; by the rule terminating_frees_affinity it does not.
    """
    if task.node is None or task.status in GONE:
        return False
    if task.status is TaskStatus.RELEASING:
        return terminating_counts and not task.evicted
    return True


class DomainCounts:
    """Pods of a fixed set by value of one node label. `by_domain` has domains with at least one of them."""

    __slots__ = (
        "_cursor",
        "_eligible",
        "_ledger",
        "_members",
        "_on_node",
        "_terminating",
        "by_domain",
        "key",
        "total",
    )

    def __init__(
        self,
        ledger: Ledger,
        key: str,
        members: Iterable[TaskState],
        terminating_counts: bool,
        eligible: bytearray | None = None,
    ) -> None:
        self._ledger = ledger
        self.key = key
        self._members = {task.id: task for task in members}
        self._terminating = terminating_counts
        self._eligible = eligible
        self._on_node: dict[int, int] = {}
        self.by_domain: dict[str, int] = {}
        self.total = 0
        self._cursor = -1
        self._count_all()

    def _count_all(self) -> None:
        self._on_node.clear()
        self.by_domain.clear()
        self.total = 0
        for task in self._members.values():
            if task.node is not None and is_counted(task, self._terminating):
                self._move(task.node, self._on_node.get(task.node.index, 0) + 1)
        self._cursor = len(self._ledger.changes)

    def refresh(self) -> None:
        """Count nodes again that the ledger touched since."""
        changes = self._ledger.changes
        behind = len(changes) - self._cursor
        if not behind:
            return
        if behind > len(self._members):
            self._count_all()
            return
        for index in dict.fromkeys(changes[self._cursor :]):
            node = self._ledger.nodes[index]
            members = self._members
            self._move(
                node,
                sum(
                    task.node is node and is_counted(task, self._terminating)
                    for identity, task in node.tasks.items()
                    if identity in members
                ),
            )
        self._cursor = len(changes)

    def _move(self, node: NodeState, count: int) -> None:
        domain = node.spec.labels.get(self.key)
        if domain is None or (self._eligible is not None and not self._eligible[node.index]):
            return
        change = count - self._on_node.get(node.index, 0)
        if change == 0:
            return
        self._on_node[node.index] = count
        self.total += change
        now = self.by_domain.get(domain, 0) + change
        if now:
            self.by_domain[domain] = now
        else:
            del self.by_domain[domain]


class PodLabels:
    """All pods of a cycle, found by namespace and label without looking at each."""

    def __init__(self, tasks: Iterable[TaskState]) -> None:
        self._tasks = list(tasks)
        self.labels: dict[str, Mapping[str, str]] = {}
        self._by_pair: dict[tuple[str, str], list[TaskState]] = {}
        for task in self._tasks:
            self.labels[task.id] = dict(task.spec.labels)
            for pair in task.spec.labels:
                self._by_pair.setdefault(pair, []).append(task)

    def matching(
        self, selector: tuple[Expression, ...], namespaces: frozenset[str] | None
    ) -> list[TaskState]:
        """Give the pods that a selector matches in these namespaces (None = all of them)."""
        some = self._tasks
        for each in selector:
            if each.operator == "In":
                found = [task for value in each.values for task in self._by_pair.get((each.key, value), ())]
                if len(found) < len(some):
                    some = found
        return [
            task
            for task in some
            if (namespaces is None or task.spec.namespace in namespaces)
            and selector_holds(selector, self.labels[task.id])
        ]
