"""Kubernetes Events for warnings, for `kubectl describe node`. Best effort: never waited for, never read back.

A fault has its condition; a warning would be seen in NodeHealth alone. One Event stands for a warning (its reason on its
part, in this boot), whatever comes and goes: its name follows from that, and later sights count in its series, at most every
ten minutes. A token bucket and a bounded memory keep an application that crashes all day from costing the server more.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog

from agent.metrics import Metrics
from agent.pacing import TokenBucket
from checks.finding import Finding, Severity
from kube import paths
from kube.api import AlreadyExists, Api, ApiError, Invalid, NotFound, PatchType
from kube.clock import Clock
from kube.timestamps import micro_time

NAMESPACE = "default"  # where Events of cluster-scoped objects live
AGENT = "nodemend.dev/agent"
BURST, REFILL_S = 10, 60.0
AGAIN_S = 600.0
MOST_TOLD = 256
RETRY_S, LONGEST_RETRY_S = 60.0, 3600.0
_NOTE_LIMIT = 1000  # the server takes 1,024 bytes

Key = tuple[str, str, bool]
"""Reason, part, and whether it is a drill: a real warning after a drill is news."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One warning whose Event stands: how often it had been seen then, and when that was written (monotonic seconds)."""

    count: int
    at: float


class EventWriter:
    """`offer` may be called from any thread, `step` belongs to one."""

    def __init__(self, api: Api, node: str, clock: Clock, metrics: Metrics) -> None:
        self._api = api
        self._node = node
        self._clock = clock
        self._metrics = metrics
        self._log = structlog.get_logger().bind(node=node)
        self._lock = threading.Lock()
        self._bucket = TokenBucket(BURST, REFILL_S)
        self._warnings: Mapping[Key, Finding] = {}
        self._uid = ""
        self._told: dict[Key, Told] = {}
        self._retry_at = float("-inf")
        self._refused = 0
        """How many tries in a row: an agent without the right to write Events asks hardly ever."""

    def offer(self, findings: Sequence[tuple[str, Finding]], node_uid: str) -> None:
        """Set which warnings stand; on another Node object all of them are news."""
        warnings = {(*f.key(), f.drill): f for _, f in findings if f.severity is Severity.WARNING}
        with self._lock:
            self._warnings = warnings
            if node_uid != self._uid:
                self._uid, self._told = node_uid, {}

    def step(self) -> float:
        """Write what is due and allowed now; give the seconds until the next call makes sense."""
        now = self._clock.monotonic()
        with self._lock:
            warnings, uid = self._warnings, self._uid
        self._forget(warnings, now)
        if not uid or now < self._retry_at:
            return max(0.0, self._retry_at - now) if uid else float("inf")
        for key, finding in warnings.items():
            if not self._is_due(key, finding, now):
                continue
            wait_s = self._bucket.wait_s(now)
            if wait_s > 0:
                return wait_s
            self._bucket.take(now)
            if not self._write(key, finding, uid, now):
                wait_s = min(RETRY_S * (1 << min(self._refused - 1, 10)), LONGEST_RETRY_S)
                self._retry_at = now + wait_s
                return wait_s
        return AGAIN_S

    def _is_due(self, key: Key, finding: Finding, now: float) -> bool:
        told = self._told.get(key)
        return told is None or (finding.count > told.count and now - told.at >= AGAIN_S)

    def _forget(self, warnings: Mapping[Key, Finding], now: float) -> None:
        """Keep what was told for as long as it may come back soon, and no more than there is room for."""
        gone = [key for key, told in self._told.items() if key not in warnings and now - told.at >= AGAIN_S]
        for key in gone:
            del self._told[key]
        while len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]

    def _write(self, key: Key, finding: Finding, uid: str, now: float) -> bool:
        body = event(finding, self._node, uid, self._clock.now())
        try:
            if key not in self._told:
                try:
                    self._api.create(paths.events(NAMESPACE), body)
                except AlreadyExists:
                    self._again(body, finding)
            else:
                try:
                    self._again(body, finding)
                except NotFound:  # the server keeps Events for an hour
                    self._api.create(paths.events(NAMESPACE), body)
        except Invalid as error:  # this one will never do: it must not keep the others from being told
            self._metrics.wrote("event", type(error).__name__)
            self._log.warning("event.refused", error=str(error))
        except ApiError as error:
            self._metrics.wrote("event", type(error).__name__)
            if not self._refused:
                self._log.warning("event.refused", error=str(error))
            self._refused += 1
            return False
        else:
            self._metrics.wrote("event", "ok")
            self._refused = 0
        self._told[key] = Told(count=finding.count, at=now)
        return True

    def _again(self, body: Mapping[str, Any], finding: Finding) -> None:
        series = {"count": max(2, finding.count), "lastObservedTime": micro_time(finding.last_seen)}
        path = paths.member(paths.events(NAMESPACE), body["metadata"]["name"])
        self._api.patch(
            path, {"series": series}, PatchType.MERGE
        )  # the server lets nothing else of it change


def event(finding: Finding, node: str, node_uid: str, now: datetime) -> dict[str, Any]:
    """Write the Event of a warning. Its name follows from what it is about, so that said again it stays one."""
    drill = "drill: " if finding.drill else ""
    about = f"{drill}{node_uid}/{finding.boot_id}/{finding.reason}/{finding.part.key()}"
    detail = f" ({finding.detail})" if finding.detail else ""
    note = f"{drill}{finding.part.shown()}: {finding.reason}{detail}"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{node[:200]}.{hashlib.sha256(about.encode()).hexdigest()[:16]}",
            "namespace": NAMESPACE,
        },
        "eventTime": micro_time(now),
        "type": "Warning",
        "reason": finding.reason[:128],
        "action": "Detected",
        "note": note.encode()[:_NOTE_LIMIT].decode(errors="ignore"),
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid},
        "reportingController": AGENT,
        "reportingInstance": node[:128],
    }
