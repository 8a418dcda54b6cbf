"""Waiting: a sick node that stays open, since nodemend-scheduler keeps off it what the fault takes away. Pure.

    effect                                     what is done while the Node is as it was found
    prefer-not, no-multi-node, no-multi-gpu    nothing: what is ill is waited for until it is idle, with a page at each limit
    part-out, kubelet withholds the sick GPU   the pods that have that GPU are evicted, and nobody else's
    part-out, and it does not (yet)            nothing for the policy's fenceGrace, then Quarantined
    anything else                              it goes to Quarantined at once, as under cordon

The grace is there since even the plugin that takes a card back does so some time after the fault, and the agent needs two
answers of kubelet to believe it: without it every such fault would take the whole node. It is safe to wait, since a GPU
that is not known to be withheld takes all new GPU pods off the node (controller.scheduler.node_cards), and since it is
given only where no other scheduler has a GPU pod there.

Once nobody has what is ill, the node is cordoned for its repair, and not before the repair may follow. While a GPU is reset,
kubelet offers none at all, and afterwards it offers that GPU again before it is proven: so the fence ends where the repair
begins, and the cordon lasts from there until the proof. What runs on the other GPUs runs on through both.

Waiting takes no place in the budget, since nothing is out of service. The same rules hold again in every plan: where the
fence is lost or something worse comes, the next step is the cordon, also for an incident that waits for a person.
"""

from datetime import datetime

import msgspec

from controller import guards
from controller.budget import Hold
from controller.case import EVIDENCE, WAIT, Case, Move
from controller.drain import Left, accepted, left_on
from controller.incident import clock
from controller.narrow import fence_awaited, is_narrow, left_with, parts_of, sick_gpus, why_cordon
from controller.phases_contain import (
    before_of,
    cleared,
    escalate,
    gone,
    is_untouched,
    put_mark,
    take_out,
    why_a_person,
)
from controller.phases_contain import suspected as suspected_by_cordon
from controller.phases_drain import emptying, extended
from kube.remediation import DrainRecord, Phase

_NOW, _WHEN_IDLE = "now", "when-idle"


def suspected(case: Case) -> Move:
    """Contain what is due: narrowly where the policy says so and it is enough, else by the cordon."""
    if case.gone:
        return cleared(case)
    if (awaiting := _awaiting_fence(case)) is not None:
        return awaiting
    if why := why_cordon(case):
        is_news = is_narrow(case) and not case.takes_node
        return suspected_by_cordon(case, why if is_news else "")
    hold, recheck_at = guards.hold_containment(case)
    return case.hold(hold, recheck_at) if hold is not None else _wait(case)


def waiting(case: Case) -> Move:
    """Wait until nobody has what is ill, or until it takes a cordon."""
    if case.gone:
        return gone(_counted(case))
    if (awaiting := _awaiting_fence(case)) is not None:
        return awaiting
    if case.due and (why := why_cordon(case)):
        return _close(case, why)
    hold, recheck_at = guards.hold_containment(case)
    if hold is not None:
        return _stay_held(case, hold, recheck_at)
    if hand_over := why_a_person(case):
        return escalate(case, hand_over)
    if not case.survey.fleet.pods_synced:
        return case.go_on("the pods of the node are not known yet")
    return _freeing(_counted(case))


def contained(case: Case) -> Move | None:
    """Give the next step towards the cordon in the phase that the incident is in; None once it is there."""
    if not is_untouched(case):
        return None
    hold = guards.hold_mark(case)
    return case.hold(hold) if hold is not None else put_mark(case, case.status.message)


def worse_with_a_person(case: Case) -> Move | None:
    """Cordon a node that was left open to a person, where that is not enough any more; None where it is."""
    if not is_untouched(case):
        return None
    why = why_cordon(case) if case.due else ""
    if not why or guards.hold_quarantine(case)[0] is not None:
        return None
    if case.status.before is not None:
        return contained(case)
    if (until := fence_awaited(case)) is not None:
        return Move(status=case.status, recheck_at=until)
    line = f"{why}: the node is cordoned too"
    return case.enter(
        Phase.ESCALATED,
        f"{line}. After the repair: kubectl nodemend repaired {case.node_name}",
        page=f"{case.node_name}: {line} ({case.what()})",
        before=before_of(case),
    )


def ill_again(case: Case) -> Move:
    """Contain anew what came back before the node was cordoned for its proof."""
    if (awaiting := _awaiting_fence(case)) is not None:
        return awaiting
    if why := why_cordon(case):
        return _close(case, why)
    hold, recheck_at = guards.hold_containment(case)
    return case.hold(hold, recheck_at) if hold is not None else _wait(case)


def _awaiting_fence(case: Case) -> Move | None:
    """Wait a moment for kubelet to withhold a sick GPU; None where it does, or the moment is over. Nobody is evicted."""
    until = fence_awaited(case)
    if until is None:
        return None
    hold, recheck_at = guards.hold_containment(case)
    if hold is not None:
        return case.hold(hold, recheck_at or until)
    why = f"{case.what()}: the node takes no new GPU pod, and is cordoned unless kubelet withholds the GPU by {clock(until)}"
    return case.hold(Hold(by=WAIT, why=why), until)


def _close(case: Case, why: str) -> Move:
    """Go over to the cordon: the drain begins anew, and is of the whole node."""
    hold, recheck_at = guards.hold_quarantine(case)
    if hold is not None:
        return _stay_held(case, hold, recheck_at)
    record = case.status.drain
    whole = None if record is None else msgspec.structs.replace(record, parts=(), blocked=())
    return take_out(case, why, drain=whole)


def _stay_held(case: Case, hold: Hold, recheck_at: datetime | None) -> Move:
    """Stay held. What cannot be confirmed for as long as it may take to free the part is handed to a person."""
    move, record = case.hold(hold, recheck_at), case.status.drain
    if hold.by != EVIDENCE or record is None:
        return move
    terms = case.terms
    limit = terms.drain_deadline if record.urgency == _NOW else terms.when_idle_limit
    waited = case.held_for(EVIDENCE)
    if waited >= limit:
        since = clock(case.now - waited)
        return escalate(case, f"the fault could not be confirmed since {since}: {hold.why}")
    return Move(status=move.status, recheck_at=case.now + limit - waited)


def _freeing(case: Case) -> Move:
    """Evict, wait, or go on to the repair."""
    left, record = left_open(case), case.status.drain
    if not left:
        hold, recheck_at = guards.hold_readiness(case)
        if hold is not None:
            return case.hold(hold, recheck_at)
        if case.pool is not None:
            case.pool.take_turn(case.node_name)
        return take_out(case, "for its repair", drain=_about(case, record))
    gpus = sick_gpus(case)
    busy = left_with(case, gpus) if gpus else Left()
    urgency, parts = (_NOW, gpus) if busy else (_WHEN_IDLE, parts_of(case))
    if record is None or (record.urgency, record.parts) != (urgency, parts):
        return _wait(case)
    if urgency == _WHEN_IDLE:
        return _idling(case, record, left)
    if (hold := guards.hold_drain(case, None)) is not None:
        return case.hold(hold)
    if case.status.held_by:
        return _resumed(case, record)
    return emptying(case, record, busy, _evicting(case, gpus))


def _idling(case: Case, record: DrainRecord, left: Left) -> Move:
    if case.status.held_by:
        return _resumed(case, record)
    if case.now < record.deadline:
        return case.go_on(_waits(case, record), recheck_at=record.deadline)
    return _wait(case, f"still not idle at {clock(case.now)}: {left.names()}. It is repaired once it is")


def _wait(case: Case, overdue: str = "") -> Move:
    """Begin to wait, or begin anew: for other parts, or after a page."""
    gpus = sick_gpus(case)
    urgent = bool(gpus) and bool(left_with(case, gpus))
    record = DrainRecord(
        started_at=case.now,
        deadline=case.now + (case.terms.drain_deadline if urgent else case.terms.when_idle_limit),
        evicted=case.status.drain.evicted if case.status.drain is not None else 0,
        urgency=_NOW if urgent else _WHEN_IDLE,
        parts=gpus if urgent else parts_of(case),
    )
    told = _evicting(case, gpus) if urgent else f"{case.what()}: {overdue}" if overdue else ""
    page = f"{case.node_name}: {told}" if told else ""
    return case.enter(Phase.WAITING, _waits(case, record), page=page, drain=record)


def _waits(case: Case, record: DrainRecord) -> str:
    if record.urgency == _NOW:
        return f"{_evicting(case, record.parts)}, until {clock(record.deadline)} at the latest"
    ill = ", ".join(record.parts) or "it"
    return f"{case.what()}: the node stays open until {ill} is idle, with a page at {clock(record.deadline)}"


def _evicting(case: Case, gpus: tuple[str, ...]) -> str:
    return f"{case.what()}: the node stays open, only the pods on {', '.join(gpus)} are evicted"


def _resumed(case: Case, record: DrainRecord) -> Move:
    """Go on after a hold, whose time does not count."""
    longer = extended(case, record)
    case = case.with_status(msgspec.structs.replace(case.status, drain=longer))
    return case.go_on(_waits(case, longer))


def left_open(case: Case) -> Left:
    """Give what still has what is ill: of single GPUs their pods, else everything that runs on the node."""
    if parts := parts_of(case):
        return left_with(case, parts)
    return left_on(case.node_name, case.terms, case.survey.fleet, case.now)


def _about(case: Case, record: DrainRecord | None) -> DrainRecord:
    """Give what the drain after the cordon is about."""
    known = DrainRecord(started_at=case.now, deadline=case.now) if record is None else record
    return msgspec.structs.replace(known, blocked=(), parts=parts_of(case))


def _counted(case: Case) -> Case:
    """Write down how many pods were evicted while the node was open: then a proof follows, whatever becomes of the fault."""
    record = case.status.drain
    evicted = accepted(case.name, case.survey.fleet)
    if record is None or evicted <= record.evicted:
        return case
    counted = msgspec.structs.replace(record, evicted=evicted)
    return case.with_status(msgspec.structs.replace(case.status, drain=counted))
