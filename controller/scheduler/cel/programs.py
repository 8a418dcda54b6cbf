"""Compile a selector, and ask it about devices. Pure.

A tree becomes nested functions of the variables in scope. Cost: one unit for each operation, for each ten characters or
elements that it goes through, and for each ten nodes of a macro's body each time; `costs` has what some functions take
besides. A selector that needs more than `MOST_COST` for one device has no value for it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from controller.scheduler.cel import operators
from controller.scheduler.cel.costs import MORE, elements, nodes
from controller.scheduler.cel.functions import CALLS
from controller.scheduler.cel.syntax import Node, parse
from controller.scheduler.cel.tokens import CompileError
from controller.scheduler.cel.values import EvaluationError, Optional, TypeValue, Uint, type_of

MOST_COST: Final = 10_000
_MOST_ELEMENTS: Final = MOST_COST * 10
_COST: Final = ""  # where the scope has it: no variable is called so
FIELDS: Final = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_NAMESPACES: Final = frozenset({"cel", "sets", "optional"})
_TYPES: Final = ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type")

Scope = dict[str, Any]
Run = Callable[[Scope], Any]


class CostExceeded(EvaluationError):
    """The selector takes too long for any device."""


class Program:
    """One selector, compiled."""

    def __init__(self, run: Run, size: int) -> None:
        self._run = run
        self._size = size

    def matches(self, device: Mapping[str, Any]) -> tuple[bool, int]:
        """Tell whether a device matches, and what it cost. Raises EvaluationError."""
        cost = [self._size // 10]
        try:
            return self._answer({"device": device, _COST: cost}), cost[0]
        except EvaluationError as error:
            error.cost = cost[0]
            raise

    def _answer(self, scope: Scope) -> bool:
        try:
            found = self._run(scope)
        except RecursionError as error:
            raise CostExceeded("the selector is nested too deeply") from error
        except (ValueError, OverflowError) as error:  # numbers and texts that Python does not convert
            raise EvaluationError(str(error)) from error
        if not isinstance(found, bool):
            raise EvaluationError(f"the selector gives a {type_of(found)}, which is no bool")
        return found


# A few more than are ever in use at once; one of 10 KiB, the longest that there is, may take a megabyte.
@lru_cache(512)
def compiled(expression: str) -> Program | str:
    """Give a selector's program, or why it cannot be used."""
    try:
        tree = parse(expression)
        return Program(_compile(tree, ("device",)), nodes(tree))
    except RecursionError:
        return "is nested too deeply"
    except ValueError as error:
        return str(error)


def _compile(node: Node, names: tuple[str, ...]) -> Run:
    known = _KINDS.get(node.kind)
    if known is not None:
        return known(node, names)
    operator = operators.BINARY[node.kind]
    left, right = (_compile(part, names) for part in node.parts)

    def run(scope: Scope) -> Any:
        one, other = left(scope), right(scope)
        _spend(scope, one, other)
        return operator(one, other)

    return run


def _spend(scope: Scope, *values: Any, units: int = 1) -> None:
    cost = scope[_COST]
    cost[0] += units
    for value in values:
        if isinstance(value, str | bytes):
            cost[0] += len(value) // 10
        elif isinstance(value, tuple | dict | Optional):
            cost[0] += elements(value, _MOST_ELEMENTS) // 10
    if cost[0] > MOST_COST:
        raise CostExceeded("the selector takes too long")


def _literal(node: Node, _: tuple[str, ...]) -> Run:
    value = Uint(node.value) if node.name == "uint" and isinstance(node.value, int) else node.value
    return lambda _: value


def _name(node: Node, names: tuple[str, ...]) -> Run:
    name = node.name
    if name in names:
        return lambda scope: scope[name]
    if name in _TYPES:
        value = TypeValue(name)
        return lambda _: value
    raise CompileError(f"undeclared reference to {name!r}")


def _select(node: Node, names: tuple[str, ...]) -> Run:
    name, (target,) = node.name, node.parts
    if target == Node("name", "device") and "device" in names and name not in FIELDS:
        raise CompileError(f"undefined field {name!r} of device")
    of = _compile(target, names)
    pick = operators.select if node.kind == "select" else operators.optional_select
    return lambda scope: pick(of(scope), name)


def _index(node: Node, names: tuple[str, ...]) -> Run:
    of, at = (_compile(part, names) for part in node.parts)
    pick = operators.index if node.kind == "index" else operators.optional_index
    return lambda scope: pick(of(scope), at(scope))


def _unary(node: Node, names: tuple[str, ...]) -> Run:
    of = _compile(node.parts[0], names)
    operator = operators.negate if node.kind == "negate" else operators.invert
    return lambda scope: operator(of(scope))


def _either(node: Node, names: tuple[str, ...]) -> Run:
    """|| and &&: a side that decides counts, even where another one has no value. A long chain is no deep one."""
    chain: list[Node] = []
    first = node
    while first.kind == node.kind:
        chain.append(first.parts[1])
        first = first.parts[0]
    sides = [_compile(part, names) for part in (first, *reversed(chain))]
    decides = node.kind == "||"

    return lambda scope: _decided(((side, scope) for side in sides), node.kind, decides=decides)


def _decided(sides: Iterable[tuple[Run, Scope]], where: str, *, decides: bool) -> bool:
    """Give what the first side that decides says, or else the other answer. Raises what a side had instead of a value."""
    failed: EvaluationError | None = None
    for side, scope in sides:
        try:
            value: object = side(scope)
            if value is decides:
                return decides
            if not isinstance(value, bool):
                raise EvaluationError(f"no such overload: {type_of(value)} {where}")
        except CostExceeded:
            raise
        except EvaluationError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return not decides


def _if(node: Node, names: tuple[str, ...]) -> Run:
    condition, yes, no = (_compile(part, names) for part in node.parts)

    def run(scope: Scope) -> Any:
        value = condition(scope)
        if not isinstance(value, bool):
            raise EvaluationError(f"no such overload: {type_of(value)} ? :")
        return yes(scope) if value else no(scope)

    return run


def _list(node: Node, names: tuple[str, ...]) -> Run:
    parts = [(_compile(part, names), at in node.optional) for at, part in enumerate(node.parts)]

    def run(scope: Scope) -> tuple[Any, ...]:
        found: list[Any] = []
        for part, is_optional in parts:
            value = part(scope)
            found.extend(_optional(value).values if is_optional else (value,))
        return tuple(found)

    return run


def _map(node: Node, names: tuple[str, ...]) -> Run:
    parts = [_compile(part, names) for part in node.parts]

    def run(scope: Scope) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for at in range(0, len(parts), 2):
            key, value = parts[at](scope), parts[at + 1](scope)
            if type_of(key) not in ("string", "int", "uint", "bool"):
                raise EvaluationError(f"unsupported key type: {type_of(key)}")
            if at // 2 not in node.optional:
                found[key] = value
            elif _optional(value).values:
                found[key] = value.values[0]
        return found

    return run


def _optional(value: Any) -> Optional:
    if not isinstance(value, Optional):
        raise EvaluationError(f"no such overload: ?{type_of(value)}")
    return value


def _call(node: Node, names: tuple[str, ...]) -> Run:
    name, parts, is_member = node.name, node.parts, node.has_target
    if is_member and parts[0].kind == "name" and parts[0].name in _NAMESPACES and parts[0].name not in names:
        name, parts, is_member = f"{parts[0].name}.{name}", parts[1:], False
    macro = MACROS.get((name, is_member, len(parts)))
    if macro is not None:
        return macro(parts, names)
    call = CALLS.get((name, is_member, len(parts)))
    if call is None:
        raise CompileError(f"undeclared reference to {name!r} with {len(parts) - is_member} arguments")
    arguments = [_compile(part, names) for part in parts]
    more = MORE.get(name)

    def run(scope: Scope) -> Any:
        values = [one(scope) for one in arguments]
        _spend(scope, *values)
        if more is not None:
            _spend(scope, units=more(_MOST_ELEMENTS, *values))
        return call(*values)

    return run


# Macros


def _variable(node: Node) -> str:
    if node.kind != "name":
        raise CompileError("a macro's variable must be a plain name")
    return node.name


def _has(parts: tuple[Node, ...], names: tuple[str, ...]) -> Run:
    if parts[0].kind != "select":
        raise CompileError("has() takes a field")
    name, of = parts[0].name, _compile(parts[0].parts[0], names)
    return lambda scope: operators.has(of(scope), name)


def _bind(parts: tuple[Node, ...], names: tuple[str, ...]) -> Run:
    name, value = _variable(parts[0]), _compile(parts[1], names)
    body = _compile(parts[2], (*names, name))
    return lambda scope: body({**scope, name: value(scope)})


def _opt_map(parts: tuple[Node, ...], names: tuple[str, ...], *, flat: bool) -> Run:
    of, name = _compile(parts[0], names), _variable(parts[1])
    body = _compile(parts[2], (*names, name))

    def run(scope: Scope) -> Optional:
        value = _optional(of(scope))
        if not value.values:
            return value
        found = body({**scope, name: value.values[0]})
        return _optional(found) if flat else Optional(found)

    return run


def _each(scope: Scope, values: Any, name: str, units: int) -> Any:
    """Give a scope for each element of a list, or each key of a map. `units`: what is done with each costs so much."""
    if not isinstance(values, tuple | dict):
        raise EvaluationError(f"no such overload: a macro over {type_of(values)}")
    inner = dict(scope)
    for one in tuple(values):
        _spend(scope, units=units)
        inner[name] = one
        yield inner


def _units(body: Node) -> int:
    return 1 + nodes(body) // 10


def _quantifier(parts: tuple[Node, ...], names: tuple[str, ...], *, decides: bool) -> Run:
    """Exists and all: the element that decides counts, even where others have no value."""
    of, name = _compile(parts[0], names), _variable(parts[1])
    body = _compile(parts[2], (*names, name))
    units = _units(parts[2])

    def run(scope: Scope) -> bool:
        elements = ((body, inner) for inner in _each(scope, of(scope), name, units))
        return _decided(elements, "in a macro", decides=decides)

    return run


def _chosen(parts: tuple[Node, ...], names: tuple[str, ...]) -> Callable[[Scope], list[Any]]:
    """Give the elements for which the last part is true."""
    of, name = _compile(parts[0], names), _variable(parts[1])
    body = _compile(parts[2], (*names, name))
    units = _units(parts[2])

    def run(scope: Scope) -> list[Any]:
        found = []
        for inner in _each(scope, of(scope), name, units):
            value = body(inner)
            if not isinstance(value, bool):
                raise EvaluationError(f"no such overload: {type_of(value)} in a macro")
            if value:
                found.append(inner[name])
        return found

    return run


def _exists_one(parts: tuple[Node, ...], names: tuple[str, ...]) -> Run:
    chosen = _chosen(parts, names)
    return lambda scope: len(chosen(scope)) == 1


def _filter(parts: tuple[Node, ...], names: tuple[str, ...]) -> Run:
    chosen = _chosen(parts, names)
    return lambda scope: tuple(chosen(scope))


def _mapped(parts: tuple[Node, ...], names: tuple[str, ...]) -> Run:
    of, name = _compile(parts[0], names), _variable(parts[1])
    body = _compile(parts[-1], (*names, name))
    units = _units(parts[-1])
    if len(parts) == 4:
        chosen = _chosen(parts[:3], names)
        return lambda scope: tuple([body(inner) for inner in _each(scope, tuple(chosen(scope)), name, units)])
    return lambda scope: tuple([body(inner) for inner in _each(scope, of(scope), name, units)])


MACROS: Final[dict[tuple[str, bool, int], Callable[[tuple[Node, ...], tuple[str, ...]], Run]]] = {
    ("has", False, 1): _has,
    ("cel.bind", False, 3): _bind,
    ("optMap", True, 3): lambda parts, names: _opt_map(parts, names, flat=False),
    ("optFlatMap", True, 3): lambda parts, names: _opt_map(parts, names, flat=True),
    ("all", True, 3): lambda parts, names: _quantifier(parts, names, decides=False),
    ("exists", True, 3): lambda parts, names: _quantifier(parts, names, decides=True),
    ("exists_one", True, 3): _exists_one,
    ("existsOne", True, 3): _exists_one,
    ("filter", True, 3): _filter,
    ("map", True, 3): _mapped,
    ("map", True, 4): _mapped,
}
_KINDS: Final[dict[str, Callable[[Node, tuple[str, ...]], Run]]] = {
    "literal": _literal,
    "negative": _literal,
    "name": _name,
    "select": _select,
    "optional_select": _select,
    "index": _index,
    "optional_index": _index,
    "not": _unary,
    "negate": _unary,
    "||": _either,
    "&&": _either,
    "if": _if,
    "list": _list,
    "map": _map,
    "call": _call,
}
