"""Every metric of nodemend-controller, in one place. Values are set by the shell from what was planned and done.

Labels hold names that we chose or that an administrator gave (phases, steps, pools, sinks), never text from a kernel log.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
            "How long the server has not been heard about a resource; NaN before the first list.",
            ["store"],
            registry=self.registry,
        )
        self.events_lost = Counter(
            "nodemend_events_lost_total",
            "Events not written: the queue was full, or the server refused.",
            registry=self.registry,
        )
