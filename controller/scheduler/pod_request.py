"""What a pod asks for, in integers. Pure.

Source: Kubernetes, "Sidecar containers: resource sharing within containers" and "Pod overhead"; GPU shares as KAI Scheduler
reads its annotations.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.requests import Request
from kube import quantity
from kube.types import Pod, ResourceRequirements

GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
HUGE_PAGES: Final = "hugepages-"
RDMA_WORDS: Final = ("rdma", "roce", "hca", "infiniband", "hostdev", "sriov", "/efa", "/ib")
"""What the names of RDMA resources have in common: k8s-rdma-shared-dev-plugin, sriov-network-device-plugin, EFA's plugin."""


def asked(pod: Pod) -> dict[str, int]:
    """Give what a pod asks of its node, by resource: CPU in millicores, the rest in whole units.

    Init containers run one after the other before the others, sidecars beside whatever comes after them.
    Raises: ValueError for a quantity that is none.
    """
    spec = pod.spec
    beside: dict[str, int] = {}
    at_start: dict[str, int] = {}
    for container in spec.init_containers:
        own = _of(container.resources)
        if container.restart_policy == "Always":
            _add(beside, own)
            _raise_to(at_start, beside)
        else:
            _raise_to(at_start, _sum((beside, own)))
    total = _sum((beside, *(_of(container.resources) for container in spec.containers)))
    _raise_to(total, at_start)
    total.update({name: number for name, number in _of(spec.resources).items() if _is_pod_level(name)})
    _add(total, _amounts(spec.overhead))
    return total


def request_of(pod: Pod, claims: tuple[str, ...] = (), dra_gpus: int = 0) -> Request:
    """Give a pod's request; `claims` are its ResourceClaims by id, `dra_gpus` the GPUs that they are about.

    Whole GPUs of a container come before any annotation: kubelet gives them, whatever the pod says besides.
    Raises: ValueError for a quantity or an annotation that cannot be read.
    """
    needs = asked(pod)
    gpus = needs.get(GPU_RESOURCE, 0)
    portion, memory, devices = (0, 0, 1) if gpus else _share(pod.metadata.annotations)
    mig = tuple(
        (name.removeprefix(MIG_PREFIX), number)
        for name, number in sorted(needs.items())
        if name.startswith(MIG_PREFIX) and number
    )
    other = tuple((name, number) for name, number in sorted(needs.items()) if is_other(name) and number)
    return Request(
        gpus=gpus,
        portion=portion,
        gpu_memory_mib=memory,
        devices=devices,
        mig=mig,
        claims=claims,
        dra_gpus=dra_gpus,
        cpu_milli=needs.get(CPU, 0),
        memory_bytes=needs.get(MEMORY, 0),
        other=other,
        rdma=any(is_rdma(name) for name, _ in other),
        best_effort=not needs.get(CPU) and not needs.get(MEMORY),
    )


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES)


def is_other(resource: str) -> bool:
    """Tell whether a resource is one of those that are counted by name only."""
    return resource not in (CPU, MEMORY, PODS, GPU_RESOURCE) and not resource.startswith(MIG_PREFIX)


def is_rdma(resource: str) -> bool:
    """Tell by its name whether a resource is an RDMA device."""
    name = resource.lower()
    return any(word in name for word in RDMA_WORDS)


def _share(annotations: Mapping[str, str]) -> tuple[int, int, int]:
    """Give the part of a card in thousandths or in MiB, and on how many cards."""
    fraction, memory, devices = (annotations.get(key, "") for key in (FRACTION, GPU_MEMORY, DEVICES))
    portion = quantity.milli(fraction) if fraction else 0
    if not 0 <= portion <= WHOLE_GPU:
        raise ValueError(f"annotation {FRACTION} is {fraction!r}: must be between 0 and 1")
    mib = quantity.whole(memory) if memory else 0
    if mib < 0:
        raise ValueError(f"annotation {GPU_MEMORY} is {memory!r}: must be a number of MiB")
    count = quantity.whole(devices) if devices else 1
    if count < 1:
        raise ValueError(f"annotation {DEVICES} is {devices!r}: must be 1 or more")
    return portion, 0 if portion else mib, count if portion or mib else 1


def _of(resources: ResourceRequirements) -> dict[str, int]:
    """A limit without a request is a request (the API server's default)."""
    return _amounts({**resources.limits, **resources.requests})


def _amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    found = {
        name: quantity.milli(text) if name == CPU else quantity.whole(text)
        for name, text in quantities.items()
    }
    below = next((name for name, number in sorted(found.items()) if number < 0), None)
    if below is not None:
        raise ValueError(f"{below} is {quantities[below]!r}: must not be below 0")
    return found


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        _add(total, part)
    return total


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, number in more.items():
        total[name] = total.get(name, 0) + number


def _raise_to(total: dict[str, int], least: dict[str, int]) -> None:
    for name, number in least.items():
        total[name] = max(total.get(name, 0), number)
