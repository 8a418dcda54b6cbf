"""What a cycle is given: frozen values, integers only. Pure. What it decides is in `plan`.

A `Snapshot` is the whole truth of one instant; `controller.scheduler.snapshot` builds it from Kubernetes objects,
`casefile` from a case file. Nothing here changes during a cycle: what changes lives in `ledger`.

Units: milli-GPU (1000 = a whole one), MiB for GPU memory, millicores, bytes. Times are UTC-aware datetimes, spans seconds.
Names follow Kubernetes and KAI Scheduler's API (Queue v2, PodGroup v2alpha2, Topology v1alpha1).
"""

from datetime import datetime
from enum import StrEnum

from controller.scheduler.amounts import ZoneAmounts
from controller.scheduler.nodes import Claim, Device, Node, Topology
from controller.scheduler.plan import Promise
from controller.scheduler.requests import ANYWHERE, Constraints, Request
from controller.scheduler.values import Value


class TaskStatus(StrEnum):
    """Where a pod stands, in KAI's words.

    Allocated and Pipelined exist only inside a cycle: placed on free resources, or on such as are still being released.
    StuckInReleasing: told to end too long ago to be believed; it holds its resources on the node and releases none, so that
    nothing is pipelined onto them, is no victim, and counts for no queue.
    """

    PENDING = "Pending"
    GATED = "Gated"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    STUCK = "StuckInReleasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


HOLDING = frozenset({TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING})
"""Statuses that hold resources and mean to keep them."""
ACTIVE_USED = HOLDING | {TaskStatus.PIPELINED}
"""Statuses that count as allocated to their queue: they hold, or have a claim on what is being released."""
ALIVE = ACTIVE_USED | {TaskStatus.PENDING, TaskStatus.GATED, TaskStatus.RELEASING, TaskStatus.STUCK}
"""Statuses that may still use a GPU."""


class Task(Value, frozen=True, kw_only=True):
    """One pod. `id` is namespace/name, unique in a snapshot; `job` the id of its pod group.

    `pod_set` is the leaf subgroup ("" = the job's only one). `order`: kai.scheduler/task-priority, higher first;
    `index`: its place among its siblings, the last tie-break. `gpus`: the UUIDs that it holds, one for each device.
    `leader`: master, launcher or head of its job, started first and evicted last. `zones`: the NUMA zones that it is
    recorded to hold, () = nobody knows. `protected`: why it cannot be evicted now (a PodDisruptionBudget refused), "" = it
    can. `stand_in`: it only keeps room for a pod that does not exist yet.
    """

    id: str
    job: str
    namespace: str = ""
    pod_set: str = ""
    status: TaskStatus = TaskStatus.PENDING
    node: str = ""
    request: Request = Request()
    constraints: Constraints = ANYWHERE
    labels: tuple[tuple[str, str], ...] = ()
    order: int = 0
    index: int = 0
    leader: bool = False
    gpus: tuple[str, ...] = ()
    nominated_node: str = ""
    grace_s: int = 30
    zones: ZoneAmounts = ()
    protected: str = ""
    stand_in: bool = False


class TopologyConstraint(Value, frozen=True, kw_only=True):
    """`required` and `preferred` are node label keys of levels of the Topology named; empty = none."""

    topology: str
    required: str = ""
    preferred: str = ""


class PodSet(Value, frozen=True, kw_only=True):
    """A leaf subgroup: pods of which `min_available` start together or not at all."""

    name: str = ""
    min_available: int = 1
    topology: TopologyConstraint | None = None


class SubGroup(Value, frozen=True, kw_only=True):
    """An inner subgroup. `min_sub_group`: how many direct children must be satisfied; None = all of them."""

    name: str = ""
    groups: tuple["SubGroup", ...] = ()
    pod_sets: tuple[PodSet, ...] = ()
    min_sub_group: int | None = None
    topology: TopologyConstraint | None = None


class Job(Value, frozen=True, kw_only=True):
    """A pod group. `id` is namespace/name.

    `priority` higher first. `started_at`: when it last began to run (None: never); `stale_since`: since when it is below its
    minimum; `pending_since`: when its present wait began. `staleness_grace_s` None = the cycle's, negative = never.
    `preemption_delay_s`: it may evict nobody before it waited that long. `ready` False = gated, or its group not complete.
    `restarts`: how often it was evicted before; `checkpoint_at`: the newest known checkpoint, which makes it cheaper.
    """

    id: str
    namespace: str = ""
    queue: str
    priority: int = 50
    preemptible: bool = True
    created_at: datetime
    pending_since: datetime | None = None
    started_at: datetime | None = None
    stale_since: datetime | None = None
    staleness_grace_s: int | None = None
    preemption_delay_s: int = 0
    ready: bool = True
    restarts: int = 0
    checkpoint_at: datetime | None = None
    root: SubGroup = SubGroup(pod_sets=(PodSet(),))
    tasks: tuple[Task, ...] = ()


class Quota(Value, frozen=True, kw_only=True):
    """One resource of a queue, in that resource's unit; `weight` in thousandths. `UNLIMITED` for deserved and limit."""

    deserved: int = 0
    limit: int = 0
    weight: int = 0


class Queue(Value, frozen=True, kw_only=True):
    """`quotas` in the order of `amounts.RESOURCES`. `created`: its rank by age, 0 = oldest. `parent` "" = a root.

    `usage`: its decayed share of the cluster's capacity in the past, in millionths, for each resource. `models`: a GPU quota
    for each GPU model, in milli-GPU.
    """

    name: str
    parent: str = ""
    priority: int = 100
    created: int = 0
    quotas: tuple[Quota, Quota, Quota]
    usage: tuple[int, int, int] = (0, 0, 0)
    preempt_min_runtime_s: int | None = None
    reclaim_min_runtime_s: int | None = None
    models: tuple[tuple[str, Quota], ...] = ()


class Order(StrEnum):
    BINPACK = "binpack"
    SPREAD = "spread"


class Settings(Value, frozen=True, kw_only=True):
    """What an operator may choose of a cycle; defaults are KAI's."""

    gpu_order: Order = Order.BINPACK
    cpu_order: Order = Order.BINPACK
    gpu_sharing_order: Order = Order.BINPACK
    staleness_grace_s: int = 60
    max_consolidation_preemptees: int = 16
    allow_consolidating_reclaim: bool = True
    restrict_node_scheduling: bool = False
    skip_like_failed: bool = True
    saturation_milli: int = 1000
    preempt_min_runtime_s: int = 0
    reclaim_min_runtime_s: int = 0
    reclaim_by_lca: bool = True
    k_milli: int = 1000
    predicates: bool = True
    search_steps: int = 20_000
    search_ms: int = 500


class Snapshot(Value, frozen=True, kw_only=True):
    """Everything a cycle may know. Lists are sorted by name or id, so that equal clusters give equal plans.

    `others`: pods of other schedulers, which hold resources and belong to no queue. `suspected`: the breaker's words where
    it is open: nothing is evicted because of a change of health. `reserved_for`: who held the reservation last cycle;
    `promises`: what the last plan promised.
    """

    now: datetime
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    jobs: tuple[Job, ...] = ()
    others: tuple[Task, ...] = ()
    topologies: tuple[Topology, ...] = ()
    devices: tuple[Device, ...] = ()
    claims: tuple[Claim, ...] = ()
    suspected: str = ""
    reserved_for: str = ""
    promises: tuple[Promise, ...] = ()
    settings: Settings = Settings()
