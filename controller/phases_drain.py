"""Draining: the node is emptied, by eviction or by waiting. Pure.

The drain is done when no pod that blocks is left in the list of a synced store; then, and only when every guard agrees, the
first repair is written down. Time in which something else held the drain does not count against its deadline.
"""

from datetime import timedelta

import msgspec

from controller import guards
from controller.budget import Hold, Place, place_of
from controller.case import EVIDENCE, PODS, Case, Move
from controller.drain import Left, Round, accepted, left_on, next_round, shown, stuck_at
from controller.incident import clock, next_number, repairs, with_attempt
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
    left = left_on(case.node_name, case.terms, fleet, case.now)
    if not left:
        return _drained(_counted(case, record))
    if case.status.held_by or record.finished_at is not None:
        return _resumed(case, record)
    if case.now >= record.deadline:
        return escalate(case, f"the drain did not end by {clock(record.deadline)}: {left.names()}")
    return _emptying(case, record, left)


def _emptying(case: Case, record: DrainRecord, left: Left) -> Move:
    evicting = record.urgency == "now"
    this = next_round(left, case.survey.fleet, case.now) if evicting else Round()
    blocked = shown(left, this.refused)
    if blocked != record.blocked:
        case = _counted(case, msgspec.structs.replace(record, blocked=blocked))
    until = clock(record.deadline)
    if blocked:
        first = blocked[0]
        message = f"held up by {first.namespace}/{first.name} ({first.why}), until {until} at the latest"
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
    """Go on after a hold, or after pods came back to a drained node: the time that passed in between does not count."""
    since = case.status.held_since or record.finished_at or case.now
    extended = record.deadline + max(case.now - since, timedelta(0))
    resumed = msgspec.structs.replace(record, deadline=extended, finished_at=None)
    case = case.with_status(msgspec.structs.replace(case.status, drain=resumed))
    return case.go_on(f"the drain goes on, until {clock(extended)} at the latest")


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
        tried = len(repairs(case.status))
        return escalate(case, f"{tried} repair(s) did not help and the ladder has no other")
    hold = guards.hold_repair(case, None)
    if hold is not None:
        return stay_held(case, hold) if hold.by != PODS else case.hold(hold)
    if rung is None:
        return stay_held(case, Hold(by=EVIDENCE, why="no fault is due for a repair now"))
    if case.pool is not None:
        case.pool.take_repair(case.node_name, Place(since=case.now, incident=case.name))
        case.pool.take_place(case.node_name, place_of(case.remediation))
    number = next_number(case.status, validation=False)
    attempt = Attempt(
        number=number,
        kind=rung.repair,
        job=f"{rung.repair}-{case.name}-{number}",
        boot_id_before=case.node.status.node_info.boot_id,
        started_at=case.now,
        deadline=case.now + rung.timeout,
    )
    case = case.with_status(with_attempt(case.status, attempt))
    return case.enter(
        Phase.REPAIRING,
        f"{attempt.job} is to end boot {attempt.boot_id_before}, by {clock(attempt.deadline)}",
    )


def next_rung(case: Case) -> RungTerms | None:
    """Give the rung of the next attempt: attempts are counted along the ladder and never start over.

    One that was withdrawn before it was submitted tried nothing, and takes no rung.
    """
    made = sum(1 for attempt in repairs(case.status) if not _withdrawn(attempt))
    for rung in case.ladder:
        if made < rung.attempts:
            return rung
        made -= rung.attempts
    return None


def _withdrawn(attempt: Attempt) -> bool:
    """Tell an attempt that was ended unsubmitted from one that ran out of time that way: for ever refused is a try."""
    ended = attempt.finished_at
    return attempt.submitted_at is None and ended is not None and ended < attempt.deadline


def _counted(case: Case, record: DrainRecord) -> Case:
    counted = max(record.evicted, accepted(case.name, case.survey.fleet))
    drain = msgspec.structs.replace(record, evicted=counted)
    return case.with_status(msgspec.structs.replace(case.status, drain=drain))
