"""Every metric of nodemend-controller, in one place. Values are set by the shell from what was planned and done.

Labels hold names that we chose or that an administrator gave (phases, steps, pools, sinks), never text from a kernel log.
"""

from collections import Counter as Count
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.outbox import is_waiting
from kube.policy import RemediationPolicy
from kube.remediation import Phase, Remediation

_TICK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The registry of one controller and its metrics; a process may hold several (tests do)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leader = Gauge(
            "nodemend_leader", "1 on the replica that decides, else 0.", registry=self.registry
        )
        self.incidents = Gauge(
            "nodemend_incidents", "Remediations by phase.", ["phase"], registry=self.registry
        )
        self.steps = Counter(
            "nodemend_steps_total",
            "Steps applied, by kind and result.",
            ["kind", "result"],
            registry=self.registry,
        )
        self.pool_nodes = Gauge(
            "nodemend_pool_nodes",
            "Nodes of a pool by state: all, out_of_service, quarantined, repairing.",
            ["policy", "pool", "state"],
            registry=self.registry,
        )
        self.pool_held = Gauge(
            "nodemend_pool_held",
            "1 while the budget or the breaker of a pool holds something back.",
            ["policy", "pool", "limit"],
            registry=self.registry,
        )
        self.notifications = Gauge(
            "nodemend_notifications",
            "Outbox rows by state: waiting, dead.",
            ["state"],
            registry=self.registry,
        )
        self.notification_tries = Counter(
            "nodemend_notification_tries_total",
            "Tries to send, by sink and result.",
            ["sink", "result"],
            registry=self.registry,
        )
        self.tick = Histogram(
            "nodemend_tick_duration_seconds",
            "From reading the stores to the last answer of the tick's steps.",
            buckets=_TICK_BUCKETS,
            registry=self.registry,
        )
        self.store_age = Gauge(
            "nodemend_store_age_seconds",
            "How long the server has not been heard about a resource; infinite before the first list.",
            ["store"],
            registry=self.registry,
        )
        self.events_lost = Counter(
            "nodemend_events_lost_total",
            "Events not written: the queue was full, or the server refused.",
            registry=self.registry,
        )
        self._pools: set[tuple[str, str]] = set()

    def show_stores(self, last_heard: Mapping[str, float], now: float) -> None:
        """Set the age of each store, in seconds on the monotonic clock; infinite before the first list."""
        for name, at in last_heard.items():
            self.store_age.labels(store=name).set(now - at)

    def show(self, remediations: Iterable[Remediation], policies: Iterable[RemediationPolicy]) -> None:
        """Set everything that is read off persisted state."""
        remediations, policies = tuple(remediations), tuple(policies)
        phases = Count(one.status.phase for one in remediations)
        for phase in Phase:
            self.incidents.labels(phase=phase.value).set(phases[phase])
        owners: tuple[Remediation | RemediationPolicy, ...] = (*remediations, *policies)
        rows = [row for one in owners for row in one.status.notifications]
        self.notifications.labels(state="waiting").set(sum(1 for row in rows if is_waiting(row)))
        self.notifications.labels(state="dead").set(sum(1 for row in rows if row.dead))
        self._show_pools(policies)

    def _show_pools(self, policies: Iterable[RemediationPolicy]) -> None:
        seen: set[tuple[str, str]] = set()
        for policy in policies:
            name = policy.metadata.name
            for pool in policy.status.pools:
                seen.add((name, pool.pool))
                for state, count in (
                    ("all", pool.nodes),
                    ("out_of_service", pool.out_of_service),
                    ("quarantined", pool.quarantined),
                    ("repairing", pool.repairs_in_flight),
                ):
                    self.pool_nodes.labels(policy=name, pool=pool.pool, state=state).set(count)
                for limit, held in (("budget", pool.budget), ("breaker", pool.breaker)):
                    self.pool_held.labels(policy=name, pool=pool.pool, limit=limit).set(1 if held else 0)
        for name, pool_name in self._pools - seen:  # a pool that is gone must not alert for ever
            for state in ("all", "out_of_service", "quarantined", "repairing"):
                self.pool_nodes.remove(name, pool_name, state)
            for limit in ("budget", "breaker"):
                self.pool_held.remove(name, pool_name, limit)
        self._pools = seen
