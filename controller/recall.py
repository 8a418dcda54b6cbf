"""What the shell remembers of its own requests, for the core to look at: refused evictions and failed writes. Pure.

Memory only. Losing it at a restart or a change of leader costs one early retry, never a second effect: those are kept apart
by names, UIDs and resource versions.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from controller.outcome import SUCCESS, Outcome, Result
from controller.steps import Evict, WriteExpected
from controller.view import Eviction, Failure

_MOST = 20_000

# Answers that tell something about this pod; all others (a busy server, a lost answer) tell about the server.
_REFUSALS = frozenset({Result.BLOCKED, Result.MISCONFIGURED, Result.FORBIDDEN, Result.INVALID})
# What is no failure of a write: the world moved on, a guard said no, or nothing was to be sent.
_NO_FAILURE = frozenset(
    {Result.CONFLICT, Result.REFUSED, Result.NOT_LEADER, Result.DRY_RUN, Result.SKIPPED, Result.BLOCKED}
)


class Recall:
    """Not thread-safe: only the loop's own thread uses it."""

    def __init__(self) -> None:
        self._evictions: dict[str, Eviction] = {}
        self._failures: dict[str, Failure] = {}

    def took(self, outcome: Outcome, now: datetime) -> None:
        """Remember one outcome."""
        if isinstance(outcome.step, Evict):
            self._took_eviction(outcome.step, outcome, now)
            return
        if isinstance(outcome.step, WriteExpected):
            return  # a hint that could not be written holds up no incident
        node = outcome.step.node
        if outcome.result in SUCCESS:
            self._failures.pop(node, None)
        elif node and outcome.result not in _NO_FAILURE:
            before = self._failures.get(node)
            tries = 1 + (before.tries if before is not None and before.step == outcome.kind else 0)
            self._failures[node] = Failure(step=outcome.kind, at=now, tries=tries, why=outcome.why[:512])

    def evictions(self) -> Mapping[str, Eviction]:
        """Give what became of the last eviction of each pod, by its UID."""
        return dict(self._evictions)

    def failures(self) -> Mapping[str, Failure]:
        """Give the nodes whose last write failed, by name."""
        return dict(self._failures)

    def prune(self, *, incidents: Collection[str], has_node: Callable[[str], bool]) -> None:
        """Forget what belongs to no open incident, and to no Node. Bounded besides."""
        kept = {uid: one for uid, one in self._evictions.items() if one.incident in incidents}
        self._evictions = dict(sorted(kept.items(), key=lambda item: item[1].at)[-_MOST:])
        self._failures = {node: one for node, one in self._failures.items() if has_node(node)}

    def _took_eviction(self, step: Evict, outcome: Outcome, now: datetime) -> None:
        if outcome.result in SUCCESS:
            self._evictions[step.uid] = Eviction(incident=step.incident, at=now)
        elif outcome.result in _REFUSALS:
            before = self._evictions.get(step.uid)
            tries = 1 + (before.tries if before is not None else 0)
            self._evictions[step.uid] = Eviction(
                incident=step.incident, at=now, refused=outcome.why[:300], tries=tries
            )
