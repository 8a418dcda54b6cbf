"""Bring the outbox's rows to their receivers, beside the loop and never in its way. Shell.

The rows stand in Remediation and RemediationPolicy; which of them are due, and what an answer means for a row, is the
core's (controller.outbox). Here a row becomes a request: each sink has a bounded queue and a few workers of its own, so that
a slow or hung receiver holds up neither the loop nor another receiver. What is not taken now is still in the outbox and is
offered again. An answer is kept until the row that it belongs to was seen to hold it.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec
import structlog

from controller.message import CONTENT_TYPE
from controller.view import Delivery
from controller.webhook import Answer, Sender
from kube.clock import Clock

log = structlog.get_logger(__name__)

WORKERS = 4  # of each sink; order within an incident is kept by the outbox, which gives its next row only after the last
QUEUED = 200


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One row to be tried now; `attempt` counts from 1, `body` writes what it says and is called by the worker."""

    id: str
    sink: str
    attempt: int
    body: Callable[[], bytes]


class Deliverer:
    """Takes errands from the loop's thread and answers through `deliveries`.

    `wake` is called after each answer. `may_send` is asked right before each try, since an errand may have waited: a
    replica that no longer leads sends nothing (the next leader has the row).
    """

    def __init__(
        self,
        senders: Mapping[str, Sender],
        clock: Clock,
        *,
        wake: Callable[[], None],
        may_send: Callable[[], bool],
        count: Callable[[str, str], None] = lambda _sink, _result: None,
    ) -> None:
        self._senders = senders
        self._clock = clock
        self._wake = wake
        self._may_send = may_send
        self._count = count
        self._lock = threading.Lock()
        self._in_flight: dict[str, int] = {}
        self._answered: dict[str, Delivery] = {}
        self._stopping = threading.Event()
        self._queues: dict[str, queue.Queue[Errand | None]] = {name: queue.Queue(QUEUED) for name in senders}
        self._threads = [
            threading.Thread(target=self._work, args=(name,), name=f"deliver-{name}-{number}", daemon=True)
            for name in senders
            for number in range(WORKERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def offer(self, errands: Iterable[Errand]) -> None:
        """Take what is not yet under way and has room; the rest comes again. Never blocks."""
        for errand in errands:
            waiting = self._queues.get(errand.sink)
            with self._lock:
                known = errand.id in self._in_flight or errand.id in self._answered
                if waiting is None or known or self._stopping.is_set():
                    continue
                try:
                    waiting.put_nowait(errand)
                except queue.Full:
                    continue
                self._in_flight[errand.id] = errand.attempt

    def deliveries(self) -> Mapping[str, Delivery]:
        """Give the answers that no row was yet seen to hold, by notification id."""
        with self._lock:
            return dict(self._answered)

    def recorded(self, attempts: Mapping[str, int]) -> None:
        """Forget answers that stand in the outbox: `attempts` are the tries that each known row counts.

        An answer to a row that exists no more is forgotten too, so that what is kept is bounded by the outbox itself.
        """
        with self._lock:
            self._answered = {
                id_: delivery
                for id_, delivery in self._answered.items()
                if id_ in attempts and attempts[id_] < delivery.attempt
            }

    def stop(self, timeout_s: float) -> None:
        """Let the tries in flight end, at most `timeout_s` seconds; what is queued is dropped and stays in the outbox."""
        self._stopping.set()
        for waiting in self._queues.values():
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
            for _ in range(WORKERS):
                waiting.put_nowait(None)
        deadline = self._clock.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - self._clock.monotonic()))

    def _work(self, sink: str) -> None:
        waiting, sender = self._queues[sink], self._senders[sink]
        while (errand := waiting.get()) is not None:
            if self._stopping.is_set() or not self._may_send():
                with self._lock:
                    self._in_flight.pop(errand.id, None)
                continue
            self._answer(errand, _send(sender, errand, self._clock))

    def _answer(self, errand: Errand, answer: Answer) -> None:
        now = self._clock.now()
        delivery = Delivery(
            attempt=errand.attempt,
            at=now,
            error=answer.error,
            gone=answer.gone,
            not_before=None if answer.wait is None else now + answer.wait,
        )
        with self._lock:
            self._in_flight.pop(errand.id, None)
            self._answered[errand.id] = delivery
        self._count(errand.sink, "failed" if answer.error else "accepted")
        if answer.error:
            log.warning(
                "notification.refused",
                sink=errand.sink,
                id=errand.id,
                attempt=errand.attempt,
                error=answer.error,
            )
        else:
            log.info("notification.sent", sink=errand.sink, id=errand.id, attempt=errand.attempt)
        self._wake()


def _send(sender: Sender, errand: Errand, clock: Clock) -> Answer:
    try:
        return sender.send(errand.id, errand.body(), CONTENT_TYPE, clock.now())
    except Exception as error:
        log.exception("notification.failed", sink=errand.sink, id=errand.id)
        return Answer(error=f"defect in the sender: {error!r}")
