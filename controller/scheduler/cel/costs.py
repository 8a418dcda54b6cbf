"""What a selector's operations cost beyond one unit each, so that none takes time that nobody counts. Pure."""

from collections.abc import Callable
from typing import Any, Final

from controller.scheduler.cel.functions import compiled_pattern
from controller.scheduler.cel.syntax import Node
from controller.scheduler.cel.values import Optional

_A_BAD_PATTERN: Final = 5_000


def elements(value: Any, most: int) -> int:
    """Count what has to be gone through to compare a value with another one: its characters and elements, to any depth.

    A list may hold one list many times, and that another one: what is beyond `most` is not counted to its end.
    """
    found, inside = 0, [value]
    while inside and found <= most:
        one = inside.pop()
        if isinstance(one, str | bytes):
            found += len(one)
        elif isinstance(one, tuple):
            found += len(one)
            inside += one
        elif isinstance(one, dict):
            found += len(one)
            inside += one.values()
        elif isinstance(one, Optional):
            found += 1
            inside += one.values
    return found


def nodes(tree: Node) -> int:
    """Count the nodes of a tree: what is computed each time that it is gone through."""
    found, inside = 0, [tree]
    while inside:
        found += 1
        inside += inside.pop().parts
    return found


def _each_with_each(most: int, values: Any, others: Any) -> int:
    return elements(values, most) * elements(others, most) // 10


def _of_pattern(_most: int, text: Any, pattern: Any, *_rest: Any) -> int:
    """From the pattern's size, and reading it counts each time: an expression can make many of them."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        return 0
    found = compiled_pattern(pattern)
    size: int = 0 if found is None else found.programsize
    return _A_BAD_PATTERN if found is None else size // 10 + (len(text) // 10) * (size // 50)


MORE: Final[dict[str, Callable[..., int]]] = {
    "sets.contains": _each_with_each,
    "sets.equivalent": _each_with_each,
    "sets.intersects": _each_with_each,
    "matches": _of_pattern,
    "find": _of_pattern,
    "findAll": _of_pattern,
}
"""By name of a function: the units that it takes besides those for what it is given."""
