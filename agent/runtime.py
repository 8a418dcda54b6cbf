"""The running agent: one judging loop, and the threads that read and write for it.

    reader, nvml, probes ► loop ──conditions──► API server (nodes/status)
                           │ ▲
                   reports ▼ │ news (the Node, what is asked of us)
                    writer ──► API server (NodeHealth), state file        watches ──► news        lease, http

The loop judges and sends conditions and does nothing slower, so that neither NodeHealth nor a full disk nor a storm of
warnings ever stands before a new fault. All else happens in the writer. Many Agents may live in one process: nothing here
is global. `tick` and `write` are one round of the two, for whoever wants to go step by step.
"""

import threading
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import assert_never

import structlog

from agent.config import Config
from agent.events import EventWriter
from agent.hearing import Hearing
from agent.host.inventory import Inventory, InventoryFailed, read_inventory
from agent.host.kmsg import Cursor
from agent.judging import Judging
from agent.kubelet_feed import Kubelet
from agent.lease import LeaseKeeper
from agent.machine import BOOT_LOOK_S, Machine
from agent.metrics import Metrics
from agent.node_health import Change, kernel_log_position
from agent.nvml_feed import NvmlFeed, wish_of
from agent.own_node import Asked, Gone, Mailbox, Met, OwnNode, Seen
from agent.own_watch import own_watch
from agent.probes import Probe, Probes
from agent.probing import probes_of
from agent.publish import Publisher
from agent.reader import Feed, KernelLogFeed, open_kernel_log
from agent.record import Recorder
from agent.server import Pages, Server, serve
from agent.state_file import Saver, State, StateFile, StateUnusable
from agent.vitals import Vitals
from checks.check import Check, discover
from checks.observation import KERNEL_LOG, KernelRecord, Observation
from kube import paths
from kube.api import Api
from kube.clock import SYSTEM, Clock
from kube.nodehealth import NodeHealth, Released
from kube.store import Change as StoreChange
from kube.types import Node

JUDGE_S = 60.0
# How long the kernel log stays unopened until NodeHealth has said how far it was judged: the state file may be older.
WAIT_FOR_NODE_S = 10.0


def agent_version() -> str:
    """Give the installed version of nodemend."""
    try:
        return version("nodemend")
    except PackageNotFoundError:
        return "unknown"


class Agent:
    """One node's agent. `run` blocks until `stop` is set; set it and call `wake` to end at once instead of in seconds."""

    def __init__(
        self,
        config: Config,
        api: Api,
        clock: Clock = SYSTEM,
        *,
        checks: Sequence[Check] | None = None,
        random: Random | None = None,
        feed: Feed | None = None,
        kubelet: Kubelet | None = None,
        nvml: NvmlFeed | None = None,
        probes: Sequence[Probe] | None = None,
        inventory: Callable[[], Inventory | InventoryFailed] | None = None,
    ) -> None:
        name = config.node_name
        random = random or Random()  # noqa: S311 - jitter, not a secret
        self._config = config
        self._api = api
        self._clock = clock
        self._log = structlog.get_logger().bind(node=name)
        self._version = agent_version()
        self._woken = threading.Event()
        self._writer_woken = threading.Event()
        self._mailbox = Mailbox(self._woken.set)
        self._state_file = StateFile(config.state_dir)
        self.metrics = Metrics(self._version)
        self.vitals = Vitals(clock)
        self.machine = Machine(
            config.roots.proc,
            inventory or (lambda: read_inventory(config.roots.sys, config.roots.proc)),
            clock,
        )
        self.feed = feed or KernelLogFeed(open_kernel_log(config, clock), clock, random, self._woken.set)
        self.nvml = nvml or NvmlFeed(config.nvml, clock, random, self._woken.set, self.metrics)
        looked_at = probes_of(config) if probes is None else probes
        self.probes = Probes(looked_at, clock, random, self._woken.set)
        sources = [probe.source for probe in looked_at]
        self.judging = Judging(discover() if checks is None else checks, config, looked_at=sources)
        self.hearing = Hearing(config, self.judging, clock, random, self._woken.set, kubelet)
        self.publisher = Publisher(api, name, config.publish, clock, random, self.metrics)
        wake_writer = self._writer_woken.set
        self.recorder = Recorder(api, name, config.publish, clock, random, self.metrics, wake_writer)
        self.events = EventWriter(api, name, clock, self.metrics)
        self.own_node = OwnNode(api, name, clock, random, self._mailbox.put)
        self.saver = Saver(self._state_file, clock, self.metrics, wake_writer)
        self.lease = LeaseKeeper(
            api,
            name,
            config.lease,
            clock,
            random,
            self.metrics,
            node_uid=lambda: self.judging.node_uid,
            why_not=lambda: self.vitals.why_not_alive() or self.publisher.why_not_delivered(),
        )
        self._met: Met | None = None
        self._saved: State | None = None
        self._shown: object = None
        self._released: Released | None = None
        self._broken: dict[str, str] = {}
        self._judge_at = clock.monotonic()
        self._judged_at: float | None = None
        self._open_at = clock.monotonic() + WAIT_FOR_NODE_S

    # Threads

    def run(self, stop: threading.Event) -> None:
        """Judge and publish until `stop` is set, then save the last state. Raises OSError where `listen` cannot be had."""
        server = serve(self._config.listen, self.pages(), self._config.state_dir / "listen")
        self.load()
        writer = threading.Thread(target=self._write_rounds, args=(stop,), name="writer", daemon=True)
        threads = [writer, *self._watches(stop)]
        if self._config.lease.namespace:
            threads.append(threading.Thread(target=self.lease.run, args=(stop,), name="lease", daemon=True))
        for thread in threads:
            thread.start()
        self._log.info("agent.started", version=self._version, state_dir=str(self._config.state_dir))
        try:
            while not stop.is_set():
                self._woken.clear()
                self._woken.wait(self._guarded_tick())
        finally:
            self._close(server, writer)

    def wake(self) -> None:
        """Let the loop and the writer look at once whether something is to do, or whether to end."""
        self._woken.set()
        self._writer_woken.set()

    def save(self) -> None:
        """Save the present state now."""
        self.saver.offer(self.judging.state(self._clock.now()), urgent=True)
        self.saver.flush()

    def _close(self, server: Server | None, writer: threading.Thread) -> None:
        self._writer_woken.set()
        self.feed.end()
        self.hearing.end()
        self.nvml.end()
        self.probes.end()
        writer.join(timeout=2.0)
        self.save()
        if server is not None:
            server.stop()
        self._log.info("agent.stopped")

    def _guarded_tick(self) -> float:
        try:
            return self.tick()
        except Exception:  # noqa: BLE001 - the loop's outermost edge; its heartbeat stands still, so the probe fails
            self._log.exception("round.failed")
            return 1.0

    def _write_rounds(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                wait_s = self.write()
            except Exception:  # noqa: BLE001 - the writer's outermost edge; its heartbeat stands still
                self._log.exception("write.failed")
                wait_s = 5.0
            self._writer_woken.wait(min(wait_s, 60.0))

    # Rounds

    def write_due(self) -> bool:
        """Say whether the writer was woken since its last round, for whoever drives the rounds without threads."""
        return self._writer_woken.is_set()

    def write(self) -> float:
        """One round of the writer: state file, Node, NodeHealth, Events. Give the seconds until the next makes sense."""
        self._writer_woken.clear()
        waits = (self.saver.step(), self.own_node.step(), self.recorder.step(), self.events.step())
        self.vitals.writer_went_round()
        return max(0.0, min(waits))

    def tick(self) -> float:
        """One round of the loop: take what came in, judge, publish; give the seconds until the next makes sense."""
        changed = self._look_at_machine()
        changed = self._take_news() or changed
        observations, cursor = self.feed.take()
        observations += [*self.nvml.take(), *self.probes.take()]
        changed = changed or self.nvml.released != self._released
        judged = changed or bool(observations) or self._clock.monotonic() >= self._judge_at
        if judged:
            self._judge(observations, cursor)
        before, failing = self.publisher.node, self.publisher.failing
        wait_s = self.publisher.step()
        if failing and not self.publisher.failing:
            self.recorder.hurry()
        if before is not None and self.publisher.node is None:
            self.own_node.doubt()
            self._writer_woken.set()
        heard = self.hearing.round()
        if judged or heard or before is not self.publisher.node:
            self._report()
        self._begin_reading()
        self.vitals.loop_went_round()
        return max(0.0, min(wait_s, self._judge_at - self._clock.monotonic(), BOOT_LOOK_S))

    def _look_at_machine(self) -> bool:
        look = self.machine.look()
        changed = False
        if look.boot_id is not None and look.boot_id != self.judging.boot_id:
            self._begin_boot(look.boot_id)
            changed = True
        if look.boot_error and not self.judging.boot_id and self.judging.cannot_tell_boot(look.boot_error):
            self._log.error("boot.unreadable", error=look.boot_error)
            changed = True
        if look.inventory is not None:
            news = self.judging.count_parts(look.inventory)
            changed = news or changed
            if news and self.judging.inventory_error:
                self._log.warning("inventory.unreadable", error=self.judging.inventory_error)
        return changed

    def _begin_boot(self, boot_id: str) -> None:
        before = self.judging.boot_id
        self.feed.end()
        why_not = self.judging.begin_boot(boot_id, self._saved)
        if why_not:
            self.metrics.state_file_errors.inc()
            self._log.error("state.discarded", error=why_not)
        # What stands in the memories is held against NodeHealth.
        self.judging.judge((), None, self._clock.now(), 0)
        self._log.info("boot.began", boot_id=boot_id, before=before, resumed=self.judging.cursor is not None)
        if not before and self._met is not None:
            self.judging.node_uid = ""  # what NodeHealth holds of this boot can be read back only now
            self._meet(self._met)

    def _take_news(self) -> bool:
        changed = False
        for news in self._mailbox.take():
            match news:
                case Met():
                    self._meet(news)
                    changed = True
                case Seen(node=node):
                    self.publisher.saw(node)
                    changed = self.judging.see(node) or changed
                case Gone():
                    self.publisher.forget()
                    self.judging.node_uid = ""
                    changed = True
                case Asked(spec=spec):
                    cleared = spec.cleared_before != self.judging.cleared_before
                    changed = self.judging.ask(spec) or changed
                    if cleared:
                        self._log.info("findings.cleared", before=str(spec.cleared_before))
                case _:
                    assert_never(news)
        return changed

    def _meet(self, met: Met) -> None:
        before, self._met = self._met, met
        uid = met.node.metadata.uid
        status = met.health.status if met.health is not None else None
        ours = status if status is not None and status.node_uid == uid else None
        self.judging.meet(met.node, met.health)
        self.publisher.meet(met.node, ours.published_conditions if ours is not None else ())
        self.recorder.meet(exists=met.health is not None)
        if ours is not None and not self.feed.begun:
            self.judging.go_on_from(kernel_log_position(ours, KERNEL_LOG, boot_id=self.judging.boot_id))
        if before is None or before.node.metadata.uid != uid:
            self._log.info("node.met", uid=uid, health=met.health is not None)

    def _judge(self, observations: Sequence[Observation], cursor: Cursor | None) -> None:
        before = self.judging.states
        at = self._clock.monotonic()
        watched_s = at - self._judged_at if self._judged_at is not None else 0.0
        changed = self.judging.judge(observations, cursor, self._clock.now(), round(watched_s * 1000))
        self._judged_at, self._judge_at = at, at + JUDGE_S
        read_at = [seen.seen_at for seen in observations if isinstance(seen, KernelRecord)]
        since = min(read_at) if changed and read_at else None
        self.publisher.want(self.judging.conditions(), self.judging.kept(), since)
        self.metrics.observed(observations)
        for name, state in self.judging.states.items():
            failures = state.failures - before[name].failures
            if failures > 0:
                self.metrics.check_failures.labels(name).inc(failures)
            if state.broken and self._broken.get(name) != state.broken:
                self._log.error("check.failed", check=name, error=state.broken, traceback=state.traceback)
            self._broken[name] = state.broken

    def _report(self) -> None:
        self._released = self.nvml.released
        report = self.judging.report(self._version, self.publisher.published, self._released)
        news = self.recorder.offer(report)
        self.events.offer(report.findings, report.node_uid)
        self.saver.offer(self.judging.state(self._clock.now()), urgent=news is Change.FACTS)
        conditions = self.judging.conditions()
        shown = (conditions, [(name, finding.key(), finding.severity) for name, finding in report.findings])
        if shown != self._shown:
            self._shown = shown
            self.metrics.judged(conditions, report.findings)
        self.metrics.sources(self.judging.sources)

    def _begin_reading(self) -> None:
        """Open the kernel log once it is known where to begin: with NodeHealth, or a little later without it.

        NVML waits for the same, since an incident or the Node's labels may ask that no handle be held.
        """
        judging = self.judging
        known = self._met is not None or self._clock.monotonic() >= self._open_at
        if not self.feed.begun and judging.boot_id and known:
            self.feed.begin(judging.boot_id, judging.cursor)
        self.nvml.follow(judging.boot_id, wish_of(judging), may_begin=known)
        self.probes.follow(judging.boot_id, may_begin=known)

    # Around it

    def load(self) -> None:
        """Read the state file; what cannot be used is said, and left out."""
        try:
            self._saved = self._state_file.load()
        except StateUnusable as error:
            self.metrics.state_file_errors.inc()
            self._log.error("state.discarded", error=str(error))

    def _watches(self, stop: threading.Event) -> list[threading.Thread]:
        api, name, clock = self._api, self._config.node_name, self._clock
        return [
            own_watch(api, paths.nodes(), Node, name, self.node_changed, clock, stop),
            own_watch(api, paths.node_healths(), NodeHealth, name, self.health_changed, clock, stop),
        ]

    def node_changed(self, change: StoreChange, node: Node | None) -> None:
        """Take an event of our own Node: what it shows now, or that it is another one or gone."""
        if self.own_node.hurry():
            self._writer_woken.set()
        if node is None or node.metadata.name != self._config.node_name:
            return
        if change is not StoreChange.DELETED and node.metadata.uid == self.judging.node_uid:
            self._mailbox.put(Seen(node=node))
        elif self.judging.node_uid:
            self.own_node.doubt()
            self._writer_woken.set()

    def health_changed(self, change: StoreChange, health: NodeHealth | None) -> None:
        """Take an event of our own NodeHealth: a new clearing, or that somebody deleted it. None: a list is without it."""
        if health is None and not self.recorder.exists:
            return
        if health is None or change is StoreChange.DELETED:
            self.own_node.doubt()
            self._writer_woken.set()
        else:
            self._mailbox.put(Asked(spec=health.spec))

    def pages(self) -> Pages:
        """Give what is served over HTTP."""
        return Pages(
            why_not_healthy=lambda: self.vitals.why_not_healthy(self.feed.hangs_s(self._clock.monotonic())),
            why_not_ready=self.why_not_ready,
            metrics=lambda: self.metrics.exposition(self.vitals.loop_age_s(), self.vitals.writer_age_s()),
        )

    def why_not_ready(self) -> str | None:
        """Say why nothing was published yet, or None after the first time."""
        if self.publisher.ready:
            return None
        if self.publisher.trouble:
            return f"the conditions could not be published: {self.publisher.trouble}"
        if self.publisher.node is None:
            return f"the Node {self._config.node_name} has not been read yet"
        return "no condition has been published yet"
