"""CEL's values at run time, and how they compare. Pure.

int is Python's, kept within 64 bits; uint a class of its own; lists are tuples, maps dicts. Source: CEL language definition;
Kubernetes, pkg/cel/library, quantity.go and semverlib.go with blang/semver, for the two that it adds.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Any, Final

from kube.quantity import exact

_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII
)


class EvaluationError(Exception):
    """The expression has no value for this device. `cost`: what it took to find out."""

    cost = 0


class Uint(int):
    """An unsigned number, which is another type than int."""


class Optional:
    """A value that may be missing."""

    def __init__(self, *values: Any) -> None:
        self.values = values


class TypeValue(str):
    """A type as a value: `type(x) == string`."""


@total_ordering
class Quantity:
    def __init__(self, number: Fraction) -> None:
        self.number = number

    @classmethod
    def read(cls, text: str) -> "Quantity":
        """Raises EvaluationError."""
        try:
            return cls(exact(text))
        except ValueError as error:
            raise EvaluationError(f"quantity: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.number == other.number

    def __lt__(self, other: "Quantity") -> bool:
        return self.number < other.number

    def __hash__(self) -> int:
        return hash(self.number)


@total_ordering
class Semver:
    """A version by semver 2.0.0; what is built (behind the +) does not count."""

    def __init__(self, numbers: tuple[int, int, int], pre: tuple[str, ...]) -> None:
        self.numbers = numbers
        self._key = (
            numbers,
            not pre,
            tuple((not one.isdigit(), int(one) if one.isdigit() else 0, one) for one in pre),
        )

    @classmethod
    @lru_cache(4096)
    def read(cls, text: str, normalize: bool = False) -> "Semver":
        """Raises EvaluationError."""
        match = _VERSION.fullmatch(_normalized(text) if normalize else text)
        pre = tuple(match[4].split(".")) if match and match[4] else ()
        build = match[5].split(".") if match and match[5] else ()
        is_zeroed = any(one.isdigit() and one != "0" and one[0] == "0" for one in pre)
        if match is None or not all(pre) or not all(build) or is_zeroed:
            raise EvaluationError(f"{text[:64]!r} is no semantic version")
        return cls((int(match[1]), int(match[2]), int(match[3])), pre)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: "Semver") -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _normalized(text: str) -> str:
    """Drop a leading v and leading zeros; numbers that are missing are 0."""
    numbers = text.removeprefix("v").split(".", 2)
    for index, one in enumerate(numbers):
        bare = one.lstrip("0") if len(one) > 1 else one
        numbers[index] = bare if bare[:1].isdigit() or bare == one else f"0{bare}"
    if len(numbers) < 3:
        if set(numbers[-1]) & set("+-"):
            raise EvaluationError(f"{text[:64]!r} is no semantic version")
        numbers += ["0"] * (3 - len(numbers))
    return ".".join(numbers)


_NAMES: Final = (
    (bool, "bool"), (Uint, "uint"), (int, "int"), (float, "double"), (TypeValue, "type"), (str, "string"), (bytes, "bytes"),
    (tuple, "list"), (dict, "map"), (Quantity, "kubernetes.Quantity"), (Semver, "kubernetes.Semver"),
    (Optional, "optional_type"), (type(None), "null_type"),
)  # fmt: skip
_BY_TYPE: Final = dict(_NAMES)


def type_of(value: object) -> str:
    """Name the CEL type of a value."""
    return _BY_TYPE.get(type(value)) or next(name for kind, name in _NAMES if isinstance(value, kind))


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(one: Any, other: Any) -> bool:
    """Tell whether two values are equal; those of different types are not, numbers apart."""
    if is_number(one) and is_number(other):
        return bool(one == other)
    if type_of(one) != type_of(other):
        if isinstance(one, Quantity | Semver):
            raise EvaluationError(f"no such overload: {type_of(one)} == {type_of(other)}")
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, Optional):
        return equal(one.values, other.values)
    return bool(one == other)


def less(one: Any, other: Any) -> bool:
    """Tell whether one is less than the other. Raises EvaluationError where the two cannot be compared."""
    if not (is_number(one) and is_number(other)):
        kind = type_of(one)
        if kind != type_of(other) or kind not in ("bool", "string", "bytes"):
            raise EvaluationError(f"no such overload: {kind} < {type_of(other)}")
    return bool(one < other)


def in_range(value: int, like: object) -> int:
    """Give a whole number of the type that `like` has. Raises EvaluationError where it does not fit."""
    if isinstance(like, Uint):
        if not 0 <= value < 2**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if not -(2**63) <= value < 2**63:
        raise EvaluationError("integer overflow")
    return value


def whole(value: float, like: object) -> int:
    """Cut a double to a whole number. Raises EvaluationError."""
    if not math.isfinite(value):
        raise EvaluationError("integer overflow")
    return in_range(int(value), like)
