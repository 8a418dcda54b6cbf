"""Reads the few fields that we need of kubelet's PodResources v1 messages out of protobuf's wire format.

Field numbers from k8s.io/kubelet pkg/apis/podresources/v1/api.proto, the same from 1.32 to 1.37; what is unknown is skipped,
as protobuf prescribes. By hand, because the protobuf package costs 8 MiB of memory in every agent (see unary_call).
"""

from collections.abc import Iterator

import msgspec

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_TEXT_LIMIT = 512


class Malformed(ValueError):
    """Bytes that are no such message."""


class Device(msgspec.Struct, frozen=True, order=True):
    """One device of a device plugin: the extended resource, such as nvidia.com/gpu, and the id that the plugin gave it."""

    resource: str
    id: str


class ClaimedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device that a ResourceClaim holds (dynamic resource allocation). `cdi` are its names for the runtime.

    Kubelet adds up the CDI names of all devices that one driver prepared for a claim, so they name its fellows too.
    """

    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...] = ()


class PodDevices(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod holds, in all its containers."""

    namespace: str
    name: str
    devices: tuple[Device, ...] = ()
    claimed: tuple[ClaimedDevice, ...] = ()


def read_allocatable(message: bytes) -> tuple[Device, ...]:
    """Read an AllocatableResourcesResponse: the devices that kubelet would give to a pod. Raises Malformed."""
    # A device that is near to two NUMA nodes is named twice.
    found = {device for block in _blocks(message, 1) for device in _devices(block)}
    return tuple(sorted(found))


def read_pods(message: bytes) -> tuple[PodDevices, ...]:
    """Read a ListPodResourcesResponse, only the pods that hold a device. Raises Malformed."""
    pods = (_pod(block) for block in _blocks(message, 1))
    return tuple(pod for pod in pods if pod.devices or pod.claimed)


def _pod(message: bytes) -> PodDevices:
    containers = list(_blocks(message, 3))
    devices = {device for one in containers for block in _blocks(one, 2) for device in _devices(block)}
    return PodDevices(
        name=_text(message, 1),
        namespace=_text(message, 2),
        devices=tuple(sorted(devices)),
        claimed=tuple(
            _claimed(resource)
            for one in containers
            for claim in _blocks(one, 5)
            for resource in _blocks(claim, 4)
        ),
    )


def _devices(message: bytes) -> Iterator[Device]:
    resource = _text(message, 1)
    return (Device(resource, _decoded(block)) for block in _blocks(message, 2))


def _claimed(message: bytes) -> ClaimedDevice:
    return ClaimedDevice(
        driver=_text(message, 2),
        pool=_text(message, 3),
        device=_text(message, 4),
        cdi=tuple(_text(block, 1) for block in _blocks(message, 1)),
    )


def _text(message: bytes, number: int) -> str:
    """Give a string field; of several the last counts, and none is the empty string."""
    text = b""
    for text in _blocks(message, number):  # noqa: B007 - the last one is wanted
        pass
    return _decoded(text)


def _decoded(text: bytes) -> str:
    return text[:_TEXT_LIMIT].decode("utf-8", errors="replace")


def _blocks(message: bytes, number: int) -> Iterator[bytes]:
    """Give the values of a field that has a length: strings and embedded messages."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _BYTES:
            length, at = _varint(message, at)
            end = at + length
        elif kind == _VARINT:
            _, end = _varint(message, at)
        elif kind in _FIXED:
            end = at + _FIXED[kind]
        else:
            raise Malformed(f"wire type {kind} at byte {at} is none that protobuf 3 has")
        if end > len(message):
            raise Malformed(f"field {key >> 3} at byte {at} goes beyond the message's {len(message)} bytes")
        if key >> 3 == number and kind == _BYTES:
            yield message[at:end]
        at = end


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Malformed(f"the number at byte {at} has no end")
