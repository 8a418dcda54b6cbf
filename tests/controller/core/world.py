"""A world in memory that carries out steps as the API server would: versions, conflicts, creates that exist already.

It holds only objects, never decisions. Everything that is not nodemend (kubelet, agents, people, other automations) is a
method, so a test reads as a story. Each applied step is kept in `done`.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from controller.plan import Plan, plan
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
from controller.view import Delivery, Eviction, Failure, Fleet, Settings, build, by_node
from kube.nodehealth import HealthFinding, NodeHealth, Released
from kube.policy import RemediationPolicy
from kube.remediation import QUARANTINE, Remediation
from kube.types import (
    DaemonSet,
    Job,
    JobCondition,
    JobStatus,
    Lease,
    Node,
    NodeCondition,
    ObjectMeta,
    Pod,
    Taint,
)
from tests import build as make
from tests.build import NOW, XID
from tests.controller.core.patched_node import patched, with_spec


class World:
    """Mutable; one test owns it."""

    def __init__(
        self,
        *nodes: Node,
        policies: Sequence[RemediationPolicy] | None = None,
        pods: Sequence[Pod] = (),
        settings: Settings = make.SETTINGS,
    ) -> None:
        self.now = NOW
        self.settings = settings
        self.nodes = {one.metadata.name: one for one in nodes}
        self.healths: dict[str, NodeHealth] = {name: make.health(one) for name, one in self.nodes.items()}
        self.leases: dict[str, Lease] = {name: make.lease(name) for name in self.nodes}
        self.policies = {
            one.metadata.name: one for one in (policies if policies is not None else [make.policy()])
        }
        self.remediations: dict[str, Remediation] = {}
        self.pods = {one.metadata.uid: one for one in pods}
        self.jobs: dict[str, Job] = {}
        self.daemonsets: list[DaemonSet] = []
        self.evictions: dict[str, Eviction] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.failures: dict[str, Failure] = {}
        self.protected: set[str] = set()
        self.created_jobs: Counter[str] = Counter()
        self.done: list[Step] = []
        self.silent: set[str] = set()
        self.released: dict[str, Released] = {}
        self._version = 1000

    # The controller

    def fleet(self) -> Fleet:
        return build(
            nodes=self.nodes.values(),
            healths=self.healths.values(),
            remediations=self.remediations.values(),
            policies=self.policies.values(),
            leases=self.leases.values(),
            pods=by_node(self.pods.values()),
            jobs=self.jobs.values(),
            daemonsets=self.daemonsets,
            settings=self.settings,
            deliveries=self.deliveries,
            evictions=self.evictions,
            failures=self.failures,
        )

    def plan(self) -> Plan:
        return plan(self.fleet(), self.now)

    def tick(self, *, crash_after: int | None = None) -> list[Step]:
        """Plan and apply once; `crash_after` applies only so many steps, as a kill in the middle would."""
        steps = list(self.plan().steps)[:crash_after]
        for step in steps:
            self.apply(step)
        return steps

    def settle(self, rounds: int = 30) -> list[Step]:
        """Tick until nothing is to be done at this instant; fails where that never comes."""
        applied: list[Step] = []
        for _ in range(rounds):
            steps = self.tick()
            applied += steps
            if not steps:
                return applied
        raise AssertionError(f"never at rest; the last steps were {[type(s).__name__ for s in applied[-5:]]}")

    def after(self, **span: float) -> list[Step]:
        """Let time pass, with agents that live renewing their Leases, and settle."""
        self.now += timedelta(**span)
        for name in self.leases.keys() - self.silent:
            self.leases[name] = make.lease(name, renewed=self.now, node_uid=self.nodes[name].metadata.uid)
        return self.settle()

    def only(self) -> Remediation:
        """Give the one incident there is."""
        (one,) = self.remediations.values()
        return one

    def of(self, node: str) -> Remediation:
        """Give the newest incident of a node."""
        mine = [one for one in self.remediations.values() if one.spec.node_name == node]
        return max(mine, key=lambda one: one.spec.opened_at)

    def kinds(self) -> list[str]:
        """Name the effects on the world so far, in order, without what is only written down."""
        return [
            type(step).__name__
            for step in self.done
            if not isinstance(step, Save | SavePolicy | Open | Silence)
        ]

    # Applying

    def apply(self, step: Step) -> bool:
        """Carry out one step; False where the server would have said Conflict."""
        applied = self._apply(step)
        if applied:
            self.done.append(step)
        return applied

    def _apply(self, step: Step) -> bool:
        match step:
            case Open():
                return self._open(step)
            case Save():
                return self._save(step)
            case SavePolicy():
                policy = self.policies[step.name]
                self.policies[step.name] = msgspec.structs.replace(
                    policy, metadata=self._bumped(policy.metadata), status=step.status
                )
            case Quarantine() | Restore() | StopClients() | StartClients():
                return self._patch_node(step)
            case Evict():
                return self._evict(step)
            case RunRepair() | RunValidation():
                self._create_job(step.job)
            case CallBack():
                self.jobs.pop(step.job, None)
            case Silence():
                for type_, status, reason, message in step.conditions:
                    self._condition(step.node, type_, status, reason, message)
            case WriteSpec() | WriteExpected():
                self._write_spec(step)
            case Delete():
                del self.remediations[step.name]
            case _:
                assert_never(step)
        return True

    def _save(self, step: Save) -> bool:
        held = self.remediations.get(step.name)
        if held is None or held.metadata.resource_version != step.resource_version:
            return False
        self.remediations[step.name] = msgspec.structs.replace(
            held, metadata=self._bumped(held.metadata), status=step.status
        )
        return True

    def _write_spec(self, step: WriteSpec | WriteExpected) -> None:
        held = self.healths[step.node]
        spec = (
            step.spec
            if isinstance(step, WriteSpec)
            else msgspec.structs.replace(held.spec, expected=step.expected, peers=step.peers)
        )
        self.healths[step.node] = msgspec.structs.replace(held, spec=spec)

    def _create_job(self, name: str) -> None:
        if name not in self.jobs:
            self.created_jobs[name] += 1
            self.jobs[name] = make.job(name)

    def _open(self, step: Open) -> bool:
        if step.name in self.remediations:
            return False
        self.remediations[step.name] = Remediation(
            metadata=self._bumped(ObjectMeta(name=step.name, uid=f"uid-{step.name}")),
            spec=step.spec,
            status=step.status,
        )
        return True

    def _patch_node(self, step: Quarantine | Restore | StopClients | StartClients) -> bool:
        node = self.nodes.get(step.node)
        if (
            node is None
            or node.metadata.uid != step.node_uid
            or node.metadata.resource_version != step.resource_version
        ):
            return False
        self._put(patched(step, node))
        return True

    def _evict(self, step: Evict) -> bool:
        pod = self.pods.get(step.uid)
        last = self.evictions.get(step.uid)
        if pod is None:
            return True
        if step.uid in self.protected:
            tries = 1 if last is None else last.tries + 1
            self.evictions[step.uid] = Eviction(
                incident=step.incident,
                at=self.now,
                refused="its PodDisruptionBudget allows none",
                tries=tries,
            )
            return False
        self.evictions[step.uid] = Eviction(incident=step.incident, at=self.now)
        del self.pods[step.uid]
        return True

    def _bumped(self, metadata: ObjectMeta) -> ObjectMeta:
        self._version += 1
        return msgspec.structs.replace(metadata, resource_version=str(self._version))

    def _put(self, node: Node) -> None:
        self.nodes[node.metadata.name] = msgspec.structs.replace(node, metadata=self._bumped(node.metadata))

    def _condition(self, name: str, type_: str, status: str, reason: str = "", message: str = "") -> None:
        node = self.nodes[name]
        held = node.condition(type_)
        moved = held is None or held.status != status
        at = self.now if moved or held is None else held.last_transition_time
        new = NodeCondition(
            type=type_, status=status, reason=reason, message=message, last_transition_time=at
        )
        others = tuple(c for c in node.status.conditions if c.type != type_)
        self._put(
            msgspec.structs.replace(
                node, status=msgspec.structs.replace(node.status, conditions=(*others, new))
            )
        )

    # Agents

    def fault(self, name: str = "gpu-1", *findings: HealthFinding) -> None:
        """The agent reports these findings (a lost GPU by default), and nothing else."""
        found = findings or (self.seen(name),)
        ill = {f.condition for f in found}
        for type_ in {*ill, XID}:
            self._condition(name, type_, "True" if type_ in ill else "False")
        self._report(name, found, tuple(ill | {XID}))

    def seen(self, name: str = "gpu-1", **changes: object) -> HealthFinding:
        """Build a finding seen just now, in the boot that runs."""
        boot = self.nodes[name].status.node_info.boot_id
        return msgspec.structs.replace(
            make.finding(first_seen=self.now, last_seen=self.now, boot_id=boot), **changes
        )

    def well(self, name: str = "gpu-1") -> None:
        """The agent reports that nothing stands."""
        for type_ in self.healths[name].status.published_conditions:
            self._condition(name, type_, "False")
        self._report(name, (), self.healths[name].status.published_conditions)

    def again(self, name: str = "gpu-1") -> None:
        """The agent reports what it found before."""
        status = self.healths[name].status
        self._report(name, status.findings, status.published_conditions)

    def unknown(self, name: str = "gpu-1") -> None:
        """The agent reports that it could not look."""
        self._condition(name, XID, "Unknown", "KernelLogUnreadable")
        self._report(name, (), (XID,))

    def claim(self, name: str = "gpu-1") -> None:
        """Somebody turns our condition True, and no NodeHealth says why."""
        self._condition(name, XID, "True", "Claimed")
        self._report(name, (), (XID,))

    def _report(self, name: str, findings: Sequence[HealthFinding], published: Sequence[str]) -> None:
        released = self.released.get(name)
        fresh = make.health(
            self.nodes[name], findings, observed_at=self.now, published=published, released=released
        )
        self.healths[name] = msgspec.structs.replace(fresh, spec=self.healths[name].spec)

    # Machines, kubelets and Jobs

    def reboot(self, name: str = "gpu-1", boot_id: str | None = None) -> None:
        """The machine comes up again, and its agent reports nothing wrong."""
        node = self.nodes[name]
        self._version += 1
        new = f"boot-{self._version}" if boot_id is None else boot_id
        info = msgspec.structs.replace(node.status.node_info, boot_id=new)
        self._put(msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, node_info=info)))
        self.well(name)

    def finish(self, job: str, *, failed: str = "") -> None:
        """A Job ends."""
        condition = (
            JobCondition(type="Failed", status="True", message=failed)
            if failed
            else JobCondition(type="Complete", status="True")
        )
        self.jobs[job] = msgspec.structs.replace(self.jobs[job], status=JobStatus(conditions=(condition,)))

    def ready(self, name: str = "gpu-1", *, on: bool) -> None:
        self._condition(name, "Ready", "True" if on else "Unknown")

    def recreate(self, name: str = "gpu-1") -> None:
        """The Node object is deleted and a new one registers under its name."""
        self._version += 1
        new = make.node(name, uid=f"uid-{name}-{self._version}", created=self.now)
        self._put(new)
        self.healths[name] = make.health(self.nodes[name], observed_at=self.now)

    # People and other automations

    def cordon(self, name: str = "gpu-1", *, on: bool = True) -> None:
        self._put(with_spec(self.nodes[name], unschedulable=on))

    def label(self, name: str, key: str, value: str) -> None:
        self._with_metadata(name, labels={**self.nodes[name].metadata.labels, key: value})

    def taint(self, name: str, key: str) -> None:
        self._put(with_spec(self.nodes[name], taints=(*self.nodes[name].spec.taints, Taint(key=key))))

    def untaint(self, name: str, key: str) -> None:
        taints = tuple(t for t in self.nodes[name].spec.taints if t.key != key)
        self._put(with_spec(self.nodes[name], taints=taints))

    def unmark(self, name: str = "gpu-1") -> None:
        """A person removes our annotation."""
        annotations = {k: v for k, v in self.nodes[name].metadata.annotations.items() if k != QUARANTINE}
        self._with_metadata(name, annotations=annotations)

    def say(self, annotation: str, node: str = "gpu-1", at: datetime | None = None) -> None:
        """A person annotates the node's incident."""
        one = self.of(node)
        text = (self.now if at is None else at).isoformat()
        metadata = msgspec.structs.replace(
            one.metadata, annotations={**one.metadata.annotations, annotation: text}
        )
        self.remediations[one.metadata.name] = msgspec.structs.replace(one, metadata=self._bumped(metadata))

    def change_policy(self, new: RemediationPolicy) -> None:
        held = self.policies.get(new.metadata.name)
        status = new.status if held is None else held.status
        self.policies[new.metadata.name] = msgspec.structs.replace(
            new, metadata=self._bumped(new.metadata), status=status
        )

    def _with_metadata(self, name: str, **changes: object) -> None:
        node = self.nodes[name]
        self._put(msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, **changes)))
