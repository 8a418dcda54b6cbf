"""Running the checks: observations and memory in, conditions and findings out. Pure but for catching a check that breaks.

A check that raises is not a healthy machine: what it could not judge is gone for good, so its class is Unknown until the
agent starts again, unless a fault stands. The rest of the checks, and the rest of the observations, go on.
"""

import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement, MachineFacts, NotEvaluated
from checks.condition import Condition, Unreadable, fold
from checks.drill import asked_for, with_drills
from checks.finding import Finding, PartKind, Severity
from checks.observation import Observation

BROKEN = "CheckFailed"


class Surroundings(MachineFacts, frozen=True, kw_only=True):
    """What all checks are told. `blind` is set where nothing at all can be judged (no boot id): all classes are Unknown."""

    parts_known: bool = False
    blind: Unreadable | None = None


class CheckState(msgspec.Struct, frozen=True, kw_only=True):
    """One check between judgements.

    `seen`: a part of this class was found in this boot, and so the class stays, even when the part is lost. `exists`: it
    was seen, or it cannot be ruled out yet, or the check says so. `not_yet` is why nothing can be said so far. `drilled`: a
    drill of NodeHealth.spec stands, and `undrilled` is the condition as it was before.
    """

    memory: Any = None
    seen: bool = False
    exists: bool = False
    condition: Condition | None = None
    not_yet: str = ""
    findings: tuple[Finding, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    broken: str = ""
    traceback: str = ""
    failures: int = 0
    drilled: bool = False
    undrilled: Condition | None = None


class _Broken(msgspec.Struct, frozen=True):
    sentence: str
    traceback: str

    @classmethod
    def by(cls, error: Exception, check: Check) -> "_Broken":
        return cls(f"{type(error).__name__} in checks/{check.name}", traceback.format_exc(limit=-8))


def restore(check: Check, state: CheckState, findings: Sequence[Finding], boot_id: str) -> CheckState:
    """Give the check back the faults of this boot that NodeHealth held, where it latches faults at all."""
    ours = [finding for finding in findings if finding.boot_id == boot_id and not asked_for(finding)]
    if check.restore is None or not ours:
        return state
    try:
        memory = check.restore(ours, state.memory)
        return msgspec.structs.replace(state, memory=memory, seen=state.seen or _names_a_part(ours))
    except Exception as error:  # noqa: BLE001 - the same edge
        broken = _Broken.by(error, check)
        return msgspec.structs.replace(state, broken=broken.sentence, traceback=broken.traceback)


def remembered(check: Check, saved: Any) -> Any:
    """Make a check's memory of what JSON gave back. Raises msgspec.ValidationError where it does not fit."""
    return None if saved is None else msgspec.convert(saved, type=check.memory_type, str_keys=True)


def is_outdated(state: CheckState, newer: Sequence[Finding], boot_id: str) -> bool:
    """Tell whether a fault stands in this check's memory that a newer and whole account no longer holds."""
    stand = {finding.key() for finding in newer}
    return any(
        finding.severity is Severity.FAULT
        and finding.boot_id == boot_id
        and finding.key() not in stand
        and not asked_for(finding)
        for finding in state.findings
    )


def judge(
    check: Check,
    before: CheckState,
    observations: Sequence[Observation],
    around: Surroundings,
    settings: Mapping[str, Any],
    now: datetime,
    watched_ms: int | None = None,
) -> CheckState:
    """Judge one class anew; `watched_ms` as in Context."""
    context = Context(
        **{name: getattr(around, name) for name in MachineFacts.__struct_fields__},
        now=now,
        watched_ms=watched_ms,
        settings={**check.default_settings, **settings},
    )
    judgement, broken, failures = _run(check, before, observations, context)
    applies, applies_broken = _applies(check, around)
    broken = broken or applies_broken
    seen = before.seen or _names_a_part(judgement.findings) or applies is True
    judgement = with_drills(check, judgement, context)
    state = msgspec.structs.replace(
        before,
        memory=judgement.memory,
        seen=seen,
        exists=seen or applies is None if judgement.exists is None else judgement.exists,
        not_yet=judgement.not_yet,
        findings=judgement.findings,
        not_evaluated=judgement.not_evaluated,
        broken=broken.sentence if broken else "",
        traceback=broken.traceback if broken else "",
        failures=before.failures + failures,
        drilled=any(asked_for(finding) for finding in judgement.findings),
        undrilled=before.undrilled if before.drilled else before.condition,
    )
    condition = _condition(check, state, judgement, around, now, ended=before.drilled and not state.drilled)
    return msgspec.structs.replace(state, condition=condition)


def _run(
    check: Check, before: CheckState, observations: Sequence[Observation], context: Context
) -> tuple[Judgement, _Broken | None, int]:
    """Give the judgement, why the check counts as broken, and how many observations it broke on.

    One observation that breaks it must not take the others along: then they are judged one by one.
    """
    try:
        earlier = _Broken(before.broken, before.traceback) if before.broken else None
        return check.judge(observations, before.memory, context), earlier, 0
    except Exception as error:  # noqa: BLE001 - the check-runner's edge: a defect in one check is a finding about it
        broken = _Broken.by(error, check)
    failures = 0
    held = tuple(finding for finding in before.findings if not asked_for(finding))
    judgement = Judgement(findings=held, not_evaluated=before.not_evaluated, memory=before.memory)
    for observation in observations:
        try:
            judgement = check.judge([observation], judgement.memory, context)
        except Exception:  # noqa: BLE001 - the same edge
            failures += 1
    return judgement, broken, max(1, failures)


def _names_a_part(findings: Sequence[Finding]) -> bool:
    """Say whether one is about a part of the class: a log that ran over is about the node, and proves no GPU."""
    return any(finding.part.kind is not PartKind.NODE for finding in findings)


def _applies(check: Check, around: Surroundings) -> tuple[bool | None, _Broken | None]:
    """Say whether the class has a part on this machine, None where that is not known, and why the check broke."""
    if not around.parts_known:
        return None, None
    try:
        return check.applies(around.parts), None
    except Exception as error:  # noqa: BLE001 - the same edge
        return None, _Broken.by(error, check)


def _condition(
    check: Check,
    state: CheckState,
    judgement: Judgement,
    around: Surroundings,
    now: datetime,
    *,
    ended: bool,
) -> Condition | None:
    """Give the class's condition; `ended`: a drill has just ended, so what stands is its word and must go."""
    if not state.exists or not check.condition:
        return None
    faults = any(finding.severity is Severity.FAULT for finding in judgement.findings)
    unreadable = judgement.unreadable
    if state.broken:
        unreadable = Unreadable(
            reason=BROKEN, message=f"the check itself broke ({state.broken}): see the agent's log"
        )
    elif around.blind is not None:
        unreadable = around.blind
    elif judgement.not_yet and not faults and not (ended and state.undrilled is None):
        return _back(state, now) if ended else state.condition
    return fold(
        check.condition,
        findings=judgement.findings,
        unreadable=unreadable,
        healthy=check.healthy,
        previous=state.condition,
        now=now,
    )


def _back(state: CheckState, now: datetime) -> Condition | None:
    """Give the condition from before the drill; its status changes now, unless it is the same."""
    held, before = state.condition, state.undrilled
    if held is None or before is None or held.status is before.status:
        return before
    return msgspec.structs.replace(before, last_transition=now)
