"""NodeHealth (nodemend.dev/v1alpha1, cluster scope): what the agent knows of one node, part by part.

Named as the Node and owned by it. `spec` is the controller's, `status` the agent's. At most 32 KiB.
"""

from datetime import datetime

import msgspec

from kube.types import ObjectMeta, Struct

GROUP = "nodemend.dev"
VERSION = "v1alpha1"
CLEARED_LIMIT = 64
PERSON = "a person"
"""How `spec.clearedBy` begins where a person cleared the node, and not a repair."""


class HealthPart(Struct, frozen=True, kw_only=True):
    """One part; the same fields identify the part of a finding."""

    kind: str
    pci: str = ""
    uuid: str = ""
    index: int | None = None
    serial: str = ""
    name: str = ""


class PartState(HealthPart, frozen=True, kw_only=True):
    """One part of the machine as it stands. None = not known; it is never guessed.

    `offered`: kubelet gives it, or a MIG device or replica of it, to new pods (PodResources GetAllocatableResources).
    `held`: pods have it now (List), named in `held_by` as namespace/name. `withdrawn_at`: kubelet offered it earlier in this
    boot and was first seen then to do so no longer. `mig`: MIG is switched on. `memory_mib`: what programs may use of a
    GPU's memory, which is the whole less the driver's reserve.
    """

    model: str = ""
    mig: bool | None = None
    memory_mib: int | None = msgspec.field(name="memoryMiB", default=None)
    offered: bool | None = None
    held: bool | None = None
    held_by: str = ""
    withdrawn_at: datetime | None = None


class OtherDevice(Struct, frozen=True, kw_only=True):
    """A device that kubelet offers or has given to pods and that could be laid on no part.

    `resource` is the extended resource, or the driver where a ResourceClaim holds it; `held_by` as in `PartState`.
    """

    resource: str
    id: str
    offered: bool = False
    held_by: str = ""


class HealthFinding(Struct, frozen=True, kw_only=True):
    """One fault or warning that stands; `severity` Fault makes its condition True, Warning never does.

    `holder` is the pod, as namespace/name, that held the part when the fault was first seen; empty where none is known.
    """

    condition: str
    reason: str
    severity: str
    effect: str
    urgency: str
    action: str
    part: HealthPart
    first_seen: datetime
    last_seen: datetime
    count: int = 1
    boot_id: str = msgspec.field(name="bootID", default="")
    drill: bool = False
    detail: str = ""
    evidence: tuple[str, ...] = ()
    holder: str = ""


class NotEvaluatedPart(Struct, frozen=True, kw_only=True):
    check: str
    part: str
    why: str


class SourceState(Struct, frozen=True, kw_only=True):
    """Whether a source could be read when the agent last tried, and how far: `sequence` is the last record's number."""

    name: str
    readable: bool
    error: str = ""
    lost: int = 0
    sequence: int | None = None


class Released(Struct, frozen=True, kw_only=True):
    """The agent holds no NVML handle, because of `why`; `by` is what `spec.release.by` asked, empty for others."""

    since: datetime
    why: str
    by: str = ""


class LastValidated(Struct, frozen=True, kw_only=True):
    """The most GPUs that were counted while every one of them answered; what a later count is held against.

    `ports` and `rate_mbps` are the same of the compute fabric: its active ports, and the rate that all of them had.
    """

    gpus: int
    at: datetime
    ports: int | None = None
    rate_mbps: int | None = None


class FabricPorts(Struct, frozen=True, kw_only=True):
    """What the node shows of its compute fabric since `at`: how many ports are active, and the rate most of them have.

    Peers are held against each other by it; written only when a number changed.
    """

    active: int
    rate_mbps: int = 0
    at: datetime


class NodeHealthStatus(Struct, frozen=True, kw_only=True):
    observed_at: datetime | None = None
    node_uid: str = msgspec.field(name="nodeUID", default="")
    boot_id: str = msgspec.field(name="bootID", default="")
    agent_version: str = ""
    driver: str = ""
    parts: tuple[PartState, ...] = ()
    findings: tuple[HealthFinding, ...] = ()
    not_evaluated: tuple[NotEvaluatedPart, ...] = ()
    sources: tuple[SourceState, ...] = ()
    published_conditions: tuple[str, ...] = ()
    other_devices: tuple[OtherDevice, ...] = ()
    omitted: int = 0
    released: Released | None = None
    last_validated: LastValidated | None = None
    fabric_ports: FabricPorts | None = None


class Expected(Struct, frozen=True, kw_only=True):
    """What the node should hold, and who says so: `source` of the GPUs, `ports_source` of ports and rate."""

    gpus: int | None = None
    source: str = ""
    ports: int | None = None
    rate_mbps: int | None = None
    ports_source: str = ""


class Peers(Struct, frozen=True, kw_only=True):
    """What most of the other nodes of this kind show of their compute fabric; `counted` of them were asked, at least three.

    None = they do not agree on it. A hint of what should be here, of less weight than Expected. `at` is when this was
    written; `counted` is as it was then.
    """

    ports: int | None = None
    rate_mbps: int | None = None
    counted: int = 0
    source: str = ""
    at: datetime | None = None


class Release(Struct, frozen=True, kw_only=True):
    """An open incident needs the driver free of every handle, until it takes this field away again.

    `by` is the Job name of the repair attempt that asks, so that an answer to an earlier attempt is never taken for one to
    this. The agent answers with the same word in `status.released.by`.
    """

    by: str
    since: datetime


class ClearedPart(Struct, frozen=True, kw_only=True):
    """What was seen of one part up to `before` was dealt with by the repair `by`; other parts' findings stand as they are.

    `before` is by the machine's own clock, as the repair's Job read it there: the agent dates its findings by it too.
    """

    uuid: str = ""
    pci: str = ""
    before: datetime
    by: str = ""


class DrilledPart(Struct, frozen=True, kw_only=True):
    """The part that a drill is about, as a person names it."""

    kind: str
    pci: str = ""
    uuid: str = ""
    name: str = ""


class AskedDrill(Struct, frozen=True, kw_only=True):
    """A finding on purpose: `reason` on `part` from `since` until `until`, at most an hour (`kubectl-nodemend drill`)."""

    id: str
    reason: str
    part: DrilledPart
    since: datetime
    until: datetime


class NodeHealthSpec(Struct, frozen=True, kw_only=True):
    """`cleared_before`: everything seen up to then was dealt with by a person or a proven repair of the entire node.

    `cleared`: the same for single parts, one entry a part, oldest first, at most CLEARED_LIMIT. `drills`: at most 8.
    """

    expected: Expected | None = None
    peers: Peers | None = None
    release: Release | None = None
    cleared_before: datetime | None = None
    cleared_by: str = ""
    cleared: tuple[ClearedPart, ...] = ()
    drills: tuple[AskedDrill, ...] = ()


def accepted_at(spec: NodeHealthSpec) -> datetime | None:
    """Give when a person last cleared the node: what was there then is what should be there. None where nobody did."""
    return spec.cleared_before if spec.cleared_by.startswith(PERSON) else None


class NodeHealth(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()
