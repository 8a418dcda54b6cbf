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
    """A set in line, until it lapses (monotonic seconds). `weight`: how much it takes of each of its namespaces."""

    victims: VictimSet
    until: float
    namespaces: frozenset[str]
    weight: int

    @property
    def makes_much_room(self) -> bool:
        """Whether several may have their turn once it has ended."""
        return self.weight > 1 or len(self.namespaces) > 1


def waiting(one: VictimSet, until: float) -> Waiting:
    """Put a set into line: one that leaves as a whole or not at all takes all of its namespaces."""
    return Waiting(
        victims=one,
        until=until,
        namespaces=frozenset(victim.evict.task.partition("/")[0] for victim in one.victims),
        weight=PER_NAMESPACE if one.leaves_whole else 1,
    )


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
                has_room = closed.isdisjoint(one.namespaces) and all(
                    self._used[name] + one.weight <= PER_NAMESPACE for name in one.namespaces
                )
                if has_room or now > one.until:
                    del self._line[place]
                    self._used.update(dict.fromkeys(one.namespaces, one.weight))
                    return one
                closed |= one.namespaces
        return None

    def done(self, one: Waiting) -> None:
        """Let others of its namespaces have their turn."""
        with self._lock:
            self._used.subtract(dict.fromkeys(one.namespaces, one.weight))
            self._used = +self._used
