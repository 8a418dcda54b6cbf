"""Who may take back from whom: gates before a search, and the test of a whole set of victims (kai.md 3.5). Pure.

"Within" always means GPU, CPU and memory together. Two queues are compared where their paths from the root part.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from controller.scheduler.amounts import RESOURCES, UNLIMITED, Amounts, all_within, within
from controller.scheduler.queues import allocatable
from controller.scheduler.rules import Rules
from controller.scheduler.state import QueueState

_MILLI = 1000


class Strategy(StrEnum):
    """Why something may be taken from a queue: it holds more than its fair share, or than its quota while another lacks."""

    MAINTAIN_FAIR_SHARE = "maintain_fair_share"
    GUARANTEE_DESERVED_QUOTA = "guarantee_deserved_quota"


def may_reclaim(queue: QueueState, amounts: Amounts, preemptible: bool) -> bool:
    """Tell whether a job may start to reclaim at all: its queue stays within its fair share, and, where the job is not
    preemptible, what is not preemptible stays within the quota."""
    if not _fits(queue.allocated, amounts, queue.fair_share):
        return False
    return preemptible or _fits(queue.allocated_np, amounts, queue.quota)


def level(reclaimer: QueueState, victim: QueueState) -> tuple[QueueState, QueueState]:
    """The two queues at which the paths part, the last ones compared where neither path parts."""
    ours, theirs = reclaimer, victim
    for ours, theirs in zip(reclaimer.path, victim.path, strict=False):
        if ours is not theirs:
            break
    return ours, theirs


def may_be_victim(reclaimer: QueueState, amounts: Amounts, victim: QueueState) -> bool:
    """Tell whether a queue's jobs may be candidates at all.

    A reclaimer that stays within its quota may look at a queue above its quota in something that it asks for, or below it
    in none; any other only at a queue above its allocatable share.
    """
    ours, theirs = level(reclaimer, victim)
    if not _fits(ours.allocated, amounts, ours.quota):
        return _is_over_allocatable(theirs, theirs.allocated)
    below = False
    for resource in RESOURCES:
        held, quota = theirs.allocated[resource], theirs.quota[resource]
        if amounts[resource] <= 0 or quota == UNLIMITED:
            continue
        if held > quota:
            return True
        below = below or held < quota
    return not below


def allows(
    strategy: Strategy, reclaimer: QueueState, amounts: Amounts, victim: QueueState, remaining: Sequence[int]
) -> bool:
    """Tell whether a strategy lets a job be taken from a queue that still holds `remaining`, the job included.

    Both queues are those at which the paths part (`level`).
    """
    if strategy is Strategy.MAINTAIN_FAIR_SHARE:
        return _is_over_allocatable(victim, remaining)
    return _fits(reclaimer.allocated, amounts, reclaimer.quota) and not all_within(remaining, victim.quota)


def scenario_allowed(
    reclaimer: QueueState,
    amounts: Amounts,
    preemptible: bool,
    victims: Iterable[tuple[QueueState, list[Amounts]]],
    saturation_milli: int,
    rules: Rules,
    spare_quota: bool = False,
) -> bool:
    """Tell whether all these victims together may be taken for a job; victims in the order in which they are taken.

    Numbers of the queues are those before anything was evicted. Rule `test_after_subtraction`: the victims may leave no
    queue below its quota in anything that they take, at any level below the common ancestor, unless the reclaimer itself
    ends within its quota; with `spare_quota` not even then. A search tries with it first and without it as the last resort,
    so that a quota which one indivisible job of others blocks can still be had.
    """
    taken = _Taken()
    parted: list[tuple[QueueState, QueueState, QueueState]] = []
    for queue, jobs in victims:
        ours, theirs = level(reclaimer, queue)
        parted.append((ours, theirs, queue))
        for job in jobs:
            left = taken.left(theirs)
            if not any(allows(strategy, ours, amounts, theirs, left) for strategy in Strategy):
                return False
            taken.take(queue, job)
    if rules.test_after_subtraction:
        for ours, theirs, queue in parted:
            entitled = not spare_quota and _fits(taken.left(ours), amounts, ours.quota)
            if not entitled and taken.leaves_below_quota(queue, theirs):
                return False
    return _stays_within_bounds(reclaimer, amounts, preemptible, taken, saturation_milli)


def spares_quota(reclaimer: QueueState, victims: Iterable[tuple[QueueState, list[Amounts]]]) -> bool:
    """Tell whether all these victims may go and leave no queue below its quota in anything that it loses."""
    taken = _Taken()
    parted = []
    for queue, jobs in victims:
        parted.append((queue, level(reclaimer, queue)[1]))
        for job in jobs:
            taken.take(queue, job)
    return not any(taken.leaves_below_quota(queue, theirs) for queue, theirs in parted)


class _Taken:
    """What queues would still hold after victims are gone, and in which resources something was taken of them."""

    __slots__ = ("_involved", "_left", "states")

    def __init__(self) -> None:
        self.states: list[QueueState] = []
        self._left: dict[str, list[int]] = {}
        self._involved: dict[str, list[bool]] = {}

    def take(self, queue: QueueState, job: Amounts) -> None:
        for state in queue.path:
            if state.name not in self._left:
                self.states.append(state)
                self._left[state.name] = list(state.allocated)
                self._involved[state.name] = [False, False, False]
            left, involved = self._left[state.name], self._involved[state.name]
            for resource in RESOURCES:
                if job[resource] > 0:
                    left[resource] -= job[resource]
                    involved[resource] = True

    def left(self, state: QueueState) -> Sequence[int]:
        return self._left.get(state.name, state.allocated)

    def involved(self, state: QueueState) -> Sequence[bool]:
        return self._involved[state.name]

    def leaves_below_quota(self, queue: QueueState, top: QueueState) -> bool:
        """Tell whether any queue is left below its quota, from one on a queue's path down to the queue itself."""
        return any(self.is_below_quota(state) for state in queue.path[queue.path.index(top) :])

    def is_below_quota(self, state: QueueState) -> bool:
        """Tell whether it is left below its quota, in anything that was taken."""
        involved, left = self._involved.get(state.name, (False, False, False)), self.left(state)
        for resource in RESOURCES:
            quota = state.quota[resource]
            if involved[resource] and quota != UNLIMITED and quota > left[resource]:
                return True
        return False


def _stays_within_bounds(
    reclaimer: QueueState, amounts: Amounts, preemptible: bool, taken: _Taken, saturation_milli: int
) -> bool:
    """Tell whether the reclaimer's queues, from the leaf up, end no fuller in proportion than siblings that give, once they
    are above their fair share themselves; and within their quota with what is not preemptible."""
    for ours in reversed(reclaimer.path):
        before = taken.left(ours)
        held = [before[resource] + amounts[resource] for resource in RESOURCES]
        for sibling in taken.states:
            if sibling.parent is not ours.parent or sibling is ours:
                continue
            given, left = taken.involved(sibling), taken.left(sibling)
            for r in RESOURCES:
                if (given[r] or amounts[r] > 0) and _is_fuller(
                    held[r], ours.fair_share[r], left[r], sibling.fair_share[r], saturation_milli
                ):
                    return False
        if not preemptible and not _fits(ours.allocated_np, amounts, ours.quota):
            return False
    return True


def _is_fuller(held: int, fair: int, left: int, sibling_fair: int, saturation_milli: int) -> bool:
    """Tell whether a queue above its fair share is, times the saturation, at least as full as a sibling that has one."""
    if fair == UNLIMITED or held <= fair or sibling_fair <= 0:
        return False
    return held * saturation_milli * sibling_fair >= left * fair * _MILLI


def _fits(held: Sequence[int], amounts: Amounts, bounds: Sequence[int]) -> bool:
    return (
        within(held[0] + amounts[0], bounds[0])
        and within(held[1] + amounts[1], bounds[1])
        and within(held[2] + amounts[2], bounds[2])
    )


def _is_over_allocatable(queue: QueueState, held: Sequence[int]) -> bool:
    return not all(within(held[resource], allocatable(queue, resource)) for resource in RESOURCES)
