"""Writing NodeHealth: the object where there is none, then its status.

Facts (a fault, the machine's identity, a source that fails) are written at once, `burst` times, then once per `refill`.
Counters and warnings have a slower budget of their own, so that an application that crashes all day long costs two writes
a minute and never the place of a fault; which pod holds what costs one a minute at most. What is unchanged is written anew
every `reassert`, longer by up to a fifth.
`offer`, `meet` and `hurry` may be called from any thread; `step` belongs to one.
"""

import contextlib
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import structlog

from agent.config import PublishSection
from agent.metrics import Metrics
from agent.node_health import Change, Report, change, status, status_body
from agent.pacing import Backoff, TokenBucket, stretched
from kube import paths
from kube.api import AlreadyExists, Api, ApiError, NotFound, PatchType, Unavailable
from kube.clock import Clock
from kube.nodehealth import GROUP, VERSION

COUNTERS_BURST = 2
COUNTERS_REFILL_S = 30.0
HELD_REFILL_S = 60.0
_URGENCY = (Change.NOTHING, Change.HELD, Change.COUNTERS, Change.FACTS)


class Recorder:
    """Owns the writing of one NodeHealth. `wake` is called when `step` has something to do sooner than it said."""

    def __init__(
        self,
        api: Api,
        name: str,
        settings: PublishSection,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        wake: Callable[[], None],
    ) -> None:
        self._api = api
        self._name = name
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._wake = wake
        self._log = structlog.get_logger().bind(node=name)
        self._lock = threading.Lock()
        facts = TokenBucket(settings.burst, settings.refill.total_seconds())
        self._buckets = {
            Change.NOTHING: facts,  # written anew
            Change.HELD: TokenBucket(1, HELD_REFILL_S),
            Change.COUNTERS: TokenBucket(COUNTERS_BURST, COUNTERS_REFILL_S),
            Change.FACTS: facts,
        }
        self._backoff = Backoff(0.5, 30.0, random)
        self._reassert_s = settings.reassert.total_seconds()
        self._latest: Report | None = None
        self._written: Report | None = None
        self._exists = False
        self._awaits = Change.NOTHING
        self._retry_at = float("-inf")
        self._reassert_at = float("-inf")

    @property
    def exists(self) -> bool:
        """Whether the object is there, as far as is known."""
        return self._exists

    def offer(self, report: Report) -> Change:
        """Set what should stand there; the newest wins. Gives what changed since the last one."""
        with self._lock:
            news = change(self._latest, report)
            self._latest = report
            sooner = news is Change.FACTS or _URGENCY.index(news) > _URGENCY.index(self._awaits)
            if sooner:
                self._awaits = news
        if sooner:
            self._wake()
        return news

    def meet(self, *, exists: bool) -> None:
        """Begin anew: the Node is known (again), and so is whether its NodeHealth exists."""
        with self._lock:
            self._written = None
            self._exists = exists
            self._awaits = Change.FACTS

    def hurry(self) -> None:
        """Try again now what failed: the server is known to answer again. Any thread may call this."""
        self._retry_at = float("-inf")
        self._wake()

    def step(self) -> float:
        """Write what is due and allowed now; give the seconds until the next call makes sense."""
        now = self._clock.monotonic()
        with self._lock:
            latest = self._latest
            self._awaits = Change.NOTHING
        if latest is None or not latest.node_uid:
            return float("inf")
        if now < self._retry_at:
            self._awaits = Change.COUNTERS
            return self._retry_at - now
        news = change(self._written, latest)
        if news is Change.NOTHING and now < self._reassert_at:
            return self._reassert_at - now
        bucket = self._buckets[news]
        wait_s = bucket.wait_s(now)
        if wait_s > 0:
            self._awaits = news
            return wait_s
        bucket.take(now)
        self._write(latest, bucket)
        return max(0.0, (self._retry_at if self._backoff.failures else self._reassert_at) - now)

    def _write(self, report: Report, bucket: TokenBucket) -> None:
        try:
            if not self._exists:
                self._create(report)
            written = status(report, self._clock.now())
            self._api.patch(paths.node_health_status(self._name), status_body(written), PatchType.MERGE)
        except ApiError as error:
            if isinstance(error, NotFound):
                self._exists = False
            if isinstance(error, Unavailable):
                bucket.give_back()
            self._failed(error)
        else:
            self._written = report
            self._metrics.wrote("nodehealth", "ok")
            self._metrics.omitted.set(written.omitted)
            if self._backoff.failures:
                self._log.info("recording.recovered", attempts=self._backoff.failures + 1)
            self._backoff.succeeded()
            self._retry_at = float("-inf")
            self._reassert_at = self._clock.monotonic() + stretched(self._reassert_s, self._random)

    def _create(self, report: Report) -> None:
        with contextlib.suppress(AlreadyExists):
            self._api.create(paths.node_healths(), new_object(self._name, report.node_uid))
        self._exists = True

    def _failed(self, error: ApiError) -> None:
        wait_s = self._backoff.failed()
        if error.retry_after_s is not None:
            wait_s = max(wait_s, min(error.retry_after_s, 60.0))
        self._retry_at = self._clock.monotonic() + wait_s
        self._metrics.wrote("nodehealth", type(error).__name__)
        if self._backoff.failures == 1:
            self._log.warning("recording.failed", error=str(error), kind=type(error).__name__)


def new_object(name: str, node_uid: str) -> dict[str, Any]:
    """Describe the empty NodeHealth of a Node: owned by it, so that it goes when the Node goes."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "NodeHealth",
        "metadata": {"name": name, "ownerReferences": [owner_reference(name, node_uid)]},
    }


def owner_reference(name: str, node_uid: str) -> dict[str, str]:
    """Name the Node as owner: the garbage collector removes what it owns."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
