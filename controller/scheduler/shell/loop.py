"""The loop: stores -> snapshot -> cycle -> binds and evictions, on the leader, as often as something changed. Shell.

It never sleeps through a change and never spins: it turns when something changed, when an answer came, when a pause ends,
or once a second while somebody waits; and it leaves at least as long as the last cycle took to the threads that send. On
stores that are not in, or that the server was not heard about for too long, nothing is decided.

Pauses and graces of its own run on the monotonic clock (`_steady`), so that a step of the wall clock neither ends them all
at once nor makes them last for hours; what is written into objects has the wall clock's time.
"""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from controller.outcome import Result
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Snapshot
from controller.scheduler.plan import Plan
from controller.scheduler.rules import Rules
from controller.scheduler.shell.bell import Bell
from controller.scheduler.shell.dispatch import WORKERS, Dispatch
from controller.scheduler.shell.effects import annotations_of
from controller.scheduler.shell.foreign_binds import ForeignBinds
from controller.scheduler.shell.health_watch import HealthWatch
from controller.scheduler.shell.memory import Memory
from controller.scheduler.shell.metrics import Metrics
from controller.scheduler.shell.orders import (
    BindOrder,
    GangOrder,
    half_gangs,
    tasks_of,
    together,
    victim_sets,
)
from controller.scheduler.shell.outcomes import Bound, Looked, Outcome
from controller.scheduler.shell.report import Report, Reporter
from controller.scheduler.shell.sight import Look, Sight
from controller.scheduler.shell.stores import Stores
from kube.clock import Clock

log = structlog.get_logger(__name__)

SHORTEST_S: Final = 0.05
CATCH_UP_S: Final = 0.5
PLENTY: Final = 2 * WORKERS
WAITING_S: Final = 1.0
LONGEST_S: Final = 10.0
STUCK_AFTER_S: Final = 180.0
SHOWN_EVERY_S: Final = 1.0
_FAILED_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_NONE: Final = Plan()


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The last cycle's input and outcome, for whoever asks."""

    snapshot: Snapshot | None = None
    plan: Plan = _NONE


class Loop:
    """One thread runs it; `woken` is set by whoever knows of a change."""

    def __init__(
        self,
        *,
        stores: Stores,
        sight: Sight,
        health: HealthWatch,
        memory: Memory,
        dispatch: Dispatch,
        reporter: Reporter,
        metrics: Metrics,
        foreign: ForeignBinds,
        rules: Rules,
        clock: Clock,
        woken: Bell,
        dry_run: bool,
        unreadable: Callable[[], int] = lambda: 0,
    ) -> None:
        """`unreadable` counts the objects that could not be decoded."""
        self.seen = Seen()
        self._stores = stores
        self._sight = sight
        self._health = health
        self._memory = memory
        self._dispatch = dispatch
        self._reporter = reporter
        self._metrics = metrics
        self._foreign = foreign
        self._rules = rules
        self._clock = clock
        self._woken = woken
        self._dry_run = dry_run
        self._unreadable = unreadable
        self._began = (clock.now(), clock.monotonic())
        self._idle = ""
        self._failed = 0
        self._shown_at = float("-inf")
        self._beat = clock.monotonic()

    def why_not_healthy(self) -> str | None:
        """Say that the loop hangs or fails without end; a replica that only follows is healthy."""
        silent = self._clock.monotonic() - self._beat
        return f"the loop has not turned for {silent:.0f} s" if silent > STUCK_AFTER_S else None

    def run(self, leading: threading.Event, stop: threading.Event) -> None:
        """Turn until `stop` is set, from the moment that `leading` is; then let what is under way end."""
        while not stop.is_set() and not leading.wait(1.0):
            self._show()
            self._beat = self._clock.monotonic()
        while not stop.is_set():
            self._woken.wait(self._turn(stop))
        self._take(self._dispatch.stop(), self._steady())

    def _steady(self) -> datetime:
        """Give the time that passes evenly, whatever is done to the wall clock."""
        at, monotonic = self._began
        return at + timedelta(seconds=self._clock.monotonic() - monotonic)

    def _turn(self, stop: threading.Event) -> float:
        began = self._clock.monotonic()
        self._woken.clear()
        try:
            wait_s = self.tick()
        except (
            Exception
        ):  # the loop's outermost edge: a defect on one object must not end everybody's scheduling
            pause = _FAILED_PAUSES_S[min(self._failed, len(_FAILED_PAUSES_S) - 1)]
            self._failed += 1
            log.exception("cycle.failed", attempt=self._failed)
            stop.wait(pause)  # changes come all the time, and must not make it spin
            return 0.0
        self._failed = 0
        self._beat = self._clock.monotonic()
        stop.wait(max(SHORTEST_S, self._beat - began))
        self._let_binders_catch_up(stop)
        return wait_s

    def _let_binders_catch_up(self, stop: threading.Event) -> None:
        """Leave the processor to those who send while they have plenty to do: a turn more would only lengthen their line."""
        until = self._clock.monotonic() + CATCH_UP_S
        while self._dispatch.in_line > PLENTY and self._clock.monotonic() < until and not stop.is_set():
            stop.wait(SHORTEST_S)

    def tick(self) -> float:
        """Turn once; give the seconds until the next turn unless something changes."""
        self._show()
        now, steady = self._clock.now(), self._steady()
        self._take(self._dispatch.collect(), steady)
        idle = self._sight.why_not_look() or ""
        if idle and not self._idle:
            log.warning("cycle.stopped", reason=idle)
        elif self._idle and not idle:
            log.info("cycle.resumed")
        self._idle = idle
        if idle:
            self._health.deaf()
            return WAITING_S
        self._memory.settle(self._stores.pods.snapshot())
        with self._metrics.cycle.time():
            verdict = self._health.look(now)
            look = self._sight.look(now, self._memory.known(steady), verdict)
            warm = self._health.plan(
                look.snapshot, lambda snapshot: run_cycle(snapshot, self._rules, self._ms()), self._rules
            )
        plan = self._memory.planned(warm.plan, warm.promises, look.snapshot, steady)
        self.seen = Seen(snapshot=look.snapshot, plan=plan)
        self._metrics.suspected.set(1 if verdict.suspected else 0)
        self._metrics.put_aside.set(len(verdict.aside))
        if not self._dry_run:
            self._foreign.look(look.snapshot, steady)
            self._order(plan, look, now, steady)
        self._metrics.show_plan(plan)
        self._metrics.unreadable.set(len(look.problems) + len(look.group_problems) + self._unreadable())
        if not self._dry_run:
            self._reporter.took(self._report(plan, look, now))
        return self._wait(plan, look, now, steady)

    def _ms(self) -> Callable[[], int]:
        """Give milliseconds that passed since now, which bound searches."""
        began = self._clock.monotonic()
        return lambda: int((self._clock.monotonic() - began) * 1000)

    def _order(self, plan: Plan, look: Look, now: datetime, steady: datetime) -> None:
        memory, pods = self._memory, look.pods
        tasks = tasks_of(look.snapshot)
        gangs: list[GangOrder] = []
        for job_id, binds, alone in together(plan, look.snapshot):
            group = job_id.rpartition("/")[2]
            members = tuple(
                BindOrder(
                    bind=bind,
                    pod=pods[bind.task],
                    node=look.nodes[bind.node],
                    health=look.healths.get(bind.node),
                    annotations=annotations_of(bind, tasks[bind.task], group),
                    alone=alone,
                )
                for bind in binds
                if bind.task in pods and bind.task in tasks and bind.node in look.nodes
            )
            if len(members) == len(binds):  # else a pod went meanwhile, and the next cycle sees it
                gangs.append(GangOrder(job=job_id, members=members))
        memory.ordered(gangs, steady)
        orders = [*gangs, *memory.to_prepare_again(steady)]
        self._foreign.ordered(orders)
        self._dispatch.bind(orders)
        uids = {task: pod.metadata.uid for task, pod in pods.items()}
        half = half_gangs(look.snapshot, pods, self._stores.pod_groups.snapshot())
        lost = memory.lost_gangs(half, look.snapshot, steady)
        sets = memory.evicting(victim_sets((*plan.evictions, *lost), uids), steady)
        self._dispatch.evict(sets)
        for task in memory.doubtful(steady):
            self._dispatch.read(task)
        for node, condition in self._health.conditions(now):
            self._dispatch.condition(node, condition)

    def _take(self, outcomes: Iterable[Outcome], steady: datetime) -> None:
        """Learn from what came in. Each comes in once: a defect over one must not lose the others."""
        for outcome in outcomes:
            try:
                self._take_one(outcome, steady)
            except Exception:
                log.exception("outcome.failed")

    def _take_one(self, outcome: Outcome, steady: datetime) -> None:
        if isinstance(outcome, Bound):
            self._foreign.took_bind(outcome)
            self._memory.took_bind(outcome, steady)
            self._metrics.binds.labels(result=outcome.answer.result.value).inc()
            created = outcome.order.pod.metadata.creation_timestamp
            if outcome.answer.result is Result.DONE and created is not None:
                waited = (self._clock.now() - created) / timedelta(seconds=1)
                self._metrics.bound.observe(max(0.0, waited))
        elif isinstance(outcome, Looked):
            if outcome.pod is not None:
                self._stores.pods.offer(outcome.pod)
            self._memory.looked(outcome, steady)
        else:
            self._memory.took_eviction(outcome, steady)
            result = "tried" if outcome.tried else outcome.answer.result.value
            self._metrics.evictions.labels(action=outcome.victim.evict.action, result=result).inc()

    def _report(self, plan: Plan, look: Look, now: datetime) -> Report:
        waiting = {
            job.id: tuple(task.id for task in job.tasks if task.id in look.pods and not task.node)
            for job in look.snapshot.jobs
        }
        return Report(
            plan=plan,
            snapshot=look.snapshot,
            problems=look.problems,
            group_problems=look.group_problems,
            happened=tuple(msgspec.structs.replace(one, at=now) for one in self._memory.happened()),
            waiting_pods={job: pods for job, pods in waiting.items() if pods},
            extra=look.extra,
        )

    def _wait(self, plan: Plan, look: Look, now: datetime, steady: datetime) -> float:
        is_busy = bool(plan.waits or plan.pipelined or look.extra or self._memory.is_busy)
        longest = WAITING_S if is_busy else LONGEST_S
        for until, at in ((self._memory.next_until(steady), steady), (self._health.next_until(now), now)):
            if until is not None:
                longest = min(longest, max(0.0, (until - at) / timedelta(seconds=1)))
        return longest

    def _show(self) -> None:
        at = self._clock.monotonic()
        if at - self._shown_at >= SHOWN_EVERY_S:
            self._shown_at = at
            self._metrics.show_stores(
                {name: store.last_heard for name, store in self._stores.present().items()}, at
            )
