"""The kernel log as a device: whole records a read, overruns, records too large, and the real one where it can be read."""

import errno
import os
from datetime import timedelta
from pathlib import Path

import pytest

from agent.host.kmsg import BATCH, MAX_TOO_LARGE, Cursor, KernelLog
from agent.host.kmsg_source import Identity, Source
from checks.observation import KERNEL_LOG, KernelRecord, Observation, RecordsLost, SourceFailed, SourceRead
from tests.fakes import FakeClock

PATH = Path("/dev/kmsg")
BOOT = "boot-1"


class Ring:
    """A device that gives prepared records and errors, then is silent. Its own opener."""

    one_record_a_read = True
    can_wait = True
    identity_now: Identity = (1, 1)

    def __init__(self, *script: bytes | Exception) -> None:
        self.script = list(script)
        self.closed = 0

    @property
    def identity(self) -> Identity:
        return self.identity_now

    def read(self) -> bytes:
        if not self.script:
            return b""
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self, seconds: float) -> bool:
        return bool(self.script) and seconds > 0

    def close(self) -> None:
        self.closed += 1


class RingOpener:
    """Opens one ring, or refuses."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.refuse: OSError | None = None
        self.opened = 0

    def identity(self, path: Path) -> Identity:
        assert path == PATH
        return self.ring.identity_now

    def open(self, path: Path) -> Source:
        assert path == PATH
        if self.refuse:
            raise self.refuse
        self.opened += 1
        return self.ring


def _record(sequence: int, *, usec: int = 1, text: str = "x") -> bytes:
    return f"4,{sequence},{usec},-;{text}\n SUBSYSTEM=pci\n".encode()


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _log(ring: Ring, clock: FakeClock | None = None, cursor: Cursor | None = None) -> KernelLog:
    return KernelLog(PATH, BOOT, cursor, clock=(clock or FakeClock()).clock, opener=RingOpener(ring))


def _sequences(observations: list[Observation]) -> list[int]:
    return [o.sequence for o in observations if isinstance(o, KernelRecord)]


def _lost(observations: list[Observation]) -> list[int]:
    return [o.count for o in observations if isinstance(o, RecordsLost)]


@pytest.mark.parametrize(
    ("script", "sequences", "lost"),
    [
        pytest.param([_record(1), _record(2)], [1, 2], [], id="one record a read"),
        pytest.param(
            [_record(1), _error(errno.EPIPE), _record(90)],
            [1, 90],
            [88],
            id="an overrun is the gap behind it",
        ),
        pytest.param(
            [_error(errno.EPIPE), _record(90)], [90], [], id="an overrun before the first record is not ours"
        ),
        pytest.param(
            [_record(1), _error(errno.EINVAL), _record(3)],
            [1, 3],
            [1],
            id="a record too large for the buffer",
        ),
        pytest.param(
            [_record(1), _error(errno.EINVAL), _error(errno.EPIPE), _record(9)],
            [1, 9],
            [1, 6],
            id="both of them",
        ),
        pytest.param([b"\xff\n", _record(2)], [2], [1], id="a record that is none"),
    ],
)
def test_the_device_is_drained(script: list[bytes | OSError], sequences: list[int], lost: list[int]) -> None:
    """Errors of the device are part of its protocol; what they cost is counted, and reading goes on."""
    found = _log(Ring(*script)).poll(0)
    assert (_sequences(found), _lost(found)) == (sequences, lost)
    assert isinstance(found[-1], SourceRead)


def test_records_overwritten_while_the_agent_was_away_are_counted() -> None:
    """The cursor shows how many records came and went unseen."""
    found = _log(Ring(_record(10)), cursor=Cursor(boot_id=BOOT, sequence=4)).poll(0)
    assert (_sequences(found), _lost(found)) == ([10], [5])


def test_records_before_the_cursor_are_passed_over() -> None:
    """The device starts at its oldest record; nothing comes twice."""
    ring = Ring(*(_record(number) for number in range(20)))
    assert _sequences(_log(ring, cursor=Cursor(boot_id=BOOT, sequence=17)).poll(0)) == [18, 19]


def test_records_that_were_waiting_carry_their_own_time() -> None:
    """A line from before the agent's start keeps its time; one that comes later is timed by its arrival."""
    clock = FakeClock(monotonic=1000)
    ring = Ring(_record(1, usec=400_000_000), _record(2, usec=5_000_000_000))
    log = _log(ring, clock)
    waiting = log.poll(0)
    ring.script.append(_record(3, usec=999_000_000))
    live = log.poll(0)
    times = [o.happened_at for o in (*waiting, *live) if isinstance(o, KernelRecord)]
    assert times == [clock.now() - timedelta(seconds=600), clock.now(), None]


def test_a_storm_is_handed_over_in_bounded_batches() -> None:
    """The first records of a storm do not wait for the last."""
    log = _log(Ring(*(_record(number) for number in range(BATCH + 10))))
    assert [len(_sequences(log.poll(0))) for _ in range(2)] == [BATCH, 10]


class TestFailures:
    """What cannot be read is said, with growing pauses, and read again as soon as it can be."""

    def test_a_source_that_may_not_be_opened_names_what_it_needs(self) -> None:
        opener = RingOpener(Ring())
        opener.refuse = _error(errno.EPERM)
        (failure,) = KernelLog(PATH, BOOT, clock=FakeClock().clock, opener=opener).poll(0)
        assert isinstance(failure, SourceFailed)
        assert failure.error.startswith(
            "/dev/kmsg: Operation not permitted (the container must be privileged"
        )

    def test_pauses_grow_and_end_with_success(self) -> None:
        clock = FakeClock()
        opener = RingOpener(Ring(_record(1)))
        opener.refuse = _error(errno.EACCES)
        log = KernelLog(PATH, BOOT, clock=clock.clock, opener=opener)
        at: list[int] = []
        for tenth in range(1200):
            at += [tenth // 10 for o in log.poll(0) if isinstance(o, SourceFailed)]
            clock.advance(0.1)
        assert at == [0, 0, 1, 3, 7, 15, 31, 61, 91]
        opener.refuse = None
        clock.advance(30)
        found = log.poll(0)
        assert (_sequences(found), isinstance(found[-1], SourceRead)) == ([1], True)

    def test_a_read_error_closes_and_is_told(self) -> None:
        ring = Ring(_record(1), _error(errno.EIO))
        found = _log(ring).poll(0)
        assert [type(o).__name__ for o in found] == ["KernelRecord", "SourceFailed"]
        assert ring.closed == 1

    def test_tries_are_counted_until_a_read_succeeds(self) -> None:
        clock = FakeClock()
        ring = Ring(_error(errno.EIO), _error(errno.EIO), _record(1), _error(errno.EIO), _record(2))
        log = _log(ring, clock)
        tries: list[int] = []
        for _ in range(4):
            tries += [o.tries for o in log.poll(0) if isinstance(o, SourceFailed)]
            clock.advance(60)
        assert tries == [1, 2, 3]
        assert [type(o).__name__ for o in (*log.poll(0), *log.poll(0))] == ["SourceRead"]

    def test_a_device_of_nothing_but_large_records_is_no_kernel_log(self) -> None:
        found = _log(Ring(*(_error(errno.EINVAL) for _ in range(MAX_TOO_LARGE + 5)))).poll(0)
        assert _lost(found) == [MAX_TOO_LARGE - 1]
        assert isinstance(found[-1], SourceFailed)

    def test_a_device_that_never_ends_is_let_go_of(self) -> None:
        """/dev/zero and its like must not cost a core for ever: tried again, with growing pauses."""
        clock = FakeClock()
        ring = Ring(*(b"\x00" * 100 for _ in range(9_000)))
        log = _log(ring, clock)
        tries: list[int] = []
        for _ in range(100):
            tries += [o.tries for o in log.poll(0) if isinstance(o, SourceFailed)]
            clock.advance(0.1)
        assert tries == [1, 2, 3, 4, 5]
        assert ring.closed >= 4

    def test_a_device_without_a_record_is_no_kernel_log(self) -> None:
        """A kernel that runs has always written something: reading nothing at all is not reading."""
        clock = FakeClock()
        ring = Ring()
        log = _log(ring, clock)
        found: list[Observation] = []
        for _ in range(20):
            found += log.poll(0)
            clock.advance(0.1)
        assert [(type(o).__name__, o.tries) for o in found if isinstance(o, SourceFailed)] == [
            ("SourceFailed", 1),
            ("SourceFailed", 2),
            ("SourceFailed", 3),
        ]
        assert len(found) == 3
        ring.script = [_record(0)]
        assert isinstance(log.poll(0)[-1], SourceRead)

    def test_what_is_read_already_shows_that_it_is_one(self) -> None:
        """After a restart the whole ring is old, and that is as good as new."""
        found = _log(Ring(_record(3)), cursor=Cursor(boot_id=BOOT, sequence=3)).poll(0)
        assert [type(o).__name__ for o in found] == ["SourceRead"]

    def test_a_read_that_broke_off_is_made_good(self) -> None:
        """A defect in the middle of a read: the next whole read says that the log is read, also when it found nothing."""
        ring = Ring(_record(0))
        log = _log(ring)
        log.poll(0)
        ring.script = [ValueError("a defect")]
        with pytest.raises(ValueError, match="a defect"):
            log.poll(0)
        assert [isinstance(o, SourceRead) for o in log.poll(0)] == [True]

    def test_closing_twice_is_safe(self) -> None:
        log = _log(Ring())
        log.poll(0)
        log.close()
        log.close()


def test_foreign_records_alone_do_not_end_the_wait() -> None:
    """A flood from userspace is passed over without waking anybody."""
    clock = FakeClock()
    ring = Ring(*(b"12,%d,1,-;user\n" % number for number in range(50)))
    log = _log(ring, clock)
    first = log.poll(0)
    ring.script += [b"12,%d,1,-;user\n" % number for number in range(50, 90)]
    assert (_sequences(first), log.poll(0.5), log.cursor.sequence) == ([], [], 89)


def test_the_real_device_can_be_read() -> None:
    """Every record of this machine's own kernel parses, where it may be read at all."""
    try:
        os.close(os.open(PATH, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"{PATH} cannot be read here: {error.strerror}")
    log = KernelLog(PATH, BOOT, admit_foreign=True)
    found = log.poll(1)
    log.close()
    assert _sequences(found) == sorted(_sequences(found))
    assert [o for o in found if isinstance(o, SourceFailed)] == []
    assert log.cursor.boot_id == BOOT
    assert {o.source for o in found if isinstance(o, SourceRead)} <= {KERNEL_LOG}
