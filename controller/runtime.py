"""Wire the controller together: who holds what, what starts first, and what ends first. No decision is made here.

Order at the end, so that nothing of ours is under way once another replica may lead: the loop, its requests in flight, the
pages in flight, then the Lease is released, then the watches end.
"""

import os
import random
import threading
from collections.abc import Callable, Mapping

import structlog

from checks.check import discover as discover_checks
from controller import guards, repairs
from controller.announce import Announcer
from controller.apply import Applier, World
from controller.config import Config
from controller.connections import Apis, Election, election_for, open_sessions
from controller.crew import SLOW_WORKERS, WORKERS, Crew
from controller.deliver import Deliverer
from controller.journal import Journal
from controller.loop import Loop, Telling
from controller.message import Meaning
from controller.metrics import Metrics
from controller.server import Server
from controller.sight import Sight
from controller.stores import Stores, reflectors
from controller.view import Settings
from controller.webhook import Sender, Webhook
from kube.clock import SYSTEM, Clock
from kube.session import Session, user_agent

log = structlog.get_logger(__name__)

PROGRAM = "nodemend-controller"
_WATCH_CONNECTIONS = 16  # eight watches, and their lists beside them
_PAGES_END_S = 5.0
_EVENTS_END_S = 2.0
_LOOP_END_S = 20.0


Connect = Callable[[Config, Callable[[], float]], Apis]


def connect_all(config: Config, guard: Callable[[], float]) -> Apis:
    """Open the sessions. Raises CannotConnect."""
    return open_sessions(
        PROGRAM,
        config.kube,
        config.leader,
        guard,
        reads=_WATCH_CONNECTIONS,
        writes=WORKERS + SLOW_WORKERS + 2,
    )


class Controller:
    """One replica. `on_lost` is called when leadership is gone and must end the process."""

    def __init__(
        self,
        config: Config,
        *,
        on_lost: Callable[[str], None],
        connect: Connect = connect_all,
        senders: Mapping[str, Sender] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Raises CannotConnect, OSError (the address to listen on, a CA file)."""
        self._config = config
        self._on_lost = on_lost
        self._woken = threading.Event()
        self._leading = threading.Event()
        self._halted = threading.Event()
        self._watching_ends = threading.Event()
        guard = Election()
        self._apis = connect(config, guard.write_budget)
        self._election = election_for(config.leader, self._apis.lease, clock)
        guard.bind(self._election.write_budget)
        self._metrics = Metrics()
        self._metrics.leader.set(0)
        stores = Stores(self.wake)
        self._reflectors = reflectors(
            stores,
            self._apis.reads,
            agents_namespace=config.agents.lease_namespace,
            jobs_namespace=config.jobs.namespace,
            clock=clock,
            stop=self._watching_ends,
        )
        self._announcer = Announcer(self._apis.writes, os.environ.get("POD_NAME") or self._election.identity)
        self._deliverer = Deliverer(
            _senders(config) if senders is None else senders,
            clock,
            wake=self.wake,
            may_send=lambda: self._why_not_write() is None,
            count=lambda sink, result: self._metrics.notification_tries.labels(
                sink=sink, result=result
            ).inc(),
        )
        sight = Sight(
            stores,
            settings_of(config),
            clock,
            guard=guards.why_not_repair,
            eviction_guard=guards.why_not_evict,
            validation_guard=guards.why_not_validate,
        )
        applier = Applier(
            World(
                api=self._apis.writes,
                clock=clock,
                config=config,
                held_node=stores.nodes.get,
                why_not_repair=sight.why_not_repair,
                why_not_evict=sight.why_not_evict,
                why_not_validate=sight.why_not_validate,
                why_not_write=self._why_not_write,
            )
        )
        self._loop = Loop(
            stores=stores,
            sight=sight,
            crew=Crew(applier.apply, wake=self.wake),
            deliverer=self._deliverer,
            telling=Telling(cluster=config.cluster_name, meanings=meanings()),
            journal=Journal(self._metrics, self._announcer.say),
            metrics=self._metrics,
            clock=clock,
            woken=self._woken,
            spread=lambda: random.uniform(0.8, 1.2),  # noqa: S311 - spreads load, guards nothing
        )
        self._server = Server(
            config.listen,
            self._metrics.registry,
            why_not_healthy=self._loop.why_not_healthy,
            why_not_ready=stores.why_not_synced,
        )

    @property
    def port(self) -> int:
        """Where /metrics is, where port 0 was configured."""
        return self._server.port

    def wake(self) -> None:
        """Let the loop turn now. From any thread."""
        self._woken.set()

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set, or until the loop or the election ended by a defect; then end in order. Blocks."""
        self._server.start()
        for number, reflector in enumerate(self._reflectors):
            threading.Thread(target=reflector.run, name=f"watch-{number}", daemon=True).start()
        self._announcer.start()
        self._deliverer.start()
        electing = threading.Thread(
            target=self._election.run, args=(self._started, self._lost), name="election", daemon=True
        )
        electing.start()
        loop = threading.Thread(target=self._loop.run, args=(self._leading, stop), name="loop", daemon=True)
        loop.start()
        while loop.is_alive() and electing.is_alive() and not stop.wait(1.0):
            pass  # without its election a replica would look well and never lead
        stop.set()
        self._end(loop)

    def _end(self, loop: threading.Thread) -> None:
        self._halted.set()
        self.wake()
        loop.join(_LOOP_END_S)
        self._deliverer.stop(_PAGES_END_S)
        self._announcer.stop(_EVENTS_END_S)
        if (
            loop.is_alive()
        ):  # what hangs may still write: the Lease then passes on by itself, after its whole duration
            self._election.stop()
        else:
            self._election.release()
        self._watching_ends.set()
        for api in (self._apis.reads, self._apis.writes, self._apis.lease):
            if isinstance(api, Session):
                api.close()
        self._server.stop()
        log.info("controller.stopped")

    def _why_not_write(self) -> str | None:
        if self._halted.is_set():
            return "this replica is stopping"
        return None if self._election.write_budget() > 0 else "this replica does not lead"

    def _started(self) -> None:
        self._metrics.leader.set(1)
        self._leading.set()
        self.wake()

    def _lost(self, why: str) -> None:
        self._halted.set()
        self._metrics.leader.set(0)
        self._on_lost(why)


def settings_of(config: Config) -> Settings:
    """Give the core what it needs of the configuration."""
    return Settings(
        silent_after=config.agents.silent_after,
        retention=config.retention,
        dry_run=config.dry_run,
        repairs=frozenset(repair.name for repair in repairs.ladder()),
        sinks={name: sink.retries for name, sink in config.sinks.items()},
        system_namespaces=frozenset(
            {config.leader.namespace, config.agents.lease_namespace, config.jobs.namespace}
        ),
    )


def meanings() -> dict[str, Meaning]:
    """Give the public table's two texts of each reason."""
    return {
        reason.name: Meaning(summary=reason.summary, runbook=reason.runbook)
        for check in discover_checks()
        for reason in check.reasons
    }


def _senders(config: Config) -> dict[str, Sender]:
    agent = user_agent(PROGRAM)
    return {name: Webhook(sink, user_agent=agent) for name, sink in config.sinks.items()}
