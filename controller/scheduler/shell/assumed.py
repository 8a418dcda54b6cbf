"""Binds that were sent and do not show in the API yet, and evictions likewise: never decided a second time. Pure.

A pod is assumed from the moment that its bind is decided until the store shows it on a node, or gone, or another pod of its
name. Where nobody knows whether the server took the bind (no answer), or where the store shows nothing for too long, the
assumption is doubtful: the shell then reads the pod itself, and what that shows ends the matter. Until then the room counts
as taken, since the worse error is to give it away twice.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from controller.scheduler.plan import Bind
from controller.scheduler.pod_tasks import Binding
from kube.types import Pod

SHOWN_WITHIN: Final = timedelta(seconds=30)
"""How long the store may take to show a bind that the server took, before the pod is read again."""


class AssumedBind(msgspec.Struct, frozen=True, kw_only=True):
    """`since`: when it was decided, or became doubtful; `look_at`: when to read the pod, should the store show nothing."""

    bind: Bind
    uid: str
    since: datetime
    look_at: datetime
    sent: bool = False


class Assumed:
    """Keyed by namespace/name. The loop's thread owns it."""

    def __init__(self) -> None:
        self._binds: dict[str, AssumedBind] = {}
        self._evicted: dict[str, tuple[str, datetime | None]] = {}  # None: the answer is still to come

    def assume(self, bind: Bind, uid: str, now: datetime) -> None:
        """Take a bind that is about to be sent."""
        self._binds[bind.task] = AssumedBind(bind=bind, uid=uid, since=now, look_at=now + SHOWN_WITHIN)

    def sent(self, task: str, now: datetime) -> None:
        """The server took it: what is left is to see it."""
        held = self._binds.get(task)
        if held is not None:
            self._binds[task] = msgspec.structs.replace(held, sent=True, look_at=now + SHOWN_WITHIN)

    def doubt(self, task: str, now: datetime) -> None:
        """Nobody knows whether the server took it: read the pod at once."""
        held = self._binds.get(task)
        if held is not None:
            self._binds[task] = msgspec.structs.replace(held, sent=True, since=now, look_at=now)

    def forget(self, task: str) -> None:
        """It was not bound, for sure."""
        self._binds.pop(task, None)

    def settle(self, pods: Mapping[str, Pod]) -> None:
        """Drop what the store shows by now: bound, gone, ended, or another pod of that name."""
        for task, held in list(self._binds.items()):
            pod = pods.get(task)
            if (pod is None and held.sent) or (pod is not None and _is_settled(pod, held.uid)):
                del self._binds[task]
        for task, (uid, _) in list(self._evicted.items()):
            pod = pods.get(task)
            if pod is None or pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None:
                del self._evicted[task]

    def doubtful(self, now: datetime) -> tuple[AssumedBind, ...]:
        """Give those whose pod has to be read, and push their next look away, growing with the age of the doubt."""
        due = [held for held in self._binds.values() if held.sent and held.look_at <= now]
        for held in due:
            pause = min(max(now - held.since, timedelta(seconds=1)), SHOWN_WITHIN)
            self._binds[held.bind.task] = msgspec.structs.replace(held, look_at=now + pause)
        return tuple(due)

    def bindings(self) -> Mapping[str, Binding]:
        """Give what a snapshot is told."""
        return {
            task: Binding(
                node=held.bind.node, gpus=held.bind.gpus, devices=held.bind.devices, zones=held.bind.zones
            )
            for task, held in self._binds.items()
        }

    def holds(self, task: str) -> bool:
        return task in self._binds

    def since(self, task: str) -> datetime | None:
        """Give since when a bind that is still assumed is under way, or in doubt."""
        held = self._binds.get(task)
        return held.since if held is not None else None

    def __len__(self) -> int:
        return len(self._binds)

    def evicting(self, task: str, uid: str) -> None:
        """Take an eviction that is about to be sent: however long that takes, nobody else is chosen in its stead."""
        self._evicted[task] = (uid, None)

    def evicted(self, task: str, now: datetime) -> None:
        """The server took it: what is left is to see it."""
        held = self._evicted.get(task)
        if held is not None:
            self._evicted[task] = (held[0], now)

    def not_evicted(self, task: str) -> None:
        """It was refused."""
        self._evicted.pop(task, None)

    def is_evicted(self, task: str, now: datetime) -> bool:
        """Tell whether an eviction is under way, or was taken a moment ago and does not show yet."""
        held = self._evicted.get(task)
        return held is not None and (held[1] is None or now - held[1] < SHOWN_WITHIN)

    def evicting_now(self, now: datetime) -> frozenset[str]:
        """Name all of them."""
        return frozenset(task for task in self._evicted if self.is_evicted(task, now))


def _is_settled(pod: Pod, uid: str) -> bool:
    return bool(pod.spec.node_name) or pod.metadata.uid != uid or pod.status.phase in ("Succeeded", "Failed")
