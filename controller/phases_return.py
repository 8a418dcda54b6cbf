"""Revalidating and Escalated: the two ways back. Pure.

Returned is reached only through a revalidation that succeeded while every condition was False and the agent was heard. The
Node is restored first and exactly, from what was recorded before we touched it; only then is the incident closed and the
page resolved. Escalated ends with a person's word, never by itself: a fault that hides is no repair.
"""

from datetime import datetime

import msgspec

from checks.condition import Status
from controller import terms
from controller.assess import our_conditions
from controller.budget import Hold
from controller.case import EVIDENCE, OWNER, Case, Move
from controller.incident import (
    FAILED,
    SUCCEEDED,
    clock,
    has_taint,
    holds,
    validations_since,
    with_attempt,
)
from controller.ownership import older
from controller.phases_contain import escalate, is_untouched, start_drain, why_a_person
from controller.phases_drain import next_rung
from controller.phases_narrow import contained, ill_again, worse_with_a_person
from controller.steps import Restore, WriteSpec
from controller.validation import begin, wait_for_clean, watch
from kube.policy import Mode
from kube.remediation import REPAIRED, Phase

_FLAPS = (
    5  # the same fault on the same part, seen anew this often in one incident: no repair of ours will end it
)


def escalated(case: Case) -> Move:
    """Wait for a person's word. It counts once, and only if it was given after the hand-over."""
    if (worse := worse_with_a_person(case)) is not None:
        return worse
    word = said_repaired(case)
    since = case.status.phase_since
    if word is None and (text := case.remediation.metadata.annotations.get(REPAIRED)):
        return case.go_on(f"annotation {REPAIRED} is {text[:64]!r}: write a time like 2026-01-31T08:15:00Z")
    if word is None or word == case.status.repaired_at:
        return Move(status=case.status)
    if since is not None and word < since.replace(microsecond=0):
        return case.go_on(
            f"annotation {REPAIRED} is dated {clock(word)}, before the hand-over at {clock(since)}: give a newer one"
        )
    ahead = f", ahead of this clock: it counts up to {clock(case.now)}" if word > case.now else ""
    return case.enter(
        Phase.REVALIDATING,
        f"a person says it was repaired (at {clock(word)}{ahead}): the node is proven before it is given back",
        page=f"{case.node_name}: said to be repaired; revalidating",
        repaired_at=word,
        cleared_before=min(word, case.now),
    )


def revalidating(case: Case) -> Move:
    """Prove the node, restore it, close the incident."""
    stay = validations_since(case.status, case.status.phase_since)
    last = stay[-1] if stay else None
    if last is not None and last.result == SUCCEEDED and is_restored(case):
        return _returned(case)
    if owner := case.survey.owners.get(case.node_name):
        return case.hold(Hold(by=OWNER, why=f"left alone: {owner}"))
    if unwritten := _unwritten_word(case):
        return unwritten
    if case.live:
        return _ill_again(case)
    doubt = _why_not_clean(case)
    if doubt is not None:
        return wait_for_clean(case, doubt)
    if last is not None and last.result == SUCCEEDED:
        return case.go_on(f"{last.job} succeeded: the node is given back as it was found", restore(case))
    if (cordon := contained(case)) is not None:
        return cordon
    if last is None or last.result:
        return begin(case)
    return watch(case, last)


def is_restored(case: Case) -> bool:
    """Tell whether our change is off the Node. What is left without our mark and taint is not ours to undo."""
    before = case.status.before
    if before is not None and older(case.node.metadata.resource_version, before.applied_version):
        return False  # a view from before we changed anything
    return not holds(case.node, case.name) and not has_taint(case.node, case.name)


def restore(case: Case) -> Restore:
    """Give the effect that puts the Node back exactly as it was found."""
    before = case.status.before
    return Restore(
        node=case.node_name,
        node_uid=case.node.metadata.uid,
        resource_version=case.node.metadata.resource_version,
        incident=case.name,
        uncordon=before is not None and before.cordoned,
        untaint=before is not None and before.tainted,
    )


def said_repaired(case: Case) -> datetime | None:
    """Read the person's word; None where there is none or it is no time."""
    text = case.remediation.metadata.annotations.get(REPAIRED, "")
    try:
        return terms.parse_moment(text)
    except ValueError:
        return None


def _returned(case: Case) -> Move:
    before = case.status.before
    kept = before is not None and before.unschedulable
    cordon = "; it stays cordoned, as somebody left it before the incident" if kept else ""
    if not kept and case.node.spec.unschedulable:
        cordon = "; its cordon stays, since our mark was taken off by somebody else"
    # A fault seen since the node was given back is no part of what was repaired and proven.
    return case.closing().enter(Phase.RETURNED, f"proven and given back{cordon}")


def _unwritten_word(case: Case) -> Move | None:
    """Tell the agent, through NodeHealth, that a person dealt with everything up to their word."""
    word = case.status.cleared_before or case.status.repaired_at
    if word is None:
        return None
    health = case.survey.fleet.healths.get(case.node_name)
    if health is None:
        return wait_for_clean(case, "there is no NodeHealth to tell the agent through")
    cleared = health.spec.cleared_before
    if cleared is not None and cleared >= word:
        return None
    spec = msgspec.structs.replace(health.spec, cleared_before=word, cleared_by=f"a person, on {case.name}")
    return case.go_on(
        "the agent is told that a person repaired it", WriteSpec(node=case.node_name, spec=spec)
    )


def _ill_again(case: Case) -> Move:
    """A fault stands after the repair, or came back: the next rung of the ladder, or a person."""
    stay = validations_since(case.status, case.status.phase_since)
    if stay and not stay[-1].result:
        ended = msgspec.structs.replace(
            stay[-1], result=FAILED, finished_at=case.now, message=f"a fault stands: {case.live[0].reason}"
        )
        case = case.with_status(with_attempt(case.status, ended))
    worst = case.live[0]
    if _times_seen(case) > _FLAPS:
        return escalate(case, f"{worst.reason} comes and goes")
    if not case.due:
        until = min(f.first_seen + case.terms.wait_for(f) for f in case.live)
        return case.hold(
            Hold(by=EVIDENCE, why=f"{worst.reason} stands, the policy waits until {clock(until)}"), until
        )
    if hand_over := why_a_person(case):
        return escalate(case, hand_over)
    if case.terms.mode is not Mode.ENFORCE or next_rung(case) is None:
        return escalate(case, f"{worst.reason} stands and there is no other repair")
    return ill_again(case) if is_untouched(case) else start_drain(case)


def _times_seen(case: Case) -> int:
    worst = case.live[0]
    return sum(1 for f in case.status.evidence if (f.reason, f.part) == (worst.reason, worst.part))


def _why_not_clean(case: Case) -> str | None:
    """Say why the node may not be given back yet: what is not False, or not known to be."""
    verdict = case.verdict
    if not verdict.usable:
        return verdict.doubt
    explained = {
        f.condition for f in verdict.standing
    }  # only drills are left here, and they take nothing away
    for condition in our_conditions(case.node, case.survey.fleet.healths.get(case.node_name)):
        told_false = condition.status == Status.FALSE
        if not told_false and condition.type not in explained and not _harmless(case, condition.type):
            return f"{condition.type} is {condition.status} ({condition.reason})"
    if not verdict.fresh:
        at = "never" if verdict.confirmed_at is None else f"at {clock(verdict.confirmed_at)}"
        return f"the agent was last heard {at}"
    return None


def _harmless(case: Case, condition_type: str) -> bool:
    """Tell a condition that is True for findings with the effect `none` alone."""
    health = case.survey.fleet.healths.get(case.node_name)
    found = [f for f in health.status.findings if f.condition == condition_type] if health is not None else []
    faults = [f for f in found if f.severity == "Fault"]
    return bool(faults) and all(f.effect == "none" for f in faults)
