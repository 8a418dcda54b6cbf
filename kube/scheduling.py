"""KAI Scheduler's own objects: Queue, PodGroup, Topology; PriorityClass and NodeResourceTopology. Slim views, as in
`kube.types`.

Queue is scheduling.run.ai/v2, PodGroup scheduling.run.ai/v2alpha2, Topology kai.scheduler/v1alpha1, NodeResourceTopology
topology.node.k8s.io/v1alpha2.
"""

from decimal import Decimal

import msgspec

from kube.types import ObjectMeta, Struct

API_VERSION = "scheduling.run.ai/v2alpha2"  # of a PodGroup
DEFAULT_POOL = "default"  # how KAI calls the node pool of what lacks the label
STALE_SINCE = "kai.scheduler/stale-podgroup-timestamp"
LAST_START = "kai.scheduler/last-start-timestamp"


class ZoneResource(Struct, frozen=True, kw_only=True):
    name: str
    allocatable: str = "0"
    available: str = "0"


class Zone(Struct, frozen=True, kw_only=True):
    """`type` Node = a NUMA node."""

    name: str
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()


class Attribute(Struct, frozen=True, kw_only=True):
    name: str
    value: str = ""


class NodeResourceTopology(Struct, frozen=True, kw_only=True):
    """The zones of the node of the same name. `topology_policies` is the deprecated place of policy and scope."""

    metadata: ObjectMeta
    attributes: tuple[Attribute, ...] = ()
    topology_policies: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()


class QueueResource(Struct, frozen=True, kw_only=True):
    """GPUs whole, CPU in millicores, memory in megabytes; -1 = no bound. Unset is 0: nothing guaranteed, nothing allowed."""

    quota: Decimal = Decimal(0)
    limit: Decimal = Decimal(0)
    over_quota_weight: Decimal = Decimal(0)


class QueueResources(Struct, frozen=True, kw_only=True):
    gpu: QueueResource = QueueResource()
    cpu: QueueResource = QueueResource()
    memory: QueueResource = QueueResource()


class QueueSpec(Struct, frozen=True, kw_only=True):
    parent_queue: str = ""
    priority: int | None = None
    resources: QueueResources | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


Resources = dict[str, str | int]
"""Quantities by resource, as Kubernetes writes them: cores, bytes, whole GPUs or `500m`."""


class QueueStatus(Struct, frozen=True, kw_only=True):
    """Conditions are kept whole, since a merge patch replaces the list and others may write theirs."""

    conditions: tuple[dict[str, object], ...] = ()
    child_queues: tuple[str, ...] = ()
    allocated: Resources = {}
    allocated_non_preemptible: Resources = {}
    requested: Resources = {}


class Queue(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class GroupTopology(Struct, frozen=True, kw_only=True):
    """Levels are node label keys, or the aliases that the Topology gives them."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class GroupPart(Struct, frozen=True, kw_only=True):
    """One subgroup: a leaf has `min_member`, a parent of others may have `min_sub_group`."""

    name: str
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: GroupTopology | None = None


class PodGroupSpec(Struct, frozen=True, kw_only=True):
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    sub_groups: tuple[GroupPart, ...] = ()
    topology_constraint: GroupTopology | None = None
    scheduling_backoff: int | None = None
    mark_unschedulable: bool | None = None
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None


class Explanation(Struct, frozen=True, kw_only=True):
    """One reason why a group waits; `details` are KAI's numbers of the queue, kept as they are."""

    reason: str = ""
    message: str = ""
    details: dict[str, object] = {}


class GroupCondition(Struct, frozen=True, kw_only=True):
    """`node_pool` was tried in vain; with a backoff of 1 the group then waits until its pool label changes."""

    type: str = ""
    node_pool: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    reasons: tuple[Explanation, ...] = ()
    transition_id: str = msgspec.field(name="transitionID", default="")
    last_transition_time: str | None = None


class ResourcesStatus(Struct, frozen=True, kw_only=True):
    allocated: Resources = {}
    allocated_non_preemptible: Resources = {}
    requested: Resources = {}


class PodGroupStatus(Struct, frozen=True, kw_only=True):
    scheduling_conditions: tuple[GroupCondition, ...] = ()
    resources_status: ResourcesStatus = ResourcesStatus()


class PodGroup(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class TopologyLevel(Struct, frozen=True, kw_only=True):
    node_label: str
    alias: str = ""


class TopologySpec(Struct, frozen=True, kw_only=True):
    levels: tuple[TopologyLevel, ...] = ()


class Topology(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: TopologySpec = TopologySpec()


class PriorityClass(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
