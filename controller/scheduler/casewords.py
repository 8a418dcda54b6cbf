"""What a file of KAI's conformance suite says, in types: the suite's own words and units (its README). Pure.

Unknown fields are passed by; a field of a wrong kind is refused with its path (`msgspec.ValidationError`).
"""

from decimal import Decimal

import msgspec

from controller.scheduler.nodes import TopologyPolicy, TopologyScope


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Base of everything that a case says."""


class CaseRequests(Words, frozen=True, kw_only=True):
    """What a pod asks for in the end: `cpu_milli` and `memory_bytes` as Kubernetes rounds them, GPUs as KAI reads them."""

    request_type: str = "Regular"
    gpus_total: Decimal = Decimal(0)
    gpu_portion: Decimal = Decimal(0)
    gpu_devices: int = 1
    gpu_memory_mib: int = 0
    mig: dict[str, int] = {}
    dra_gpus: int = 0
    cpu_milli: Decimal = Decimal(0)
    memory_bytes: Decimal = Decimal(0)


class CaseTask(Words, frozen=True, kw_only=True):
    state: str
    node: str = ""
    gpu_groups: tuple[str, ...] = ()
    sub_group: str = ""
    task_order_priority: int | None = None
    legacy_mig: bool = False
    annotations: dict[str, str] = {}
    node_affinity_names: tuple[str, ...] = ()
    pod_affinity_labels: dict[str, str] = {}
    pod_affinity_topology_key: str = ""
    pod_anti_affinity_topology_key: str = ""
    resource_claims: tuple[str, ...] = ()
    resource_claim_templates: dict[str, str] = {}
    requests: CaseRequests = CaseRequests()


class CaseTopologyConstraint(Words, frozen=True, kw_only=True):
    topology: str = ""
    required: str = ""
    preferred: str = ""


class CasePodSet(Words, frozen=True, kw_only=True):
    name: str = ""
    min_available: int | None = None
    topology: CaseTopologyConstraint | None = None


class CaseSubGroup(Words, frozen=True, kw_only=True):
    name: str = ""
    groups: tuple["CaseSubGroup", ...] = ()
    pod_sets: tuple[CasePodSet, ...] = ()
    min_sub_group: int | None = None
    topology: CaseTopologyConstraint | None = None


class CaseJob(Words, frozen=True, kw_only=True):
    name: str
    queue: str
    namespace: str = ""
    priority: int = 50
    preemptible: bool = True
    age_minutes: Decimal = Decimal(0)
    min_available: int | None = None
    best_effort: bool = False
    qos_class: str = ""
    not_ready: bool = False
    started_seconds_ago: Decimal | None = None
    stale_for_seconds: Decimal | None = None
    staleness_grace_seconds: Decimal | None = None
    preemption_delay_seconds: Decimal = Decimal(0)
    stays_releasing_between_rounds: bool = False
    sub_groups: CaseSubGroup | None = None
    tasks: tuple[CaseTask, ...] = ()


class CaseQuota(Words, frozen=True, kw_only=True):
    deserved: Decimal = Decimal(0)
    limit: Decimal = Decimal(-1)
    over_quota_weight: Decimal = Decimal(0)


class CaseQueue(Words, frozen=True, kw_only=True):
    """GPUs whole, CPU in millicores, memory in megabytes: as a Queue object says it."""

    name: str
    parent: str = ""
    priority: int = 100
    creation_order: int = 0
    gpu: CaseQuota = CaseQuota()
    cpu: CaseQuota = CaseQuota(deserved=Decimal(-1), over_quota_weight=Decimal(1))
    memory: CaseQuota = CaseQuota(deserved=Decimal(-1), over_quota_weight=Decimal(1))
    preempt_min_runtime_seconds: Decimal | None = None
    reclaim_min_runtime_seconds: Decimal | None = None


class CaseZone(Words, frozen=True, kw_only=True):
    id: str
    allocatable: dict[str, Decimal] = {}
    available: dict[str, Decimal] = {}


class CaseNuma(Words, frozen=True, kw_only=True):
    policy: TopologyPolicy
    scope: TopologyScope
    zones: tuple[CaseZone, ...] = ()


class CaseNode(Words, frozen=True, kw_only=True):
    name: str
    gpus: int = 0
    gpu_memory_mib: int = 0
    labels: dict[str, str] = {}
    max_pods: int | None = None
    mig_strategy: str = ""
    gpu_memory_synced: bool = True
    numa: CaseNuma | None = None
    allocatable: dict[str, Decimal] = {}


class CaseLevel(Words, frozen=True, kw_only=True):
    node_label: str
    alias: str = ""


class CaseTopology(Words, frozen=True, kw_only=True):
    name: str
    levels: tuple[CaseLevel, ...]


class CaseDeviceResult(Words, frozen=True, kw_only=True):
    device: str
    driver: str
    pool: str


class CaseDeviceResults(Words, frozen=True, kw_only=True):
    results: tuple[CaseDeviceResult, ...] = ()


class CaseAllocation(Words, frozen=True, kw_only=True):
    devices: CaseDeviceResults = CaseDeviceResults()


class CaseConsumer(Words, frozen=True, kw_only=True):
    name: str


class CaseClaimStatus(Words, frozen=True, kw_only=True, rename="camel"):
    allocation: CaseAllocation | None = None
    reserved_for: tuple[CaseConsumer, ...] = ()


class CaseClaim(Words, frozen=True, kw_only=True):
    name: str
    namespace: str = msgspec.field(default="", name="Namespace")
    count: int = 1
    device_class: str = msgspec.field(default="", name="deviceClassName")
    labels: dict[str, str] = {}
    status: CaseClaimStatus | None = msgspec.field(default=None, name="claimStatus")


class CaseSlice(Words, frozen=True, kw_only=True):
    name: str = msgspec.field(name="Name")
    count: int = msgspec.field(name="Count")
    device_class: str = msgspec.field(name="DeviceClassName")
    node: str = msgspec.field(default="", name="nodeName")


class CaseDra(Words, frozen=True, kw_only=True):
    device_classes: tuple[str, ...] = ()
    resource_claims: tuple[CaseClaim, ...] = ()
    resource_slices: tuple[CaseSlice, ...] = ()


class CasePlugin(Words, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, str] = {}


class CaseTier(Words, frozen=True, kw_only=True):
    plugins: tuple[CasePlugin, ...] = ()


class CaseConf(Words, frozen=True, kw_only=True):
    tiers: tuple[CaseTier, ...] = ()


class CaseParams(Words, frozen=True, kw_only=True):
    allow_consolidating_reclaim: bool = True
    default_staleness_grace_seconds: Decimal = Decimal(0)
    max_consolidation_preemptees: int = -1
    restrict_node_scheduling: bool = False
    use_scheduling_signatures: bool = False


class CaseRounds(Words, frozen=True, kw_only=True):
    until_match: int = 2
    after_match: int = 5


class CaseCalls(Words, frozen=True, kw_only=True):
    binds: int
    evictions: int
    pipelines: int


class Expectation(Words, frozen=True, kw_only=True):
    """What must have become of one task, or of every task of a job."""

    status: str
    node: str = ""
    gpus_required: Decimal = Decimal(0)
    milli_cpu_required: Decimal = Decimal(0)
    memory_required: Decimal = Decimal(0)
    dont_validate_gpu_group: bool = False
    last_start_older_than_seconds: Decimal | None = None
    has_fit_error: bool = False
    numa_zones: tuple[int, ...] | None = None


class NodeExpectation(Words, frozen=True, kw_only=True):
    idle_gpus: Decimal = Decimal(0)
    releasing_gpus: Decimal = Decimal(0)
    numa_zones_available: dict[str, dict[str, str]] = {}


class CaseExpected(Words, frozen=True, kw_only=True):
    jobs: dict[str, Expectation] = {}
    tasks: dict[str, Expectation] = {}
    nodes: dict[str, NodeExpectation] = {}


class Observed(Words, frozen=True, kw_only=True):
    """What KAI did with one task."""

    status: str
    node: str = ""
    gpu_groups: tuple[str, ...] = ()


class Case(Words, frozen=True, kw_only=True):
    """One scenario of the suite."""

    id: str
    kind: str
    actions: tuple[str, ...]
    rounds: CaseRounds = CaseRounds()
    params: CaseParams = CaseParams()
    scheduler_conf: CaseConf | None = None
    nodes: tuple[CaseNode, ...] = ()
    topologies: tuple[CaseTopology, ...] = ()
    dra: CaseDra = CaseDra()
    departments: tuple[CaseQueue, ...] = ()
    queues: tuple[CaseQueue, ...] = ()
    jobs: tuple[CaseJob, ...] = ()
    expected: CaseExpected = CaseExpected()
    max_calls: CaseCalls | None = None
    observed: dict[str, dict[str, Observed]] = {}
    observed_at_match: dict[str, dict[str, Observed]] = {}
    observed_at_end: dict[str, dict[str, Observed]] = {}
