"""Which devices of one node the claims of a pod get. Pure.

Kubernetes' own order (dynamic-resource-allocation, structured): claim after claim, request after request, the first
alternative first, devices in order; a choice that leaves a later request without is taken back. Beyond that, devices that
nothing here tells apart are tried once, so that equal devices cost no time, and the search is bounded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from controller.scheduler.nodes import Claim, Device, DeviceConstraint, DeviceRequest

MOST_STEPS: Final = 2_000
FEW_STEPS: Final = 200
"""Enough for whatever needs no second thoughts."""
MOST_OF_A_POD: Final = 128
"""Devices of all claims of a pod: the search goes deeper with each, and Python does not go deeper than 1,000 calls."""
MOST_DEVICES: Final = 32
"""Of one claim (resource.k8s.io, AllocationResultsMaxSize)."""
CANNOT_ALLOCATE: Final = "cannot allocate all claims"

Picks = tuple[tuple[str, str], ...]
"""Devices by id, each with the name of the request that it is for."""


class _StoppedError(Exception):
    """The search ends without a result. The text says why."""


def kind_of(request: DeviceRequest) -> str:
    return request.kind or request.device_class


def variants(request: DeviceRequest) -> tuple[DeviceRequest, ...]:
    """Give what a request may be served by: its alternatives, or itself."""
    return request.alternatives or (request,)


class DeviceSearch:
    """For one pod and one node. `of_kind`: the node's devices of a kind, and those that may be, in order of their ids."""

    def __init__(
        self,
        claims: Sequence[Claim],
        of_kind: Callable[[str], Sequence[Device]],
        is_free: Callable[[Device, DeviceRequest], bool],
        taken: set[str],
        most_steps: int = MOST_STEPS,
    ) -> None:
        self._claims = claims
        self._wanted = [(index, one) for index, claim in enumerate(claims) for one in claim.requests]
        self._of_kind = of_kind
        self._is_free = is_free
        self._taken = taken
        self._picks: list[list[tuple[Device, str]]] = [[] for _ in claims]
        self.steps = 0
        self._most_steps = most_steps
        self._held = 0
        told = {constraint.attribute for claim in claims for constraint in claim.constraints}
        self._told_apart = sorted(told)

    def run(self) -> tuple[Picks, ...] | str:
        """Give the devices of each claim, or say why not."""
        try:
            if self._serve(0):
                return tuple(tuple((one.id, name) for one, name in picks) for picks in self._picks)
        except _StoppedError as stop:
            return str(stop)
        return CANNOT_ALLOCATE

    def _serve(self, at: int) -> bool:
        """Serve all requests from this one on."""
        if at == len(self._wanted):
            return True
        index, request = self._wanted[at]
        return any(self._serve_by(at, index, one) for one in variants(request))

    def _serve_by(self, at: int, index: int, request: DeviceRequest) -> bool:
        kind = kind_of(request)
        offered = self._of_kind(kind)
        if request.all:
            return self._take_all(at, index, request, offered)
        if len(self._picks[index]) + request.count > MOST_DEVICES:
            return False
        free = [one for one in offered if self._may_have(one, request) or self._is_asked_in_vain(one, kind)]
        return self._fill(at, index, request, free, request.count)

    def _may_have(self, device: Device, request: DeviceRequest) -> bool:
        return (device.shared or device.id not in self._taken) and self._is_free(device, request)

    def _take_all(self, at: int, index: int, request: DeviceRequest, offered: Sequence[Device]) -> bool:
        """All or none: which ones is no choice."""
        self._stop_at_any_unanswered(offered, request)
        before = len(self._picks[index])
        if not offered or before + len(offered) > MOST_DEVICES:
            return False
        for taken, one in enumerate(offered):
            if not (self._may_have(one, request) and self._keeps(one, request, index)):
                self._drop(index, taken)
                return False
            self._take(index, one, request)
        if self._serve(at + 1):
            return True
        self._drop(index, len(offered))
        return False

    def _fill(self, at: int, index: int, request: DeviceRequest, free: Sequence[Device], count: int) -> bool:
        """Choose so many more devices for a request, then serve the next one."""
        if not count:
            return self._serve(at + 1)
        if self._claims[index].constraints:
            kind = kind_of(request)
            free = [one for one in free if _why_unanswered(one, kind) or self._keeps(one, request, index)]
        tried: set[object] = set()
        for place, device in enumerate(free):
            self._stop_at_unanswered(device, request)
            if len(free) - place < count:
                self._stop_at_any_unanswered(free[place:], request)
                return False
            looks = self._looks(device)
            if looks in tried:
                continue
            tried.add(looks)
            self._take(index, device, request)
            if self._fill(at, index, request, free[place + 1 :], count - 1):
                return True
            self._drop(index, 1)
        return False

    def _looks(self, device: Device) -> object:
        """Give all that may tell a free device from another one in the rest of the search."""
        values = dict(device.attributes) if self._told_apart else {}
        told = tuple(values.get(name) for name in self._told_apart)
        return (device.device_class, device.kinds, device.unanswered, device.taints, device.shared, told)

    def _take(self, index: int, device: Device, request: DeviceRequest) -> None:
        self.steps += 1
        if self.steps > self._most_steps:
            raise _StoppedError(f"{CANNOT_ALLOCATE}: the search was given up after {self._most_steps} steps")
        if self._held == MOST_OF_A_POD:
            raise _StoppedError(f"{CANNOT_ALLOCATE}: more than {MOST_OF_A_POD} devices for one pod")
        self._held += 1
        self._picks[index].append((device, request.name))
        self._taken.add(device.id)

    def _drop(self, index: int, count: int) -> None:
        self._held -= count
        for _ in range(count):
            device, _name = self._picks[index].pop()
            self._taken.discard(device.id)

    def _is_asked_in_vain(self, device: Device, kind: str) -> bool:
        """Tell whether the search comes to a device that has no answer: it does so before it looks at taints."""
        return bool(_why_unanswered(device, kind)) and (device.shared or device.id not in self._taken)

    def _stop_at_any_unanswered(self, devices: Iterable[Device], request: DeviceRequest) -> None:
        for one in devices:
            self._stop_at_unanswered(one, request)

    def _stop_at_unanswered(self, device: Device, request: DeviceRequest) -> None:
        """A selector without a value for a device ends the search that comes to it, as in Kubernetes."""
        if why := _why_unanswered(device, kind_of(request)):
            raise _StoppedError(f"request {request.name}: the selectors fail on a device: {why}")

    def _keeps(self, device: Device, request: DeviceRequest, index: int) -> bool:
        """Tell whether a device keeps the claim's constraints beside what is chosen already."""
        return all(
            self._keeps_one(device, constraint, index)
            for constraint in self._claims[index].constraints
            if _is_about(constraint, request.name)
        )

    def _keeps_one(self, device: Device, constraint: DeviceConstraint, index: int) -> bool:
        value = _attribute(device, constraint.attribute)
        others: Iterator[str | None] = (
            _attribute(one, constraint.attribute)
            for one, name in self._picks[index]
            if _is_about(constraint, name)
        )
        if value is None:
            return False
        return value not in others if constraint.distinct else all(one == value for one in others)


def _why_unanswered(device: Device, kind: str) -> str:
    return next((why for name, why in device.unanswered if name == kind), "") if device.unanswered else ""


def _is_about(constraint: DeviceConstraint, request: str) -> bool:
    """Tell whether a constraint counts for a request, which may be one alternative of those that it names."""
    names = constraint.requests
    return not names or request in names or request.partition("/")[0] in names


def _attribute(device: Device, name: str) -> str | None:
    return next((value for known, value in device.attributes if known == name), None)
