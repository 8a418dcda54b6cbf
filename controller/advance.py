"""Advance: from one open incident to its next move. Pure.

What is the same in every phase comes first: the Node is another one (Superseded), a person stopped it (Cancelled), our
cordon is off the Node and by whom. Then the one function of the phase. A move whose status is not yet persisted has no
effects: they follow from the stored state, in the next plan.
"""

from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from controller import outbox
from controller.assess import Verdict
from controller.budget import Hold
from controller.callback import called_back, calling_back, is_called_back, settled
from controller.case import OWNER, Case, Move
from controller.gpu_reset import RESET_GPU
from controller.incident import SUCCEEDED, clock, holds, is_open, last_repair, validations_since
from controller.intake import UNGOVERNED, case_of, with_deliveries
from controller.ownership import Cordon, cordon_of
from controller.phases_contain import quarantine, quarantined
from controller.phases_drain import draining
from controller.phases_narrow import suspected, waiting
from controller.phases_repair import repairing
from controller.phases_reset import owed, put_back
from controller.phases_return import escalated, revalidating
from controller.steps import CallBack, Restore, Save, Step
from controller.survey import Survey
from controller.terms import parse_moment
from controller.view import Failure
from kube.remediation import CANCEL, Phase, Remediation, RemediationStatus
from kube.types import Node, ObjectMeta

_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(seconds=60)


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for one incident: one Save, or effects, never both. `line` says where it stands."""

    steps: tuple[Step, ...] = ()
    recheck_at: datetime | None = None
    line: str = ""


def advance(looked: Survey, remediation: Remediation) -> Advance:
    """Decide the next move of one incident, open or closed."""
    if not is_open(remediation):
        return closed(looked, remediation)
    spec = remediation.spec
    node = looked.fleet.nodes.get(spec.node_name)
    if node is None or node.metadata.uid != spec.node_uid:
        return _finished(looked, remediation, _superseded(looked, remediation, node))
    case = case_of(looked, remediation, node)
    return _finished(looked, remediation, move_of(case))


def move_of(case: Case) -> Move:
    """Decide the next move of an open incident whose Node is there."""
    if CANCEL in case.remediation.metadata.annotations:
        return _said_cancel(case)
    cordon = cordon_of(case.node, case.remediation, case.now)
    restoring = _is_restoring(case, cordon)
    if not restoring and cordon is Cordon.UNSEEN:
        return Move(status=case.status)
    if not restoring and cordon in (Cordon.TAKEN_BY_PERSON, Cordon.TAKEN_BY_OTHERS):
        return _uncordoned(case, cordon)
    if not restoring and cordon is Cordon.STANDS and not holds(case.node, case.name):
        return _put_back(case, "our mark is gone from the node: it is put back")
    if cordon is Cordon.NOT_YET and case.status.phase in (Phase.DRAINING, Phase.REPAIRING):
        # Only an edited Remediation says this: nothing destructive happens on a node that takes new work.
        return case.hold(Hold(by=OWNER, why="the node does not carry the cordon of this incident"))
    return put_back(case) or _phase(case)


def closed(looked: Survey, remediation: Remediation) -> Advance:
    """Look after what a closed incident still owes: its messages, and the Node where our change is still on it."""
    status = settled(looked.fleet, with_deliveries(remediation.status, looked.fleet), looked.now)
    if status is not remediation.status:
        save = Save(
            node=remediation.spec.node_name,
            name=remediation.metadata.name,
            resource_version=remediation.metadata.resource_version,
            status=status,
        )
        return Advance(steps=(save,))
    recheck_at = outbox.next_due(status.notifications, looked.now)
    steps, line = leftover(looked, remediation)
    if (back := called_back(looked.fleet, remediation)) and _may_call_back(looked, remediation):
        return Advance(steps=back, recheck_at=recheck_at, line=line)
    if not steps:
        return Advance(recheck_at=recheck_at, line=line)
    failure = looked.fleet.failures.get(remediation.spec.node_name)
    if failure is not None and looked.now < pause_until(failure):
        return Advance(recheck_at=pause_until(failure), line=f"{line}; {failure.step} failed: {failure.why}")
    return Advance(steps=steps, recheck_at=recheck_at, line=line)


def _may_call_back(looked: Survey, remediation: Remediation) -> bool:
    """Tell whether to try it now: where it failed, giving the node back comes first."""
    failure = looked.fleet.failures.get(remediation.spec.node_name)
    return failure is None or failure.step != CallBack.__name__


def leftover(looked: Survey, remediation: Remediation) -> tuple[tuple[Step, ...], str]:
    """Give the steps that take a closed incident's changes back, or say why they have to stay for now."""
    node = looked.fleet.nodes.get(remediation.spec.node_name)
    if node is not None and node.metadata.uid != remediation.spec.node_uid:
        node = None
    name = remediation.metadata.name
    if steps := owed(looked, remediation, remediation.status, node):
        return steps, f"{name} is closed; the clients of the GPUs that it stopped are put back"
    if node is None or not holds(node, name):
        return (), ""
    if owner := looked.owners.get(node.metadata.name):
        return (), f"{name} is closed; what it changed on the node stays meanwhile: {owner}"
    before = remediation.status.before
    restore = Restore(
        node=node.metadata.name,
        node_uid=node.metadata.uid,
        resource_version=node.metadata.resource_version,
        incident=name,
        uncordon=before is not None and before.cordoned,
        untaint=before is None or before.tainted,
    )
    return (restore,), f"{name} is closed; what it changed on the node is taken back"


def pause_until(failure: Failure) -> datetime:
    """Say when a write that failed is tried again."""
    doubled = _FIRST_PAUSE * (1 << min(max(failure.tries - 1, 0), 10))
    return failure.at + min(doubled, _LONGEST_PAUSE)


def _phase(case: Case) -> Move:
    phase = case.status.phase
    match phase:
        case Phase.SUSPECTED:
            return suspected(case)
        case Phase.WAITING:
            return waiting(case)
        case Phase.QUARANTINED:
            return quarantined(case)
        case Phase.DRAINING:
            return draining(case)
        case Phase.REPAIRING:
            return repairing(case)
        case Phase.REVALIDATING:
            return revalidating(case)
        case Phase.ESCALATED:
            return escalated(case)
        case Phase.RETURNED | Phase.CANCELLED | Phase.SUPERSEDED | Phase.CLEARED:
            return Move(status=case.status)
        case _:
            assert_never(phase)


def _finished(looked: Survey, remediation: Remediation, move: Move) -> Advance:
    """Turn a move into steps: a changed status is saved and has no effects yet."""
    status = move.status
    line = f"{status.phase}: {status.message}"
    if status != remediation.status:
        save = Save(
            node=remediation.spec.node_name,
            name=remediation.metadata.name,
            resource_version=remediation.metadata.resource_version,
            status=status,
        )
        return Advance(steps=(save,), recheck_at=move.recheck_at, line=line)
    times = [
        at for at in (move.recheck_at, outbox.next_due(status.notifications, looked.now)) if at is not None
    ]
    recheck_at = min(times, default=None)
    failure = looked.fleet.failures.get(remediation.spec.node_name)
    if move.effects and failure is not None and looked.now < pause_until(failure):
        line = f"{line}; {failure.step} failed and is tried again: {failure.why}"
        return Advance(recheck_at=min([pause_until(failure), *times]), line=line)
    return Advance(steps=move.effects, recheck_at=recheck_at, line=line)


def _superseded(looked: Survey, remediation: Remediation, node: Node | None) -> Move:
    status = with_deliveries(remediation.status, looked.fleet)
    status = calling_back(looked.fleet, remediation, status, looked.now)
    why = (
        "the Node is gone from the cluster"
        if node is None
        else f"the Node of this name is another one now (UID {node.metadata.uid})"
    )
    name = remediation.spec.node_name
    stranger = Case(
        survey=looked,
        remediation=remediation,
        status=status,
        node=node or Node(metadata=ObjectMeta(name=name)),
        verdict=Verdict(node=name),
        terms=UNGOVERNED,
    )
    return stranger.enter(Phase.SUPERSEDED, why + _beside(status))


def _said_cancel(case: Case) -> Move:
    """Stop at a person's word. Whoever wrote it wants an end: it counts even where its time cannot be read."""
    try:
        said = parse_moment(case.remediation.metadata.annotations[CANCEL])
    except ValueError:
        return _cancelled(case, "a person cancelled it")
    return _cancelled(case.closing(said), f"a person cancelled it (at {clock(said)})")


def _is_restoring(case: Case, cordon: Cordon) -> bool:
    """Tell whether the node was proven, so that a missing cordon is our own restore or agrees with it.

    It does not agree where another automation took off the cordon that a person had set before us.
    """
    if case.status.phase is not Phase.REVALIDATING:
        return False
    before = case.status.before
    if (
        cordon is Cordon.TAKEN_BY_OTHERS
        and holds(case.node, case.name)
        and before is not None
        and before.unschedulable
    ):
        return False
    stay = validations_since(case.status, case.status.phase_since)
    return bool(stay) and stay[-1].result == SUCCEEDED


def _uncordoned(case: Case, cordon: Cordon) -> Move:
    if owner := case.survey.owners.get(case.node_name):
        return case.hold(Hold(by=OWNER, why=f"left alone: {owner}; it took the cordon off"))
    if cordon is Cordon.TAKEN_BY_OTHERS:
        return _put_back(case, "another automation took the cordon off: it is put back")
    before = case.status.before
    ours = None if before is None else msgspec.structs.replace(before, cordoned=False)
    return _cancelled(case, "a person uncordoned the node", before=ours)


def _put_back(case: Case, why: str) -> Move:
    """Put mark and cordon on the Node again. The recipe of the restore stays: a person's cordon that another automation
    took off is in force again at the end, although it is we who set it now."""
    before = case.status.before
    if before is None:
        return Move(status=case.status)
    if not case.node.spec.unschedulable:
        before = msgspec.structs.replace(before, cordoned=True)
    return case.go_on(why, quarantine(case, before))


def _cancelled(case: Case, why: str, **changes: object) -> Move:
    """Stop. What we changed on the Node is taken back from the closed state, exactly."""
    case = case.with_status(calling_back(case.survey.fleet, case.remediation, case.status, case.now))
    page = f"{case.node_name}: {why}: nodemend stops, the fault stays as it is"
    paged = bool(case.status.notifications)
    return case.enter(Phase.CANCELLED, why + _beside(case.status), page=page if paged else "", **changes)


def _beside(status: RemediationStatus) -> str:
    """Say what is still under way on the machine, and whether it can be called back."""
    attempt = last_repair(status)
    if attempt is None or attempt.result:
        return ""
    if is_called_back(attempt):
        return f"; {attempt.job} {attempt.message}"
    if attempt.submitted_at is None:
        return ""
    may = "reset the GPU" if attempt.kind == RESET_GPU else "reboot the machine"
    return f"; {attempt.job} was already started and may still {may}, nothing follows it"
