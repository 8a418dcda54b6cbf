"""Dynamic resource allocation, resource.k8s.io/v1: device classes, claims and slices. Slim views, as in `kube.types`."""

import msgspec

from kube.placement import NodeSelector
from kube.types import ObjectMeta, Struct

CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
"""Kubernetes' own: an allocated claim has it, and its controller deallocates only such ones."""


class CelSelector(Struct, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Struct, frozen=True, kw_only=True):
    cel: CelSelector = CelSelector()


class DeviceClassSpec(Struct, frozen=True, kw_only=True):
    """`config`: for the driver, handed on as it is."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[dict[str, object], ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceToleration(Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ExactRequest(Struct, frozen=True, kw_only=True):
    """`name` is set where this is one of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    selectors: tuple[DeviceSelector, ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: dict[str, object] | None = None
    derived_attributes: tuple[dict[str, object], ...] = ()


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """Exactly one of `exactly` and `first_available` is set."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class DeviceConstraint(Struct, frozen=True, kw_only=True):
    """One of the attributes is set. Without requests it is about all devices of the claim."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(Struct, frozen=True, kw_only=True):
    """`config`: for the driver, handed on as it is."""

    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[dict[str, object], ...] = ()


class ClaimSpec(Struct, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Struct, frozen=True, kw_only=True):
    """`share_id` is set where several claims may hold the device at once."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    share_id: str = msgspec.field(name="shareID", default="")


class AllocatedDevices(Struct, frozen=True, kw_only=True):
    results: tuple[AllocatedDevice, ...] = ()


class Allocation(Struct, frozen=True, kw_only=True):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class ConsumerReference(Struct, frozen=True, kw_only=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(Struct, frozen=True, kw_only=True):
    """`devices`: what drivers say of devices that they made ready."""

    allocation: Allocation | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[dict[str, object], ...] = ()


class ResourceClaim(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class Attribute(Struct, frozen=True, kw_only=True):
    string: str | None = None
    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    version: str | None = None


class SliceTaint(Struct, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class SliceDevice(Struct, frozen=True, kw_only=True):
    """`consumes_counters`: it is a part of something larger; `binding_conditions`: it has to be attached first."""

    name: str
    attributes: dict[str, Attribute] = {}
    taints: tuple[SliceTaint, ...] = ()
    allow_multiple_allocations: bool = False
    capacity: dict[str, object] = {}
    consumes_counters: tuple[dict[str, object], ...] = ()
    binding_conditions: tuple[str, ...] = ()


class SlicePool(Struct, frozen=True, kw_only=True):
    """`resource_slice_count`: how many slices of this generation there are; fewer are a pool that is being published."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Struct, frozen=True, kw_only=True):
    driver: str = ""
    pool: SlicePool = SlicePool()
    node_name: str = ""
    devices: tuple[SliceDevice, ...] = ()


class ResourceSlice(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: SliceSpec = SliceSpec()


class DeviceTaintSelector(Struct, frozen=True, kw_only=True):
    """None = any. An empty selector takes every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Struct, frozen=True, kw_only=True):
    """Without a selector no device is meant."""

    device_selector: DeviceTaintSelector | None = None
    taint: SliceTaint


class DeviceTaintRule(Struct, frozen=True, kw_only=True):
    """A taint that somebody else than the driver puts on devices; slices do not show it."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
