"""Asks kubelet which devices it offers and who holds them: PodResources v1, on a Unix socket that only root may open.

Served by every kubelet that we support (1.32 and newer; the gates KubeletPodResources and KubeletPodResourcesGetAllocatable
are stable since 1.28). Where one of the two calls fails, both have failed: half an answer would be guesswork.

`GetAllocatableResources` names the healthy devices of every device plugin that is registered now, free or held; right after
a restart of kubelet, and while a plugin is away, it names none (devicemanager: readCheckpoint, markResourceUnhealthy).
`List` names what pods hold. What only dynamic resource allocation knows is in `List` alone.
"""

from pathlib import Path

import msgspec

from agent.host.pod_resources_wire import Device, Malformed, PodDevices, read_allocatable, read_pods
from agent.host.unary_call import CallFailed, Cause, unary_call
from kube.clock import SYSTEM, Clock

WITHIN_S = 5.0
MOST_BYTES = 16 * 1024 * 1024  # as much as Kubernetes' own clients of this API take
_SERVICE = "/v1.PodResourcesLister"


class KubeletDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Kubelet's answer: the devices it gives to new pods or has given, and what each pod holds."""

    allocatable: tuple[Device, ...] = ()
    pods: tuple[PodDevices, ...] = ()


class KubeletFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Why kubelet could not be asked; `error` names socket and cause, and is the same as long as the cause is."""

    cause: Cause
    error: str


def read_pod_resources(
    path: Path, *, within_s: float = WITHIN_S, clock: Clock = SYSTEM
) -> KubeletDevices | KubeletFailed:
    """Ask both; `within_s` seconds for each."""
    try:
        allocatable, pods = (
            unary_call(path, f"{_SERVICE}/{method}", within_s=within_s, most_bytes=MOST_BYTES, clock=clock)
            for method in ("GetAllocatableResources", "List")
        )
        return KubeletDevices(allocatable=read_allocatable(allocatable), pods=read_pods(pods))
    except CallFailed as failed:
        return KubeletFailed(cause=failed.cause, error=str(failed))
    except Malformed as error:
        return KubeletFailed(
            cause=Cause.GARBAGE, error=f"{path}: the answer is no PodResources message: {error}"
        )
