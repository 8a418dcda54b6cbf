"""What of KAI Scheduler still stands in a cluster, and so in the way of whoever would serve its name. Pure.

Two schedulers on one name bind the same pods onto the same GPUs. Beside KAI's scheduler and binder its other writers count:
operator (brings the rest back), pod grouper, podgroup controller and queue controller (write the same groups and statuses).
Its webhooks count while they are configured: their failure policy is Fail, so with their service gone every pod that names
KAI's scheduler, every PodGroup and every Queue is refused.

Recognised as KAI's own operator and charts make them, v0.2 to v0.17 (`pkg/operator/operands`, `deployments/kai-scheduler`):
Deployments by image, by the operator's label or by their name, pods (whose image is not kept) by label with flags or
namespace, webhooks by the names of configuration and entries, and by the paths and conditions that they hold.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from controller.scheduler.shell.config import KAI_NAME
from kube.installations import Deployment, WebhookConfiguration
from kube.types import Pod

_ROLES: Final = {
    "scheduler": "scheduler",
    "binder": "binder",
    "operator": "operator",
    "kai-operator": "operator",
    "podgrouper": "pod grouper",
    "pod-grouper": "pod grouper",
    "podgroupcontroller": "podgroup controller",
    "podgroup-controller": "podgroup controller",
    "queuecontroller": "queue controller",
    "queue-controller": "queue controller",
}
_HARMLESS: Final = frozenset(
    {"admission", "node-scale-adjuster", "nodescaleadjuster", "numa-placement-exporter", "usage-prometheus"}
)
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_FLAGS: Final = ("--scheduler-conf", "--resource-reservation-pod-image", "--scale-adjust-namespace")
_ENDED: Final = ("Succeeded", "Failed")
_WEBHOOKS: Final = frozenset(
    {"mutating-kai-admission", "validating-kai-admission", "kai-binder-mutating", "kai-binder-validating"}
)
_WEBHOOK_PREFIXES: Final = ("kai-queue-validation-", "kai-podgroup-validation-")
_ENTRIES: Final = frozenset(
    {
        "admission.run.ai",
        "binder.run.ai",
        "queue-validation.kai.scheduler",
        "podgroup-validation.kai.scheduler",
    }
)
_PATHS: Final = ("/validate-scheduling-run-ai-", "/validate-kai-scheduler-")


def found(
    deployments: Iterable[Deployment],
    pods: Iterable[Pod],
    webhooks: Mapping[str, Sequence[WebhookConfiguration]],
) -> tuple[str, ...]:
    """Name what is in the way, in order; empty = nothing. `webhooks` by kind.

    A Deployment counts while it wants a pod, a pod until it has ended: one that is being deleted may still write.
    """
    wanted = [(one, role_of_deployment(one)) for one in deployments if one.spec.replicas > 0]
    standing = [
        f"Deployment {one.metadata.namespace}/{one.metadata.name} ({role}, replicas {one.spec.replicas})"
        for one, role in wanted
        if role
    ]
    told = {(one.metadata.namespace, _app(one.spec.template.metadata.labels)) for one, role in wanted if role}
    running = [
        f"pod {pod.metadata.namespace}/{pod.metadata.name} ({role})"
        for pod in pods
        if pod.status.phase not in _ENDED
        and (role := role_of_pod(pod))
        and (pod.metadata.namespace, _app(pod.metadata.labels)) not in told
    ]
    configured = [
        f"{kind} {one.metadata.name}"
        for kind, configurations in webhooks.items()
        for one in configurations
        if is_kais_webhook(one)
    ]
    return (*sorted(standing), *sorted(running), *sorted(configured))


def role_of_deployment(deployment: Deployment) -> str:
    """Say which part of KAI's a Deployment runs; "" = none, or none that writes what a scheduler writes."""
    meta, template = deployment.metadata, deployment.spec.template
    app = _app(template.metadata.labels) or meta.name
    for container in template.spec.containers:
        path = container.image.partition("@")[0].split("/")
        base = path[-1].partition(":")[0]
        if KAI_NAME in path[:-1] and base in _ROLES:
            return _ROLES[base]
    if app in _HARMLESS:
        return ""
    if meta.labels.get(_MANAGED_BY) == "kai-operator":
        return _ROLES.get(app, "scheduler")  # one for each shard, named <scheduler name>-<shard>
    args = [one for container in template.spec.containers for one in container.args]
    return _by_name_or_flags(app, meta.namespace, args)


def role_of_pod(pod: Pod) -> str:
    """Say which part of KAI's a pod runs; "" = none, or none that writes what a scheduler writes."""
    args = [one for container in pod.spec.containers for one in container.args]
    return _by_name_or_flags(_app(pod.metadata.labels), pod.metadata.namespace, args)


def is_kais_webhook(configuration: WebhookConfiguration) -> bool:
    """Tell whether a webhook configuration is KAI's, under whatever name its Config gave it."""
    name = configuration.metadata.name
    if name in _WEBHOOKS or name.startswith(_WEBHOOK_PREFIXES):
        return True
    for entry in configuration.webhooks or ():
        service = entry.client_config.service
        if entry.name in _ENTRIES or (service is not None and service.path.startswith(_PATHS)):
            return True
        if any(
            "schedulerName" in one.expression and f"'{KAI_NAME}'" in one.expression
            for one in entry.match_conditions
        ):
            return True
    return False


def _by_name_or_flags(app: str, namespace: str, args: Sequence[str]) -> str:
    if app == "kai-operator":
        return _ROLES[app]
    if app == KAI_NAME or app.startswith(f"{KAI_NAME}-"):
        return "scheduler"
    if app in _ROLES and (namespace == KAI_NAME or _speaks_kai(args)):
        return _ROLES[app]
    return ""


def _speaks_kai(args: Sequence[str]) -> bool:
    """Tell whether flags are those of KAI's programs; both ways to write a value are in use."""
    names = ("--scheduler-name", KAI_NAME)
    return (
        f"{names[0]}={names[1]}" in args
        or names in pairwise(args)
        or any(one.partition("=")[0] in _FLAGS for one in args)
    )


def _app(labels: Mapping[str, str]) -> str:
    return labels.get("app", "")
