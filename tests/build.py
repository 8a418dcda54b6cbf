"""Builders: whole, plausible objects from the one or two things that a test is about.

Everything else is a healthy 8-GPU node on boot `boot-1`, reported by its agent a few seconds ago, under an Enforce policy
that waits for nothing. `NOW` is the instant of a test unless it says otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from checks.finding import Action, Effect, Severity, Urgency
from controller import view
from controller.incident import latched, name_of, write_mark
from controller.view import Delivery, Eviction, Failure, Fleet, Settings
from kube.nodehealth import (
    ClearedPart,
    Expected,
    HealthFinding,
    HealthPart,
    LastValidated,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    PartState,
    Release,
    Released,
    SourceState,
)
from kube.policy import (
    BreakerPolicy,
    BudgetPolicy,
    DrainPolicy,
    Mode,
    PolicySpec,
    PolicyStatus,
    RemediationPolicy,
    RevalidationPolicy,
)
from kube.remediation import (
    QUARANTINE,
    NodeBefore,
    Phase,
    Remediation,
    RemediationSpec,
    RemediationStatus,
    TimelineEntry,
)
from kube.types import (
    DaemonSet,
    Job,
    Lease,
    LeaseSpec,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
    OwnerReference,
    Pod,
    Taint,
)
from tests.build_pods import daemonset as daemonset
from tests.build_pods import job as job
from tests.build_pods import pod as pod

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=30)
SEEN = NOW - timedelta(seconds=5)
XID = "GpuXidError"
SINK_WAITS = tuple(timedelta(seconds=seconds) for seconds in (0, 5, 300))
SETTINGS = Settings(sinks={"pager": SINK_WAITS})

Conditions = Mapping[str, str | tuple[str, datetime]]


def node(
    name: str = "gpu-1",
    *,
    uid: str | None = None,
    conditions: Conditions | None = None,
    ready: bool = True,
    unschedulable: bool = False,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    boot_id: str = "boot-1",
    gpus: int = 8,
    version: str = "100",
    created: datetime | None = LONG_AGO,
    deleted: datetime | None = None,
) -> Node:
    """Build a Node. `conditions` maps a type to its status, or to status and time of transition (default: NOW - 5 s)."""
    given = {XID: "False"} if conditions is None else conditions
    shown = [
        NodeCondition(type="Ready", status="True" if ready else "Unknown", last_transition_time=LONG_AGO),
        *(condition(type_, value) for type_, value in given.items()),
    ]
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}" if uid is None else uid,
            resource_version=version,
            labels=dict(labels or {"nvidia.com/gpu.present": "true"}),
            annotations=dict(annotations or {}),
            creation_timestamp=created,
            deletion_timestamp=deleted,
        ),
        spec=NodeSpec(unschedulable=unschedulable, provider_id=f"cloud:///{name}", taints=tuple(taints)),
        status=NodeStatus(
            conditions=tuple(shown),
            capacity={"nvidia.com/gpu": str(gpus)},
            allocatable={"nvidia.com/gpu": str(gpus)},
            node_info=NodeSystemInfo(boot_id=boot_id),
        ),
    )


def condition(type_: str, value: str | tuple[str, datetime]) -> NodeCondition:
    """Build one condition of ours."""
    status, at = (value, SEEN) if isinstance(value, str) else value
    return NodeCondition(type=type_, status=status, reason=f"{status}Reason", last_transition_time=at)


def finding(
    reason: str = "Xid79FallenOffBus",
    *,
    condition: str = XID,
    effect: str = Effect.NODE_OUT,
    urgency: str = Urgency.NOW,
    action: str = Action.REBOOT,
    severity: str = Severity.FAULT,
    index: int = 3,
    first_seen: datetime = SEEN,
    last_seen: datetime | None = None,
    boot_id: str = "boot-1",
    drill: bool = False,
    count: int = 1,
) -> HealthFinding:
    """Build a finding on one GPU: a GPU that fell off the bus."""
    return HealthFinding(
        condition=condition,
        reason=reason,
        severity=severity,
        effect=effect,
        urgency=urgency,
        action=action,
        part=HealthPart(kind="gpu", index=index, uuid=f"GPU-{index}", pci=f"0000:{index:02x}:00"),
        first_seen=first_seen,
        last_seen=first_seen if last_seen is None else last_seen,
        boot_id=boot_id,
        drill=drill,
        count=count,
        evidence=(f"NVRM: Xid (PCI:0000:{index:02x}:00): 79, GPU has fallen off the bus.",),
    )


# When idle: work may go on, the repair waits. Person: no repair of ours may hide it.
def idle_finding(**changes: Any) -> HealthFinding:
    defaults: dict[str, Any] = {
        "reason": "Xid63RowRemapPending",
        "effect": Effect.PREFER_NOT,
        "urgency": Urgency.WHEN_IDLE,
    }
    return finding(**{**defaults, **changes})


def person_finding(**changes: Any) -> HealthFinding:
    defaults: dict[str, Any] = {
        "reason": "Xid62InternalHalt",
        "effect": Effect.PART_OUT,
        "urgency": Urgency.PERSON,
        "action": Action.CONTACT_SUPPORT,
    }
    return finding(**{**defaults, **changes})


def reset_finding(**changes: Any) -> HealthFinding:
    """Build a finding that a reset of its GPU ends."""
    defaults: dict[str, Any] = {
        "reason": "Xid95UncontainedEcc",
        "effect": Effect.PART_OUT,
        "action": Action.RESET_GPU,
    }
    return finding(**{**defaults, **changes})


def health(
    of: Node | str = "gpu-1",
    findings: Iterable[HealthFinding] = (),
    *,
    node_uid: str | None = None,
    boot_id: str | None = None,
    observed_at: datetime | None = SEEN,
    published: Iterable[str] = (XID,),
    gpus: int = 8,
    cleared_before: datetime | None = None,
    expected: int | None = None,
    cleared: Iterable[ClearedPart] = (),
    release: Release | None = None,
    released: Released | None = None,
    model: str = "NVIDIA H100 80GB HBM3",
    mig: bool | None = None,
    nvml: bool = True,
    validated: int | None = None,
) -> NodeHealth:
    """Build the NodeHealth that an agent on `of` reported."""
    name = of if isinstance(of, str) else of.metadata.name
    uid = f"uid-{name}" if isinstance(of, str) else of.metadata.uid
    boot = "boot-1" if isinstance(of, str) else of.status.node_info.boot_id
    return NodeHealth(
        metadata=ObjectMeta(name=name, uid=f"health-{name}", resource_version="50"),
        spec=NodeHealthSpec(
            cleared_before=cleared_before,
            expected=None if expected is None else Expected(gpus=expected, source="test"),
            cleared=tuple(cleared),
            release=release,
        ),
        status=NodeHealthStatus(
            observed_at=observed_at,
            node_uid=uid if node_uid is None else node_uid,
            boot_id=boot if boot_id is None else boot_id,
            parts=tuple(
                PartState(kind="gpu", index=i, uuid=f"GPU-{i}", pci=f"0000:{i:02x}:00", model=model, mig=mig)
                for i in range(gpus)
            ),
            sources=(SourceState(name="nvml", readable=nvml),),
            released=released,
            findings=tuple(findings),
            published_conditions=tuple(published),
            last_validated=None if validated is None else LastValidated(gpus=validated, at=SEEN),
        ),
    )


def lease(name: str = "gpu-1", *, renewed: datetime = SEEN, node_uid: str | None = None) -> Lease:
    """Build an agent's Lease."""
    owner = OwnerReference(kind="Node", name=name, uid=f"uid-{name}" if node_uid is None else node_uid)
    return Lease(
        metadata=ObjectMeta(name=name, namespace="nodemend-system", owner_references=(owner,)),
        spec=LeaseSpec(holder_identity=name, lease_duration_seconds=40, renew_time=renewed),
    )


def policy(
    name: str = "gpus",
    *,
    mode: Mode = Mode.ENFORCE,
    status: PolicyStatus | None = None,
    annotations: Mapping[str, str] | None = None,
    drain: DrainPolicy | None = None,
    budget: BudgetPolicy | None = None,
    breaker: BreakerPolicy | None = None,
    revalidation: RevalidationPolicy | None = None,
    **spec: Any,
) -> RemediationPolicy:
    """Build a policy for all nodes, with room for one incident after the other in a small fleet."""
    return RemediationPolicy(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="70",
            generation=1,
            annotations=dict(annotations or {}),
        ),
        spec=PolicySpec(
            mode=mode,
            drain=DrainPolicy() if drain is None else drain,
            budget=BudgetPolicy() if budget is None else budget,
            breaker=BreakerPolicy() if breaker is None else breaker,
            revalidation=RevalidationPolicy() if revalidation is None else revalidation,
            **{"sinks": ("pager",), **spec},
        ),
        status=PolicyStatus() if status is None else status,
    )


def remediation(
    of: Node | str = "gpu-1",
    evidence: Sequence[HealthFinding] | None = None,
    *,
    phase: Phase = Phase.SUSPECTED,
    since: datetime = SEEN,
    opened_at: datetime = SEEN,
    policy: str = "gpus",
    name: str | None = None,
    annotations: Mapping[str, str] | None = None,
    version: str = "200",
    **status: Any,
) -> Remediation:
    """Build an incident; further keywords are fields of its status."""
    node_name = of if isinstance(of, str) else of.metadata.name
    node_uid = f"uid-{node_name}" if isinstance(of, str) else of.metadata.uid
    found = (finding(),) if evidence is None else tuple(evidence)
    return Remediation(
        metadata=ObjectMeta(
            name=name_of(node_uid, found[0]) if name is None else name,
            uid=f"rem-{node_name}",
            resource_version=version,
            annotations=dict(annotations or {}),
        ),
        spec=RemediationSpec(
            node_name=node_name,
            node_uid=node_uid,
            boot_id="boot-1",
            policy=policy,
            evidence=latched(found),
            opened_at=opened_at,
        ),
        status=RemediationStatus(
            **{
                "phase": phase,
                "phase_since": since,
                "evidence": latched(found),
                "timeline": (TimelineEntry(at=since, phase=phase.value, message="as built"),),
                **status,
            }
        ),
    )


def before(
    *, unschedulable: bool = False, tainted: bool = True, applied: bool = True, at: datetime = SEEN
) -> NodeBefore:
    """Build the recipe of a restore; by default it was applied at resourceVersion 90."""
    return NodeBefore(
        unschedulable=unschedulable,
        cordoned=not unschedulable,
        tainted=tainted,
        at=at,
        applied_at=at if applied else None,
        applied_version="90" if applied else "",
    )


def quarantined(of: Node, incident: str, recipe: NodeBefore | None = None) -> Node:
    """Give the Node with the cordon, taint and mark of an incident."""
    recipe = before(unschedulable=of.spec.unschedulable) if recipe is None else recipe
    taint = Taint(key=QUARANTINE, value=incident, effect="NoSchedule")
    others = tuple(t for t in of.spec.taints if t.key != QUARANTINE)
    return msgspec.structs.replace(
        of,
        metadata=msgspec.structs.replace(
            of.metadata,
            annotations={
                **of.metadata.annotations,
                QUARANTINE: write_mark(incident, of.metadata.uid, recipe),
            },
        ),
        spec=msgspec.structs.replace(
            of.spec, unschedulable=True, taints=(*others, taint) if recipe.tainted else others
        ),
    )


def fleet(
    *nodes: Node,
    healths: Iterable[NodeHealth] = (),
    remediations: Iterable[Remediation] = (),
    policies: Iterable[RemediationPolicy] | None = None,
    leases: Iterable[Lease] = (),
    pods: Iterable[Pod] = (),
    pods_synced: bool = True,
    jobs: Iterable[Job] = (),
    daemonsets: Iterable[DaemonSet] = (),
    deliveries: Mapping[str, Delivery] | None = None,
    evictions: Mapping[str, Eviction] | None = None,
    failures: Mapping[str, Failure] | None = None,
    heard_since: datetime | None = None,
    settings: Settings = SETTINGS,
) -> Fleet:
    """Build a Fleet. Nodes without a NodeHealth among `healths` get a clean one; the policy is `policy()`."""
    given = {one.metadata.name: one for one in healths}
    return view.build(
        nodes=nodes,
        healths=[*given.values(), *(health(n) for n in nodes if n.metadata.name not in given)],
        remediations=remediations,
        policies=[policy()] if policies is None else policies,
        leases=leases,
        pods=pods,
        pods_synced=pods_synced,
        jobs=jobs,
        daemonsets=daemonsets,
        deliveries=deliveries,
        evictions=evictions,
        failures=failures,
        heard_since=heard_since,
        settings=settings,
    )


def idle_nodes(count: int, prefix: str = "spare") -> list[Node]:
    """Build healthy nodes that make a pool large enough for its budget."""
    return [node(f"{prefix}-{number}") for number in range(count)]
