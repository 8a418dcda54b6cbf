"""Slim typed views of Kubernetes' own objects: only the fields that nodemend reads.

Decoding skips unknown fields and unknown enum values, so a newer server never breaks a list. Writes never send these
structs back whole: they are patches, made of plain dictionaries, that name just the fields they change.
"""

from datetime import datetime

import msgspec

from kube.placement import Affinity, TopologySpreadConstraint
from kube.struct import Struct as Struct


class OwnerReference(Struct, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Struct, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Taint(Struct, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeCondition(Struct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None


class NodeSystemInfo(Struct, frozen=True, kw_only=True):
    boot_id: str = msgspec.field(name="bootID", default="")
    machine_id: str = msgspec.field(name="machineID", default="")
    system_uuid: str = msgspec.field(name="systemUUID", default="")
    kubelet_version: str = ""


class NodeSpec(Struct, frozen=True, kw_only=True):
    unschedulable: bool = False
    provider_id: str = msgspec.field(name="providerID", default="")
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True, kw_only=True):
    conditions: tuple[NodeCondition, ...] = ()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def condition(self, condition_type: str) -> NodeCondition | None:
        """Give the condition of that type, or None where nobody ever published it."""
        return next((c for c in self.status.conditions if c.type == condition_type), None)


class Toleration(Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class ContainerPort(Struct, frozen=True, kw_only=True):
    """`host_port` 0 = none."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Struct, frozen=True, kw_only=True):
    """`restart_policy` Always makes an init container a sidecar, which runs beside the others."""

    name: str = ""
    restart_policy: str = ""
    ports: tuple[ContainerPort, ...] = ()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()


class ClaimVolume(Struct, frozen=True, kw_only=True):
    claim_name: str


class ConfigMapVolume(Struct, frozen=True, kw_only=True):
    name: str = ""
    optional: bool = False


class Volume(Struct, frozen=True, kw_only=True):
    """`ephemeral` makes a claim named pod-volume."""

    name: str = ""
    empty_dir: dict[str, object] | None = None
    ephemeral: dict[str, object] | None = None
    persistent_volume_claim: ClaimVolume | None = None
    config_map: ConfigMapVolume | None = None


class SchedulingGate(Struct, frozen=True, kw_only=True):
    name: str


class PodResourceClaim(Struct, frozen=True, kw_only=True):
    """One of the two is set; what a template's claim is called stands in the pod's status."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(Struct, frozen=True, kw_only=True):
    name: str
    resource_claim_name: str | None = None


class WorkloadReference(Struct, frozen=True, kw_only=True):
    """Kubernetes 1.35: the gang of a Workload (scheduling.k8s.io) that a pod belongs to."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class SchedulingGroup(Struct, frozen=True, kw_only=True):
    """Kubernetes 1.36 and later: the PodGroup (scheduling.k8s.io) that a pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(Struct, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    scheduler_name: str = ""
    priority_class_name: str = ""
    termination_grace_period_seconds: int | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str] = {}
    resources: ResourceRequirements = ResourceRequirements()
    volumes: tuple[Volume, ...] = ()
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    workload_ref: WorkloadReference | None = None
    scheduling_group: SchedulingGroup | None = None


class PodCondition(Struct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class TerminatedState(Struct, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None


class WaitingState(Struct, frozen=True, kw_only=True):
    reason: str = ""


class RunningState(Struct, frozen=True, kw_only=True):
    started_at: datetime | None = None


class ContainerState(Struct, frozen=True, kw_only=True):
    """One of the three is set."""

    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(Struct, frozen=True, kw_only=True):
    """`last_state`: how its last run ended, where it was started again."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: tuple[PodCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class Pod(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Namespace(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta


class JobCondition(Struct, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class JobStatus(Struct, frozen=True, kw_only=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[JobCondition, ...] = ()
    completion_time: datetime | None = None


class Job(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    status: JobStatus = JobStatus()


class LeaseSpec(Struct, frozen=True, kw_only=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class PodTemplateSpec(Struct, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Struct, frozen=True, kw_only=True):
    template: PodTemplateSpec = PodTemplateSpec()


class DaemonSet(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()
