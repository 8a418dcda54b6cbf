"""Steps: every effect the controller may have on the world, as data.

`plan` returns them, `apply` carries them out, one match arm each. A Step is emitted only from a persisted state, so a
crash between the two repeats at most an idempotent request.
"""

import msgspec

from kube.nodehealth import Expected, NodeHealthSpec, Peers
from kube.policy import PolicyStatus
from kube.remediation import ClientLabel, NodeBefore, RemediationSpec, RemediationStatus


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    node: str


class Open(_Step, frozen=True, kw_only=True):
    """Create the Remediation; its name is derived from the evidence, so that a second create is AlreadyExists."""

    name: str
    spec: RemediationSpec
    status: RemediationStatus


class Save(_Step, frozen=True, kw_only=True):
    """Replace the Remediation's status, if it is still at `resource_version`."""

    name: str
    resource_version: str
    status: RemediationStatus


class Quarantine(_Step, frozen=True, kw_only=True):
    """Cordon and taint in one patch with the annotation that records ownership and the state before."""

    node_uid: str
    resource_version: str
    incident: str
    before: NodeBefore


class Restore(_Step, frozen=True, kw_only=True):
    """Put the Node back exactly as it was found. `uncordon` is False where a person holds, or held before, the cordon."""

    node_uid: str
    resource_version: str
    incident: str
    uncordon: bool
    untaint: bool


class Evict(_Step, frozen=True, kw_only=True):
    """Evict one pod through the Eviction API with its UID as precondition."""

    incident: str
    namespace: str
    name: str
    uid: str


class StopClients(_Step, frozen=True, kw_only=True):
    """Switch the GPU's clients off by their labels on the Node, after the guards of the repair were asked again."""

    node_uid: str
    resource_version: str
    incident: str
    labels: tuple[ClientLabel, ...]


class StartClients(_Step, frozen=True, kw_only=True):
    """Give labels that a reset switched off the values that they had before; only those that still carry our word."""

    node_uid: str
    resource_version: str
    incident: str
    labels: tuple[ClientLabel, ...]


class RunRepair(_Step, frozen=True, kw_only=True):
    """Create the Job of a repair attempt, after guards were asked again on objects read that moment.

    `timeout_s` is the whole time of the attempt in seconds; its deadline stands in the persisted Attempt, and so do the GPUs
    that a reset is about.
    """

    incident: str
    repair: str
    attempt: int
    job: str
    boot_id: str
    timeout_s: int = 0


class RunValidation(_Step, frozen=True, kw_only=True):
    """Create the Job of a revalidation attempt.

    `gpus` is what the hardware has to show. `devices` is what the Job asks the scheduler for where MIG cuts the GPUs; where
    it is empty, that is `gpus` of `gpu_resource`.
    """

    incident: str
    attempt: int
    job: str
    gpu_resource: str
    gpus: int
    timeout_s: int
    devices: dict[str, int] = {}


class CallBack(_Step, frozen=True, kw_only=True):
    """Delete the Job of a closed incident that has not begun on the node: it must not act there long after the end."""

    incident: str
    job: str
    job_uid: str


class Silence(_Step, frozen=True, kw_only=True):
    """Turn a silent agent's False conditions Unknown (AgentSilent); True stays, with `last confirmed at`.

    Only on the Node as it was looked at: an agent that speaks again in this moment may just have turned one True.
    """

    node_uid: str
    resource_version: str
    conditions: tuple[tuple[str, str, str, str], ...]  # type, status, reason, message


class WriteSpec(_Step, frozen=True, kw_only=True):
    """Write NodeHealth.spec."""

    spec: NodeHealthSpec


class WriteExpected(_Step, frozen=True, kw_only=True):
    """Write what the node should hold and what its peers show into NodeHealth.spec, and nothing else of it."""

    expected: Expected | None
    peers: Peers | None


class SavePolicy(_Step, frozen=True, kw_only=True):
    """Replace a policy's status; `node` is empty."""

    name: str
    resource_version: str
    status: PolicyStatus


class Delete(_Step, frozen=True, kw_only=True):
    """Delete a Remediation that closed more than the retention time ago."""

    name: str


Step = (
    Open
    | Save
    | Quarantine
    | Restore
    | Evict
    | StopClients
    | StartClients
    | RunRepair
    | RunValidation
    | CallBack
    | Silence
    | WriteSpec
    | WriteExpected
    | SavePolicy
    | Delete
)
