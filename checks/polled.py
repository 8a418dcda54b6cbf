"""The fold of checks that look at something every so often: words about parts in, findings that do not blink out. Pure.

A look says of each part and each question (a reason) whether it is bad, good, unreadable or not shown by this hardware.
From that, by the rule of the reason:

- **raise after**: bad words must have come for so long, of watched time, before there is a finding. A good word between does
  not let the wait begin anew unless good words last for `clear_after`.
- **clear after**: good words must last for so long before a finding ends. What comes and goes is damped: each time that a
  finding was raised again within the last hour doubles that time, up to 16 times.
- **until reboot**: no good word ends it, only a new boot or a clearing (a counter that only grows says nothing good).
- **unreadable** three looks in a row is Unknown; before, what was known stands. **Not shown** is listed and blocks nothing.

A part that a look does not name keeps what it has: silence proves nothing. Time counts only from one look to the next and at
most two minutes of it, so neither an absent agent nor a clock that is set raises or ends anything. With a new boot all of
this begins anew.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from checks.check import Context, Judgement, NotEvaluated
from checks.clearing import Applied, acted_on, newly_cleared, was_cleared
from checks.condition import Unreadable, worst_first
from checks.finding import EFFECT_RANK, Finding, Part, PartKind, Reason, Severity
from checks.nvml_word import watched_ms
from checks.standing import CONFIRMED_EVERY

TRIES_BEFORE_UNKNOWN = 3
SILENT_MS = 5 * 60 * 1000
"""Nothing heard for longer than this is as good as a source that cannot be read; looks come every half minute."""
MOST_BETWEEN_MS = 2 * 60 * 1000
MAX_SLOTS = 512  # 16 GPUs and 32 ports with 8 questions each, and room
MAX_NOT_EVALUATED = 64
FLAP_WINDOW_MS = 3600 * 1000
MOST_DOUBLINGS = 4


class Said(StrEnum):
    """What a look says to one question about one part."""

    BAD = "bad"
    GOOD = "good"
    UNREADABLE = "unreadable"
    NOT_SHOWN = "not-shown"


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `detail`: for BAD what is wrong, without a live counter (it stands in the condition's message); for
    UNREADABLE and NOT_SHOWN why. `evidence` are raw values as read, newest last, and may change with every look.
    """

    said: Said
    reason: Reason
    part: Part
    detail: str = ""
    evidence: tuple[str, ...] = ()


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """How long a word must last, in seconds of watched time, and whether anything but a boot or a clearing ends it."""

    raise_after_s: int = 0
    clear_after_s: int = 60
    until_reboot: bool = False


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One question about one part between looks.

    `since`: the first bad word in a row. `finding` stands where there is one. `raised`: when it was raised, by the fold's
    own clock, newest last. `tries`: looks in a row that could not read it, the last because of `why`.
    """

    reason: str
    part: Part
    said: Said = Said.GOOD
    since: datetime | None = None
    bad_ms: int = 0
    good_ms: int = 0
    at_ms: int = 0
    finding: Finding | None = None
    raised: tuple[int, ...] = ()
    tries: int = 0
    why: str = ""


class PolledMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements and over restarts. `clock_ms` is the time watched since the boot was first judged."""

    boot_id: str = ""
    at: datetime | None = None
    clock_ms: int = 0
    slots: dict[str, Slot] = {}
    not_shown: tuple[NotEvaluated, ...] = ()
    was_heard: bool = False
    heard_ms: int = 0
    failed_tries: int = 0
    failure: str = ""
    omitted: int = 0
    applied: Applied = Applied()


def adopt(memory: PolledMemory | None, context: Context) -> PolledMemory:
    """Take up the memory of this boot; a new boot starts afresh, an unreadable boot id starts nothing."""
    kept = memory or PolledMemory(boot_id=context.boot_id)
    if context.boot_id and kept.boot_id and kept.boot_id != context.boot_id:
        kept = PolledMemory(boot_id=context.boot_id, applied=kept.applied)
    clock_ms = kept.clock_ms + watched_ms(kept.at, context)
    return msgspec.structs.replace(
        kept, boot_id=kept.boot_id or context.boot_id, at=context.now, clock_ms=clock_ms
    )


def restored(
    findings: Sequence[Finding], memory: PolledMemory | None, reasons: Sequence[Reason]
) -> PolledMemory:
    """Let findings stand again that the agent read back from NodeHealth, until a look says something else."""
    kept = memory or PolledMemory()
    boot_id = kept.boot_id or (findings[0].boot_id if findings else "")
    known = {reason.name for reason in reasons}
    slots = dict(kept.slots)
    for finding in findings:
        key = _slot(finding.reason, finding.part)
        ours = finding.reason in known and finding.boot_id == boot_id and not finding.drill
        held = slots.get(key)
        if ours and (held is None or held.finding is None) and not was_cleared(kept.applied, finding):
            slot = held or Slot(reason=finding.reason, part=finding.part, at_ms=kept.clock_ms)
            slots[key] = msgspec.structs.replace(
                slot, said=Said.BAD, since=finding.first_seen, finding=finding
            )
    return msgspec.structs.replace(kept, boot_id=boot_id, slots=slots)


def nobody_looks(name: str, source: str, memory: Any, context: Context) -> Judgement | None:
    """Give the judgement of a class whose source is switched off here; None where it is looked at."""
    if source in context.looked_at:
        return None
    why = f"the source {source!r} is switched off in the agent's configuration"
    row = NotEvaluated(check=name, part="node", why=why)
    return Judgement(exists=False, not_evaluated=(row,), memory=memory)


class Polled:
    """One judgement under way. Feed it looks and failures in their order, then take the judgement."""

    def __init__(
        self,
        name: str,
        reasons: Sequence[Reason],
        rules: Mapping[str, Rule],
        memory: PolledMemory | None,
        context: Context,
    ) -> None:
        """`rules` by the reason's name; a reason without one has the default Rule."""
        self.before = adopt(memory, context)
        self.clock_ms = self.before.clock_ms
        self._name = name
        self._rules = rules
        self._reasons = {reason.name: reason for reason in reasons}
        self._context = context
        self._slots = {k: slot for k, slot in self.before.slots.items() if slot.reason in self._reasons}
        self._not_shown = self.before.not_shown
        self._was_heard, self._heard_ms = self.before.was_heard, self.before.heard_ms
        self._failed_tries, self._failure = self.before.failed_tries, self.before.failure
        self._omitted = self.before.omitted
        self._clear()

    def hear(self, words: Iterable[Word], not_shown: Iterable[NotEvaluated] = ()) -> None:
        """Take one whole look; what it cannot show takes the place of what the look before could not."""
        rows = {(row.part, row.why): row for row in not_shown}
        for word in words:
            if word.said is Said.NOT_SHOWN:
                row = NotEvaluated(check=self._name, part=word.part.shown(), why=word.detail)
                rows[row.part, row.why] = row
                self._slots.pop(_slot(word.reason.name, word.part), None)
            elif self._slots or word.said is not Said.GOOD:  # where all is well, a good word is no news
                self._take(word)
        self._not_shown = tuple(rows[key] for key in sorted(rows))[:MAX_NOT_EVALUATED]
        self._was_heard, self._heard_ms = True, self.clock_ms
        self._failed_tries, self._failure = 0, ""

    def fail(self, why: str, tries: int = 1) -> None:
        """Take that the source could not be read, for the `tries`-th time in a row (a restarted reader counts anew)."""
        self._failed_tries = max(self._failed_tries + 1, tries)
        self._failure = why

    def judgement(self, unreadable: Reason, memory: Any, exists: bool | None = None) -> Judgement:
        """Say what stands. `unreadable` is the class's reason of Unknown; `memory` is put into the Judgement as it is."""
        blind, not_yet = self._why_not_well(unreadable)
        return Judgement(
            findings=tuple(worst_first(slot.finding for slot in self._slots.values() if slot.finding)),
            unreadable=blind,
            not_yet=not_yet,
            exists=exists,
            not_evaluated=self._not_shown,
            memory=memory,
        )

    def memory(self) -> PolledMemory:
        """Give what is to be kept."""
        return msgspec.structs.replace(
            self.before,
            slots=self._slots,
            not_shown=self._not_shown,
            was_heard=self._was_heard,
            heard_ms=self._heard_ms,
            failed_tries=self._failed_tries,
            failure=self._failure,
            omitted=self._omitted,
            applied=acted_on(self.before.applied, self._context),
        )

    def stands(self, reason: Reason, part: Part) -> bool:
        """Tell whether this finding stands now."""
        slot = self._slots.get(_slot(reason.name, part))
        return slot is not None and slot.finding is not None

    def keep_standing(self, words: Iterable[Word], ends: Collection[str] = ()) -> Iterator[Word]:
        """Leave out that what stands is not shown: that it is not told proves nothing. `ends`: details that do end it."""
        for word in words:
            if (
                word.said is not Said.NOT_SHOWN
                or word.detail in ends
                or not self.stands(word.reason, word.part)
            ):
                yield word

    def is_just_cleared(self, part: Part) -> bool:
        """Tell a part that a clearing deals with which is acted on now: what its counters grew by is dealt with, too."""
        applied, context = self.before.applied, self._context
        everything = context.cleared_before is not None and context.cleared_before != applied.before
        return everything or any(one.covers(part) for one in context.clearings if one not in applied.parts)

    def is_dealt_with(self) -> Callable[[str], bool]:
        """Tell by its key (a part's, a blank, a name) each counter that a clearing which is acted on now deals with."""
        if self.is_just_cleared(Part(kind=PartKind.NODE)):
            return lambda _: True
        known = [part for part in self._context.parts if self.is_just_cleared(part)]
        cleared = tuple(f"{part.key()} " for part in known)
        return lambda key: key.startswith(cleared)

    def _clear(self) -> None:
        is_cleared = newly_cleared(self.before.applied, self._context)
        self._slots = {
            key: slot
            for key, slot in self._slots.items()
            if slot.finding is None or not is_cleared(slot.finding)
        }

    def _take(self, word: Word) -> None:
        key = _slot(word.reason.name, word.part)
        held = self._slots.get(key)
        if held is None:
            if word.said is Said.GOOD or not self._make_room():
                return
            held = Slot(reason=word.reason.name, part=word.part, at_ms=self.clock_ms)
        # Time counts from one look to the next, and only where both told: what was not named meanwhile proves nothing.
        told_before = held.at_ms >= self._heard_ms
        passed_ms = min(max(0, self.clock_ms - held.at_ms), MOST_BETWEEN_MS) if told_before else 0
        if word.said is Said.UNREADABLE:
            self._slots[key] = msgspec.structs.replace(held, tries=held.tries + 1, why=word.detail)
            return
        held = msgspec.structs.replace(held, at_ms=self.clock_ms, tries=0, why="")
        rule = self._rules.get(word.reason.name, Rule())
        after = (
            self._bad(held, word, rule, passed_ms)
            if word.said is Said.BAD
            else self._good(held, rule, passed_ms)
        )
        if after is None:
            self._slots.pop(key, None)
        else:
            self._slots[key] = after

    def _bad(self, held: Slot, word: Word, rule: Rule, passed_ms: int) -> Slot:
        now = self._context.now
        began = held.since or now
        lasted = passed_ms if held.said is Said.BAD and held.since is not None else 0
        slot = msgspec.structs.replace(
            held, part=word.part, said=Said.BAD, since=began, bad_ms=held.bad_ms + lasted, good_ms=0
        )
        if held.finding is not None:
            return msgspec.structs.replace(slot, finding=_seen_again(held.finding, word, now))
        if slot.bad_ms < rule.raise_after_s * 1000:
            return slot
        finding = msgspec.structs.replace(
            word.reason.found_on(
                word.part, self.before.boot_id, first_seen=min(began, now), last_seen=now, detail=word.detail
            ),
            evidence=word.evidence,
        )
        raised = (*self._lately(slot), self.clock_ms)[-2 * MOST_DOUBLINGS :]
        return msgspec.structs.replace(slot, finding=finding, raised=raised)

    def _good(self, held: Slot, rule: Rule, passed_ms: int) -> Slot | None:
        if rule.until_reboot and held.finding is not None:
            return held
        good_ms = held.good_ms + passed_ms if held.said is Said.GOOD else 0
        doublings = min(max(0, len(self._lately(held)) - 1), MOST_DOUBLINGS)
        over = good_ms >= rule.clear_after_s * 1000 * 2**doublings
        if not over:
            return msgspec.structs.replace(held, said=Said.GOOD, good_ms=good_ms)
        lately = self._lately(held)
        if not lately:
            return None
        # Kept without a finding, so that it is known to come and go.
        return Slot(reason=held.reason, part=held.part, at_ms=self.clock_ms, raised=lately, good_ms=good_ms)

    def _lately(self, slot: Slot) -> tuple[int, ...]:
        return tuple(at_ms for at_ms in slot.raised if self.clock_ms - at_ms < FLAP_WINDOW_MS)

    def _make_room(self) -> bool:
        """Let go of what matters least; where all that is kept matters, the new one finds no place and is counted."""
        if len(self._slots) < MAX_SLOTS:
            return True
        mildest = min(self._slots, key=lambda key: _weight(self._slots[key]))
        self._omitted += 1
        if self._slots[mildest].finding is not None:
            return False
        del self._slots[mildest]
        return True

    def _why_not_well(self, reason: Reason) -> tuple[Unreadable | None, str]:
        """Say why nobody can say that all is well, and whether that is only not yet known."""
        if self._failed_tries >= TRIES_BEFORE_UNKNOWN:
            return _unreadable(reason, self._failure), ""
        if self._was_heard and self.clock_ms - self._heard_ms > SILENT_MS:
            return _unreadable(reason, self._failure or "nothing was heard for five minutes"), ""
        if not self._was_heard:
            why = self._failure or "nothing was read so far"
            return _unreadable(reason, why), why
        if self._omitted > self.before.omitted:
            return _unreadable(reason, f"more than {MAX_SLOTS} troubles at once"), ""
        unread = [slot for slot in self._slots.values() if slot.tries]
        for slot in sorted(unread, key=lambda slot: (-slot.tries, slot.part, slot.reason)):
            why = f"{slot.part.shown()}: {slot.why}"
            return _unreadable(reason, why), "" if slot.tries >= TRIES_BEFORE_UNKNOWN else why
        for _, slot in sorted(self._slots.items()):
            is_fault = self._reasons[slot.reason].severity is Severity.FAULT
            if is_fault and slot.finding is None and slot.since is not None:
                why = f"{slot.part.shown()}: {slot.reason} is suspected"
                return _unreadable(reason, why), why
        if self._failed_tries:
            return _unreadable(reason, self._failure), self._failure
        return None, ""


def _seen_again(finding: Finding, word: Word, now: datetime) -> Finding:
    """Renew the words at once and the date every ten minutes, since each change costs a write of NodeHealth."""
    if now - finding.last_seen < CONFIRMED_EVERY and finding.detail == word.detail:
        return msgspec.structs.replace(finding, part=word.part)
    return msgspec.structs.replace(
        finding,
        part=word.part,
        detail=word.detail,
        evidence=word.evidence,
        last_seen=max(now, finding.last_seen),
        count=finding.count + 1,
    )


def _slot(reason: str, part: Part) -> str:
    return f"{reason} {part.key()}"


def _unreadable(reason: Reason, message: str) -> Unreadable:
    return Unreadable(reason=reason.name, message=message[:1024])


def _weight(slot: Slot) -> tuple[bool, int, int]:
    rank = EFFECT_RANK[slot.finding.effect] if slot.finding is not None else 0
    return (slot.finding is not None, rank, slot.at_ms)
