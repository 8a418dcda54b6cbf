"""NodeHealth (nodemend.dev/v1alpha1, cluster scope): what the agent knows of one node, part by part.

Named as the Node and owned by it. `spec` is the controller's, `status` the agent's. At most 32 KiB.
"""

from datetime import datetime

import msgspec

from kube.types import ObjectMeta, Struct

GROUP = "nodemend.dev"
VERSION = "v1alpha1"


class HealthPart(Struct, frozen=True, kw_only=True):
    """One part; the same fields identify the part of a finding."""

    kind: str
    pci: str = ""
    uuid: str = ""
    index: int | None = None
    serial: str = ""
    name: str = ""


class HealthFinding(Struct, frozen=True, kw_only=True):
    """One fault or warning that stands; `severity` Fault makes its condition True, Warning never does."""

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


class NodeHealthStatus(Struct, frozen=True, kw_only=True):
    observed_at: datetime | None = None
    node_uid: str = msgspec.field(name="nodeUID", default="")
    boot_id: str = msgspec.field(name="bootID", default="")
    agent_version: str = ""
    driver: str = ""
    parts: tuple[HealthPart, ...] = ()
    findings: tuple[HealthFinding, ...] = ()
    not_evaluated: tuple[NotEvaluatedPart, ...] = ()
    sources: tuple[SourceState, ...] = ()
    published_conditions: tuple[str, ...] = ()
    omitted: int = 0


class Expected(Struct, frozen=True, kw_only=True):
    """What the node should hold, and who says so."""

    gpus: int | None = None
    source: str = ""


class NodeHealthSpec(Struct, frozen=True, kw_only=True):
    """`cleared_before`: everything seen up to then was dealt with by a person or a proven repair."""

    expected: Expected | None = None
    cleared_before: datetime | None = None
    cleared_by: str = ""


class NodeHealth(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()
