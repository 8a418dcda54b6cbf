"""What the kernel wrote of its hardware and of itself within a window: the newest line of each kind. Pure.

Only the kernel's own records count (facility 0), and none that was admitted as a drill.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from checks.check import Context
from checks.host_reasons import HARDWARE_ERROR, KERNEL_LOCKUP
from checks.observation import KernelRecord

TEXT = 256
# arch/x86/kernel/cpu/mce/core.c, drivers/acpi/apei/ghes.c; kernel/watchdog.c and watchdog_perf.c, kernel/rcu/tree_stall.h
_KINDS = (
    (HARDWARE_ERROR, re.compile(r"(?:mce: |\{[0-9]+\})?\[Hardware Error\]:")),
    (
        KERNEL_LOCKUP,
        re.compile(
            r"(?:watchdog: |NMI watchdog: )+(?:BUG: soft lockup|Watchdog detected hard LOCKUP|CPU[0-9]+: Watchdog detected)"
            r"|rcu: INFO: rcu_[a-z]+ (?:self-)?detected (?:expedited )?stall"
        ),
    ),
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """`at_ms` is by the fold's clock, `at` by the machine's."""

    at_ms: int
    at: datetime
    text: str


class HostLines:
    """Mutable only inside one judgement."""

    def __init__(self, held: Mapping[str, Line], clock_ms: int, context: Context, window_ms: int) -> None:
        self._clock_ms = clock_ms
        self._context = context
        self._window_ms = window_ms
        cleared = context.cleared_before
        self._held = {
            name: line
            for name, line in held.items()
            if clock_ms - line.at_ms < window_ms and (cleared is None or line.at > cleared)
        }

    def take(self, record: KernelRecord) -> None:
        """Take one record, whatever it is about."""
        if record.facility != 0 or record.drill or record.boot_id != self._context.boot_id:
            return
        reason = next((reason for reason, pattern in _KINDS if pattern.match(record.text)), None)
        if reason is None:
            return
        at, cleared = record.happened_at or record.seen_at, self._context.cleared_before
        age_ms = max(0, (record.seen_at - at) // timedelta(milliseconds=1))
        if age_ms < self._window_ms and (cleared is None or at > cleared):
            text = "".join(c if c.isprintable() else " " for c in record.text[:TEXT])
            self._held[reason.name] = Line(at_ms=self._clock_ms - age_ms, at=at, text=text)

    def kept(self) -> dict[str, Line]:
        """Give what was written within the window."""
        return self._held
