"""The findings of a check that probes: what stands goes on standing under its first date until the check takes it away.

Beside `checks.xid_ledger`, which counts the lines of a log: a probe says the same thing every half minute, and that is no
news. `last_seen` therefore moves only every ten minutes; more would cost a write of NodeHealth for each round.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from checks.condition import worst_first
from checks.finding import Finding, Part, Reason

CONFIRMED_EVERY = timedelta(minutes=10)


class Standing:
    """Mutable only inside one judgement; what it gives back is frozen."""

    def __init__(self, findings: Iterable[Finding], boot_id: str, now: datetime) -> None:
        self._by_key = {finding.key(): finding for finding in findings}
        self._boot_id = boot_id
        self._now = now

    def see(
        self,
        reason: Reason,
        part: Part,
        detail: str,
        evidence: tuple[str, ...] = (),
        *,
        first_seen: datetime | None = None,
    ) -> None:
        """Let a finding stand, in these words. `first_seen` is when a new one began, now where it is not given."""
        held = self._by_key.get((reason.name, part.key()))
        if held is None:
            began = min(first_seen or self._now, self._now)
            held = reason.found_on(part, self._boot_id, first_seen=began, last_seen=self._now)
        again = self._now - held.last_seen >= CONFIRMED_EVERY
        self._by_key[held.key()] = msgspec.structs.replace(
            held, detail=detail, evidence=evidence, last_seen=self._now if again else held.last_seen
        )

    def get(self, reason: Reason, part: Part) -> Finding | None:
        """Give the finding of this reason on this part, None where it does not stand."""
        return self._by_key.get((reason.name, part.key()))

    def end(self, reason: Reason, part: Part) -> None:
        """Take a finding away; nothing where it does not stand."""
        self._by_key.pop((reason.name, part.key()), None)

    def of(self, reason: Reason) -> list[Finding]:
        """Give the findings of a reason."""
        return [finding for finding in self._by_key.values() if finding.reason == reason.name]

    def findings(self) -> tuple[Finding, ...]:
        """Give all of them, worst first."""
        return tuple(worst_first(self._by_key.values()))
