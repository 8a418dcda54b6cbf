"""What a reboot does to a simulated node: the order of things as on a real machine, seen through the API.

The agent dies with the machine. The boot id, the kernel log and what the bus shows are new. The kubelet, back first, reports
Ready=False with the new boot id and a `Rebooted` event (kubelet writes it when the boot id differs from what the Node
showed), then Ready=True; pods that restart do so under their old names, those that never restart have failed. Only then does
the agent come back. KWOK stays out of it: it touches a Ready that is False at no time (`kwok_stages.yaml`).
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube import paths
from kube.api import AlreadyExists, Api, ApiError, NotFound, PatchType
from kube.timestamps import micro_time, rfc3339
from kube.types import Lease, ObjectMeta, Struct
from sandbox.nodes import SimulatedNode, kubelet_lease

_TRIES_WITHIN_S = 60.0  # a kubelet keeps trying; the API server may just then be down on purpose
_RETRY_S = 0.5
_DEAD = "a-machine-that-is-down"


class _ContainerStatus(Struct, frozen=True, kw_only=True):
    name: str
    restart_count: int = 0


class _Spec(Struct, frozen=True, kw_only=True):
    restart_policy: str = "Always"


class _Status(Struct, frozen=True, kw_only=True):
    phase: str = ""
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Pod(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Pods(Struct, frozen=True, kw_only=True):
    items: tuple[_Pod, ...] = ()


def reboot(
    node: SimulatedNode,
    api: Api,
    *,
    ending: str | None = None,
    played_namespace: str = "nodemend-repairs",
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Reboot the machine of `node`, as `node.reboots` says; returns when its kubelet is Ready and its agent started.

    `ending` is the boot that was asked to end: two orders for one boot end one boot, as on a real machine. Pods of
    `played_namespace` are the pod player's to end. Raises ApiError where the API server stays away for a minute.
    """
    if not node.reboots.obeys:
        return
    with node.power_switch:
        if not node.up.is_set() or ending not in (None, node.boot_id):
            return
        node.up.clear()
    if node.agent is not None:
        node.agent.power_off()
    if not node.reboots.comes_back:
        persist(lambda: _silence(node, api), sleep)
        return
    come_back(node, api, played_namespace=played_namespace, sleep=sleep)


def come_back(
    node: SimulatedNode,
    api: Api,
    *,
    played_namespace: str = "nodemend-repairs",
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Let a machine that is down boot. Raises ApiError where the API server stays away for a minute."""
    boot_id = node.machine.boot()
    if (driver := node.driver) is not None:
        driver.boot()
    node.rebooted += 1
    sleep(node.reboots.down_s)
    persist(lambda: node.register(api), sleep)  # where the Node was deleted meanwhile, as a kubelet does
    persist(lambda: _let_speak(node, api), sleep)
    persist(lambda: _report(node, api, ready=False, boot_id=boot_id), sleep)
    persist(lambda: _post_rebooted(node, api, boot_id), sleep)
    sleep(node.reboots.not_ready_s)
    persist(lambda: _report(node, api, ready=True, boot_id=boot_id), sleep)
    persist(lambda: _restart_pods(node, api, played_namespace), sleep)
    node.up.set()
    if node.agent is not None:
        node.agent.power_on()


def persist(write: Callable[[], object], sleep: Callable[[float], None]) -> None:
    """Write as a kubelet does, again and again; raises the last ApiError where it does not go through for a minute."""
    deadline = time.monotonic() + _TRIES_WITHIN_S
    while True:
        try:
            write()
            return
        except ApiError:
            if time.monotonic() >= deadline:
                raise
            sleep(_RETRY_S)


def _silence(node: SimulatedNode, api: Api) -> None:
    """Take the kubelet's Lease away from KWOK, which then leaves the node alone; 50 s later its Ready is Unknown.

    Taking KWOK's annotation off the Node would not do: KWOK goes on with the nodes that it knows (v0.7.0).
    """
    held = {
        "holderIdentity": _DEAD,
        "leaseDurationSeconds": 86_400,
        "renewTime": micro_time(datetime.now(UTC)),
    }
    api.patch(kubelet_lease(node), {"spec": held}, PatchType.MERGE)


def _let_speak(node: SimulatedNode, api: Api) -> None:
    """Give KWOK its Lease back where we took it; it makes a new one within about 10 s."""
    try:
        lease = msgspec.json.decode(api.get(kubelet_lease(node)), type=Lease)
        if lease.spec.holder_identity == _DEAD:
            api.delete(kubelet_lease(node))
    except NotFound:
        return


def _report(node: SimulatedNode, api: Api, *, ready: bool, boot_id: str) -> None:
    now = rfc3339(datetime.now(UTC))
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status" if ready else "container runtime is starting",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    body = {"status": {"nodeInfo": {"bootID": boot_id}, "conditions": [condition]}}
    api.patch(paths.node_status(node.name), body, PatchType.STRATEGIC)


def _post_rebooted(node: SimulatedNode, api: Api, boot_id: str) -> None:
    now = rfc3339(datetime.now(UTC))
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node.name}.{boot_id}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.name},
        "reason": "Rebooted",
        "message": f"Node {node.name} has been rebooted, boot id: {boot_id}",
        "type": "Warning",
        "source": {"component": "kubelet", "host": node.name},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        api.create("/api/v1/namespaces/default/events", event)
    except AlreadyExists:
        return  # an earlier try, whose answer was lost


def _restart_pods(node: SimulatedNode, api: Api, played_namespace: str) -> None:
    """End or restart what ran on the machine. After a drain that is the DaemonSets' pods and nothing else."""
    listed = msgspec.json.decode(
        api.get(paths.pods(), {"fieldSelector": f"spec.nodeName={node.name}"}), type=_Pods
    )
    for pod in listed.items:
        if pod.metadata.namespace == played_namespace or pod.status.phase != "Running":
            continue
        never = pod.spec.restart_policy == "Never"
        body = _failed(pod) if never else _restarted(pod)
        try:
            api.patch(paths.pod_status(pod.metadata.namespace, pod.metadata.name), body, PatchType.STRATEGIC)
        except NotFound:
            continue  # deleted meanwhile


def _restarted(pod: _Pod) -> dict[str, Any]:
    """Say that its containers run again, and that it is Ready: with the Node NotReady its pods had been marked so too."""
    now = rfc3339(datetime.now(UTC))
    statuses = [
        {
            "name": container.name,
            "ready": True,
            "restartCount": container.restart_count + 1,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod.status.container_statuses
    ]
    conditions = [
        {"type": kind, "status": "True", "reason": None, "lastTransitionTime": now}
        for kind in ("ContainersReady", "Ready")
    ]
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {"containerStatuses": statuses, "conditions": conditions},
    }


def _failed(pod: _Pod) -> dict[str, Any]:
    now = rfc3339(datetime.now(UTC))
    ended = {"exitCode": 137, "reason": "Error", "finishedAt": now, "startedAt": now}
    statuses = [
        {"name": container.name, "ready": False, "state": {"running": None, "terminated": ended}}
        for container in pod.status.container_statuses
    ]
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {"phase": "Failed", "containerStatuses": statuses},
    }
