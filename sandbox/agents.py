"""Many agents in one process: the product's own Agent, one a simulated node, driven round by round on a few threads.

For fleets of a size that no machine has processes for. What is the product's: the kernel log's reader, the checks, the fold,
the publisher, NodeHealth, the Lease. What is not: the threads (an Agent has five of its own in production), one watch of all
NodeHealths instead of one each, and tokens that are bound to the Nodes, not to pods of the DaemonSet (`sandbox.identities`).
Latencies of a single agent are measured with the real process (`sandbox.actors`).
"""

import threading
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import structlog

from agent.config import Config, parse
from agent.host.kmsg import Cursor
from agent.reader import Source, open_kernel_log
from agent.runtime import Agent
from checks.check import Check, discover
from checks.observation import Observation
from kube import paths
from kube.clock import SYSTEM, Clock
from kube.nodehealth import NodeHealth
from kube.store import Change, Store
from kube.watch import Reflector
from sandbox.agent_files import merged, settings, toml
from sandbox.identities import AgentIdentities
from sandbox.nodes import SimulatedNode
from sandbox.rounds import Round, Rounds

_TICK_THREADS = 8
_WRITE_THREADS = 8
_LEASE_THREADS = 2
_UNKNOWN_YET_S = 1.0

log = structlog.get_logger()


class PolledFeed:
    """An agent's Feed without a thread: the product's kernel-log reader, asked at each tick and never waited for."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._open = open_kernel_log(config, clock)
        self._source: Source | None = None

    @property
    def begun(self) -> bool:
        return self._source is not None

    def begin(self, boot_id: str, cursor: Cursor | None) -> None:
        self._source = self._open(boot_id, cursor)

    def end(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def take(self) -> tuple[list[Observation], Cursor | None]:
        if self._source is None:
            return [], None
        observations = self._source.poll(0.0)
        return observations, self._source.cursor if observations else None

    def hangs_s(self, now: float) -> float:  # noqa: ARG002 - the protocol's argument; nothing here can hang
        return 0.0


class HostedAgent:
    """One node's agent within a host; dies and comes back with its machine."""

    def __init__(self, host: "AgentHost", node: SimulatedNode) -> None:
        self.node = node
        self.agent: Agent | None = None
        self._host = host
        self._rounds: tuple[Round, ...] = ()
        self._tick: Round | None = None
        self._write: Round | None = None
        self._seen: object = None
        node.machine.kernel_log.on_write = self.wake

    def power_on(self) -> None:
        """Begin as a process does: with what the state folder holds, at the oldest record of the kernel log."""
        self.node.machine.kernel_log.rewind()
        config = self._host.config_of(self.node)
        agent = Agent(
            config,
            self._host.identities.of(self.node.name),
            self._host.clock,
            checks=self._host.checks,
            feed=PolledFeed(config, self._host.clock),
            probes=(),
        )
        agent.load()
        self.agent = agent
        self._write = self._host.writes.add(f"write {self.node.name}", lambda: self._go_write(agent))
        self._tick = self._host.ticks.add(f"tick {self.node.name}", lambda: self._go_tick(agent))
        self._rounds = (self._tick, self._write)
        if config.lease.namespace:
            # Spread over an interval: a fleet that starts at once must not renew at once for ever.
            after_s = self._host.random.uniform(0.0, config.lease.interval.total_seconds())
            lease = self._host.leases.add(
                f"lease {self.node.name}", lambda: self._go_lease(agent, config), after_s=min(after_s, 5.0)
            )
            self._rounds += (lease,)

    def power_off(self) -> None:
        """End at this very moment, keeping nothing that was not saved yet."""
        for job in self._rounds:
            job.end()
        if self.agent is not None:
            self.agent.feed.end()
            self.agent.nvml.end()
        self.agent, self._tick, self._write, self._rounds = None, None, None, ()

    def wake(self) -> None:
        """Look at once."""
        if self._tick is not None:
            self._tick.wake()

    def health_changed(self, change: Change, health: NodeHealth) -> None:
        """Hand over an event of this node's NodeHealth."""
        agent, write = self.agent, self._write
        if agent is not None and write is not None:
            agent.health_changed(change, health)
            self.wake()
            if change is Change.DELETED:
                write.wake()

    def _go_tick(self, agent: Agent) -> float:
        wait_s = agent.tick()
        seen = (agent.judging.node_uid, agent.judging.conditions(), agent.publisher.published)
        if (seen != self._seen or agent.write_due()) and self._write is not None:
            self._seen = seen
            self._write.wake()
        return wait_s

    def _go_write(self, agent: Agent) -> float:
        wait_s = agent.write()
        self.wake()
        return wait_s

    def _go_lease(self, agent: Agent, config: Config) -> float:
        if not agent.judging.node_uid:
            return _UNKNOWN_YET_S
        agent.lease.renew()
        return config.lease.interval.total_seconds() * self._host.random.uniform(0.9, 1.1)


class AgentHost:
    """Agents for all `nodes`, each as its own node's, from `start` until `stop`. `settings` win over the defaults."""

    def __init__(
        self,
        identities: AgentIdentities,
        nodes: Sequence[SimulatedNode],
        *,
        settings: Mapping[str, Any] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.identities = identities
        self.clock = clock
        self.checks: tuple[Check, ...] = discover()
        self.random = Random()  # noqa: S311 - jitter, not a secret
        self.ticks = Rounds("tick", _TICK_THREADS)
        self.writes = Rounds("write", _WRITE_THREADS)
        self.leases = Rounds("lease", _LEASE_THREADS)
        self._settings = merged({"listen": ""}, settings or {})
        self._stop = threading.Event()
        self.agents = {node.name: HostedAgent(self, node) for node in nodes}
        store: Store[NodeHealth] = Store()
        store.subscribe(self._health_changed)
        watch = Reflector(
            identities.shared, paths.node_healths(), NodeHealth, store, clock=clock, stop=self._stop
        )
        self._watch = threading.Thread(target=watch.run, name="healths", daemon=True)

    def start(self) -> None:
        """Start them all; each becomes its node's `agent`, so that it dies and comes back with the machine."""
        self._watch.start()
        for hosted in self.agents.values():
            hosted.node.agent = hosted
            hosted.power_on()

    def stop(self) -> None:
        """End them all. The watch itself ends with the identities."""
        self._stop.set()
        for rounds in (self.ticks, self.writes, self.leases):
            rounds.stop()
        for hosted in self.agents.values():
            hosted.node.agent = None
            hosted.node.machine.kernel_log.on_write = None
            hosted.power_off()

    def config_of(self, node: SimulatedNode) -> Config:
        """Make an agent's configuration by the product's own reader. Raises ConfigError."""
        table = merged(
            settings(node, kmsg=node.machine.kmsg, state_dir=node.machine.state_dir), self._settings
        )
        return parse(toml(table), f"the settings of {node.name}", self.checks, {})

    def _health_changed(self, change: Change, health: NodeHealth | None) -> None:
        if health is not None and health.metadata.name in self.agents:
            self.agents[health.metadata.name].health_changed(change, health)
