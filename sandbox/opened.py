"""Says when somebody else opens a file, by inotify(7), whatever namespace or path they open it through."""

import ctypes
import os
import select
from contextlib import suppress
from pathlib import Path

_IN_OPEN = 0x20
_EVENTS = 64 * 1024


class Opened:
    """Watches the file that is at `path`, also after another one was put there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._notices = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._notices < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._watch = -1
        self._inode = 0

    def wait(self, seconds: float) -> bool:
        """Wait until the file was opened, at most `seconds`; False where it was not."""
        self._follow()
        poll = select.poll()
        poll.register(self._notices, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        events = os.read(self._notices, _EVENTS)
        # Events of a watch that was taken off say nothing about the present file.
        return any(
            int.from_bytes(events[at : at + 4], "little") == self._watch
            and int.from_bytes(events[at + 4 : at + 8], "little") & _IN_OPEN
            for at in range(0, len(events), 16)  # a watched file, unlike a folder, has no name in its events
        )

    def close(self) -> None:
        os.close(self._notices)

    def _follow(self) -> None:
        """Watch what is at the path now."""
        with suppress(FileNotFoundError):  # looked at again with the next wait
            inode = self._path.stat().st_ino
            if inode == self._inode:
                return
            if self._watch >= 0:
                self._libc.inotify_rm_watch(self._notices, self._watch)
            self._watch = self._libc.inotify_add_watch(self._notices, os.fsencode(self._path), _IN_OPEN)
            self._inode = inode if self._watch >= 0 and self._path.stat().st_ino == inode else 0
