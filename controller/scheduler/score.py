"""In which order nodes are tried: numbers by which a pod's nodes are sorted, smaller first. Pure; integers only.

Source: kai.md 6.1. KAI adds weighted scores whose weights are powers of ten, so that the order is lexicographic: topology
domain, a shared card that has room already, fits what is idle, CPU pods to nodes without GPUs, bin-packing or spreading, and
the name. Before all of these, ours puts nodes to avoid last. `free` is what bin-packing looks at: idle and being released.
"""

from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.fit import is_mig
from controller.scheduler.model import Order
from controller.scheduler.requests import Request
from controller.scheduler.state import DeviceState, NodeState

NONE_OF_IT = (1 << 56) - 1
"""What stands for a node that has none of the resource: its score is nothing, so it comes last."""
_FOR_CPU = Request()
_FOR_WHOLE = Request(gpus=1)
_FOR_CLAIMS = Request(dra_gpus=1)
_FINE = 30
"""Bits kept of a ratio; two different ratios of milli-GPU of one node never fall together."""


def free_gpus(node: NodeState, order: Order) -> int:
    """Rank a node for a pod with GPUs."""
    if order is Order.BINPACK:
        return max(node.idle_gpus + node.releasing_gpus, 0) if node.devices else NONE_OF_IT
    count = len(node.devices)
    if not count:
        return NONE_OF_IT
    free = (node.idle_gpus + node.releasing_gpus) * WHOLE_GPU
    for device in node.devices:
        if 0 < device.used_milli < WHOLE_GPU:
            free += WHOLE_GPU - device.used_milli
            if device.releasing_milli < device.used_milli:
                free += device.releasing_milli
    return NONE_OF_IT - 1 - (max(free, 0) << _FINE) // count


def free_cpu(node: NodeState, order: Order) -> int:
    """Rank a node for a pod without GPUs."""
    total = node.spec.cpu_milli
    if not total:
        return NONE_OF_IT
    free = max(node.idle_cpu + node.releasing_cpu, 0)
    return free if order is Order.BINPACK else NONE_OF_IT - 1 - (free << _FINE) // total


def about(request: Request) -> Request:
    """Give what of a request the order of nodes depends on, sizes of shares rounded down, so that few indexes are kept.

    Portions of twentieths of a card stay what they are; memory keeps its four highest bits.
    """
    if not request.asks_for_gpu:
        return _FOR_CPU
    if request.portion:
        return Request(portion=max(request.portion // 50 * 50, 1), devices=request.devices)
    mib = request.gpu_memory_mib
    if mib:
        low = max(mib.bit_length() - 4, 0)
        return Request(gpu_memory_mib=mib >> low << low, devices=request.devices)
    return _FOR_CLAIMS if request.dra_gpus else _FOR_WHOLE


def has_shared_room(node: NodeState, request: Request) -> bool:
    """Tell whether a card that is shared already has room for one more such pod, and will not be left empty."""
    return any(_has_room(device, request) for device in node.devices)


def _has_room(device: DeviceState, request: Request) -> bool:
    if not device.open or not device.used_milli + device.claimed_milli:
        return False
    if device.used_milli == device.releasing_milli - device.claimed_milli:
        return False
    if request.gpu_memory_mib:
        free = device.mib - device.used_mib + device.releasing_mib - device.claimed_mib
        return free >= request.gpu_memory_mib
    free = WHOLE_GPU - device.used_milli + device.releasing_milli - device.claimed_milli
    return free >= request.portion


def is_cpu_only(node: NodeState, has_claimable: bool) -> bool:
    """Tell whether a node offers no GPU in any way."""
    return not node.devices and not has_claimable and not is_mig(node.spec)
