"""Wire the scheduler together: who holds what, what starts first, and what ends first. No decision is made here.

Order at the end, so that nothing of ours is under way once another replica may lead: the loop, its requests in flight, what
is still to be told, then the Lease is released, then the watches end.
"""

import os
import threading
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from controller.connections import Apis, Election, election_for, open_sessions
from controller.scheduler.grouper.spec import Terms
from controller.scheduler.shell.bell import Bell
from controller.scheduler.shell.budgets import Budgets
from controller.scheduler.shell.catching_up import CatchingUp
from controller.scheduler.shell.config import KAI_NAME, Config
from controller.scheduler.shell.dispatch import PREPARERS, WORKERS, Dispatch
from controller.scheduler.shell.effects import Effects
from controller.scheduler.shell.evictions import EVICTORS
from controller.scheduler.shell.foreign_binds import ForeignBinds
from controller.scheduler.shell.grouping import Grouping
from controller.scheduler.shell.health_watch import HealthWatch
from controller.scheduler.shell.kai_watch import KaiWatch
from controller.scheduler.shell.look_again import LookAgain
from controller.scheduler.shell.loop import Loop
from controller.scheduler.shell.memory import Memory
from controller.scheduler.shell.metrics import Metrics
from controller.scheduler.shell.prebind import Prebind
from controller.scheduler.shell.prebind_words import Settings
from controller.scheduler.shell.report import Reporter
from controller.scheduler.shell.sight import Sight
from controller.scheduler.shell.stores import Stores, Watches
from controller.scheduler.shell.unelected import Unelected
from controller.server import Server
from kube.clock import SYSTEM, Clock
from kube.session import Session

log = structlog.get_logger(__name__)

PROGRAM: Final = "nodemend-scheduler"
_WATCH_CONNECTIONS: Final = 32  # eighteen watches, their lists, and the owners that the grouper reads
_LOOP_END_S: Final = 20.0
_TELLING_END_S: Final = 3.0
_TIDY_S: Final = 5.0
_CALM_S: Final = (
    1.0  # binds come in waves: what is written in between would take the server's time from the next one
)


Connect = Callable[[Config, Callable[[], float]], Apis]


def connect_all(config: Config, guard: Callable[[], float]) -> Apis:
    """Open the sessions. Raises CannotConnect."""
    return open_sessions(
        PROGRAM,
        config.kube,
        config.leader,
        guard,
        reads=_WATCH_CONNECTIONS,
        writes=WORKERS + PREPARERS + EVICTORS + 8,
    )


class Scheduler:
    """One replica. `on_lost` is called when leadership is gone and must end the process.

    A dry run plans beside whoever leads: it takes part in no election, and its write guard never opens.
    """

    def __init__(
        self,
        config: Config,
        *,
        on_lost: Callable[[str], None],
        connect: Connect = connect_all,
        clock: Clock = SYSTEM,
    ) -> None:
        """Raises CannotConnect, OSError (the address to listen on, a CA file)."""
        self._on_lost = on_lost
        self._clock = clock
        self._dry_run = config.dry_run
        self._bell = Bell()
        self._leading = threading.Event()
        self._halted = threading.Event()
        self._watching_ends = threading.Event()
        guard = Election()
        self._apis = apis = connect(config, guard.write_budget)
        self._election = Unelected() if config.dry_run else election_for(config.leader, apis.lease, clock)
        guard.bind(self._election.write_budget)
        self._metrics = Metrics()
        self._metrics.leader.set(0)
        self._stores = stores = Stores(self.wake, config.scheduler_name, self._bell.ring_soon)
        self._watches = Watches(
            stores,
            apis.reads,
            agents_namespace=config.agents.lease_namespace,
            clock=clock,
            stop=self._watching_ends,
        )
        serves_kai = config.scheduler_name == KAI_NAME
        self._kai = KaiWatch(apis.reads, stores.pods, clock, self.wake) if serves_kai else None
        self._grouping = Grouping(
            pods=stores.pods,
            pod_groups=stores.pod_groups,
            priority_classes=stores.priority_classes,
            reads=apis.reads,
            writes=apis.writes,
            terms=Terms(
                queue_label=config.queue_label,
                node_pool_label=config.pool_label,
                default_queue=config.default_queue,
            ),
            scheduler_name=config.scheduler_name,
            clock=clock,
            wake=self.wake,
            may_write=lambda: not config.dry_run and self._may_write(),
            calm=self._is_calm,
        )
        self._prebind = prebind = Prebind(
            api=apis.writes,
            pods=stores.pods,
            nodes=stores.nodes,
            claims=stores.claims,
            slices=stores.slices,
            taint_rules=stores.taint_rules,
            device_classes=stores.device_classes,
            volume_claims=stores.volume_claims,
            volumes=stores.volumes,
            storage_classes=stores.storage_classes,
            clock=clock,
            scheduler_name=config.scheduler_name,
            settings=Settings(wait_s=config.graces.volumes.total_seconds()),
        )
        look_again = LookAgain(stores, clock)
        catching_up = CatchingUp(apis.reads, stores.pods)
        sight = Sight(
            stores,
            self._grouping,
            config,
            clock,
            why_not=lambda: self._why_not_served() or catching_up.why_not(),
        )
        health = HealthWatch(stores, sight.leases, config)
        self._dispatch = Dispatch(
            Effects(apis.writes),
            prebind,
            lambda order: self._why_not_served() or look_again.why_not(order),
            self.wake,
            look_at_victims=lambda victims: (
                self._why_not_served() or health.suspected or look_again.why_not_evict(victims)
            ),
            look_at_budgets=Budgets(apis.writes, stores.pods).refusals,
            clock=clock,
        )
        self._reporter = Reporter(
            api=apis.writes,
            pods=stores.pods,
            pod_groups=stores.pod_groups,
            queues=stores.queues,
            clock=clock,
            instance=os.environ.get("POD_NAME") or self._election.identity,
            scheduler_name=config.scheduler_name,
            calm=self._is_calm,
            may_write=self._may_write,
            pool_label=config.pool_label,
        )
        foreign = ForeignBinds(config.scheduler_name, self._metrics.foreign_binds.inc)
        stores.pods.subscribe(foreign.see)
        self._loop = Loop(
            stores=stores,
            sight=sight,
            health=health,
            memory=Memory(config.graces),
            dispatch=self._dispatch,
            reporter=self._reporter,
            metrics=self._metrics,
            foreign=foreign,
            rules=config.rules,
            clock=clock,
            woken=self._bell,
            dry_run=config.dry_run,
            unreadable=lambda: len(self._watches.unreadable()),
        )
        self._server = Server(
            config.listen,
            self._metrics.registry,
            why_not_healthy=self._loop.why_not_healthy,
            why_not_ready=self._why_not_ready,
            pages={
                "/snapshot": lambda: msgspec.json.encode(self._loop.seen.snapshot),
                "/plan": lambda: msgspec.json.encode(self._loop.seen.plan),
            },
        )

    @property
    def port(self) -> int:
        """Where /metrics is, where port 0 was configured."""
        return self._server.port

    def wake(self) -> None:
        """Let the loop turn now. From any thread."""
        self._bell.ring()

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set, or until one of its threads ended by a defect; then end in order. Blocks."""
        self._server.start()
        self._grouping.start()
        self._watches.start()
        self._reporter.start()
        if self._kai is not None:
            threading.Thread(target=self._kai.run, args=(stop,), name="kai", daemon=True).start()
        threading.Thread(target=self._tidy, args=(stop,), name="tidy", daemon=True).start()
        electing = threading.Thread(
            target=self._election.run, args=(self._started, self._lost), name="election", daemon=True
        )
        electing.start()
        loop = threading.Thread(target=self._loop.run, args=(self._leading, stop), name="loop", daemon=True)
        loop.start()
        # Without its election a replica would look well and never lead, without its grouper it would place no new pod.
        while all((loop.is_alive(), electing.is_alive(), self._grouping.alive, self._reporter.alive)):
            if stop.wait(1.0):
                break
        stop.set()
        self._end(loop)

    def _end(self, loop: threading.Thread) -> None:
        self._halted.set()
        if self._kai is not None:
            self._kai.end()
        self.wake()
        loop.join(_LOOP_END_S)
        self._grouping.stop(_TELLING_END_S)
        self._reporter.stop(_TELLING_END_S)
        if (
            loop.is_alive()
        ):  # what hangs may still write: the Lease then passes on by itself, after its duration
            self._election.stop()
        else:
            self._election.release()
        self._watching_ends.set()
        for api in (self._apis.reads, self._apis.writes, self._apis.lease):
            if isinstance(api, Session):
                api.close()
        self._server.stop()
        log.info("scheduler.stopped")

    def _tidy(self, stop: threading.Event) -> None:
        """Take back what earlier leaders wrote for pods that were never bound."""
        while not stop.wait(_TIDY_S):
            try:
                if self._may_tidy():
                    self._prebind.tidy()
            except Exception:  # the edge of this thread: what is left over is looked at again
                log.exception("tidy.failed")

    def _may_tidy(self) -> bool:
        stores = self._stores
        is_known = stores.why_not_synced() is None and stores.why_not_fresh(self._clock.monotonic()) is None
        return is_known and not self._dry_run and self._may_write()

    def _why_not_ready(self) -> str | None:
        """Say why this replica could not take over now: it has not seen the cluster, or not for too long.

        By the very rule by which a leader stops deciding, so that an outage of some seconds takes nobody out.
        """
        stores = self._stores
        return (
            stores.why_not_synced() or stores.why_not_fresh(self._clock.monotonic()) or self._why_not_served()
        )

    def _is_calm(self) -> bool:
        return self._dispatch.quiet_s >= _CALM_S

    def _may_write(self) -> bool:
        return (
            not self._halted.is_set() and self._election.write_budget() > 0 and self._why_not_served() is None
        )

    def _why_not_served(self) -> str | None:
        """Say why nobody may serve our scheduler's name now: KAI Scheduler serves it, or may do so."""
        return self._kai.why_not() if self._kai is not None else None

    def _started(self) -> None:
        if self._kai is not None:
            self._kai.look_again()
        self._metrics.leader.set(0 if self._dry_run else 1)
        self._leading.set()
        self.wake()

    def _lost(self, why: str) -> None:
        self._halted.set()
        self._metrics.leader.set(0)
        self._on_lost(why)
