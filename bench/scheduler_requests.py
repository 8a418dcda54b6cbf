"""What is sent while the schedulers are measured, written beforehand. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bench.bare_plan import Send
from controller.scheduler.snapshot import POD_GROUP
from kube import paths
from kube.scheduling import API_VERSION

NAMESPACE: Final = "bench"
THEIR_NAME: Final = "bench-kube-scheduler"
ACCOUNT_NAMESPACE, ACCOUNT = "kube-system", "bench-creator"
_QUEUE: Final = "default-queue"
_QUEUE_LABEL: Final = "kai.scheduler/queue"
_JSON: Final = "application/json"


def pod(name: str, scheduler: str, group: str = "") -> dict[str, Any]:
    """Write a pod of one GPU; the same for every scheduler but for names."""
    metadata: dict[str, Any] = {"name": name, "labels": {_QUEUE_LABEL: _QUEUE}}
    if group:
        metadata["annotations"] = {POD_GROUP: group}
    container = {
        "name": "main",
        "image": "registry.example/bench:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def pod_group(name: str, members: int) -> dict[str, Any]:
    """Write a gang that starts whole or not at all."""
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": members, "queue": _QUEUE},
    }


def create(name: str, scheduler: str, group: str = "") -> tuple[Send, ...]:
    """Write the request that creates a pod."""
    return (_post(paths.pods(NAMESPACE), pod(name, scheduler, group)),)


def bind(name: str, node: str) -> tuple[Send, ...]:
    """Write the request that binds a pod, deciding nothing."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return (_post(paths.binding(NAMESPACE, name), binding),)


def account() -> tuple[tuple[str, dict[str, Any]], ...]:
    """Write the creator's account with its rights: where each is created, and what."""
    roles = "/apis/rbac.authorization.k8s.io/v1"
    accounts = paths.collection("", "v1", "serviceaccounts", ACCOUNT_NAMESPACE)
    may = {"apiGroups": [""], "resources": ["pods", "pods/binding"], "verbs": ["create"]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT}
    subject = {"kind": "ServiceAccount", "namespace": ACCOUNT_NAMESPACE, "name": ACCOUNT}
    return (
        (accounts, _object("v1", "ServiceAccount")),
        (f"{roles}/clusterroles", _object("rbac.authorization.k8s.io/v1", "ClusterRole", rules=[may])),
        (
            f"{roles}/clusterrolebindings",
            _object(
                "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", roleRef=reference, subjects=[subject]
            ),
        ),
    )


def their_config(kubeconfig: str) -> dict[str, Any]:
    """Write kube-scheduler's configuration: its defaults, its client's brakes off."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
        "profiles": [{"schedulerName": THEIR_NAME}],
    }


def _object(version: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": ACCOUNT}, **more}


def _post(path: str, body: Mapping[str, Any]) -> Send:
    return Send("POST", path, _JSON, msgspec.json.encode(body))
