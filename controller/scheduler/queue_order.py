"""Which of two sibling queues is served first (kai.md 3.4, KAI's queue_order). Pure.

A `Key` sorts like `first`, so that a heap of queues works its keys out once and not at every comparison.
"""

from typing import TypeAlias

from controller.scheduler.amounts import RESOURCES, UNLIMITED, Amounts, within
from controller.scheduler.queues import allocatable
from controller.scheduler.state import QueueState

_RATIO_BITS = 128
"""Ratios are compared as integers of this many bits behind the point: two different ones differ in them as long as the
product of the denominators is below 2**128, and no capacity in bytes reaches 2**60."""
_NO_SHARE_PENALTY = 1000
_WHOLE = (1000, 1, 1)


class Last:
    """What decides between queues of equal shares: the smaller allocatable share, then the older, then the name."""

    __slots__ = ("queue", "shares")

    def __init__(self, queue: QueueState, shares: list[int]) -> None:
        self.queue = queue
        self.shares = shares

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Last) and other.queue is self.queue

    def __hash__(self) -> int:
        return hash(self.queue.name)

    def __lt__(self, other: "Last") -> bool:
        if self.shares != other.shares:
            smaller = self._is_smaller(other)
            if smaller != other._is_smaller(self):
                return smaller
        ours, theirs = self.queue.spec, other.queue.spec
        return (ours.created, ours.name) < (theirs.created, theirs.name)

    def _is_smaller(self, other: "Last") -> bool:
        """Tell whether none of its allocatable shares is larger than the other's."""
        return all(map(within, self.shares, other.shares))


Key: TypeAlias = tuple[bool, bool, int, bool, int, int, Last]


def key(queue: QueueState, job: Amounts, victims: Amounts, total: Amounts) -> Key:
    """Say where a queue stands among its siblings with its next job; the smallest key is served first.

    In this order: not above its fair share in every resource; within its quota with the job (before priority: quota is a
    promise); the higher priority; uses nothing of which it has no allocatable share; the lower dominant share with the
    job and without the victims chosen so far; the lower one as it is; the smaller allocatable share; the older.
    """
    held, deserved, fair = queue.allocated, queue.quota, queue.fair_share
    over_quota = penalised = False
    over_fair = fair[0] < held[0] and fair[1] < held[1] and fair[2] < held[2]
    with_job = now = 0
    shares: list[int] = []
    for resource in RESOURCES:
        holds = held[resource]
        then = holds + job[resource]
        if deserved[resource] != UNLIMITED and then > deserved[resource]:
            over_quota = True
        share = allocatable(queue, resource)
        shares.append(share)
        if share == 0 and then > 0:
            penalised = True
        if share == UNLIMITED:
            share = total[resource]
        with_job = max(with_job, _ratio(then - victims[resource], share, resource))
        now = max(now, _ratio(holds, share, resource))
    return (over_fair, over_quota, -queue.spec.priority, penalised, with_job, now, Last(queue, shares))


def _ratio(held: int, share: int, resource: int) -> int:
    """Held by share in 2**-128; held times 1000, in whole GPUs, millicores or bytes, where there is no share."""
    if share == 0:
        return (held * _NO_SHARE_PENALTY << _RATIO_BITS) // _WHOLE[resource]
    return (held << _RATIO_BITS) // share


def first(
    left: QueueState,
    right: QueueState,
    left_job: Amounts,
    right_job: Amounts,
    left_victims: Amounts,
    right_victims: Amounts,
    total: Amounts,
) -> int:
    """Compare two siblings with their next jobs: -1 the left is served first, 1 the right, 0 they are the same queue."""
    ours, theirs = key(left, left_job, left_victims, total), key(right, right_job, right_victims, total)
    if ours == theirs:
        return 0
    return -1 if ours < theirs else 1
