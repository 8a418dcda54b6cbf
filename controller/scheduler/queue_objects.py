"""Queues, pod groups and topologies, from KAI Scheduler's own objects. Pure.

Traps that teams rely on: a limit that is not set is 0, which lets nothing run; -1 is no bound; memory counts in 10^6 bytes.
Quotas by GPU model are ours: KAI's Queue has no field for them, so they stand in an annotation (`MODELS`) as JSON, by the
model's name as the agent or GPU feature discovery has it: {"NVIDIA-H200": {"quota": 4, "limit": 8}}; unset is no bound.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import msgspec

from controller.scheduler.amounts import NOTHING, UNLIMITED, WHOLE_GPU
from controller.scheduler.grouper.durations import seconds
from controller.scheduler.model import Job, PodSet, Queue, Quota, SubGroup, Task, TopologyConstraint
from controller.scheduler.nodes import Level, Topology
from kube.scheduling import (
    DEFAULT_POOL,
    LAST_START,
    STALE_SINCE,
    GroupPart,
    GroupTopology,
    PodGroup,
    PriorityClass,
    QueueResource,
    QueueResources,
)
from kube.scheduling import Queue as KubeQueue
from kube.scheduling import Topology as KubeTopology

MEGABYTE: Final = 1_000_000
DEFAULT_PRIORITY: Final = 50
QUEUE_PRIORITY: Final = 100
NON_PREEMPTIBLE_FROM: Final = 100
UNSCHEDULABLE_ON_POOL: Final = "UnschedulableOnNodePool"
MODELS: Final = "nodemend.dev/gpu-models"
OLDEST: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ModelQuota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue may have of one GPU model, in whole GPUs; -1 = no bound of its own."""

    quota: Decimal = Decimal(UNLIMITED)
    limit: Decimal = Decimal(UNLIMITED)


def queues_of(
    queues: Iterable[KubeQueue], usage: Mapping[str, tuple[int, int, int]] | None = None
) -> tuple[Queue, ...]:
    """Give the queues in order of name, each with its rank by age and its past use by name (`model.Queue.usage`).

    Raises: ValueError for a duration, a number or quotas by GPU model that cannot be read.
    """
    used = usage or {}
    every = sorted(
        queues, key=lambda queue: (queue.metadata.creation_timestamp or OLDEST, queue.metadata.name)
    )
    made = (_queue(queue, rank, used.get(queue.metadata.name, NOTHING)) for rank, queue in enumerate(every))
    return tuple(sorted(made, key=lambda queue: queue.name))


def _queue(queue: KubeQueue, rank: int, usage: tuple[int, int, int]) -> Queue:
    spec = queue.spec
    resources = spec.resources or QueueResources()
    return Queue(
        name=queue.metadata.name,
        parent=spec.parent_queue,
        priority=QUEUE_PRIORITY if spec.priority is None else spec.priority,
        created=rank,
        quotas=(
            _quota("gpu", resources.gpu, WHOLE_GPU),
            _quota("cpu", resources.cpu, 1),
            _quota("memory", resources.memory, MEGABYTE),
        ),
        usage=usage,
        models=_models(queue.metadata.annotations.get(MODELS, "")),
        preempt_min_runtime_s=_seconds("spec.preemptMinRuntime", spec.preempt_min_runtime),
        reclaim_min_runtime_s=_seconds("spec.reclaimMinRuntime", spec.reclaim_min_runtime),
    )


def _quota(name: str, resource: QueueResource, unit: int) -> Quota:
    field = f"spec.resources.{name}"
    weight = resource.over_quota_weight
    if weight < 0:
        raise ValueError(f"{field}.overQuotaWeight is {weight}: must be 0 or more")
    return Quota(
        deserved=_bound(f"{field}.quota", resource.quota, unit),
        limit=_bound(f"{field}.limit", resource.limit, unit),
        weight=int(weight * 1000),
    )


def _models(text: str) -> tuple[tuple[str, Quota], ...]:
    if not text:
        return ()
    field = f"annotation {MODELS}"
    try:
        found = msgspec.json.decode(text, type=dict[str, ModelQuota])
    except msgspec.DecodeError as error:
        raise ValueError(
            f'{field} is {text[:80]!r}: {error}; {{"MODEL": {{"quota": 4, "limit": 8}}}} would be right'
        ) from error
    return tuple(
        (
            model,
            Quota(
                deserved=_bound(f"{field}: quota of {model}", quota.quota, WHOLE_GPU),
                limit=_bound(f"{field}: limit of {model}", quota.limit, WHOLE_GPU),
            ),
        )
        for model, quota in sorted(found.items())
    )


def _bound(field: str, number: Decimal, unit: int) -> int:
    if number == UNLIMITED:
        return UNLIMITED
    if not number.is_finite() or number < 0:
        raise ValueError(f"{field} is {number}: must be 0 or more, or -1 for no bound")
    return int(number * unit)


def _seconds(field: str, text: str | None) -> int | None:
    if not text:
        return None
    found = seconds(text)
    if found is None:
        raise ValueError(f"{field} is {text!r}: must be a duration such as 90s, 5m or 1h30m")
    return found


def topologies_of(topologies: Iterable[KubeTopology]) -> tuple[Topology, ...]:
    """Give the topologies in order of name."""
    return tuple(
        Topology(
            name=one.metadata.name,
            levels=tuple(Level(node_label=level.node_label, alias=level.alias) for level in one.spec.levels),
        )
        for one in sorted(topologies, key=lambda each: each.metadata.name)
    )


def priority_of(name: str, classes: Mapping[str, PriorityClass]) -> int:
    """Give the value of a priority class; where it does not exist, the cluster's default, else 50 (KAI's train)."""
    found = classes.get(name)
    if found is None:
        found = next((one for _, one in sorted(classes.items()) if one.global_default), None)
    return DEFAULT_PRIORITY if found is None else found.value


def job_of(
    group: PodGroup,
    tasks: tuple[Task, ...],
    *,
    classes: Mapping[str, PriorityClass],
    aliases: Mapping[str, Mapping[str, str]],
    pool: str,
    pending_since: datetime | None,
) -> Job:
    """Give a pod group with its pods; `aliases` names each topology's levels, `pool` is the node pool that is planned.

    Raises: ValueError for a duration that cannot be read, or subgroups that form a loop.
    """
    meta, spec = group.metadata, group.spec
    priority = priority_of(spec.priority_class_name, classes)
    wanted = spec.preemptibility
    return Job(
        id=f"{meta.namespace}/{meta.name}",
        namespace=meta.namespace,
        queue=spec.queue,
        priority=priority,
        preemptible=wanted == "preemptible" if wanted else priority < NON_PREEMPTIBLE_FROM,
        created_at=meta.creation_timestamp or OLDEST,
        pending_since=pending_since,
        started_at=started_at(group),
        stale_since=_instant(meta.annotations.get(STALE_SINCE, "")),
        staleness_grace_s=_seconds("spec.stalenessGracePeriod", spec.staleness_grace_period),
        preemption_delay_s=_seconds("spec.preemptionDelay", spec.preemption_delay) or 0,
        ready=not (spec.scheduling_backoff == 1 and _gave_up(group, pool)),
        root=root_of(group, aliases),
        tasks=tasks,
    )


def _gave_up(group: PodGroup, pool: str) -> bool:
    """One try a pool was asked for, and it was made."""
    return any(
        one.type == UNSCHEDULABLE_ON_POOL and one.status == "True" and one.node_pool == (pool or DEFAULT_POOL)
        for one in group.status.scheduling_conditions
    )


def started_at(group: PodGroup) -> datetime | None:
    """Give the start that a group notes; None where it notes none that can be read."""
    return _instant(group.metadata.annotations.get(LAST_START, ""))


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def root_of(group: PodGroup, aliases: Mapping[str, Mapping[str, str]]) -> SubGroup:
    """Give the tree of a group's subgroups; without any, the pods are its only leaf.

    Raises: ValueError where a subgroup is in itself, or its parent is not there.
    """
    spec = group.spec
    topology = _constraint(spec.topology_constraint, aliases)
    if not spec.sub_groups:
        minimum = 1 if spec.min_member is None else spec.min_member
        return SubGroup(pod_sets=(PodSet(min_available=minimum),), topology=topology)
    below: dict[str, list[GroupPart]] = {}
    names = {part.name for part in spec.sub_groups}
    for part in spec.sub_groups:
        if part.parent and part.parent not in names:
            raise ValueError(
                f"spec.subGroups: parent of {part.name!r} is {part.parent!r}, which is not there"
            )
        below.setdefault(part.parent or "", []).append(part)
    root, reached = _tree("", below, aliases)
    if reached != len(spec.sub_groups):
        raise ValueError("spec.subGroups: some are in themselves")
    return SubGroup(
        groups=root.groups, pod_sets=root.pod_sets, min_sub_group=spec.min_sub_group, topology=topology
    )


def _tree(
    name: str, below: Mapping[str, list[GroupPart]], aliases: Mapping[str, Mapping[str, str]]
) -> tuple[SubGroup, int]:
    """Give the subgroup of that name's children, and how many parts are in it."""
    groups, leaves, reached = [], [], 0
    for part in below.get(name, ()):
        topology = _constraint(part.topology_constraint, aliases)
        reached += 1
        if part.name in below:
            inner, more = _tree(part.name, below, aliases)
            reached += more
            groups.append(
                SubGroup(
                    name=part.name,
                    groups=inner.groups,
                    pod_sets=inner.pod_sets,
                    min_sub_group=part.min_sub_group,
                    topology=topology,
                )
            )
        else:
            minimum = 1 if part.min_member is None else part.min_member
            leaves.append(PodSet(name=part.name, min_available=minimum, topology=topology))
    return SubGroup(groups=tuple(groups), pod_sets=tuple(leaves)), reached


def _constraint(
    wish: GroupTopology | None, aliases: Mapping[str, Mapping[str, str]]
) -> TopologyConstraint | None:
    if wish is None or not (wish.required_topology_level or wish.preferred_topology_level):
        return None
    known = aliases.get(wish.topology, {})
    return TopologyConstraint(
        topology=wish.topology,
        required=known.get(wish.required_topology_level, wish.required_topology_level),
        preferred=known.get(wish.preferred_topology_level, wish.preferred_topology_level),
    )
