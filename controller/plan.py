"""Plan: from a Fleet to the steps of this instant. Pure and deterministic: equal fleets give equal plans.

Order matters, since what one node takes of a budget is gone for the next: first what closed incidents still owe and what is
on its way back, then running work, then new incidents. For one incident there is either one Save or effects that follow from
what is already saved, so a crash at any point repeats at most an idempotent request.

In a storm the sick nodes are taken out first: what comes after the quarantine of a node begins in the room that is left.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from controller.advance import advance
from controller.incident import dealt_with, holds, is_open
from controller.opening import candidates, open_incident
from controller.orphans import put_back_orphans
from controller.outbox import is_waiting
from controller.peers import expectations
from controller.phases_reset import owed
from controller.policy_status import policy_statuses
from controller.silence import silence
from controller.steps import Delete, Open, Quarantine, Save, Step, WriteExpected, WriteSpec
from controller.survey import Survey, survey
from controller.view import Fleet
from kube.remediation import Phase, Remediation

OPENED_AT_ONCE = (
    64  # a tick ends when its last request does: a storm is taken in slices, so that nothing else waits long
)
# How many contained incidents go on meanwhile, so that they never stand still.
MOVED_ON_AT_LEAST = 2
DELETED_AT_ONCE = 50
_CROWDED = timedelta(milliseconds=20)
_STORM = 8  # so many nodes to take out at once: whatever else takes time waits

_ORDER = {
    Phase.REVALIDATING: 0,
    Phase.REPAIRING: 1,
    Phase.DRAINING: 2,
    Phase.QUARANTINED: 3,
    Phase.ESCALATED: 4,
    Phase.WAITING: 5,
    Phase.SUSPECTED: 5,
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The steps, in the order in which they are to begin; those of one node one after the other.

    `explanations` say for each node that is not simply well where it stands. `recheck_at` is when the clock alone would
    change the plan.
    """

    steps: tuple[Step, ...]
    explanations: Mapping[str, str]
    recheck_at: datetime | None


def plan(fleet: Fleet, now: datetime) -> Plan:
    """Decide everything that is to be done now."""
    looked = survey(fleet, now)
    steps: list[Step] = []
    times: list[datetime | None] = []
    lines: dict[str, str] = {}
    for one in _in_order(fleet.remediations.values()):
        done = advance(looked, one)
        steps += done.steps
        times.append(done.recheck_at)
        if done.line and (is_open(one) or one.spec.node_name not in lines):
            lines[one.spec.node_name] = done.line
    found = candidates(looked)
    for node in found[:OPENED_AT_ONCE]:
        done = open_incident(looked, node)
        steps += done.steps
        times.append(done.recheck_at)
        lines[node.metadata.name] = done.line
    taken = _containment_first(steps, fleet)
    if len(found) > OPENED_AT_ONCE or len(taken) < len(steps):
        times.append(now + _CROWDED)
    silenced, next_silence = silence(looked)
    saved, next_numbers = policy_statuses(looked)
    deleted, next_delete = _old(looked)
    expected, next_expected = _hints(looked, taken)
    steps = [*taken, *put_back_orphans(looked), *silenced, *saved, *deleted, *expected]
    times += [next_silence, next_numbers, next_delete, next_expected]
    return Plan(
        steps=tuple(steps),
        explanations={**_other_lines(looked), **lines},
        recheck_at=min((at for at in times if at is not None and at > now), default=None),
    )


def _hints(looked: Survey, taken: Sequence[Step]) -> tuple[list[WriteExpected], datetime | None]:
    """Say what nodes should hold, but for those whose spec is written anyway. A storm brings the next plan at once."""
    if sum(isinstance(step, Open | Quarantine) for step in taken) > _STORM:
        return [], None
    return expectations(looked, [step.node for step in taken if isinstance(step, WriteSpec)])


def _in_order(remediations: Iterable[Remediation]) -> list[Remediation]:
    """Sort: closed ones first (they only give back), then by phase, then by who came first."""
    return sorted(
        remediations,
        key=lambda one: (_ORDER.get(one.status.phase, -1), one.spec.opened_at, one.metadata.name),
    )


def _containment_first(steps: Sequence[Step], fleet: Fleet) -> list[Step]:
    """Leave out, for now, the Saves that only move on what is contained already, beyond the room of one tick.

    A Save that is left out is decided anew in the next plan. Recoveries, repairs, evictions and people's words never wait.
    """
    containing = sum(isinstance(step, Open | Quarantine) for step in steps)
    room = max(MOVED_ON_AT_LEAST, OPENED_AT_ONCE - containing)
    taken: list[Step] = []
    for step in steps:
        if isinstance(step, Save) and _only_moves_on(fleet.remediations.get(step.name), step):
            room -= 1
            if room < 0:
                continue
        taken.append(step)
    return taken


def _only_moves_on(held: Remediation | None, step: Save) -> bool:
    """Tell whether a contained incident is only told further, or begins its drain."""
    onward = (Phase.QUARANTINED, Phase.DRAINING)
    return held is not None and held.status.phase is Phase.QUARANTINED and step.status.phase in onward


def _other_lines(looked: Survey) -> dict[str, str]:
    """Explain the nodes without an incident that are not simply well."""
    lines = {}
    for name, verdict in looked.verdicts.items():
        if not (verdict.standing or verdict.unproven or verdict.unknown or name in looked.ended):
            continue
        if verdict.standing:
            lines[name] = looked.left_alone.get(name, "a fault stands")
        elif name in looked.ended:
            closed = looked.ended[name]
            lines[name] = (
                f"the fault stands, but incident {closed.metadata.name} ended as {closed.status.phase} with the same "
                "evidence: only new evidence opens another"
            )
        elif verdict.unproven:
            lines[name] = f"nothing is done without proof: {verdict.doubt}"
        else:
            lines[name] = f"{', '.join(verdict.unknown)} is Unknown, which causes nothing"
    return lines


def _old(looked: Survey) -> tuple[list[Step], datetime | None]:
    """Give the Remediations whose time is over, but not one that is still needed.

    Needed are those with a message to send, with their mark on the Node, and those of a fault that still stands: they are
    the memory that the same evidence never opens an incident again.
    """
    steps: list[Step] = []
    next_at: datetime | None = None
    for one in sorted(looked.fleet.remediations.values(), key=lambda one: one.metadata.name):
        if is_open(one) or one.status.closed_at is None:
            continue
        at = one.status.closed_at + looked.fleet.settings.retention
        if at > looked.now:
            next_at = at if next_at is None or at < next_at else next_at
        elif not _is_needed(looked, one) and len(steps) < DELETED_AT_ONCE:
            steps.append(Delete(node=one.spec.node_name, name=one.metadata.name))
    return steps, next_at


def _is_needed(looked: Survey, one: Remediation) -> bool:
    if any(is_waiting(row) for row in one.status.notifications):
        return True
    node = looked.fleet.nodes.get(one.spec.node_name)
    if node is None or node.metadata.uid != one.spec.node_uid:
        return False
    health = looked.fleet.healths.get(one.spec.node_name)
    findings = health.status.findings if health is not None else ()
    remembered = any(dealt_with([one], node.metadata.uid, finding) is not None for finding in findings)
    return remembered or holds(node, one.metadata.name) or bool(owed(looked, one, one.status, node))
