"""The thread that owns the NVML child: what agent.nvml_keeper decides is done here.

Processes are started, written to and read from, signals sent, the time is read. The thread never waits for a child longer
than for a moment, and a child whose process cannot be ended costs it nothing.
"""

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Protocol, assert_never

import structlog

from agent.nvml_keeper import Keeper, Wish
from agent.nvml_log import NvmlLog
from agent.nvml_process import REAP_S, ChildProcess
from agent.nvml_watch import Action, Ask, Kill, Start, Terminate
from agent.nvml_wire import Garbage, Order, read
from checks.observation import NVML, Observation, SourceFailed
from kube.clock import Clock

# What a child writes in one go is read in one go: a round is some two hundred short lines.
GATHER_S = 0.01
ROUND_CALL, ROUND_ANSWER = b'{"k":"call","t":"round",', b'{"k":"round",'
AFTER_DEFECT_S = 5.0
ENDS_WITHIN_S = 1.0


class Process(Protocol):
    """agent.nvml_process.ChildProcess, or a test's."""

    at_end: bool

    @property
    def fd(self) -> int: ...

    def send(self, order: Order) -> None: ...

    def read(self) -> list[bytes]: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def how_ended(self, within_s: float = 0.0) -> str | None: ...

    def close(self) -> None: ...


Launch = Callable[[Path], Process]


def launch(driver_root: Path) -> Process:
    """Start the real child. Raises OSError."""
    return ChildProcess(driver_root)


def without_overtaken(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Leave out announcements of calls of the round that were over before the line was read: only the last one counts."""
    for line, following in zip_longest(lines, lines[1:], fillvalue=b""):
        if not (line.startswith(ROUND_CALL) and following.startswith((ROUND_CALL, ROUND_ANSWER))):
            yield line


class Worker:
    """Owns one boot's thread and its processes. `put` takes observations, `told` is called after each change."""

    def __init__(
        self,
        make_keeper: Callable[[], Keeper],
        driver_root: Path,
        put: Callable[[Observation], None],
        told: Callable[[Keeper], None],
        clock: Clock,
        start: Launch,
    ) -> None:
        self._make_keeper = make_keeper
        self._keeper = make_keeper()
        self._driver_root = driver_root
        self._put = put
        self._told = told
        self._clock = clock
        self._start = start
        self._log = structlog.get_logger()
        self._says = NvmlLog()
        self._processes: dict[int, Process] = {}
        self._wanted: deque[Wish] = deque(maxlen=1)
        self._wish: Wish | None = None
        self._shown: object = None
        self._stop = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)

    # From the judging loop's thread

    def begin(self, wish: Wish) -> None:
        self.want(wish)
        self._thread.start()

    def want(self, wish: Wish) -> None:
        """Take what is wanted from now on."""
        if wish != self._wish:
            self._wish = wish
            self._wanted.append(wish)
            self._poke()

    def end(self) -> None:
        """End thread and processes, within a few seconds; what does not end then is left to itself."""
        self._stop = True
        self._poke()
        self._thread.join(timeout=2 * ENDS_WITHIN_S + 2.0)
        if not self._thread.is_alive():
            os.close(self._wake_fd)

    def _poke(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake_fd, 1)

    # In the thread

    def _run(self) -> None:
        try:
            while not self._stop:
                self._guarded_round()
        finally:
            self._end_all()

    def _guarded_round(self) -> None:
        try:
            self._round()
        except Exception as error:  # noqa: BLE001 - the thread's outermost edge: a defect in it is a source that failed
            self._log.exception("nvml.broke")
            said = f"{type(error).__name__}: {error}"
            self._put(SourceFailed(source=NVML, error=said[:1024], tries=3, seen_at=self._clock.now()))
            self._end_all()
            self._keeper = self._make_keeper()
            if self._wish is not None:
                self._wanted.append(self._wish)
            self._clock.sleep(AFTER_DEFECT_S)

    def _round(self) -> None:
        """Do what is due, then wait for a word of a child, a wish, or the next thing to be due."""
        now, at = self._times()
        while self._wanted:
            self._keeper.wish(self._wanted.popleft(), now)
        actions, wait_s = self._keeper.step(now, at)
        for action in actions:
            self._do(action)
        self._hand_over()
        self._wait(wait_s)
        self._listen()

    def _times(self) -> tuple[float, datetime]:
        return self._clock.monotonic(), self._clock.now()

    def _do(self, action: Action) -> None:
        process = self._processes.get(action.child)
        match action:
            case Start(child=number):
                try:
                    self._processes[number] = self._start(self._driver_root)
                except OSError as error:
                    self._keeper.ended(number, f"it could not be started ({error})", *self._times())
            case Ask(child=number, order=order):
                try:
                    if process is not None:
                        process.send(order)
                except BlockingIOError as error:
                    self._keeper.garbled(number, f"takes no orders: {error}", *self._times())
                except OSError:
                    pass  # it is gone; how, its ending will say
            case Terminate():
                if process is not None:
                    process.terminate()
            case Kill():
                if process is not None:
                    process.kill()
            case _:
                assert_never(action)

    def _hand_over(self) -> None:
        observations = self._keeper.take()
        for observation in observations:
            self._put(observation)
        self._says.note(self._keeper, observations)
        shown = (self._keeper.released, self._keeper.started, self._keeper.left, self._keeper.quiet)
        if observations or shown != self._shown:
            self._shown = shown
            self._told(self._keeper)

    def _wait(self, seconds: float) -> None:
        poll = select.poll()  # not select(): a process may have more than 1,024 files open
        poll.register(self._wake_fd, select.POLLIN)
        for process in self._processes.values():
            if not process.at_end:
                poll.register(process.fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._wake_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)
        if ready - {self._wake_fd}:
            self._clock.sleep(GATHER_S)

    def _listen(self) -> None:
        for number, process in list(self._processes.items()):
            self._read(number, process)
            how = process.how_ended(REAP_S if process.at_end else 0.0)
            if how is not None:
                self._read(number, process)
                process.close()
                del self._processes[number]
                self._keeper.ended(number, how, *self._times())
            elif process.at_end:
                self._keeper.garbled(number, "closed its output and goes on", *self._times())

    def _read(self, number: int, process: Process) -> None:
        try:
            while lines := [] if process.at_end else process.read():
                for line in without_overtaken(lines):
                    self._keeper.heard(number, read(line), *self._times())
        except Garbage as error:
            self._keeper.garbled(number, f"wrote what is no message: {error}", *self._times())

    def _end_all(self) -> None:
        """Ask every process to end, then kill, each for a moment only."""
        for roughly in (False, True):
            for process in self._processes.values():
                process.kill() if roughly else process.terminate()
            deadline = self._clock.monotonic() + ENDS_WITHIN_S
            for number, process in list(self._processes.items()):
                if process.how_ended(max(0.01, deadline - self._clock.monotonic())) is not None:
                    process.close()
                    del self._processes[number]
        for process in self._processes.values():
            process.close()
        self._processes = {}
