"""What is written into a ResourceClaim that gets its devices, and whether these may still be given. Pure.

Source: Kubernetes 1.37, resource.k8s.io/v1, AllocationResult, and what its own scheduler writes: one result for each device
with the name of the request that asked for it (request/alternative where it was one of several) and the taints that it
tolerates; the configuration of the class and of the claim, which the driver reads from there alone; the node, as a selector
of its name.
"""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from controller.scheduler.claim_objects import newest_generations, requests_by_name, tolerations_of
from controller.scheduler.node_terms import HARD_EFFECTS, tolerates
from kube.devices import (
    AllocatedDevice,
    DeviceClass,
    ExactRequest,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
)
from kube.timestamps import rfc3339
from kube.types import Pod


class Given(msgspec.Struct, frozen=True):
    """A device by id, and the request that it is for: its name in results, and what it says."""

    name: str
    request: ExactRequest
    device: str


def id_of(device: AllocatedDevice) -> str:
    """Name a device as plans do: driver/pool/name."""
    return f"{device.driver}/{device.pool}/{device.device}"


def devices_held(claim: ResourceClaim) -> tuple[str, ...]:
    """Give the devices that a claim was allocated, by id."""
    allocation = claim.status.allocation
    return () if allocation is None else tuple(map(id_of, allocation.devices.results))


def devices_kept(claim: ResourceClaim) -> frozenset[str]:
    """Give those of them that nobody else may have besides."""
    allocation = claim.status.allocation
    if allocation is None:
        return frozenset()
    return frozenset(
        id_of(one) for one in allocation.devices.results if not one.share_id and not one.admin_access
    )


def node_of_claim(claim: ResourceClaim) -> str:
    """Give the node to which an allocated claim's devices belong; "" = none, or not one alone. The key of its store."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return ""
    for term in allocation.node_selector.node_selector_terms:
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
                return field.values[0]
    return ""


def node_of_slice(piece: ResourceSlice) -> str:
    """Give the node whose devices a slice lists. The key of its store."""
    return piece.spec.node_name


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    return any(one.uid == uid for one in claim.status.reserved_for)


def offered(slices: Iterable[ResourceSlice]) -> Mapping[str, SliceDevice]:
    """Give the devices of the newest generation of every pool, by id."""
    every = tuple(slices)
    newest = newest_generations(every)
    return {
        f"{one.spec.driver}/{one.spec.pool.name}/{device.name}": device
        for one in every
        if one.spec.pool.generation == newest[one.spec.driver, one.spec.pool.name]
        for device in one.spec.devices
    }


def given_to(
    claim: ResourceClaim, devices: tuple[str, ...], names: tuple[str, ...] = ()
) -> tuple[Given, ...]:
    """Tell which request each device of a plan is for: `names` says it, else they come in the order of the claim's requests.

    Raises: ValueError where these are not what the claim asks for.
    """
    requests = dict(requests_by_name(claim))
    if len(names or devices) != len(devices) or not requests.keys() >= set(names):
        raise ValueError("the plan gives devices to requests that it does not have")
    found = names or _in_turn(claim, len(devices))
    given = tuple(map(Given, found, map(requests.__getitem__, found), devices))
    for one in claim.spec.devices.requests:
        served = {name for name in found if name.partition("/")[0] == one.name}
        if len(served) != 1 or any(_is_wrong(requests[name], found.count(name)) for name in served):
            raise ValueError(f"the plan does not have what its request {one.name} asks for")
    return given


def _is_wrong(request: ExactRequest, count: int) -> bool:
    return request.allocation_mode != "All" and request.count != count


def _in_turn(claim: ResourceClaim, devices: int) -> tuple[str, ...]:
    """Name the request of each device by their counts, one of which may be open."""
    requests = [(one.name, one.exactly) for one in claim.spec.devices.requests if one.exactly is not None]
    fixed = sum(exactly.count for _, exactly in requests if exactly.allocation_mode != "All")
    found: list[str] = []
    for name, exactly in requests:
        found += [name] * (exactly.count if exactly.allocation_mode != "All" else max(devices - fixed, 0))
    if len(found) != devices:
        raise ValueError(f"asks for {fixed} devices, and the plan has {devices} for it")
    return tuple(found)


def already_given(claim: ResourceClaim) -> tuple[Given, ...]:
    """Tell which request each device is for that a claim was allocated; what names none is left out."""
    allocation = claim.status.allocation
    requests = dict(requests_by_name(claim))
    results = () if allocation is None else allocation.devices.results
    return tuple(
        Given(one.request, requests[one.request], id_of(one)) for one in results if one.request in requests
    )


def why_not_devices(given: Iterable[Given], known: Mapping[str, SliceDevice]) -> str:
    """Say why devices may not be given any more: gone, or tainted since; "" = they may."""
    for one in given:
        identity, device = one.device, known.get(one.device)
        if device is None:
            return f"device {identity} is not offered any more"
        tolerations = tolerations_of(one.request)
        for taint in device.taints:
            if taint.effect in HARD_EFFECTS and not tolerates(
                tolerations, taint.key, taint.value, taint.effect
            ):
                words = f"{taint.key}: {taint.value}" if taint.value else taint.key
                return f"device {identity} has the untolerated taint {{{words}}}"
    return ""


def why_not_pod(claim: ResourceClaim, pod: Pod) -> str:
    """Say why a claim is not this pod's: a claim made for one pod is not for the next one of that name."""
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    made_for = [one for one in claim.metadata.owner_references if one.kind == "Pod" and one.controller]
    if made_for and made_for[0].uid != pod.metadata.uid:
        return f"was made for another pod, {made_for[0].name} with uid {made_for[0].uid}"
    return ""


def consumer_of(pod: Pod) -> dict[str, Any]:
    """Give the entry of `status.reservedFor` for a pod."""
    return {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}


def allocation_of(
    claim: ResourceClaim,
    given: tuple[Given, ...],
    *,
    node: str,
    known: Mapping[str, SliceDevice],
    classes: Mapping[str, DeviceClass],
    now: datetime,
) -> dict[str, Any]:
    """Give `status.allocation` as JSON."""
    devices: dict[str, Any] = {"results": [_result(one, known) for one in given]}
    served = tuple(dict.fromkeys(one.name for one in given))
    config = [*_class_config(claim, served, classes), *_claim_config(claim, served)]
    if config:
        devices["config"] = config
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": devices,
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [by_name]}]},
        "allocationTimestamp": rfc3339(now),
    }


def _result(given: Given, known: Mapping[str, SliceDevice]) -> dict[str, Any]:
    driver, _, rest = given.device.partition("/")
    pool, _, name = rest.rpartition("/")
    made: dict[str, Any] = {"request": given.name, "driver": driver, "pool": pool, "device": name}
    if given.request.tolerations:
        made["tolerations"] = [_without_empty(one) for one in given.request.tolerations]
    if known[given.device].allow_multiple_allocations:
        made["shareID"] = str(uuid.uuid4())
    return made


def _without_empty(value: msgspec.Struct) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(value)
    return {key: one for key, one in whole.items() if one not in ("", None)}


def _class_config(
    claim: ResourceClaim, served: tuple[str, ...], classes: Mapping[str, DeviceClass]
) -> list[dict[str, Any]]:
    """Each class's configuration once, for all the requests of that class."""
    requests = dict(requests_by_name(claim))
    by_class: dict[str, list[str]] = {}
    for name in served:
        by_class.setdefault(requests[name].device_class_name, []).append(name)
    return [
        _config("FromClass", names, served, config)
        for class_name, names in by_class.items()
        if class_name in classes
        for config in classes[class_name].spec.config
    ]


def _claim_config(claim: ResourceClaim, served: tuple[str, ...]) -> list[dict[str, Any]]:
    """The claim's configuration, but for what is about alternatives that were not chosen."""
    found: list[dict[str, Any]] = []
    for config in claim.spec.devices.config:
        about = config.get("requests")
        names = [str(one) for one in about] if isinstance(about, list | tuple) else []
        if not names or any(_is_named(one, names) for one in served):
            found.append(_config("FromClaim", names, served, config))
    return found


def _is_named(served: str, names: list[str]) -> bool:
    return served in names or served.partition("/")[0] in names


def _config(
    source: str, names: list[str], served: tuple[str, ...], config: Mapping[str, object]
) -> dict[str, Any]:
    """Without names it is for all requests, so that those of all are left out."""
    made: dict[str, Any] = {key: value for key, value in config.items() if key != "requests"}
    is_for_all = all(_is_named(one, names) for one in served)
    return {"source": source, **({} if is_for_all or not names else {"requests": names}), **made}
