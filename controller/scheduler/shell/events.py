"""Kubernetes Events of the scheduler, in the namespace of the pod. Pure.

An Event's name follows from what it says, so that a second leader saying it again changes nothing, and a failure that comes
back word for word is told once an hour, for as long as the server keeps it.
"""

import hashlib
from datetime import datetime
from typing import Any, Final

import msgspec

from controller.scheduler.plan import Evict
from controller.scheduler.shell.reported import Happened
from controller.scheduler.shell.status_writes import Kind, Write
from controller.scheduler.shell.steady_words import Told, limited
from kube import paths
from kube.scheduling import API_VERSION, PodGroup
from kube.timestamps import micro_time
from kube.types import Pod

_NOTE: Final = 1000  # the server takes 1,024 bytes
_EVICTED: Final = {
    "preempt": "Preempted",
    "reclaim": "Reclaimed",
    "consolidation": "Moved",
    "stalegangeviction": "StaleGang",
}


class About(msgspec.Struct, frozen=True, kw_only=True):
    """An object that an Event is about."""

    kind: str
    namespace: str
    name: str
    uid: str = ""

    def reference(self) -> dict[str, str]:
        version = API_VERSION if self.kind == "PodGroup" else "v1"
        found = {"apiVersion": version, "kind": self.kind, "namespace": self.namespace, "name": self.name}
        return {**found, "uid": self.uid} if self.uid else found


class Voice(msgspec.Struct, frozen=True, kw_only=True):
    """Who says it: the scheduler's name, and which of its replicas."""

    scheduler: str
    instance: str


def of_happening(one: Happened, evict: Evict | None, voice: Voice) -> Write:
    """Tell of a bind or an eviction. `evict`: as the plan had it, where that is still known."""
    namespace, _, name = one.pod.partition("/")
    about = About(kind="Pod", namespace=namespace, name=name, uid=one.uid)
    match one.what:
        case "bound":
            note = f"Successfully assigned {one.pod} to {one.node}"
            return _write(about, voice, one.at, "Scheduled", "Binding", note, normal=True, said=one.node)
        case "bind-failed":
            note = f"Could not bind {one.pod} to {one.node}: {one.message}"
            return _write(about, voice, one.at, "FailedBinding", "Binding", note)
        case "evict-refused":
            note = f"{one.pod} was to be evicted from {one.node} and was not: {one.message}"
            return _write(about, voice, one.at, "EvictionRefused", "Evicting", note)
        case "evicted":
            note = one.message or ("" if evict is None else evict.why) or "evicted by the scheduler"
            reason = _EVICTED.get("" if evict is None else evict.action, "Evicted")
            return _write(about, voice, one.at, reason, "Evicting", note, normal=True, said=one.node)


def of_wait(group: PodGroup | None, pod: Pod | None, told: Told, voice: Voice, now: datetime) -> list[Write]:
    """Tell once why a job waits: its group, and one of its pods; of the group of a single pod only the pod."""
    abouts = []
    if group is not None:
        meta = group.metadata
        abouts.append(About(kind="PodGroup", namespace=meta.namespace, name=meta.name, uid=meta.uid))
    if pod is not None:
        meta = pod.metadata
        abouts.append(About(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid))
    return [
        _write(about, voice, now, "FailedScheduling", "Scheduling", told.message, said=told.signature)
        for about in abouts
    ]


def of_stray(pod: Pod, why: str, voice: Voice, now: datetime) -> Write:
    """Tell why a pod is in no job: it has no group, or it or its group cannot be read."""
    meta = pod.metadata
    about = About(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
    return _write(about, voice, now, "FailedScheduling", "Scheduling", why)


def _write(
    about: About,
    voice: Voice,
    at: datetime,
    reason: str,
    action: str,
    note: str,
    *,
    normal: bool = False,
    said: str = "",
) -> Write:
    """Make the Event; its name follows from `said`, which is the note where it is not given."""
    words = f"{about.kind}/{about.namespace}/{about.name}/{about.uid}|{reason}|{said or note}"
    name = f"{about.name[:220].rstrip('-.')}.{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about.namespace},
        "eventTime": micro_time(at),
        "type": "Normal" if normal else "Warning",
        "reason": reason,
        "action": action,
        "note": limited(note, _NOTE),
        "regarding": about.reference(),
        "reportingController": voice.scheduler,
        "reportingInstance": limited(voice.instance, 128),
    }
    key = f"{about.namespace}/{name}"
    return Write(kind=Kind.EVENT, key=key, path=paths.events(about.namespace), body=body, patch_type=None)
