"""What a cycle is given and what it decides: frozen values, integers only. Pure.

A `Snapshot` is the whole truth of one instant; `controller.scheduler.snapshot` builds it from Kubernetes objects,
`casefile` from a case file. Nothing here changes during a cycle: what changes lives in `ledger`.

Units: milli-GPU (1000 = a whole one), MiB for GPU memory, millicores, bytes. Times are UTC-aware datetimes, spans seconds.
Names follow Kubernetes and KAI Scheduler's API (Queue v2, PodGroup v2alpha2, Topology v1alpha1).
"""

from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from controller.scheduler.amounts import NOTHING, UNLIMITED, Amounts


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all values of a cycle."""


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


Amount: TypeAlias = tuple[str, int]
"""So much of a resource: CPU in millicores, memory in bytes, the rest in whole units."""
ZoneAmounts: TypeAlias = tuple[tuple[str, tuple[Amount, ...]], ...]
"""What a pod holds of each NUMA zone, by the zone's id; amounts in order of their names."""


# --- what a pod asks for ---------------------------------------------------------------------------------------------


class Alignment(Value, frozen=True, kw_only=True):
    """What of a pod's request its kubelet aligns to NUMA zones, each sorted by name: what the pod holds for itself alone.

    That is whole CPUs, memory and huge pages where it is `guaranteed` (QoS class Guaranteed), and devices always. `pod` is
    all of it in one (scope pod); `containers` run beside each other, sidecars first; `init` containers end before those.
    """

    guaranteed: bool = False
    pod: tuple[Amount, ...] = ()
    containers: tuple[tuple[Amount, ...], ...] = ()
    init: tuple[tuple[Amount, ...], ...] = ()


class Request(Value, frozen=True, kw_only=True):
    """What one pod asks for. Exactly one way to ask for GPUs is used:

    `gpus` whole ones; `portion` milli-GPU on each of `devices` cards; `gpu_memory_mib` on each of `devices` cards; `mig`
    profile -> count (without the "nvidia.com/mig-" prefix, e.g. "1g.10gb"); `claims` ResourceClaims by name.
    `other`: extended resources by name (RDMA devices among them). `rdma`: asks for RDMA, so a node with a slow port is out.
    `dra_gpus`: devices of GPU classes that its claims ask for, as quota counts them. `legacy_mig`: asks for a MIG instance
    by KAI's old annotations; it goes nowhere any more. `alignment`: None = nothing, or no node of the cluster has zones.
    """

    gpus: int = 0
    portion: int = 0
    gpu_memory_mib: int = 0
    devices: int = 1
    mig: tuple[tuple[str, int], ...] = ()
    claims: tuple[str, ...] = ()
    dra_gpus: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    other: tuple[tuple[str, int], ...] = ()
    rdma: bool = False
    best_effort: bool = False
    legacy_mig: bool = False
    alignment: Alignment | None = None

    @property
    def is_shared(self) -> bool:
        """Whether it asks for part of a card."""
        return self.portion > 0 or self.gpu_memory_mib > 0

    @property
    def asks_for_gpu(self) -> bool:
        """Whether it asks for a GPU, or a part of one, in any way."""
        return bool(self.gpus or self.portion or self.gpu_memory_mib or self.mig or self.dra_gpus)


class Toleration(Value, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(Value, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class Expression(Value, frozen=True, kw_only=True):
    """One requirement of a label selector or node selector: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(Value, frozen=True, kw_only=True):
    """All of these must hold; `fields` match metadata.name."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


class PreferredNodeTerm(Value, frozen=True, kw_only=True):
    weight: int
    term: NodeTerm


class PodTerm(Value, frozen=True, kw_only=True):
    """A term of pod affinity or anti-affinity: pods that match `selector` in these namespaces, by `topology_key`.

    `namespaces` empty = the pod's own; `all_namespaces` = an empty namespace selector. `weight` 0 = required.
    """

    selector: tuple[Expression, ...] = ()
    topology_key: str
    namespaces: tuple[str, ...] = ()
    all_namespaces: bool = False
    weight: int = 0


class Spread(Value, frozen=True, kw_only=True):
    """One PodTopologySpread constraint; `hard` = whenUnsatisfiable DoNotSchedule."""

    max_skew: int
    topology_key: str
    hard: bool
    selector: tuple[Expression, ...] = ()
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Constraints(Value, frozen=True, kw_only=True):
    """Where a pod may go. Equal constraints are one signature: fits are worked out once for all pods that share them.

    `required` are alternatives (OR) as in nodeAffinity; `volumes` is a conjunction: one tuple of alternatives for each bound
    PersistentVolume or storage class topology. `missing` names what the pod needs and the cluster lacks (ConfigMap, PVC):
    it goes nowhere until that is there.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """Whether what other pods do decides where it may go."""
        return bool(self.pod_affinity or self.pod_anti_affinity or self.spread or self.ports)


ANYWHERE = Constraints()


class Task(Value, frozen=True, kw_only=True):
    """One pod. `id` is namespace/name, unique in a snapshot; `job` the id of its pod group.

    `pod_set` is the leaf subgroup ("" = the job's only one). `order`: kai.scheduler/task-priority, higher first;
    `index`: its place among its siblings, the last tie-break. `gpus`: the UUIDs that it holds, one for each device; `mib`
    and `milli` what it holds of each (a whole GPU: 1000 and the card's memory; filled by the builder for shared ones).
    `leader`: master, launcher or head of its job, started first and evicted last. `zones`: the NUMA zones that it is
    recorded to hold, () = nobody knows.
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


# --- jobs ------------------------------------------------------------------------------------------------------------


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
    evicted_for: tuple[str, ...] = ()
    root: SubGroup = SubGroup(pod_sets=(PodSet(),))
    tasks: tuple[Task, ...] = ()


# --- queues ----------------------------------------------------------------------------------------------------------


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


# --- nodes -----------------------------------------------------------------------------------------------------------


class PartHealth(StrEnum):
    """What is known of a part. Not evaluated is HEALTHY here: what hardware cannot show never blocks."""

    HEALTHY = "Healthy"
    UNKNOWN = "Unknown"
    SICK = "Sick"


class Gpu(Value, frozen=True, kw_only=True):
    """One card. `memory_mib` is what pods may use: the card less the driver's reserve.

    SICK: out of the total, and what runs on it out of `allocated`. UNKNOWN: stays in both, takes nothing new. `why` is the
    condition's reason. `offered` False: kubelet gives it to nobody any more, so it is fenced. `avoid`: a finding with effect
    prefer-not stands on it: taken last.
    """

    uuid: str
    index: int = 0
    memory_mib: int = 0
    model: str = ""
    health: PartHealth = PartHealth.HEALTHY
    why: str = ""
    offered: bool = True
    avoid: str = ""


class TopologyPolicy(StrEnum):
    """kubelet's Topology Manager policies."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


class TopologyScope(StrEnum):
    """Whether kubelet aligns each container by itself or the pod as a whole."""

    CONTAINER = "container"
    POD = "pod"


class NumaZone(Value, frozen=True, kw_only=True):
    """One NUMA node by resource: what it can give, and what was free of it when the node reported last."""

    id: str
    allocatable: dict[str, int] = {}
    available: dict[str, int] = {}


class NumaTopology(Value, frozen=True, kw_only=True):
    """A node's NUMA zones, in order of their numbers, and how its kubelet aligns pods to them."""

    policy: TopologyPolicy = TopologyPolicy.NONE
    scope: TopologyScope = TopologyScope.CONTAINER
    zones: tuple[NumaZone, ...] = ()


class Node(Value, frozen=True, kw_only=True):
    """One node as the cycle sees it.

    `closed`: why it takes no new pod at all (cordoned, NotReady, quarantined), "" = open; `out`: besides, it is no capacity.
    `no_new_gpu`: why it takes no new pod with a GPU while others stay (an unfenced sick card, say). `no_multi_gpu`,
    `no_multi_node`, `avoid`: why pods of several GPUs, pods with RDMA and gangs over several nodes, or any pod where another
    node would do, are kept off; "" = they are not. `unseen`: which of these fields are set only because something is
    Unknown. `whole_gpus`: how many GPUs kubelet gives in all, None = as many as `gpus` has (`believe_device_count`).
    `mig`: instances by profile in all; `no_new_mig`: why it takes no new pod with a MIG instance (a pod of KAI's old MIG
    annotations runs there, whose instances nobody counts). `cordoned` and `taints` are Kubernetes' own. `numa` None =
    nobody tells of its zones.
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    closed: str = ""
    out: bool = False
    no_new_gpu: str = ""
    no_multi_gpu: str = ""
    no_multi_node: str = ""
    avoid: str = ""
    unseen: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 110
    other: dict[str, int] = {}
    gpus: tuple[Gpu, ...] = ()
    whole_gpus: int | None = None
    mig: dict[str, int] = {}
    mig_strategy: str = ""
    no_new_mig: str = ""
    gpu_memory_known: bool = True
    numa: NumaTopology | None = None


class Level(Value, frozen=True, kw_only=True):
    node_label: str
    alias: str = ""


class Topology(Value, frozen=True, kw_only=True):
    """Levels of domains, widest first."""

    name: str
    levels: tuple[Level, ...]


# --- resource claims (DRA) -------------------------------------------------------------------------------------------


class DeviceTaint(Value, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class Device(Value, frozen=True, kw_only=True):
    """A device of a ResourceSlice; `id` is driver/pool/name; `gpu` the UUID where it is known.

    `closed`: why it takes nothing new though it is capacity (Unknown to its agent), "" = it does.
    """

    id: str
    device_class: str
    node: str
    taints: tuple[DeviceTaint, ...] = ()
    gpu: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    closed: str = ""
    shared: bool = False


class DeviceRequest(Value, frozen=True, kw_only=True):
    """`count` devices of a class; `all` = every matching device of the node (allocationMode All)."""

    device_class: str
    count: int = 1
    all: bool = False
    tolerations: tuple[Toleration, ...] = ()


class Claim(Value, frozen=True, kw_only=True):
    """A ResourceClaim. `id` namespace/name. `devices`: what it was allocated already. `reserved_for`: task ids.

    `why_not`: why it can be served by nobody ("" = it can): class unknown, allocation mode that is not supported.
    `from_template`: made for one pod, ends with it. `queue`: its kai.scheduler/queue label.
    """

    id: str
    requests: tuple[DeviceRequest, ...] = ()
    devices: tuple[str, ...] = ()
    reserved_for: tuple[str, ...] = ()
    reserved_places: int = 0
    from_template: bool = False
    queue: str = ""
    why_not: str = ""


# --- the whole -------------------------------------------------------------------------------------------------------


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
    fractions: bool = True


class Promise(Value, frozen=True, kw_only=True):
    """Room that was made for a job by evictions: one node's name for each of its pods, sorted."""

    job: str
    nodes: tuple[str, ...]


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


# --- what is decided -------------------------------------------------------------------------------------------------


class Bind(Value, frozen=True, kw_only=True):
    """Bind this pod now. `gpus`: UUIDs, one for each device; `milli`, `mib`: of each; `devices`: what its claims get.

    `zones`: the NUMA zones that its kubelet is expected to give it.
    """

    task: str
    job: str
    node: str
    gpus: tuple[str, ...] = ()
    milli: int = 0
    mib: int = 0
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    zones: ZoneAmounts = ()


class Pipeline(Value, frozen=True, kw_only=True):
    """The place is being made for this pod: nothing is bound yet."""

    task: str
    job: str
    node: str
    gpus: tuple[str, ...] = ()
    zones: ZoneAmounts = ()


class Evict(Value, frozen=True, kw_only=True):
    """Evict this pod. `why`: a sentence that names the action, who gains, why this victim; `moved_to`: where it goes on."""

    task: str
    job: str
    node: str
    action: str
    why: str
    gains: str = ""
    moved_to: str = ""


class Reason(Value, frozen=True, kw_only=True):
    """One counted reason: "Insufficient nvidia.com/gpu" on 4 nodes."""

    text: str
    count: int = 1


class Wait(Value, frozen=True, kw_only=True):
    """Why a job waits. `code` is KAI's (OverLimit, NonPreemptibleOverQuota, ...); `message` is for kubectl."""

    job: str
    code: str
    message: str
    reasons: tuple[Reason, ...] = ()
    task: str = ""


class Share(Value, frozen=True, kw_only=True):
    """A queue's numbers after the cycle, for status and metrics; each in the order of `amounts.RESOURCES`."""

    queue: str
    deserved: Amounts = (UNLIMITED, UNLIMITED, UNLIMITED)
    fair_share: Amounts = NOTHING
    allocated: Amounts = NOTHING
    allocated_non_preemptible: Amounts = NOTHING
    requested: Amounts = NOTHING
    shortage: Amounts = NOTHING


class Plan(Value, frozen=True, kw_only=True):
    """One cycle's decisions, in the order in which they were taken. `reserved_for`: who holds the reservation now;
    `promises`: for whom room was made. Both are given to the next cycle.
    """

    binds: tuple[Bind, ...] = ()
    pipelined: tuple[Pipeline, ...] = ()
    evictions: tuple[Evict, ...] = ()
    waits: tuple[Wait, ...] = ()
    shares: tuple[Share, ...] = ()
    total: Amounts = NOTHING
    reserved_for: str = ""
    promises: tuple[Promise, ...] = ()
    started: tuple[str, ...] = ()
    exhausted: tuple[str, ...] = ()
