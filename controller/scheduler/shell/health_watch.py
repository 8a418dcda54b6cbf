"""What the scheduler knows of health besides what a snapshot holds, from its stores, kept between cycles. Shell.

The judging is pure and lies in `suspicion`, `start_failures` and `replacement_plans`; this holds their memory and asks them
only where something changed.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from controller import view
from controller.scheduler.model import Snapshot
from controller.scheduler.plan import Plan
from controller.scheduler.rules import Rules
from controller.scheduler.shell.config import Config
from controller.scheduler.shell.replacement_plans import Warm, could_move, plan_with_replacements
from controller.scheduler.shell.replacements import Phantom, leaving
from controller.scheduler.shell.start_failures import CONDITION, StartFailures, condition_of, put_aside
from controller.scheduler.shell.starts import workload_key
from controller.scheduler.shell.stores import Stores
from controller.scheduler.shell.suspicion import Memory, suspected, unseen
from controller.scheduler.unseen import Unseen
from kube.types import Lease, Node, NodeCondition, Pod

LOOK_AGAIN: Final = timedelta(seconds=5)
"""Whether so many nodes turned ill within some minutes changes by time alone, too."""
MOVE_AGAIN: Final = timedelta(seconds=30)
"""It costs a cycle to find out where else a gang could start, so it is asked seldom."""
SAY_AGAIN: Final = timedelta(seconds=30)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`suspected`: the breaker's words; `aside`: nodes put aside and why; `held_back`: why pods of a key wait (a pod group's
    or a workload's, see `StartFailures.holding`).
    """

    suspected: str = ""
    unseen: Unseen = Unseen.ADMIT
    aside: Mapping[str, str] = {}
    probing: Mapping[str, int] = {}
    held_back: Mapping[str, str] = {}


class HealthWatch:
    """Owned by the loop's thread."""

    def __init__(self, stores: Stores, leases: Callable[[], Mapping[str, Lease]], config: Config) -> None:
        self._stores = stores
        self._leases = leases
        self._config = config
        self._settings = view.Settings(silent_after=config.agents.silent_after)
        self._failures = StartFailures(config.graces.start_failures)
        self._seen: tuple[object, ...] = ()
        self._memory = Memory()
        self._heard_since: datetime | None = None
        self._suspected = ("", datetime.min.replace(tzinfo=UTC))
        self._phantoms: tuple[Phantom, ...] = ()
        self._moved: dict[str, tuple[datetime, tuple[str, ...]]] = {}
        self._said: dict[str, tuple[NodeCondition, datetime]] = {}

    @property
    def suspected(self) -> str:
        """The breaker's words as of the last look, "" = closed; from any thread."""
        return self._suspected[0]

    def deaf(self) -> None:
        """The server was not heard: an agent is not called silent for a time in which nobody could have heard it."""
        self._heard_since = None

    def look(self, now: datetime) -> Verdict:
        """Judge this instant."""
        if self._heard_since is None:
            self._heard_since = now
        pool = self._pool()
        self._failures.took(self._stores.pods.snapshot().values(), now)
        pauses = self._failures.holding(now)
        return Verdict(
            suspected=self._why_suspected(pool, now),
            unseen=unseen(self._stores.policies.values(), tuple(pool.values()), Unseen(self._config.unseen)),
            aside=self._failures.aside(now, pool),
            probing=self._failures.probing(now, pool),
            held_back={key: one.why for key, one in pauses.items()},
        )

    def plan(self, snapshot: Snapshot, run: Callable[[Snapshot], Plan], rules: Rules) -> Warm:
        """Decide a cycle, with room for gang members that are about to be drained."""
        gone = leaving(self._stores.remediations.values(), self._stores.nodes.values())
        warm = plan_with_replacements(
            snapshot, gone, self._phantoms, run, lambda seen, job: self._elsewhere(seen, job, rules)
        )
        self._phantoms = warm.phantoms
        return warm

    def conditions(self, now: datetime) -> list[tuple[Node, NodeCondition]]:
        """Give the conditions that have to be written on Nodes; each is given once until it shows, or a while passed."""
        pool = self._pool()
        findings = self._failures.findings(now, pool)
        found = []
        self._said = {name: said for name, said in self._said.items() if name in pool}
        for name, node in pool.items():
            if name not in findings and node.condition(CONDITION) is None:
                continue
            wanted = condition_of(node, findings.get(name, ""), now)
            if wanted is None:
                self._said.pop(name, None)
                continue
            said = self._said.get(name)
            if said is not None and said[0].message == wanted.message and abs(now - said[1]) < SAY_AGAIN:
                continue
            self._said[name] = (wanted, now)
            found.append((node, wanted))
        return found

    def next_until(self, now: datetime) -> datetime | None:
        """Give when something changes by time alone."""
        return self._failures.next_until(now)

    def _pool(self) -> Mapping[str, Node]:
        label, pool = self._config.pool_label, self._config.pool
        nodes = self._stores.nodes.snapshot()
        return {name: node for name, node in nodes.items() if node.metadata.labels.get(label, "") == pool}

    def _why_suspected(self, pool: Mapping[str, Node], now: datetime) -> str:
        stores = self._stores
        seen = (
            stores.nodes.snapshot(),
            stores.healths.snapshot(),
            stores.policies.snapshot(),
            stores.remediations.snapshot(),
        )
        why, at = self._suspected
        is_same = len(seen) == len(self._seen) and all(
            one is other for one, other in zip(seen, self._seen, strict=True)
        )
        if is_same and abs(now - at) < LOOK_AGAIN:  # either way: the wall clock may step back
            return why
        fleet = view.build(
            nodes=stores.nodes.values(),
            healths=stores.healths.values(),
            remediations=stores.remediations.values(),
            policies=stores.policies.values(),
            leases=self._leases().values(),
            pods={},
            jobs=(),
            daemonsets=(),
            settings=self._settings,
            heard_since=self._heard_since,
        )
        why = suspected(fleet, now, pool.keys(), self._memory)
        self._seen, self._suspected = seen, (why, now)
        return why

    def _elsewhere(self, snapshot: Snapshot, job: str, rules: Rules) -> tuple[str, ...]:
        known = self._moved.get(job)
        if known is None or abs(snapshot.now - known[0]) >= MOVE_AGAIN:
            known = (snapshot.now, could_move(snapshot, job, rules))
            self._moved = {**dict(list(self._moved.items())[-99:]), job: known}
        return known[1]


def narrowed(snapshot: Snapshot, verdict: Verdict) -> Snapshot:
    """Give the snapshot in which nodes that were put aside take no new pod."""
    return put_aside(snapshot, verdict.aside, verdict.probing)


def why_held_back(job: str, pods: list[Pod], verdict: Verdict) -> str:
    """Say why a job waits since kubelet turned its pods, or its workload's, away before; "" = it does not."""
    if not verdict.held_back:
        return ""
    keys = [job, *(f"workload {workload_key(pod)}" for pod in pods[:1])]
    return next((verdict.held_back[key] for key in keys if key in verdict.held_back), "")
