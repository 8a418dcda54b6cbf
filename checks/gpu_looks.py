"""The looks of a check of GPU health: `checks.polled` and `checks.rates` over the rounds of NVML. Pure.

Beside the fold it holds two things that all these checks need. A finding that stands is not ended by a look which cannot
show it (MIG hides row remaps, a driver of another version lacks a field): it stands until something is read. And a class of
which no GPU of the node shows anything that could be a fault is not there, rather than well.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from checks.check import Context, Judgement
from checks.finding import Part, Reason, Severity
from checks.gpu_health import GpuHealth
from checks.nvml_look import group_missing, hear_rounds, why_no_look
from checks.observation import GpuReading, NvmlRead, Observation
from checks.polled import Polled, PolledMemory, Rule, Said, Word
from checks.rates import Rates, Series

WordsOf = Callable[[GpuReading, GpuHealth, Part], Iterable[Word]]


class LooksMemory(msgspec.Struct, frozen=True, kw_only=True):
    """`shown`: whether a GPU told anything that could be a fault, in the newest look that told of one; None before."""

    polled: PolledMemory | None = None
    rates: dict[str, Series] = {}
    shown: bool | None = None


class GpuLooks:
    """One judgement under way; mutable only inside it. `window_ms` is the longest window that `rates` is asked for."""

    def __init__(
        self,
        name: str,
        reasons: Sequence[Reason],
        rules: Mapping[str, Rule],
        memory: LooksMemory | None,
        context: Context,
        window_ms: int = 1,
    ) -> None:
        kept = memory or LooksMemory()
        self._name = name
        self._context = context
        self.polled = Polled(name, reasons, rules, kept.polled, context)
        self.same_boot = kept.polled is not None and kept.polled.boot_id in ("", self.polled.before.boot_id)
        # Counters of an earlier boot, and its watched time, say nothing of this one.
        self.rates = Rates(kept.rates if self.same_boot else {}, self.polled.clock_ms, window_ms)
        self.rates.forget_all(self.polled.is_dealt_with())
        self._shown = kept.shown if self.same_boot else None

    def hear(self, observations: Sequence[Observation], words_of: WordsOf) -> None:
        """Take the rounds; `words_of` is asked for each GPU that answered."""
        told: list[bool] = []

        def words(gpu: GpuReading, health: GpuHealth, part: Part) -> Iterator[Word]:
            for word in self.polled.keep_standing(words_of(gpu, health, part)):
                told.append(word.said is not Said.NOT_SHOWN and word.reason.severity is Severity.FAULT)
                yield word

        hear_rounds(observations, self.polled, self._context, words, self._name)
        if told:
            self._shown = any(told)
        elif any(isinstance(heard, NvmlRead) and not why_no_look(heard) for heard in observations):
            self._shown = bool(self._shown)

    def memory(self) -> LooksMemory:
        """Give what is to be kept."""
        return LooksMemory(polled=self.polled.memory(), rates=self.rates.memory(), shown=self._shown)

    def judgement(self, unreadable: Reason, memory: msgspec.Struct) -> Judgement:
        """Say what stands. `unreadable` is the class's reason of Unknown."""
        judgement = self.polled.judgement(unreadable, memory)
        is_fault = any(finding.severity is Severity.FAULT for finding in judgement.findings)
        nothing_shown = self._shown is False and not is_fault
        return msgspec.structs.replace(judgement, exists=False if nothing_shown else None)


def fact(
    reason: Reason, part: Part, bad: bool, detail: str, evidence: Callable[[], tuple[str, ...]] = tuple
) -> Word:
    """Give the word for what was read: bad, in these words, or good, of which no evidence is made."""
    if not bad:
        return Word(said=Said.GOOD, reason=reason, part=part)
    return Word(said=Said.BAD, reason=reason, part=part, detail=detail, evidence=evidence())


def untold(health: GpuHealth, group: str, reason: Reason, part: Part, what: str) -> Word:
    """Give the word for a value that was not told: not shown, or unreadable where a call of its group gave an error.

    A warning takes nothing away, so that it cannot be read takes nothing away either: it is listed as not evaluated.
    """
    word = group_missing(health, group, reason, part, what)
    if word.said is Said.UNREADABLE and reason.severity is Severity.WARNING:
        return not_shown(reason, part, word.detail)
    return word


def not_shown(reason: Reason, part: Part, why: str) -> Word:
    """Give the word for what this hardware or configuration cannot show."""
    return Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why)
