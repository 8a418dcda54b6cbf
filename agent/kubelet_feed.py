"""The thread that asks kubelet now and then, and the one place where its newest answer waits for the judging loop.

It is started only where there is a GPU. A question that hangs ends by its own deadline, so the thread always goes round.
"""

import threading
from collections.abc import Callable
from random import Random
from typing import Protocol

import structlog

from agent.host.pod_resources import KubeletDevices, KubeletFailed
from agent.host.unary_call import Cause
from agent.pacing import stretched

SOON_S = 10.0

Answer = KubeletDevices | KubeletFailed


class Kubelet(Protocol):
    """Where the judging loop takes kubelet's answers from."""

    @property
    def begun(self) -> bool:
        """Whether kubelet is being asked."""
        ...

    def begin(self) -> None:
        """Begin to ask."""
        ...

    def end(self) -> None:
        """Stop asking."""
        ...

    def take(self) -> Answer | None:
        """Give the newest answer, once."""
        ...

    def soon(self) -> None:
        """Ask again sooner than usual, since one answer was not enough."""
        ...


class KubeletFeed:
    """The real Kubelet: asks every `period_s` seconds, stretched by up to a fifth, and calls `wake` after each answer."""

    def __init__(
        self, ask: Callable[[], Answer], period_s: float, random: Random, wake: Callable[[], None]
    ) -> None:
        self._ask = ask
        self._period_s = period_s
        self._random = random
        self._wake = wake
        self._log = structlog.get_logger()
        self._lock = threading.Lock()
        self._newest: Answer | None = None
        self._soon = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def begun(self) -> bool:
        return self._thread is not None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._soon.set()

    def take(self) -> Answer | None:
        with self._lock:
            newest, self._newest = self._newest, None
        return newest

    def soon(self) -> None:
        self._soon.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            answer = self._guarded()
            with self._lock:
                self._newest = answer
            self._wake()
            if self._soon.wait(stretched(self._period_s, self._random)):
                self._soon.clear()
                self._stop.wait(min(SOON_S, self._period_s))

    def _guarded(self) -> Answer:
        try:
            return self._ask()
        except Exception as error:  # noqa: BLE001 - the thread's outermost edge: a defect in it is a source that failed
            self._log.exception("kubelet.broke")
            return KubeletFailed(cause=Cause.GARBAGE, error=f"{type(error).__name__}: {error}"[:300])
