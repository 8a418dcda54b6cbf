"""The NVML child as a process: started, written to, read from, signalled, never waited for without an end."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import agent
from agent.nvml_wire import Lines, Order, write

# The process ends with its output; what lasts longer than this is no ending.
REAP_S = 0.5
PROGRAM = ("-m", "agent.host.nvml_child")
_READ = 65536
# Our own packages are found from here, wherever the agent was started.
_HOME = Path(agent.__file__).resolve().parent.parent


class ChildProcess:
    """One child. `fd` is readable when it wrote something or is gone. Raises OSError where it cannot be started."""

    def __init__(self, driver_root: Path, program: Sequence[str] = PROGRAM) -> None:
        command = [sys.executable, *program, str(driver_root.absolute()), str(os.getpid())]
        # A session of its own: a signal to the agent's process group is not one to a call of NVML.
        self._process = subprocess.Popen(
            command, cwd=_HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._stdin = cast(IO[bytes], self._process.stdin)
        self._stdout = cast(IO[bytes], self._process.stdout)
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        self._lines = Lines()
        self.at_end = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def fd(self) -> int:
        return self._stdout.fileno()

    def send(self, order: Order) -> None:
        """Write one order. Raises OSError where the child is gone, or takes nothing any more."""
        data = write(order)
        if os.write(self._stdin.fileno(), data) != len(data):
            raise BlockingIOError("its input is full")

    def read(self) -> list[bytes]:
        """Give the lines that came; sets `at_end` once nothing more will. Raises Garbage."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return []
        if not data:
            self.at_end = True
            return []
        return self._lines.take(data)

    def terminate(self) -> None:
        """Close its input and send SIGTERM: between two calls either one ends it."""
        self._stdin.close()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def how_ended(self, within_s: float = 0.0) -> str | None:
        """Say how it ended, None while it is there."""
        try:
            status = self._process.wait(within_s) if within_s else self._process.poll()
        except subprocess.TimeoutExpired:
            return None
        if status is None:
            return None
        return f"exit status {status}" if status >= 0 else _signal_name(-status)

    def close(self) -> None:
        """Give back what is held for it; the process itself stays as it is."""
        self._stdin.close()
        self._stdout.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
