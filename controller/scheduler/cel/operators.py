"""What CEL's operators do with values. Pure. Source: CEL language definition."""

from collections.abc import Callable
from typing import Any, Final

from controller.scheduler.cel.values import (
    EvaluationError,
    Optional,
    equal,
    in_range,
    is_number,
    less,
    type_of,
)


def add(one: Any, other: Any) -> Any:
    kind = _same("+", one, other, ("int", "uint", "double", "string", "bytes", "list"))
    return in_range(one + other, one) if kind in ("int", "uint") else one + other


def subtract(one: Any, other: Any) -> Any:
    kind = _same("-", one, other, ("int", "uint", "double"))
    return one - other if kind == "double" else in_range(one - other, one)


def multiply(one: Any, other: Any) -> Any:
    kind = _same("*", one, other, ("int", "uint", "double"))
    return one * other if kind == "double" else in_range(one * other, one)


def divide(one: Any, other: Any) -> Any:
    """Cut towards zero."""
    kind = _same("/", one, other, ("int", "uint", "double"))
    if kind == "double":
        if not other:
            return (
                float("nan")
                if not one or one != one
                else float("inf") * one * (1 if str(other)[0] != "-" else -1)
            )
        return one / other
    if not other:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return in_range(quotient if (one < 0) == (other < 0) else -quotient, one)


def remainder(one: Any, other: Any) -> Any:
    """Of the sign of the first."""
    _same("%", one, other, ("int", "uint"))
    if not other:
        raise EvaluationError("modulus by zero")
    found = abs(one) % abs(other)
    return in_range(found if one >= 0 else -found, one)


def negate(value: Any) -> Any:
    if type_of(value) not in ("int", "double"):
        raise EvaluationError(f"no such overload: -{type_of(value)}")
    return -value if isinstance(value, float) else in_range(-value, value)


def invert(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"no such overload: !{type_of(value)}")
    return not value


def contains(one: Any, other: Any) -> bool:
    """Tell whether one is in a list, or a key of a map."""
    if isinstance(other, dict):
        return isinstance(one, str | bool | int | float) and one in other
    if not isinstance(other, tuple):
        raise EvaluationError(f"no such overload: {type_of(one)} in {type_of(other)}")
    return any(_is(one, each) for each in other)


def _is(one: Any, other: Any) -> bool:
    """Tell whether two are equal; a list may hold what a value cannot be compared with."""
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def _same(sign: str, one: Any, other: Any, kinds: tuple[str, ...]) -> str:
    kind = type_of(one)
    if kind not in kinds or type_of(other) != kind:
        raise EvaluationError(f"no such overload: {kind} {sign} {type_of(other)}")
    return kind


def select(value: Any, name: str) -> Any:
    """Give a field. Raises EvaluationError."""
    if isinstance(value, Optional):
        return optional_select(value, name)
    if not isinstance(value, dict):
        raise EvaluationError(f"no such overload: {type_of(value)}.{name}")
    found = _found(value, name)
    if found is None:
        raise EvaluationError(f"no such key: {name}")
    return found[0]


def optional_select(value: Any, name: str) -> Optional:
    """Give a field that may be missing."""
    if isinstance(value, Optional):
        return optional_select(value.values[0], name) if value.values else value
    if not isinstance(value, dict):
        raise EvaluationError(f"no such overload: {type_of(value)}.{name}")
    return Optional(*(_found(value, name) or ()))


def has(value: Any, name: str) -> bool:
    return bool(optional_select(value, name).values)


def index(value: Any, key: Any) -> Any:
    if isinstance(value, Optional):
        return optional_index(value, key)
    found = optional_index(value, key)
    if not found.values:
        what = "no such key" if isinstance(value, dict) else "index out of bounds"
        raise EvaluationError(f"{what}: {key}")
    return found.values[0]


def optional_index(value: Any, key: Any) -> Optional:
    if isinstance(value, Optional):
        return optional_index(value.values[0], key) if value.values else value
    if isinstance(value, dict):
        return Optional(*(_found(value, key) or ()))
    if not isinstance(value, tuple) or not is_number(key) or key != int(key):
        raise EvaluationError(f"no such overload: {type_of(value)}[{type_of(key)}]")
    return Optional(value[int(key)]) if 0 <= key < len(value) else Optional()


class Defaulting(dict[str, Any]):
    """A map that has an empty map for every key: Kubernetes' domains of attributes and of capacity."""


def _found(value: dict[Any, Any], key: Any) -> tuple[Any] | None:
    if isinstance(key, str | bool | int | float) and key in value:
        found = value[key]
        return (found,)
    return ({},) if isinstance(value, Defaulting) else None


BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": equal,
    "!=": lambda one, other: not equal(one, other),
    "<": less,
    "<=": lambda one, other: less(one, other) or equal(one, other),
    ">": lambda one, other: less(other, one),
    ">=": lambda one, other: less(other, one) or equal(one, other),
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
    "in": contains,
}
