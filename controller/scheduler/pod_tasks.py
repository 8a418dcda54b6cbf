"""From a Pod to a task: where it stands, what it asks for, where it may go. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from controller.scheduler.amounts import ZoneAmounts
from controller.scheduler.claim_objects import requests_by_name
from controller.scheduler.model import HOLDING, Task, TaskStatus
from controller.scheduler.numa_objects import recorded
from controller.scheduler.pod_constraints import Surroundings, constraints_of
from controller.scheduler.pod_request import request_of
from controller.scheduler.requests import Request
from controller.scheduler.rules import Rules
from kube.devices import ResourceClaim
from kube.types import Pod, PodResourceClaim

SUB_GROUP: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY: Final = "kai.scheduler/task-priority"
ROLE_LABELS: Final = (
    "training.kubeflow.org/job-role",
    "training.kubeflow.org/replica-type",
    "ray.io/node-type",
    "leaderworkerset.sigs.k8s.io/worker-index",
)
LEADING: Final = frozenset({"master", "launcher", "head", "chief", "0"})
DEFAULT_GRACE_S: Final = 30


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A bind that was decided and does not show in the API yet; `devices`: what its claims get, as in `plan.Bind`."""

    node: str
    gpus: tuple[str, ...] = ()
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    zones: ZoneAmounts = ()


def name_of(pod: Pod) -> str:
    """Name a pod as tasks are named."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def status_of(
    pod: Pod, now: datetime, stuck_after: timedelta, binding: Binding | None, rules: Rules
) -> TaskStatus:
    """Tell where a pod stands.

    A pod whose kubelet no longer answers (phase Unknown) still counts as running: nobody knows that its GPU is free.
    """
    phase, node, ends_at = pod.status.phase, pod.spec.node_name, pod.metadata.deletion_timestamp
    if phase in ("Succeeded", "Failed"):
        # One that is deleted is done for nobody: it was evicted and ended in good order, or its gang is made anew.
        # KAI reads the phase alone.
        is_done = ends_at is None or not rules.gang_survives_success
        return TaskStatus(phase) if is_done else TaskStatus.FAILED
    if ends_at is not None:
        if not node:
            return TaskStatus.FAILED
        # The timestamp is when its grace is over. A container that cannot even start may hang as well as one that runs.
        return TaskStatus.STUCK if now - ends_at >= stuck_after else TaskStatus.RELEASING
    if node:
        return TaskStatus.BOUND if phase == "Pending" else TaskStatus.RUNNING
    if binding is not None:
        return TaskStatus.BINDING
    return TaskStatus.GATED if pod.spec.scheduling_gates else TaskStatus.PENDING


def leaving(status: TaskStatus) -> TaskStatus:
    """Give the status of a pod whose eviction was sent: it is about to release what it holds."""
    return TaskStatus.RELEASING if status in HOLDING else status


def task_of(
    pod: Pod,
    status: TaskStatus,
    *,
    job: str,
    index: int,
    pod_set: str,
    gpus: tuple[str, ...],
    binding: Binding | None,
    around: Surroundings,
    claims: Mapping[str, ResourceClaim],
    zoned: bool = False,
) -> Task:
    """Give a pod as a task of a job; `job` "" = another scheduler's. `zoned`: some node has NUMA zones.

    Raises: ValueError for a quantity, an annotation or a label that cannot be read.
    """
    meta, spec = pod.metadata, pod.spec
    names, unmade = claims_of(pod)
    constraints = constraints_of(pod, around)
    if unmade:
        missing = (*constraints.missing, *(f'resourceclaim "{name}"' for name in unmade))
        constraints = msgspec.structs.replace(constraints, missing=missing)
    return Task(
        id=name_of(pod),
        job=job,
        namespace=meta.namespace,
        pod_set=pod_set,
        status=status,
        node=spec.node_name or ("" if binding is None else binding.node),
        request=_request(pod, names, claims, zoned),
        constraints=constraints,
        labels=tuple(sorted(meta.labels.items())),
        order=_order(meta.labels.get(TASK_PRIORITY, "")),
        index=index,
        leader=any(meta.labels.get(label, "").lower() in LEADING for label in ROLE_LABELS),
        gpus=gpus or (() if binding is None else binding.gpus),
        nominated_node=pod.status.nominated_node_name,
        grace_s=_grace(spec.termination_grace_period_seconds),
        zones=_zones(pod, binding) if zoned else (),
    )


def _zones(pod: Pod, binding: Binding | None) -> ZoneAmounts:
    """A pod that waits has none: what is recorded of it is of a bind that came to nothing."""
    if not pod.spec.node_name:
        return () if binding is None else binding.zones
    return recorded(pod.metadata.annotations) or (() if binding is None else binding.zones)


def _grace(seconds: int | None) -> int:
    return DEFAULT_GRACE_S if seconds is None else seconds


def _order(label: str) -> int:
    """Read the label; one that is no number counts as none, as in KAI."""
    try:
        return int(label or 0)
    except ValueError:
        return 0


def claims_of(pod: Pod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the ids of a pod's claims, and the names of those that are still to be made from their template."""
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    found, unmade = [], []
    for claim in pod.spec.resource_claims:
        name = _claim_name(claim, made)
        if name:
            found.append(f"{pod.metadata.namespace}/{name}")
        elif claim.name not in made:
            unmade.append(claim.name)
    return tuple(sorted(found)), tuple(sorted(unmade))


def _claim_name(claim: PodResourceClaim, made: Mapping[str, str | None]) -> str:
    return claim.resource_claim_name or made.get(claim.name) or ""


def _request(pod: Pod, names: tuple[str, ...], claims: Mapping[str, ResourceClaim], zoned: bool) -> Request:
    gpus = sum(_gpus_of(claims[name]) for name in names if name in claims)
    return request_of(pod, names, gpus, zoned=zoned)


def _gpus_of(claim: ResourceClaim) -> int:
    """Count the GPUs that a claim is about: what it holds, else what it asks for. A class of GPUs says so in its name."""
    asked = {name: one for name, one in requests_by_name(claim) if not one.admin_access}
    of_gpus = {name for name, one in asked.items() if "gpu" in one.device_class_name.lower()}
    if claim.status.allocation is not None and of_gpus:
        results = [one for one in claim.status.allocation.devices.results if not one.admin_access]
        if all(one.request in asked for one in results):
            return sum(one.request in of_gpus for one in results)
        if len(of_gpus) == len(asked):
            return len(results)
    # Of alternatives the largest, until one is given: no queue goes beyond its limit by which one that is.
    most: dict[str, int] = {}
    for name in of_gpus:
        request = name.partition("/")[0]
        most[request] = max(most.get(request, 0), asked[name].count)
    return sum(most.values())
