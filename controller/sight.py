"""What the plan sees: one Fleet made of the stores at one instant. Shell.

Where the stores cannot be trusted (not in, or not heard about for too long) it refuses to look, and says why.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

import msgspec

from controller import view
from controller.fresh import Glance, Reread
from controller.renewals import Renewals
from controller.stores import Stores
from controller.survey import Survey, survey
from controller.view import Delivery, Eviction, Failure, Fleet, Settings
from kube.clock import Clock
from kube.remediation import Remediation
from kube.store import Store, Stored
from kube.types import Node, Pod

Guard = Callable[[Fleet, Remediation, datetime, Survey | None], str | None]


class PodsOn(Mapping[str, tuple[Pod, ...]]):
    """The pods of a node, looked up when first asked for and the same from then on: one instant, without a copy of all."""

    def __init__(self, store: Store[Pod]) -> None:
        self._store = store
        self._seen: dict[str, tuple[Pod, ...]] = {}

    def __getitem__(self, node: str) -> tuple[Pod, ...]:
        if node not in self._seen:
            self._seen[node] = self._store.by_index(node)
        return self._seen[node]

    def __iter__(self) -> Iterator[str]:
        return iter({pod.spec.node_name for pod in self._store.values()} - {""})

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Sight:
    """The loop's thread looks; the three `why_not_` of the steps may be asked from any."""

    def __init__(
        self,
        stores: Stores,
        settings: Settings,
        clock: Clock,
        *,
        guard: Guard,
        eviction_guard: Guard,
        validation_guard: Guard,
    ) -> None:
        self._stores = stores
        self._renewals = Renewals(clock)
        stores.leases.subscribe(self._renewals.see)
        self._settings = settings
        self._clock = clock
        self._guard = guard
        self._eviction_guard = eviction_guard
        self._validation_guard = validation_guard
        self._heard_since: datetime | None = None
        self._latest: Fleet | None = None
        self._lock = threading.Lock()
        self._surveyed: Survey | None = None

    def why_not_look(self) -> str | None:
        """Say why the stores cannot be trusted now; a break in hearing the server starts `heard_since` anew."""
        why = self._stores.why_not_synced() or self._stores.why_not_fresh(self._clock.monotonic())
        if why:
            self._heard_since = None
        elif self._heard_since is None:
            self._heard_since = self._clock.now()
        return why

    def look(
        self,
        *,
        deliveries: Mapping[str, Delivery],
        evictions: Mapping[str, Eviction],
        failures: Mapping[str, Failure],
    ) -> Fleet:
        """Take one instant."""
        stores = self._stores
        self._latest = view.build(
            nodes=stores.nodes.values(),
            healths=stores.healths.values(),
            remediations=stores.remediations.values(),
            policies=stores.policies.values(),
            leases=map(self._renewals.dated, stores.leases.values()),
            pods=PodsOn(stores.pods),
            jobs=stores.jobs.values(),
            daemonsets=stores.daemonsets.values(),
            settings=self._settings,
            deliveries=deliveries,
            evictions=evictions,
            failures=failures,
            heard_since=self._heard_since,
        )
        return self._latest

    def why_not_repair(self, seen: Reread) -> str | None:
        """Ask the core's guard again, on what was just read of this node, within the fleet as last seen.

        Where nothing was read but what the plan saw already, one Survey serves all that are asked in the same tick.
        """
        latest = self._latest
        if latest is None:
            return "nothing was planned yet"
        now = self._clock.now()
        if _is_known(latest, seen):
            return self._guard(latest, seen.remediation, now, self._survey_of(latest, now))
        fleet = view.refreshed(
            latest,
            seen.node.metadata.name,
            node=seen.node,
            health=seen.health,
            remediation=seen.remediation,
            pods=seen.pods,
        )
        policies = {policy.metadata.name: policy for policy in seen.policies}
        return self._guard(msgspec.structs.replace(fleet, policies=policies), seen.remediation, now, None)

    def why_not_evict(self, seen: Glance) -> str | None:
        """Ask the core's guard again, on the Node and the incident as they were just read; all else as last seen."""
        return self._ask(self._eviction_guard, seen)

    def why_not_validate(self, seen: Glance) -> str | None:
        """Ask the core's guard again, as for an eviction."""
        return self._ask(self._validation_guard, seen)

    def _ask(self, guard: Guard, seen: Glance) -> str | None:
        latest = self._latest
        if latest is None:
            return "nothing was planned yet"
        now, name = self._clock.now(), seen.node.metadata.name
        if _is_held(fleet=latest, node=seen.node, remediation=seen.remediation):
            return guard(latest, seen.remediation, now, self._survey_of(latest, now))
        fleet = view.refreshed(
            latest, name, node=seen.node, health=latest.healths.get(name), remediation=seen.remediation
        )
        return guard(fleet, seen.remediation, now, None)

    def _survey_of(self, fleet: Fleet, now: datetime) -> Survey:
        with self._lock:
            if self._surveyed is None or self._surveyed.fleet is not fleet:
                self._surveyed = survey(fleet, now)
            return self._surveyed


def _is_known(fleet: Fleet, seen: Reread) -> bool:
    """Tell whether every object that was just read is of the version that the fleet holds."""
    name = seen.node.metadata.name
    if not _is_held(fleet=fleet, node=seen.node, remediation=seen.remediation):
        return False
    if not _is_same(fleet.healths.get(name), seen.health):
        return False
    if {_version(policy) for policy in fleet.policies.values()} != {_version(p) for p in seen.policies}:
        return False
    return {_version(pod) for pod in fleet.pods.get(name, ())} == {_version(pod) for pod in seen.pods}


def _is_held(*, fleet: Fleet, node: Node, remediation: Remediation) -> bool:
    return _is_same(fleet.nodes.get(node.metadata.name), node) and _is_same(
        fleet.remediations.get(remediation.metadata.name), remediation
    )


def _is_same(held: Stored | None, read: Stored) -> bool:
    return held is not None and _version(held) == _version(read)


def _version(obj: Stored) -> tuple[str, str]:
    return (obj.metadata.uid, obj.metadata.resource_version)
