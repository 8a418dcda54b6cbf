"""When a step that did not work may be tried again, so that no answer of the server makes the loop spin.

Memory only, and only about pace: losing it at a change of leader costs one early try. Intervals are monotonic seconds.
"""

from collections.abc import Callable

import msgspec

from controller.outcome import SUCCESS, Outcome, Result
from controller.steps import (
    CallBack,
    Evict,
    Open,
    Quarantine,
    Restore,
    RunRepair,
    RunValidation,
    Silence,
    StartClients,
    Step,
    StopClients,
    WriteExpected,
    WriteSpec,
)

# First wait and longest wait, in seconds. A budget's refusal is asked again as kubectl drain does it, from 5 s on; two
# budgets on one pod need a person; an unknown outcome of a write is asked again soon, since the write may have worked.
_WAITS: dict[Result, tuple[float, float]] = {
    Result.CONFLICT: (0.1, 5.0),
    Result.UNAVAILABLE: (0.5, 30.0),
    Result.THROTTLED: (1.0, 30.0),
    Result.BLOCKED: (5.0, 30.0),
    Result.REFUSED: (5.0, 60.0),
    Result.MISCONFIGURED: (60.0, 300.0),
    Result.FORBIDDEN: (5.0, 300.0),
    Result.INVALID: (5.0, 300.0),
    Result.DRY_RUN: (60.0, 60.0),
}
# The answer to a deletion is no object: until the watch brings it, the plan still sees what was deleted and would ask again.
_AFTER_SUCCESS_S = 10.0
_MOST = 20_000

Key = tuple[str, ...]


class _Hold(msgspec.Struct, frozen=True):
    until: float
    failures: int


class Pacing:
    """Not thread-safe: only the loop's own thread uses it. `spread` gives a factor around 1 (jitter)."""

    def __init__(self, spread: Callable[[], float]) -> None:
        self._spread = spread
        self._holds: dict[Key, _Hold] = {}

    def may(self, step: Step, now: float) -> bool:
        """Whether the step's time has come."""
        hold = self._holds.get(key_of(step))
        return hold is None or now >= hold.until

    def took(self, outcome: Outcome, now: float) -> None:
        """Remember what came of a step."""
        key = key_of(outcome.step)
        if outcome.result in SUCCESS:
            if isinstance(outcome.step, Evict | CallBack):
                self._holds[key] = _Hold(now + _AFTER_SUCCESS_S, 0)
            else:
                self._holds.pop(key, None)
            return
        if outcome.result not in _WAITS:
            return
        previous = self._holds.get(key)
        failures = previous.failures + 1 if previous is not None else 1
        first, longest = _WAITS[outcome.result]
        wait = min(longest, first * 2.0 ** min(failures - 1, 16)) * self._spread()
        self._holds[key] = _Hold(now + max(wait, outcome.wait_s or 0.0), failures)
        if len(self._holds) > _MOST:
            self._forget(now)

    def next_at(self, now: float) -> float | None:
        """When the next held step may go, on the monotonic clock; None where nothing is held."""
        return min((hold.until for hold in self._holds.values() if hold.until > now), default=None)

    def prune(self, now: float) -> None:
        """Forget what was last asked for long ago: its back-off starts anew."""
        self._holds = {key: hold for key, hold in self._holds.items() if hold.until > now - 600.0}

    def _forget(self, now: float) -> None:
        self.prune(now)
        for key in sorted(self._holds, key=lambda key: self._holds[key].until)[
            : max(0, len(self._holds) - _MOST)
        ]:
            del self._holds[key]


def key_of(step: Step) -> Key:
    """Name what a step would change, so that another step on the same node has a pace of its own."""
    match step:
        case Evict():
            return ("Evict", step.uid)
        case Quarantine() | Restore() | StopClients() | StartClients():
            return (type(step).__name__, step.node_uid, step.incident)
        case RunRepair() | RunValidation():
            return ("Job", step.job)
        case CallBack():
            return ("CallBack", step.job)
        case Silence():
            return ("Silence", step.node_uid, *(type_ + status for type_, status, _, _ in step.conditions))
        case Open():
            return ("Open", step.name)
        case WriteSpec() | WriteExpected():
            return (type(step).__name__, step.node)
        case _:
            return (type(step).__name__, step.name)
