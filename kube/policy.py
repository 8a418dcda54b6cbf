"""RemediationPolicy (nodemend.dev/v1alpha1, cluster scope): what may be done to which nodes, how fast, and by which ladder.

Whoever may edit a policy is root on the fleet: it is in no aggregated role. A node matched by no policy, or by two of the
same highest priority, is left alone, and that is said.
"""

from datetime import datetime
from enum import StrEnum

from kube.remediation import Notification
from kube.types import ObjectMeta, Struct

# Annotation on a policy, RFC 3339: a person believes the burst of faults up to then; the breaker lets go of it.
BREAKER_ACKNOWLEDGED = "nodemend.dev/breaker-acknowledged"


class Mode(StrEnum):
    """Observe writes only what it would do; Quarantine stops at the cordon and a page; Enforce drains and repairs."""

    OBSERVE = "Observe"
    QUARANTINE = "Quarantine"
    ENFORCE = "Enforce"


class Containment(StrEnum):
    """How a fault is kept from new work.

    cordon: the node takes none, whatever the fault takes away; the only way that every scheduler understands. narrow: the
    node stays open for what the fault leaves, which nodemend-scheduler alone can read. Who places the pods of a pool cannot
    be told safely from outside (an empty pool looks like any other), so narrow is never assumed: the policy says it.
    """

    CORDON = "cordon"
    NARROW = "narrow"


class Unseen(StrEnum):
    """What nodemend-scheduler makes of a GPU node that no agent ever reported: it counts as healthy, or takes no GPU pod."""

    ADMIT = "admit"
    REFUSE = "refuse"


class TaintUse(StrEnum):
    """auto: taint only where every DaemonSet pod on the node tolerates it, since it could not come back otherwise."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Rung(Struct, frozen=True, kw_only=True):
    """One rung of the ladder. Durations are Go-like strings: 90s, 45m, 2h.

    `reset-gpu` counts only for findings that a reset of the GPU ends (action RESET_GPU); others go on to the next rung.
    """

    repair: str
    timeout: str = "45m"
    attempts: int = 1


class Rule(Struct, frozen=True, kw_only=True):
    """What differs for some reasons or conditions; the first rule that names the finding's reason or condition counts.

    What a rule does not say (None) is as in the policy: a rule for another ladder must not take the wait away.
    """

    reasons: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    wait: str | None = None
    ladder: tuple[Rung, ...] | None = None


class DrainPolicy(Struct, frozen=True, kw_only=True):
    deadline: str = "30m"
    when_idle_limit: str = "24h"
    empty_dir_data: str = "evict"
    unmanaged_pods: str = "block"
    excluded_namespaces: tuple[str, ...] = ("kube-system",)


class RevalidationPolicy(Struct, frozen=True, kw_only=True):
    timeout: str = "15m"
    attempts: int = 2
    gpu_resource: str = "nvidia.com/gpu"


class BudgetPolicy(Struct, frozen=True, kw_only=True):
    """Percentages are of the pool's nodes, rounded down, at least 1."""

    max_unavailable: str = "10%"
    max_quarantined: str = "30%"
    max_repairs_in_flight: int = 1


class BreakerPolicy(Struct, frozen=True, kw_only=True):
    """Trips when more than `threshold` of a pool, at least `min_nodes` nodes, turn True or Unknown within `window`."""

    threshold: str = "10%"
    min_nodes: int = 2
    window: str = "10m"


class WorkloadPolicy(Struct, frozen=True, kw_only=True):
    """One owner's pods that leave the same XID on `nodes` nodes within `within` are suspected; 0 nodes: none ever is."""

    nodes: int = 3
    within: str = "24h"


class ExpectedRule(Struct, frozen=True, kw_only=True):
    """What the nodes of one instance type hold; an empty `instance_type` is every node of the policy.

    `ports` are the active ports of the compute fabric, `rate_gbps` the rate of each. None = the policy does not say.
    """

    instance_type: str = ""
    gpus: int | None = None
    ports: int | None = None
    rate_gbps: int | None = None


class PolicySpec(Struct, frozen=True, kw_only=True):
    node_selector: dict[str, str] = {}
    priority: int = 0
    mode: Mode = Mode.OBSERVE
    containment: Containment = Containment.CORDON
    fence_grace: str = "90s"
    unseen: Unseen = Unseen.ADMIT
    taint: TaintUse = TaintUse.AUTO
    pool_label: str = ""
    default_wait: str = "0s"
    ladder: tuple[Rung, ...] = (Rung(repair="reset-gpu", timeout="15m"), Rung(repair="reboot"))
    rules: tuple[Rule, ...] = ()
    drain: DrainPolicy = DrainPolicy()
    revalidation: RevalidationPolicy = RevalidationPolicy()
    budget: BudgetPolicy = BudgetPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    workload: WorkloadPolicy = WorkloadPolicy()
    expected: tuple[ExpectedRule, ...] = ()
    sinks: tuple[str, ...] = ()
    drills_are_real: bool = False
    paused: bool = False


class PoolStatus(Struct, frozen=True, kw_only=True):
    """One pool's numbers, so that a limit that holds is seen: `breaker` and `budget` are empty or say why they hold."""

    pool: str
    nodes: int = 0
    out_of_service: int = 0
    quarantined: int = 0
    repairs_in_flight: int = 0
    breaker: str = ""
    breaker_since: datetime | None = None
    budget: str = ""


class WorkloadStatus(Struct, frozen=True, kw_only=True):
    """A suspected workload, and the nodes whose repair is held for it."""

    owner: str
    cause: str
    held: tuple[str, ...] = ()
    since: datetime


class PolicyStatus(Struct, frozen=True, kw_only=True):
    """`observed_at` is when the numbers were last written; numbers alone are written at most every few seconds."""

    observed_generation: int = 0
    pools: tuple[PoolStatus, ...] = ()
    problems: tuple[str, ...] = ()
    workloads: tuple[WorkloadStatus, ...] = ()
    notifications: tuple[Notification, ...] = ()
    observed_at: datetime | None = None


class RemediationPolicy(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PolicySpec = PolicySpec()
    status: PolicyStatus = PolicyStatus()
