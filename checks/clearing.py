"""Which findings a clearing ends: one of the whole node or of a single part, and each of them only once.

A clearing that was acted on never counts again, so that a fault seen after it stands even where this machine's clock lags
behind the one that cleared.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from checks.check import Clearing, Context
from checks.finding import Finding


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The clearings that were acted on: the newest of the whole node, and those of single parts."""

    before: datetime | None = None
    parts: tuple[Clearing, ...] = ()


def acted_on(applied: Applied, context: Context) -> Applied:
    """Give what is acted on once the clearings of `context` were."""
    return Applied(before=context.cleared_before or applied.before, parts=context.clearings or applied.parts)


def newly_cleared(applied: Applied, context: Context) -> Callable[[Finding], bool]:
    """Give what tells the findings that a clearing ends which was not acted on yet."""
    everything = None if context.cleared_before == applied.before else context.cleared_before
    parts = [one for one in context.clearings if one not in applied.parts]

    def is_cleared(finding: Finding) -> bool:
        if everything is not None and finding.last_seen <= everything:
            return True
        return any(one.covers(finding.part) and finding.last_seen <= one.before for one in parts)

    return is_cleared


def was_cleared(applied: Applied, finding: Finding) -> bool:
    """Tell a finding that a clearing ended which was acted on: an account of it that is read back is older than that."""
    if applied.before is not None and finding.last_seen <= applied.before:
        return True
    return any(one.covers(finding.part) and finding.last_seen <= one.before for one in applied.parts)


def read_back(
    held: Iterable[Finding], findings: Iterable[Finding], boot_id: str, applied: Applied
) -> tuple[Finding, ...]:
    """Give what stands once findings that were read back stand again beside `held`, which knows better of its own.

    Only those of this boot, and none that a clearing ended which was acted on.
    """
    standing = {finding.key(): finding for finding in held}
    for finding in findings:
        if finding.boot_id == boot_id and not was_cleared(applied, finding):
            standing.setdefault(finding.key(), finding)
    return tuple(standing.values())
