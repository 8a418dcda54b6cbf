"""The findings of one boot while records are read into them: latched, counted, bounded.

A finding is the same reason on the same part. It is opened by its first record; a new boot or a clearing ends it, and for
some of them the driver's own word that the GPU has recovered. Evidence keeps the first line and the newest ones. Notes say
what came with it, in the order that it came. The number of findings is bounded: the mildest go, and how many went is
counted. Built for storms: the thousandth line of a kind costs no more than the second.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from checks.condition import worst_first
from checks.finding import EFFECT_RANK, Action, Finding, Part, PartKind, Reason, Severity, Urgency
from checks.xid_line import TEXT_LIMIT, printable

EVIDENCE_LINES = 5
DETAIL_LIMIT = 160
NOTED_LIMIT = 320
"""Of a detail with its notes; a note that has no room left is not added, so that a storm changes no message."""
HOLDER_LIMIT = 317
MAX_FINDINGS = 128  # 16 GPUs with 8 different troubles each; findings on the node itself come on top
MAX_COUNT = 2**53  # JSON numbers are exact up to here

Key = tuple[str, str]


class Ledger:
    """Mutable only inside one judgement; what it gives back is frozen."""

    def __init__(self, standing: Iterable[Finding], boot_id: str, omitted: int) -> None:
        self._entries: dict[Key, _Entry] = {finding.key(): _Entry(finding) for finding in standing}
        self._on: dict[str, set[Key]] = {}
        for key in self._entries:
            self._on.setdefault(key[1], set()).add(key)
        self._boot_id = boot_id
        self._mildest: Key | None = (
            None  # once full, remembered: a storm of new parts must not search for it each time
        )
        self.omitted = omitted

    def see(
        self,
        reason: Reason,
        part: Part,
        when: datetime,
        text: str,
        *,
        detail: str = "",
        count: int = 1,
        drill: bool = False,
        holder: str = "",
    ) -> None:
        """Count one more sight of a reason on a part, opening the finding if it is the first.

        `holder` is the pod that has the part now: that of the first sight is kept.
        """
        key = (reason.name, part.key())
        entry = self._entries.get(key)
        if entry is not None and entry.finding.drill and not drill:
            entry = None  # the real fault takes the drill's place: nothing that a drill said may count as its evidence
        if entry is None:
            first = reason.found_on(
                part,
                self._boot_id,
                first_seen=when,
                last_seen=when,
                count=0,
                drill=drill,
                detail=printable(detail, DETAIL_LIMIT),
            )
            if holder:
                first = msgspec.structs.replace(first, holder=printable(holder, HOLDER_LIMIT))
            entry = _Entry(first)
            if not self._make_room(key, first):
                return
            self._entries[key] = entry
            self._on.setdefault(key[1], set()).add(key)
        elif drill and not entry.finding.drill:
            return  # a drill adds nothing to a real fault
        entry.add(when, text[:TEXT_LIMIT], count)

    def holds(self, reason: Reason, part: Part, *, drill: bool) -> bool:
        """Say whether this fault stands already, told by a source at least as real."""
        entry = self._entries.get((reason.name, part.key()))
        return entry is not None and (drill or not entry.finding.drill)

    def reword(self, reason: Reason, part: Part, old: str, new: str, *, drill: bool) -> bool:
        """Put other words in the place of a standing finding's `old` ones; False where it does not say these."""
        entry = self._entries.get((reason.name, part.key()))
        if entry is None or entry.detail != old or entry.finding.drill != drill:
            return False
        entry.detail = printable(new, DETAIL_LIMIT)
        return True

    def amend(self, reason: Reason, part: Part, word: str) -> None:
        """Add a word to the detail of a standing finding, if it is new and there is room for it."""
        entry = self._entries.get((reason.name, part.key()))
        if (
            entry is not None
            and word not in entry.detail.split(", ")
            and len(entry.detail) < DETAIL_LIMIT - 16
        ):
            entry.detail += f", {word}"

    def note(self, reason: Reason, part: Part, words: str) -> None:
        """Add to a standing finding what came with it, once, and only where there is room for all of it."""
        entry = self._entries.get((reason.name, part.key()))
        if entry is not None:
            entry.note(words)

    def seen(self, reason: Reason, part: Part) -> tuple[datetime, datetime] | None:
        """Give the first and the last sight of a real finding; None where it does not stand."""
        entry = self._entries.get((reason.name, part.key()))
        return None if entry is None or entry.finding.drill else (entry.first, entry.last)

    def find(self, reason: Reason, part: Part) -> Finding | None:
        """Give a real finding as it stands."""
        entry = self._entries.get((reason.name, part.key()))
        return None if entry is None or entry.finding.drill else entry.now()

    def on(self, part: Part) -> list[Finding]:
        """Give the real findings on a part as they stand, by reason."""
        keys = sorted(self._on.get(part.key(), ()))
        return [self._entries[key].now() for key in keys if not self._entries[key].finding.drill]

    def ask(self, finding: Finding, action: Action, urgency: Urgency, words: str) -> None:
        """Let what the driver wants take the place of a standing finding's action, and say so."""
        entry = self._entries.get(finding.key())
        if entry is not None:
            entry.action, entry.urgency = action, urgency
            entry.note(words)

    def end(self, finding: Finding) -> None:
        """Take a finding away; nothing where it does not stand."""
        key = finding.key()
        if self._entries.pop(key, None) is not None:
            self._forget(key)

    def absorb(self, reason: Reason, part: Part, other: Finding, words: str) -> None:
        """Make one incident of two: `other` goes, with its sights and lines, into a standing finding of `reason`."""
        entry = self._entries.get((reason.name, part.key()))
        if entry is None or entry.finding.key() == other.key():
            return
        lines = (*other.evidence[:1], *other.evidence[1:][-1:])
        for line in lines:
            entry.add(other.first_seen, line, 0)
        entry.add(other.last_seen, "", other.count)
        entry.note(words)
        self.end(other)

    def findings(self, identify: Callable[[Part], Part]) -> tuple[Finding, ...]:
        """Give all findings, worst first, with their parts as well known as they are now."""
        return tuple(worst_first(entry.closed(identify) for entry in self._entries.values()))

    def _make_room(self, key: Key, new: Finding) -> bool:
        if key in self._entries or new.part.kind is PartKind.NODE or len(self._entries) < MAX_FINDINGS:
            return True
        self.omitted += 1
        if self._mildest is None:
            parts = [k for k, entry in self._entries.items() if entry.finding.part.kind is not PartKind.NODE]
            self._mildest = min(parts, key=lambda known: _weight(self._entries[known].finding))
        if _weight(new) <= _weight(self._entries[self._mildest].finding):
            return False
        gone = self._mildest
        del self._entries[gone]
        self._forget(gone)
        return True

    def _forget(self, key: Key) -> None:
        self._mildest = None
        self._on[key[1]].discard(key)
        if not self._on[key[1]]:
            del self._on[key[1]]  # a storm of new parts leaves no trace of those that went


class _Entry:
    """One finding under way."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.detail = finding.detail
        self.action = finding.action
        self.urgency = finding.urgency
        self.first = finding.first_seen
        self.last = finding.last_seen
        self._count = finding.count
        self._evidence = list(finding.evidence)

    def add(self, when: datetime, text: str, count: int) -> None:
        self._count = min(self._count + count, MAX_COUNT)
        self.first = min(self.first, when)
        self.last = max(self.last, when)
        if text:
            if len(self._evidence) >= EVIDENCE_LINES:
                del self._evidence[1]
            self._evidence.append(text)

    def note(self, words: str) -> None:
        if words in self.detail.split("; "):
            return
        noted = f"{self.detail}; {words}" if self.detail else words
        if len(noted) <= NOTED_LIMIT:
            self.detail = noted

    def now(self) -> Finding:
        """Give the finding as it stands, with its lines as they came."""
        return msgspec.structs.replace(
            self.finding,
            action=self.action,
            urgency=self.urgency,
            first_seen=self.first,
            last_seen=self.last,
            count=self._count,
            evidence=tuple(self._evidence),
            detail=self.detail,
        )

    def closed(self, identify: Callable[[Part], Part]) -> Finding:
        """Give the finding for good: its part as well known as it is now, its lines safe to show."""
        now = self.now()
        return msgspec.structs.replace(
            now, part=identify(now.part), evidence=tuple(printable(line) for line in now.evidence)
        )


def _weight(finding: Finding) -> tuple[bool, bool, int]:
    """Order findings by what may be given up first: warnings before faults, drills before the real, small effects first."""
    return (finding.severity is Severity.FAULT, not finding.drill, EFFECT_RANK[finding.effect])
