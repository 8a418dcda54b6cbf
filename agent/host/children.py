"""Short-lived child processes that look at what may never answer: a dead file server, a dying disk.

Such a look blocks in the kernel, where no thread and no timeout of ours ends it. So each is made by a process of its own,
one for each thing looked at. One that is late gets SIGTERM, then SIGKILL, and is then left alone: it is never waited for
without an end, and its thing is not looked at again before it is gone, or each round would leave one more behind.
"""

import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

OUTPUT_LIMIT = 16 * 1024
AT_ONCE = 4
"""Children at one time: each takes some 7 MiB while it is there."""
ENDS_WITHIN_S = 0.5


class Process(Protocol):
    """One child. `fd` is readable when it wrote something or is gone."""

    @property
    def fd(self) -> int: ...

    def status(self) -> int | None:
        """Give the exit status, None while it is there; waits for nothing."""

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None:
        """Give back what is held for it; the process itself stays as it is."""


Start = Callable[[Sequence[str]], Process]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one look: its output, or for how long it has been away, or what went wrong with the child itself."""

    output: bytes = b""
    hangs_ms: int | None = None
    error: str = ""


class ChildProcess:
    """A real one, started without our environment, our site packages and our terminal's signals."""

    def __init__(self, command: Sequence[str]) -> None:
        """Raises OSError where it cannot be started."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )
        os.set_blocking(self.fd, False)

    @property
    def fd(self) -> int:
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        return self._process.stdout.fileno()

    def status(self) -> int | None:
        return self._process.poll()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()


def program(name: str, *arguments: str) -> tuple[str, ...]:
    """Give the command line of a small program in this folder: no site packages, nothing imported that it does not need."""
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name(name)), *arguments)


class _Running(msgspec.Struct):
    process: Process
    since: float
    output: bytes = b""
    at_end: bool = False


class Children:
    """Asks children, and keeps in mind who has not come back. One look at a time."""

    def __init__(
        self, deadline_s: float, start: Start = ChildProcess, ends_within_s: float = ENDS_WITHIN_S
    ) -> None:
        """`ends_within_s`: how long is waited for what SIGTERM and then SIGKILL bring."""
        self.deadline_s = deadline_s
        self._ends_within_s = ends_within_s
        self._start = start
        self._away: dict[str, _Running] = {}
        self._hangs_since: dict[str, float] = {}
        self._lock = threading.Lock()

    def longest_s(self, looks: int) -> float:
        """Give the longest that so many looks can take together."""
        return -(-looks // AT_ONCE) * (self.deadline_s + self._ends_within_s) + 2 * self._ends_within_s

    def ask(self, commands: Mapping[str, Sequence[str]]) -> dict[str, Reply]:
        """Make each look, by its key, and give what came of it. Raises OSError where a look is under way already."""
        if not self._lock.acquire(blocking=False):
            raise OSError("a look is under way already")
        try:
            return self._ask(commands)
        finally:
            self._lock.release()

    def _ask(self, commands: Mapping[str, Sequence[str]]) -> dict[str, Reply]:
        self._let_go(set(commands))
        replies: dict[str, Reply] = {}
        waiting = deque(key for key in commands if key not in self._away)
        running: dict[str, _Running] = {}
        late: list[str] = []
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                key = waiting.popleft()
                try:
                    running[key] = _Running(process=self._start(commands[key]), since=time.monotonic())
                except OSError as error:
                    replies[key] = Reply(error=f"the look could not be started: {error}")
            for key in self._over(running):
                one = running.pop(key)
                if reply := _ended(one, self._ends_within_s):
                    replies[key] = reply
                    self._hangs_since.pop(key, None)
                else:
                    self._away[key] = one
                    self._hangs_since.setdefault(key, one.since)
                    late.append(key)
        self._end(late)
        now = time.monotonic()
        for key in commands.keys() - replies.keys():
            replies[key] = Reply(hangs_ms=max(0, round((now - self._hangs_since.get(key, now)) * 1000)))
        return replies

    def _over(self, running: Mapping[str, _Running]) -> list[str]:
        """Wait for those that run, no longer than to the first deadline; give who is at its end, or late."""
        if not running:
            return []
        with selectors.DefaultSelector() as selector:
            for key, one in running.items():
                selector.register(one.process.fd, selectors.EVENT_READ, key)
            first = min(one.since for one in running.values()) + self.deadline_s
            ready = [event.data for event, _ in selector.select(max(0.0, first - time.monotonic()))]
        late = [key for key, one in running.items() if time.monotonic() >= one.since + self.deadline_s]
        ended = [key for key in ready if _read(running[key])]
        return list(dict.fromkeys([*ended, *late]))

    def _let_go(self, wanted: set[str]) -> None:
        """Take leave of those that are gone at last; forget since when what nobody asks about any more has hung."""
        for key, one in list(self._away.items()):
            one.process.kill()
            if one.process.status() is not None:
                one.process.close()
                del self._away[key]
        for key in set(self._hangs_since) - wanted - set(self._away):
            del self._hangs_since[key]

    def _end(self, late: Sequence[str]) -> None:
        """End those that are late, without waiting for more than a second; who is still there then is kept in mind."""
        for by_force in (False, True):
            left = [process for key in late if (process := self._away[key].process).status() is None]
            for process in left:
                if by_force:
                    process.kill()
                else:
                    process.terminate()
            until = time.monotonic() + self._ends_within_s
            while time.monotonic() < until and any(process.status() is None for process in left):
                time.sleep(0.01)
        for key in late:
            if self._away[key].process.status() is not None:
                self._away.pop(key).process.close()


def _read(one: _Running) -> bool:
    """Take what it wrote; tell whether nothing more will come."""
    try:
        data = os.read(one.process.fd, OUTPUT_LIMIT)
    except BlockingIOError:
        return False
    one.output = (one.output + data)[:OUTPUT_LIMIT]
    one.at_end = not data
    return one.at_end


def _ended(one: _Running, within_s: float) -> Reply | None:
    """Say how it ended, None where it did not. Its end follows the end of its output at once."""
    until = time.monotonic() + within_s
    while (status := one.process.status()) is None and one.at_end and time.monotonic() < until:
        time.sleep(0.002)
    if status is None:
        return None
    one.process.close()
    if status:
        return Reply(error=f"the look ended with status {status}")
    return Reply(output=one.output)
