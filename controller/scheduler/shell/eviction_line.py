"""Whose turn it is to be evicted: a fair line, in which a slow namespace holds up itself alone. Pure but for its lock.

An admission webhook that hangs holds each eviction of its namespace for ten seconds or more. Without a bound one namespace
would soon have all evictors, and nobody else's victims would leave. A set of several victims has its namespaces for itself,
since what it asked about must hold until the last of them has left: another set could use up the same PodDisruptionBudget.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from controller.scheduler.shell.orders import VictimSet

PER_NAMESPACE: Final = 2
"""So many single victims of one namespace at a time; a quarter of the evictors."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A set in line, until it lapses (monotonic seconds)."""

    victims: VictimSet
    until: float

    @property
    def namespaces(self) -> frozenset[str]:
        return frozenset(victim.evict.task.partition("/")[0] for victim in self.victims.victims)

    @property
    def weight(self) -> int:
        """Give how much of its namespaces it takes: all where it leaves as a whole or not at all."""
        return PER_NAMESPACE if self.victims.leaves_whole else 1


class EvictionLine:
    """Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: list[Waiting] = []
        self._used: Counter[str] = Counter()

    def put(self, sets: Iterable[Waiting]) -> None:
        with self._lock:
            self._line += sets

    def take(self, now: float) -> Waiting | None:
        """Give the first set whose namespaces have room, and of whose namespaces nobody waits before it; or one that lapsed,
        since nothing is sent for it. Who takes one says when it is `done`."""
        closed: set[str] = set()
        with self._lock:
            for place, one in enumerate(self._line):
                namespaces, weight = one.namespaces, one.weight
                has_room = closed.isdisjoint(namespaces) and all(
                    self._used[name] + weight <= PER_NAMESPACE for name in namespaces
                )
                if has_room or now > one.until:
                    del self._line[place]
                    self._used.update(dict.fromkeys(namespaces, weight))
                    return one
                closed |= namespaces
        return None

    def done(self, one: Waiting) -> None:
        """Let others of its namespaces have their turn."""
        with self._lock:
            self._used.subtract(dict.fromkeys(one.namespaces, one.weight))
            self._used = +self._used
