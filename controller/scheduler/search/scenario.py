"""One scenario: these pods are evicted, the waiting job is placed, and the victims look for a new place.

A scenario is tried on the ledger itself between `mark` and `undo_to`, with every rule of placement, so that nothing is
evicted that would not help. Source: KAI Scheduler, actions/common/action.go and solvers/by_pod_solver.go; kai.md 2.4.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from controller.scheduler import place
from controller.scheduler.job_order import JobsByQueue, is_pending
from controller.scheduler.model import ACTIVE_USED, HOLDING
from controller.scheduler.search.budget import Budget
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeSet, NodeState, TaskState

Batch: TypeAlias = tuple[TaskState, ...]
"""Pods that leave together: one surplus pod, a surplus subgroup, or a whole job."""


class Search:
    """What is searched for: room for `job` by `action`.

    `victims` makes the queue of jobs that may be evicted, afresh for each try. `valid` judges one that placed the job:
    it is given the victims in order, what has to go of them, and the pods placed, on a ledger without the scenario. `why`
    says why this pod goes.
    """

    __slots__ = ("action", "budget", "feasible", "job", "pending", "session", "valid", "victims", "why")

    def __init__(
        self,
        budget: Budget,
        job: JobState,
        victims: Callable[[], JobsByQueue],
        valid: Callable[[list[TaskState], set[str], list[TaskState]], bool],
        why: Callable[[TaskState], str],
    ) -> None:
        self.session: Session = budget.session
        self.action = budget.action
        self.budget = budget
        self.job = job
        self.victims = victims
        self.valid = valid
        self.why = why
        self.pending = [other for other in self.session.ledger.jobs.values() if is_pending(other)]
        self.feasible = _feasible(self.session, job)


def gpu_room(node: NodeState) -> int:
    """Count the milli-GPU of a node that are free or will be: whole cards, rests of shared ones, MIG instances."""
    room = 1000 * (node.idle_gpus + node.releasing_gpus)
    for device in node.devices:
        if 0 < device.used_milli < 1000:
            room += 1000 - device.used_milli
        if 0 < device.releasing_milli < 1000:
            room += device.releasing_milli
    for counters in (node.idle_other, node.releasing_other):
        for name, count in counters.items():
            if name.startswith("nvidia.com/mig-"):
                room += 1000 * count
    return room


def _feasible(session: Session, job: JobState) -> frozenset[int]:
    """Choose the nodes that are open to the whole search besides those of the victims (KAI's FeasibleNodesForJob)."""
    nodes = session.ledger.nodes
    if all(task.spec.request.asks_for_gpu and not task.spec.request.claims for task in job.tasks):
        return frozenset(node.index for node in nodes if gpu_room(node) > 0)
    return frozenset(range(len(nodes)))


def _only(search: Search, victims: list[TaskState]) -> NodeSet | None:
    """Confine the search to feasible nodes, where it matters: pods without a GPU could go elsewhere."""
    if all(task.spec.request.asks_for_gpu for task in victims):
        return None
    nodes = search.feasible.union(task.node.index for task in victims if task.node is not None)
    if len(nodes) == len(search.session.ledger.nodes):
        return None
    return NodeSet(("search", ",".join(map(str, sorted(nodes)))), nodes)


def simulate(search: Search, tasks: list[TaskState], victims: list[TaskState]) -> bool:
    """Evict, then place the job's `tasks` and the victims in the order of queues and jobs; True if the job has its place.

    The ledger keeps what was done: the caller has marked it. A victim that finds its own place again is not evicted.
    """
    session, job = search.session, search.job
    only = _only(search, victims)
    reasons = [search.why(task) for task in victims]
    for task, why in zip(victims, reasons, strict=True):
        session.ledger.evict(task, why)
    waiting = {task.job.id: task.job for task in victims if task.job is not None}
    # Others that wait are looked at, though never placed: whose turn it is depends on the next job of each queue.
    jobs: dict[str, JobState] = {other.id: other for other in search.pending}
    jobs.update(waiting)
    jobs[job.id] = job
    whole = session.to_place.get((job.id, False))
    session.to_place[job.id, False] = (job.version, tasks)
    try:
        return _place_in_order(search, tasks, waiting, jobs.values(), only)
    finally:
        session.to_place.pop((job.id, False), None)
        if whole is not None:
            session.to_place[job.id, False] = whole


def _place_in_order(
    search: Search,
    tasks: list[TaskState],
    waiting: dict[str, JobState],
    jobs: Iterable[JobState],
    only: NodeSet | None,
) -> bool:
    session, job = search.session, search.job
    placed = False
    order = JobsByQueue(session, jobs)
    while (waiting or not placed) and (candidate := order.pop()) is not None:
        if candidate is job:
            if not place.place_job(session, job, real=False, only=only, tasks=tasks):
                return False
            placed = True
        elif waiting.pop(candidate.id, None) is not None:
            place.place_job(session, candidate, real=False, only=only)
    return placed


def has_to_go(task: TaskState) -> bool:
    """Tell whether a victim found no place again."""
    return task.status not in ACTIVE_USED


def is_touched(task: TaskState) -> bool:
    """Tell whether a victim goes or moves: it is not back where it was."""
    return task.status not in HOLDING
