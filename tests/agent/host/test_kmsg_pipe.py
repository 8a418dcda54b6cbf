"""The kernel log over a real named pipe: writers that come and go, damage, storms."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.host.kmsg import Cursor, KernelLog
from agent.host.kmsg_record import RECORD_LIMIT
from checks.observation import KERNEL_LOG, KernelRecord, Observation, SourceRead
from kube.clock import SYSTEM
from tests.agent.host.pipe import BOOT, Writer, failed, lost, sequences
from tests.fakes import FakeClock


def test_a_record_is_handed_over_with_its_identity(path: Path) -> None:
    """Boot id and sequence, facility and level, its own clock and ours."""
    clock = FakeClock()
    log = KernelLog(path, BOOT, clock=clock.clock)
    log.poll(0)
    writer = Writer(path)
    writer.put(b"4,17,90210,-;NVRM: Xid (PCI:0000:3b:00): 79\n")
    assert log.poll(0) == [
        KernelRecord(
            boot_id=BOOT, sequence=17, facility=0, level=4, monotonic_us=90210, seen_at=clock.now(),
            text="NVRM: Xid (PCI:0000:3b:00): 79",
        ),
        SourceRead(source=KERNEL_LOG, seen_at=clock.now()),
    ]  # fmt: skip
    writer.close()


def test_an_empty_pipe_was_read_too(path: Path) -> None:
    """The first look says that it could look; the next ones say nothing."""
    clock = FakeClock()
    log = KernelLog(path, BOOT, clock=clock.clock)
    assert [log.poll(0), log.poll(0)] == [[SourceRead(source=KERNEL_LOG, seen_at=clock.now())], []]


def test_a_writer_that_goes_away_is_no_event(path: Path) -> None:
    """The next writer is heard as the first one was."""
    log = KernelLog(path, BOOT, clock=FakeClock().clock)
    found: list[Observation] = []
    for sequence in range(3):
        writer = Writer(path)
        writer.records(sequence)
        found += log.poll(0)
        writer.close()
        found += log.poll(0)
    assert (sequences(found), failed(found)) == ([0, 1, 2], [])


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A pipe that others may read and not write, in a folder that others may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    pipe = folder / "kmsg"
    os.mkfifo(pipe)
    pipe.chmod(0o444)
    yield pipe
    pipe.unlink()
    folder.rmdir()


@contextmanager
def _as_nobody() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can write to a pipe that its reader may not write to"
)
def test_a_reader_that_may_not_write_hears_every_writer(unwritable: Path) -> None:
    """Without the right to hold the pipe open itself, the reader survives the end of each writer."""
    log = KernelLog(unwritable, BOOT, clock=FakeClock().clock)
    with _as_nobody():
        found = log.poll(0)
    for sequence in range(3):
        with unwritable.open("wb") as writer:
            writer.write(b"4,%d,1,-;line\n" % sequence)
        found += log.poll(0)
        found += log.poll(0.01)
    log.close()
    assert (sequences(found), failed(found), lost(found)) == ([0, 1, 2], [], 0)


def test_records_split_over_reads_come_whole(path: Path) -> None:
    """A record that arrives in pieces is handed over once, when its end is there."""
    log = KernelLog(path, BOOT, clock=FakeClock().clock)
    writer = Writer(path)
    writer.put(b"4,1,1,-;first half")
    assert sequences(log.poll(0)) == []
    writer.put(b" second half\n4,2")
    (record, _) = log.poll(0)
    assert isinstance(record, KernelRecord)
    assert record.text == "first half second half"
    writer.put(b",1,-;next\n")
    assert sequences(log.poll(0)) == [2]
    writer.close()


def test_a_record_without_its_end_is_taken_after_a_while(path: Path) -> None:
    """A writer that died, or that writes no line feed, must not keep an XID back for ever."""
    clock = FakeClock()
    log = KernelLog(path, BOOT, clock=clock.clock)
    writer = Writer(path)
    writer.put(b"4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79")
    assert sequences(log.poll(0)) == []
    clock.advance(1.5)
    assert sequences(log.poll(0)) == [1]
    writer.close()


@pytest.mark.parametrize(
    ("data", "missed", "kept"),
    [
        pytest.param(b"garbage\n4,2,1,-;good\n", 1, [2], id="a line that is no record"),
        pytest.param(
            b"4,1,1,-;good\nga\xff\xferbage\n4,3,1,-;good\n", 1, [1, 3], id="noise in the place of a record"
        ),
        pytest.param(b"4,1\n4,2,1,-;good\n", 1, [2], id="a record cut off in its header"),
        pytest.param(b"4,1,1,-;" + b"x" * 20_000 + b"\n4,2,1,-;good\n", 1, [1, 2], id="an oversized record"),
        pytest.param(b"4,1,1,-;caf\xe9\n4,2,1,-;good\n", 0, [1, 2], id="bytes that are not UTF-8"),
        pytest.param(b"\n\n KEY=value\n4,2,1,-;good\n", 0, [2], id="empty lines and a line of KEY=value"),
        pytest.param(b"4,1,1,-;a\n4,5,1,-;b\n", 3, [1, 5], id="a gap in the sequence"),
        pytest.param(
            b"4,1,1,-;a\nbad\nbad\n4,5,1,-;b\n", 3, [1, 5], id="damage is part of the gap, not lost twice"
        ),
    ],
)
def test_damage_is_counted_and_the_rest_goes_on(
    path: Path, data: bytes, missed: int, kept: list[int]
) -> None:
    """Nothing that a pipe holds makes the reader raise or stop."""
    log = KernelLog(path, BOOT, clock=FakeClock().clock)
    writer = Writer(path)
    writer.put(data)
    found = log.poll(0)
    assert (lost(found), sequences(found), failed(found)) == (missed, kept, [])
    assert all(len(o.text) <= RECORD_LIMIT for o in found if isinstance(o, KernelRecord))
    writer.close()


@pytest.mark.parametrize(
    ("admit_foreign", "after_sequence", "expected"),
    [
        pytest.param(False, 0, [(0, False), (1, False), (3, False)], id="only the kernel counts"),
        pytest.param(
            True, 0, [(0, False), (1, False), (2, True), (3, False)], id="others are admitted as drills"
        ),
        pytest.param(True, 2, [(3, False)], id="nothing up to a given record"),
        pytest.param(False, 1, [(3, False)], id="the very first record neither"),
        pytest.param(False, 3, [], id="nothing at all up to the last"),
    ],
)
def test_who_counts(
    path: Path, admit_foreign: bool, after_sequence: int, expected: list[tuple[int, bool]]
) -> None:
    """Facility 0 is the kernel's own; what else is admitted is marked."""
    log = KernelLog(
        path, BOOT, admit_foreign=admit_foreign, after_sequence=after_sequence, clock=FakeClock().clock
    )
    writer = Writer(path)
    writer.put(b"4,0,1,-;kernel\n4,1,1,-;kernel\n12,2,1,-;user\n6,3,1,-;kernel\n")
    found = log.poll(0)
    assert [(o.sequence, o.drill) for o in found if isinstance(o, KernelRecord)] == expected
    assert (log.cursor, lost(found)) == (Cursor(boot_id=BOOT, sequence=3), 0)
    writer.close()


@pytest.mark.parametrize(
    ("away_s", "says"),
    [
        pytest.param(1.0, False, id="between two looks nothing is said"),
        pytest.param(59.0, True, id="after a long time away it is"),
    ],
)
def test_who_was_away_for_long_says_that_the_log_is_read(path: Path, away_s: float, says: bool) -> None:
    """A process that was stopped, or a read that hung, has made others doubt the source; silence would leave them so."""
    clock = FakeClock()
    log = KernelLog(path, BOOT, clock=clock.clock)
    log.poll(0)
    clock.advance(away_s)
    assert [isinstance(o, SourceRead) for o in log.poll(0)] == ([True] if says else [])
    assert log.poll(0) == []


def test_a_saved_log_is_read_and_followed(tmp_path: Path) -> None:
    """A plain file serves as a source too: for replays, and to look at a machine after the fact."""
    saved = tmp_path / "saved"
    saved.write_bytes(b"4,1,1,-;a\n")
    log = KernelLog(saved, BOOT, clock=FakeClock().clock)
    found = log.poll(0)
    with saved.open("ab") as file:
        file.write(b"4,2,1,-;b\n")
    found += log.poll(0)
    assert sequences(found) == [1, 2]


def test_waiting_ends_after_the_time_given(path: Path) -> None:
    """With nothing to read, poll gives nothing and comes back."""
    log = KernelLog(path, BOOT, clock=FakeClock().clock)
    log.poll(0)
    assert log.poll(0.05) == []


def test_waiting_for_a_missing_source_is_not_busy(tmp_path: Path) -> None:
    """A source that cannot be opened is looked for a few times a second, and tried ever more seldom."""
    clock = FakeClock()
    log = KernelLog(tmp_path / "nothing", BOOT, clock=clock.clock)
    log.poll(0)
    assert failed(log.poll(10)) == [2]
    assert len(clock.slept) <= 4


def test_a_line_is_handed_over_within_milliseconds(path: Path) -> None:
    """A reader that waits is woken by the record itself."""
    log = KernelLog(path, BOOT)
    log.poll(0)
    writer = Writer(path)
    written_at: list[float] = []

    def write() -> None:
        written_at.append(SYSTEM.monotonic())
        writer.records(1)

    timer = threading.Timer(0.05, write)
    timer.start()
    found = log.poll(5)
    late_s = SYSTEM.monotonic() - written_at[0]
    timer.join()
    writer.close()
    assert sequences(found) == [1]
    assert late_s < 0.1  # below 1 ms on an idle machine


def test_a_storm_comes_in_batches_and_whole(path: Path) -> None:
    """What one read gives is handed over at once; nothing is lost between."""
    log = KernelLog(path, BOOT, clock=FakeClock().clock)
    writer = Writer(path)
    found: list[Observation] = []
    for start in range(0, 10_000, 2000):
        writer.records(*range(start, start + 2000))
        found += log.poll(0)
    assert (sequences(found), lost(found)) == (list(range(10_000)), 0)
    writer.close()
