"""What a sick node still takes: effects narrow it instead of closing it. Pure.

Source: the design's "Effect and urgency: degraded is not dead". A slow InfiniBand port hurts only pods that talk over it; a
dead NVLink only pods of several GPUs on the node; an unfenced sick card every pod that kubelet might give it to.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import ACTIVE_USED, TaskStatus
from controller.scheduler.nodes import Node, PartHealth
from controller.scheduler.requests import Request
from controller.scheduler.state import JobState, NodeSet, NodeState, TaskState

MOST_HOMES: Final = 8
"""On how many bad nodes a gang that fits nowhere else is tried whole."""


def gpu_devices(request: Request) -> int:
    """Count the cards that a pod needs to talk to each other; MIG instances never do (no peer access between them)."""
    if request.is_shared:
        return request.devices
    return max(request.gpus, request.dra_gpus)


def why_not_health(node: Node, request: Request) -> str | None:
    """Say which finding keeps this kind of pod off a node, whatever else runs: the condition's reason."""
    if node.closed:
        return node.closed
    if request.asks_for_gpu:
        if node.no_new_gpu:
            return node.no_new_gpu
        if request.mig and node.no_new_mig:
            return node.no_new_mig
        if node.no_multi_gpu and gpu_devices(request) > 1:
            return node.no_multi_gpu
    if node.no_multi_node and request.rdma:
        return node.no_multi_node
    return None


def is_avoided(node: Node, request: Request) -> bool:
    """Tell whether a node comes last for such a pod: by a finding on the node, or on a card that kubelet might give it.

    The scheduler does not choose the card of a whole-GPU pod (kubelet does), so one avoided card makes the node avoided.
    """
    if node.avoid:
        return True
    if not request.asks_for_gpu:
        return False
    return any(gpu.avoid and gpu.offered and gpu.health is PartHealth.HEALTHY for gpu in node.gpus)


def _talks(task: TaskState) -> bool:
    request = task.spec.request
    return request.asks_for_gpu or request.rdma


def is_gang(job: JobState) -> bool:
    """Tell whether a job's pods work together: it needs more than one to start."""
    return sum(pod_set.min_available for pod_set in job.pod_sets.values()) > 1


class NarrowGangs:
    """Keeps gangs off nodes that are bad between nodes (no_multi_node). `is_needed` False: there is no such node.

    The rule: a gang goes to such a node whole or not at all. So the bad node takes a member only if no other is elsewhere
    and all that still wait have room there together, and another node takes none while the gang is on a bad one. What is
    asked is who is placed and who waits, never in which order they came, so every order ends the same. A gang that already
    lies across nodes may go on growing on good ones: it has the slow path anyway.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._bad = [node for node in ledger.nodes if node.spec.no_multi_node]
        self.is_needed = bool(self._bad)
        self._known: tuple[str, int, NodeState | None] = ("", -1, None)

    def why_not(self, task: TaskState, node: NodeState, later: bool) -> str | None:
        """Say why a gang's pod stays off a node."""
        job = task.job
        if job is None or not _talks(task) or not is_gang(job):
            return None
        if node.spec.no_multi_node:
            if _is_elsewhere(task, job, node) or not _all_have_room(job, node, later):
                return node.spec.no_multi_node
            return None
        held = self._bad_node_of(job)
        if held is None or _is_elsewhere(task, job, held):
            return None
        return held.spec.no_multi_node

    def homes(self, job: JobState, only: NodeSet | None, later: bool) -> Iterator[NodeSet]:
        """Give the bad nodes, each by itself, that would hold all of a gang: tries for when good nodes were not enough."""
        if not self._bad or not is_gang(job):
            return
        found = (
            node
            for node in self._bad
            if (only is None or node.index in only.nodes)
            and _all_have_room(job, node, later)
            and not any(task.node not in (None, node) and task.status in ACTIVE_USED for task in job.tasks)
        )
        for node in islice(found, MOST_HOMES):
            yield NodeSet(("whole on", node.name), frozenset((node.index,)))

    def _bad_node_of(self, job: JobState) -> NodeState | None:
        """Give a bad node that a gang is on; remembered as long as nothing moved."""
        moves = len(self._ledger.changes)
        if self._known[:2] != (job.id, moves):
            few = (task for node in self._bad for task in node.tasks.values() if task.job is job)
            tasks = few if len(self._bad) < len(job.tasks) else job.tasks
            found = (
                task.node
                for task in tasks
                if task.node is not None
                and task.node.spec.no_multi_node
                and task.status in ACTIVE_USED
                and _talks(task)
            )
            self._known = (job.id, moves, next(found, None))
        return self._known[2]


def _is_elsewhere(task: TaskState, job: JobState, node: NodeState) -> bool:
    """Tell whether another member of a gang is on another node than this."""
    return any(
        other is not task
        and other.node is not None
        and other.node is not node
        and other.status in ACTIVE_USED
        and _talks(other)
        for other in job.tasks
    )


def _all_have_room(job: JobState, node: NodeState, later: bool) -> bool:
    """Tell whether all pods of a gang that wait fit on one node, by sums: cards, CPU, memory, pods."""
    share = 1 if later else 0
    cards = _free_cards(node, later)
    cpu = node.idle_cpu + share * node.releasing_cpu
    memory = node.idle_memory + share * node.releasing_memory
    pods = node.idle_pods + share * node.releasing_pods
    for task in job.tasks:
        waits = task.status is TaskStatus.PENDING or task.status is TaskStatus.GATED
        if not waits and not (task.evicted and task.status is TaskStatus.RELEASING):
            continue
        request = task.spec.request
        cards -= max(request.gpus, request.dra_gpus) * WHOLE_GPU
        cards -= request.devices * (request.portion or (WHOLE_GPU if request.gpu_memory_mib else 0))
        cpu -= request.cpu_milli
        memory -= request.memory_bytes
        pods -= 1
        if cards < 0 or cpu < 0 or memory < 0 or pods < 0:
            return False
    return True


def _free_cards(node: NodeState, later: bool) -> int:
    """Add up what cards have free in milli-GPU: whole ones as the node counts them, and the rest of shared ones."""
    free = (node.idle_gpus + (node.releasing_gpus if later else 0)) * WHOLE_GPU
    for device in node.devices:
        if device.open and 0 < device.used_milli < WHOLE_GPU:
            free += WHOLE_GPU - device.used_milli
    return free
