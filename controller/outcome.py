"""What came of a step: every error of the API becomes a value here, so that the loop can show it, pace it and go on."""

import re
from enum import StrEnum

import msgspec

from controller.steps import Step
from kube.api import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotLeader,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kube.store import Stored

# The server's own words (k8s.io/kubernetes, registry/core/pod/storage/eviction.go); it gives neither reason nor cause.
_TWO_BUDGETS = "more than one PodDisruptionBudget"
_BUDGET_NAME = re.compile(r"disruption budget ([a-z0-9][-a-z0-9.]*) (?:needs|is still)")


class Result(StrEnum):
    """DONE, UNCHANGED and ABSENT are success: the world is now as the step wanted it. All others say why it is not."""

    DONE = "done"
    UNCHANGED = "unchanged"
    ABSENT = "absent"
    DRY_RUN = "dry_run"
    CONFLICT = "conflict"
    REFUSED = "refused"
    BLOCKED = "blocked"
    THROTTLED = "throttled"
    MISCONFIGURED = "misconfigured"
    FORBIDDEN = "forbidden"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    NOT_LEADER = "not_leader"
    SKIPPED = "skipped"


SUCCESS = frozenset({Result.DONE, Result.UNCHANGED, Result.ABSENT})


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`wait_s` is the server's own wish for the next try; `objects` are its answers, for the stores."""

    step: Step
    result: Result
    why: str = ""
    wait_s: float | None = None
    objects: tuple[Stored, ...] = ()

    @property
    def kind(self) -> str:
        return type(self.step).__name__


def from_error(step: Step, error: ApiError) -> Outcome:
    """Judge an error of any request; what one kind of request alone means by it is judged before."""
    return Outcome(step=step, result=result_of(error), why=str(error), wait_s=error.retry_after_s)


def result_of(error: ApiError) -> Result:
    """Say what an error of any request comes to."""
    match error:
        case NotLeader():
            return Result.NOT_LEADER
        case Conflict() | Gone() | AlreadyExists() | NotFound():
            return Result.CONFLICT  # the world is another one than was planned on; the next tick sees it
        case TooManyRequests():
            return Result.THROTTLED
        case Forbidden() | Unauthorized():
            return Result.FORBIDDEN
        case Invalid() if "metadata.uid" in str(error):
            return Result.CONFLICT  # how the server answers a patch that was meant for another UID
        case Invalid():
            return Result.INVALID
        case _:
            return Result.UNAVAILABLE


def from_eviction_error(step: Step, error: ApiError) -> Outcome:
    """Judge the answers of the Eviction API."""
    result, why = eviction_result(error)
    return Outcome(step=step, result=result, why=why, wait_s=error.retry_after_s)


def eviction_result(error: ApiError) -> tuple[Result, str]:
    """Say what an answer of the Eviction API comes to, which uses one code for several things.

    404, and 409 for a UID that is another one now: this pod is gone. 429 with a DisruptionBudget cause: a
    PodDisruptionBudget holds it; without: the server itself is busy. 500 with several budgets never resolves by itself.
    """
    match error:
        case NotFound():
            return Result.ABSENT, ""
        case Conflict() if "UID in the precondition" in str(error) or "uid" in str(error):
            return Result.ABSENT, "another pod has its name now"
        case TooManyRequests() if error.disruption_budget:
            return Result.BLOCKED, _budget(error)
        case Unavailable() if _TWO_BUDGETS in str(error):
            return (
                Result.MISCONFIGURED,
                "more than one PodDisruptionBudget selects this pod; the Eviction API answers that with an error for ever",
            )
        case Forbidden() if "NamespaceTerminating" in error.causes:
            return Result.BLOCKED, "its namespace is being deleted, and it with it"
        case _:
            return result_of(error), str(error)


def _budget(error: ApiError) -> str:
    """Name the budget, without its present numbers: the text is persisted and must not change with every try."""
    named = _BUDGET_NAME.search(str(error))
    return f"PodDisruptionBudget{f' {named[1]}' if named else ''} allows no eviction now"
