"""What a queue used of the cluster in the past, older use counting less: `Queue.usage` for shells with a history. Pure.

KAI takes it from Prometheus (docs/time-based-fairshare): the integral of 0.5**(age / half-life) times what was held, by the
same integral of the capacity. Integers only, so that a replay gives the same shares on every machine.
"""

from collections.abc import Sequence
from datetime import datetime
from math import isqrt

from controller.scheduler.amounts import NOTHING, RESOURCES, Amounts
from controller.scheduler.values import Value

_ONE = 1 << 60
_STEPS = 16
_MILLIONTHS = 1_000_000


class Sample(Value, frozen=True, kw_only=True):
    """What a queue held and what the cluster had, from `at` until the next sample."""

    at: datetime
    held: Amounts
    capacity: Amounts


def _roots() -> tuple[int, ...]:
    """2**-(1/2), 2**-(1/4), ... in units of 2**-60."""
    roots = [_ONE >> 1]
    for _step in range(_STEPS):
        roots.append(isqrt(roots[-1] * _ONE))
    return tuple(roots[1:])


_ROOTS = _roots()


def weight(age_s: int, half_life_s: int) -> int:
    """0.5**(age / half-life) in units of 2**-60, exact to about a hundred-thousandth."""
    halvings, part = divmod(age_s, half_life_s)
    fraction = (part << _STEPS) // half_life_s
    value = _ONE
    for step, root in enumerate(_ROOTS):
        if fraction >> (_STEPS - 1 - step) & 1:
            value = value * root // _ONE
    return value >> halvings


def decayed(
    samples: Sequence[Sample], now: datetime, window_s: int, half_life_s: int = 0
) -> tuple[int, int, int]:
    """Say what share of the capacity a queue held within the window, in millionths, in the order of `amounts.RESOURCES`.

    Samples are in order of time; the last one holds until now. Half-life 0 = all of the window counts alike. The integral
    of the weight over a span is, but for a factor that cancels out, the difference of the weights at its ends.
    """
    held, capacity = list(NOTHING), list(NOTHING)
    for index, sample in enumerate(samples):
        end = samples[index + 1].at if index + 1 < len(samples) else now
        oldest = min(_seconds(now, sample.at), window_s)
        newest = min(_seconds(now, end), window_s)
        if oldest <= newest:
            continue
        span = (
            weight(newest, half_life_s) - weight(oldest, half_life_s) if half_life_s > 0 else oldest - newest
        )
        for resource in RESOURCES:
            held[resource] += sample.held[resource] * span
            capacity[resource] += sample.capacity[resource] * span
    gpu, cpu, memory = (held[r] * _MILLIONTHS // capacity[r] if capacity[r] > 0 else 0 for r in RESOURCES)
    return gpu, cpu, memory


def _seconds(now: datetime, then: datetime) -> int:
    """Whole seconds since, never below 0."""
    return max(0, (now - then).days * 86_400 + (now - then).seconds)
