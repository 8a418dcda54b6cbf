"""What pods ask for and what nodes have, by resource: how much of it a topology domain has for them. Pure."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from controller.scheduler import counting, node_books
from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.state import NodeState, TaskState

GPU: Final = "GPU"
CPU: Final = "CPU"
MEMORY: Final = "Memory"

Vector: TypeAlias = dict[str, int]


def vector(task: TaskState) -> Vector:
    """Give what a pod asks for that the books of a node count.

    Devices of claims are not there: whether they are free is asked when the pod is placed.
    """
    request = task.spec.request
    gpu = request.gpus * WHOLE_GPU + request.portion * request.devices
    found = {GPU: gpu, CPU: request.cpu_milli, MEMORY: request.memory_bytes}
    found |= dict(request.other)
    found |= {counting.mig_resource(profile): count for profile, count in request.mig}
    return {name: amount for name, amount in found.items() if amount > 0}


def free(node: NodeState, asked: Vector) -> Vector:
    """Give what of the asked resources a node has idle or is releasing; shares of cards that are in use do not count."""
    found: Vector = {}
    for name in asked:
        if name == GPU:
            found[name] = (node.idle_gpus + node.releasing_gpus) * WHOLE_GPU
        elif name == CPU:
            found[name] = node.idle_cpu + node.releasing_cpu
        elif name == MEMORY:
            found[name] = node.idle_memory + node.releasing_memory
        else:
            found[name] = node.idle_other.get(name, 0) + node.releasing_other.get(name, 0)
    return found


def shared_free(node: NodeState) -> int:
    """Add up the milli-GPU that shared cards of a node have left once all is gone that is being released."""
    return sum(
        max(WHOLE_GPU - device.used_milli + device.releasing_milli - device.claimed_milli, 0)
        for device in node.devices
        if device.open and node_books.is_shared_later(device)
    )


def add(one: Vector, other: Vector) -> None:
    """Add the other vector to the first."""
    for name, amount in other.items():
        one[name] = one.get(name, 0) + amount


def added(vectors: Iterable[Vector]) -> Vector:
    """Give the sum."""
    found: Vector = {}
    for vector in vectors:
        add(found, vector)
    return found


def largest(tasks: list[TaskState]) -> Vector:
    """Give the most that any of the tasks asks for, by resource."""
    found: Vector = {}
    for task in tasks:
        for name, amount in vector(task).items():
            found[name] = max(found.get(name, 0), amount)
    return found


def smallest(tasks: list[TaskState]) -> Vector:
    """Give the least that every one of the tasks asks for."""
    vectors = [vector(task) for task in tasks]
    shared = set(vectors[0]).intersection(*vectors[1:])
    return {name: min(vector[name] for vector in vectors) for name in vectors[0] if name in shared}


def are_alike(tasks: list[TaskState]) -> bool:
    """Tell whether all ask for the same kinds of resources beside CPU and memory, which everybody needs."""
    kinds = {frozenset(vector(task)) - {CPU, MEMORY} for task in tasks}
    return len(kinds) == 1
