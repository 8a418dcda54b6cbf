"""What a pod asks for, in integers. Pure.

Source: Kubernetes, "Sidecar containers: resource sharing within containers" and "Pod overhead"; GPU shares as KAI Scheduler
reads its annotations.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from controller.scheduler.amounts import WHOLE_GPU, Amount
from controller.scheduler.numa import is_for_guaranteed
from controller.scheduler.requests import Alignment, Request
from kube import quantity
from kube.types import Container, Pod, ResourceRequirements

GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
WHOLE_CPU: Final = 1000
HUGE_PAGES: Final = "hugepages-"
_LONGEST_COUNT: Final = 18
RDMA_WORDS: Final = ("rdma", "roce", "hca", "infiniband", "hostdev", "sriov", "/efa", "/ib")
"""What the names of RDMA resources have in common: k8s-rdma-shared-dev-plugin, sriov-network-device-plugin, EFA's plugin."""


def asked(pod: Pod) -> dict[str, int]:
    """Give what a pod asks of its node, by resource: CPU in millicores, the rest in whole units.

    Init containers run one after the other before the others, sidecars beside whatever comes after them.
    Raises: ValueError for a quantity that is none.
    """
    spec = pod.spec
    total = _at_most(pod, lambda container: _of(container.resources))
    total.update({name: number for name, number in _of(spec.resources).items() if _is_pod_level(name)})
    _add(total, _amounts(spec.overhead))
    return total


def request_of(pod: Pod, claims: tuple[str, ...] = (), dra_gpus: int = 0, *, zoned: bool = False) -> Request:
    """Give a pod's request; `claims` are its ResourceClaims by id, `dra_gpus` the GPUs that they are about;
    `zoned`: some node has NUMA zones, so that it matters what is aligned to them.

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
        alignment=alignment_of(pod) if zoned else None,
    )


def _at_most(pod: Pod, asked_by: Callable[[Container], dict[str, int]]) -> dict[str, int]:
    """Give the most that the containers of a pod ask for at once."""
    beside: dict[str, int] = {}
    at_start: dict[str, int] = {}
    for container in pod.spec.init_containers:
        own = asked_by(container)
        if is_sidecar(container):
            _add(beside, own)
            _raise_to(at_start, beside)
        else:
            _raise_to(at_start, _sum((beside, own)))
    total = _sum((beside, *map(asked_by, pod.spec.containers)))
    _raise_to(total, at_start)
    return total


def is_sidecar(container: Container) -> bool:
    """Tell whether an init container runs beside all that come after it."""
    return container.restart_policy == "Always"


def alignment_of(pod: Pod) -> Alignment | None:
    """Give what of a pod its kubelet aligns to NUMA zones, None where that is nothing.

    Raises: ValueError for a quantity that is none.
    """
    guaranteed = is_guaranteed(pod)
    total = _at_most(pod, lambda container: _held_alone(container, guaranteed))
    if not total:
        return None
    init = pod.spec.init_containers
    beside = (*(one for one in init if is_sidecar(one)), *pod.spec.containers)
    before = (one for one in init if not is_sidecar(one))
    return Alignment(
        guaranteed=guaranteed,
        pod=tuple(sorted(total.items())),
        containers=_units(beside, guaranteed),
        init=_units(before, guaranteed),
    )


def is_guaranteed(pod: Pod) -> bool:
    """Tell whether kubelet gives containers CPUs and memory of their own: every one's requests are its limits.

    Where they are asked for by the pod as a whole it does not (Kubernetes, "Pod-level resources", limitations).
    """
    of_pod = {**pod.spec.resources.limits, **pod.spec.resources.requests}
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return not (CPU in of_pod or MEMORY in of_pod) and all(_is_bounded(one.resources) for one in containers)


def _is_bounded(resources: ResourceRequirements) -> bool:
    asked_for, most = _of(resources), _amounts(resources.limits)
    return all(most.get(name, 0) > 0 and asked_for.get(name) == most[name] for name in (CPU, MEMORY))


def _held_alone(container: Container, guaranteed: bool) -> dict[str, int]:
    """Part of a CPU comes from those that all share, and so do all CPUs of a container that asks for part of one."""
    return {
        name: number
        for name, number in _of(container.resources).items()
        if number > 0
        and (guaranteed if is_for_guaranteed(name) else "/" in name)
        and not (name == CPU and number % WHOLE_CPU)
    }


def _units(containers: Iterable[Container], guaranteed: bool) -> tuple[tuple[Amount, ...], ...]:
    every = (tuple(sorted(_held_alone(one, guaranteed).items())) for one in containers)
    return tuple(unit for unit in every if unit)


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
    """Give the part of a card in thousandths or in MiB, and on how many cards.

    What admission-fractions.yaml warns of is refused here, but for suffixes that leave no doubt (300m).
    """
    fraction, memory, devices = map(annotations.get, (FRACTION, GPU_MEMORY, DEVICES))
    if fraction is None and memory is None:
        if devices is not None:
            raise ValueError(
                f"annotation {DEVICES} is {devices[:40]!r}, but it needs {FRACTION} or {GPU_MEMORY} beside it"
            )
        return 0, 0, 1
    if fraction is not None and memory is not None:
        raise ValueError(f"annotations {FRACTION} and {GPU_MEMORY} are both set, but only one of them may be")
    count = 1 if devices is None else _count(DEVICES, devices, "a whole number above 0")
    if fraction is not None:
        return _portion(fraction), 0, count
    return 0, _count(GPU_MEMORY, memory or "", "a whole number of MiB above 0, without a unit"), count


def _portion(text: str) -> int:
    try:
        portion = quantity.milli(text)
    except ValueError:
        portion = 0
    if not 0 < portion < WHOLE_GPU:
        raise ValueError(
            f"annotation {FRACTION} is {text[:40]!r}, but must be a decimal number above 0 and below 1"
        )
    return portion


def _count(key: str, text: str, wanted: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT and int(text):
        return int(text)
    raise ValueError(f"annotation {key} is {text[:40]!r}, but must be {wanted}{_in_mib(key, text)}")


def _in_mib(key: str, text: str) -> str:
    """Say what would be right where somebody gave a unit."""
    if key != GPU_MEMORY:
        return ""
    try:
        mib = quantity.whole(text) >> 20
    except ValueError:
        return ""
    return f"; write {mib}" if mib > 0 else ""


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
