"""Which of two sibling queues is served first (kai.md 3.4, KAI's queue_order). Pure.

A `Key` sorts like `first`, so that a heap of queues works its keys out once and not at every comparison.
"""

from math import lcm
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

    __slots__ = ("age", "shares")

    def __init__(self, queue: QueueState, shares: list[int]) -> None:
        self.age = (queue.spec.created, queue.name)
        self.shares = shares

    def __lt__(self, other: "Last") -> bool:
        if self.shares != other.shares:
            smaller = self._is_smaller(other)
            if smaller != other._is_smaller(self):
                return smaller
        return self.age < other.age

    def _is_smaller(self, other: "Last") -> bool:
        """Tell whether none of its allocatable shares is larger than the other's."""
        return all(map(within, self.shares, other.shares))


Key: TypeAlias = tuple[bool, bool, bool, int, bool, int, int, Last]


class Standing:
    """What of a queue's key stays the same for a cycle: its bounds, and what it holds is divided by.

    Ratios of the three resources have one denominator here, so that a key takes the largest numerator and divides once.
    """

    __slots__ = ("_below", "_factors", "_last", "_priority", "_without", "queue")

    def __init__(self, queue: QueueState, total: Amounts) -> None:
        self.queue = queue
        shares = [allocatable(queue, resource) for resource in RESOURCES]
        ratios = [_ratio(shares[resource], total[resource], resource) for resource in RESOURCES]
        self._below = lcm(*(below for _, below in ratios))
        gpu, cpu, memory = (above * (self._below // below) for above, below in ratios)
        self._factors = (gpu, cpu, memory)
        self._without = [resource for resource in RESOURCES if shares[resource] == 0]
        self._priority = -queue.spec.priority
        self._last = Last(queue, shares)

    def key(self, job: Amounts, victims: Amounts, has_claim: bool = False) -> Key:
        """Say where the queue stands among its siblings with its next job; the smallest key is served first.

        In this order: `has_claim` to all that the job may get, by a quota of the GPU model, since whoever gets it instead
        would be evicted from it (rule `quota_per_model`); not above its fair share in every resource; within its quota with
        the job (before priority: quota is a promise); the higher priority; uses nothing of which it has no allocatable
        share; the lower dominant share with the job and without the victims chosen so far; the lower one as it is; the
        smaller allocatable share; the older.
        """
        queue = self.queue
        gpu, cpu, memory = queue.allocated
        fair, quota = queue.fair_share, queue.quota
        with_gpu, with_cpu, with_memory = then = (gpu + job[0], cpu + job[1], memory + job[2])
        over_quota = (
            (with_gpu > quota[0] != UNLIMITED)
            or (with_cpu > quota[1] != UNLIMITED)
            or (with_memory > quota[2] != UNLIMITED)
        )
        penalised = bool(self._without) and any(then[resource] > 0 for resource in self._without)
        by_gpu, by_cpu, by_memory = self._factors
        with_job = max(
            (with_gpu - victims[0]) * by_gpu,
            (with_cpu - victims[1]) * by_cpu,
            (with_memory - victims[2]) * by_memory,
            0,
        )
        now = max(gpu * by_gpu, cpu * by_cpu, memory * by_memory, 0)
        return (
            not has_claim,
            fair[0] < gpu and fair[1] < cpu and fair[2] < memory,
            over_quota,
            self._priority,
            penalised,
            (with_job << _RATIO_BITS) // self._below,
            (now << _RATIO_BITS) // self._below,
            self._last,
        )


def _ratio(share: int, total: int, resource: int) -> tuple[int, int]:
    """Give numerator and denominator by which what is held becomes a part of the share, of the total where that has no
    bound; where there is no share, held times 1000, in whole GPUs, millicores or bytes."""
    divisor = total if share == UNLIMITED else share
    return (1, divisor) if divisor else (_NO_SHARE_PENALTY, _WHOLE[resource])


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
    here = Standing(left, total)
    there = here if right is left else Standing(right, total)
    ours, theirs = here.key(left_job, left_victims), there.key(right_job, right_victims)
    if ours == theirs:
        return 0
    return -1 if ours < theirs else 1
