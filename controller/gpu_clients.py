"""The clients of a node's GPUs that a reset has to stop: GPU Operator's by their labels on the Node, others by name. Pure.

A DaemonSet of GPU Operator runs on a Node as long as `nvidia.com/gpu.deploy.<client>` reads "true" there; any other value
takes its pod away, and the operator leaves a value that it finds as it is (NVIDIA/gpu-operator, state_manager.go). Only
labels that read "true" are ever switched, to a value that nobody but us writes: so the Node itself says which are ours to
switch on again, whatever was forgotten. While a driver upgrade is at work it adds a word of its own to that value and takes
it off at its end (NVIDIA/k8s-driver-manager); a Node in its hands is left alone until then.
"""

from collections.abc import Iterable
from datetime import datetime

from controller.view import Fleet
from kube.remediation import ClientLabel, StoppedClients
from kube.types import Node, Pod

ON = "true"
OFF = "paused-for-nodemend"

_DEPLOY = "nvidia.com/gpu.deploy."
# Whoever opens a GPU by itself. Not among them: the driver, the container toolkit and the validator, which hold none.
CLIENT_LABELS = tuple(
    _DEPLOY + client
    for client in (
        "client",  # DaemonSets of others that follow the operator (26.7 and newer)
        "dcgm",
        "dcgm-exporter",
        "device-plugin",
        "gpu-feature-discovery",
        "mig-manager",
        "node-status-exporter",
        "nvsm",
    )
)
# How their pods are labelled by GPU Operator, by NVIDIA's charts and plain manifests, and on GKE.
_KNOWN = (
    ("app", "nvidia-device-plugin-daemonset"),
    ("app", "nvidia-device-plugin-mps-control-daemon"),
    ("app", "gpu-feature-discovery"),
    ("app", "nvidia-dcgm"),
    ("app", "nvidia-dcgm-exporter"),
    ("app", "nvidia-mig-manager"),
    ("app", "nvidia-node-status-exporter"),
    ("name", "nvidia-device-plugin-ds"),
    ("k8s-app", "nvidia-gpu-device-plugin"),
    ("app.kubernetes.io/name", "nvidia-device-plugin"),
    ("app.kubernetes.io/name", "gpu-feature-discovery"),
    ("app.kubernetes.io/name", "dcgm-exporter"),
)
_ENDED = ("Succeeded", "Failed")


def to_stop(node: Node, now: datetime) -> StoppedClients:
    """Give the labels that a reset would switch off on this Node.

    One that carries our own word already was left behind by an incident that is gone: before it, it read "true".
    """
    labels = node.metadata.labels
    keys = [key for key in CLIENT_LABELS if labels.get(key) in (ON, OFF)]
    return StoppedClients(labels=tuple(ClientLabel(key=key, before=ON) for key in keys), at=now)


def still_on(node: Node, stopped: StoppedClients) -> tuple[ClientLabel, ...]:
    """Give those that are to be switched off and are as they were before."""
    return tuple(one for one in stopped.labels if node.metadata.labels.get(one.key) == one.before)


def left_off(node: Node) -> tuple[ClientLabel, ...]:
    """Give whatever carries our word, whoever switched it off."""
    labels = node.metadata.labels
    if OFF not in labels.values():
        return ()
    return tuple(ClientLabel(key=key, before=ON) for key in CLIENT_LABELS if labels.get(key) == OFF)


def still_off(node: Node, stopped: StoppedClients | None) -> tuple[ClientLabel, ...]:
    """Give those that carry our word, and so are ours to switch on again."""
    found = stopped.labels if stopped is not None else ()
    return tuple(one for one in found if node.metadata.labels.get(one.key) == OFF)


def taken_over(node: Node, stopped: StoppedClients | None) -> str:
    """Say which of them somebody else has set to something of their own; empty where none."""
    found = stopped.labels if stopped is not None else ()
    values = {one.key: node.metadata.labels.get(one.key) for one in found}
    words = [
        f"label {key} was {'removed' if values[key] is None else f'set to {values[key]!r}'} by somebody else"
        for key in sorted(values)
        if values[key] not in (ON, OFF)
    ]
    return "; ".join(words)


def clients_on(node: str, stopped: StoppedClients, fleet: Fleet) -> tuple[str, ...]:
    """Name the pods on the node that hold a GPU by themselves, or leave because of a label that was switched off."""
    keys = {one.key for one in stopped.labels}
    return _names(
        pod for pod in _alive(node, fleet) if _is_client(pod) or keys & pod.spec.node_selector.keys()
    )


def unstoppable(node: Node, fleet: Fleet) -> tuple[str, ...]:
    """Name the clients on the node that no label would take away: not GPU Operator's, or not told to follow one."""
    labels = node.metadata.labels
    switchable = {key for key in CLIENT_LABELS if labels.get(key) in (ON, OFF)}
    return _names(
        pod
        for pod in _alive(node.metadata.name, fleet)
        if _is_client(pod) and not switchable & pod.spec.node_selector.keys()
    )


def _alive(node: str, fleet: Fleet) -> Iterable[Pod]:
    return (pod for pod in fleet.pods.get(node, ()) if pod.status.phase not in _ENDED)


def _is_client(pod: Pod) -> bool:
    return any(pod.metadata.labels.get(key) == value for key, value in _KNOWN)


def _names(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods))
