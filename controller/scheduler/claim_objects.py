"""Devices and claims of dynamic resource allocation, from Kubernetes objects (resource.k8s.io/v1). Pure.

What a request may take has a name, its kind: its class, and its own selectors where it has any. A device lists all kinds
that it is of. For quota and for the GPUs that a node offers it counts once, as of the first class by name that it is in, a
class of GPUs before others. What this scheduler cannot serve says so, and its claim waits: admin access, amounts of a
device's capacity, derived attributes, a selector or class that cannot be read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from controller.scheduler.device_selectors import Selectors, why_not_compiled
from controller.scheduler.nodes import Claim, Device, DeviceConstraint, DeviceRequest, DeviceTaint
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

PUBLISHED_IN_PART: Final = "its pool is still being published"
QUEUE_LABEL: Final = "kai.scheduler/queue"
MOST_KINDS: Final = 500
MOST_TEXT: Final = 500_000
"""Of their characters: what is made of one is a hundred times as long."""
"""Selectors of different requests: each is asked about every device, and users write them."""

ToldBy = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


def devices_of(
    slices: Iterable[ResourceSlice],
    classes: Iterable[DeviceClass],
    claims: Iterable[ResourceClaim],
    selectors: Selectors | None = None,
) -> tuple[Device, ...]:
    """Give the devices of the newest generation of every pool, in order of id; those of no class are left out.

    A pool of which slices are still missing is given to nobody, as in Kubernetes, and is capacity all the same.
    `selectors`: what they said of the devices before.
    """
    every, asked = tuple(slices), tuple(claims)
    of_classes = _classes(classes)
    of_requests = _requests(of_classes, asked)
    names = sorted(of_classes, key=lambda name: (not _is_gpu(name), name))
    told = _told_apart(asked)
    newest = newest_generations(every)
    seen = Counter(_pool(one) for one in every)
    kept = selectors or Selectors()
    found: dict[str, Device] = {}
    alike: dict[tuple[bool | str, ...], ToldBy] = {}  # many devices share one of few
    for one in every:
        pool = one.spec.pool
        if pool.generation < newest[one.spec.driver, pool.name]:
            continue
        closed = PUBLISHED_IN_PART if seen[_pool(one)] < pool.resource_slice_count else ""
        answers = kept.ask(one, of_classes, of_requests)
        for device, row in zip(one.spec.devices, zip(*answers.values(), strict=True), strict=False):
            if row not in alike:
                alike[row] = _told_by(answers, row)
            kinds, unanswered = alike[row]
            if _is_beyond_us(device) or not (kinds or unanswered):
                continue
            device_class = next((name for name in names if name in kinds), "")
            made = _device(one, device, device_class, told)
            made = msgspec.structs.replace(made, kinds=kinds, unanswered=unanswered, closed=closed)
            found[made.id] = made
    return tuple(found[name] for name in sorted(found))


def _told_by(names: Iterable[str], row: tuple[bool | str, ...]) -> ToldBy:
    """Give the kinds that a device is of by these answers, and those of which nobody knows."""
    said = tuple(zip(names, row, strict=True))
    kinds = tuple([name for name, one in said if one is True])
    return kinds, tuple([(name, one) for name, one in said if isinstance(one, str)])


def _pool(piece: ResourceSlice) -> tuple[str, str, int]:
    return (piece.spec.driver, piece.spec.pool.name, piece.spec.pool.generation)


def newest_generations(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], int]:
    """Give the newest generation of every pool."""
    found: dict[tuple[str, str], int] = {}
    for driver, name, generation in map(_pool, slices):
        found[driver, name] = max(found.get((driver, name), 0), generation)
    return found


def _is_gpu(name: str) -> bool:
    """Tell whether a device class is one of GPUs: its name says so (KAI's rule)."""
    return "gpu" in name.lower()


def _classes(classes: Iterable[DeviceClass]) -> dict[str, tuple[str, ...]]:
    """Give the expressions of all classes that can be read, by name."""
    return {
        one.metadata.name: tuple(each.cel.expression for each in one.spec.selectors)
        for one in sorted(classes, key=lambda one: one.metadata.name)
        if not why_not_compiled(one.spec.selectors)
    }


def _requests(
    classes: Mapping[str, tuple[str, ...]], claims: Iterable[ResourceClaim]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Give class and expressions of requests that have some of their own and can be read, by kind."""
    return {
        kind: (one.device_class_name, tuple(each.cel.expression for each in one.selectors))
        for kind, one in _read(classes, claims).items()
        if not why_not_compiled(one.selectors)
    }


def _read(classes: Mapping[str, tuple[str, ...]], claims: Iterable[ResourceClaim]) -> dict[str, ExactRequest]:
    """Give the requests whose selectors are read at all, by kind.

    Claims that wait come first, the oldest of them before others; what goes beyond `MOST_KINDS` or `MOST_TEXT` is left out.
    """
    found: dict[str, ExactRequest] = {}
    left, room = MOST_KINDS, MOST_TEXT
    for claim in sorted(claims, key=_turn):
        for _, one in requests_by_name(claim):
            if not one.selectors or one.device_class_name not in classes:
                continue
            kind = _kind(one)
            if kind not in found and len(one.selectors) <= left and len(kind) <= room:
                found[kind] = one
                left, room = left - len(one.selectors), room - len(kind)
    return found


def _turn(claim: ResourceClaim) -> tuple[bool, bool, str, str, str]:
    meta = claim.metadata
    born = meta.creation_timestamp
    is_held = claim.status.allocation is not None
    return (is_held, born is None, "" if born is None else born.isoformat(), meta.namespace, meta.name)


def _kind(request: ExactRequest) -> str:
    """Name what a request may take; a class's name has no line break."""
    return "\n".join((request.device_class_name, *(each.cel.expression for each in request.selectors)))


def _told_apart(claims: Iterable[ResourceClaim]) -> set[str]:
    """Name the attributes that constraints are about."""
    return {
        each.match_attribute or each.distinct_attribute
        for claim in claims
        for each in claim.spec.devices.constraints
    }


def _is_beyond_us(device: SliceDevice) -> bool:
    """Tell whether a device has conditions that nobody here counts; it is given to no pod rather than given twice.

    These are: a part of a larger one (counters shared with other devices), one of which claims take amounts, and one that
    has to be attached before the pod is bound.
    """
    takes_amounts = device.allow_multiple_allocations and bool(device.capacity)
    return takes_amounts or bool(device.consumes_counters or device.binding_conditions)


def requests_by_name(claim: ResourceClaim) -> Iterator[tuple[str, ExactRequest]]:
    """Give all requests of a claim as results name them: an alternative is called request/alternative."""
    for one in claim.spec.devices.requests:
        if one.exactly is not None:
            yield one.name, one.exactly
        yield from ((f"{one.name}/{each.name}", each) for each in one.first_available)


def tolerations_of(request: ExactRequest) -> tuple[Toleration, ...]:
    """Give the device taints that a request tolerates."""
    return tuple(
        Toleration(key=one.key, operator=one.operator or "Equal", value=one.value, effect=one.effect)
        for one in request.tolerations
    )


def _device(piece: ResourceSlice, device: SliceDevice, device_class: str, told: set[str]) -> Device:
    driver, uuid = piece.spec.driver, device.attributes.get("uuid")
    names = {name if "/" in name else f"{driver}/{name}" for name in device.attributes}
    values = ((name, _attribute(name, driver, device.attributes)) for name in sorted(names & told))
    return Device(
        id=f"{driver}/{piece.spec.pool.name}/{device.name}",
        device_class=device_class,
        node=piece.spec.node_name,
        taints=tuple(DeviceTaint(key=one.key, value=one.value, effect=one.effect) for one in device.taints),
        gpu="" if uuid is None else uuid.string or "",
        attributes=tuple([(name, value) for name, value in values if value]),
        shared=device.allow_multiple_allocations,
    )


def _attribute(name: str, driver: str, attributes: Mapping[str, Attribute]) -> str:
    """Give an attribute's value with its type, "" where there is none; one without a domain belongs to the driver's own."""
    domain, _, plain = name.partition("/")
    value = attributes.get(name) or (attributes.get(plain) if domain == driver else None)
    if value is None:
        return ""
    known = (("string", value.string), ("int", value.int_), ("bool", value.bool_), ("version", value.version))
    return next((f"{kind} {one}" for kind, one in known if one is not None), "")


def claims_of(claims: Mapping[str, ResourceClaim], classes: Mapping[str, DeviceClass]) -> Iterator[Claim]:
    """Give all claims in order of their names; what asks for more than is asked of devices waits."""
    read = _read(_classes(classes.values()), claims.values())
    return (_claim(claim, classes, read) for _, claim in sorted(claims.items()))


def _claim(
    claim: ResourceClaim, classes: Mapping[str, DeviceClass], read: Mapping[str, ExactRequest]
) -> Claim:
    """Give a claim; what this scheduler cannot serve says so, and waits."""
    meta, status, asked = claim.metadata, claim.status, claim.spec.devices
    problems = [why for name, one in requests_by_name(claim) if (why := _why_not(name, one, classes))]
    if status.allocation is None:  # else nobody asks the selectors any more
        problems += [why for name, one in requests_by_name(claim) if (why := _why_not_read(name, one, read))]
    if any(one.exactly is None and not one.first_available for one in asked.requests):
        problems.append("resourceclaim has a request of a kind that is not supported")
    if any(not (one.match_attribute or one.distinct_attribute) for one in asked.constraints):
        problems.append("resourceclaim has a constraint of a kind that is not supported")
    results = () if status.allocation is None else status.allocation.devices.results
    pods = tuple(one.name for one in status.reserved_for if one.resource == "pods")
    return Claim(
        id=f"{meta.namespace}/{meta.name}",
        requests=tuple(map(_request, asked.requests)),
        constraints=tuple(
            DeviceConstraint(
                attribute=one.match_attribute or one.distinct_attribute,
                requests=one.requests,
                distinct=not one.match_attribute,
            )
            for one in asked.constraints
        ),
        devices=tuple(f"{one.driver}/{one.pool}/{one.device}" for one in results if not one.admin_access),
        reserved_for=tuple(f"{meta.namespace}/{name}" for name in pods),
        reserved_places=len(status.reserved_for),
        from_template=any(owner.kind == "Pod" and owner.controller for owner in meta.owner_references),
        queue=meta.labels.get(QUEUE_LABEL, ""),
        why_not=problems[0] if problems else "",
    )


def _request(request: ClaimRequest) -> DeviceRequest:
    if request.exactly is not None:
        return _exact(request.name, request.exactly)
    alternatives = tuple(_exact(f"{request.name}/{one.name}", one) for one in request.first_available)
    return DeviceRequest(name=request.name, alternatives=alternatives)


def _exact(name: str, request: ExactRequest) -> DeviceRequest:
    return DeviceRequest(
        device_class=request.device_class_name,
        count=request.count,
        all=request.allocation_mode == "All",
        tolerations=tolerations_of(request),
        name=name,
        kind=_kind(request) if request.selectors else "",
    )


def _why_not(name: str, request: ExactRequest, classes: Mapping[str, DeviceClass]) -> str | None:
    if request.admin_access:
        return f"request {name} has admin access: not supported"
    if request.allocation_mode not in ("ExactCount", "All"):
        return f"allocation mode {request.allocation_mode} is not supported"
    if request.capacity:
        return f"request {name} asks for amounts of a device's capacity: not supported"
    if request.derived_attributes:
        return f"request {name} asks for derived attributes: not supported"
    known = classes.get(request.device_class_name)
    if known is None:
        return f"device class {request.device_class_name} not found"
    if why := why_not_compiled(known.spec.selectors):
        return f"device class {request.device_class_name}, {why}"
    return None


def _why_not_read(name: str, request: ExactRequest, read: Mapping[str, ExactRequest]) -> str | None:
    if request.selectors and _kind(request) not in read:
        return (
            f"more than {MOST_KINDS} different requests with selectors are waiting: older claims come first"
        )
    why = why_not_compiled(request.selectors)
    return f"request {name}, {why}" if why else None
