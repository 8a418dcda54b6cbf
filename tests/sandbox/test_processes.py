"""Programs are recorded before they run, end with their owner, and are ended by pid and start time only."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import processes
from sandbox.processes import Children, Process, start_time
from tests.fakes import wait_until


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    records = tmp_path / "children"
    records.mkdir()
    started = Children(records)
    yield started
    started.close()


def _start(children: Children, tmp_path: Path, *argv: str) -> Process:
    return children.start("it", argv, env={"PATH": os.environ["PATH"]}, log=tmp_path / "it.log", cwd=tmp_path)


def test_output_goes_to_the_log(children: Children, tmp_path: Path) -> None:
    """Both outputs of a program are appended to its log."""
    process = _start(children, tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3")

    assert process.wait(10) == 3
    assert processes.tail(process.log) == "out\nerr\n"


def test_a_program_that_does_not_exist_is_named(children: Children, tmp_path: Path) -> None:
    """A command that cannot be started ends with 127, as a shell's would, and says which."""
    process = _start(children, tmp_path, "/no/such/program")

    assert process.wait(10) == 127
    assert processes.tail(process.log) == "cannot start /no/such/program: No such file or directory\n"


def test_the_record_names_pid_and_start_time(children: Children, tmp_path: Path) -> None:
    """The program recorded itself, under the pid it still has."""
    process = _start(children, tmp_path, "sleep", "600")
    record = tmp_path / "children" / str(process.pid)

    wait_until(record.exists)
    assert f"{start_time(process.pid)} it\n" == record.read_text()


def test_records_of_ended_programs_are_dropped(children: Children, tmp_path: Path) -> None:
    """Records do not pile up over thousands of short programs."""
    _start(children, tmp_path, "true").wait(10)

    _start(children, tmp_path, "true").wait(10)
    children.running()

    assert list((tmp_path / "children").iterdir()) == []


def test_stop_lets_a_program_end_by_itself(children: Children, tmp_path: Path) -> None:
    """SIGTERM comes first, and its handler's exit status is what stop returns."""
    process = _start(
        children, tmp_path, "sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"
    )
    wait_until(lambda: "up" in processes.tail(process.log))

    assert process.stop(grace_s=10) == 7


def test_stop_kills_what_does_not_end(children: Children, tmp_path: Path) -> None:
    """A program deaf to SIGTERM is killed after the grace time."""
    process = _start(children, tmp_path, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    wait_until(lambda: "up" in processes.tail(process.log))

    assert process.stop(grace_s=0.2) == -signal.SIGKILL


def test_kill_takes_the_whole_session(children: Children, tmp_path: Path) -> None:
    """What a program started itself ends with it."""
    process = _start(children, tmp_path, "sh", "-c", "sleep 600 & echo $!; wait")
    wait_until(lambda: "\n" in processes.tail(process.log))
    grandchild = int(processes.tail(process.log))

    process.kill()

    wait_until(lambda: start_time(grandchild) is None)


def test_a_program_outlives_the_thread_that_asked_for_it(children: Children, tmp_path: Path) -> None:
    """The kernel ties a child to the thread that forked it; ours is one that lives as long as the sandbox."""
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(_start(children, tmp_path, "sleep", "600")))

    thread.start()
    thread.join()

    with pytest.raises(TimeoutError, match="still runs after"):
        started[0].wait(0.3)


def test_a_program_dies_with_its_owner(tmp_path: Path) -> None:
    """kill -9 of the owner ends its programs at once, without anybody cleaning up."""
    code = (
        "import os, sys, time; from pathlib import Path; from sandbox.processes import Children\n"
        "here = Path(sys.argv[1])\n"
        "it = Children(here).start('it', ['sleep', '600'], env=dict(os.environ), log=here / 'log', cwd=here)\n"
        "print(it.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        wait_until((tmp_path / str(pid)).exists)
        owner.kill()

    wait_until(lambda: start_time(pid) is None)


@pytest.mark.parametrize(
    ("wrong_by", "ended"),
    [
        pytest.param(0, True, id="the same process is ended"),
        pytest.param(1, False, id="a process of another start time is left alone"),
    ],
)
def test_end_asks_for_the_start_time(wrong_by: int, ended: bool) -> None:
    """A pid that was given to another process since is not a reason to end that one."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        started = start_time(sleeper.pid)
        assert started is not None

        assert ended == processes.end(sleeper.pid, started + wrong_by)

        assert (sleeper.poll() is not None) == ended
        sleeper.kill()


def test_a_gone_process_is_no_error() -> None:
    """Nothing to end is not a failure."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait(10)

    assert (start_time(gone.pid), processes.end(gone.pid, 1)) == (None, False)


def test_a_log_is_shown_from_its_end(tmp_path: Path) -> None:
    """A huge log costs no more than its last part."""
    (tmp_path / "log").write_text("a" * 1000 + "end")

    assert (processes.tail(tmp_path / "log", 4), processes.tail(tmp_path / "none")) == ("aend", "")


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        pytest.param(b"one\ntwo\n", [b"one", b"two"], id="all have their end"),
        pytest.param(b"one\ntw", [b"one"], id="the last one is half written"),
        pytest.param(b"on", [], id="the only one is half written"),
        pytest.param(b"", [], id="nothing is written yet"),
    ],
)
def test_a_line_without_its_end_is_left_out(written: bytes, lines: list[bytes]) -> None:
    """A program that runs may be in the middle of it."""
    assert processes.whole_lines(written) == lines
