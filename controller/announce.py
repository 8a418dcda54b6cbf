"""Kubernetes Events about a Node's incidents, for `kubectl describe node`. Best effort: never waited for, never the truth.

Events live an hour and may be dropped by the server, so nothing is ever read back from them (the Remediation is the story).
The queue is bounded; what does not fit is counted and lost. In a storm Events are the last thing that a busy server needs,
so there is a pause after each.
"""

import hashlib
import queue
import threading
from datetime import datetime
from typing import Any

import msgspec
import structlog

from kube import paths
from kube.api import AlreadyExists, Api, ApiError
from kube.remediation import Phase
from kube.timestamps import micro_time

log = structlog.get_logger(__name__)

NAMESPACE = "default"  # where Events of cluster-scoped objects live
CONTROLLER = "nodemend.dev/controller"
_PAUSE_S = 0.1
_NOTE_LIMIT = 1000  # the server takes 1,024 bytes
_NORMAL = frozenset({Phase.RETURNED, Phase.CLEARED, Phase.SUPERSEDED, Phase.REVALIDATING})


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """An incident on a Node entered a phase."""

    node: str
    node_uid: str
    incident: str
    phase: Phase
    message: str
    at: datetime


def event(announcement: Announcement, instance: str) -> dict[str, Any]:
    """Write the Event. Its name follows from what it says, so that a second leader saying it again changes nothing."""
    said = f"{announcement.incident}/{announcement.phase}/{micro_time(announcement.at)}"
    note = f"{announcement.incident}: {announcement.message}".encode()[:_NOTE_LIMIT].decode(errors="ignore")
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{announcement.incident}.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
            "namespace": NAMESPACE,
        },
        "eventTime": micro_time(announcement.at),
        "type": "Normal" if announcement.phase in _NORMAL else "Warning",
        "reason": f"Nodemend{announcement.phase}",
        "action": announcement.phase.value,
        "note": note,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": announcement.node,
            "uid": announcement.node_uid,
        },
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
    }


class Announcer:
    """One thread and one bounded queue. `lost` counts what was not written."""

    def __init__(self, api: Api, instance: str, *, size: int = 5000) -> None:
        self._api = api
        self._instance = instance
        self._queue: queue.Queue[Announcement | None] = queue.Queue(size)
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._ending = threading.Event()
        self.lost = 0

    def start(self) -> None:
        self._thread.start()

    def say(self, announcement: Announcement) -> None:
        """Take it if there is room. Never blocks, never raises."""
        try:
            self._queue.put_nowait(announcement)
        except queue.Full:
            self.lost += 1

    def stop(self, timeout_s: float) -> None:
        """Write what is queued, as far as it goes within `timeout_s` seconds, and without pauses."""
        self._ending.set()
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            return
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        refused = False
        while (announcement := self._queue.get()) is not None:
            try:
                self._api.create(paths.events(NAMESPACE), event(announcement, self._instance))
                refused = False
            except AlreadyExists:
                continue
            except ApiError as error:
                self.lost += 1
                if not refused:
                    log.warning("event.refused", node=announcement.node, error=str(error))
                refused = True
            self._ending.wait(_PAUSE_S)
