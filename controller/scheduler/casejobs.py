"""The jobs of a case. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.casecards import ON_NODE, Standing, task_id
from controller.scheduler.casenuma import alignment_of
from controller.scheduler.casewords import CaseJob, CaseSubGroup, CaseTask, CaseTopologyConstraint
from controller.scheduler.model import Job, PodSet, SubGroup, Task, TopologyConstraint
from controller.scheduler.requests import ANYWHERE, Constraints, Expression, NodeTerm, PodTerm, Request

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""A case has ages only; any instant will do."""

NODE_LABEL: Final = "kai.scheduler/type"
MIG_PREFIX: Final = "nvidia.com/mig-"
DEFAULT_POD_SET: Final = "default"


def job_of(
    job: CaseJob, stand: Mapping[str, Standing], levels: dict[str, dict[str, str]], started: bool
) -> Job:
    root = _root(job, levels)
    only = DEFAULT_POD_SET if _has_pod_set(root, DEFAULT_POD_SET) else ""
    ago = job.started_seconds_ago
    started_at = NOW if started else None if ago is None else NOW - _span(ago)
    return Job(
        id=job.name,
        namespace=job.namespace,
        queue=job.queue,
        priority=job.priority,
        preemptible=job.preemptible,
        created_at=NOW - _span(job.age_minutes * 60),
        started_at=started_at,
        stale_since=None if job.stale_for_seconds is None else NOW - _span(job.stale_for_seconds),
        staleness_grace_s=whole_seconds(job.staleness_grace_seconds),
        preemption_delay_s=int(job.preemption_delay_seconds),
        ready=not job.not_ready,
        root=root,
        tasks=tuple(
            _task(job, index, task, stand[task_id(job, index)], task.sub_group or only)
            for index, task in enumerate(job.tasks)
        ),
    )


def _span(seconds: Decimal) -> timedelta:
    return timedelta(microseconds=int(seconds * 1_000_000))


def _root(job: CaseJob, levels: dict[str, dict[str, str]]) -> SubGroup:
    minimum = len(job.tasks) if job.min_available is None else job.min_available
    if job.sub_groups is None:
        return SubGroup(pod_sets=(PodSet(min_available=minimum),))
    return _group(job.sub_groups, levels, minimum)


def _group(group: CaseSubGroup, levels: dict[str, dict[str, str]], minimum: int) -> SubGroup:
    return SubGroup(
        name=group.name,
        groups=tuple(_group(child, levels, minimum) for child in group.groups),
        pod_sets=tuple(
            PodSet(
                name=leaf.name,
                min_available=minimum if leaf.min_available is None else leaf.min_available,
                topology=_constraint(leaf.topology, levels),
            )
            for leaf in group.pod_sets
        ),
        min_sub_group=group.min_sub_group,
        topology=_constraint(group.topology, levels),
    )


def _constraint(
    wish: CaseTopologyConstraint | None, levels: dict[str, dict[str, str]]
) -> TopologyConstraint | None:
    if wish is None or not (wish.required or wish.preferred):
        return None
    alias = levels.get(wish.topology, {})
    return TopologyConstraint(
        topology=wish.topology,
        required=alias.get(wish.required, wish.required),
        preferred=alias.get(wish.preferred, wish.preferred),
    )


def _has_pod_set(group: SubGroup, name: str) -> bool:
    return any(leaf.name == name for leaf in group.pod_sets) or any(
        _has_pod_set(x, name) for x in group.groups
    )


def _task(job: CaseJob, index: int, task: CaseTask, stands: Standing, pod_set: str) -> Task:
    placed = stands.status in ON_NODE
    return Task(
        id=task_id(job, index),
        job=job.name,
        namespace=job.namespace,
        pod_set=pod_set,
        status=stands.status,
        node=stands.node if placed else "",
        request=_request(job, task),
        constraints=_constraints(task),
        labels=tuple(sorted(task.pod_affinity_labels.items())),
        order=task.task_order_priority or 0,
        index=index,
        gpus=stands.gpus if placed else (),
        zones=stands.zones if placed else (),
    )


def _request(job: CaseJob, task: CaseTask) -> Request:
    asks = task.requests
    claims = (*task.resource_claims, *task.resource_claim_templates.values())
    shared = bool(asks.gpu_portion or asks.gpu_memory_mib)
    return Request(
        gpus=0 if shared else int(asks.gpus_total),
        portion=int(asks.gpu_portion * WHOLE_GPU),
        gpu_memory_mib=asks.gpu_memory_mib,
        devices=asks.gpu_devices if shared else 1,
        mig=tuple(sorted((name.removeprefix(MIG_PREFIX), number) for name, number in asks.mig.items())),
        claims=tuple(claim_id(job.namespace, name) for name in sorted(claims)),
        dra_gpus=asks.dra_gpus,
        cpu_milli=int(asks.cpu_milli),
        memory_bytes=int(asks.memory_bytes),
        best_effort=job.best_effort,
        legacy_mig=task.legacy_mig,
        alignment=alignment_of(job, asks),
    )


def _constraints(task: CaseTask) -> Constraints:
    names, labels = task.node_affinity_names, task.pod_affinity_labels
    if not names and not labels:
        return ANYWHERE
    match = tuple(
        Expression(key=key, operator="In", values=(value,)) for key, value in sorted(labels.items())
    )
    terms = (
        (NodeTerm(expressions=(Expression(key=NODE_LABEL, operator="In", values=names),)),) if names else ()
    )
    return Constraints(
        required=terms,
        pod_affinity=_pod_terms(match, task.pod_affinity_topology_key),
        pod_anti_affinity=_pod_terms(match, task.pod_anti_affinity_topology_key),
    )


def _pod_terms(match: tuple[Expression, ...], key: str) -> tuple[PodTerm, ...]:
    return (PodTerm(selector=match, topology_key=key),) if match and key else ()


def whole_seconds(number: Decimal | None) -> int | None:
    """Give a span as the cycle counts it."""
    return None if number is None else int(number)


def claim_id(namespace: str, name: str) -> str:
    """Name a claim as `model.Claim` does."""
    return f"{namespace}/{name}"
