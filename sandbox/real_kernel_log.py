"""This machine's own kernel log, lent to one sandbox at a time: for the drill that wants a real record from a real device.

Whoever reads this machine's log sees what is written here, so it is refused where that could be taken for true: where an
NVIDIA driver or another kubelet runs. A user's record never has facility 0 (the kernel's): an agent counts it as a drill,
and only where it is told to (`kernel_log.admit_foreign`), from one sequence number on.
"""

import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.state import MARK

DEVICE = Path("/dev/kmsg")
_RECORD = 8192 + 1024  # the longest that one read gives (Documentation/ABI/testing/dev-kmsg)
_MOST_RECORDS = 100_000
_ARRIVES_WITHIN_S = 1.0
_TRIES = 5
_LOOK_S = 0.1


class KernelLogRefused(Exception):
    """No drill may be written into this machine's kernel log; the message says why."""


def why_not_here(*, device: Path = DEVICE, proc: Path = Path("/proc")) -> str | None:
    """Say why this machine's kernel log is not for drills, None where it is."""
    if (proc / "driver/nvidia").exists():
        return "an NVIDIA driver runs on this machine, and what watches it would believe a drill"
    if pid := _foreign_kubelet(proc):
        return (
            f"a kubelet that is no sandbox's runs on this machine (pid {pid}), and others may watch its log"
        )
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(device, flags | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            return f"{device}: {error.strerror}"
    return None


class RealKernelLog:
    """The one loan of it, waited for at most `wait_s`. Raises KernelLogRefused where it is not for drills, or stays lent."""

    def __init__(self, *, wait_s: float = 0.0) -> None:
        if why := why_not_here():
            raise KernelLogRefused(why)
        self._claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        deadline = time.monotonic() + wait_s
        while not self._claimed():
            if time.monotonic() >= deadline:
                self._claim.close()
                raise KernelLogRefused("another sandbox uses this machine's kernel log just now")
            time.sleep(_LOOK_S)

    def _claimed(self) -> bool:
        """Take the name that exists once, for as long as its socket is open (unix(7), abstract)."""
        try:
            self._claim.bind("\0nodemend-kernel-log")
        except OSError:
            return False
        return True

    def newest(self) -> int:
        """Give the sequence number of the newest record. Raises OSError."""
        log = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return max((_sequence(record) for record in _records(log)), default=0)
        finally:
            os.close(log)

    def write(self, text: str, level: int = 4) -> int:
        """Write one record, and return its sequence number once it is there. Raises TimeoutError, OSError.

        One descriptor is rate-limited, and a write that was dropped succeeds (kernel/printk/printk.c, devkmsg_write): so
        each write has a descriptor of its own, and what counts is what arrives.
        """
        log = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.lseek(log, 0, os.SEEK_END)
            for _ in range(_TRIES):
                DEVICE.write_bytes(f"<{level}>{text}\n".encode())
                if (sequence := _await(log, text)) is not None:
                    return sequence
        finally:
            os.close(log)
        raise TimeoutError(f"{DEVICE}: a record was written {_TRIES} times and never arrived: {text}")

    def close(self) -> None:
        """Give it back. What was written stays, as what everybody writes does. Safe to call twice."""
        self._claim.close()


def _await(log: int, text: str) -> int | None:
    deadline = time.monotonic() + _ARRIVES_WITHIN_S
    poll = select.poll()
    poll.register(log, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        poll.poll(left * 1000)
        for record in _records(log):
            if record.partition(b";")[2].partition(b"\n")[0] == text.encode():
                return _sequence(record)
    return None


def _records(log: int) -> Iterator[bytes]:
    """Give what is there, record by record; the ring may run over meanwhile."""
    for _ in range(_MOST_RECORDS):
        try:
            yield os.read(log, _RECORD)
        except BrokenPipeError:
            continue
        except BlockingIOError:
            return


def _sequence(record: bytes) -> int:
    return int(record.split(b",", 2)[1])


def _foreign_kubelet(proc: Path) -> int:
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):  # gone meanwhile
            if (folder / "comm").read_text().strip() != "kubelet":
                continue
            if f"{MARK}=".encode() not in (folder / "environ").read_bytes():
                return int(folder.name)
    return 0
