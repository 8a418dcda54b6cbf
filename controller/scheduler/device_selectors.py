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

MOST_COST: Final = 500_000
"""Of one snapshot, a second or two: who writes requests must not be able to stop everybody's scheduling. Classes are written
by who runs the cluster, and what they take is counted, so they are always asked."""
NOT_YET: Final = "its selectors take so long that not all devices were looked at yet"

Expressions = tuple[str, ...]
Seen = dict[str, Any] | str
"""What selectors see of a device, or why they see nothing."""
Answers = tuple[bool | str, ...]
"""For each device of a slice: whether it is taken, or why the selectors have no value for it."""
Kept = tuple[Answers, bool]
"""And whether all of them were looked at."""


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

    def __init__(self, most_cost: int = MOST_COST) -> None:
        self._most_cost = most_cost
        self._old: dict[int, tuple[ObjectMeta, dict[Expressions, Kept]]] = {}
        self._new: dict[int, tuple[ObjectMeta, dict[Expressions, Kept]]] = {}
        self._left = most_cost

    def turn(self) -> None:
        """Begin a snapshot: what the last one did not use is forgotten."""
        self._old, self._new = self._new, {}
        self._left = self._most_cost

    def ask(
        self,
        piece: ResourceSlice,
        classes: Mapping[str, Expressions],
        requests: Mapping[str, tuple[str, Expressions]],
    ) -> dict[str, Answers]:
        """Give the answers for a slice's devices, by name of the class or the request.

        A class has expressions that must all hold; a request has some beside those of its class.
        """
        meta = piece.metadata
        known = self._old.get(id(meta))
        before = known[1] if known is not None and known[0] is meta else {}
        kept: dict[Expressions, Kept] = {}
        self._new[id(meta)] = (meta, kept)
        found: dict[str, Answers] = {}
        seen: list[Seen] = []
        every = len(piece.spec.devices)
        for name, (of, own) in {**{name: ("", one) for name, one in classes.items()}, **requests}.items():
            key = (*classes[of], *own) if of else own
            answers, is_whole = kept.get(key) or before.get(key) or ((NOT_YET,) * every, False)
            if not (is_whole or (of and self._left <= 0)):
                seen = seen or [_seen(piece.spec.driver, device) for device in piece.spec.devices]
                base = found[of] if of else (True,) * every
                answers = self._answers(own, seen, base, answers, bounded=bool(of))
                is_whole = NOT_YET not in answers
            found[name] = answers
            kept[key] = (answers, is_whole)
        return found

    def _answers(
        self, expressions: Expressions, seen: list[Seen], base: Answers, before: Answers, *, bounded: bool
    ) -> Answers:
        """Ask about the devices that are taken so far. `before`: what was answered in earlier snapshots."""
        programs = [compiled(one) for one in expressions]
        found: list[bool | str] = []
        too_long = ""
        for device, so_far, known in zip(seen, base, before, strict=True):
            if known != NOT_YET:
                found.append(known)
            elif so_far is not True or isinstance(device, str):
                found.append(device if isinstance(device, str) and programs else so_far)
            elif too_long or (bounded and self._left <= 0):
                found.append(too_long or NOT_YET)
            else:
                try:
                    found.append(all(self._matches(program, device) for program in programs))
                except EvaluationError as error:
                    too_long = str(error) if isinstance(error, CostExceeded) else ""
                    self._left -= MOST_COST_OF_ONE if too_long else error.cost + 5
                    found.append(str(error))
        return tuple(found)

    def _matches(self, program: Program | str, device: dict[str, Any]) -> bool:
        if isinstance(program, str):
            raise EvaluationError(program)
        matches, cost = program.matches(device)
        self._left -= cost + 5
        return matches


def _seen(driver: str, device: SliceDevice) -> Seen:
    try:
        return seen_by_selectors(driver, device)
    except EvaluationError as error:
        return str(error)
