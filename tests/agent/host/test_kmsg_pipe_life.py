"""The kernel log over a named pipe through restarts, replacements and what is no kernel log."""

import os
from pathlib import Path

import pytest

from agent.host.kmsg import Cursor, KernelLog
from checks.observation import KERNEL_LOG, KernelRecord, Observation, SourceFailed, SourceRead
from tests.agent.host.pipe import BOOT, Writer, failed, lost, sequences
from tests.fakes import FakeClock


class TestRestart:
    """The cursor says where to go on."""

    def test_nothing_comes_twice_and_what_is_missing_is_known(self, path: Path) -> None:
        writer = Writer(path)
        writer.records(0, 1, 2)
        first = KernelLog(path, BOOT, clock=FakeClock().clock)
        first.poll(0)
        first.close()
        writer.records(2, 3, 6)
        found = KernelLog(path, BOOT, first.cursor, clock=FakeClock().clock).poll(0)
        assert (sequences(found), lost(found)) == ([3, 6], 2)
        writer.close()

    def test_a_new_boot_counts_anew(self, path: Path) -> None:
        writer = Writer(path)
        writer.records(0, 1)
        log = KernelLog(path, "boot-2", Cursor(boot_id=BOOT, sequence=500), clock=FakeClock().clock)
        assert sequences(log.poll(0)) == [0, 1]
        writer.close()

    def test_what_was_there_before_the_first_start_is_notlost(self, path: Path) -> None:
        writer = Writer(path)
        writer.records(700)
        found = KernelLog(path, BOOT, clock=FakeClock().clock).poll(0)
        assert (sequences(found), lost(found)) == ([700], 0)
        writer.close()


class TestReplaced:
    """A pipe may vanish and come back."""

    def test_a_new_pipe_at_the_path_is_read(self, path: Path) -> None:
        clock = FakeClock()
        log = KernelLog(path, BOOT, clock=clock.clock)
        old = Writer(path)
        old.records(1)
        found = log.poll(0)
        old.records(2)
        fresh = path.with_name("fresh")
        os.mkfifo(fresh)
        new = Writer(fresh)
        new.records(3)
        fresh.rename(path)
        clock.advance(1.1)
        found += log.poll(0)
        assert (sequences(found), failed(found), lost(found)) == ([1, 2, 3], [], 0)
        old.close()
        new.close()

    def test_a_deleted_pipe_is_a_failure_until_it_is_back(self, path: Path) -> None:
        clock = FakeClock()
        log = KernelLog(path, BOOT, clock=clock.clock)
        log.poll(0)
        path.unlink()
        tries: list[int] = []
        for _ in range(60):
            clock.advance(0.1)
            tries += failed(log.poll(0))
        assert tries == [1, 2, 3, 4]  # at 1.0, 1.5, 2.5 and 4.5 s: each pause is twice the one before
        os.mkfifo(path)
        clock.advance(0.01)
        assert log.poll(0) == [SourceRead(source=KERNEL_LOG, seen_at=clock.now())]

    def test_a_path_that_never_was_names_itself(self, tmp_path: Path) -> None:
        clock = FakeClock()
        (failure,) = KernelLog(tmp_path / "nothing", BOOT, clock=clock.clock).poll(0)
        assert isinstance(failure, SourceFailed)
        assert (failure.source, failure.tries) == (KERNEL_LOG, 1)
        assert failure.error == f"{tmp_path}/nothing: No such file or directory"

    def test_a_directory_is_no_kernel_log(self, tmp_path: Path) -> None:
        (failure,) = KernelLog(tmp_path, BOOT, clock=FakeClock().clock).poll(0)
        assert isinstance(failure, SourceFailed)

    def test_a_device_that_has_an_end_is_no_kernel_log(self) -> None:
        (failure,) = KernelLog(Path("/dev/null"), BOOT, clock=FakeClock().clock).poll(0)
        assert isinstance(failure, SourceFailed)
        assert "not a kernel log" in failure.error


class TestNoKernelLog:
    """What can be opened and read and yet holds no records is a source that cannot be read: silence proves nothing."""

    @pytest.mark.parametrize(
        "held",
        [
            pytest.param(b"Jan  1 00:00:00 host kernel: NVRM: Xid (PCI:0000:3b:00): 79\n", id="a syslog"),
            pytest.param(b"\x00" * 20_000, id="nothing but zeros"),
            pytest.param(b"noise\n" * 5_000, id="noise without end"),
        ],
    )
    def test_a_file_of_something_else_is_a_failure_that_names_it(self, tmp_path: Path, held: bytes) -> None:
        clock = FakeClock()
        saved = tmp_path / "saved"
        saved.write_bytes(held)
        log = KernelLog(saved, BOOT, clock=clock.clock)
        found: list[Observation] = []
        for _ in range(100):
            found += log.poll(0)
            clock.advance(0.1)
        assert failed(found) == [1, 2, 3, 4, 5]
        assert [o for o in found if isinstance(o, SourceRead | KernelRecord)] == []
        assert lost(found) <= 1_000  # counted once, not with each try
        (error,) = {o.error for o in found if isinstance(o, SourceFailed)}
        assert error.startswith(f"{saved}: not a kernel-log record: ")

    def test_a_pipe_of_noise_fails_until_a_record_comes(self, path: Path) -> None:
        clock = FakeClock()
        log = KernelLog(path, BOOT, clock=clock.clock)
        writer = Writer(path)
        writer.records(1)
        found = log.poll(0)
        for _ in range(40):
            writer.put(b"noise\n")
            found += log.poll(0)
            clock.advance(0.1)
        assert failed(found) == [1, 2, 3, 4]
        assert not isinstance(found[-1], SourceRead)
        writer.records(90)
        back = log.poll(0)
        assert (sequences(back), isinstance(back[-1], SourceRead)) == ([90], True)
        assert lost(found) + lost(back) == 88
        writer.close()

    def test_one_damaged_record_is_only_a_loss(self, path: Path) -> None:
        log = KernelLog(path, BOOT, clock=FakeClock().clock)
        writer = Writer(path)
        writer.put(b"noise\n")
        found = log.poll(0)
        assert (lost(found), failed(found), isinstance(found[-1], SourceRead)) == (1, [], True)
        writer.close()
