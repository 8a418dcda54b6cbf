"""From a case of KAI's conformance suite to the snapshot that it describes. Pure.

A case says where each pod stands; a cycle case is run for rounds, so what became of the pods so far may be given beside it.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.casecards import Standing, card_count, first_standings, holds, task_id, uuid_of
from controller.scheduler.casejobs import MIG_PREFIX, NODE_LABEL, NOW, claim_id, job_of, whole_seconds
from controller.scheduler.casenuma import numa_of
from controller.scheduler.casewords import Case, CaseClaim, CaseNode, CasePlugin, CaseQueue, CaseQuota
from controller.scheduler.model import Order, Queue, Quota, Settings, Snapshot
from controller.scheduler.nodes import Claim, Device, DeviceRequest, Gpu, Level, Node, Topology

QUEUE_LABEL: Final = "kai.scheduler/queue"
GPU_DRIVER: Final = "nvidia.com/gpu"
MEGABYTE: Final = 1_000_000


def read(raw: Any) -> Case:
    """Read one case. Fields that are null are as good as left out, and whole numbers may be written as 2.0.

    Raises: msgspec.ValidationError where a field is missing or of a wrong kind, with the field's path.
    """
    return msgspec.convert(_plain(raw), Case, str_keys=True)


def _plain(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {key: _plain(value) for key, value in raw.items() if value is not None}
    if isinstance(raw, list):
        return [_plain(value) for value in raw]
    return int(raw) if isinstance(raw, float) and raw.is_integer() else raw


def snapshot_of(
    case: Case,
    standings: Mapping[str, Standing] | None = None,
    *,
    started: Iterable[str] = (),
    claims: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] | None = None,
) -> Snapshot:
    """Build the snapshot of a case.

    `standings`: where its pods are by now; `started`: jobs that began to run since; `claims`: by id, the devices that a
    claim holds by now and the pods that it is reserved for.
    Raises: ValueError for a status or a resource nobody knows.
    """
    stand = first_standings(case) if standings is None else standings
    levels = {
        t.name: {level.alias: level.node_label for level in t.levels if level.alias} for t in case.topologies
    }
    begun = frozenset(started)
    return Snapshot(
        now=NOW,
        nodes=tuple(sorted((_node(case, node) for node in case.nodes), key=lambda node: node.name)),
        queues=tuple(sorted(map(_queue, (*case.departments, *case.queues)), key=lambda queue: queue.name)),
        jobs=tuple(
            sorted(
                (job_of(job, stand, levels, job.name in begun) for job in case.jobs), key=lambda job: job.id
            )
        ),
        topologies=tuple(
            Topology(
                name=t.name, levels=tuple(Level(node_label=x.node_label, alias=x.alias) for x in t.levels)
            )
            for t in sorted(case.topologies, key=lambda topology: topology.name)
        ),
        devices=tuple(sorted(_devices(case), key=lambda device: device.id)),
        claims=tuple(
            sorted(
                (_claim(case, claim, claims or {}) for claim in case.dra.resource_claims), key=lambda c: c.id
            )
        ),
        settings=_settings(case),
    )


def _node(case: Case, node: CaseNode) -> Node:
    legacy = [
        task_id(job, index)
        for job in case.jobs
        for index, task in enumerate(job.tasks)
        if task.legacy_mig and task.node == node.name and holds(task)
    ]
    return Node(
        name=node.name,
        labels={NODE_LABEL: node.name, **node.labels},
        cpu_milli=int(node.allocatable.get("cpu", 0)),
        memory_bytes=int(node.allocatable.get("memory", 0)),
        pods=int(node.allocatable.get("pods", 110)) if node.max_pods is None else node.max_pods,
        gpus=tuple(
            Gpu(uuid=uuid_of(node.name, index), index=index, memory_mib=node.gpu_memory_mib)
            for index in range(card_count(node))
        ),
        mig={
            name.removeprefix(MIG_PREFIX): int(number)
            for name, number in sorted(node.allocatable.items())
            if name.startswith(MIG_PREFIX)
        },
        mig_strategy=node.mig_strategy,
        no_new_mig=f"node(s) had a pod with MIG annotations: {legacy[0]}" if legacy else "",
        gpu_memory_known=node.gpu_memory_synced,
        numa=None if node.numa is None else numa_of(node.numa),
    )


def _queue(queue: CaseQueue) -> Queue:
    return Queue(
        name=queue.name,
        parent=queue.parent,
        priority=queue.priority,
        created=queue.creation_order,
        quotas=(_quota(queue.gpu, WHOLE_GPU), _quota(queue.cpu, 1), _quota(queue.memory, MEGABYTE)),
        preempt_min_runtime_s=whole_seconds(queue.preempt_min_runtime_seconds),
        reclaim_min_runtime_s=whole_seconds(queue.reclaim_min_runtime_seconds),
    )


def _quota(quota: CaseQuota, unit: int) -> Quota:
    return Quota(
        deserved=_bound(quota.deserved, unit),
        limit=_bound(quota.limit, unit),
        weight=int(quota.over_quota_weight * 1000),
    )


def _bound(number: Decimal, unit: int) -> int:
    return UNLIMITED if number == UNLIMITED else int(number * unit)


def _devices(case: Case) -> Iterator[Device]:
    for piece in case.dra.resource_slices:
        for index in range(piece.count):
            yield Device(
                id=f"{GPU_DRIVER}/{piece.node}/{index}", device_class=piece.device_class, node=piece.node
            )


def _claim(case: Case, claim: CaseClaim, now: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> Claim:
    name = claim_id(claim.namespace, claim.name)
    devices, pods = now[name] if name in now else held(claim)
    templates = {
        claim_id(job.namespace, made)
        for job in case.jobs
        for task in job.tasks
        for made in task.resource_claim_templates.values()
    }
    known = claim.device_class in case.dra.device_classes
    return Claim(
        id=name,
        requests=(DeviceRequest(device_class=claim.device_class, count=claim.count),),
        devices=devices,
        reserved_for=pods,
        from_template=name in templates,
        queue=claim.labels.get(QUEUE_LABEL, ""),
        why_not="" if known else f"device class {claim.device_class} not found",
    )


def held(claim: CaseClaim) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the devices that a claim holds as the case says, and the pods that it is reserved for."""
    if claim.status is None:
        return (), ()
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    return (
        tuple(f"{result.driver}/{result.pool}/{result.device}" for result in results),
        tuple(consumer.name for consumer in claim.status.reserved_for),
    )


def _settings(case: Case) -> Settings:
    params = case.params
    plugins = {plugin.name: plugin.arguments for tier in _tiers(case) for plugin in tier}
    placement = plugins.get("nodeplacement", {})
    sharing = Order.SPREAD if "gpuspread" in plugins else Order.BINPACK
    return Settings(
        gpu_order=Order(placement.get("gpu", Order.BINPACK)),
        cpu_order=Order(placement.get("cpu", Order.BINPACK)),
        gpu_sharing_order=sharing,
        staleness_grace_s=int(params.default_staleness_grace_seconds),
        max_consolidation_preemptees=params.max_consolidation_preemptees,
        allow_consolidating_reclaim=params.allow_consolidating_reclaim,
        restrict_node_scheduling=params.restrict_node_scheduling,
        skip_like_failed=params.use_scheduling_signatures,
        predicates=case.max_calls is not None,
    )


def _tiers(case: Case) -> Iterator[tuple[CasePlugin, ...]]:
    if case.scheduler_conf is not None:
        yield from (tier.plugins for tier in case.scheduler_conf.tiers)
