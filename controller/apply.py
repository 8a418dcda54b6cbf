"""Carry out steps: one match arm each, every one idempotent, every error an Outcome. Shell.

`dry_run` stops here and nowhere else: everything is decided and shown, nothing is sent. Each request that changes something
passes the leader's write guard (kube.session refuses with NotLeader what could still be under way when the Lease passes
on). An eviction or a repair cannot be taken back, so neither trusts what the plan saw: it asks the guards again, on objects
read that moment.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, assert_never

import msgspec

from controller import client_patch, node_patch
from controller.config import Config
from controller.fresh import Glance, Reread, glance, reread
from controller.outcome import Outcome, Result, from_error, from_eviction_error
from controller.repairs import INCIDENT_LABEL, NODE_UID_ANNOTATION, JobSettings, Order, Repair, discover
from controller.steps import (
    CallBack,
    Delete,
    Evict,
    Open,
    Quarantine,
    Restore,
    RunRepair,
    RunValidation,
    Save,
    SavePolicy,
    Silence,
    StartClients,
    Step,
    StopClients,
    WriteExpected,
    WriteSpec,
)
from kube import paths
from kube.api import AlreadyExists, Api, ApiError, NotFound, PatchType
from kube.clock import Clock
from kube.nodehealth import GROUP, VERSION, NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation, RemediationStatus
from kube.types import Job, Node, Struct

FIELD_MANAGER = {"fieldManager": "nodemend-controller"}
NODE_LABEL = "nodemend.dev/node"

T = TypeVar("T")

_BODIES: Mapping[type[Step], Callable[[Any, Node], list[dict[str, Any]]]] = {
    Quarantine: node_patch.quarantine,
    Restore: node_patch.restore,
    StartClients: client_patch.start,
    StopClients: client_patch.stop,
}


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What applying needs beside the step. `held_node` gives the Node as the plan saw it, or a newer one.

    `why_not_repair`, `why_not_evict` and `why_not_validate` are the core's guards, asked on what was read that moment;
    `why_not_write` says why nothing may be sent now (this replica no longer leads, or is stopping).
    """

    api: Api
    clock: Clock
    config: Config
    held_node: Callable[[str], Node | None]
    why_not_repair: Callable[[Reread], str | None]
    why_not_evict: Callable[[Glance], str | None]
    why_not_validate: Callable[[Glance], str | None]
    why_not_write: Callable[[], str | None]


class Applier:
    """Applies steps from any thread; holds no state but what it was given."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._api = world.api
        jobs = world.config.jobs
        self._settings = JobSettings(
            namespace=jobs.namespace,
            service_account=jobs.service_account,
            image=jobs.image,
            host_pid=jobs.host_pid,
        )
        self._repairs: Mapping[str, Repair] = {repair.name: repair for repair in discover()}

    def apply(self, step: Step) -> Outcome:
        """Carry out one step. Raises nothing that the API server can cause."""
        if self._world.config.dry_run:
            return Outcome(step=step, result=Result.DRY_RUN, why="dry_run is set: nothing was sent")
        if why := self._world.why_not_write():
            return Outcome(step=step, result=Result.NOT_LEADER, why=why)
        try:
            return self._apply(step)
        except ApiError as error:
            return from_error(step, error)
        except msgspec.DecodeError as error:
            why = f"the server's answer cannot be read: {error}"
            return Outcome(step=step, result=Result.UNAVAILABLE, why=why)

    def _apply(self, step: Step) -> Outcome:
        match step:
            case Open():
                return self._open(step)
            case Save() | SavePolicy():
                return self._save(step)
            case Quarantine() | Restore() | StartClients():
                return self._patch_node(step)
            case StopClients():
                return self._stop_clients(step)
            case Evict():
                return self._evict(step)
            case RunRepair():
                return self._run_repair(step)
            case RunValidation():
                return self._run_validation(step)
            case CallBack():
                return self._call_back(step)
            case Silence():
                return self._silence(step)
            case WriteSpec() | WriteExpected():
                return self._write_spec(step)
            case Delete():
                return self._delete(step)
            case _:
                assert_never(step)

    # Remediations and policies

    def _open(self, step: Open) -> Outcome:
        labels = {INCIDENT_LABEL: step.name, "app.kubernetes.io/managed-by": "nodemend-controller"}
        if len(step.node) <= 63:  # a label's value is no longer; a Node's name may be
            labels[NODE_LABEL] = step.node
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Remediation",
            "metadata": {"name": step.name, "labels": labels},
            "spec": without_nulls(msgspec.to_builtins(step.spec)),
        }
        try:
            created = _decode(self._api.create(paths.remediations(), body, FIELD_MANAGER), Remediation)
        except AlreadyExists:
            created = _decode(self._api.get(paths.remediation(step.name)), Remediation)
            if created.spec.node_uid != step.spec.node_uid or created.spec.node_name != step.spec.node_name:
                why = f"Remediation {step.name} exists for another Node ({created.spec.node_name})"
                return Outcome(step=step, result=Result.CONFLICT, why=why)
            if created.status != RemediationStatus():
                return Outcome(step=step, result=Result.UNCHANGED, objects=(created,))
        # Status is a subresource: the create left it out. Until it is in, the incident stands as Suspected without a story.
        path, version = paths.remediation_status(step.name), created.metadata.resource_version
        return self._write_status(step, path, version, step.status, Remediation)

    def _save(self, step: Save | SavePolicy) -> Outcome:
        if isinstance(step, Save):
            path = paths.remediation_status(step.name)
            return self._write_status(step, path, step.resource_version, step.status, Remediation)
        path = paths.policy_status(step.name)
        return self._write_status(step, path, step.resource_version, step.status, RemediationPolicy)

    def _write_status(
        self, step: Step, path: str, version: str, status: Struct, kind: type[Remediation | RemediationPolicy]
    ) -> Outcome:
        body = {"metadata": {"resourceVersion": version}, "status": replacing(msgspec.to_builtins(status))}
        saved = _decode(self._api.patch(path, body, PatchType.MERGE, FIELD_MANAGER), kind)
        return Outcome(step=step, result=Result.DONE, objects=(saved,))

    def _delete(self, step: Delete) -> Outcome:
        try:
            self._api.delete(paths.remediation(step.name))
        except NotFound:
            return Outcome(step=step, result=Result.ABSENT)
        return Outcome(step=step, result=Result.DONE)

    def _write_spec(self, step: WriteSpec | WriteExpected) -> Outcome:
        spec: Any = (
            step.spec if isinstance(step, WriteSpec) else {"expected": step.expected, "peers": step.peers}
        )
        body = {"spec": replacing(msgspec.to_builtins(spec))}
        answer = self._api.patch(paths.node_health(step.node), body, PatchType.MERGE, FIELD_MANAGER)
        return Outcome(step=step, result=Result.DONE, objects=(_decode(answer, NodeHealth),))

    # Nodes and pods

    def _patch_node(self, step: Quarantine | Restore | StartClients | StopClients) -> Outcome:
        node = self._as_planned(step)
        if isinstance(node, Outcome):
            return node
        operations = _BODIES[type(step)](step, node)
        if not operations:
            return Outcome(step=step, result=Result.UNCHANGED)
        answer = self._api.patch(paths.node(step.node), operations, PatchType.JSON, FIELD_MANAGER)
        return Outcome(step=step, result=Result.DONE, objects=(_decode(answer, Node),))

    def _stop_clients(self, step: StopClients) -> Outcome:
        # Guarded as the Job is: from here on nothing on the node offers its GPUs, nor watches them.
        seen = reread(self._api, node=step.node, incident=step.incident)
        if why := self._world.why_not_repair(seen):
            return Outcome(step=step, result=Result.REFUSED, why=why, objects=seen.objects())
        if not_now := self._world.why_not_write():
            return Outcome(step=step, result=Result.NOT_LEADER, why=not_now)
        return self._patch_node(step)

    def _as_planned(
        self, step: Quarantine | Restore | Silence | StartClients | StopClients
    ) -> Node | Outcome:
        """Give the Node on which the step was decided, or a conflict where another one is held by now."""
        node = self._world.held_node(step.node)
        if node is None or node.metadata.uid != step.node_uid:
            return Outcome(step=step, result=Result.CONFLICT, why=f"Node {step.node} is another one now")
        if node.metadata.resource_version != step.resource_version:
            return Outcome(
                step=step, result=Result.CONFLICT, why=f"Node {step.node} changed since it was looked at"
            )
        return node

    def _silence(self, step: Silence) -> Outcome:
        node = self._as_planned(step)
        if isinstance(node, Outcome):
            return node
        body = node_patch.silence(step, node, self._world.clock.now())
        answer = self._api.patch(paths.node_status(step.node), body, PatchType.STRATEGIC, FIELD_MANAGER)
        return Outcome(step=step, result=Result.DONE, objects=(_decode(answer, Node),))

    def _evict(self, step: Evict) -> Outcome:
        # An eviction may have waited behind others for minutes; a pod's UID alone does not say that it is still wanted.
        try:
            seen = glance(self._api, node=step.node, incident=step.incident)
        except ApiError as error:
            return from_error(step, error)
        if why := self._world.why_not_evict(seen):
            return Outcome(step=step, result=Result.REFUSED, why=why, objects=seen.objects())
        if not_now := self._world.why_not_write():
            return Outcome(step=step, result=Result.NOT_LEADER, why=not_now)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": step.name, "namespace": step.namespace},
            "deleteOptions": {"preconditions": {"uid": step.uid}},
        }
        try:
            self._api.create(paths.eviction(step.namespace, step.name), body)
        except ApiError as error:
            return from_eviction_error(step, error)
        return Outcome(step=step, result=Result.DONE)

    # Jobs

    def _run_repair(self, step: RunRepair) -> Outcome:
        seen = reread(self._api, node=step.node, incident=step.incident)
        if why := self._world.why_not_repair(seen) or seen.why_not_attempt(step):
            return Outcome(step=step, result=Result.REFUSED, why=why, objects=seen.objects())
        repair = self._repairs.get(step.repair)
        if repair is None:
            why = f"there is no repair {step.repair}; known are {', '.join(sorted(self._repairs))}"
            return Outcome(step=step, result=Result.MISCONFIGURED, why=why)
        deadline_s = int((seen.deadline_of(step) - self._world.clock.now()).total_seconds())
        if deadline_s <= 0:
            return Outcome(step=step, result=Result.REFUSED, why="the attempt's deadline has passed")
        order = Order(
            job=step.job,
            incident=step.incident,
            attempt=step.attempt,
            node=step.node,
            node_uid=seen.node.metadata.uid,
            boot_id=step.boot_id,
            command=self._world.config.repairs[step.repair].command,
            deadline_s=deadline_s,
            uuids=seen.targets_of(step),
        )
        return self._create_job(step, repair, order)

    def _run_validation(self, step: RunValidation) -> Outcome:
        seen = glance(self._api, node=step.node, incident=step.incident)
        if why := self._world.why_not_validate(seen):
            return Outcome(step=step, result=Result.REFUSED, why=why, objects=seen.objects())
        order = Order(
            job=step.job,
            incident=step.incident,
            attempt=step.attempt,
            node=step.node,
            node_uid=seen.node.metadata.uid,
            boot_id="",
            command=self._world.config.validation.command,
            deadline_s=step.timeout_s,
            gpu_resource=step.gpu_resource,
            gpus=step.gpus,
            devices=step.devices,
        )
        return self._create_job(step, self._repairs["revalidate"], order)

    def _call_back(self, step: CallBack) -> Outcome:
        body = {"propagationPolicy": "Background", "preconditions": {"uid": step.job_uid}}
        try:
            self._api.delete(paths.job(self._settings.namespace, step.job), body)
        except NotFound:
            return Outcome(step=step, result=Result.ABSENT)
        return Outcome(step=step, result=Result.DONE)

    def _create_job(self, step: RunRepair | RunValidation, repair: Repair, order: Order) -> Outcome:
        if not self._settings.image:
            why = "jobs.image is not set in the controller's configuration: there is nothing to run"
            return Outcome(step=step, result=Result.MISCONFIGURED, why=why)
        try:
            body = repair.job(order, self._settings)
        except ValueError as error:
            return Outcome(step=step, result=Result.REFUSED, why=str(error))
        if not_now := self._world.why_not_write():
            return Outcome(step=step, result=Result.NOT_LEADER, why=not_now)
        namespace = self._settings.namespace
        try:
            job = _decode(self._api.create(paths.jobs(namespace), body, FIELD_MANAGER), Job)
        except AlreadyExists:
            job = _decode(self._api.get(paths.job(namespace, step.job)), Job)
            if not_ours := _why_not_ours(job, order):
                return Outcome(step=step, result=Result.CONFLICT, why=not_ours)
            return Outcome(step=step, result=Result.UNCHANGED, objects=(job,))
        except NotFound as error:  # creating answers 404 only where the namespace is missing
            return Outcome(step=step, result=Result.MISCONFIGURED, why=str(error))
        return Outcome(step=step, result=Result.DONE, objects=(job,))


def _why_not_ours(job: Job, order: Order) -> str | None:
    """Say why a Job of that name is not the one of this attempt: names are guessable, label and UID together are proof."""
    incident = job.metadata.labels.get(INCIDENT_LABEL, "")
    uid = job.metadata.annotations.get(NODE_UID_ANNOTATION, "")
    if (incident, uid) == (order.incident, order.node_uid):
        return None
    return f"Job {order.job} exists and is not ours: incident {incident or 'none'}, node UID {uid or 'none'}"


def _decode(answer: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(answer, type=kind)


def without_nulls(value: Any) -> Any:
    """Leave out what is None: a schema takes an absent field, not a null one."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value]
    return value


def replacing(value: Any) -> Any:
    """Make a merge patch replace: a null in a map removes what stood there, a list is taken whole and holds no nulls."""
    if isinstance(value, dict):
        return {name: replacing(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value]
    return value
