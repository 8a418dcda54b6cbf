"""What pauses after evictions that were not taken: a victim, or all evictions of a namespace, or all there are. Pure.

Whoever may not be evicted now is no victim for a while, and the next cycle chooses others. Where the server takes no
eviction at all that says nothing about the victim: were another one chosen at once, a part of this set and the whole of
another would leave. What may be an admission webhook's failure holds the evictions of that namespace only.
"""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Final, Literal

import msgspec

from controller.outcome import Result
from controller.scheduler import explain
from controller.scheduler.plan import Wait
from controller.scheduler.shell.effects import Answer, has_left, is_of_the_server
from controller.scheduler.shell.orders import VictimSet
from controller.scheduler.shell.outcomes import Evicted
from controller.scheduler.shell.pauses import Pauses
from controller.scheduler.shell.reported import Happened
from kube.types import Pod

VICTIM_PAUSES_S: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
BUSY_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0)
SERVER_TRIES: Final = 3
"""What fails so often for the same victim, and always by the server, may be a webhook that fails for that victim alone."""
_ALL: Final = ""
_OF_THE_VICTIM: Final = frozenset({Result.BLOCKED, Result.MISCONFIGURED, Result.FORBIDDEN, Result.INVALID})
_OF_ITS_NAMESPACE: Final = frozenset({Result.UNAVAILABLE, Result.CONFLICT})
"""A webhook that cannot be reached, or takes too long, is an internal error of the server's, as an outage is."""


class Refusals:
    """Owned by the loop's thread."""

    def __init__(self) -> None:
        self._victims = Pauses(VICTIM_PAUSES_S)
        self._busy = Pauses(BUSY_PAUSES_S)
        self._unanswered: dict[str, int] = {}
        self._lacking: dict[str, str] = {}  # by the job that was to gain, who was refused last

    def settle(self, pods: Mapping[str, Pod]) -> None:
        """Forget who is gone."""
        self._unanswered = {task: tries for task, tries in self._unanswered.items() if task in pods}
        self._lacking = {job: task for job, task in self._lacking.items() if task in pods}

    def protected(self, now: datetime) -> Mapping[str, str]:
        """Say who is no victim now, and why."""
        return {task: held.why for task, held in self._victims.holding(now).items()}

    def to_send(self, sets: Sequence[VictimSet], now: datetime) -> list[VictimSet]:
        """Give the sets that may be sent, without whoever was refused a moment ago: where a job gains by the set, all of it
        stays then."""
        busy, refused = self._busy.holding(now).keys(), self._victims.holding(now).keys()
        found: list[VictimSet] = []
        for whole in () if _ALL in busy else sets:
            one = _without(whole, refused)
            is_partial = bool(one.gains) and one is not whole
            if not is_partial and not any(_namespace(victim.evict.task) in busy for victim in one.victims):
                found.append(one)
        return [one for one in found if one.victims]

    def took(self, outcome: Evicted, now: datetime) -> Happened | None:
        """Learn what came of an eviction; give what is worth telling."""
        task, answer = outcome.victim.evict.task, outcome.answer
        of_the_server = is_of_the_server(answer) or answer.result is Result.NOT_LEADER
        tries = self._unanswered[task] = self._unanswered.get(task, 0) + 1 if of_the_server else 0
        if of_the_server and tries < SERVER_TRIES:
            self._busy.failed(_whose(task, answer), answer.why, now, answer.wait_s)
        elif of_the_server or answer.result in _OF_THE_VICTIM:
            for held in (task, *outcome.siblings):
                self._victims.failed(held, answer.why, now, answer.wait_s)
            if outcome.gains:
                self._lacking[outcome.gains] = task
            return _of_victim(outcome, "evict-refused", answer.why, now)
        elif has_left(answer) and not outcome.tried:
            self._victims.succeeded(task)
            for held in (_ALL, _namespace(task)):
                self._busy.succeeded(held)
            return _of_victim(outcome, "evicted", outcome.victim.evict.why, now)
        return None

    def explained(self, waits: tuple[Wait, ...], now: datetime) -> tuple[Wait, ...]:
        """Give why jobs wait, with who may not be evicted for them; `waits` itself where that is nobody."""
        held = self._victims.holding(now)
        self._lacking = {job: task for job, task in self._lacking.items() if task in held}
        if not self._lacking:
            return waits
        return tuple(
            msgspec.structs.replace(
                wait,
                message=f"{wait.message.removesuffix('.')}; {task} may not be evicted for it: {held[task].why}",
            )
            if wait.code == explain.NO_ROOM and (task := self._lacking.get(wait.job, ""))
            else wait
            for wait in waits
        )

    def next_until(self, now: datetime) -> datetime | None:
        """Give when the next pause ends."""
        times = (pauses.next_until(now) for pauses in (self._victims, self._busy))
        return min((one for one in times if one is not None), default=None)


def _whose(task: str, answer: Answer) -> str:
    return _namespace(task) if answer.result in _OF_ITS_NAMESPACE else _ALL


def _namespace(task: str) -> str:
    return task.partition("/")[0]


def _without(one: VictimSet, refused: Set[str]) -> VictimSet:
    kept = tuple(victim for victim in one.victims if victim.evict.task not in refused)
    return one if len(kept) == len(one.victims) else msgspec.structs.replace(one, victims=kept)


def _of_victim(
    outcome: Evicted, what: Literal["evicted", "evict-refused"], message: str, now: datetime
) -> Happened:
    victim = outcome.victim
    return Happened(
        pod=victim.evict.task, uid=victim.uid, what=what, node=victim.evict.node, message=message, at=now
    )
