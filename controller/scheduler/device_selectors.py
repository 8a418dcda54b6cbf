"""Which devices the selectors of classes and requests take. Pure.

Kubernetes asks a selector about a device each time; here each is asked once for each device of a slice, and what it said is
kept as long as the very same slice is there. Source: dynamic-resource-allocation, cel/compile.go (what a selector sees of a
device) and structured (a selector that has no value for a device ends the search that comes to it).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from controller.scheduler.cel.operators import Defaulting
from controller.scheduler.cel.programs import MOST_COST as MOST_COST_OF_ONE
from controller.scheduler.cel.programs import CostExceeded, Program, compiled
from controller.scheduler.cel.values import EvaluationError, Quantity, Semver
from kube.devices import Attribute, DeviceSelector, ResourceSlice, SliceDevice
from kube.types import ObjectMeta

MOST_COST: Final = 5_000_000
"""Of one snapshot, seconds at the worst: who writes selectors must not be able to stop everybody's scheduling."""
NOT_YET: Final = "its selectors take so long that not all devices were looked at yet"

Expressions = tuple[str, ...]
Answers = tuple[bool | str, ...]
"""For each device of a slice: whether it is taken, or why the selectors have no value for it."""


def seen_by_selectors(driver: str, device: SliceDevice) -> dict[str, Any]:
    """Give the variable `device`. Raises EvaluationError where the driver published what is no value."""
    attributes, capacity = Defaulting(), Defaulting()
    for name, value in device.attributes.items():
        domain, _, plain = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[plain] = _value(name, value)
    for name, amount in device.capacity.items():
        domain, _, plain = name.rpartition("/")
        text = amount.get("value", "") if isinstance(amount, Mapping) else ""
        capacity.setdefault(domain or driver, {})[plain] = Quantity.read(str(text))
    return {
        "driver": driver,
        # Kubernetes 1.37 does not tell its selectors either: the allocator leaves it out.
        "allowMultipleAllocations": False,
        "attributes": attributes,
        "capacity": capacity,
    }


def _value(name: str, value: Attribute) -> object:
    if value.version is not None:
        return Semver.read(value.version)
    known = (value.int_, value.bool_, value.string)
    found = next((one for one in known if one is not None), None)
    if found is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return found


def why_not_compiled(selectors: Iterable[DeviceSelector]) -> str:
    """Say what is wrong with the first selector that cannot be used; "" = nothing."""
    for index, selector in enumerate(selectors):
        found = compiled(selector.cel.expression)
        if isinstance(found, str):
            return f"selector #{index}: {found}"
    return ""


class Selectors:
    """What selectors said of devices. For one sequence of snapshots; one thread at a time.

    A slice is known by its metadata: taints that rules add to it leave that as it is, and no selector sees them.
    """

    def __init__(self) -> None:
        self._old: dict[int, tuple[ObjectMeta, dict[Expressions, Answers]]] = {}
        self._new: dict[int, tuple[ObjectMeta, dict[Expressions, Answers]]] = {}
        self._left = MOST_COST

    def turn(self) -> None:
        """Begin a snapshot: what the last one did not use is forgotten."""
        self._old, self._new = self._new, {}
        self._left = MOST_COST

    def ask(self, piece: ResourceSlice, questions: Mapping[str, Expressions]) -> dict[str, Answers]:
        """Give the answers for a slice's devices, by the names of the questions: expressions that must all hold."""
        meta = piece.metadata
        known = self._old.get(id(meta))
        before = known[1] if known is not None and known[0] is meta else {}
        kept: dict[Expressions, Answers] = {}
        self._new[id(meta)] = (meta, kept)
        found: dict[str, Answers] = {}
        seen: list[dict[str, Any] | str] | None = None
        for name, expressions in questions.items():
            answers = before.get(expressions)
            is_whole = answers is not None
            if answers is None:
                seen = seen or [_seen(piece.spec.driver, device) for device in piece.spec.devices]
                answers, is_whole = self._answers(expressions, seen)
            if is_whole:
                kept[expressions] = answers
            found[name] = answers
        return found

    def _answers(self, expressions: Expressions, seen: list[dict[str, Any] | str]) -> tuple[Answers, bool]:
        """Give the answers, and whether they are for good."""
        programs = [compiled(one) for one in expressions]
        found: list[bool | str] = []
        too_long = ""
        for device in seen:
            if self._left <= 0:
                return (*found, *(NOT_YET for _ in range(len(found), len(seen)))), False
            if too_long or isinstance(device, str):
                found.append(too_long or str(device))
                continue
            try:
                found.append(all(self._matches(program, device) for program in programs))
            except CostExceeded as error:
                self._left -= MOST_COST_OF_ONE
                too_long = str(error)
                found.append(too_long)
            except EvaluationError as error:
                found.append(str(error))
        return tuple(found), True

    def _matches(self, program: Program | str, device: dict[str, Any]) -> bool:
        if isinstance(program, str):
            raise EvaluationError(program)
        self._left -= 5
        matches, cost = program.matches(device)
        self._left -= cost
        return matches


def _seen(driver: str, device: SliceDevice) -> dict[str, Any] | str:
    try:
        return seen_by_selectors(driver, device)
    except EvaluationError as error:
        return str(error)
