"""Amounts as Kubernetes writes them, for the status of queues and pod groups. Pure.

KAI's controllers add up the requests of containers, so that its status holds plain quantities (cores, bytes, GPUs), not the
millicores and megabytes of spec.resources; memory of shared GPUs has a name of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from controller.scheduler.amounts import WHOLE_GPU, Amounts
from controller.scheduler.counting import mig_resource
from controller.scheduler.requests import Request
from kube import quantity
from kube.scheduling import Resources

GPU: Final = "nvidia.com/gpu"
GPU_MEMORY: Final = "run.ai/gpu.memory"
CPU: Final = "cpu"
MEMORY: Final = "memory"


def of_amounts(amounts: Amounts) -> dict[str, str]:
    """Write what a queue holds or asks for; all three resources, so that an old number never stays."""
    gpu, cpu, memory = amounts
    return {GPU: thousandths(gpu), CPU: thousandths(cpu), MEMORY: str(memory)}


def of_requests(requests: Iterable[Request]) -> dict[str, str]:
    """Add up what pods ask for; a resource that none of them asks for is left out."""
    gpu = cpu = memory = mib = 0
    other: dict[str, int] = {}
    for request in requests:
        gpu += (request.gpus + request.dra_gpus) * WHOLE_GPU + request.portion * request.devices
        cpu += request.cpu_milli
        memory += request.memory_bytes
        mib += request.gpu_memory_mib * request.devices
        for profile, count in request.mig:
            name = mig_resource(profile)
            other[name] = other.get(name, 0) + count
        for name, count in request.other:
            other[name] = other.get(name, 0) + count
    found = {GPU: thousandths(gpu), CPU: thousandths(cpu), MEMORY: str(memory), GPU_MEMORY: f"{mib}Mi"}
    found |= {name: str(count) for name, count in sorted(other.items())}
    return {name: text for name, text in found.items() if text not in ("0", "0Mi")}


def thousandths(amount: int) -> str:
    """Write milli-GPU or millicores: `2`, `500m`."""
    whole, rest = divmod(amount, 1000)
    return f"{amount}m" if rest else str(whole)


def change(held: Resources, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Give the merge patch from one list to the other; empty where nothing differs.

    KAI's controllers may write the same lists, as `1Gi` what we write in bytes: two that mean the same never take turns.
    """
    patch: dict[str, str | None] = {
        name: text for name, text in wanted.items() if not _is_same(held.get(name), text)
    }
    patch.update((name, None) for name in held.keys() - wanted.keys() if not _is_same(held[name], "0"))
    return patch


def _is_same(held: str | int | None, wanted: str) -> bool:
    if held is None or held == wanted:
        return held is not None
    try:
        return quantity.milli(str(held)) == quantity.milli(wanted)
    except ValueError:
        return False
