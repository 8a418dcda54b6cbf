"""From a case of KAI's conformance suite to the snapshot that it describes. Pure.

A case says where each pod stands; a cycle case is run for rounds, so what became of the pods so far may be given beside it.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.casewords import (
    Case,
    CaseClaim,
    CaseJob,
    CaseNode,
    CaseQueue,
    CaseQuota,
    CaseSubGroup,
    CaseTask,
    CaseTopologyConstraint,
)
from controller.scheduler.model import (
    ANYWHERE,
    Claim,
    Constraints,
    Device,
    DeviceRequest,
    Expression,
    Gpu,
    Job,
    Level,
    Node,
    NodeTerm,
    Order,
    PodSet,
    PodTerm,
    Queue,
    Quota,
    Request,
    Settings,
    Snapshot,
    SubGroup,
    Task,
    TaskStatus,
    Topology,
    TopologyConstraint,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""A case has ages only; any instant will do."""

NODE_LABEL = "kai.scheduler/type"
QUEUE_LABEL = "kai.scheduler/queue"
GPU_DRIVER = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
MEGABYTE = 1_000_000
ON_NODE = frozenset(
    {
        TaskStatus.ALLOCATED,
        TaskStatus.BINDING,
        TaskStatus.BOUND,
        TaskStatus.RUNNING,
        TaskStatus.RELEASING,
        TaskStatus.STUCK,
    }
)
"""Pods that hold something of their node."""
DEFAULT_POD_SET = "default"


class Standing(msgspec.Struct, frozen=True):
    """Where a pod stands now, and the cards that it holds, by UUID."""

    status: TaskStatus
    node: str = ""
    gpus: tuple[str, ...] = ()


def read(raw: Any) -> Case:
    """Read one case.

    Raises: msgspec.ValidationError where a field is missing or of a wrong kind, with the field's path.
    """
    return msgspec.convert(raw, Case)


def first_standings(case: Case) -> dict[str, Standing]:
    """Give each pod its status, node and cards as the case says.

    Equal GPU groups of one node are one card; a shared pod without a group sits on a card of its own, and so does each
    whole GPU. Cards are given in order of the groups' names, then of the pods' ids.
    """
    pods = sorted((task_id(job, index), task) for job in case.jobs for index, task in enumerate(job.tasks))
    cards = _Cards(case.nodes, ((pod.node, x) for _, pod in pods if _shares(pod) for x in pod.gpu_groups))
    return {name: Standing(_status(pod), pod.node, cards.of(pod)) for name, pod in pods}


def task_id(job: CaseJob, index: int) -> str:
    """Name a pod as the suite does."""
    return f"{job.name}-{index}"


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
            sorted((_job(job, stand, levels, job.name in begun) for job in case.jobs), key=lambda job: job.id)
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


# --- cards -----------------------------------------------------------------------------------------------------------


class _Cards:
    """Who sits on which card of which node."""

    def __init__(self, nodes: Iterable[CaseNode], groups: Iterable[tuple[str, str]]) -> None:
        self._free = {node.name: [_uuid(node.name, index) for index in range(_cards(node))] for node in nodes}
        self._groups: dict[tuple[str, str], str] = {}
        for node, group in sorted(set(groups)):
            self._groups[node, group] = self._take(node)

    def of(self, pod: CaseTask) -> tuple[str, ...]:
        if not _holds(pod):
            return ()
        if _shares(pod):
            grouped = tuple(self._groups[pod.node, group] for group in pod.gpu_groups)
            return grouped or tuple(self._take(pod.node) for _ in range(pod.requests.gpu_devices))
        return tuple(self._take(pod.node) for _ in range(int(pod.requests.gpus_total)))

    def _take(self, node: str) -> str:
        free = self._free.get(node, [])
        # More pods than cards: the case is about that, so the last ones hold a card that is not there.
        return free.pop(0) if free else f"{node}-gpu-none"


def _uuid(node: str, index: int) -> str:
    return f"{node}-gpu-{index}"


def _cards(node: CaseNode) -> int:
    """How many cards a pod may be given: none where all of them are cut into MIG instances."""
    return 0 if node.mig_strategy == "mixed" else node.gpus


def _holds(pod: CaseTask) -> bool:
    return bool(pod.node) and _status(pod) in ON_NODE


def _shares(pod: CaseTask) -> bool:
    """Whether it sits on a card beside others: a whole GPU has no group that means anything."""
    return _holds(pod) and bool(pod.requests.gpu_portion or pod.requests.gpu_memory_mib)


def _status(pod: CaseTask) -> TaskStatus:
    try:
        return TaskStatus(pod.state)
    except ValueError:
        known = ", ".join(TaskStatus)
        raise ValueError(f"tasks.state is {pod.state!r}: must be one of {known}") from None


# --- nodes and queues ------------------------------------------------------------------------------------------------


def _node(case: Case, node: CaseNode) -> Node:
    legacy = [
        task_id(job, index)
        for job in case.jobs
        for index, task in enumerate(job.tasks)
        if task.legacy_mig and task.node == node.name and _holds(task)
    ]
    return Node(
        name=node.name,
        labels={NODE_LABEL: node.name, **node.labels},
        cpu_milli=int(node.allocatable.get("cpu", 0)),
        memory_bytes=int(node.allocatable.get("memory", 0)),
        pods=int(node.allocatable.get("pods", 110)) if node.max_pods is None else node.max_pods,
        gpus=tuple(
            Gpu(uuid=_uuid(node.name, index), index=index, memory_mib=node.gpu_memory_mib)
            for index in range(_cards(node))
        ),
        mig={
            name.removeprefix(MIG_PREFIX): int(number)
            for name, number in sorted(node.allocatable.items())
            if name.startswith(MIG_PREFIX)
        },
        mig_strategy=node.mig_strategy,
        no_new_mig=f"node(s) had a pod with MIG annotations: {legacy[0]}" if legacy else "",
        gpu_memory_known=node.gpu_memory_synced,
    )


def _queue(queue: CaseQueue) -> Queue:
    return Queue(
        name=queue.name,
        parent=queue.parent,
        priority=queue.priority,
        created=queue.creation_order,
        quotas=(_quota(queue.gpu, WHOLE_GPU), _quota(queue.cpu, 1), _quota(queue.memory, MEGABYTE)),
        preempt_min_runtime_s=_seconds(queue.preempt_min_runtime_seconds),
        reclaim_min_runtime_s=_seconds(queue.reclaim_min_runtime_seconds),
    )


def _quota(quota: CaseQuota, unit: int) -> Quota:
    return Quota(
        deserved=_bound(quota.deserved, unit),
        limit=_bound(quota.limit, unit),
        weight=int(quota.over_quota_weight * 1000),
    )


def _bound(number: Decimal, unit: int) -> int:
    return UNLIMITED if number == UNLIMITED else int(number * unit)


def _seconds(number: Decimal | None) -> int | None:
    return None if number is None else int(number)


# --- jobs ------------------------------------------------------------------------------------------------------------


def _job(
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
        staleness_grace_s=_seconds(job.staleness_grace_seconds),
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


# --- resource claims -------------------------------------------------------------------------------------------------


def claim_id(namespace: str, name: str) -> str:
    """Name a claim as `model.Claim` does."""
    return f"{namespace}/{name}"


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


# --- settings --------------------------------------------------------------------------------------------------------


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


def _tiers(case: Case) -> Iterator[Any]:
    if case.scheduler_conf is not None:
        yield from (tier.plugins for tier in case.scheduler_conf.tiers)
