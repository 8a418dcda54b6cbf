"""The agent's Lease: named as the Node, owned by it, renewed every `interval` while the agent vouches for the Node.

A Lease proves that the machine is being judged and that the Node shows it, not that a process exists: whoever owns the
loop says why it may not be renewed. Times are MicroTime, which the API server reads with exactly six digits.
"""

import threading
from collections.abc import Callable
from random import Random
from typing import Any

import structlog

from agent.config import LeaseSection
from agent.metrics import Metrics
from agent.pacing import stretched
from agent.record import owner_reference
from kube import paths
from kube.api import Api, ApiError, NotFound, PatchType
from kube.clock import Clock
from kube.timestamps import micro_time


class LeaseKeeper:
    """Owns one Lease. `node_uid` gives the UID of our Node, empty while it is not known; `why_not` why not to vouch."""

    def __init__(
        self,
        api: Api,
        name: str,
        settings: LeaseSection,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        *,
        node_uid: Callable[[], str],
        why_not: Callable[[], str | None],
    ) -> None:
        self._api = api
        self._name = name
        self._namespace = settings.namespace
        self._interval_s = settings.interval.total_seconds()
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._node_uid = node_uid
        self._why_not = why_not
        self._log = structlog.get_logger().bind(node=name)
        self._trouble = ""

    def run(self, stop: threading.Event) -> None:
        """Renew until `stop` is set. While the Node is not known yet, look every second."""
        while not stop.is_set():
            known = bool(self._node_uid())
            if known:
                self.renew()
            stop.wait(stretched(self._interval_s, self._random) if known else 1.0)

    def renew(self) -> bool:
        """Renew once, and create what is not there; give whether it stands renewed."""
        if why := self._why_not():
            self._say(f"withheld: {why}")
            self._metrics.wrote("lease", "withheld")
            return False
        try:
            self._write()
        except ApiError as error:
            self._say(f"{type(error).__name__}: {error}")
            self._metrics.wrote("lease", type(error).__name__)
            return False
        self._say("")
        self._metrics.wrote("lease", "ok")
        return True

    def _write(self) -> None:
        now = micro_time(self._clock.now())
        owners = [owner_reference(self._name, self._node_uid())]
        spec: dict[str, Any] = {
            "holderIdentity": self._name,
            "leaseDurationSeconds": max(1, round(self._interval_s * 3)),
            "renewTime": now,
        }
        body = {"metadata": {"ownerReferences": owners}, "spec": spec}
        try:
            self._api.patch(paths.lease(self._namespace, self._name), body, PatchType.MERGE)
        except NotFound:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": self._name,
                    "namespace": self._namespace,
                    "ownerReferences": owners,
                },
                "spec": {**spec, "acquireTime": now},
            }
            self._api.create(paths.leases(self._namespace), lease)

    def _say(self, trouble: str) -> None:
        """Log changes only: once when it begins to fail, once when it is well again."""
        if trouble and not self._trouble:
            self._log.warning("lease.failed", error=trouble)
        elif self._trouble and not trouble:
            self._log.info("lease.recovered")
        self._trouble = trouble
