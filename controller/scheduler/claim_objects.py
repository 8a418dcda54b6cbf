"""Devices and claims of dynamic resource allocation, from Kubernetes objects (resource.k8s.io/v1). Pure.

Class selectors are CEL. Of that language only what GPU drivers write is read: equalities of the driver and of attributes,
joined by &&. A class that says more is not guessed at: claims on it wait, and say so. A device counts for one class: of
those that match, the first by name among those that claims ask for.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from controller.scheduler.nodes import Claim, Device, DeviceRequest, DeviceTaint
from controller.scheduler.requests import Toleration
from kube.devices import (
    Attribute,
    ClaimRequest,
    DeviceClass,
    ExactRequest,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
)

QUEUE_LABEL: Final = "kai.scheduler/queue"
_TERM: Final = re.compile(
    r"""device\.(?:driver|attributes\[(?P<quote>['"])(?P<domain>[^'"]+)(?P=quote)\]"""
    r"""(?:\.(?P<name>\w+)|\[(?P<quoted>['"])(?P<other>\w+)(?P=quoted)\]))"""
    r"""\s*==\s*(?P<value>"[^"]*"|'[^']*'|true|false|-?\d+)"""
)


class Wanted(msgspec.Struct, frozen=True):
    """One equality: `domain` "" = the driver itself."""

    domain: str
    name: str
    value: str


def wanted_by(expression: str) -> tuple[Wanted, ...] | None:
    """Read a class's selector; None = it says something that is not read here."""
    found = []
    for term in expression.split("&&"):
        match = _TERM.fullmatch(term.strip().removeprefix("(").removesuffix(")").strip())
        if match is None:
            return None
        found.append(
            Wanted(match["domain"] or "", match["name"] or match["other"] or "", match["value"].strip("'\""))
        )
    return tuple(found)


def devices_of(
    slices: Iterable[ResourceSlice], classes: Iterable[DeviceClass], claims: Iterable[ResourceClaim]
) -> tuple[Device, ...]:
    """Give the devices of the newest generation of every pool, in order of id; those of no class are left out."""
    asked = {request.device_class_name for claim in claims for request in _exact(claim)}
    readable = {one.metadata.name: wanted for one in classes if (wanted := _selectors(one)) is not None}
    order = sorted(readable, key=lambda name: (name not in asked, name))
    every = tuple(slices)
    newest: dict[tuple[str, str], int] = {}
    for one in every:
        pool = (one.spec.driver, one.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), one.spec.pool.generation)
    found: dict[str, Device] = {}
    for one in every:
        if one.spec.pool.generation < newest[one.spec.driver, one.spec.pool.name]:
            continue
        for device in one.spec.devices:
            if _is_beyond_us(device):
                continue
            name = next((name for name in order if _matches(readable[name], one.spec.driver, device)), None)
            if name is not None:
                made = _device(one, device, name)
                found[made.id] = made
    return tuple(found[name] for name in sorted(found))


def _is_beyond_us(device: SliceDevice) -> bool:
    """Tell whether a device has conditions that nobody here counts; it is given to no pod rather than given twice.

    These are: a part of a larger one (counters shared with other devices), one of which claims take amounts, and one that
    has to be attached before the pod is bound.
    """
    takes_amounts = device.allow_multiple_allocations and bool(device.capacity)
    return takes_amounts or bool(device.consumes_counters or device.binding_conditions)


def tolerations_of(request: ExactRequest) -> tuple[Toleration, ...]:
    """Give the device taints that a request tolerates."""
    return tuple(
        Toleration(key=one.key, operator=one.operator or "Equal", value=one.value, effect=one.effect)
        for one in request.tolerations
    )


def _device(piece: ResourceSlice, device: SliceDevice, device_class: str) -> Device:
    words = {name: _word(value) for name, value in device.attributes.items()}
    return Device(
        id=f"{piece.spec.driver}/{piece.spec.pool.name}/{device.name}",
        device_class=device_class,
        node=piece.spec.node_name,
        taints=tuple(DeviceTaint(key=one.key, value=one.value, effect=one.effect) for one in device.taints),
        gpu=words.get("uuid", ""),
        attributes=tuple(sorted(words.items())),
        shared=device.allow_multiple_allocations,
    )


def _word(value: Attribute) -> str:
    if value.bool_ is not None:
        return "true" if value.bool_ else "false"
    known = (value.string, value.version, value.int_)
    return next((str(one) for one in known if one is not None), "")


def _selectors(device_class: DeviceClass) -> tuple[Wanted, ...] | None:
    every: list[Wanted] = []
    for selector in device_class.spec.selectors:
        wanted = wanted_by(selector.cel.expression)
        if wanted is None:
            return None
        every += wanted
    return tuple(every)


def _matches(wanted: Iterable[Wanted], driver: str, device: SliceDevice) -> bool:
    return all(
        driver == one.value if not one.domain else _attribute(one, driver, device.attributes) == one.value
        for one in wanted
    )


def _attribute(wanted: Wanted, driver: str, attributes: Mapping[str, Attribute]) -> str | None:
    """An attribute without a domain belongs to the driver's own."""
    value = attributes.get(f"{wanted.domain}/{wanted.name}")
    if value is None and wanted.domain == driver:
        value = attributes.get(wanted.name)
    return None if value is None else _word(value)


def _exact(claim: ResourceClaim) -> Iterable[ExactRequest]:
    return (request.exactly for request in claim.spec.devices.requests if request.exactly is not None)


def claim_of(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Claim:
    """Give a claim; what this scheduler cannot serve says so, and waits."""
    meta, status = claim.metadata, claim.status
    problems = [why for request in claim.spec.devices.requests if (why := _why_not(request, classes))]
    if claim.spec.devices.constraints:
        problems.append("resourceclaim asks for devices that match each other, which is not supported")
    requests = list(_exact(claim))
    if sum(one.allocation_mode == "All" for one in requests) > 1:
        # Which of a claim's devices belong to which request is told by the counts, as long as one of them is open.
        problems.append("resourceclaim has more than one request of mode All, which is not supported")
    results = () if status.allocation is None else status.allocation.devices.results
    pods = tuple(one.name for one in status.reserved_for if one.resource == "pods")
    return Claim(
        id=f"{meta.namespace}/{meta.name}",
        requests=tuple(
            DeviceRequest(
                device_class=one.device_class_name,
                count=one.count,
                all=one.allocation_mode == "All",
                tolerations=tolerations_of(one),
            )
            for one in requests
        ),
        devices=tuple(f"{one.driver}/{one.pool}/{one.device}" for one in results),
        reserved_for=tuple(f"{meta.namespace}/{name}" for name in pods),
        reserved_places=len(status.reserved_for),
        from_template=any(owner.kind == "Pod" and owner.controller for owner in meta.owner_references),
        queue=meta.labels.get(QUEUE_LABEL, ""),
        why_not=problems[0] if problems else "",
    )


def _why_not(request: ClaimRequest, classes: Mapping[str, DeviceClass]) -> str | None:
    exactly = request.exactly
    if exactly is None:
        return "resourceclaim asks for the first available of several, which is not supported"
    if exactly.selectors or exactly.admin_access:
        return f"request {request.name} has {'selectors' if exactly.selectors else 'admin access'}: not supported"
    if exactly.allocation_mode not in ("ExactCount", "All"):
        return f"allocation mode {exactly.allocation_mode} is not supported"
    if exactly.capacity:
        return f"request {request.name} asks for amounts of a device's capacity: not supported"
    known = classes.get(exactly.device_class_name)
    if known is None:
        return f"device class {exactly.device_class_name} not found"
    if _selectors(known) is None:
        return f"device class {exactly.device_class_name} has a selector that is not understood"
    return None
