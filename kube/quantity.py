"""Kubernetes quantities as exact integers. Source: k8s.io/apimachinery, pkg/api/resource, Quantity.

A part of the unit asked for is rounded up, as Kubernetes does: what asks for less than one asks for one.
"""

import re
from fractions import Fraction
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE])([+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")
_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}
_LONGEST_EXPONENT = 30
_REMEMBERED = 4096  # a cluster has a few dozen different ones, asked for thousands of times a cycle


@lru_cache(_REMEMBERED)
def whole(text: str) -> int:
    """Give a quantity in whole units: bytes, GPUs, pods.

    Raises: ValueError where it is none.
    """
    return _up(exact(text))


@lru_cache(_REMEMBERED)
def milli(text: str) -> int:
    """Give a quantity in thousandths: millicores, milli-GPU.

    Raises: ValueError where it is none.
    """
    return _up(exact(text) * 1000)


def _up(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


def exact(text: str) -> Fraction:
    """Give a quantity as it is.

    Raises: ValueError where it is none.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None or (found[4] and abs(int(found[4])) > _LONGEST_EXPONENT):
        raise ValueError(
            f"{text[:40]!r} is no quantity: must be a number with a suffix such as m, k, Gi or e3, or none"
        )
    number = Fraction(found[2].rstrip("."))
    if found[4]:
        number *= Fraction(10) ** int(found[4])
    elif found[5]:
        number *= _SUFFIXES[found[5]]
    return -number if found[1] == "-" else number
