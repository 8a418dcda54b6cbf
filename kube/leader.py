"""Leader election on a Lease: the shell around kube.lease that carries out its decisions and stops us in time.

`write_budget` says how many seconds a write may still take, and is 0 for whoever does not lead. Renewals are merge patches
with the resource version that was seen last, so that two can never both succeed. A watchdog of its own thread ends
leadership at the deadline even while a renewal hangs. The Session given here must carry no write guard, and have a timeout
of at most half the renew deadline.
"""

import random
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from kube import paths
from kube.api import AlreadyExists, Api, ApiError, Conflict, NotFound, PatchType
from kube.clock import SYSTEM, Clock
from kube.lease import (
    Create,
    Follow,
    LeaseView,
    Lost,
    Observed,
    Renew,
    Take,
    Timing,
    budget,
    observe,
    step,
    view,
)
from kube.timestamps import micro_time

RELEASED_DURATION_S = 1
QUICK_S = 0.05

log = structlog.get_logger()


def unique_identity() -> str:
    """Name this very process: a restarted container must not take itself for the one that held the lease before."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElection:
    """Runs for the Lease `namespace/name` as `identity`, which must be unique to this start of this process.

    Seconds throughout; raises ValueError for a timing that leaves no room. `pause` waits between two attempts.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock = SYSTEM,
        *,
        lease_duration: int = 15,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.identity = identity
        self.timing = Timing(
            lease_duration=lease_duration, renew_deadline=renew_deadline, retry_period=retry_period
        )
        self._api = api
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._idle = threading.Event()
        self._idle.set()
        self._seen: Observed | None = None
        self._renewed_at: float | None = None
        self._lost = False
        self._failing = False
        self._following = ""

    @property
    def is_leader(self) -> bool:
        """Whether we lead and may still begin something."""
        return self.write_budget() > 0.0

    @property
    def holder(self) -> str:
        """Who was last seen to hold the lease; empty for nobody."""
        seen = self._seen
        return seen.record.holder if seen is not None and seen.record is not None else ""

    def write_budget(self) -> float:
        """Seconds that a mutating request begun now may take; 0 when not leading. Give it to `connect(write_guard=)`."""
        with self._lock:
            return 0.0 if self._lost else budget(self._renewed_at, self._clock.monotonic(), self.timing)

    def run(self, on_started: Callable[[], None], on_lost: Callable[[str], None]) -> None:
        """Block: follow, lead, and return after `stop` or after leadership was lost, which happens once.

        `on_started` is called when we lead and must return at once. `on_lost(why)` is called, perhaps from another thread,
        when leadership is gone: the process must end there and then (`os._exit(1)`), workers and all.
        """
        self._idle.clear()
        try:
            while not self._stopped.is_set() and not self._lost:
                led = self._renewed_at is not None
                pause = self._attempt(on_lost)
                if not led and self._renewed_at is not None:
                    log.info("leader.acquired", name=self._name, identity=self.identity)
                    threading.Thread(
                        target=self._guard_deadline, args=(on_lost,), name="leader-watchdog", daemon=True
                    ).start()
                    on_started()
                self._pause(pause * random.uniform(1.0, 1.2))  # noqa: S311 - keeps candidates apart
        finally:
            self._idle.set()

    def stop(self) -> None:
        """Stop renewing. Writes end with what is left of the budget; the lease passes on by itself, or by `release`."""
        self._stopped.set()

    def release(self) -> None:
        """Hand the lease over at once. Only after the workers stopped: from here on every write of theirs is refused."""
        self.stop()
        self._idle.wait(self.timing.renew_deadline)
        with self._lock:
            led = budget(self._renewed_at, self._clock.monotonic(), self.timing) > 0.0 and not self._lost
            self._renewed_at = None
        record = self._seen.record if self._seen is not None else None
        if not led or record is None or record.holder != self.identity:
            return
        spec = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_DURATION_S, "renewTime": self._time()}
        try:
            self._patch(record, spec)
        except ApiError as error:  # it passes on by itself then, some seconds later
            log.warning("leader.release_failed", name=self._name, error=str(error))
        else:
            log.info("leader.released", name=self._name, identity=self.identity)

    def _guard_deadline(self, on_lost: Callable[[str], None]) -> None:
        """End leadership at the deadline, whatever the renewing thread is stuck in."""
        while not self._stopped.is_set():
            with self._lock:
                renewed_at = self._renewed_at
            if renewed_at is None or self._lost:
                return
            left = renewed_at + self.timing.renew_deadline - self._clock.monotonic()
            if left <= 0:
                self._lose(f"not renewed within {self.timing.renew_deadline:g} s", on_lost)
                return
            self._stopped.wait(left)

    def _lose(self, why: str, on_lost: Callable[[str], None]) -> None:
        with self._lock:
            if self._lost:
                return
            self._lost = True
        log.error("leader.lost", name=self._name, identity=self.identity, reason=why)
        on_lost(why)

    def _attempt(self, on_lost: Callable[[str], None]) -> float:
        """Look where needed, decide, act; give the seconds until the next attempt."""
        try:
            if self._seen is None or self._renewed_at is None:
                self._look()
            return self._act(on_lost)
        except (
            Conflict,
            AlreadyExists,
            NotFound,
        ):  # somebody wrote, or our last answer got lost: what we know is old
            return self._look_again()
        except (ApiError, msgspec.MsgspecError) as error:
            self._note_failure(error)
        return self.timing.retry_period

    def _look_again(self) -> float:
        try:
            self._look()
        except (ApiError, msgspec.MsgspecError) as error:
            self._note_failure(error)
            return self.timing.retry_period
        return QUICK_S if self._renewed_at is not None else self.timing.retry_period

    def _note_failure(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            log.warning("leader.attempt_failed", name=self._name, error=str(error))

    def _look(self) -> None:
        try:
            record = view(self._api.get(paths.lease(self._namespace, self._name)))
        except NotFound:
            record = None
        self._failing = False
        self._seen = observe(self._seen, record, self._clock.monotonic())

    def _act(self, on_lost: Callable[[str], None]) -> float:
        seen = self._seen
        if seen is None:
            return self.timing.retry_period
        sent_at = self._clock.monotonic()
        match step(seen, self.identity, sent_at, self.timing, self._renewed_at):
            case Lost(why):
                self._lose(why, on_lost)
                return 0.0
            case Follow(holder, seconds):
                if holder != self._following:
                    self._following = holder
                    log.info("leader.followed", name=self._name, holder=holder)
                return seconds
            case Create():
                body = {"metadata": {"name": self._name}, "spec": self._claim(0)}
                self._won(self._api.create(paths.leases(self._namespace), body), sent_at)
            case Take(transitions):
                assert seen.record is not None  # noqa: S101 - Take is decided on a record
                self._won(self._patch(seen.record, self._claim(transitions)), sent_at)
            case Renew():
                assert seen.record is not None  # noqa: S101 - Renew is decided on a record
                self._won(self._patch(seen.record, {"renewTime": self._time()}), sent_at)
        return self.timing.retry_period

    def _won(self, answer: bytes, sent_at: float) -> None:
        self._failing = False
        self._seen = observe(self._seen, view(answer), self._clock.monotonic())
        with self._lock:
            self._renewed_at = sent_at

    def _claim(self, transitions: int) -> dict[str, Any]:
        now = self._time()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.timing.lease_duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _patch(self, record: LeaseView, spec: dict[str, Any]) -> bytes:
        body = {"metadata": {"resourceVersion": record.resource_version}, "spec": spec}
        return self._api.patch(paths.lease(self._namespace, self._name), body, PatchType.MERGE)

    def _time(self) -> str:
        return micro_time(self._clock.now())
