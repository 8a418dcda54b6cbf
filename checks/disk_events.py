"""What the kernel wrote of disks within a window, one entry for each kind and device. Pure.

Only the kernel's own records count (facility 0), and none that was admitted as a drill: what any process may write proves
nothing of a disk.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from checks.check import Context
from checks.disk_line import disk_line
from checks.observation import KernelRecord

MOST = 32
TEXT = 256


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The newest line of one kind about one device. `at_ms` is by the fold's clock, `at` by the machine's."""

    reason: str
    device: str
    at_ms: int
    at: datetime
    text: str


class DiskEvents:
    """Mutable only inside one judgement."""

    def __init__(self, held: Iterable[Event], clock_ms: int, context: Context, window_ms: int) -> None:
        self._clock_ms = clock_ms
        self._context = context
        self._window_ms = window_ms
        cleared = context.cleared_before
        self._held = {
            (event.reason, event.device): event
            for event in held
            if clock_ms - event.at_ms < window_ms and (cleared is None or event.at > cleared)
        }

    def take(self, record: KernelRecord) -> None:
        """Take one record, whatever it is about."""
        if record.facility != 0 or record.drill or record.boot_id != self._context.boot_id:
            return
        found = disk_line(record.text)
        if found is None:
            return
        at = record.happened_at or record.seen_at
        cleared = self._context.cleared_before
        age_ms = max(0, (record.seen_at - at) // timedelta(milliseconds=1))
        if age_ms >= self._window_ms or (cleared is not None and at <= cleared):
            return
        text = "".join(c if c.isprintable() else " " for c in record.text[:TEXT])
        event = Event(
            reason=found.reason.name, device=found.device, at_ms=self._clock_ms - age_ms, at=at, text=text
        )
        self._held[event.reason, event.device] = event
        if len(self._held) > MOST:
            del self._held[min(self._held, key=lambda key: self._held[key].at_ms)]

    def kept(self) -> tuple[Event, ...]:
        """Give them in a fixed order."""
        return tuple(self._held[key] for key in sorted(self._held))
