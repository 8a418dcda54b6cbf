"""KAI Scheduler's own installation, as its charts and its operator write it: described by us, from its sources."""

from typing import Any

import msgspec

from kube.installations import Deployment, WebhookConfiguration
from kube.types import Pod

Raw = dict[str, Any]
KAI_NAMESPACE = "kai-scheduler"
REGISTRY = "ghcr.io/kai-scheduler/kai-scheduler"
BINDER_FLAGS = (
    "--scheduler-name",
    "kai-scheduler",
    "--resource-reservation-pod-image",
    f"{REGISTRY}/resourcereservation:v0.17.0",
)
SHARD_FLAGS = (
    "--scheduler-conf=/etc/config/config.yaml",
    "--scheduler-name=kai-scheduler",
    "--partition-label-value=",
)
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
FOR_KAI: Raw = {"name": "scheduler-name-match", "expression": "object.spec.schedulerName == 'kai-scheduler'"}


def deployment_body(
    name: str,
    image: str,
    *,
    replicas: int | None = 1,
    args: tuple[str, ...] = (),
    app: str | None = None,
    namespace: str = KAI_NAMESPACE,
    managed: bool = True,
) -> Raw:
    """Describe a Deployment as KAI's operator makes it; `app` is its label, its name where nothing is said."""
    labels = {"app": name if app is None else app}
    ours = {"app.kubernetes.io/managed-by": "kai-operator"} if managed else {}
    container: Raw = {"name": name, "image": image, "args": list(args)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {**labels, **ours}},
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def deployment(name: str, image: str, **more: Any) -> Deployment:
    return msgspec.convert(deployment_body(name, image, **more), Deployment)


def shard(pool: str = "default", **more: Any) -> Deployment:
    """Give the scheduler of one SchedulingShard."""
    return deployment(
        f"kai-scheduler-{pool}", f"{REGISTRY}/scheduler:v0.17.0", **{"args": SHARD_FLAGS, **more}
    )


def binder(**more: Any) -> Deployment:
    return deployment("binder", f"{REGISTRY}/binder:v0.17.0", **{"args": BINDER_FLAGS, **more})


def pod(
    name: str, app: str, *, args: tuple[str, ...] = (), namespace: str = KAI_NAMESPACE, **status: Any
) -> Pod:
    """Give a pod of a program."""
    raw = {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "args": list(args)}]},
        "status": {"phase": "Running", **status},
    }
    return msgspec.convert(raw, Pod)


def webhook_body(kind: str, name: str, *entries: Raw) -> Raw:
    """Describe a webhook configuration; each entry's service is in KAI's namespace."""
    rest = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [{**rest, **one} for one in entries],
    }


def entry(name: str, path: str, service: str = "admission", **more: Any) -> Raw:
    """Describe one webhook, of pods unless `rules` say otherwise."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    to = {"namespace": KAI_NAMESPACE, "name": service, "path": path}
    return {"name": name, "clientConfig": {"service": to}, "rules": [pods], **more}


def webhooks(name: str, *entries: Raw) -> WebhookConfiguration:
    return msgspec.convert(webhook_body(MUTATING, name, *entries), WebhookConfiguration)
