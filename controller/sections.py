"""Sections: frozen structs read from TOML tables and written back as TOML. Pure; knows no key of any program.

The fields of a struct are the keys, their types decide what is read: strings, booleans, durations, lists of either, further
sections, and tables of sections by name. Problems are collected, each naming its key, so that all are said at once.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from controller.terms import parse_duration

_UNIT_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_TYPE_NAMES = {str: "a string", bool: "true or false", list: "a list", dict: "a table"}


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all sections."""


S = TypeVar("S", bound=Section)
V = TypeVar("V")


def read(kind: type[S], table: Mapping[str, Any], problems: list[str], where: str = "") -> S:
    """Make a section of a table; what is wrong goes into `problems` and leaves the default."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    problems += [
        f"{where}{key}: unknown key; known here are {', '.join(sorted(fields))}"
        for key in table
        if key not in fields
    ]
    values = {}
    for name, field in fields.items():
        if name in table:
            try:
                values[name] = _value(field.type, table[name], f"{where}{name}", problems)
            except (TypeError, ValueError) as error:
                problems.append(f"{where}{name}: {error}")
    return kind(**values)


def _value(kind: Any, value: Any, where: str, problems: list[str]) -> Any:
    if kind is timedelta:
        return _duration(value)
    if kind == tuple[timedelta, ...]:
        return tuple(_duration(item) for item in _typed(list, value))
    if kind == tuple[str, ...]:
        return tuple(_typed(str, item) for item in _typed(list, value))
    if isinstance(kind, type) and issubclass(kind, Section):
        return read(kind, _typed(dict, value), problems, f"{where}.")
    if get_origin(kind) is dict:
        section = get_args(kind)[1]
        tables = _typed(dict, value).items()
        return {
            name: read(section, _typed(dict, item), problems, f"{where}.{name}.") for name, item in tables
        }
    return _typed(kind, value)


def _duration(value: Any) -> timedelta:
    text = _typed(str, value)
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from error


def _typed(kind: type[V], value: Any) -> V:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not {_TYPE_NAMES[kind]}")
    return value


def show_duration(duration: timedelta) -> str:
    """Write a duration as `parse_duration` reads it, in whole milliseconds."""
    left = duration // timedelta(milliseconds=1)
    words = []
    for unit, size in _UNIT_MS.items():
        number, left = divmod(left, size)
        if number:
            words.append(f"{number}{unit}")
    return "".join(words) or "0s"


def write(section: Section) -> str:
    """Write a section as TOML that `read` reads back."""
    return "\n".join(_lines(section, "")).strip() + "\n"


def _lines(section: Section, name: str) -> list[str]:
    lines: list[str] = [f"[{name}]"] if name else []
    nested: list[tuple[str, Section]] = []
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        path = f"{name}.{field.name}" if name else field.name
        if isinstance(value, Section):
            nested.append((path, value))
        elif isinstance(value, dict):
            nested += [(f"{path}.{key}", item) for key, item in sorted(value.items())]
        else:
            lines.append(f"{field.name} = {_toml(value)}")
    for path, item in nested:
        lines += ["", *_lines(item, path)]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, timedelta):
        return _toml(show_duration(value))
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return msgspec.json.encode(value).decode()  # TOML's basic strings and booleans are JSON's
