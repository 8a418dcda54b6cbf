"""The kernel's side of a simulated machine's log: raw records, as /dev/kmsg gives them, into named pipes.

Like the kernel, a writer never waits for a reader: we hold each pipe open for reading and writing, so it exists without an
agent and keeps what was not read yet; when it is full, records are lost and only the gap in the sequence shows it. A pipe
hands each record to one reader once, /dev/kmsg to each that opens it, from the oldest one kept: so `rewind` makes the pipe
anew with all that is kept (before an agent starts), `open_view` makes a pipe for one more reader, and `hand_over` leaves the
pipe to who opened it and puts a new one in its place.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

ERR, WARNING, INFO = 3, 4, 6  # levels of syslog(3); the NVIDIA driver reports XIDs at WARNING
# What is kept of a boot, in bytes: less than the 64 KiB a pipe takes by default (pipe(7)), so that all of it fits into one.
RING = 48 * 1024
_HANDED_KEPT = 16  # readers of one boot: an agent, its restarts, validations


class KernelLog:
    """Writes the records of one boot after the other. All methods may be called from any thread.

    `lines_written` counts records that are in the main pipe whole, `lines_lost` those for which there was no room.
    `on_write` is called after each record, for a reader that does not wait at the pipe itself.
    """

    def __init__(self, path: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.lines_written = 0
        self.lines_lost = 0
        self.on_write: Callable[[], None] | None = None
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._sequence = 0
        self._booted = monotonic()
        self._ring: deque[bytes] = deque()
        self._ring_bytes = 0
        self._main = _Pipe(path)
        self._views: list[_Pipe] = []
        self._handed: deque[_Pipe] = deque()

    def boot(self) -> None:
        """Begin a new boot: an empty log in a new pipe, numbered from 0. Readers of the old pipes see their end."""
        with self._lock:
            self._close_pipes()
            self._ring.clear()
            self._ring_bytes = 0
            self._sequence = 0
            self._booted = self._monotonic()
            self._main = _Pipe(self.path)

    def rewind(self) -> None:
        """Make the main pipe anew, holding all that is kept of this boot. A reader of the old one sees its end."""
        with self._lock:
            self._main.close()
            self._main = _Pipe(self.path)
            for record in self._ring:
                self._main.put(record)

    def hand_over(self) -> None:
        """Leave the main pipe to the reader that opened it; the next one finds a new pipe, holding all that is kept."""
        with self._lock:
            self._handed.append(self._main)
            if len(self._handed) > _HANDED_KEPT:
                self._handed.popleft().close()  # its reader, if there still is one, sees its end
            self._main = _Pipe(self.path)
            for record in self._ring:
                self._main.put(record)

    def open_view(self, path: Path) -> None:
        """Make a pipe at `path` for one more reader: all that is kept of this boot, then what comes, until `close_view`."""
        with self._lock:
            view = _Pipe(path)
            for record in self._ring:
                view.put(record)
            self._views.append(view)

    def close_view(self, path: Path) -> None:
        """Close and remove the pipe at `path`; nothing happens where a boot closed it already."""
        with self._lock:
            for view in [view for view in self._views if view.path == path]:
                self._views.remove(view)
                view.close()
            path.unlink(missing_ok=True)

    def write(self, text: str, *, level: int = WARNING, facility: int = 0) -> int:
        """Write one record and return its sequence number, whether or not there was room for it.

        What is not printable ASCII is escaped as \\xNN, as the kernel does (Documentation/ABI/testing/dev-kmsg).
        """
        with self._lock:
            sequence = self._sequence
            self._sequence += 1
            microseconds = int((self._monotonic() - self._booted) * 1_000_000)
            header = f"{facility * 8 + level},{sequence},{microseconds},-;"
            self._put(header.encode() + escaped(text) + b"\n")
        self._tell()
        return sequence

    def write_raw(self, record: bytes) -> None:
        """Write bytes as they are, for records that no kernel would write."""
        with self._lock:
            self._put(record)
        self._tell()

    def close(self) -> None:
        """Close the pipes; they stay in the file system. Safe to call twice."""
        with self._lock:
            self._close_pipes()

    def _put(self, record: bytes) -> None:
        if self._main.put(record):
            self.lines_written += 1
        else:
            self.lines_lost += 1
        for other in (*self._views, *self._handed):
            other.put(record)
        self._ring.append(record)
        self._ring_bytes += len(record)
        while self._ring_bytes > RING:
            self._ring_bytes -= len(self._ring.popleft())

    def _tell(self) -> None:
        if self.on_write is not None:
            self.on_write()

    def _close_pipes(self) -> None:
        for pipe in (self._main, *self._views, *self._handed):
            pipe.close()
        self._views.clear()
        self._handed.clear()


class _Pipe:
    """One named pipe that never makes a writer wait."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rest = b""  # of a record longer than the pipe took at once
        pending = path.with_name(f".{path.name}")
        pending.unlink(missing_ok=True)
        os.mkfifo(pending, 0o600)
        # Held for reading too, so that neither opening nor writing ever waits for a reader (fifo(7)).
        self._descriptor = os.open(pending, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        pending.rename(path)  # never a moment without a pipe at `path`

    def put(self, record: bytes) -> bool:
        """Put a record in, after the rest of the one before: a reader never sees one torn by another. False = no room."""
        if self._descriptor < 0:
            raise ValueError(f"{self.path}: this kernel log was closed")
        if self._rest:
            self._rest = self._rest[self._push(self._rest) :]
        if self._rest:
            return False
        done = self._push(record)
        if done:
            self._rest = record[done:]
        return done > 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _push(self, data: bytes) -> int:
        """Write what there is room for: up to PIPE_BUF bytes all or nothing, beyond that maybe a part (pipe(7))."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0


def escaped(text: str) -> bytes:
    """Escape as the kernel does for /dev/kmsg: control characters, bytes above 126 and the backslash become \\xNN."""
    return b"".join(
        b"%c" % byte if 32 <= byte < 127 and byte != 92 else b"\\x%02x" % byte for byte in text.encode()
    )
