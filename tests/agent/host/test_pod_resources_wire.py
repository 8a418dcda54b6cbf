"""PodResources messages: what kubelet's own code writes is read, and nothing that comes can break the reader."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.pod_resources_wire import (
    ClaimedDevice,
    Device,
    Malformed,
    PodDevices,
    read_allocatable,
    read_pods,
)
from sandbox.pod_resources import allocatable, devices, field, pod, varint
from tests.agent.pod_resources_server import GO_ALLOCATABLE, GO_LIST

GPU_1, GPU_2 = (f"GPU-{digit * 8}-2222-3333-4444-555555555555" for digit in "12")


def test_the_bytes_of_kubelets_own_code_are_read() -> None:
    """The generated Go code of Kubernetes 1.37.2 wrote these: NUMA nodes, CPUs and memory beside what we need."""
    assert read_allocatable(GO_ALLOCATABLE) == (
        Device("nvidia.com/gpu", GPU_1),
        Device("nvidia.com/mig-1g.10gb", "MIG-aaaaaaaa-2222-3333-4444-555555555555"),
        Device("rdma/hca", "0"),
    )
    assert read_pods(GO_LIST) == (
        PodDevices(
            namespace="team-a",
            name="trainer-0",
            devices=(Device("nvidia.com/gpu", f"{GPU_1}::3"), Device("nvidia.com/gpu", f"{GPU_2}::0")),
        ),
        PodDevices(
            namespace="team-b",
            name="claims",
            claimed=(
                ClaimedDevice(
                    driver="gpu.nvidia.com",
                    pool="gpu-1",
                    device="gpu-3",
                    cdi=("k8s.gpu.nvidia.com/claim=1-gpu-3",),
                ),
            ),
        ),
    )


def test_an_empty_message_holds_nothing() -> None:
    """Protobuf writes a message without values as no bytes at all."""
    assert read_allocatable(b"") == ()
    assert read_pods(b"") == ()


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(varint(60 << 3) + varint(2**63), id="a-number"),
        pytest.param(varint(60 << 3 | 1) + bytes(8), id="eight-bytes"),
        pytest.param(varint(60 << 3 | 5) + bytes(4), id="four-bytes"),
        pytest.param(field(60, b"\xff" * 300), id="a-string"),
        pytest.param(varint(1 << 3) + varint(7), id="a-known-number-of-another-type"),
    ],
)
def test_fields_of_a_newer_kubelet_are_skipped(unknown: bytes) -> None:
    """A field that we do not know takes nothing from those that we do."""
    message = unknown + allocatable("nvidia.com/gpu", GPU_1) + unknown
    assert read_allocatable(message) == (Device("nvidia.com/gpu", GPU_1),)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(field(1, devices("nvidia.com/gpu", GPU_1))[:-1], id="cut-off-in-a-string"),
        pytest.param(b"\x80", id="cut-off-in-a-number"),
        pytest.param(b"\xff" * 11, id="a-number-without-end"),
        pytest.param(varint(1 << 3 | 3), id="a-group-which-version-3-does-not-have"),
        pytest.param(varint(1 << 3 | 2) + varint(2**40), id="a-length-beyond-all"),
        pytest.param(varint(1 << 3 | 1) + bytes(3), id="cut-off-in-eight-bytes"),
    ],
)
def test_what_is_no_message_is_said_to_be_malformed(message: bytes) -> None:
    """Garbage is never half an answer."""
    with pytest.raises(Malformed):
        read_allocatable(message)


def test_text_that_is_no_utf8_or_too_long_is_tamed() -> None:
    """Ids come from device plugins, which may be anybody's."""
    (device,) = read_allocatable(field(1, field(1, b"a/\xff") + field(2, "x" * 5000)))
    assert device.resource == "a/�"
    assert len(device.id) == 512


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(message: bytes) -> None:
    """Whatever comes is read or refused."""
    for read in (read_allocatable, read_pods):
        with contextlib.suppress(Malformed):
            read(message)


@given(st.binary(max_size=4), st.integers(0, len(GO_LIST) - 1), st.sampled_from((GO_LIST, GO_ALLOCATABLE)))
def test_a_damaged_message_is_read_or_refused(damage: bytes, at: int, whole: bytes) -> None:
    """The same for messages that are nearly right."""
    message = whole[:at] + damage + whole[at + len(damage) :]
    with contextlib.suppress(Malformed):
        read_pods(message)


@given(st.lists(st.tuples(*[st.text("abc-", min_size=1, max_size=8)] * 4), max_size=8))
def test_what_was_written_is_what_is_read(rows: list[tuple[str, str, str, str]]) -> None:
    """Every pod keeps its name and its device."""
    message = b"".join(pod(*row) for row in rows)
    assert [(p.namespace, p.name, p.devices[0].resource, p.devices[0].id) for p in read_pods(message)] == rows
