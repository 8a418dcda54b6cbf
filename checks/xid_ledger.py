"""The findings of one boot while records are read into them: latched, counted, bounded.

A finding is the same reason on the same part. It is opened by its first record, and only a new boot or a clearing ends
it. Evidence keeps the first line and the newest ones. The number of findings is bounded: the mildest go, and how many
went is counted. Built for storms: the thousandth line of a kind costs no more than the second.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from checks.condition import worst_first
from checks.finding import EFFECT_RANK, Finding, Part, PartKind, Reason, Severity
from checks.xid_line import TEXT_LIMIT, printable

EVIDENCE_LINES = 5
DETAIL_LIMIT = 160
MAX_FINDINGS = 128  # 16 GPUs with 8 different troubles each; findings on the node itself come on top
MAX_COUNT = 2**53  # JSON numbers are exact up to here

Key = tuple[str, str]


class Ledger:
    """Mutable only inside one judgement; what it gives back is frozen."""

    def __init__(self, standing: Iterable[Finding], boot_id: str, omitted: int) -> None:
        self._entries: dict[Key, _Entry] = {finding.key(): _Entry(finding) for finding in standing}
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
    ) -> None:
        """Count one more sight of a reason on a part, opening the finding if it is the first."""
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
            entry = _Entry(first)
            if not self._make_room(key, first):
                return
            self._entries[key] = entry
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
        del self._entries[self._mildest]
        self._mildest = None
        return True


class _Entry:
    """One finding under way."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.detail = finding.detail
        self._first = finding.first_seen
        self._last = finding.last_seen
        self._count = finding.count
        self._evidence = list(finding.evidence)

    def add(self, when: datetime, text: str, count: int) -> None:
        self._count = min(self._count + count, MAX_COUNT)
        self._first = min(self._first, when)
        self._last = max(self._last, when)
        if text:
            if len(self._evidence) >= EVIDENCE_LINES:
                del self._evidence[1]
            self._evidence.append(text)

    def closed(self, identify: Callable[[Part], Part]) -> Finding:
        old = self.finding
        return Finding(
            reason=old.reason,
            severity=old.severity,
            effect=old.effect,
            urgency=old.urgency,
            action=old.action,
            part=identify(old.part),
            boot_id=old.boot_id,
            first_seen=self._first,
            last_seen=self._last,
            count=self._count,
            evidence=tuple(printable(line) for line in self._evidence),
            drill=old.drill,
            detail=self.detail,
        )


def _weight(finding: Finding) -> tuple[bool, bool, int]:
    """Order findings by what may be given up first: warnings before faults, drills before the real, small effects first."""
    return (finding.severity is Severity.FAULT, not finding.drill, EFFECT_RANK[finding.effect])
