"""The functions of CEL and of Kubernetes' libraries, by name. Pure.

Sources: CEL language definition, standard functions; cel-go ext, strings (version 2) and sets; Kubernetes,
pkg/cel/library: lists, regex, quantity, semver. What a function is given it checks itself, by raising EvaluationError.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2

from controller.scheduler.cel.operators import add
from controller.scheduler.cel.values import (
    EvaluationError,
    Optional,
    Quantity,
    Semver,
    TypeValue,
    Uint,
    equal,
    in_range,
    is_number,
    less,
    type_of,
    whole,
)

MOST_BYTES: Final = 1_000_000
Call = Callable[..., Any]
CALLS: Final[dict[tuple[str, bool, int], Call]] = {}
"""By name, whether it is called on a target, and number of arguments with the target."""
_SILENT = re2.Options()
_SILENT.log_errors = False
_SILENT.max_mem = 1 << 19
"""Of one pattern: a class of all letters, repeated, is 100,000 steps of RE2's and takes it a tenth of a second."""


def _takes(name: str, *kinds: str, member: bool = True) -> Callable[[Call], Call]:
    """Register a function of arguments of these types; "dyn" = any."""

    def register(call: Call) -> Call:
        def checked(*values: Any) -> Any:
            found = [type_of(value) for value in values]
            if any(kind not in ("dyn", one) for kind, one in zip(kinds, found, strict=True)):
                raise EvaluationError(f"no such overload: {name}({', '.join(found)})")
            return call(*values)

        known = CALLS.get((name, member, len(kinds)))
        CALLS[name, member, len(kinds)] = checked if known is None else _either(known, checked, kinds[0])
        return call

    return register


def _either(one: Call, other: Call, kind: str) -> Call:
    """Choose by the type of the target: the later one's, or whatever the first takes."""
    return lambda *values: (other if type_of(values[0]) == kind else one)(*values)


# Any type


def _size(value: Any) -> int:
    if not isinstance(value, str | bytes | tuple | dict) or isinstance(value, TypeValue):
        raise EvaluationError(f"no such overload: size({type_of(value)})")
    return len(value)


_takes("size", "dyn", member=False)(_size)
_takes("size", "dyn")(_size)
_takes("dyn", "dyn", member=False)(lambda value: value)
_takes("type", "dyn", member=False)(lambda value: TypeValue(type_of(value)))


@_takes("int", "dyn", member=False)
def _int(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value[value[:1] in ("+", "-") :].isdigit():
        return in_range(int(value), 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError(f"no such overload: int({type_of(value)})")
    return whole(value, 0) if isinstance(value, float) else in_range(int(value), 0)


@_takes("uint", "dyn", member=False)
def _uint(value: Any) -> int:
    if isinstance(value, str) and value.isdigit() and value.isascii():
        return in_range(int(value), Uint(0))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError(f"no such overload: uint({type_of(value)})")
    return whole(value, Uint(0)) if isinstance(value, float) else in_range(int(value), Uint(0))


@_takes("double", "dyn", member=False)
def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise EvaluationError(f"no such overload: double({type_of(value)})")
    try:
        return float(value)
    except ValueError as error:
        raise EvaluationError(f"{value!r} is no number") from error


@_takes("string", "dyn", member=False)
def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise EvaluationError("the bytes are no text") from error
    if isinstance(value, float):
        return (
            str(int(value)) if value == value and abs(value) < 1e15 and value == int(value) else repr(value)
        )
    if not isinstance(value, int | str):
        raise EvaluationError(f"no such overload: string({type_of(value)})")
    return str(value)


@_takes("bool", "dyn", member=False)
def _bool(value: Any) -> bool:
    known = {"true": True, "True": True, "TRUE": True, "t": True, "1": True}
    known |= {"false": False, "False": False, "FALSE": False, "f": False, "0": False}
    found = value if isinstance(value, bool) else known.get(value) if isinstance(value, str) else None
    if found is None:
        raise EvaluationError(f"no such overload: bool({type_of(value)})")
    return found


_takes("bytes", "string", member=False)(str.encode)


# Strings

_takes("contains", "string", "string")(lambda text, part: part in text)
_takes("startsWith", "string", "string")(lambda text, part: text.startswith(part))
_takes("endsWith", "string", "string")(lambda text, part: text.endswith(part))
_takes("trim", "string")(str.strip)
_takes("lowerAscii", "string")(lambda text: "".join(one.lower() if one.isascii() else one for one in text))
_takes("upperAscii", "string")(lambda text: "".join(one.upper() if one.isascii() else one for one in text))
_takes("indexOf", "string", "string")(lambda text, part: text.find(part))
_takes("lastIndexOf", "string", "string")(lambda text, part: text.rfind(part))
_takes("substring", "string", "int")(lambda text, begin: text[_within(begin, len(text)) :])
_takes("replace", "string", "string", "string")(lambda text, old, new: _replaced(text, old, new, -1))
_takes("replace", "string", "string", "string", "int")(lambda *parts: _replaced(*parts))
_takes("split", "string", "string")(lambda text, by: _parts(text, by, -1))
_takes("split", "string", "string", "int")(lambda text, by, most: _parts(text, by, most))
_takes("join", "list")(lambda values: _joined(values, ""))
_takes("join", "list", "string")(lambda values, between: _joined(values, between))


@_takes("charAt", "string", "int")
def _char_at(text: str, at: int) -> str:
    return text[_within(at, len(text)) : at + 1]


@_takes("indexOf", "string", "string", "int")
def _index_of(text: str, part: str, begin: int) -> int:
    if begin < 0:
        raise EvaluationError(f"index out of range: {begin}")
    return text.find(part, begin) if part else min(begin, len(text))


@_takes("lastIndexOf", "string", "string", "int")
def _last_index_of(text: str, part: str, last: int) -> int:
    if last < 0:
        raise EvaluationError(f"index out of range: {last}")
    if not part:
        return min(last, len(text))
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


@_takes("substring", "string", "int", "int")
def _substring(text: str, begin: int, end: int) -> str:
    if begin > end:
        raise EvaluationError(f"invalid substring range: {begin}, {end}")
    return text[_within(begin, len(text)) : _within(end, len(text))]


def _within(at: int, length: int) -> int:
    if not 0 <= at <= length:
        raise EvaluationError(f"index out of range: {at}")
    return at


def _replaced(text: str, old: str, new: str, most: int) -> str:
    count = text.count(old) if most < 0 else min(text.count(old), most)
    if len(text) + count * len(new) > MOST_BYTES:
        raise EvaluationError("the string becomes too long")
    return text.replace(old, new, most)


def _parts(text: str, by: str, most: int) -> tuple[str, ...]:
    if most == 0:
        return ()
    if not by:
        whole_text = tuple(text)
        return (
            whole_text if most < 0 or len(whole_text) <= most else (*whole_text[: most - 1], text[most - 1 :])
        )
    return tuple(text.split(by, most - 1 if most > 0 else -1))


def _joined(values: tuple[Any, ...], between: str) -> str:
    if any(type_of(one) != "string" for one in values):
        raise EvaluationError("no such overload: join of what are no strings")
    if sum(map(len, values)) + len(values) * len(between) > MOST_BYTES:
        raise EvaluationError("the string becomes too long")
    return between.join(values)


# Regular expressions


@lru_cache(256)
def compiled_pattern(text: str) -> Any:
    """Give a pattern, None where it is none, or too large."""
    try:
        return re2.compile(text, _SILENT)
    except re2.error:
        return None


def _pattern(text: str) -> Any:
    found = compiled_pattern(text)
    if found is None:
        raise EvaluationError(f"{text[:64]!r} is no regular expression, or too large a one")
    return found


def _matches(text: str, pattern: str) -> bool:
    return _pattern(pattern).search(text) is not None


_takes("matches", "string", "string")(_matches)
_takes("matches", "string", "string", member=False)(_matches)
_takes("findAll", "string", "string")(lambda text, pattern: _find_all(text, pattern, -1))
_takes("findAll", "string", "string", "int")(lambda text, pattern, most: _find_all(text, pattern, most))


@_takes("find", "string", "string")
def _find(text: str, pattern: str) -> str:
    found = _pattern(pattern).search(text)
    return "" if found is None else found[0]


def _find_all(text: str, pattern: str, most: int) -> tuple[str, ...]:
    found = tuple(match[0] for match in _pattern(pattern).finditer(text))
    return found if most < 0 else found[:most]


# Lists and sets


@_takes("includes", "dyn", "dyn")
def _includes(values: Any, one: Any) -> bool:
    return any(equal(each, one) for each in values) if isinstance(values, tuple) else equal(values, one)


@_takes("isSorted", "list")
def _is_sorted(values: tuple[Any, ...]) -> bool:
    return not any(_less(values[at + 1], one) for at, one in enumerate(values[:-1]))


@_takes("sum", "list")
def _sum(values: tuple[Any, ...]) -> Any:
    if not all(map(is_number, values)):
        raise EvaluationError("no such overload: sum of what are no numbers")
    total: Any = 0
    for at, one in enumerate(values):
        total = add(total, one) if at else one
    return total


@_takes("min", "list")
def _min(values: tuple[Any, ...]) -> Any:
    return _first(values, lambda one, best: _less(one, best))


@_takes("max", "list")
def _max(values: tuple[Any, ...]) -> Any:
    return _first(values, lambda one, best: _less(best, one))


def _first(values: tuple[Any, ...], is_better: Callable[[Any, Any], bool]) -> Any:
    if not values:
        raise EvaluationError("min or max of an empty list")
    best = values[0]
    for one in values[1:]:
        best = one if is_better(one, best) else best
    return best


def _less(one: Any, other: Any) -> bool:
    """Versions are comparable too, though not by an operator."""
    if isinstance(one, Semver) and isinstance(other, Semver):
        return one < other
    return less(one, other)


@_takes("indexOf", "list", "dyn")
def _index_in(values: tuple[Any, ...], one: Any) -> int:
    return next((at for at, each in enumerate(values) if equal(each, one)), -1)


@_takes("lastIndexOf", "list", "dyn")
def _last_index_in(values: tuple[Any, ...], one: Any) -> int:
    return max((at for at, each in enumerate(values) if equal(each, one)), default=-1)


@_takes("sets.contains", "list", "list", member=False)
def _contains_all(values: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(any(equal(one, each) for each in values) for one in others)


@_takes("sets.equivalent", "list", "list", member=False)
def _are_equivalent(values: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return bool(_contains_all(values, others) and _contains_all(others, values))


@_takes("sets.intersects", "list", "list", member=False)
def _intersect(values: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return any(equal(one, each) for each in values for one in others)


# Optional values

_takes("optional.none", member=False)(Optional)
_takes("optional.of", "dyn", member=False)(Optional)
_takes("optional.ofNonZeroValue", "dyn", member=False)(lambda value: Optional(value) if value else Optional())
_takes("hasValue", "optional_type")(lambda value: bool(value.values))
_takes("orValue", "optional_type", "dyn")(lambda value, other: value.values[0] if value.values else other)
_takes("or", "optional_type", "optional_type")(lambda value, other: value if value.values else other)


@_takes("value", "optional_type")
def _value(value: Optional) -> Any:
    if not value.values:
        raise EvaluationError("optional.none() has no value")
    return value.values[0]


# Kubernetes' quantities and versions

QUANTITY: Final = "kubernetes.Quantity"
SEMVER: Final = "kubernetes.Semver"
for _kind in (QUANTITY, SEMVER):
    _takes("isGreaterThan", _kind, _kind)(lambda one, other: one > other)
    _takes("isLessThan", _kind, _kind)(lambda one, other: one < other)
    _takes("compareTo", _kind, _kind)(lambda one, other: (one > other) - (one < other))
_takes("quantity", "string", member=False)(Quantity.read)
_takes("isQuantity", "string", member=False)(lambda text: _is_read(Quantity.read, text))
_takes("semver", "string", member=False)(Semver.read)
_takes("semver", "string", "bool", member=False)(Semver.read)
_takes("isSemver", "string", member=False)(lambda text: _is_read(Semver.read, text))
_takes("isSemver", "string", "bool", member=False)(lambda text, loosely: _is_read(Semver.read, text, loosely))
_takes("major", SEMVER)(lambda version: version.numbers[0])
_takes("minor", SEMVER)(lambda version: version.numbers[1])
_takes("patch", SEMVER)(lambda version: version.numbers[2])
_takes("add", QUANTITY, "dyn")(lambda one, other: Quantity(one.number + _amount(other)))
_takes("sub", QUANTITY, "dyn")(lambda one, other: Quantity(one.number - _amount(other)))
_takes("asApproximateFloat", QUANTITY)(lambda one: float(one.number))


@_takes("isInteger", QUANTITY)
def _is_integer(one: Quantity) -> bool:
    return one.number.denominator == 1 and -(2**63) <= one.number < 2**63


@_takes("asInteger", QUANTITY)
def _as_integer(one: Quantity) -> int:
    if not _is_integer(one):
        raise EvaluationError("cannot convert value to integer")
    return int(one.number)


def _is_read(read: Callable[..., object], *parts: object) -> bool:
    try:
        read(*parts)
    except EvaluationError:
        return False
    return True


def _amount(value: Any) -> Any:
    if type_of(value) not in ("int", QUANTITY):
        raise EvaluationError(f"no such overload: quantity and {type_of(value)}")
    return value.number if isinstance(value, Quantity) else value
