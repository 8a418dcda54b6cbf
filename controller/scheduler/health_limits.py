"""What a sick node still takes: effects narrow it instead of closing it. Pure.

Source: the design's "Effect and urgency: degraded is not dead". A slow InfiniBand port hurts only pods that talk over it; a
dead NVLink only pods of several GPUs on the node; an unfenced sick card every pod that kubelet might give it to.
"""

from controller.scheduler.model import Node, PartHealth, Request
from controller.scheduler.state import JobState, NodeState, TaskState

HERE = frozenset({"Allocated", "Pipelined", "Binding", "Bound", "Running"})


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


def why_not_gang(task: TaskState, node: NodeState, later: bool) -> str | None:
    """Say why a gang's pod stays off a node, where some node is bad between nodes (no_multi_node).

    The rule: a gang goes to such a node whole or not at all. So the bad node takes a member only if no other is elsewhere
    and all that still wait have room there together, and another node takes none while one is on a bad node. What is asked
    is who is placed and who waits, never in which order they came, so every order ends the same. A gang that already lies
    across nodes may go on growing on good ones: it has the slow path anyway.
    """
    job = task.job
    if job is None or not _talks(task) or not is_gang(job):
        return None
    places = {
        other.node.index: other.node
        for other in job.tasks
        if other is not task and other.node is not None and other.status in HERE and _talks(other)
    }
    if node.spec.no_multi_node:
        if any(index != node.index for index in places) or not _all_have_room(job, node, later):
            return node.spec.no_multi_node
        return None
    if len(places) == 1:
        for held in places.values():
            return held.spec.no_multi_node or None if held is not node else None
    return None


def _all_have_room(job: JobState, node: NodeState, later: bool) -> bool:
    """Tell whether all pods of a gang that wait fit on one node, by sums: cards, CPU, memory, pods."""
    cards = cpu = memory = pods = 0
    for task in job.tasks:
        if task.status not in ("Pending", "Gated") and not (task.evicted and task.status == "Releasing"):
            continue
        request = task.spec.request
        cards += max(request.gpus, request.dra_gpus) * 1000
        cards += request.devices * (request.portion or (1000 if request.gpu_memory_mib else 0))
        cpu += request.cpu_milli
        memory += request.memory_bytes
        pods += 1
    more = 1 if later else 0
    return (
        cards <= _free_cards(node, later)
        and cpu <= node.idle_cpu + more * node.releasing_cpu
        and memory <= node.idle_memory + more * node.releasing_memory
        and pods <= node.idle_pods + more * node.releasing_pods
    )


def _free_cards(node: NodeState, later: bool) -> int:
    """Add up what cards have free in milli-GPU: whole ones as the node counts them, and the rest of shared ones."""
    free = (node.idle_gpus + (node.releasing_gpus if later else 0)) * 1000
    for device in node.devices:
        if device.open and 0 < device.used_milli < 1000:
            free += 1000 - device.used_milli
    return free
