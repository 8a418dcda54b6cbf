"""The file behind the kernel log: /dev/kmsg, a named pipe, or a saved log. Opens, reads, waits; knows nothing of records."""

import errno
import os
import select
import stat
from pathlib import Path
from typing import Protocol

READ_SIZE = 65536

Identity = tuple[int, int]


class Source(Protocol):
    """An open kernel log. `one_record_a_read` tells the device, which hands out whole records, from a stream of lines.

    `can_wait` is False for a plain file, which is always readable, also at its end.
    """

    @property
    def one_record_a_read(self) -> bool: ...

    @property
    def can_wait(self) -> bool: ...

    @property
    def identity(self) -> Identity: ...

    def read(self) -> bytes:
        """Give the next bytes, b"" if there are none now. Raises OSError as read(2) does."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait until there may be something to read, at most `seconds`; False when nothing came."""
        ...

    def close(self) -> None: ...


class Opener(Protocol):
    """How a path is looked at and opened; both raise OSError."""

    def identity(self, path: Path) -> Identity: ...

    def open(self, path: Path) -> Source: ...


class HostOpener:
    """The real files of this machine."""

    def identity(self, path: Path) -> Identity:
        """Name the file that stands at the path now, so that a replaced pipe is noticed."""
        state = path.stat()
        return state.st_dev, state.st_ino

    def open(self, path: Path) -> Source:
        """Open without ever blocking, whoever else has the file open."""
        if stat.S_ISFIFO(path.stat().st_mode):
            return _Pipe(path)
        return _File(path)


class _File:
    """A character device, or a saved log as a plain file, which is read to its end and looked at again later."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        state = os.fstat(self._fd)
        self.identity: Identity = (state.st_dev, state.st_ino)
        self.one_record_a_read = self.can_wait = stat.S_ISCHR(state.st_mode)

    def read(self) -> bytes:
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return b""
        if not data and self.one_record_a_read:
            raise OSError("the device has an end, so it is not a kernel log")
        return data

    def wait(self, seconds: float) -> bool:
        return _poll(self._fd, seconds)

    def close(self) -> None:
        os.close(self._fd)


class _Pipe:
    """A named pipe whose writers may come and go.

    Opened for writing too, where that is allowed: a pipe that always has a writer never ends (fifo(7)), so a writer that
    goes away is no event at all. Where it is not allowed, the pipe is opened anew at each end, before the old descriptor
    is closed, since what a pipe holds is lost with its last descriptor.
    """

    one_record_a_read = False
    can_wait = True

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        state = os.fstat(self._fd)
        self.identity: Identity = (state.st_dev, state.st_ino)

    def read(self) -> bytes:
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return b""
        if not data:
            self._open_anew()
        return data

    def wait(self, seconds: float) -> bool:
        return _poll(self._fd, seconds)

    def close(self) -> None:
        os.close(self._fd)

    def _open_anew(self) -> None:
        """Begin to wait for the next writer: on the old descriptor the end would be reported for ever."""
        fresh = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        state = os.fstat(fresh)
        if (state.st_dev, state.st_ino) != self.identity:
            os.close(fresh)  # replaced meanwhile: the reader notices by the identity
            return
        os.close(self._fd)
        self._fd = fresh


def _poll(fd: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(max(0, round(seconds * 1000))))
