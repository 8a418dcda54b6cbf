"""What was made of Nodes and Pods for the last snapshot, used again as long as the very same objects are there. Pure.

A store gives the same object until it changes, so identity says that nothing did. What a Node is taken for also depends on
the time (an agent falls silent), so it is made anew after some seconds. Two generations are kept: what the last snapshot did
not use is forgotten.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec

from controller.scheduler.device_selectors import Selectors
from controller.scheduler.model import Task
from controller.scheduler.nodes import Gpu, Node
from controller.scheduler.requests import Constraints
from kube.types import Pod

FOR: Final = timedelta(seconds=5)
MOST_CONSTRAINTS: Final = 10_000

T = TypeVar("T")

MadeNode = tuple[Node, tuple[Gpu, ...]]


class _Kept(msgspec.Struct, Generic[T], frozen=True):
    """`same`: objects that have to be the very same; `equal`: values that have to be equal."""

    same: tuple[object, ...]
    equal: tuple[object, ...]
    at: datetime
    made: T


class _Generations(Generic[T]):
    def __init__(self) -> None:
        self._old: dict[str, _Kept[T]] = {}
        self._new: dict[str, _Kept[T]] = {}

    def turn(self) -> None:
        self._old, self._new = self._new, {}

    def get(self, name: str, same: tuple[object, ...], equal: tuple[object, ...]) -> _Kept[T] | None:
        kept = self._old.get(name)
        if kept is None or kept.equal != equal:
            return None
        if any(one is not other for one, other in zip(kept.same, same, strict=True)):
            return None
        self._new[name] = kept
        return kept

    def keep(self, name: str, kept: _Kept[T]) -> None:
        self._new[name] = kept


class Remembered:
    """For one sequence of snapshots under the same options and rules; one thread at a time."""

    def __init__(self) -> None:
        self._nodes: _Generations[list[MadeNode]] = _Generations()
        self._tasks: _Generations[Task] = _Generations()
        self._constraints: dict[Constraints, Constraints] = {}
        self.selectors = Selectors()

    def turn(self) -> None:
        """Begin a snapshot."""
        self._nodes.turn()
        self._tasks.turn()
        self.selectors.turn()
        if len(self._constraints) > MOST_CONSTRAINTS:
            self._constraints = {}

    def node(
        self,
        name: str,
        same: tuple[object, ...],
        equal: tuple[object, ...],
        now: datetime,
        make: Callable[[], tuple[list[MadeNode], bool]],
    ) -> list[MadeNode]:
        """Give what a Node is taken for; `make` gives it anew, and whether it may be kept."""
        kept = self._nodes.get(name, same, equal)
        if kept is not None and timedelta(0) <= now - kept.at < FOR:
            return kept.made
        made, is_whole = make()
        if is_whole:
            self._nodes.keep(name, _Kept(same, equal, now, made))
        return made

    def task(
        self, name: str, pod: Pod, equal: tuple[object, ...], now: datetime, make: Callable[[], Task]
    ) -> Task:
        """Give a pod as a task; only for pods that stand for themselves (`stands_alone`). Raises what `make` does."""
        kept = self._tasks.get(name, (pod,), equal)
        if kept is not None:
            return kept.made
        made = self.shared(make())
        self._tasks.keep(name, _Kept((pod,), equal, now, made))
        return made

    def shared(self, task: Task) -> Task:
        """Give a task whose constraints are one object with equal ones, so that thousands of like pods keep a handful."""
        shared = self._constraints.setdefault(task.constraints, task.constraints)
        return task if shared is task.constraints else msgspec.structs.replace(task, constraints=shared)


def stands_alone(pod: Pod) -> bool:
    """Tell whether a pod is judged by nothing but itself: no claim, no volume of its own, no other pods, no namespaces."""
    spec = pod.spec
    return (
        not spec.resource_claims
        and spec.affinity is None
        and not spec.topology_spread_constraints
        and all(
            one.persistent_volume_claim is None and one.ephemeral is None and one.config_map is None
            for one in spec.volumes
        )
    )
