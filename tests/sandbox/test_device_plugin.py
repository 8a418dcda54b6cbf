"""The stand-in device plugin: what makes a GPU unhealthy, what never makes it healthy again, and its words to kubelet."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import device_plugin_wire as wire
from sandbox.device_plugin import KUBELET_SOCKET, SOCKET, DriverUnusable, Gpus, Service, serve
from sandbox.fake_nvml.statefile import State, write
from tests.fakes import wait_until

XID, DOUBLE_BIT_ECC = 8, 2
NAMES = st.text(st.characters(codec="utf-8"), max_size=40)


def _state(gpus: int = 3) -> State:
    state = State()
    state.settings = {"loaded": "1", "last_event": "0"}
    state.gpus = {number: {"uuid": f"GPU-{number}", "present": "1", "lost": "0"} for number in range(gpus)}
    return state


def _event(state: State, gpu: int, kind: int, data: int) -> None:
    number = int(state.settings["last_event"]) + 1
    state.settings["last_event"] = str(number)
    state.events.append(f"event {number} {gpu} {kind} {data} 4294967295 4294967295")


def _lose(state: State) -> None:
    state.gpus[1]["lost"] = "1"


@pytest.mark.parametrize(
    ("happen", "ill"),
    [
        pytest.param(lambda s: _event(s, 1, XID, 48), {"GPU-1"}, id="an XID takes its GPU"),
        *(
            pytest.param(
                lambda s, xid=xid: _event(s, 1, XID, xid), set(), id=f"XID {xid} is an application's"
            )
            for xid in (13, 31, 43, 45, 68, 109)
        ),
        pytest.param(lambda s: _event(s, 1, DOUBLE_BIT_ECC, 0), set(), id="other events are skipped"),
        pytest.param(_lose, {"GPU-0", "GPU-1", "GPU-2"}, id="a lost GPU takes all of them"),
        pytest.param(
            lambda s: s.settings.update(loaded="0"),
            {"GPU-0", "GPU-1", "GPU-2"},
            id="so does a driver that is gone",
        ),
    ],
)
def test_what_makes_a_gpu_unhealthy(happen: Callable[[State], None], ill: set[str]) -> None:
    """As NVIDIA's plugin judges it from NVML's events."""
    state = _state()
    gpus = Gpus(lambda: state)

    happen(state)

    assert gpus.look() is bool(ill)
    assert {uuid for uuid, health in gpus.health.items() if health == wire.UNHEALTHY} == ill


def test_nothing_makes_it_healthy_again_but_a_new_start() -> None:
    """Neither time nor a GPU that came back; who starts anew sees only what is now."""
    state = _state()
    gpus = Gpus(lambda: state)
    _event(state, 0, XID, 79)
    _lose(state)
    gpus.look()
    state.gpus[1]["lost"] = "0"

    assert not gpus.look()
    assert set(gpus.health.values()) == {wire.UNHEALTHY}
    assert set(Gpus(lambda: state).health.values()) == {wire.HEALTHY}


def test_it_does_not_start_while_a_gpu_is_lost() -> None:
    """Its container ends; a GPU that was not found at boot is only not offered."""
    state = _state()
    state.gpus[2]["present"] = "0"
    assert list(Gpus(lambda: state).health) == ["GPU-0", "GPU-1"]

    _lose(state)
    with pytest.raises(DriverUnusable, match="GPU 1: GPU is lost"):
        Gpus(lambda: state)


def test_preferred_allocation_fails_once_a_gpu_is_lost() -> None:
    """Also where the lost one was not asked for: it asks NVML about every GPU of the machine."""
    state = _state()
    gpus = Gpus(lambda: state)
    assert gpus.prefer(["GPU-2", "GPU-0"], ["GPU-2"], 2) == ["GPU-2", "GPU-0"]

    _lose(state)
    with pytest.raises(DriverUnusable, match="device link information"):
        gpus.prefer(["GPU-0"], [], 1)


@given(st.dictionaries(NAMES, NAMES, max_size=20))
def test_a_list_of_devices_is_read_as_it_was_written(health: dict[str, str]) -> None:
    """The one message that both directions know."""
    assert wire.read_devices(wire.devices(health)) == health


@pytest.mark.parametrize("message", [b"\x0a", b"\x0a\x05abc", b"\x0d\x00\x00\x00\x00", b"\x80"])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    """Cut off, of another wire type, or a number without end."""
    with pytest.raises(ValueError, match=r"no message of the device plugin API|ends in its middle"):
        list(wire.read_preferred(message))


@contextmanager
def _kubelet(folder: Path) -> Iterator[list[bytes]]:
    """A kubelet as far as Registration goes; gives the requests that it gets."""
    (folder / KUBELET_SOCKET).unlink(missing_ok=True)
    registered: list[bytes] = []

    def register(request: bytes, _context: Any) -> bytes:
        registered.append(request)
        return b""

    server = grpc.server(ThreadPoolExecutor(2))
    methods = {"Register": grpc.unary_unary_rpc_method_handler(register)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", methods),))
    server.add_insecure_port(f"unix://{folder / KUBELET_SOCKET}")
    server.start()
    try:
        yield registered
    finally:
        server.stop(grace=None).wait(10)


def test_it_speaks_to_kubelet_and_starts_anew_with_it(tmp_path: Path) -> None:
    """It registers, lists its devices, allocates; a second kubelet is registered with too, and all is healthy again."""
    library = tmp_path / "driver/usr/lib/x86_64-linux-gnu"
    library.mkdir(parents=True)
    state = _state()
    write(library / "nvml.state", state)
    stop = threading.Event()
    plugin = threading.Thread(target=serve, args=(tmp_path, tmp_path / "driver", stop), daemon=True)
    try:
        with _kubelet(tmp_path) as registered:
            plugin.start()
            wait_until(lambda: len(registered) == 1, timeout_s=20)
            assert registered[0] == wire.register_request(SOCKET, "nvidia.com/gpu")
            with grpc.insecure_channel(f"unix://{tmp_path / SOCKET}") as channel:
                watch = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
                assert set(wire.read_devices(next(watch)).values()) == {"Healthy"}
                _event(state, 1, XID, 119)
                write(library / "nvml.state", state)
                assert wire.read_devices(next(watch))["GPU-1"] == "Unhealthy"
                allocate = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
                assert b"NVIDIA_VISIBLE_DEVICES\x12\x0bGPU-0,GPU-2" in allocate(
                    wire.preferred([["GPU-0", "GPU-2"]])
                )
                watch.cancel()
        with _kubelet(tmp_path) as again:
            wait_until(lambda: len(again) == 1, timeout_s=20)
            with grpc.insecure_channel(f"unix://{tmp_path / SOCKET}") as channel:
                watch = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
                assert set(wire.read_devices(next(watch)).values()) == {"Healthy"}
                watch.cancel()
    finally:
        stop.set()
        plugin.join(20)
    assert not plugin.is_alive()


def _nothing_to_hand_out(state: State) -> None:
    state.settings["allocate_fails"] = "no CDI specification"


@pytest.mark.parametrize(
    ("happen", "method", "words"),
    [
        pytest.param(_lose, "GetPreferredAllocation", "GPU is lost", id="a lost GPU"),
        pytest.param(_nothing_to_hand_out, "Allocate", "no CDI specification", id="nothing to hand out"),
    ],
)
def test_what_fails_is_an_error_to_kubelet(happen: Callable[[State], None], method: str, words: str) -> None:
    """Kubelet then refuses the pod (UnexpectedAdmissionError), which is what this plugin is known for."""
    state = _state()
    service = Service(Gpus(lambda: state))
    happen(state)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((service.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask = channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")
            with pytest.raises(grpc.RpcError, match=words):
                ask(b"\x0a\x09\x0a\x05GPU-0\x18\x01", timeout=10)
    finally:
        server.stop(grace=None).wait(10)
