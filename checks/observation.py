"""Raw facts, as read from one source at one instant, without opinion."""

from datetime import datetime

import msgspec

KERNEL_LOG = "kernel-log"
"""The `source` of everything that the kernel-log reader hands over; checks of the kernel log heed no other."""


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True, tag="kernel"):
    """One record of the kernel log (Documentation/ABI/testing/dev-kmsg).

    `boot_id` + `sequence` identify it for ever. `facility` is 0 for the kernel itself. `monotonic_us` is the record's
    own clock (microseconds since boot), `seen_at` when we read it. `drill` marks one admitted although it did not come
    from the kernel. `happened_at` is set only for a record that was already waiting when the log was opened: its time by
    the record's own clock, so that a fault from before a repair is not taken for a new one.
    """

    boot_id: str
    sequence: int
    facility: int
    level: int
    monotonic_us: int
    seen_at: datetime
    text: str
    drill: bool = False
    happened_at: datetime | None = None


class RecordsLost(msgspec.Struct, frozen=True, kw_only=True, tag="lost"):
    """Records that we know existed and never read: ring overrun (a gap in sequence) or a malformed record."""

    source: str
    count: int
    seen_at: datetime
    why: str


class SourceFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A source that should be readable and was not; `tries` counts failures in a row."""

    source: str
    error: str
    tries: int
    seen_at: datetime


class SourceRead(msgspec.Struct, frozen=True, kw_only=True, tag="read"):
    """A source was read to its present end without an error, whether or not it held anything."""

    source: str
    seen_at: datetime


Observation = KernelRecord | RecordsLost | SourceFailed | SourceRead
