"""Children of NVML by the hundred: a process that has imported what the child imports, and forks one whenever asked.

What is forked is the child's own program, in a process of its own, which loads the driver's library after that; only the
start of Python and the imports are not paid again each time.
"""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from agent.nvml_process import ChildProcess
from agent.nvml_wire import CallBegins, EventsSaid, FailedSaid, Garbage, Lines, Order, RoundSaid, read

_PROGRAM = """
import os, runpy, socket, sys
import agent.host.nvml_events, agent.host.nvml_library, agent.host.nvml_round, json, select, signal, threading
asks = socket.socket(fileno=int(sys.argv[1]))
home = os.getpid()
while asked := socket.recv_fds(asks, 4096, 2):
    words, pipes = asked[0].decode(), asked[1]
    if not words:
        break
    if words.startswith("reap "):
        asks.send(str(os.waitstatus_to_exitcode(os.waitpid(int(words[5:]), 0)[1])).encode())
        continue
    pid = os.fork()
    if pid == 0:
        os.setsid()
        asks.close()
        for place, pipe in enumerate(pipes):
            os.dup2(pipe, place)
            os.close(pipe)
        sys.argv[1:] = [words, str(home)]
        runpy.run_module("agent.host.nvml_child", run_name="__main__", alter_sys=True)
    for pipe in pipes:
        os.close(pipe)
    asks.send(str(pid).encode())
"""


class Forked:
    """What `subprocess.Popen` is for a process that was started from here."""

    def __init__(self, nursery: socket.socket, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self._nursery = nursery
        self._exits = os.pidfd_open(pid)
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None and select.select([self._exits], [], [], 0)[0]:
            self._nursery.send(f"reap {self.pid}".encode())
            self._status = int(self._nursery.recv(64))
            os.close(self._exits)
        return self._status

    def wait(self, timeout: float) -> int:
        if self._status is None and not select.select([self._exits], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked child", timeout)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._exits, number)


class WatchedChild(ChildProcess):
    """A child which tells the test too which call each of its threads is in: by thread, the call and its GPU's index."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        self._lines = Lines()
        self.at_end = False
        self.inside: dict[str, tuple[str, int]] = {}
        self.owes_answer = False
        self.pauses = False
        """Whether its other thread may pause: it said why no events come."""

    def send(self, order: Order) -> None:
        super().send(order)
        self.owes_answer = True

    def read(self) -> list[bytes]:
        lines = super().read()
        for line in lines:
            try:
                said = read(line)
            except Garbage:
                continue
            if isinstance(said, CallBegins):
                self.inside[said.t] = (said.call, said.index)
            elif isinstance(said, RoundSaid | FailedSaid):
                self.inside.pop("round", None)
                self.owes_answer = False
            elif isinstance(said, EventsSaid):
                self.pauses = said.error is not None
        return lines


class Nursery:
    def __init__(self, asks: socket.socket) -> None:
        self._asks = asks

    def start(self, root: Path) -> WatchedChild:
        """Start a child on a driver root."""
        (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
        socket.send_fds(self._asks, [str(root).encode()], [theirs_in, theirs_out])
        os.close(theirs_in)
        os.close(theirs_out)
        stdin, stdout = os.fdopen(ours_in, "wb", 0), os.fdopen(ours_out, "rb", 0)
        return WatchedChild(Forked(self._asks, int(self._asks.recv(64)), stdin, stdout))


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Have one; when it ends, so does every child that is left."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno())]
    home = Path(__file__).parents[3]
    process = subprocess.Popen(command, cwd=home, pass_fds=[theirs.fileno()])
    theirs.close()
    try:
        yield Nursery(ours)
    finally:
        ours.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
