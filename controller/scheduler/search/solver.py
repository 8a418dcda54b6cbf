"""KAI's search for victims: the first scenario that works wins. Pure but for the ledger, which keeps a solution.

How many pods of the job can be placed at all is found by doubling and halving; the victims found for fewer pods are evicted
first in the search for more. Source: KAI Scheduler, solvers/job_solver.go and by_pod_solver.go; kai.md 2.4.
"""

from controller.scheduler import gangs
from controller.scheduler.model import ACTIVE_USED
from controller.scheduler.search.generators import Generator, multi_node, node_local
from controller.scheduler.search.scenario import Batch, Search, has_to_go, is_touched, simulate
from controller.scheduler.state import JobState, TaskState


def solve(search: Search) -> bool:
    """Make room for the job; True if the ledger holds a solution, else it is as it was."""
    tasks = list(gangs.tasks_to_place(search.session, search.job, real=False))
    if not tasks:
        return False
    failed: set[tuple[int, frozenset[str], frozenset[str]]] = set()
    for generator in (node_local, multi_node):
        if _Probe(search, generator, tasks, failed).solve():
            return True
        if search.budget.exhausted:
            return False
    return False


class _Probe:
    """The search with one series of scenarios. `recorded`: the victims that the last solution for fewer pods needed."""

    def __init__(
        self,
        search: Search,
        generator: Generator,
        tasks: list[TaskState],
        failed: set[tuple[int, frozenset[str], frozenset[str]]],
    ) -> None:
        self._search = search
        self._generator = generator
        self._tasks = tasks
        self._failed = failed
        self._recorded: list[Batch] = []

    def solve(self) -> bool:
        if self._most_pods() == 0:
            return False
        ledger, job = self._search.session.ledger, self._search.job
        before = _active(job)
        mark = ledger.mark()
        if self._try(len(self._tasks), keep=True) and gangs.is_satisfied(job) and _active(job) > before:
            return True
        ledger.undo_to(mark)
        return False

    def _most_pods(self) -> int:
        """Find the largest number of pods that can be placed, and record the victims on the way."""
        number, most, solved, unsolved = 1, len(self._tasks), 0, 0
        while True:
            if self._try(number, keep=False):
                solved = number
            else:
                unsolved = number
            if self._search.budget.exhausted:
                return 0
            if solved == most or (unsolved and unsolved - solved <= 1):
                return solved
            number = (solved + unsolved) // 2 if unsolved else min(2 * solved, most)

    def _try(self, number: int, keep: bool) -> bool:
        """Try scenarios for the first `number` pods; the first that works is recorded, or with `keep` stays done."""
        search = self._search
        tasks = self._tasks[:number]
        recorded = list(self._recorded)
        fixed = frozenset(task.id for batch in recorded for task in batch)
        for potential in self._generator(search, recorded, tasks):
            mark = (number, fixed, frozenset(task.id for batch in potential for task in batch))
            if mark in self._failed or not (recorded or potential):
                continue
            if not search.budget.spend():
                return False
            if self._solves(tasks, [*recorded, *potential], keep):
                return True
            self._failed.add(mark)
        return False

    def _solves(self, tasks: list[TaskState], batches: list[Batch], keep: bool) -> bool:
        search, ledger = self._search, self._search.session.ledger
        victims = list({task.id: task for batch in batches for task in batch}.values())
        mark = ledger.mark()
        works = simulate(search, tasks, victims)
        gone = {task.id for task in victims if has_to_go(task)}
        touched = {task.id for task in victims if is_touched(task)}
        ledger.undo_to(mark)
        # Queues are judged by what they had before the scenario, so it is taken back first.
        if not works or not search.valid(victims, gone, tasks):
            return False
        if keep:
            simulate(search, tasks, victims)
            search.session.gains.update((task_id, search.job.id) for task_id in touched)
        else:
            self._recorded = [batch for batch in batches if any(task.id in touched for task in batch)]
        return True


def _active(job: JobState) -> int:
    return sum(1 for task in job.tasks if task.status in ACTIVE_USED)
