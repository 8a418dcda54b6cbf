"""When each agent renewed its Lease, by this controller's own clock: a node's clock may be hours wrong. Shell.

A Lease says when its holder renewed it by the holder's clock. What counts is that the date changes, and when that was heard,
as Kubernetes' own node lifecycle controller does it. Only of a Lease that stood there before we listened the date must do,
and none is ever believed to be in the future.
"""

import threading
from datetime import datetime

import msgspec

from kube.clock import Clock
from kube.store import Change
from kube.types import Lease


class Renewal(msgspec.Struct, frozen=True):
    """`said` is the holder's date, `heard_at` ours."""

    said: datetime
    heard_at: datetime


class Renewals:
    """Subscribe `see` to the store of Leases; `dated` may be asked from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._listed = False
        self._held: dict[str, Renewal] = {}

    def see(self, change: Change, lease: Lease | None) -> None:
        """Take one event."""
        if lease is None:
            self._listed = self._listed or change is Change.SYNCED
            return
        name, said = lease.metadata.name, lease.spec.renew_time
        with self._lock:
            held = self._held.get(name)
            if change is Change.DELETED or said is None:
                self._held.pop(name, None)
            elif held is None or held.said != said:
                now = self._clock.now()
                self._held[name] = Renewal(said, now if self._listed else min(said, now))

    def dated(self, lease: Lease) -> Lease:
        """Give the Lease with the date that counts."""
        with self._lock:
            held = self._held.get(lease.metadata.name)
        if held is None or held.said != lease.spec.renew_time:
            return lease  # it changed a moment ago, and is looked at again
        return msgspec.structs.replace(
            lease, spec=msgspec.structs.replace(lease.spec, renew_time=held.heard_at)
        )
