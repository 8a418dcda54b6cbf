"""The books of one node: what is held, what is being released, what is claimed of that. Pure arithmetic, exactly reversible.

A card is one whole GPU to `idle_gpus` while nothing is on it, and one of `releasing_gpus` while all that is on it is being
released and nobody claims any of it. A claim on a card that nothing else will stay on takes one of `releasing_gpus`, even
below zero where the card is idle: KAI counts its shared groups like that (node_info, gpu_sharing_node_info).
"""

from collections.abc import Iterator

from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.counting import mig_resource
from controller.scheduler.requests import Request
from controller.scheduler.state import DeviceState, NodeState


def on_card(request: Request, device: DeviceState) -> tuple[int, int]:
    """Give the milli-GPU and MiB that a request takes of one card; a card is full when either is."""
    if request.portion:
        return request.portion, request.portion * device.mib // WHOLE_GPU
    if request.gpu_memory_mib:
        milli = request.gpu_memory_mib * WHOLE_GPU // device.mib if device.mib else WHOLE_GPU
        return milli, request.gpu_memory_mib
    return WHOLE_GPU, device.mib


def extended(request: Request) -> Iterator[tuple[str, int]]:
    """Give what a request asks for of extended resources, MIG instances by their full resource names."""
    yield from request.other
    for profile, count in request.mig:
        yield mig_resource(profile), count


def hold(request: Request, node: NodeState, devices: tuple[DeviceState, ...], sign: int) -> None:
    """Take (sign 1) or give back (sign -1) what a pod holds of the idle resources of a node."""
    node.idle_cpu -= sign * request.cpu_milli
    node.idle_memory -= sign * request.memory_bytes
    node.idle_pods -= sign
    if request.other or request.mig:
        _count(node.idle_other, request, -sign)
    if len(devices) < request.gpus:
        # Pods that hold more cards than there are leave the node in debt: it gives nothing until that is paid.
        node.idle_gpus -= sign * (request.gpus - len(devices))
    for device in devices:
        milli, mib = on_card(request, device)
        idle, later = whole(device)
        device.used_milli += sign * milli
        device.used_mib += sign * mib
        _recount(node, device, idle, later)


def free(request: Request, node: NodeState, devices: tuple[DeviceState, ...], sign: int) -> None:
    """Begin (sign 1) or take back (sign -1) the release of what a pod holds."""
    node.releasing_cpu += sign * request.cpu_milli
    node.releasing_memory += sign * request.memory_bytes
    node.releasing_pods += sign
    if request.other or request.mig:
        _count(node.releasing_other, request, sign)
    if len(devices) < request.gpus:
        node.releasing_gpus += sign * (request.gpus - len(devices))
    for device in devices:
        milli, mib = on_card(request, device)
        idle, later = whole(device)
        device.releasing_milli += sign * milli
        device.releasing_mib += sign * mib
        _recount(node, device, idle, later)


def claim(request: Request, node: NodeState, devices: tuple[DeviceState, ...], sign: int) -> None:
    """Claim (sign 1) or disclaim (sign -1) what is being released: whole GPUs by count, shares on their cards."""
    node.releasing_cpu -= sign * request.cpu_milli
    node.releasing_memory -= sign * request.memory_bytes
    node.releasing_pods -= sign
    node.releasing_gpus -= sign * request.gpus
    if request.other or request.mig:
        _count(node.releasing_other, request, -sign)
    for device in devices:
        milli, mib = on_card(request, device)
        idle, later = whole(device)
        device.claimed_milli += sign * milli
        device.claimed_mib += sign * mib
        _recount(node, device, idle, later)


def whole(device: DeviceState) -> tuple[int, int]:
    """Tell what a card adds to its node's idle and releasing whole GPUs. One that is not open adds nothing."""
    if not device.open:
        return 0, 0
    used = device.used_milli or device.used_mib
    claimed = device.claimed_milli or device.claimed_mib
    if not claimed:
        if not used:
            return 1, 0
        stays = device.used_milli != device.releasing_milli or device.used_mib != device.releasing_mib
        return 0, 0 if stays else 1
    if not used:
        return 1, -1
    milli = device.used_milli - device.releasing_milli
    mib = device.used_mib - device.releasing_mib
    crowded = milli + device.claimed_milli > WHOLE_GPU or mib + device.claimed_mib > device.mib
    return 0, -1 if crowded and (milli or mib) else 0


def is_shared_later(device: DeviceState) -> bool:
    """Tell whether something stays on a card, or claims it, once all is gone that is being released."""
    if device.claimed_milli or device.claimed_mib:
        return True
    return device.used_milli != device.releasing_milli or device.used_mib != device.releasing_mib


def close(device: DeviceState) -> None:
    """Let a card take nothing new any more."""
    idle, later = whole(device)
    device.open = False
    _recount(device.node, device, idle, later)


def _recount(node: NodeState, device: DeviceState, idle: int, later: int) -> None:
    idle_now, later_now = whole(device)
    node.idle_gpus += idle_now - idle
    node.releasing_gpus += later_now - later


def _count(counters: dict[str, int], request: Request, sign: int) -> None:
    # What a node does not offer is counted nowhere: KAI leaves such resources to whoever serves them (DRA).
    for name, count in extended(request):
        if name in counters:
            counters[name] += sign * count
