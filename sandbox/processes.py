"""Starts, watches and ends the programs of a sandbox; finds again those that an earlier owner left behind.

A process is identified by pid and start time (clock ticks since boot), never by pid alone and never by name. Every program
leads a session of its own, so that Ctrl-C at the terminal reaches only us and we end the programs in order.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launch.py")
_TAIL_BYTES = 256 * 1024  # a log is shown from its end; more than this helps nobody


def start_time(pid: int) -> int | None:
    """Return when `pid` started, in clock ticks since boot; None where it is gone or only a zombie is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def carrying(variable: str, value: str) -> dict[int, int]:
    """Find the processes started with `variable=value` in their environment: pid to start time. Never this process."""
    wanted = f"{variable}={value}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):  # gone meanwhile, or another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                started = start_time(int(folder.name))
                if started is not None:
                    found[int(folder.name)] = started
    return found


def end(pid: int, started: int, *, wait_s: float = 10.0) -> bool:
    """Kill the process that is `pid` and began at `started`, and wait until it is gone; False where there is none."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The handle is held before the start time is compared: the pid cannot pass to another process in between.
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(wait_s * 1000)
    finally:
        os.close(handle)
    return True


def launched(argv: Sequence[str], *, name: str, records: Path | None = None) -> list[str]:
    """Return the command that runs `argv` so that it dies with the calling thread, recorded in `records` where given."""
    folder = "" if records is None else str(records)
    return [sys.executable, "-I", "-S", str(_LAUNCHER), folder, name, str(os.getpid()), *argv]


def tail(log: Path, limit: int = _TAIL_BYTES) -> str:
    """Return the last `limit` bytes of `log` as text; empty where it does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def whole_lines(written: bytes) -> list[bytes]:
    """Give the lines that have their end; the last one may be half written while its program runs."""
    return written[: written.rfind(b"\n") + 1].splitlines()


class Process:
    """One running program of a sandbox; its output goes to `log`."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.pid = popen.pid
        self.log = log
        self._popen = popen

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def poll(self) -> int | None:
        """Return the exit status, None while it runs; minus the signal's number where a signal ended it."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int:
        """Return the exit status; raises TimeoutError where it still runs after `timeout_s`."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.name} (pid {self.pid}) still runs after {timeout_s:g} s") from error

    def send_signal(self, signum: signal.Signals) -> None:
        """Send `signum` to the program itself (its children are not told)."""
        self._popen.send_signal(signum)

    def stop(self, grace_s: float = 5.0) -> int:
        """Ask the program to end (SIGTERM), kill its whole session after `grace_s`; return the exit status."""
        self._signal_group(signal.SIGTERM)
        with suppress(TimeoutError):
            self.wait(grace_s)
        return self.kill()

    def kill(self) -> int:
        """Kill the program and whatever it started in its session, as kill -9 does; return the exit status."""
        self._signal_group(signal.SIGKILL)
        return self.wait(30)

    def _signal_group(self, signum: signal.Signals) -> None:
        # An un-reaped leader keeps its group's number reserved; after reaping, the group may be another's.
        if self._popen.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)


class Children:
    """The programs of one sandbox: started through `launch.py`, recorded in `records`, ended together."""

    def __init__(self, records: Path) -> None:
        self._records = records
        self._running: dict[int, Process] = {}
        self._lock = threading.Lock()
        # The kernel kills a child when the *thread* that started it ends (prctl(2), PR_SET_PDEATHSIG), so all are
        # started by one thread that lives until `close`.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-starter")

    def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path
    ) -> Process:
        """Start `argv` with exactly `env`, both outputs appended to `log`."""
        return self._starter.submit(self._start, name, argv, env, log, cwd).result(timeout=60)

    def _start(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path) -> Process:
        self.running()  # forgets what has ended, so that records do not pile up
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            popen = subprocess.Popen(
                launched(argv, name=name, records=self._records),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Process(name, popen, log)
        with self._lock:
            self._running[popen.pid] = process
        return process

    def running(self) -> list[Process]:
        """Return the programs that still run, in the order they were started."""
        with self._lock:
            for pid in [pid for pid, process in self._running.items() if not process.alive]:
                del self._running[pid]
                (self._records / str(pid)).unlink(missing_ok=True)
            return list(self._running.values())

    def end(self, processes: Sequence[Process], grace_s: float = 5.0) -> None:
        """Ask all of `processes` to end (SIGTERM) and kill those that have not after `grace_s` altogether."""
        for process in processes:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        for process in processes:
            process.stop(grace_s=max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Kill what still runs, youngest first; nothing can be started afterwards."""
        for process in reversed(self.running()):
            process.kill()
        self._starter.shutdown(wait=True)
