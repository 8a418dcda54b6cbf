"""Suspected and Quarantined: waiting, then taking the node out of new work. Pure.

Until the Node carries our mark nothing has changed on it, and an incident whose fault goes away is Cleared. Once it does,
the only way back is through Revalidating.
"""

import msgspec

from controller import guards
from controller.budget import Hold, Place
from controller.case import EVIDENCE, Case, Move
from controller.drain import why_not_taint
from controller.incident import Mark, clock, has_taint, holds, read_mark, settle_time
from controller.steps import Quarantine
from kube.policy import Mode, TaintUse
from kube.remediation import DrainRecord, NodeBefore, Phase


def suspected(case: Case, because: str = "") -> Move:
    """Wait until the node may be taken out; end where the fault goes away before that."""
    if case.gone:
        return cleared(case)
    hold, recheck_at = guards.hold_quarantine(case)
    if hold is not None:
        return case.hold(hold, recheck_at)
    return take_out(case, because)


def take_out(case: Case, because: str = "", **changes: object) -> Move:
    """Decide the cordon; `because` is what has to be said beside the fault."""
    if case.pool is not None:
        case.pool.take_out(case.node_name)
    beside = f" ({because})" if because else ""
    return case.enter(
        Phase.QUARANTINED,
        f"{case.what()}: the node takes no new work{beside}",
        page=f"{case.node_name}: {case.what()}; the node is quarantined{beside}",
        before=before_of(case),
        **changes,
    )


def quarantined(case: Case) -> Move:
    """Cordon, then go on to the drain, or to a person."""
    if is_untouched(case):
        return _contain(case)
    if case.gone:
        return revalidate(case)
    if hand_over := why_a_person(case):
        return escalate(case, hand_over)
    place = Place(since=case.now, incident=case.name)
    hold = guards.hold_drain(case, None)
    if hold is not None:
        return stay_held(case, hold)
    if case.pool is not None:
        case.pool.take_place(case.node_name, place)
    return start_drain(case)


def start_drain(case: Case) -> Move:
    """Begin a drain: by eviction where the fault cannot wait, else by waiting for the running work."""
    urgent = any(f.urgency == "now" for f in case.due)
    limit = case.terms.drain_deadline if urgent else case.terms.when_idle_limit
    deadline = case.now + limit
    message = (
        f"running pods are evicted, until {clock(deadline)} at the latest"
        if urgent
        else f"running work is waited for, until {clock(deadline)} at the latest"
    )
    record = DrainRecord(
        started_at=case.now,
        deadline=deadline,
        urgency="now" if urgent else "when-idle",
        parts=case.status.drain.parts if case.status.drain is not None else (),
    )
    return case.enter(Phase.DRAINING, message, drain=record)


def why_a_person(case: Case) -> str:
    """Say why this incident is not for a repair of ours, or give an empty string."""
    if not case.due or case.survey.owners.get(case.node_name):
        return ""
    if case.terms.mode is Mode.QUARANTINE:
        return f"policy {case.terms.name} is in mode Quarantine: draining and repairing are left to a person"
    person = case.person
    if person is not None and case.terms.mode is Mode.ENFORCE:
        return f"{person.reason} needs a person ({person.action}); running work is left alone"
    if not case.ladder and case.terms.mode is Mode.ENFORCE:
        return f"policy {case.terms.name} has no repair for {case.due[0].reason}"
    return ""


def escalate(case: Case, why: str, **changes: object) -> Move:
    """Hand the incident to a person."""
    return case.enter(
        Phase.ESCALATED,
        f"{why}. After the repair: kubectl nodemend repaired {case.node_name}",
        page=f"{case.node_name}: escalated: {why} ({case.what()})",
        **changes,
    )


def revalidate(case: Case) -> Move:
    """Prove the node, since its fault went away before anything was repaired."""
    return case.enter(
        Phase.REVALIDATING,
        f"{case.what()} is reported as gone before any repair: the node is proven before it is given back",
    )


def stay_held(case: Case, hold: Hold) -> Move:
    """Stay held. A fault that cannot be confirmed for as long as a drain may take is handed to a person."""
    move = case.hold(hold)
    if hold.by != EVIDENCE:
        return move
    waited = case.held_for(EVIDENCE)
    if waited >= case.terms.drain_deadline:
        return escalate(
            case, f"the fault could not be confirmed since {clock(case.now - waited)}: {hold.why}"
        )
    return Move(status=move.status, recheck_at=case.now + case.terms.drain_deadline - waited)


def cleared(case: Case) -> Move:
    """End an incident that changed nothing, once its fault has been away for long enough."""
    since = case.gone_since or case.now
    until = since + settle_time(case.survey.remediations.get(case.node_name, ()), case.now)
    if case.now < until:
        why = f"{case.what()} is False again, as often before: watched until {clock(until)}"
        return case.hold(Hold(by="wait", why=why), until)
    return case.enter(Phase.CLEARED, f"{case.what()} is False again; nothing was changed on the node")


def _was_applied(case: Case) -> bool:
    before = case.status.before
    return before is not None and before.applied_at is not None


def gone(case: Case) -> Move:
    """End an incident that changed nothing on its node; where pods were evicted for it, a proof comes first."""
    drain = case.status.drain
    if drain is None or not drain.evicted:
        return cleared(case)
    return case.enter(
        Phase.REVALIDATING,
        f"{case.what()} is reported as gone before any repair: the node is proven, since pods were evicted for it",
    )


def _contain(case: Case) -> Move:
    if case.gone:
        return gone(case)
    hold, recheck_at = guards.hold_quarantine(case)
    if hold is not None:
        return case.hold(hold, recheck_at)
    return put_mark(case, f"{case.what()}: the node takes no new work")


def is_untouched(case: Case) -> bool:
    """Tell an incident that has changed nothing on its Node yet."""
    return not holds(case.node, case.name) and not _was_applied(case)


def put_mark(case: Case, message: str) -> Move:
    """Write down what the Node looks like, then put cordon, taint and mark on it."""
    before, known = before_of(case), case.status.before
    if known is None or known.unschedulable != before.unschedulable:
        # Somebody cordoned or uncordoned in between: what they did is what has to be found again.
        corrected = msgspec.structs.replace(case.status, before=before)
        return case.with_status(corrected).go_on(corrected.message)
    return case.go_on(message, quarantine(case, known))


def quarantine(case: Case, before: NodeBefore) -> Quarantine:
    """Give the effect that puts cordon, taint and mark on the Node as it was seen."""
    return Quarantine(
        node=case.node_name,
        node_uid=case.node.metadata.uid,
        resource_version=case.node.metadata.resource_version,
        incident=case.name,
        before=before,
    )


def before_of(case: Case) -> NodeBefore:
    """Say what the node looks like and what is going to be changed.

    A mark whose Remediation somebody deleted still holds the truth about the time before it.
    """
    mark = read_mark(case.node)
    if isinstance(mark, Mark) and mark.node_uid == case.node.metadata.uid:
        found = mark.unschedulable_before
    else:
        found = case.node.spec.unschedulable
    return NodeBefore(unschedulable=found, cordoned=not found, tainted=_wants_taint(case), at=case.now)


def _wants_taint(case: Case) -> bool:
    use = case.terms.taint
    if use is TaintUse.NEVER or has_taint(case.node, case.name):
        return use is not TaintUse.NEVER
    return use is TaintUse.ALWAYS or why_not_taint(case.node_name, case.name, case.survey.fleet) is None
