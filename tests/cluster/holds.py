"""How an incident is held in a phase, so that a fault strikes inside it: by real means, never by a hook in the product.

A policy in mode Observe, a budget that another node uses up, a PodDisruptionBudget and a slow pod, a repair and a
revalidation whose command takes its time, a machine that takes its time to boot, a policy that stops at the page.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from kube import paths
from kube.api import NotFound
from kube.remediation import Phase, Remediation
from sandbox.nodes import Reboots, SimulatedNode
from tests.cluster import held_command
from tests.cluster.stage import OFF_THE_BUS, REBOOT, VALIDATE, Stage


class Held(StrEnum):
    """Where the incident stands when the fault strikes. The first one is not held at all: the strike races with it."""

    JUST_TRUE = "the condition has just turned True"
    SUSPECTED = "Suspected"
    QUARANTINED = "Quarantined"
    DRAINING = "Draining"
    REPAIRING = "Repairing"
    REBOOTING = "Repairing, while the machine is down"
    REVALIDATING = "Revalidating"
    ESCALATED = "Escalated"


PHASES = {
    Held.SUSPECTED: Phase.SUSPECTED,
    Held.QUARANTINED: Phase.QUARANTINED,
    Held.DRAINING: Phase.DRAINING,
    Held.REPAIRING: Phase.REPAIRING,
    Held.REBOOTING: Phase.REPAIRING,
    Held.REVALIDATING: Phase.REVALIDATING,
    Held.ESCALATED: Phase.ESCALATED,
}
_POLICIES: dict[Held, dict[str, Any]] = {
    Held.SUSPECTED: {"mode": "Observe"},
    Held.QUARANTINED: {"budget": {"maxUnavailable": "1%", "maxQuarantined": "100%"}},
    Held.ESCALATED: {"mode": "Quarantine"},
}
_GATES = {Held.REPAIRING: REBOOT, Held.REBOOTING: REBOOT, Held.REVALIDATING: VALIDATE}


class Case(msgspec.Struct, kw_only=True):
    """One node on which one incident is held in one phase. `before` is what its Node looked like."""

    held: Held
    node: SimulatedNode
    before: dict[str, Any] = {}
    trouble: str = ""
    answered: str = ""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def work(self) -> str:
        """The pod that every node runs: evicted at once, or left alone where nothing is drained."""
        return f"{self.name}-work"

    @property
    def slow(self) -> str:
        """In Draining: a pod whose eviction was accepted and that takes its time to end."""
        return f"{self.name}-slow"

    @property
    def guarded(self) -> str:
        """In Draining: a pod whose eviction a PodDisruptionBudget refuses."""
        return f"{self.name}-guarded"


def prepare(stage: Stage, case: Case, **policy: Any) -> None:
    """Set up what will hold the incident, before anything is wrong; `policy` are further fields of its spec."""
    case.node.reboots = Reboots(down_s=0.5, not_ready_s=0.3)
    stage.apply_policy(case.name, **{**_POLICIES.get(case.held, {}), **policy})
    stage.start_pod(case.name, case.work, gpus=0 if case.held is Held.ESCALATED else 1)
    if case.held is Held.DRAINING:
        stage.start_pod(case.name, case.slow, exits_after="5m", grace_s=300)
        stage.start_pod(case.name, case.guarded)
        stage.forbid_eviction(case.guarded)
    if case.held is Held.REBOOTING:
        stage.stay_down(case.node)
    if gate := _GATES.get(case.held):
        held_command.closed(case.node.root, gate).touch()


def use_up_the_budget(stage: Stage, case: Case) -> None:
    """Put a node out of service into the pool of this case, where that is what holds it."""
    if case.held is Held.QUARANTINED:
        filler = f"{case.name}-filler"
        labels = {"kubernetes.io/hostname": case.name}
        body = {"metadata": {"name": filler, "labels": labels}, "spec": {"unschedulable": True}}
        stage.admin.create(paths.nodes(), body)


def break_gpu(case: Case) -> None:
    """Let the kernel say that GPU 3 fell off the bus."""
    case.node.write_xid(*OFF_THE_BUS, gpu=3)


def why_not_held(stage: Stage, case: Case) -> str:
    """Say what is missing until the incident is held where it should be; empty when it is."""
    incident = stage.incident(case.name)
    if case.held is Held.JUST_TRUE:
        return "" if stage.status_of(case.name) == "True" else "the condition is not True"
    if incident is None:
        return "there is no incident"
    if incident.status.phase is not PHASES[case.held]:
        return f"it is {incident.status.phase}: {incident.status.message}"
    if case.held is Held.REBOOTING:
        return "" if _waits(case, REBOOT) or not case.node.up.is_set() else "its Job does not run"
    look = _HELD_BY.get(case.held)
    return "" if look is None else look(stage, case, incident)


def _held_observing(_stage: Stage, _case: Case, incident: Remediation) -> str:
    return "" if incident.status.held_by == "mode" else "the mode does not hold it"


def _held_by_budget(stage: Stage, case: Case, incident: Remediation) -> str:
    node = stage.watching.nodes.get(case.name)
    if node is None or not node.spec.unschedulable:
        return "the node is not cordoned"
    return "" if incident.status.held_by == "budget" else "the budget does not hold it"


def _held_by_pods(stage: Stage, case: Case, incident: Remediation) -> str:
    blocked = incident.status.drain.blocked if incident.status.drain is not None else ()
    if [pod.name for pod in blocked] != [case.guarded]:
        return "the budget has not refused the guarded pod"
    return "the plain pod is still there" if stage.has_pod(case.work) else ""


def _held_by_repair(_stage: Stage, case: Case, incident: Remediation) -> str:
    submitted = [row for row in incident.status.attempts if row.submitted_at is not None]
    return "" if submitted and _waits(case, REBOOT) else "its Job does not run"


def _held_by_validation(_stage: Stage, case: Case, _incident: Remediation) -> str:
    return "" if _waits(case, VALIDATE) else "its Job does not run"


def _waits(case: Case, gate: str) -> bool:
    return held_command.waiting(case.node.root, gate).exists()


_HELD_BY: dict[Held, Callable[[Stage, Case, Remediation], str]] = {
    Held.SUSPECTED: _held_observing,
    Held.QUARANTINED: _held_by_budget,
    Held.DRAINING: _held_by_pods,
    Held.REPAIRING: _held_by_repair,
    Held.REVALIDATING: _held_by_validation,
}


def open_gate(stage: Stage, case: Case) -> None:
    """Let the command go on that was held, and the machine boot that is down; needs no API server."""
    if gate := _GATES.get(case.held):
        held_command.closed(case.node.root, gate).unlink(missing_ok=True)
    if case.held is Held.REBOOTING:
        stage.boot(case.node)


def take_down(stage: Stage, case: Case) -> None:
    """Let the held reboot begin, and wait until the machine is down."""
    held_command.closed(case.node.root, REBOOT).unlink()
    stage.wait(lambda: not case.node.up.is_set(), f"{case.name} to go down")


def let_go(stage: Stage, case: Case) -> None:
    """Take away what holds the incident, through the API server."""
    with suppress(NotFound):
        match case.held:
            case Held.SUSPECTED:
                stage.change_policy(case.name, mode="Enforce")
            case Held.QUARANTINED:
                stage.admin.delete(paths.node(f"{case.name}-filler"))
            case Held.DRAINING:
                stage.allow_eviction(case.guarded)
                end_pod(stage, case.slow)
            case _:
                return


def end_pod(stage: Stage, name: str) -> None:
    """Let a pod end at last, as its kubelet would report."""
    with suppress(NotFound):
        stage.admin.delete(paths.pod(stage.namespace, name), {"gracePeriodSeconds": 0})


def answer_page(stage: Stage, case: Case) -> None:
    """Do what the page of an escalated incident asks for, once: say that the node was repaired."""
    incident = stage.incident(case.name)
    if case.held is not Held.ESCALATED or incident is None or incident.status.phase is not Phase.ESCALATED:
        return
    if incident.metadata.name != case.answered:
        case.answered = incident.metadata.name
        stage.say("repaired", case.name)
