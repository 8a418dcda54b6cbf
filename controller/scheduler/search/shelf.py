"""The nodes on which room for one kind of pod can be made, the cheapest first, kept in order while an action goes on. Pure.

Every node stands on the shelf with a lower bound of what it would cost; only those that come to the front are worked out
exactly. A node that changes is put on the shelf anew, so jobs that are alike share one shelf and none looks at all nodes.
How queues are served changes with every eviction: what comes to the front by an old value is put back by the present one.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from controller.scheduler.amounts import GPU
from controller.scheduler.search.budget import Budget
from controller.scheduler.search.room_on_node import Choice, choose
from controller.scheduler.search.units import Over, Prices, Unit, may_leave, newness, weight
from controller.scheduler.state import JobState, NodeState, TaskState

MayGo: TypeAlias = Callable[[JobState], bool]
Allowed: TypeAlias = Callable[[list[Unit], NodeState], bool]
Takes: TypeAlias = Callable[[TaskState, NodeState], bool]

_Rank: TypeAlias = tuple[int, Over, int]


class _Bound:
    """Whose pods may leave a node that was not worked out yet: one job of each queue, and whether its pods have GPUs."""

    __slots__ = ("jobs", "node")

    def __init__(self, node: NodeState, jobs: list[tuple[JobState, bool]]) -> None:
        self.node = node
        self.jobs = jobs

    def over(self, prices: Prices) -> Over:
        """Say how the most over-served of these queues is served at the moment."""
        found = prices.over(*self.jobs[0], self.node)
        for job, by_gpu in self.jobs[1:]:
            found = min(found, prices.over(job, by_gpu, self.node))
        return found


_Entry: TypeAlias = tuple[int, Over, int, int, int, Choice | _Bound]
"""Rank, how the queue is served, newness, index of the node, which change of the node this is about, what is there."""


class Shelf:
    """Choices for pods like one `task`, on these nodes."""

    def __init__(
        self,
        budget: Budget,
        prices: Prices,
        task: TaskState,
        nodes: Iterable[NodeState],
        may_go: MayGo,
        allowed: Allowed,
        takes: Takes,
    ) -> None:
        self._budget = budget
        self._session = budget.session
        self._ledger = budget.session.ledger
        self._prices = prices
        self._task = task
        self._may_go = may_go
        self._allowed = allowed
        self._takes = takes
        self._age: dict[int, int] = {}
        self._heap: list[_Entry] = []
        for node in nodes:
            self._age[node.index] = 0
            bound = self._bound(node)
            if bound is not None:
                self._heap.append((*bound[0], node.index, 0, bound[1]))
        heapify(self._heap)
        self._cursor = len(self._ledger.changes)

    def best(self, task: TaskState) -> Choice | None:
        """Give the cheapest choice for this pod; it stays on the shelf. None where there is none, or the budget is spent."""
        self._task = task
        self._refresh()
        while self._heap:
            rank, over, new, index, age, choice = entry = self._heap[0]
            if age != self._age[index]:
                heappop(self._heap)
                continue
            now = choice.over(self._prices)
            if now > over:
                heapreplace(self._heap, (rank, now, new, index, age, choice))
                continue
            if isinstance(choice, Choice) and choice.is_current and self._allowed(choice.units, choice.node):
                return choice
            heappop(self._heap)
            if not self._budget.spend():
                heappush(self._heap, entry)
                return None
            node = self._ledger.nodes[index]
            found = choose(self._session, self._prices, task, node, self._may_go, self._allowed, self._takes)
            if found is not None:
                # The search on the node has left its marks on versions, and none on the books.
                found.renew()
                heappush(self._heap, (found.rank, found.over(self._prices), found.newness, index, age, found))
            self._cursor = len(self._ledger.changes)
        return None

    def drop(self, choice: Choice) -> None:
        """Take a choice that did not work off the shelf until its node changes; what it did has been taken back."""
        choice.renew()
        if self._heap and self._heap[0][-1] is choice:
            heappop(self._heap)
        self._cursor = len(self._ledger.changes)

    def _refresh(self) -> None:
        changes, nodes = self._ledger.changes, self._ledger.nodes
        for index in dict.fromkeys(changes[self._cursor :]):
            if index not in self._age:
                continue
            self._age[index] += 1
            bound = self._bound(nodes[index])
            if bound is not None:
                heappush(self._heap, (*bound[0], index, self._age[index], bound[1]))
        self._cursor = len(changes)

    def _bound(self, node: NodeState) -> tuple[_Rank, _Bound] | None:
        """Bound the cost from below: each GPU that is lacking costs what the cheapest on the node does; None = hopeless."""
        request = self._task.spec.request
        lacking = request.gpus - node.idle_gpus - node.releasing_gpus if request.gpus else 0
        cheapest: int | None = None
        newest = 0
        cards = 0
        jobs: dict[tuple[str, bool], JobState] = {}
        for task in node.tasks.values():
            job = task.job
            if job is None or not may_leave(task) or not self._may_go(job):
                continue
            cards += task.spec.request.gpus or len(task.devices)
            lost = self._prices.seconds(job) * self._prices.factor(job)
            cost = 1000 * lost if lacking > 0 else lost * weight(task)
            newest = min(newest, newness(job))
            jobs[job.spec.queue, task.amounts[GPU] > 0] = job
            if cheapest is None or cost < cheapest:
                cheapest = cost
        if cheapest is None or cards < lacking:
            return None
        if self._session.fit.refusal(self._session.fit.of(self._task)[0], node) is not None:
            return None
        found = _Bound(node, [(job, by_gpu) for (_, by_gpu), job in jobs.items()])
        return (cheapest * max(lacking, 1), found.over(self._prices), newest), found
