"""Whether a controller lives, judged as another candidate for its Lease would: by seeing the Lease renewed, or not.

No clock of the cluster is believed: this program runs on a person's laptop. A Lease that stayed the same for as long as it
lasts, by our own monotonic clock, is nobody's.
"""

import msgspec

from cli.failure import Exit, Failure
from cli.release_tries import tried
from cli.status import CONTROLLER_LEASE
from kube import paths
from kube.api import Api
from kube.clock import Clock
from kube.lease import Observed, observe, view

_MARGIN_S = 2.0
_LONGEST_S = 60.0  # whatever the Lease claims
_LOOK_S = 1.0


class LeaderWatch:
    """Looks at the leader's Lease from time to time. Its holder lives until it was seen unchanged for its whole duration."""

    def __init__(self, api: Api, clock: Clock, namespace: str) -> None:
        self._api = api
        self._clock = clock
        self._path = paths.lease(namespace, CONTROLLER_LEASE)
        self._seen: Observed | None = None
        self._renewed = False

    def look(self) -> str:
        """Name the holder that lives, or may live; empty for nobody. Raises Failure where the Lease cannot be read."""
        raw = tried(self._clock, f"get lease {CONTROLLER_LEASE}", lambda: self._api.get(self._path))
        now = self._clock.monotonic()
        try:
            before, self._seen = self._seen, observe(self._seen, view(raw) if raw else None, now)
        except msgspec.DecodeError as error:
            raise Failure(f"lease {CONTROLLER_LEASE} cannot be read: {error}", Exit.MISSING) from error
        record = self._seen.record
        if record is None or not record.holder:
            return ""
        if before is not None and before.since != self._seen.since:
            self._renewed = True
        lasts_s = min(max(record.duration_s, 1), _LONGEST_S) + _MARGIN_S
        return record.holder if now - self._seen.since <= lasts_s else ""

    def wait_to_know(self) -> str:
        """Look until it is certain whether somebody renews it: a moment where it is renewed, its duration where not."""
        while (holder := self.look()) and not self._renewed:
            self._clock.sleep(_LOOK_S)
        return holder
