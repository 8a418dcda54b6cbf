"""The simulated kernel's log: real pipes, read as a program would."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.kernel_log import INFO, RING, KernelLog, escaped


@contextmanager
def reader(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_all(descriptor: int) -> bytes:
    """Read what is there now; nothing is waited for."""
    data = b""
    while select.select([descriptor], [], [], 0)[0]:
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        data += piece
    return data


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KernelLog]:
    times = iter(n / 1000 for n in range(1_000_000))
    made = KernelLog(tmp_path / "kmsg", monotonic=lambda: next(times))
    yield made
    made.close()


def test_a_record_has_the_kernels_form(log: KernelLog) -> None:
    """Priority, sequence, microseconds since boot, flags, text: one line each."""
    log.write("NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    log.write("usb 1-1: new device", level=INFO)
    log.write("from a program", level=6, facility=1)

    with reader(log.path) as pipe:
        lines = read_all(pipe).decode().splitlines()

    assert lines == [
        "4,0,1000,-;NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "6,1,2000,-;usb 1-1: new device",
        "14,2,3000,-;from a program",
    ]
    assert log.lines_written == 3


@pytest.mark.parametrize(
    ("text", "written"),
    [
        pytest.param("plain ~ text", b"plain ~ text", id="printable text stays as it is"),
        pytest.param("two\nlines", b"two\\x0alines", id="a line break cannot make a second record"),
        pytest.param("C:\\x", b"C:\\x5cx", id="a backslash is escaped so that escapes are unambiguous"),
        pytest.param("é", b"\\xc3\\xa9", id="bytes beyond ASCII are escaped"),
    ],
)
def test_text_is_escaped_as_the_kernel_does(text: str, written: bytes) -> None:
    """The reader's unescaping is exercised by what a kernel would really send."""
    assert escaped(text) == written


def test_writing_never_waits_for_a_reader(log: KernelLog) -> None:
    """Without a reader the pipe fills, further records are lost and counted, and no write blocks."""
    for _ in range(2000):
        log.write("x" * 100)

    assert log.lines_lost > 0
    assert log.lines_written + log.lines_lost == 2000


def test_a_loss_shows_as_a_gap_in_the_sequence(log: KernelLog) -> None:
    """After a full pipe was read, the next record's number says how many were lost."""
    for _ in range(2000):
        log.write("x" * 100)
    with reader(log.path) as pipe:
        before = read_all(pipe).splitlines()
        after = log.write("here again")
        last = read_all(pipe).splitlines()

    assert len(before) == 2000 - log.lines_lost
    assert after == 2000
    assert last[0].split(b",")[1] == b"2000"


def test_a_record_longer_than_the_pipe_takes_is_never_torn_by_another(log: KernelLog) -> None:
    """A part of an oversized record is followed by its rest, not by the next record."""
    log.write_raw(b"4,7,7,-;" + b"y" * 100_000 + b"\n")
    seen = b""
    with reader(log.path) as pipe:
        for _ in range(10):
            seen += read_all(pipe)
            log.write("next")
        seen += read_all(pipe)

    lines = seen.splitlines()
    assert lines[0] == b"4,7,7,-;" + b"y" * 100_000
    assert all(line.endswith(b"-;next") for line in lines[1:])
    assert len(lines) > 1


def test_a_boot_ends_the_old_pipe_and_counts_from_zero(log: KernelLog) -> None:
    """A reader of the old boot sees the end; the new pipe holds nothing of it."""
    log.write("old")
    with reader(log.path) as old:
        read_all(old)
        log.boot()
        end = os.read(old, 100)
    log.write("new")
    with reader(log.path) as new:
        lines = read_all(new).splitlines()

    assert end == b""
    assert [line.split(b",")[1] for line in lines] == [b"0"]
    assert lines[0].endswith(b";new")


def test_a_program_that_starts_again_sees_all_records_of_the_boot(log: KernelLog) -> None:
    """As /dev/kmsg does, the log begins at the oldest record that is kept, whoever read it before."""
    log.write("first")
    with reader(log.path) as pipe:
        read_all(pipe)
    log.rewind()
    log.write("second")
    with reader(log.path) as pipe:
        lines = read_all(pipe).splitlines()

    assert [line.partition(b";")[2] for line in lines] == [b"first", b"second"]


def test_a_second_reader_takes_nothing_from_the_first(log: KernelLog, tmp_path: Path) -> None:
    """A view holds what is kept and what comes, beside the main pipe."""
    log.write("before")
    log.open_view(tmp_path / "view")
    log.write("after")
    with reader(log.path) as pipe, reader(tmp_path / "view") as view:
        from_main, from_view = read_all(pipe), read_all(view)
    log.close_view(tmp_path / "view")

    assert from_main == from_view
    assert from_main.count(b"\n") == 2
    assert not (tmp_path / "view").exists()


def test_what_is_kept_is_bounded_and_fits_a_pipe(log: KernelLog) -> None:
    """The oldest records go first, and a rewind loses none of those kept."""
    for _ in range(3000):
        log.write("z" * 60)
    lost = log.lines_lost
    log.rewind()
    with reader(log.path) as pipe:
        kept = read_all(pipe)

    assert RING - 200 < len(kept) <= RING
    assert kept.splitlines()[-1].split(b",")[1] == b"2999"
    assert log.lines_lost == lost


def test_a_closed_log_says_so(log: KernelLog) -> None:
    """Writing after the end is a defect of the caller's and is named, not hidden."""
    log.close()

    with pytest.raises(ValueError, match="this kernel log was closed"):
        log.write("late")
