"""What a pod says about starts on its node: it started, it failed to, and whose word that is. Pure.

A pod that kubelet turned away is Failed for good, with kubelet's reason (pkg/kubelet/lifecycle and the managers of devices,
CPUs and topology). A container that cannot be made or run stays in its waiting state with the step that failed as reason,
and its last run, if the runtime got as far as that, is `StartError` (pkg/kubelet/kuberuntime; containerd; kai.md 7.4).
Source of the reasons: Kubernetes v1.37.2.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import IntEnum
from typing import Final

import msgspec

from checks.xid_repeats import workload_of
from controller.scheduler.pod_request import GPU_RESOURCE, MIG_PREFIX
from controller.scheduler.snapshot import POD_GROUP
from kube.types import ContainerStatus, Pod


class Blame(IntEnum):
    """Whom a failure speaks against.

    NODE: kubelet could not give what the node says that it has. EITHER: the node, or a pod that no node can start.
    WORKLOAD: the pod's own words (a ConfigMap that is not there), unless its like start on other nodes.
    """

    NODE = 0
    EITHER = 1
    WORKLOAD = 2


_OUT_OF: Final = "OutOf"
_TURNED_AWAY: Final = {
    "UnexpectedAdmissionError": Blame.NODE,
    "InvalidNodeInfo": Blame.NODE,
    "UnknownReason": Blame.NODE,
    "UnexpectedPredicateFailureType": Blame.NODE,
    "TopologyAffinityError": Blame.EITHER,
    "SMTAlignmentError": Blame.EITHER,
    "NodeAffinity": Blame.EITHER,
    "NodePorts": Blame.EITHER,
    "VolumeAttachmentLimitExceeded": Blame.EITHER,
}
_NEVER_RAN: Final = {
    "CreateContainerError": Blame.EITHER,
    "RunContainerError": Blame.EITHER,
    "PreCreateHookError": Blame.EITHER,
    "PreStartHookError": Blame.EITHER,
    "StartError": Blame.EITHER,
    "ContainerCannotRun": Blame.EITHER,
    "CreateContainerConfigError": Blame.WORKLOAD,
}
_REVISION: Final = "controller-revision-hash"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    blame: Blame


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's start on a node. `failure` None = it started.

    `owner`: the workload, as coarse as can be, so that two of its pods are never taken for two workloads. `template`: what
    its pods were made from, as fine as can be, so that an older version that runs proves nothing for a newer one. `job`: its
    pod group, namespace/name, "" = none is named. `turned_away`: kubelet refused it, and it never comes back.
    """

    pod: str
    uid: str
    node: str
    owner: str
    template: str
    job: str
    gpu: bool
    at: datetime
    failure: Failure | None = None
    turned_away: bool = False


def start_of(pod: Pod, now: datetime) -> Start | None:
    """Say how a pod's start on its node ended; None while that is open, or where it says nothing about starts.

    `at` is by kubelet's clock, where it says so, and never after `now`.
    """
    turned_away = _why_turned_away(pod)
    failure = turned_away or _why_never_ran(pod)
    began = None if failure is not None else _ran_since(pod)
    if failure is None and began is None:
        return None
    meta = pod.metadata
    group = meta.annotations.get(POD_GROUP, "")
    at = began or pod.status.start_time or meta.creation_timestamp or now
    return Start(
        pod=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        node=pod.spec.node_name,
        owner=workload_key(pod),
        template=f"{meta.namespace}/{_owner_name(pod)}/{meta.labels.get(_REVISION, '')}",
        job=f"{meta.namespace}/{group}" if group else "",
        gpu=_asks_for_gpu(pod),
        at=min(at, now),
        failure=failure,
        turned_away=turned_away is not None,
    )


def workload_key(pod: Pod) -> str:
    """Name the workload of a pod, as `Start.owner` does."""
    return workload_of(f"{pod.metadata.namespace}/{_owner_name(pod)}")


def _owner_name(pod: Pod) -> str:
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    return pod.metadata.name if owner is None else owner.name


def _why_turned_away(pod: Pod) -> Failure | None:
    reason = pod.status.reason
    if pod.status.phase != "Failed" or not reason:
        return None
    if reason.startswith(_OUT_OF):
        return Failure(reason=reason, blame=Blame.NODE)
    blame = _TURNED_AWAY.get(reason)
    return None if blame is None else Failure(reason=reason, blame=blame)


def _why_never_ran(pod: Pod) -> Failure | None:
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        if _began(container) is not None:
            continue
        for reason in _reasons(container):
            if reason in _NEVER_RAN:
                return Failure(reason=reason, blame=_NEVER_RAN[reason])
    return None


def _reasons(container: ContainerStatus) -> Iterable[str]:
    """Give why it waits and how it ended; how it ended is the better word, since it may wait for a pause to end."""
    for state in (container.last_state, container.state):
        if state.terminated is not None:
            yield state.terminated.reason
    if container.state.waiting is not None:
        yield container.state.waiting.reason


def _began(container: ContainerStatus) -> datetime | None:
    """Give when a container ran at last, None = it never did."""
    if container.state.running is not None:
        return container.state.running.started_at
    for state in (container.state, container.last_state):
        ended = state.terminated
        if ended is not None and ended.reason not in _NEVER_RAN:
            return ended.started_at
    return None


def _ran_since(pod: Pod) -> datetime | None:
    """Give since when a container of a pod has run, where one has."""
    found = (_began(container) for container in pod.status.container_statuses)
    return min((at for at in found if at is not None), default=None)


def _asks_for_gpu(pod: Pod) -> bool:
    """Tell whether it needs a GPU of its node, as a resource or by a claim: then its start says more than another's."""
    asked = (name for container in pod.spec.containers for name in container.resources.limits)
    return bool(pod.spec.resource_claims) or any(
        name == GPU_RESOURCE or name.startswith(MIG_PREFIX) for name in asked
    )
