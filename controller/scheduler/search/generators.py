"""In which order KAI tries sets of victims: two series of scenarios, each smaller sets before larger ones. Pure.

Victims are taken one batch after the other from the queue of victims. `node_local` tries, after each batch, what was taken
on each node of the newest victim; `multi_node` tries, after each batch, growing sets of nodes, those with the least room
first. Source: KAI Scheduler, plugins nodelocalgreedy and multinodegang, solvers/sub_scenario_emitter.go; kai.md 2.4.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from controller.scheduler import gangs
from controller.scheduler.model import ACTIVE_USED
from controller.scheduler.search.scenario import Batch, Search, gpu_room
from controller.scheduler.search.units import stays
from controller.scheduler.state import TaskState

Generator: TypeAlias = Callable[[Search, list[Batch], list[TaskState]], Iterator[list[Batch]]]
"""Given the search, the recorded victims and the pods to place: yields batches to evict besides the recorded ones."""


def batches(search: Search, recorded: list[Batch]) -> Iterator[Batch]:
    """Yield the victims of the search in their order, without those recorded."""
    recorded_ids = {task.id for batch in recorded for task in batch}
    gone: dict[str, frozenset[str]] = {}
    queue = search.victims()
    while (job := queue.pop()) is not None:
        tasks, more = gangs.tasks_to_evict(job, gone.get(job.id, frozenset()))
        ids = {task.id for task in tasks}
        known = ids & recorded_ids
        if known:
            ids = {task.id for task in job.tasks if task.id in recorded_ids}
            more = any(
                task.status in ACTIVE_USED
                and task.id not in ids
                and task.id not in gone.get(job.id, frozenset())
                for task in job.tasks
            )
        if more:
            gone[job.id] = gone.get(job.id, frozenset()) | ids
            queue.push(job, gone[job.id])
        if not known and tasks and not any(_stays(search, task) for task in tasks):
            yield tuple(tasks)


def _stays(search: Search, task: TaskState) -> bool:
    """Tell whether a pod is nobody's victim. KAI may take back what it has placed in the same cycle (`victims_by_cost`)."""
    is_ours = search.session.rules.victims_by_cost
    return task.spec.protected != "" or (is_ours and stays(task))


def node_local(search: Search, recorded: list[Batch], tasks: list[TaskState]) -> Iterator[list[Batch]]:
    """Yield, batch after batch, the victims that share a node with the newest one."""
    if recorded:
        yield []
    taken: list[Batch] = []
    for batch in batches(search, recorded):
        taken.append(batch)
        if not _could_fit(search, tasks, recorded, taken):
            continue
        yield from _by_node_of_newest(recorded, taken)


def _by_node_of_newest(recorded: list[Batch], taken: list[Batch]) -> Iterator[list[Batch]]:
    newest = taken[-1][0].job
    if newest is None:
        return
    names = sorted({task.node.name for task in newest.tasks if task.node is not None})
    seen: set[frozenset[str]] = set()
    for name in names:
        on_node = {
            task.job.id for batch in taken for task in batch if task.job is not None and _is_on(task, name)
        }
        grouped: dict[str, dict[str, TaskState]] = {}
        for batch in (*recorded, *taken):
            for task in batch:
                if task.job is not None and task.job.id in on_node:
                    grouped.setdefault(task.job.id, {})[task.id] = task
        key = frozenset(task_id for group in grouped.values() for task_id in group)
        if key and key not in seen:
            seen.add(key)
            yield [tuple(group.values()) for group in grouped.values()]


def _is_on(task: TaskState, name: str) -> bool:
    return task.node is not None and task.node.name == name


def multi_node(search: Search, recorded: list[Batch], tasks: list[TaskState]) -> Iterator[list[Batch]]:
    """Yield, batch after batch, all that was taken on the first few nodes, one node more each time."""
    if recorded:
        yield []
    taken: list[Batch] = []
    for batch in batches(search, recorded):
        taken.append(batch)
        if _could_fit(search, tasks, recorded, taken):
            yield from _by_growing_nodes(search, recorded, taken, tasks)


def _by_growing_nodes(
    search: Search, recorded: list[Batch], taken: list[Batch], tasks: list[TaskState]
) -> Iterator[list[Batch]]:
    on_node: dict[int, list[int]] = {}
    room: dict[int, int] = {}
    nodes = search.session.ledger.nodes
    for number, batch in enumerate(taken):
        for task in batch:
            if task.node is not None:
                index = task.node.index
                numbers = on_node.setdefault(index, [])
                if not numbers or numbers[-1] != number:
                    numbers.append(number)
                room[index] = room.get(index, gpu_room(task.node)) + task.amounts[0]
    freed: dict[int, int] = {}
    for batch in recorded:
        for task in batch:
            if task.node is not None:
                freed[task.node.index] = freed.get(task.node.index, 0) + task.amounts[0]
    for index in room:
        room[index] += freed.get(index, 0)
    wanted = [_gpu_demand(task) for task in search.job.tasks if task.status in ACTIVE_USED] + list(
        map(_gpu_demand, tasks)
    )
    smallest = min(wanted)
    order = {index: position for position, index in enumerate(on_node)}
    chosen = sorted(
        (index for index in on_node if room[index] >= smallest), key=lambda index: (room[index], order[index])
    )
    feasible = search.feasible | freed.keys()
    lacking = sum(wanted) - sum(
        gpu_room(nodes[index]) + freed.get(index, 0) for index in feasible if index not in on_node
    )
    count = 0
    while lacking > 0 and count < len(chosen):
        lacking -= room[chosen[count]]
        count += 1
    if lacking > 0:
        return
    for size in range(count, len(chosen) + 1):
        numbers = sorted({number for index in chosen[:size] for number in on_node[index]})
        yield [taken[number] for number in numbers]


def _gpu_demand(task: TaskState) -> int:
    """Give the milli-GPU that a pod asks for; a request by memory counts as none, as in KAI."""
    return 0 if task.spec.request.gpu_memory_mib else task.amounts[0]


def _could_fit(search: Search, tasks: list[TaskState], recorded: list[Batch], taken: list[Batch]) -> bool:
    """Tell whether the largest pod has a node with enough GPUs once all of these are gone: a bound that only saves time."""
    largest = max((task.spec.request.gpus for task in tasks), default=0) * 1000
    if largest == 0:
        return True
    freed: dict[int, int] = {}
    for batch in (*recorded, *taken):
        for task in batch:
            if task.node is not None:
                freed[task.node.index] = freed.get(task.node.index, 0) + 1000 * max(
                    task.spec.request.gpus, len(task.devices), 1
                )
    nodes = search.session.ledger.nodes
    # Where nothing was taken the job had its chance when it was to be allocated, but for a gang's other pods.
    return any(gpu_room(nodes[index]) + room >= largest for index, room in freed.items()) or any(
        gpu_room(nodes[index]) >= largest for index in search.feasible
    )
