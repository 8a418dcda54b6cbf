"""Budget: how many nodes of a pool may be out of service, and how many may be worked on. Pure.

Everything out of service counts, whoever took it out: NotReady, people's cordons, other automations' maintenance and our own
incidents, the ones in repair included (openshift/machine-api-operator#898). Within the limit, incidents take places in the
order in which they started; the work of those beyond it waits, so that a pool heals place by place and never stands still.
Recoveries take no place and are never held.

The Ledger is the one mutable value of the core, and lives for one plan: what one node takes is taken for the next.
"""

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime

import msgspec

from controller.breaker import NO_BURST, Burst
from controller.incident import is_open, running
from controller.terms import Terms
from kube.policy import Containment
from kube.remediation import Phase, Remediation

BUDGET = "budget"
BREAKER = "breaker"

# Contained: the node was taken out by us. Those that hold a place have begun something, or wait for a person.
CONTAINED = frozenset(
    {Phase.QUARANTINED, Phase.DRAINING, Phase.REPAIRING, Phase.REVALIDATING, Phase.ESCALATED}
)
_HOLDS_A_PLACE = CONTAINED - {Phase.QUARANTINED}

PoolKey = tuple[str, str]
"""Policy and pool."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps the next step from happening: `by` is one word, `why` a sentence without changing numbers."""

    by: str
    why: str


class Place(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The turn of an incident within its pool: who started first goes first."""

    since: datetime
    incident: str


class Pool:
    """The books of one pool. Sets hold node names; `places` and `repairing` map a node to its incident's turn.

    `next_in_line` are those on their way to a repair that nothing but their turn holds.
    """

    def __init__(self, key: PoolKey, terms: Terms) -> None:
        self.key = key
        self.terms = terms
        self.nodes: set[str] = set()
        self.out: set[str] = set()
        self.ours: set[str] = set()
        self._others = 0
        self._turns: list[Place] | None = None
        self.places: dict[str, Place] = {}
        self.repairing: dict[str, Place] = {}
        self.next_in_line: set[str] = set()
        self.burst: Burst = NO_BURST
        self.held: set[str] = set()

    @property
    def name(self) -> str:
        return self.key[1]

    def enter(
        self, node: str, *, out_of_service: bool, incidents: Iterable[Remediation], now: datetime
    ) -> None:
        """Book one node with its incidents; each node is booked once."""
        self.nodes.add(node)
        if out_of_service:
            self.out.add(node)
        for one in incidents:
            repair = running(one, now)
            if repair is not None:
                self.out.add(node)
                self.repairing[node] = Place(since=repair.started_at, incident=one.metadata.name)
            if _heads_for_repair(one):
                self.next_in_line.add(node)
            if is_open(one) and one.status.phase in CONTAINED and not self._is_left_open(one):
                self.out.add(node)
                self.ours.add(node)
                if one.status.phase in _HOLDS_A_PLACE:
                    self.places[node] = place_of(one)
        self._others += node in self.out and node not in self.ours

    def why_not_quarantine(self, node: str, *, takes_node: bool) -> Hold | None:
        """Say why this node may not be taken out. What takes the entire node may exceed the budget, up to a second limit."""
        count = len(self.out | {node})
        size = len(self.nodes)
        contained_most = max(
            self.terms.max_quarantined.of(size),
            self.terms.max_unavailable.of(size),
        )
        if node in self.burst.nodes:
            if takes_node and count <= contained_most:
                return None
            return self._hold(node, self.breaker_hold())
        if count <= self.terms.max_unavailable.of(size) or (takes_node and count <= contained_most):
            return None
        return self._hold(node, self.budget_hold())

    def take_out(self, node: str) -> None:
        """Book a quarantine that was just decided."""
        self._others -= node in self.out and node not in self.ours
        self.out.add(node)
        self.ours.add(node)

    def why_not_work(self, node: str, place: Place | None) -> Hold | None:
        """Say why nothing destructive may start on this node. `place` is its incident's turn; None = it has none yet.

        Before it come the nodes that others took out, and the incidents that began earlier.
        """
        if node in self.burst.nodes:
            return self._hold(node, self.breaker_hold())
        most = self.terms.max_unavailable.of(len(self.nodes))
        others = self._others - (node in self.out and node not in self.ours)
        if place is None:
            before = len(self.places) - (node in self.places)
        elif others + len(self.places) < most:
            before = 0  # there is room for all: no need to ask whose turn it is
        else:
            before = bisect_left(self._in_turn(), place)
        return None if others + before < most else self._hold(node, self.budget_hold())

    def take_place(self, node: str, place: Place) -> None:
        """Book work that was just decided."""
        self.places[node] = place
        self._turns = None

    def _in_turn(self) -> list[Place]:
        if self._turns is None:
            self._turns = sorted(self.places.values())
        return self._turns

    def why_not_repair(self, node: str, place: Place | None) -> Hold | None:
        """Say why no repair may start: others are in flight. `place` is the attempt's turn, None = it has none yet."""
        before = [
            other
            for other, turn in self.repairing.items()
            if other != node and (place is None or turn < place)
        ]
        return None if len(before) < self.terms.max_repairs_in_flight else self._repairs_hold(node)

    def why_not_ready(self, node: str) -> Hold | None:
        """Say why a node that works on is not taken out for its repair yet: it would only stand in line."""
        before = (self.repairing.keys() | self.next_in_line) - {node}
        return None if len(before) < self.terms.max_repairs_in_flight else self._repairs_hold(node)

    def take_turn(self, node: str) -> None:
        """Book a node that was just taken out for its repair."""
        self.next_in_line.add(node)

    def take_repair(self, node: str, place: Place) -> None:
        """Book a repair that was just decided."""
        self.repairing[node] = place

    def breaker_hold(self) -> Hold:
        terms = self.terms
        return Hold(
            by=BREAKER,
            why=f"breaker: more than {terms.breaker_threshold.text} of pool {self.name} turned ill within "
            f"{_minutes(terms)} min, so the observer is suspected",
        )

    def budget_hold(self) -> Hold:
        return Hold(
            by=BUDGET,
            why=f"budget: pool {self.name} is at its limit of {self.terms.max_unavailable.text} out of service",
        )

    def _is_left_open(self, one: Remediation) -> bool:
        """Tell an incident that came to a person, or to a proof, while its node was left in service."""
        if self.terms.containment is not Containment.NARROW or one.status.before is not None:
            return False
        return one.status.phase in (Phase.ESCALATED, Phase.REVALIDATING)

    def _repairs_hold(self, node: str) -> Hold:
        most = self.terms.max_repairs_in_flight
        why = f"budget: pool {self.name} may have {most} repair(s) in flight and has them"
        return self._hold(node, Hold(by=BUDGET, why=why))

    def _hold(self, node: str, hold: Hold) -> Hold:
        self.held.add(node)
        return hold


def place_of(remediation: Remediation) -> Place:
    """Give an incident's turn: when its drain began, else when its phase did."""
    status = remediation.status
    since = status.drain.started_at if status.drain is not None else status.phase_since
    return Place(since=since or remediation.spec.opened_at, incident=remediation.metadata.name)


def _heads_for_repair(one: Remediation) -> bool:
    """Tell an incident whose repair follows in a moment, but for one that waits for running work."""
    status = one.status
    if status.held_by not in ("", BUDGET):
        return False
    if status.phase is Phase.DRAINING and status.drain is not None:
        return status.drain.urgency == "now" or status.drain.finished_at is not None
    return status.phase is Phase.QUARANTINED


def _minutes(terms: Terms) -> int:
    return int(terms.breaker_window.total_seconds()) // 60
