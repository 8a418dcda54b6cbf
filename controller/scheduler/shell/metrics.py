"""Every metric of nodemend-scheduler, in one place. Labels hold names that administrators gave, never text of tenants."""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.plan import Plan

_CYCLE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BIND_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """The registry of one scheduler and its metrics; a process may hold several (tests do)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leader = Gauge(
            "nodemend_leader", "1 on the replica that decides, else 0.", registry=self.registry
        )
        self.cycle = Histogram(
            "nodemend_scheduler_cycle_duration_seconds",
            "From reading the stores to the plan.",
            buckets=_CYCLE_BUCKETS,
            registry=self.registry,
        )
        self.bound = Histogram(
            "nodemend_scheduler_bind_wait_seconds",
            "From a pod's creation to its bind.",
            buckets=_BIND_BUCKETS,
            registry=self.registry,
        )
        self.binds = Counter(
            "nodemend_scheduler_binds_total", "Binds, by result.", ["result"], registry=self.registry
        )
        self.foreign_binds = Counter(
            "nodemend_scheduler_foreign_binds_total",
            "Pods that waited for this scheduler and were bound by somebody else while it led.",
            registry=self.registry,
        )
        self.evictions = Counter(
            "nodemend_scheduler_evictions_total",
            "Evictions, by the action that decided them and result.",
            ["action", "result"],
            registry=self.registry,
        )
        self.waiting = Gauge(
            "nodemend_scheduler_waiting_jobs", "Jobs that wait, by reason.", ["code"], registry=self.registry
        )
        self.queue = Gauge(
            "nodemend_scheduler_queue_gpus",
            "GPUs of a queue: deserved, fair_share, allocated, requested, shortage; deserved -1 = no bound.",
            ["queue", "amount"],
            registry=self.registry,
        )
        self.put_aside = Gauge(
            "nodemend_scheduler_nodes_put_aside",
            "Nodes that take no new pod since starts fail there again and again.",
            registry=self.registry,
        )
        self.suspected = Gauge(
            "nodemend_scheduler_suspected",
            "1 while the breaker is open: nobody is evicted.",
            registry=self.registry,
        )
        self.unreadable = Gauge(
            "nodemend_scheduler_unreadable_objects",
            "Objects that could not be read, or say something impossible.",
            registry=self.registry,
        )
        self.store_age = Gauge(
            "nodemend_store_age_seconds",
            "How long the server has not been heard about a resource; infinite before the first list.",
            ["store"],
            registry=self.registry,
        )
        self._stores: set[str] = set()
        self._codes: set[str] = set()
        self._queues: set[str] = set()

    def show_plan(self, plan: Plan) -> None:
        """Set everything that is read off a plan; what is gone must not alert for ever."""
        codes: dict[str, int] = {}
        for wait in plan.waits:
            codes[wait.code] = codes.get(wait.code, 0) + 1
        for code in self._codes - codes.keys():
            self.waiting.remove(code)
        for code, count in codes.items():
            self.waiting.labels(code=code).set(count)
        self._codes = set(codes)
        queues = {share.queue for share in plan.shares}
        for share in plan.shares:
            for amount, amounts in (
                ("deserved", share.deserved),
                ("fair_share", share.fair_share),
                ("allocated", share.allocated),
                ("requested", share.requested),
                ("shortage", share.shortage),
            ):
                value = amounts[0] if amounts[0] == UNLIMITED else amounts[0] / WHOLE_GPU
                self.queue.labels(queue=share.queue, amount=amount).set(value)
        for name in self._queues - queues:
            for amount in ("deserved", "fair_share", "allocated", "requested", "shortage"):
                self.queue.remove(name, amount)
        self._queues = queues

    def show_stores(self, last_heard: Mapping[str, float], now: float) -> None:
        """Set the age of each store, in seconds on the monotonic clock; infinite before the first list."""
        for name, at in last_heard.items():
            self.store_age.labels(store=name).set(now - at)
        for name in self._stores - last_heard.keys():
            self.store_age.remove(name)
        self._stores = set(last_heard)
