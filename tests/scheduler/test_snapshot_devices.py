"""From Kubernetes objects to a snapshot: devices, claims, and the pods that have them."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.scheduler.claim_objects import MOST_KINDS, MOST_TEXT, PUBLISHED_IN_PART
from controller.scheduler.nodes import DeviceConstraint
from controller.scheduler.pod_tasks import Binding
from controller.scheduler.snapshot import Options
from kube.devices import (
    ClaimSpec,
    ClaimStatus,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
)
from tests.scheduler.kube_words import NOW, fault, health, node, pod, uuid
from tests.scheduler.object_words import GROUP, built, only

DRIVER = "gpu.nvidia.com"
SELECTOR = {
    "cel": {
        "expression": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    }
}


def cel(expression: str) -> dict[str, Any]:
    """Give a selector."""
    return {"cel": {"expression": expression}}


def device_objects(expression: dict[str, Any] = SELECTOR) -> dict[str, Any]:
    """Give a class, a claim of two and a slice with four GPUs, the first tainted."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid(index)}},
            "taints": [{"key": "sick", "effect": "NoSchedule"}] if index == 0 else [],
        }
        for index in range(4)
    ]
    return {
        "device_classes": (
            msgspec.convert({"metadata": {"name": DRIVER}, "spec": {"selectors": [expression]}}, DeviceClass),
        ),
        "slices": (
            msgspec.convert(
                {
                    "metadata": {"name": "s"},
                    "spec": {"driver": DRIVER, "pool": {"name": "n1"}, "nodeName": "n1", "devices": devices},
                },
                ResourceSlice,
            ),
        ),
        "claims": (
            msgspec.convert(
                {
                    "metadata": {"name": "two", "namespace": "team"},
                    "spec": {
                        "devices": {
                            "requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER, "count": 2}}]
                        }
                    },
                    "status": {"reservedFor": [{"resource": "pods", "name": "p1", "uid": "u"}]},
                },
                ResourceClaim,
            ),
        ),
    }


def test_devices_are_as_healthy_as_their_cards() -> None:
    """A sick card is no device, one that is Unknown takes nothing new."""
    known = health(fault("part-out", gpu=1))
    snapshot = built(
        nodes=(node(conditions={"GpuXidError": "Unknown"}),), health=(known,), **device_objects()
    )
    assert [device.gpu for device in snapshot.devices] == [uuid(0), uuid(2), uuid(3)]
    assert all(device.closed for device in snapshot.devices)
    assert [len(device.taints) for device in snapshot.devices] == [1, 0, 0]


def test_a_rule_taints_devices_that_slices_show_without() -> None:
    """The core keeps pods off them like off any other tainted device."""
    spec = {"deviceSelector": {"device": "gpu-3"}, "taint": {"key": "fence", "effect": "NoExecute"}}
    rule = msgspec.convert({"metadata": {"name": "r"}, "spec": spec}, DeviceTaintRule)
    snapshot = built(taint_rules=(rule,), **device_objects())
    assert [len(device.taints) for device in snapshot.devices] == [1, 0, 0, 1]


def test_claims_of_a_pod() -> None:
    """A pod's claims are counted as GPUs; one that is still to be made from its template keeps the pod waiting."""
    claims = [{"name": "a", "resourceClaimName": "two"}, {"name": "b", "resourceClaimTemplateName": "t"}]
    snapshot = built(pod(meta=GROUP, spec={"resourceClaims": claims}), **device_objects())
    (task,) = only(snapshot).tasks
    assert (task.request.claims, task.request.dra_gpus) == (("team/two",), 2)
    assert task.constraints.missing == ('resourceclaim "b"',)
    assert snapshot.claims[0].reserved_for == ("team/p1",)


def test_devices_of_a_bind_under_way_are_taken() -> None:
    """Until its claim's status shows them; then the status counts."""
    binding = {"team/p1": Binding(node="n1", devices=(("team/two", (f"{DRIVER}/n1/gpu-0",)),))}
    claims = [{"name": "a", "resourceClaimName": "two"}]
    waiting = pod(meta=GROUP, spec={"resourceClaims": claims})
    snapshot = built(waiting, options=Options(binding=binding), **device_objects())
    assert snapshot.claims[0].devices == (f"{DRIVER}/n1/gpu-0",)
    objects = device_objects()
    results = [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-1"}]
    status = msgspec.convert({"allocation": {"devices": {"results": results}}}, ClaimStatus)
    objects["claims"] = (msgspec.structs.replace(objects["claims"][0], status=status),)
    snapshot = built(waiting, options=Options(binding=binding), **objects)
    assert snapshot.claims[0].devices == (f"{DRIVER}/n1/gpu-1",)


@pytest.mark.parametrize(
    "device",
    [
        pytest.param({"consumesCounters": [{"counterSet": "gpu-0"}]}, id="a part of a larger one"),
        pytest.param({"bindingConditions": ["attached"]}, id="one that has to be attached first"),
        pytest.param(
            {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}},
            id="one of which claims take amounts",
        ),
    ],
)
def test_a_device_that_nobody_here_counts_is_given_to_nobody(device: dict[str, Any]) -> None:
    """Rather than given away twice."""
    objects = device_objects()
    (piece,) = objects["slices"]
    odd = msgspec.convert({"name": "odd", **device}, SliceDevice)
    spec = msgspec.structs.replace(piece.spec, devices=(*piece.spec.devices, odd))
    objects["slices"] = (msgspec.structs.replace(piece, spec=spec),)
    assert len(built(**objects).devices) == len(built(**device_objects()).devices)


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        pytest.param(
            [{"name": "a", "exactly": {"deviceClassName": DRIVER, "adminAccess": True}}],
            "request a has admin access: not supported",
            id="admin access",
        ),
        pytest.param(
            [{"name": "a", "exactly": {"deviceClassName": DRIVER, "derivedAttributes": [{"name": "x"}]}}],
            "request a asks for derived attributes: not supported",
            id="derived attributes",
        ),
        pytest.param(
            [{"name": "a", "exactly": {"deviceClassName": DRIVER, "selectors": [cel("device.colour == 1")]}}],
            "request a, selector #0: undefined field 'colour' of device",
            id="a selector that cannot be read",
        ),
        pytest.param(
            [{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "none"}]}],
            "device class none not found",
            id="an alternative of no class",
        ),
        pytest.param(
            [{"name": "a"}], "resourceclaim has a request of a kind that is not supported", id="of tomorrow"
        ),
        pytest.param(
            [
                {
                    "name": "a",
                    "exactly": {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": "1Gi"}}},
                }
            ],
            "request a asks for amounts of a device's capacity: not supported",
            id="an amount of a device",
        ),
    ],
)
def test_a_claim_that_cannot_be_served_says_so(requests: list[Any], why: str) -> None:
    """It waits."""
    objects = device_objects()
    spec = msgspec.convert({"devices": {"requests": requests}}, ClaimSpec)
    objects["claims"] = (msgspec.structs.replace(objects["claims"][0], spec=spec),)
    assert built(**objects).claims[0].why_not == why


def test_a_class_that_cannot_be_read_is_not_guessed_at() -> None:
    """Its claims wait, and say so."""
    snapshot = built(**device_objects(cel("device.driver == nvidia")))
    why = f"device class {DRIVER}, selector #0: undeclared reference to 'nvidia'"
    assert (snapshot.claims[0].why_not, snapshot.devices) == (why, ())


@pytest.mark.parametrize(
    ("expression", "devices"),
    [
        ("device.attributes['gpu.nvidia.com'].uuid.endsWith('2')", [uuid(2)]),
        (
            "!(device.driver == 'x') && device.attributes['gpu.nvidia.com'].type in ['gpu', 'mig']",
            [0, 1, 2, 3],
        ),
        ("device.driver == 'x' || device.attributes['x'].y == 1", "no such key: y"),
    ],
)
def test_a_class_takes_what_its_selector_says(expression: str, devices: Any) -> None:
    """Of a device for which it has no value nobody knows, and that is remembered."""
    snapshot = built(**device_objects(cel(expression)))
    if isinstance(devices, str):
        assert {one.unanswered for one in snapshot.devices} == {((DRIVER, devices),)}
    else:
        assert len(snapshot.devices) == len(devices)
        assert {one.kinds for one in snapshot.devices} == {(DRIVER,)}


def test_a_device_is_of_every_kind_that_takes_it() -> None:
    """It counts once, as a GPU, and requests with selectors of their own have a kind of their own."""
    objects = device_objects()
    every = msgspec.convert({"metadata": {"name": "all"}, "spec": {"selectors": []}}, DeviceClass)
    objects["device_classes"] = (every, *objects["device_classes"])
    own = "device.attributes['gpu.nvidia.com'].uuid.endsWith('2')"
    asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": "all", "selectors": [cel(own)]}}]}
    asked["constraints"] = [{"matchAttribute": f"{DRIVER}/type"}]
    spec = msgspec.convert({"devices": asked}, ClaimSpec)
    objects["claims"] = (msgspec.structs.replace(objects["claims"][0], spec=spec),)
    snapshot = built(**objects)
    assert [one.device_class for one in snapshot.devices] == [DRIVER] * 4
    assert [one.kinds for one in snapshot.devices][1:3] == [("all", DRIVER), ("all", DRIVER, f"all\n{own}")]
    assert snapshot.claims[0].requests[0].kind == f"all\n{own}"
    assert snapshot.devices[0].attributes == ((f"{DRIVER}/type", "string gpu"),)
    assert snapshot.claims[0].constraints == (DeviceConstraint(attribute=f"{DRIVER}/type"),)


GPU = {"deviceClassName": DRIVER}
RESULTS = [{"request": "a/two", "driver": DRIVER, "pool": "n1", "device": f"gpu-{index}"} for index in (0, 1)]


@pytest.mark.parametrize(
    ("requests", "results", "gpus"),
    [
        pytest.param([{"name": "a", "exactly": {**GPU, "count": 2}}], [], 2, id="as many as it asks for"),
        pytest.param(
            [{"name": "a", "firstAvailable": [{"name": "one", **GPU}, {"name": "two", **GPU, "count": 2}]}],
            [],
            2,
            id="of alternatives the largest",
        ),
        pytest.param(
            [
                {
                    "name": "a",
                    "firstAvailable": [
                        {"name": "four", **GPU, "count": 4},
                        {"name": "two", **GPU, "count": 2},
                    ],
                }
            ],
            RESULTS,
            2,
            id="and then what was given",
        ),
        pytest.param(
            [{"name": "a", "firstAvailable": [{"name": "n", "deviceClassName": "nic", "count": 4}]}],
            [],
            0,
            id="of GPUs only",
        ),
        pytest.param(
            [
                {"name": "a", "exactly": {"deviceClassName": DRIVER, "allocationMode": "All"}},
                {"name": "b", "exactly": {"deviceClassName": "nic"}},
            ],
            [{"request": one, "driver": "d", "pool": "p", "device": "x"} for one in "aaab"],
            3,
            id="all GPUs of a node beside a network card",
        ),
        pytest.param(
            [{"name": "a", "exactly": {"deviceClassName": DRIVER, "adminAccess": True}}],
            [{"request": "a", "driver": "d", "pool": "p", "device": "x", "adminAccess": True}],
            0,
            id="who only watches them",
        ),
    ],
)
def test_gpus_of_a_claim(requests: list[Any], results: list[Any], gpus: int) -> None:
    """As queues count them."""
    objects = device_objects()
    spec = msgspec.convert({"devices": {"requests": requests}}, ClaimSpec)
    status = msgspec.convert(
        {"allocation": {"devices": {"results": results}}} if results else {}, ClaimStatus
    )
    objects["claims"] = (msgspec.structs.replace(objects["claims"][0], spec=spec, status=status),)
    claims = [{"name": "a", "resourceClaimName": "two"}]
    (task,) = only(built(pod(meta=GROUP, spec={"resourceClaims": claims}), **objects)).tasks
    assert task.request.dra_gpus == gpus


def test_what_is_only_watched_is_held_by_nobody() -> None:
    """Kubernetes gives a device to others besides those that have admin access to it."""
    objects = device_objects()
    results = [
        {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-1", "adminAccess": True},
        {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-2"},
    ]
    status = msgspec.convert({"allocation": {"devices": {"results": results}}}, ClaimStatus)
    objects["claims"] = (msgspec.structs.replace(objects["claims"][0], status=status),)
    assert built(**objects).claims[0].devices == (f"{DRIVER}/n1/gpu-2",)


def test_long_selectors_are_fewer() -> None:
    """What is read and kept of them is bounded by its length too."""
    objects = device_objects()
    claim: ResourceClaim = objects["claims"][0]
    found = []
    for number in range(MOST_TEXT // 10_000 + 3):
        exactly = {**GPU, "selectors": [cel(f"device.driver != '{'x' * 9_900}{number}'")]}
        spec = msgspec.convert({"devices": {"requests": [{"name": "r", "exactly": exactly}]}}, ClaimSpec)
        meta = msgspec.structs.replace(claim.metadata, name=f"c{number:04}", creation_timestamp=NOW)
        found.append(msgspec.structs.replace(claim, metadata=meta, spec=spec))
    objects["claims"] = tuple(found)
    waiting = [one.id for one in built(**objects).claims if one.why_not.startswith("more than 500 different")]
    assert waiting
    assert waiting[-1] == f"team/c{len(found) - 1:04}"


def test_broken_selectors_count_too() -> None:
    """Reading them takes as long."""
    objects = device_objects()
    claim: ResourceClaim = objects["claims"][0]
    exactly = [{**GPU, "selectors": [cel(f"nothing{number}")] * 2} for number in range(MOST_KINDS // 2 + 1)]
    found = []
    for number, one in enumerate(exactly):
        spec = msgspec.convert({"devices": {"requests": [{"name": "r", "exactly": one}]}}, ClaimSpec)
        meta = msgspec.structs.replace(claim.metadata, name=f"c{number:04}", creation_timestamp=NOW)
        found.append(msgspec.structs.replace(claim, metadata=meta, spec=spec))
    objects["claims"] = tuple(found)
    waiting = [one.id for one in built(**objects).claims if one.why_not.startswith("more than 500 different")]
    assert waiting == [f"team/c{MOST_KINDS // 2:04}"]


def test_requests_with_selectors_are_so_many_at_most() -> None:
    """Whoever floods the scheduler with them waits behind the older ones, and is told."""
    objects = device_objects()
    claim: ResourceClaim = objects["claims"][0]

    def flood(number: int) -> ResourceClaim:
        exactly = {**GPU, "selectors": [cel(f"device.attributes['gpu.nvidia.com'].x == {number}")]}
        spec = msgspec.convert({"devices": {"requests": [{"name": "r", "exactly": exactly}]}}, ClaimSpec)
        born = NOW - timedelta(seconds=number)
        meta = msgspec.structs.replace(claim.metadata, name=f"c{number:04}", creation_timestamp=born)
        return msgspec.structs.replace(claim, metadata=meta, spec=spec)

    objects["claims"] = tuple(flood(number) for number in range(MOST_KINDS + 2))
    waiting = [one.id for one in built(**objects).claims if one.why_not.startswith("more than 500 different")]
    assert waiting == ["team/c0000", "team/c0001"]


@pytest.mark.parametrize(("slices", "closed"), [(0, ""), (1, ""), (2, PUBLISHED_IN_PART)])
def test_a_pool_that_is_being_published_takes_nothing_new(slices: int, closed: str) -> None:
    """Its devices are capacity, and nobody gets any until all of its slices are there."""
    objects = device_objects()
    (piece,) = objects["slices"]
    pool = msgspec.structs.replace(piece.spec.pool, resource_slice_count=slices)
    objects["slices"] = (msgspec.structs.replace(piece, spec=msgspec.structs.replace(piece.spec, pool=pool)),)
    assert [one.closed for one in built(**objects).devices] == [closed] * 4
