"""Many small recurring jobs on a few threads: each is called when it is due or woken, never twice at the same time."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

import structlog

_AFTER_FAILURE_S = 1.0

log = structlog.get_logger()


class Round:
    """One job: `call` does it and gives the seconds until it is due again."""

    def __init__(self, name: str, call: Callable[[], float], rounds: "Rounds") -> None:
        self.name = name
        self.call = call
        self.ticket = 0  # of its only valid entry in the heap
        self.running = False
        self.woken = False
        self.over = False
        self._rounds = rounds

    def wake(self) -> None:
        """Call it as soon as a thread is free; once more after the present call, where it is running."""
        self._rounds.schedule(self, 0.0)

    def end(self) -> None:
        """Never call it again; returns when no call is running any more."""
        self._rounds.end(self)


class Rounds:
    """The threads and what is due next. `add` jobs at any time; `stop` ends the threads after their present calls."""

    def __init__(self, name: str, threads: int) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Round]] = []
        self._tickets = itertools.count(1)
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, name: str, call: Callable[[], float], *, after_s: float = 0.0) -> Round:
        """Call `call` for the first time after `after_s` seconds."""
        added = Round(name, call, self)
        self.schedule(added, after_s)
        return added

    def schedule(self, job: Round, after_s: float) -> None:
        with self._changed:
            if job.over or self._stopping:
                return
            if job.running:
                job.woken = True
                return
            job.ticket = next(self._tickets)
            heapq.heappush(self._due, (time.monotonic() + after_s, job.ticket, job))
            self._changed.notify()

    def end(self, job: Round) -> None:
        with self._changed:
            job.over = True
            self._changed.wait_for(lambda: not job.running)

    def stop(self) -> None:
        """End all threads; returns when they have ended."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            again_s = _guarded(job)
            with self._changed:
                job.running = False
                woken, job.woken = job.woken, False
                if job.over:
                    self._changed.notify_all()
            self.schedule(job, 0.0 if woken else again_s)

    def _next(self) -> Round | None:
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                if not self._due:
                    self._changed.wait()
                elif self._due[0][0] > now:
                    self._changed.wait(self._due[0][0] - now)
                else:
                    _, ticket, job = heapq.heappop(self._due)
                    if ticket == job.ticket and not job.over:
                        job.running = True
                        return job
            return None


def _guarded(job: Round) -> float:
    try:
        return job.call()
    except Exception:  # the edge of a job: its defect is not the other jobs'
        log.exception("round.failed", round=job.name)
        return _AFTER_FAILURE_S
