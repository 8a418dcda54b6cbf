"""Draining: the node is emptied, by eviction or by waiting. Pure.

The drain is done when no pod that blocks is left in the list of a synced store; then, and only when every guard agrees, the
first repair is written down. Time in which something else held the drain does not count against its deadline.
"""

from collections import Counter
from datetime import timedelta

import msgspec

from controller import guards
from controller.budget import Hold, Place, place_of
from controller.case import EVIDENCE, PODS, Case, Move
from controller.drain import Left, Round, accepted, next_round, shown, stuck_at
from controller.gpu_clients import to_stop
from controller.gpu_reset import RESET_GPU, targets, why_not_reset
from controller.incident import REFUSED, clock, next_number, repairs, with_attempt
from controller.narrow import left_for, scope
from controller.phases_contain import escalate, revalidate, start_drain, stay_held, why_a_person
from controller.steps import Evict
from controller.terms import RungTerms
from kube.remediation import Attempt, DrainRecord, Phase


def draining(case: Case) -> Move:
    """Empty the node, then write down the repair."""
    record = case.status.drain
    if record is None:
        return start_drain(case)
    if case.gone:
        return revalidate(case)
    if hand_over := why_a_person(case):
        return escalate(case, hand_over)
    if record.urgency != "now" and any(f.urgency == "now" for f in case.due):
        return start_drain(case)
    hold = guards.hold_eviction(case)
    if hold is not None:
        return stay_held(case, hold)
    fleet = case.survey.fleet
    if not fleet.pods_synced:
        return case.go_on("the pods of the node are not known yet")
    if record.parts and (rung := next_rung(case)) is not None and not scope(case, rung.repair):
        # The scheduler reads here whose place it has to find anew: from now on it is everybody's.
        record = msgspec.structs.replace(record, parts=())
        case = case.with_status(msgspec.structs.replace(case.status, drain=record))
    left = left_in(case)
    if not left:
        return _drained(_counted(case, record))
    if case.status.held_by or record.finished_at is not None:
        return _resumed(case, record)
    return emptying(case, record, left)


def left_in(case: Case) -> Left:
    """Give what stands in the way of the next repair."""
    rung = next_rung(case)
    return left_for(case, rung.repair if rung is not None else "")


def emptying(case: Case, record: DrainRecord, left: Left, waits_for: str = "") -> Move:
    """Evict, or wait, until the deadline; `waits_for` says what it is about where that is not all that runs."""
    if case.now >= record.deadline:
        return escalate(case, f"the drain did not end by {clock(record.deadline)}: {left.names()}")
    evicting = record.urgency == "now"
    this = next_round(left, case.survey.fleet, case.now) if evicting else Round()
    blocked = shown(left, this.refused)
    if blocked != record.blocked:
        case = _counted(case, msgspec.structs.replace(record, blocked=blocked))
    until = clock(record.deadline)
    if blocked:
        first = blocked[0]
        message = f"held up by {first.namespace}/{first.name} ({first.why}), until {until} at the latest"
    elif waits_for:
        message = f"{waits_for}, until {until} at the latest"
    elif evicting:
        message = f"running pods are evicted, until {until} at the latest"
    else:
        message = f"running work is waited for, until {until} at the latest"
    times = [record.deadline, this.recheck_at, stuck_at(left)]
    return case.go_on(
        message,
        *(
            Evict(
                node=case.node_name,
                incident=case.name,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=pod.metadata.uid,
            )
            for pod in this.evict
        ),
        recheck_at=min(at for at in times if at is not None and at > case.now),
    )


def _resumed(case: Case, record: DrainRecord) -> Move:
    """Go on after a hold, or after pods came back to a drained node."""
    longer = extended(case, record)
    case = case.with_status(msgspec.structs.replace(case.status, drain=longer))
    return case.go_on(f"the drain goes on, until {clock(longer.deadline)} at the latest")


def extended(case: Case, record: DrainRecord) -> DrainRecord:
    """Move the deadline by the time since the hold began, or since the node was empty: it does not count."""
    since = case.status.held_since or record.finished_at or case.now
    deadline = record.deadline + max(case.now - since, timedelta(0))
    return msgspec.structs.replace(record, deadline=deadline, finished_at=None)


def _drained(case: Case) -> Move:
    record = case.status.drain
    if record is not None and record.finished_at is None:
        done = msgspec.structs.replace(record, finished_at=case.now, blocked=())
        case = case.with_status(msgspec.structs.replace(case.status, drain=done))
    return begin_repair(case)


def begin_repair(case: Case) -> Move:
    """Write down the next repair of the ladder, if every guard agrees; without a next one it is a person's turn."""
    rung = next_rung(case)
    if rung is None and case.due:
        return escalate(case, f"{_tried(case)} and the ladder has no other")
    hold = guards.hold_repair(case, None, rung.repair if rung is not None else "")
    if hold is not None:
        return stay_held(case, hold) if hold.by != PODS else case.hold(hold)
    if rung is None:
        return stay_held(case, Hold(by=EVIDENCE, why="no fault is due for a repair now"))
    attempt = _next_attempt(case, rung)
    if rung.repair == RESET_GPU and (why := why_not_reset(case)):
        refused = msgspec.structs.replace(attempt, result=REFUSED, message=why, finished_at=case.now)
        case = case.with_status(with_attempt(case.status, refused))
        return case.enter(Phase.REPAIRING, f"{rung.repair} is not for this node: {why}")
    if case.pool is not None:
        case.pool.take_repair(case.node_name, Place(since=case.now, incident=case.name))
        case.pool.take_place(case.node_name, place_of(case.remediation))
    if rung.repair == RESET_GPU:
        return _begin_reset(case, attempt)
    case = case.with_status(with_attempt(case.status, attempt))
    return case.enter(
        Phase.REPAIRING,
        f"{attempt.job} is to end boot {attempt.boot_id_before}, by {clock(attempt.deadline)}",
    )


def _next_attempt(case: Case, rung: RungTerms) -> Attempt:
    number = next_number(case.status, validation=False)
    return Attempt(
        number=number,
        kind=rung.repair,
        job=f"{rung.repair}-{case.name}-{number}",
        boot_id_before=case.node.status.node_info.boot_id,
        started_at=case.now,
        deadline=case.now + rung.timeout,
    )


def _begin_reset(case: Case, attempt: Attempt) -> Move:
    """Write down the GPUs, and their clients' labels as they are before anything is switched off."""
    attempt = msgspec.structs.replace(attempt, targets=targets(case))
    status = with_attempt(case.status, attempt)
    case = case.with_status(msgspec.structs.replace(status, stopped=to_stop(case.node, case.now)))
    names = ", ".join(target.uuid for target in attempt.targets)
    return case.enter(Phase.REPAIRING, f"{attempt.job} is to reset {names}, by {clock(attempt.deadline)}")


def next_rung(case: Case) -> RungTerms | None:
    """Give the rung of the next attempt: each attempt takes a place of its repair's own, and never starts over.

    One that was withdrawn before it was submitted tried nothing, and takes no rung.
    """
    made = Counter(attempt.kind for attempt in repairs(case.status) if not _withdrawn(attempt))
    for rung in case.ladder:
        if made[rung.repair] < rung.attempts:
            return rung
        made[rung.repair] -= rung.attempts
    return None


def _withdrawn(attempt: Attempt) -> bool:
    """Tell an attempt that was ended unsubmitted from one that ran out of time that way: for ever refused is a try."""
    ended = attempt.finished_at
    if attempt.submitted_at is not None or ended is None or attempt.result == REFUSED:
        return False
    return ended < attempt.deadline


def _tried(case: Case) -> str:
    made = repairs(case.status)
    refused = [attempt for attempt in made if attempt.result == REFUSED]
    if made and len(refused) == len(made):
        return f"no repair could be done ({refused[-1].kind}: {refused[-1].message})"
    return f"{len(made) - len(refused)} repair(s) did not help"


def _counted(case: Case, record: DrainRecord) -> Case:
    counted = max(record.evicted, accepted(case.name, case.survey.fleet))
    drain = msgspec.structs.replace(record, evicted=counted)
    return case.with_status(msgspec.structs.replace(case.status, drain=drain))
