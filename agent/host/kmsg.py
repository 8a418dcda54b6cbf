"""Reads the kernel log as it is written: from /dev/kmsg, or from a named pipe that carries the same records.

Identity of a record is (boot id, sequence): after a restart the cursor says where to go on, so nothing is lost and nothing
comes twice. What is known to have existed and was not read is reported with its number, and a source that cannot be read
is reported with its cause, again and again with growing pauses. So is one that can be read and holds no records: silence
of such a thing proves nothing. Nothing that a source holds can make the reader raise.

Facility 0 is the kernel's: userspace cannot write with it. Everything else is dropped here, unless `admit_foreign` lets it
in as a drill. What a record means is not the reader's business.
"""

import errno
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from agent.host.kmsg_record import RECORD_LIMIT, Lines, Record, parse_record
from agent.host.kmsg_source import READ_SIZE, HostOpener, Identity, Opener, Source
from checks.observation import KERNEL_LOG, KernelRecord, Observation, RecordsLost, SourceFailed, SourceRead
from kube.clock import SYSTEM, Clock

BATCH = 2000  # records handed over at once at most: a storm must not keep the first of them waiting
READS = 10_000  # reads of one call at most, for a storm of records that are not handed over
LOOK_EVERY_S = 1.0  # how soon a replaced pipe is noticed
PARTIAL_AFTER_S = 1.0  # a record without its end is taken as it is: its writer is gone
PAUSE_S = 0.02  # between looks at a source that cannot be waited for
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
MAX_TOO_LARGE = 64  # such records in a row: then it is no kernel log
STRANGE = 3  # damaged records in a row: each is a failed try to read a kernel log
MOST_STRANGE = 1000  # in a row: then it is let go of, and what comes is no longer counted as lost
LONG_AWAY_S = 30.0  # without a look: others may doubt by then that anybody reads (reader.STALE_S)
MAX_AGE_S = 10 * 365 * 86_400.0


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """The last record that was handed over, or passed over; -1 before the first."""

    boot_id: str
    sequence: int = -1


class KernelLog:
    """One reader of one log, for one thread; `cursor` may be read from any.

    `after_sequence` (0: none) passes over everything up to that record, for drills in a log that others use too.
    """

    def __init__(
        self,
        path: Path,
        boot_id: str,
        cursor: Cursor | None = None,
        *,
        admit_foreign: bool = False,
        after_sequence: int = 0,
        clock: Clock = SYSTEM,
        opener: Opener | None = None,
    ) -> None:
        self._path = path
        self._boot_id = boot_id
        self._admit_foreign = admit_foreign
        self._after_sequence = after_sequence
        self._clock = clock
        self._opener = opener or HostOpener()
        self._last = cursor.sequence if cursor is not None and cursor.boot_id == boot_id else -1
        self._source: Source | None = None
        self._lines = Lines()
        self._partial_since: float | None = None
        self._first_drain = True  # what the first drain finds was there before we came
        self._unplaced = 0  # damaged records since the last good one: part of the next gap, not lost twice
        self._strange = 0  # things in a row that are no record, since the last one that is
        self._strange_why = ""
        self._recognised = False  # something in it was a record
        self._owes_word = True  # the last look broke off, so the next whole one says that the log is read
        self._looked_through_at = float("-inf")
        self._looked_at = float("-inf")
        self._tries = 0
        self._retry_at = float("-inf")
        self._failed_identity: Identity | None = None

    @property
    def cursor(self) -> Cursor:
        """Where to go on after a restart: to be kept no earlier than what was handed over has been dealt with."""
        return Cursor(boot_id=self._boot_id, sequence=self._last)

    def poll(self, timeout_s: float) -> list[Observation]:
        """Give what is new, at once if there is something, else as soon as something comes, else [] after `timeout_s`.

        A drain that reaches the present end of the log closes with a SourceRead, the first one also when it found nothing.
        """
        out: list[Observation] = []
        left = timeout_s
        woken = False
        while True:
            self._open_or_look(out)
            did_read = self._source is not None and self._drain(self._source, out)
            if out or left <= 0:
                return out
            if woken and not did_read:  # ready, yet empty: no such thing may turn this loop into a busy one
                self._clock.sleep(PAUSE_S)
                left -= PAUSE_S
            woken, waited = self._wait(min(left, LOOK_EVERY_S))
            left -= waited

    def close(self) -> None:
        """Close the file; the next poll opens it again. Safe to call twice."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _wait(self, seconds: float) -> tuple[bool, float]:
        """Wait for something to read; give whether something woke us and the seconds that count as waited."""
        if self._source is None or not self._source.can_wait:
            pause = seconds if self._source is None else min(seconds, PAUSE_S)
            self._clock.sleep(pause)
            return False, pause
        before = self._clock.monotonic()
        if not self._source.wait(seconds):
            return False, seconds
        return True, self._clock.monotonic() - before

    def _open_or_look(self, out: list[Observation]) -> None:
        """Open what is not open; look, now and then, whether what is open still stands at the path."""
        now = self._clock.monotonic()
        if self._source is not None and now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            identity = self._opener.identity(self._path)
        except OSError as error:
            if self._source is not None:
                self._drain(self._source, out)
                self._flush(out)
            if self._source is not None or now >= self._retry_at:
                self._fail(error, None, out)
            return
        if self._source is not None:
            if self._partial_since is not None and now - self._partial_since >= PARTIAL_AFTER_S:
                self._flush(out)
            if identity == self._source.identity:
                return
            self._drain(self._source, out)  # what the old pipe still holds comes before the new one's
            self._flush(out)
            self.close()
        elif now < self._retry_at and identity == self._failed_identity:
            return
        self._open(identity, out)

    def _open(self, identity: Identity, out: list[Observation]) -> None:
        try:
            self._source = self._opener.open(self._path)
        except OSError as error:
            self._fail(error, identity, out)
            return
        self._lines = Lines()
        self._partial_since = None
        self._first_drain = True
        self._recognised = False

    def _fail(self, error: OSError, identity: Identity | None, out: list[Observation]) -> None:
        self.close()
        self._failed_identity = identity
        cause = str(error.strerror or error)
        if error.errno in {errno.EPERM, errno.EACCES}:
            cause += (
                " (the container must be privileged, or have CAP_SYSLOG where kernel.dmesg_restrict is 1)"
            )
        self._say_failed(cause, out)

    def _say_failed(self, cause: str, out: list[Observation]) -> None:
        self._tries += 1
        self._retry_at = self._clock.monotonic() + min(
            FIRST_PAUSE_S * 2 ** min(self._tries - 1, 10), LONGEST_PAUSE_S
        )
        out.append(
            SourceFailed(
                source=KERNEL_LOG,
                error=f"{self._path}: {cause}",
                tries=self._tries,
                seen_at=self._clock.now(),
            )
        )

    def _why_no_kernel_log(self, source: Source) -> str | None:
        """Say what stands where records should, or None. A pipe or a saved log may be empty, a kernel's ring is not."""
        if source.one_record_a_read and not self._recognised and not self._strange:
            return "it holds not one record, so it is not a kernel log"
        # A saved log is whole: there one such thing is enough.
        enough = 1 if not source.can_wait and not self._recognised else STRANGE
        return self._strange_why if self._strange >= enough else None

    def _drain(self, source: Source, out: list[Observation]) -> bool:
        """Read until nothing is left, or enough was read for one batch; say whether anything was."""
        began = len(out)
        too_large = 0
        owes_word, self._owes_word = self._owes_word or self._was_away_long(), True
        for reads in range(READS):
            if len(out) - began >= BATCH:
                return True
            try:
                data = source.read()
            except OSError as error:
                if source.one_record_a_read and error.errno == errno.EPIPE:
                    continue  # the ring ran over; the next record's sequence tells by how much
                too_large += 1
                if source.one_record_a_read and error.errno == errno.EINVAL and too_large < MAX_TOO_LARGE:
                    self._lose(1, f"a record larger than {READ_SIZE} bytes", out)
                    self._unplaced += 1
                    continue
                self._fail(error, source.identity, out)
                return True
            if not data:
                self._looked_through(source, out, tell=owes_word or len(out) > began)
                return reads > 0
            self._take(data, source, out)
            if self._strange >= MOST_STRANGE:
                self._fail(OSError(self._strange_why), source.identity, out)
                return True
        return True

    def _looked_through(self, source: Source, out: list[Observation], *, tell: bool) -> None:
        """Note that the present end was reached, and say so where it is news; what holds no records was not read."""
        self._first_drain = self._owes_word = False
        self._looked_through_at = self._clock.monotonic()
        if why := self._why_no_kernel_log(source):
            if self._looked_through_at >= self._retry_at:
                self._say_failed(why, out)
            return
        if tell or self._tries:
            out.append(SourceRead(source=KERNEL_LOG, seen_at=self._clock.now()))
        self._tries = 0

    def _was_away_long(self) -> bool:
        return self._clock.monotonic() - self._looked_through_at > LONG_AWAY_S

    def _take(self, data: bytes, source: Source, out: list[Observation]) -> None:
        if source.one_record_a_read:
            self._take_record(data, out, waiting=self._first_drain)
            return
        for line in self._lines.feed(data):
            self._take_record(line, out, waiting=False)
        if self._lines.cut:
            self._lose(self._lines.cut, f"only the first {RECORD_LIMIT} bytes of a record were kept", out)
            self._lines.cut = 0
        self._partial_since = self._clock.monotonic() if self._lines.has_partial() else None

    def _flush(self, out: list[Observation]) -> None:
        for line in self._lines.flush():
            self._take_record(line, out, waiting=False)
        self._partial_since = None

    def _take_record(self, raw: bytes, out: list[Observation], *, waiting: bool) -> None:
        record = parse_record(raw)
        if isinstance(record, str):
            self._strange_why = self._strange_why if self._strange else record
            self._strange += 1
            if self._strange <= MOST_STRANGE:
                self._lose(1, record, out)
                self._unplaced += 1
            return
        self._strange, self._recognised = 0, True
        if record.sequence <= self._last:
            return
        missing = record.sequence - self._last - 1 - self._unplaced
        if self._last >= 0 and missing > 0:
            self._lose(missing, "the log ran over before it was read", out)
        self._unplaced = 0
        self._last = record.sequence
        foreign = record.facility != 0
        passed_over = 0 < self._after_sequence >= record.sequence
        if (foreign and not self._admit_foreign) or passed_over:
            return
        now = self._clock.now()
        out.append(
            KernelRecord(
                boot_id=self._boot_id,
                sequence=record.sequence,
                facility=record.facility,
                level=record.level,
                monotonic_us=record.monotonic_us,
                seen_at=now,
                text=record.text,
                drill=foreign,
                happened_at=self._when(record, now) if waiting else None,
            )
        )

    def _when(self, record: Record, now: datetime) -> datetime:
        """Tell the time of a record that was there before us: its clock is, but for suspends, the monotonic one."""
        age_s = self._clock.monotonic() - record.monotonic_us / 1_000_000
        return now - timedelta(seconds=age_s) if 0 < age_s < MAX_AGE_S else now

    def _lose(self, count: int, why: str, out: list[Observation]) -> None:
        previous = out[-1] if out else None
        if isinstance(previous, RecordsLost) and previous.why == why:
            out.pop()
            count += previous.count
        out.append(RecordsLost(source=KERNEL_LOG, count=count, seen_at=self._clock.now(), why=why))
