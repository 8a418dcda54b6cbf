"""Holders: which pods have which GPUs of a node, as kubelet told its agent. Pure.

Kubelet chooses the card, so only kubelet knows it: NodeHealth names the pods of each part (`held`, `heldBy`), up to a minute
late. What was not said yet is doubt, and doubt is never an idle GPU: a pod with GPUs that no part names may have any of
them, but for one that kubelet was seen to give to nobody any more. A pod that has a card keeps it for as long as it lives.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from checks.finding import PartKind
from checks.xid_repeats import SEVERAL
from controller.view import Fleet
from kube.nodehealth import NodeHealth, PartState
from kube.types import Pod

_ENDED = ("Succeeded", "Failed")
# A share of a GPU is asked for by annotation and given by a scheduler: kubelet does not list who has which.
_SHARES = ("gpu-fraction", "gpu-memory", "nodemend.dev/gpu-grant")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that have any of the asked parts; `doubt` says why there may be others, "" = these are all."""

    pods: tuple[Pod, ...] = ()
    doubt: str = ""


def holders(node: str, parts: Sequence[str], resource: str, fleet: Fleet) -> Held:
    """Say who has these GPUs (UUID, else PCI address). `resource` is what whole GPUs are called."""
    health = fleet.healths.get(node)
    known = {name_of(part): part for part in gpus_of(health)}
    pods = {shown(pod): pod for pod in alive(node, fleet)}
    found: dict[str, Pod] = {}
    doubts: list[str] = []
    for name in parts:
        part = known.get(name)
        if part is None or part.held is None:
            doubts.append(f"nobody says who holds {name}")
        elif part.held:
            names = _named(part.held_by)
            if SEVERAL in part.held_by:
                doubts.append(f"more pods hold {name} than NodeHealth has room to name")
            found |= {pod: pods[pod] for pod in names if pod in pods and not _is_newer(pods[pod], health)}
            missing = [pod for pod in names if pod not in found]
            if missing or not names:
                doubts.append(f"{missing[0] if missing else 'a pod'} held {name} when it was last seen")
    if any(known[name].offered is not False for name in parts if name in known):
        doubts += _unplaced(pods, health, resource)
    return Held(pods=tuple(found[name] for name in sorted(found)), doubt=next(iter(doubts), ""))


def gpus_of(health: NodeHealth | None) -> tuple[PartState, ...]:
    parts = health.status.parts if health is not None else ()
    return tuple(part for part in parts if part.kind == PartKind.GPU)


def name_of(part: PartState) -> str:
    """Name a GPU as it stands in a DrainRecord."""
    return part.uuid or part.pci


def alive(node: str, fleet: Fleet) -> Iterable[Pod]:
    """Give the pods on the node that have not ended, but for nodemend's own."""
    system = fleet.settings.system_namespaces
    return (
        pod
        for pod in fleet.pods.get(node, ())
        if pod.status.phase not in _ENDED and pod.metadata.namespace not in system
    )


def shown(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def has_gpus(pod: Pod, resource: str) -> bool:
    """Tell a pod with any resource of the GPUs' vendor: whole GPUs, MIG devices, replicas under another name."""
    vendor = resource.partition("/")[0] + "/"
    return any(
        name.startswith(vendor) and amount != "0"
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name, amount in {**container.resources.limits, **container.resources.requests}.items()
    )


def shares_gpu(pod: Pod) -> bool:
    """Tell a pod that has a share of a GPU which kubelet knows nothing of."""
    return any(name in pod.metadata.annotations for name in _SHARES)


def named_in(health: NodeHealth | None) -> Collection[str]:
    """Give the pods, as namespace/name, that have any GPU of the node by kubelet's word, be it by a claim."""
    if health is None:
        return ()
    rows = (
        *(part.held_by for part in health.status.parts),
        *(one.held_by for one in health.status.other_devices),
    )
    return {name for row in rows for name in _named(row)}


def _named(text: str) -> tuple[str, ...]:
    """Read `heldBy`; of one that was cut (`a/b and 3 more`) the pod that it names."""
    return tuple(text.partition(SEVERAL)[0].split(", ")) if text else ()


def _is_newer(pod: Pod, health: NodeHealth | None) -> bool:
    """Tell a pod that came after the report: one of the same name is meant.

    It was made by the server's clock and started by the node's, which is the report's too; both are known to the second.
    """
    reported = health.status.observed_at if health is not None else None
    if reported is None:
        return False
    times = (pod.metadata.creation_timestamp, pod.status.start_time)
    return any(at is not None and at >= reported.replace(microsecond=0) for at in times)


def _unplaced(pods: dict[str, Pod], health: NodeHealth | None, resource: str) -> list[str]:
    """Name pods whose cards are not known yet. One that waits for claims may come to have any."""
    names = named_in(health)
    return [
        f"which GPU {name} has is not known yet"
        for name, pod in sorted(pods.items())
        if (name not in names or _is_newer(pod, health))
        and (has_gpus(pod, resource) or (pod.spec.resource_claims and pod.status.phase == "Pending"))
    ]
