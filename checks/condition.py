"""From findings to the one Node condition of a fault class.

Polarity: True = fault, False = looked and fine, Unknown = should have been readable and was not. The message changes
only when something changed: it names parts and reasons and holds no counter and no time.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from checks.finding import EFFECT_RANK, Finding, Severity

MESSAGE_LIMIT = 1024
HOLDER_LIMIT = 80
"""Of the pods' names in a message; NodeHealth holds all of them."""


class Status(StrEnum):
    """Kubernetes' own three values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Kubernetes' NodeCondition; `last_transition` moves only when `status` changes."""

    type: str
    status: Status
    reason: str
    message: str
    last_transition: datetime


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Why a class could not be judged after its bounded tries; `reason` is CamelCase, `message` names the cause."""

    reason: str
    message: str


class Healthy(msgspec.Struct, frozen=True, kw_only=True):
    """The constant words of a class's False condition."""

    reason: str
    message: str


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Order faults by what they take away, then by reason and part, so that equal input gives an equal message."""
    return sorted(findings, key=lambda f: (-EFFECT_RANK[f.effect], f.reason, f.part))


def fold(
    condition_type: str,
    *,
    findings: Iterable[Finding],
    unreadable: Unreadable | None,
    healthy: Healthy,
    previous: Condition | None,
    now: datetime,
) -> Condition:
    """Judge a fault class: any fault is True, else an unreadable source is Unknown, else False.

    A fault that stands outweighs a source that went silent: losing sight of a sick part does not heal it.
    """
    faults = worst_first(f for f in findings if f.severity is Severity.FAULT)
    if faults:
        status, reason, message = Status.TRUE, faults[0].reason, _name_parts(faults)
    elif unreadable:
        status, reason, message = Status.UNKNOWN, unreadable.reason, unreadable.message
    else:
        status, reason, message = Status.FALSE, healthy.reason, healthy.message
    same = previous is not None and previous.status == status
    return Condition(
        type=condition_type,
        status=status,
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        last_transition=previous.last_transition if previous is not None and same else now,
    )


def _name_parts(faults: list[Finding]) -> str:
    """Write `GPU 3 ... : Xid79FallenOffBus (detail, held by namespace/pod); ...`, cut between parts.

    How many parts are left out is said.
    """
    words: list[str] = []
    length = 0
    for position, fault in enumerate(faults):
        said = [fault.detail, f"held by {fault.holder[:HOLDER_LIMIT]}" if fault.holder else ""]
        detail = f" ({', '.join(filter(None, said))})" if any(said) else ""
        drill = "drill: " if fault.drill else ""
        word = f"{drill}{fault.part.shown()}: {fault.reason}{detail}"
        left = len(faults) - position
        more = f"; and {left} more"
        if length + len(word) + 2 + (len(more) if left > 1 else 0) > MESSAGE_LIMIT:
            return "; ".join(words) + more if words else word[: MESSAGE_LIMIT - len(more)] + more
        words.append(word)
        length += len(word) + 2
    return "; ".join(words)
