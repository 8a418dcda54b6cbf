"""Amounts of the three resources that queues are about: GPU in milli-GPU, CPU in millicores, memory in bytes. Pure.

Plain tuples of three integers, since a cycle adds and compares millions of them. `UNLIMITED` stands for "no bound" in quotas
and shares only, never in what something asks for or holds (KAI's convention for spec.resources of a Queue).
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

GPU: Final = 0
CPU: Final = 1
MEMORY: Final = 2
RESOURCES: Final = (GPU, CPU, MEMORY)
RESOURCE_NAMES: Final = ("GPU", "CPU", "Memory")

UNLIMITED: Final = -1
WHOLE_GPU: Final = 1000

Amounts: TypeAlias = tuple[int, int, int]
Amount: TypeAlias = tuple[str, int]
"""So much of any resource by name: CPU in millicores, memory in bytes, the rest in whole units."""
ZoneAmounts: TypeAlias = tuple[tuple[str, tuple[Amount, ...]], ...]
"""What a pod holds of each NUMA zone, by the zone's id; amounts in order of their names."""

NOTHING: Final[Amounts] = (0, 0, 0)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Add two amounts."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def minus(one: Amounts, other: Amounts) -> Amounts:
    """Take the second from the first; may go below nothing."""
    return (one[0] - other[0], one[1] - other[1], one[2] - other[2])


def within(amount: int, bound: int) -> bool:
    """Tell whether an amount is at most the bound, where both may be `UNLIMITED`."""
    if bound == UNLIMITED:
        return True
    return amount != UNLIMITED and amount <= bound


def all_within(amounts: Sequence[int], bounds: Sequence[int]) -> bool:
    """Tell whether every resource is within its bound."""
    return within(amounts[0], bounds[0]) and within(amounts[1], bounds[1]) and within(amounts[2], bounds[2])
