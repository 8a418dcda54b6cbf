"""Repairs: one module each, which describes a Job and never runs one.

A repair's module exports `REPAIR`, and its docstring is what a person reads before allowing it. Adding a repair = one file
here and one test file. What every repair's Job must hold (no token, no second try, a deadline, only this node) stands once,
in `manifest`, so that no repair can forget it. Everything here is pure: the controller's shell sends what is described.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from checks.finding import Action

INCIDENT_LABEL = "nodemend.dev/incident"
NODE_UID_ANNOTATION = "nodemend.dev/node-uid"
ATTEMPT_ANNOTATION = "nodemend.dev/attempt"
QUARANTINE_TAINT = "nodemend.dev/quarantine"
TERMINATION_MESSAGE = "/dev/termination-log"
AGENT_CONFIG = "nodemend-agent"

# A day: long enough for a person to read the log of last night's attempt, short enough that Jobs never pile up.
KEPT_AFTER_FINISH_S = 86_400
SHORTEST_DEADLINE_S = 10


class RepairDefect(Exception):
    """A module of this package is wrong: said at load, naming the module."""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and as what Jobs run, from the controller's configuration."""

    namespace: str
    service_account: str
    image: str
    host_pid: bool


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt on one node. `deadline_s` is what is left of the attempt's time, in seconds; it ends the Job.

    `gpus` is how many a revalidation demands of the hardware and asks the scheduler for, unless `devices` says by resource
    what to ask for instead. `uuids` are the GPUs that a reset is about.
    """

    job: str
    incident: str
    attempt: int
    node: str
    node_uid: str
    boot_id: str
    command: tuple[str, ...]
    deadline_s: int
    gpu_resource: str = ""
    gpus: int = 0
    devices: Mapping[str, int] = {}
    uuids: tuple[str, ...] = ()


class HostPath(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder of the host and where the Job finds it; `type` is what kubelet checks before it mounts."""

    name: str
    outside: str
    inside: str
    type: str = "Directory"


# Where the agent's own configuration expects the host's trees; without one its defaults serve as well (see `manifest`).
HOST_TREES = (
    HostPath(name="proc", outside="/proc", inside="/host/proc"),
    HostPath(name="sys", outside="/sys", inside="/host/sys"),
)

# The driver's user space: on the host, or of GPU Operator's driver pod below /run/nvidia. NVML, nvidia-smi and the
# persistence daemon's socket are used from there, never from the NVIDIA runtime: it may start no container on a sick GPU.
DRIVER_ROOT = HostPath(name="driver-root", outside="/", inside="/driver-root")


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """One repair: the action it serves (NONE = it changes nothing), its default command, its Job, its run-book."""

    name: str
    action: Action
    command: tuple[str, ...]
    job: Callable[[Order, JobSettings], dict[str, Any]]
    runbook: str


def discover() -> tuple[Repair, ...]:
    """Load every repair of this package, by name.

    Raises RepairDefect for a module without REPAIR, a repair without run-book, or two that claim a name or an action.
    """
    found: dict[str, Repair] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        repair = getattr(module, "REPAIR", None)
        if not isinstance(repair, Repair):
            raise RepairDefect(f"{__name__}.{module_info.name} exports no REPAIR")
        if repair.name != module_info.name.replace("_", "-") or not repair.runbook.strip():
            raise RepairDefect(
                f"{__name__}.{module_info.name}: REPAIR needs the module's name and a run-book"
            )
        for other in found.values():
            if repair.action is not Action.NONE and repair.action is other.action:
                raise RepairDefect(f"repairs {repair.name} and {other.name} both claim {repair.action}")
        found[repair.name] = repair
    return tuple(found[name] for name in sorted(found))


def ladder() -> tuple[Repair, ...]:
    """Give the repairs that a policy's ladder may name: those that change something."""
    return tuple(repair for repair in discover() if repair.action is not Action.NONE)


def manifest(
    order: Order,
    settings: JobSettings,
    *,
    repair: str,
    command: tuple[str, ...],
    resources: Mapping[str, Mapping[str, str]] | None = None,
    host_paths: Iterable[HostPath] = (),
    agent_config: bool = False,
) -> dict[str, Any]:
    """Describe the Job of one attempt. `host_paths` are mounted read-only.

    `agent_config` lets the agent's configuration count there too, where its ConfigMap stands in the Jobs' namespace; without
    it the defaults are right, since a privileged container sees the host's /proc and /sys as its own. The Job tolerates
    exactly our own taint of this incident and the cordon, so it starts on no other quarantined node and not before the node
    is Ready; it is bound to the node by name through the scheduler, which thereby reserves what it asks for.
    """
    labels = {
        INCIDENT_LABEL: order.incident,
        "app.kubernetes.io/managed-by": "nodemend-controller",
        "app.kubernetes.io/component": repair,
    }
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if agent_config:
        mounts.append({"name": "config", "mountPath": "/etc/nodemend", "readOnly": True})
        volumes.append({"name": "config", "configMap": {"name": AGENT_CONFIG, "optional": True}})
    for path in host_paths:
        mounts.append({"name": path.name, "mountPath": path.inside, "readOnly": True})
        volumes.append({"name": path.name, "hostPath": {"path": path.outside, "type": path.type}})
    container = {
        "name": repair,
        "image": settings.image,
        "command": list(command),
        "securityContext": {"privileged": True},
        "resources": {kind: dict(amounts) for kind, amounts in (resources or {}).items()},
        "terminationMessagePath": TERMINATION_MESSAGE,
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostPID": settings.host_pid,
        "affinity": {"nodeAffinity": _only(order.node)},
        "tolerations": [
            {"key": QUARANTINE_TAINT, "operator": "Equal", "value": order.incident, "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "containers": [container],
        "volumes": volumes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": order.job,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": {NODE_UID_ANNOTATION: order.node_uid, ATTEMPT_ANNOTATION: str(order.attempt)},
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": max(SHORTEST_DEADLINE_S, order.deadline_s),
            "ttlSecondsAfterFinished": KEPT_AFTER_FINISH_S,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _only(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}
