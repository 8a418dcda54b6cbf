"""Remediation (nodemend.dev/v1alpha1, cluster scope): the persisted story of one incident on one Node.

`spec` is written once and never changes (CEL says so); `status` is the controller's. Everything needed to go on after a
crash, and to put the Node back exactly as it was, stands here or in the Node's own annotation.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from kube.nodehealth import HealthFinding
from kube.types import ObjectMeta, Struct

QUARANTINE = "nodemend.dev/quarantine"  # key of the taint and of the Node's annotation
CANCEL = "nodemend.dev/cancel"  # annotation on a Remediation, RFC 3339 or not: a person stops it
# Annotation, RFC 3339: a person says that a suspected workload is not at fault. On a policy it covers what was seen up to
# then; on a Remediation it lets this one go, whatever it says.
WORKLOAD_ACKNOWLEDGED = "nodemend.dev/workload-acknowledged"
REPAIRED = "nodemend.dev/repaired"  # annotation on a Remediation, RFC 3339: a person mended the node


class Phase(StrEnum):
    """Where an incident stands; Waiting = contained narrowly, with nothing changed on the Node; Cleared = the evidence
    went away before we had changed anything."""

    SUSPECTED = "Suspected"
    WAITING = "Waiting"
    QUARANTINED = "Quarantined"
    DRAINING = "Draining"
    REPAIRING = "Repairing"
    REVALIDATING = "Revalidating"
    ESCALATED = "Escalated"
    RETURNED = "Returned"
    CANCELLED = "Cancelled"
    SUPERSEDED = "Superseded"
    CLEARED = "Cleared"


CLOSED = frozenset({Phase.RETURNED, Phase.CANCELLED, Phase.SUPERSEDED, Phase.CLEARED})


class RemediationSpec(Struct, frozen=True, kw_only=True):
    """Latched at opening: which Node object and machine, on what evidence, under which policy."""

    node_name: str
    node_uid: str = msgspec.field(name="nodeUID")
    provider_id: str = msgspec.field(name="providerID", default="")
    boot_id: str = msgspec.field(name="bootID", default="")
    policy: str
    evidence: tuple[HealthFinding, ...]
    opened_at: datetime


class NodeBefore(Struct, frozen=True, kw_only=True):
    """What the Node looked like before we touched it, and what we changed: the recipe for the exact restore.

    `applied_at` and `applied_version` are set once the Node was seen to carry the change, and at which resourceVersion: a
    Node without it is from then on one that somebody changed, unless our view of it is older than that version.
    """

    unschedulable: bool
    cordoned: bool
    tainted: bool
    at: datetime
    applied_at: datetime | None = None
    applied_version: str = ""


class ClientLabel(Struct, frozen=True, kw_only=True):
    """A label of the Node that lets a client of the GPUs run there, and its value before we switched it off."""

    key: str
    before: str


class StoppedClients(Struct, frozen=True, kw_only=True):
    """The clients of the GPUs that a reset has to stop, written down before the first of them is.

    `applied_at` and `applied_version` are set once all labels were seen switched off, and at which resourceVersion of the
    Node: from then on one that reads otherwise was changed by somebody else, unless the view is older than that version.
    """

    labels: tuple[ClientLabel, ...] = ()
    at: datetime
    applied_at: datetime | None = None
    applied_version: str = ""


class BlockedPod(Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str
    why: str


class DrainRecord(Struct, frozen=True, kw_only=True):
    """`urgency` says how: now = by eviction, when-idle = running work is waited for and never evicted.

    `parts` are the GPUs (UUID, else PCI address) that alone have to be free; empty = the entire node. Written in Waiting.
    """

    started_at: datetime
    deadline: datetime
    evicted: int = 0
    blocked: tuple[BlockedPod, ...] = ()
    finished_at: datetime | None = None
    urgency: str = ""
    parts: tuple[str, ...] = ()


class RepairTarget(Struct, frozen=True, kw_only=True):
    """One GPU that a repair is about. `reset_at` is when its Job saw it answer again, by the machine's own clock."""

    uuid: str
    pci: str = ""
    reset_at: datetime | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    """One run of a repair or of the revalidation. `result` is empty while it runs, else Succeeded, Failed or Refused.

    Refused: this repair is not for this node, or could not be prepared; nothing was done and the next rung follows.
    A revalidation is Refused where kubelet turned its pod away before it ran: it proves nothing and is tried again.
    `released_at` is when the agent said that it holds no handle of the driver any more (reset of a GPU).
    `submitted_at` is set once the Job was created: from then on it is never created again, even if it vanishes.
    `job_failed_at` is when its Job failed, which for a reboot is not yet the end: the machine may be on its way down.
    """

    number: int
    kind: str
    job: str
    boot_id_before: str = msgspec.field(name="bootIDBefore", default="")
    boot_id_after: str = msgspec.field(name="bootIDAfter", default="")
    started_at: datetime
    deadline: datetime
    submitted_at: datetime | None = None
    finished_at: datetime | None = None
    result: str = ""
    message: str = ""
    job_failed_at: datetime | None = None
    targets: tuple[RepairTarget, ...] = ()
    released_at: datetime | None = None


class Notification(Struct, frozen=True, kw_only=True):
    """One row of the outbox: sent at least once, in order, always under the same `id` (the receiver's idempotency key)."""

    id: str
    sink: str
    transition: str
    sequence: int
    summary: str
    created_at: datetime
    attempts: int = 0
    next_try: datetime | None = None
    sent_at: datetime | None = None
    dead: bool = False
    error: str = ""


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """One line of the story, for people: when which phase was entered and why."""

    at: datetime
    phase: str
    message: str


class HeldBy(Struct, frozen=True, kw_only=True):
    """Who owned a pod that held a sick part, both as namespace/name; written down while the pod could be seen."""

    pod: str
    owner: str


class Suspect(Struct, frozen=True, kw_only=True):
    """The workload that is suspected of an incident: `owner` (namespace/name) left `cause` on `nodes`, its own included."""

    owner: str
    cause: str
    nodes: tuple[str, ...] = ()
    since: datetime


class RemediationStatus(Struct, frozen=True, kw_only=True):
    """`others_marker` is another automation's mark on the Node while it stands, `others_seen_at` when it was seen to go.

    `stopped` are the clients that the latest reset of GPUs switched off. `held_since` is since when `held_by` holds.
    `repaired_at` is the person's word (annotation) that was acted on; the same word never counts twice. `cleared_before` is
    up to when that word covers what was seen: it was written by the clock of a person's machine, and never reaches beyond
    the moment in which the controller heard it. While `suspect` stands no drain or repair is started.
    """

    phase: Phase = Phase.SUSPECTED
    phase_since: datetime | None = None
    message: str = ""
    evidence: tuple[HealthFinding, ...] = ()
    before: NodeBefore | None = None
    drain: DrainRecord | None = None
    attempts: tuple[Attempt, ...] = ()
    notifications: tuple[Notification, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    held_by: str = ""
    closed_at: datetime | None = None
    others_marker: str = ""
    others_seen_at: datetime | None = None
    repaired_at: datetime | None = None
    cleared_before: datetime | None = None
    held_since: datetime | None = None
    stopped: StoppedClients | None = None
    holders: tuple[HeldBy, ...] = ()
    suspect: Suspect | None = None


class Remediation(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: RemediationSpec
    status: RemediationStatus = RemediationStatus()
