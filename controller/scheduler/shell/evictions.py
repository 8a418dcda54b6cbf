"""Evict sets of victims, whole or not at all as far as that can be known beforehand. Shell, for `dispatch`.

Evictors are threads of their own, since a slow admission webhook must not hold up anybody's binds; which set is next
`eviction_line` says. A set is looked at once more when its turn comes, its PodDisruptionBudgets are counted, each victim is
asked about, and only then the first one leaves.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import structlog

from controller.outcome import Result
from controller.scheduler.shell.budgets import Refusal
from controller.scheduler.shell.effects import Answer, Effects, has_left, is_of_the_server
from controller.scheduler.shell.eviction_line import EvictionLine, waiting
from controller.scheduler.shell.orders import Victim, VictimSet
from controller.scheduler.shell.outcomes import Evicted
from kube.clock import Clock

log = structlog.get_logger(__name__)

EVICTORS: Final = 8
EVICTION_LAPSES_S: Final = 10.0
"""Who was to be evicted so long ago is judged anew: for whom it was may have its place, or the sick part be well."""
ASKING_LASTS_S: Final = 60.0
"""A set of a thousand is asked about in less; beyond it nobody leaves on what was decided so long ago."""
BEGUN_LASTS_S: Final = 15.0
"""For so long the rest of a set is asked for of which some have left; less than an eviction may take to show."""
BEGUN_PAUSE_S: Final = 1.0

LookAtVictims = Callable[[VictimSet], str]
"""Say why these victims may not be evicted any more; "" = they may."""
LookAtBudgets = Callable[[VictimSet], Mapping[str, Refusal]]
"""Say which of the victims may not leave together with the others."""


class Evictions:
    """`stopping` says that nothing may begin any more; `tell` takes what came of each victim, once."""

    def __init__(
        self,
        effects: Effects,
        look_at_victims: LookAtVictims,
        look_at_budgets: LookAtBudgets,
        *,
        clock: Clock,
        stopping: Callable[[], str],
        tell: Callable[..., None],
    ) -> None:
        self._effects = effects
        self._look_at_victims = look_at_victims
        self._look_at_budgets = look_at_budgets
        self._clock = clock
        self._stopping = stopping
        self._tell = tell
        self._line = EvictionLine()
        self._evictors = ThreadPoolExecutor(EVICTORS, thread_name_prefix="evict")

    def order(self, sets: Sequence[VictimSet]) -> None:
        until = self._clock.monotonic() + EVICTION_LAPSES_S
        self._line.put(waiting(one, until) for one in sets)
        for _ in sets[:EVICTORS]:
            self._evictors.submit(self._work)

    def stop(self) -> None:
        """Let what is under way end; all others are told that they did not begin."""
        self._evictors.shutdown(wait=True)

    # In an evictor's thread

    def _work(self) -> None:
        """Take from the line for as long as anybody has a turn; whoever has none waits for one that is under way."""
        while (one := self._line.take(self._clock.monotonic())) is not None:
            try:
                self._evict_set(one.victims, one.until)
            except Exception:  # a defect is shown, and must not leave the loop waiting in silence
                log.exception("eviction.failed")
                answer = Answer(result=Result.UNAVAILABLE, why="a defect of the scheduler, see its log")
                told = (_told(one.victims, victim, answer) for victim in one.victims.victims)
                self._tell(*told)
            finally:
                self._line.done(one)
            if one.makes_much_room:
                with suppress(RuntimeError):  # they are stopping: this thread goes on until the line is empty
                    self._evictors.submit(self._work)

    def _evict_set(self, one: VictimSet, until: float) -> None:
        if why := self._why_not(one, until):
            self._tell_unsent(one, [Answer(result=Result.REFUSED, why=why)] * len(one.victims))
            return
        if one.leaves_whole and (refused := self._look_at_budgets(one)):
            self._tell_refused(one, refused)
            return
        answers = self._ask(one)
        if one.gains and not all(map(has_left, answers)):
            self._tell_unsent(one, answers)
            return
        if why := self._stopping() or self._look_at_victims(one):  # asking may have taken long
            self._tell_unsent(one, [Answer(result=Result.REFUSED, why=why)] * len(one.victims))
            return
        told: list[Evicted] = []
        refusal = ""
        began = self._clock.monotonic()
        last = began + BEGUN_LASTS_S
        for victim, answer in zip(one.victims, answers, strict=True):
            if refusal:
                skipped = Answer(result=Result.REFUSED, why=refusal)
                told.append(_told(one, victim, skipped, tried=True))
                continue
            begun = bool(one.gains) and any(has_left(other.answer) for other in told)
            taken = self._evict(one, victim, last if begun else began) if has_left(answer) else answer
            told.append(_told(one, victim, taken))
            if one.gains and not has_left(taken):  # the rest would leave for nothing
                refusal = f"{victim.evict.task} may not be evicted after all: {taken.why}"
        self._tell(*told)

    def _ask(self, one: VictimSet) -> list[Answer]:
        """Ask about each victim. Once it takes too long the server counts as one that takes none of those that are left, so
        that in the end others are chosen."""
        until = self._clock.monotonic() + ASKING_LASTS_S
        slow = Answer(
            result=Result.UNAVAILABLE, why=f"to ask about its set took more than {ASKING_LASTS_S:g} s"
        )
        answers: list[Answer] = []
        for victim in one.victims:
            if why := self._stopping():
                answers.append(Answer(result=Result.REFUSED, why=why))
            elif self._clock.monotonic() > until:
                answers.append(slow)
            else:
                answers.append(self._effects.try_evict(victim.evict.task, victim.uid))
        return answers

    def _evict(self, one: VictimSet, victim: Victim, last: float) -> Answer:
        """Evict one of a set; up to `last` it is asked for again and again while the server takes nothing."""
        while True:
            answer = self._effects.evict(victim.evict.task, victim.uid)
            if not is_of_the_server(answer) or self._clock.monotonic() >= last:
                return answer
            self._clock.sleep(BEGUN_PAUSE_S)
            if self._stopping() or self._look_at_victims(one):
                return answer

    def _why_not(self, one: VictimSet, until: float) -> str:
        if why := self._stopping():
            return why
        if self._clock.monotonic() > until:
            return f"it was decided more than {EVICTION_LAPSES_S:g} s ago"
        return self._look_at_victims(one)

    def _tell_unsent(self, one: VictimSet, answers: Sequence[Answer]) -> None:
        self._tell(
            *(
                _told(one, victim, answer, tried=True)
                for victim, answer in zip(one.victims, answers, strict=True)
            )
        )

    def _tell_refused(self, one: VictimSet, refused: Mapping[str, Refusal]) -> None:
        """Tell that the set stays, and who is to blame; the others are as good victims as before."""
        spared = Refusal(answer=Answer(result=Result.REFUSED, why="others of its set may not be evicted"))
        self._tell(
            *(
                _told(one, victim, found.answer, tried=True, siblings=found.siblings)
                for victim in one.victims
                for found in (refused.get(victim.evict.task, spared),)
            )
        )


def _told(
    one: VictimSet, victim: Victim, answer: Answer, *, tried: bool = False, siblings: tuple[str, ...] = ()
) -> Evicted:
    return Evicted(victim=victim, gains=one.gains, answer=answer, tried=tried, siblings=siblings)
