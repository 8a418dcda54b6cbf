"""The loop: stores -> view -> plan -> apply, on the leader, as often as something changed. Shell.

It never sleeps through a change and never spins: it turns when a store changed in a way that matters, when an answer came,
or when the plan said to look again; at most once in 20 ms, at least every 30 s. What was written goes back into the stores
before the next plan. On stores that are not in, or that the server was not heard about for too long, nothing is planned.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

import msgspec
import structlog

from controller import message, outbox
from controller.crew import Crew, owner_of
from controller.deliver import Deliverer, Errand
from controller.journal import Journal
from controller.message import Meaning
from controller.metrics import Metrics
from controller.outcome import Outcome, Result
from controller.pacing import Pacing
from controller.plan import plan
from controller.recall import Recall
from controller.sight import Sight
from controller.steps import Open, Save
from controller.stores import Stores
from controller.view import Fleet
from kube.clock import Clock
from kube.policy import RemediationPolicy
from kube.remediation import CLOSED, Notification, Remediation

log = structlog.get_logger(__name__)

SHORTEST_S = 0.02
IDLE_SHORTEST_S = 0.25  # where a tick had nothing to do, only a change brings the next one sooner
LONGEST_S = 30.0
SHOWN_EVERY_S = 1.0
STUCK_AFTER_S = 180.0
_TEACHES_NOTHING = frozenset({Result.DRY_RUN, Result.NOT_LEADER, Result.SKIPPED})
_FAILED_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn did; `wait_s` is until the next one unless something changes. `idle` says why nothing was planned."""

    outcomes: tuple[Outcome, ...] = ()
    wait_s: float = LONGEST_S
    idle: str = ""


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into every page beside the incident itself."""

    cluster: str
    meanings: Mapping[str, Meaning]


class Loop:
    """One thread runs it; `woken` is set by whoever knows of a change."""

    def __init__(
        self,
        *,
        stores: Stores,
        sight: Sight,
        crew: Crew,
        deliverer: Deliverer,
        telling: Telling,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        woken: threading.Event,
        spread: Callable[[], float],
    ) -> None:
        self._stores = stores
        self._sight = sight
        self._crew = crew
        self._deliverer = deliverer
        self._telling = telling
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._woken = woken
        self._pacing = Pacing(spread)
        self._recall = Recall()
        self._planned_on = Fleet()
        self._idle: str | None = None
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
            self._woken.wait(self._turn())
        self._take(self._crew.stop())

    def _turn(self) -> float:
        began = self._clock.monotonic()
        self._woken.clear()
        try:
            tick = self.tick()
        except (
            Exception
        ):  # the loop's outermost edge: a defect on one object must not end the others' repairs
            pause = _FAILED_PAUSES_S[min(self._failed, len(_FAILED_PAUSES_S) - 1)]
            self._failed += 1
            log.exception("tick.failed", attempt=self._failed)
            return pause
        self._failed = 0
        self._beat = self._clock.monotonic()
        self._clock.sleep(max(0.0, SHORTEST_S - (self._beat - began)))
        return tick.wait_s

    def tick(self) -> Tick:
        """Turn once."""
        self._show()
        idle = self._sight.why_not_look() or ""
        if idle and self._idle == "":
            log.warning("plan.stopped", reason=idle)
        elif self._idle and not idle:
            log.info("plan.resumed")
        if (
            not idle or self._idle is not None
        ):  # before the first plan there is nothing that could have stopped
            self._idle = idle
        if idle:
            return Tick(wait_s=1.0, idle=idle)
        with self._metrics.tick.time():
            return self._tick(self._clock.now())

    def _tick(self, now: datetime) -> Tick:
        if self._crew.state_is_open:
            return Tick(outcomes=self._take(self._crew.run(())), wait_s=SHORTEST_S)
        fleet = self._planned_on = self._sight.look(
            deliveries=self._deliverer.deliveries(),
            evictions=self._recall.evictions(),
            failures=self._recall.failures(),
        )
        if not fleet.settings.dry_run:
            self._offer_due(fleet, now)
        planned = plan(fleet, now)
        at, busy = self._clock.monotonic(), self._crew.busy
        steps = [s for s in planned.steps if owner_of(s) not in busy and self._pacing.may(s, at)]
        outcomes = self._take(self._crew.run(steps))
        self._tidy(fleet)
        if any(outcome.result not in _TEACHES_NOTHING for outcome in outcomes):
            return Tick(
                outcomes=outcomes, wait_s=SHORTEST_S
            )  # a refusal too may change the plan; pace keeps it from spinning
        return Tick(outcomes=outcomes, wait_s=self._wait(planned.recheck_at, fleet))

    def _take(self, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
        """Learn from outcomes: what was written goes into the stores, what failed is paced, all of it is told."""
        taken = tuple(outcomes)
        # Not the store: the watch may have brought the very change that is to be told.
        before = self._planned_on.remediations
        for outcome in taken:
            now, step = self._clock.now(), outcome.step
            for obj in outcome.objects:
                self._stores.offer(obj)
            self._pacing.took(outcome, self._clock.monotonic())
            self._recall.took(outcome, now)
            self._journal.took(outcome, before.get(step.name) if isinstance(step, Open | Save) else None, now)
        return taken

    def _offer_due(self, fleet: Fleet, now: datetime) -> None:
        """Hand the due rows of every outbox to their workers, and forget the answers that the rows hold by now."""
        errands: list[Errand] = []
        attempts: dict[str, int] = {}
        for owner in _owners(fleet):
            rows = owner.status.notifications
            attempts.update((row.id, row.attempts) for row in rows)
            errands += [self._errand(row, owner) for row in outbox.due(rows, now)]
        self._deliverer.recorded(attempts)
        self._deliverer.offer(errands)

    def _errand(self, row: Notification, owner: Remediation | RemediationPolicy) -> Errand:
        told = self._telling
        if isinstance(owner, Remediation):
            body = partial(message.of_incident, row, owner, cluster=told.cluster, meanings=told.meanings)
        else:
            body = partial(message.of_policy, row, owner, cluster=told.cluster)
        return Errand(id=row.id, sink=row.sink, attempt=row.attempts + 1, body=body)

    def _tidy(self, fleet: Fleet) -> None:
        open_ = [one for one in fleet.remediations.values() if one.status.phase not in CLOSED]
        self._stores.watched = frozenset(one.spec.node_name for one in open_)
        self._recall.prune(
            incidents={one.metadata.name for one in open_}, has_node=lambda name: name in fleet.nodes
        )
        self._pacing.prune(self._clock.monotonic())

    def _wait(self, recheck_at: datetime | None, fleet: Fleet) -> float:
        now, at = self._clock.now(), self._clock.monotonic()
        times = [recheck_at, *(outbox.next_due(owner.status.notifications, now) for owner in _owners(fleet))]
        waits = [(time - now).total_seconds() for time in times if time is not None]
        paced = self._pacing.next_at(at)
        if paced is not None:
            waits.append(paced - at)
        return min(LONGEST_S, max(IDLE_SHORTEST_S, min(waits, default=LONGEST_S)))

    def _show(self) -> None:
        at = self._clock.monotonic()
        if at - self._shown_at >= SHOWN_EVERY_S:
            self._shown_at = at
            self._metrics.show_stores(
                {name: store.last_heard for name, store in self._stores.all().items()}, at
            )
            self._metrics.show(self._stores.remediations.values(), self._stores.policies.values())


def _owners(fleet: Fleet) -> tuple[Remediation | RemediationPolicy, ...]:
    """Give everything that has an outbox."""
    return (*fleet.remediations.values(), *fleet.policies.values())
