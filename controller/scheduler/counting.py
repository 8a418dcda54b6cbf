"""What a pod's request, and a node, count for in queues. Pure.

Rules: GPU memory counts by a card's memory, rounded up to hundredths of a GPU; a MIG instance counts its sevenths, or as KAI
does the number before its g in whole GPUs; devices of GPU classes that claims ask for count whole.
"""

from controller.scheduler.amounts import WHOLE_GPU, Amounts
from controller.scheduler.nodes import Node, PartHealth
from controller.scheduler.requests import Request
from controller.scheduler.rules import Rules
from controller.scheduler.state import DeviceState

MIG_PREFIX = "nvidia.com/mig-"
SLICES = 7
HUNDREDTH = 10


def mig_resource(profile: str) -> str:
    """Give the extended resource's full name of a MIG profile, which may be full already."""
    return profile if profile.startswith(MIG_PREFIX) else MIG_PREFIX + profile


def mig_milli(profile: str, rules: Rules) -> int:
    """Count one MIG instance of the profile in milli-GPU; what is no profile counts nothing.

    KAI reads only "<slices>g.<memory>gb" and nothing with a suffix ("1g.10gb.me"); we read the slices of all of them.
    """
    slices, found, memory = profile.removeprefix(MIG_PREFIX).partition("g.")
    if not found or not slices.isdecimal():
        return 0
    if rules.mig_in_sevenths:
        return int(slices) * WHOLE_GPU // SLICES
    return int(slices) * WHOLE_GPU if memory.removesuffix("gb").isdecimal() else 0


def memory_milli(memory_mib: int, card_mib: int) -> int:
    """Count GPU memory in milli-GPU of a card, rounded up to hundredths of a GPU; 0 where no card is known."""
    return -(-memory_mib * 100 // card_mib) * HUNDREDTH if card_mib else 0


def amounts_of(request: Request, node_mib: int | None, min_mib: int, rules: Rules) -> Amounts:
    """Count a request: GPU memory by the node's card, where None is given by the cluster's smallest one."""
    gpu = (request.gpus + request.dra_gpus) * WHOLE_GPU
    if request.portion:
        gpu += request.portion * request.devices
    elif request.gpu_memory_mib:
        gpu += memory_milli(request.gpu_memory_mib, node_mib or min_mib) * request.devices
    for profile, count in request.mig:
        gpu += mig_milli(profile, rules) * count
    return (gpu, request.cpu_milli, request.memory_bytes)


def placed_amounts(request: Request, devices: tuple[DeviceState, ...], min_mib: int, rules: Rules) -> Amounts:
    """Count a request on its cards: GPU memory by the real card, and nothing for cards that are proven sick."""
    if not devices:
        return amounts_of(request, None, min_mib, rules)
    amounts = amounts_of(request, devices[0].mib, min_mib, rules)
    sick = sum(1 for device in devices if not device.counts)
    if sick:
        return (amounts[0] * (len(devices) - sick) // len(devices), amounts[1], amounts[2])
    return amounts


def capacity_of(node: Node, dra_gpus: int, rules: Rules) -> Amounts:
    """Count what a node adds to the total: its GPUs that are not proven sick and that kubelet gives, MIG instances, and
    `dra_gpus` devices of GPU classes beside those."""
    gpus = len([gpu for gpu in node.gpus if gpu.health is not PartHealth.SICK])
    if node.whole_gpus is not None:
        gpus = min(gpus, node.whole_gpus)
    milli = (gpus + dra_gpus) * WHOLE_GPU
    for profile, count in node.mig.items():
        milli += mig_milli(profile, rules) * count
    return (milli, node.cpu_milli, node.memory_bytes)
