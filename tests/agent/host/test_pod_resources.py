"""Asking kubelet over its Unix socket: against a real gRPC server, and against everything that is none."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it ships no types
import pytest

from agent.host.pod_resources import KubeletDevices, KubeletFailed, read_pod_resources
from agent.host.pod_resources_wire import Device
from agent.host.unary_call import CallFailed, Cause, unary_call
from sandbox.pod_resources import PodResourcesServer, allocatable, field, pod
from tests.agent.pod_resources_server import GO_ALLOCATABLE, GO_LIST, serve_raw, socket_path

GPUS = tuple(f"GPU-{number:08d}-2222-3333-4444-555555555555" for number in range(8))
LIST = "/v1.PodResourcesLister/List"


@pytest.fixture
def path() -> Iterator[Path]:
    with socket_path() as one:
        yield one


def refused(answer: KubeletDevices | KubeletFailed) -> KubeletFailed:
    assert isinstance(answer, KubeletFailed), answer
    return answer


def test_both_answers_are_read(path: Path) -> None:
    """What is offered and what is held come from one look, over a connection that does not stay."""
    with PodResourcesServer(path) as server:
        server.allocatable = allocatable("nvidia.com/gpu", *GPUS)
        server.pods = pod("team-a", "trainer-0", "nvidia.com/gpu", GPUS[3])
        answer = read_pod_resources(path)
    assert isinstance(answer, KubeletDevices)
    assert [device.id for device in answer.allocatable] == list(GPUS)
    assert [(one.name, one.devices) for one in answer.pods] == [
        ("trainer-0", (Device("nvidia.com/gpu", GPUS[3]),))
    ]
    assert server.calls == ["GetAllocatableResources", "List"]


def test_kubelet_is_met_again_after_its_restart(path: Path) -> None:
    """It makes its socket anew; meanwhile the failure says that nobody is there."""
    with PodResourcesServer(path) as server:
        server.allocatable = GO_ALLOCATABLE
        assert isinstance(read_pod_resources(path), KubeletDevices)
    assert refused(read_pod_resources(path)).cause in {Cause.ABSENT, Cause.REFUSED}
    path.unlink(missing_ok=True)
    with PodResourcesServer(path) as server:
        server.pods = GO_LIST
        answer = read_pod_resources(path)
    assert isinstance(answer, KubeletDevices)
    assert len(answer.pods) == 2


def test_an_answer_of_many_windows_is_read(path: Path) -> None:
    """HTTP/2 lets 64 KiB pass before it wants to hear that they were read."""
    with PodResourcesServer(path) as server:
        server.pods = pod("team-a", "trainer-0", "nvidia.com/gpu", GPUS[3]) * 20_000
        answer = read_pod_resources(path)
    assert isinstance(answer, KubeletDevices)
    assert len(answer.pods) == 20_000


def test_an_answer_beyond_the_bound_is_refused(path: Path) -> None:
    """Its announced length is enough to refuse it: what is too large is never held in memory."""
    with PodResourcesServer(path) as server:
        server.pods = field(1, b"x" * 100_000)
        with pytest.raises(CallFailed, match="more than 50000 bytes") as failed:
            unary_call(path, LIST, within_s=5, most_bytes=50_000)
    assert failed.value.cause is Cause.TOO_LARGE


@pytest.mark.parametrize(
    ("answer", "words", "cause"),
    [
        pytest.param(
            lambda _method, context: context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit"
            ),
            "gRPC status 8: rejected by rate limit",
            Cause.REJECTED,
            id="kubelet-says-too-often",
        ),
        pytest.param(
            lambda _method, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, "Müll % 100"),
            "gRPC status 12: Müll % 100",
            Cause.REJECTED,
            id="a-message-that-is-percent-encoded",
        ),
        pytest.param(
            lambda _method, context: context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
            "gRPC status 4: Deadline Exceeded",
            Cause.SLOW,
            id="the-server-s-clock-was-first-to-see-the-deadline",
        ),
    ],
)
def test_kubelets_own_no_is_passed_on(
    path: Path, answer: Callable[[str, Any], bytes], words: str, cause: Cause
) -> None:
    """The reason is kubelet's, in its words."""
    with PodResourcesServer(path) as server:
        server.answer_by(answer)
        failed = refused(read_pod_resources(path))
    assert failed.cause is cause
    assert failed.error == f"{path}: {words}"


def test_an_unknown_method_is_a_no(path: Path) -> None:
    """Such an answer has headers alone, and no body."""
    with PodResourcesServer(path), pytest.raises(CallFailed, match="gRPC status 12") as failed:
        unary_call(path, "/v1.PodResourcesLister/Nothing", within_s=5, most_bytes=1000)
    assert failed.value.cause is Cause.REJECTED


def test_one_of_two_answers_is_no_answer(path: Path) -> None:
    """What is offered without what is held would be half the truth."""

    def only_the_first(method: str, context: Any) -> bytes:
        if method == "List":
            context.abort(grpc.StatusCode.INTERNAL, "no")
        return GO_ALLOCATABLE

    with PodResourcesServer(path) as server:
        server.answer_by(only_the_first)
        assert refused(read_pod_resources(path)).cause is Cause.REJECTED


def test_a_kubelet_that_hangs_is_left_after_the_deadline(path: Path) -> None:
    """The call ends by the deadline, whatever the server does."""
    released = threading.Event()

    def hang(_method: str, _context: Any) -> bytes:
        released.wait(10)
        return b""

    with PodResourcesServer(path) as server:
        server.answer_by(hang)
        failed = refused(read_pod_resources(path, within_s=0.2))
        released.set()
    assert failed.cause is Cause.SLOW
    assert "was not answered within 0.2 s" in failed.error or "gRPC status 4" in failed.error


def test_a_message_of_another_kind_is_garbage(path: Path) -> None:
    """gRPC is right, and the message in it is none of PodResources."""
    with PodResourcesServer(path) as server:
        server.allocatable = b"\xff\xff"
        failed = refused(read_pod_resources(path))
    assert failed.cause is Cause.GARBAGE


@pytest.fixture
def listener(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.bind(str(path))
        one.listen(4)
        yield one


def _drip(connection: socket.socket) -> None:
    """Send a settings frame, and then pings one by one without end."""
    connection.sendall(bytes.fromhex("000000040000000000"))
    try:
        while True:
            connection.sendall(bytes.fromhex("000008060000000000") + bytes(8))
            threading.Event().wait(0.02)
    except OSError:
        pass


def _http_1(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def _noise(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(bytes(range(256)) * 8)


def _goaway(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(bytes.fromhex("000000040000000000" + "000008070000000000" + "00000001" + "00000002"))


@pytest.mark.parametrize(
    ("speak", "cause"),
    [
        pytest.param(lambda connection: connection.close(), Cause.BROKEN_OFF, id="hangs-up-at-once"),
        pytest.param(
            lambda connection: connection.recv(4096), Cause.BROKEN_OFF, id="hangs-up-after-the-question"
        ),
        pytest.param(_http_1, Cause.GARBAGE, id="speaks-http-1"),
        pytest.param(_noise, Cause.GARBAGE, id="noise"),
        pytest.param(_goaway, Cause.BROKEN_OFF, id="goes-away-with-an-error"),
        pytest.param(lambda _: threading.Event().wait(0.6), Cause.SLOW, id="says-nothing"),
        pytest.param(_drip, Cause.SLOW, id="says-nothing-of-use-without-end"),
    ],
)
def test_what_is_no_kubelet_is_told_apart(
    path: Path, listener: socket.socket, speak: Callable[[socket.socket], None], cause: Cause
) -> None:
    """Each failure has its cause, and none lasts longer than the deadline."""
    thread = serve_raw(listener, speak)
    failed = refused(read_pod_resources(path, within_s=0.4))
    thread.join(5)
    assert failed.cause is cause
    assert failed.error.startswith(f"{path}: ")


def test_a_socket_that_nobody_serves_is_said_as_such(path: Path, listener: socket.socket) -> None:
    """No file, a file that nobody listens on, a folder in the file's place, a path that no socket can have."""
    listener.close()
    assert refused(read_pod_resources(path)).cause is Cause.REFUSED
    path.unlink()
    assert refused(read_pod_resources(path)).cause is Cause.ABSENT
    assert "is not mounted here" in refused(read_pod_resources(path)).error
    path.mkdir()
    assert refused(read_pod_resources(path)).cause is Cause.REFUSED
    assert refused(read_pod_resources(Path("/x" * 200))).cause is Cause.BROKEN_OFF


def test_a_full_queue_is_slow_and_not_broken(path: Path) -> None:
    """A server that accepts nobody lets callers wait in a queue; one that finds it full is told at once."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as full:
        full.bind(str(path))
        full.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(str(path))
        failed = refused(read_pod_resources(path, within_s=0.2))
        for one in waiting:
            one.close()
    assert failed.cause is Cause.SLOW
