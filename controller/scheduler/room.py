"""Whether a node has room for a pod, by amounts alone, in kube-scheduler's words. Pure."""

from controller.scheduler.gpu_choice import choose, count_shared, fits_empty
from controller.scheduler.model import Order
from controller.scheduler.node_books import extended
from controller.scheduler.requests import Request
from controller.scheduler.rules import Rules
from controller.scheduler.state import NodeState

NO_GPU = "Insufficient nvidia.com/gpu"
NO_SHARE = "Insufficient nvidia.com/gpu: no card has room for the share"
NO_MEMORY_KNOWN = "node(s) had GPUs of unknown memory"
ONLY_MIG = "node(s) had GPUs that are cut into MIG instances"
ONLY_WHOLE_MIG = "node(s) gave MIG instances as whole GPUs only"


def why_not(request: Request, node: NodeState, later: bool, rules: Rules) -> str | None:
    """Say why a node has no room for a request now or, with `later`, once all is gone that is being released."""
    cpu, memory, pods = node.idle_cpu, node.idle_memory, node.idle_pods
    if later:
        cpu, memory = cpu + node.releasing_cpu, memory + node.releasing_memory
        pods += node.releasing_pods
    elif rules.keep_promises and (
        node.releasing_cpu < 0 or node.releasing_memory < 0 or node.releasing_pods < 0
    ):  # what pipelined pods claim beyond what is being released is idle, and theirs
        cpu, memory = cpu + min(node.releasing_cpu, 0), memory + min(node.releasing_memory, 0)
        pods += min(node.releasing_pods, 0)
    if pods < 1:
        return _why_no_pod(node)
    if request.best_effort and not request.asks_for_gpu:
        return None
    if request.cpu_milli > cpu:
        return "Insufficient cpu"
    if request.memory_bytes > memory:
        return "Insufficient memory"
    if request.gpus:
        if request.gpus > free_gpus(node, later, rules):
            return NO_GPU
        if not node.spec.mig:
            return None if not request.other else _why_not_extended(request, node, later, rules)
    if request.other or request.mig:
        why = _why_not_extended(request, node, later, rules)
        if why is not None:
            return why
    return _why_not_kind(request, node) or (
        _why_not_shared(request, node, later, rules) if request.is_shared else None
    )


def _why_no_pod(node: NodeState) -> str:
    return node.spec.probe or "Too many pods"


def free_gpus(node: NodeState, later: bool, rules: Rules) -> int:
    """Count the whole GPUs that a new pod may have now or, with `later`, once all is gone that is being released."""
    if later:
        return node.idle_gpus + node.releasing_gpus
    if rules.keep_promises and node.releasing_gpus < 0:
        return node.idle_gpus + node.releasing_gpus
    return node.idle_gpus


def _why_not_extended(request: Request, node: NodeState, later: bool, rules: Rules) -> str | None:
    for name, count in extended(request):
        free = node.idle_other.get(name, 0)
        if later:
            free += node.releasing_other.get(name, 0)
        elif rules.keep_promises:
            free += min(node.releasing_other.get(name, 0), 0)
        if count > free:
            return f"Insufficient {name}"
    return None


def _why_not_kind(request: Request, node: NodeState) -> str | None:
    """Keep requests off nodes that give their GPUs in another form (KAI's predicate by the node's kind of resources)."""
    spec = node.spec
    if not spec.mig or not request.asks_for_gpu:
        return None
    if spec.mig_strategy == "single":
        return None if request.gpus else ONLY_WHOLE_MIG
    if request.is_shared or (spec.mig_strategy == "mixed" and not request.mig):
        return ONLY_MIG
    return None


def _why_not_shared(request: Request, node: NodeState, later: bool, rules: Rules) -> str | None:
    if request.gpu_memory_mib and not node.spec.gpu_memory_known:
        return NO_MEMORY_KNOWN
    if not later and rules.share_what_is_free:
        return None if choose(request, node, False, Order.BINPACK, rules) is not None else NO_SHARE
    if not any(fits_empty(request, device) for device in node.devices):
        return NO_SHARE
    # KAI counts a shared card that has room only later as room now, and then lets the pod wait for it.
    free = node.idle_gpus + node.releasing_gpus if later else node.idle_gpus
    return None if free + count_shared(request, node) >= request.devices else NO_SHARE
