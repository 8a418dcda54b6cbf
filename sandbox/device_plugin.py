"""A stand-in for NVIDIA's device plugin: `python3 -m sandbox.device_plugin`, run in a pod of every kubelet's node.

It offers the fake driver's GPUs to kubelet by their UUIDs, with what that plugin is known for (NVIDIA/k8s-device-plugin,
internal/rm/health.go, internal/rm/nvml_manager.go, cmd/nvidia-device-plugin/main.go):

- an XID event marks its GPU unhealthy, except 13, 31, 43, 45, 68 and 109;
- an error of the wait for events, which a lost GPU causes, marks all GPUs unhealthy;
- nothing makes a GPU healthy again but a start of the plugin, and it starts anew whenever kubelet does;
- it does not start while a GPU is lost or the driver is not loaded: the container ends and is started again;
- GetPreferredAllocation asks NVML for every GPU of the machine, so once one is lost it fails, and with it every GPU pod;
- Allocate fails while what it hands out cannot be made (internal/plugin/server.go: a CDI specification, the MPS daemon), and
  every GPU stays Healthy all the same: here while the state has a setting `allocate_fails`, which is the error's words.

Instead of NVML it reads the fake driver's state, which is what NVML would tell. MIG and time-slicing are not played.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc  # type: ignore[import-untyped]

from sandbox import device_plugin_wire as wire
from sandbox.fake_nvml.statefile import State, parse

RESOURCE = "nvidia.com/gpu"
SOCKET = "nvidia-gpu.sock"
KUBELET_SOCKET = "kubelet.sock"
IGNORED_XIDS = frozenset({13, 31, 43, 45, 68, 109})
_XID = 8  # the bit of an XID among NVML's events
_LOOK_S = 0.2
_CALL_WITHIN_S = 10.0


class DriverUnusable(Exception):
    """NVML would fail: the driver is not loaded, or a GPU is lost."""


class Gpus:
    """What the plugin knows of the machine's GPUs, from its own start on. `look` is to be called again and again."""

    def __init__(self, read: Callable[[], State]) -> None:
        """Raises DriverUnusable."""
        self._read = read
        state = read()
        if why := _why_unusable(state):
            raise DriverUnusable(why)
        self.health = dict.fromkeys(_present(state), wire.HEALTHY)
        self._seen = int(state.settings["last_event"])

    def look(self) -> bool:
        """Take what happened since the last look; True where a GPU became unhealthy."""
        before = dict(self.health)
        state = self._read()
        if _why_unusable(state):
            self.health = dict.fromkeys(self.health, wire.UNHEALTHY)
        for line in state.events:
            kind, number, gpu, event, data, *_ = [*line.split(), "0", "0"]
            if kind != "event" or int(number) <= self._seen:
                continue
            self._seen = int(number)
            uuid = state.gpus[int(gpu)]["uuid"]
            if int(event) == _XID and int(data) not in IGNORED_XIDS and uuid in self.health:
                self.health[uuid] = wire.UNHEALTHY
        return self.health != before

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> list[str]:
        """Choose `size` of the available GPUs. Raises DriverUnusable once a GPU is lost."""
        if why := _why_unusable(self._read()):
            raise DriverUnusable(f"unable to get device link information: {why}")
        rest = [uuid for uuid in self.health if uuid in available and uuid not in required]
        return [*required, *rest][:size]

    def why_not_allocated(self) -> str:
        """Say why no GPU can be handed out now, "" = one can."""
        return self._read().settings.get("allocate_fails", "")


class Service:
    """The plugin's side of the API: one for each start of the plugin."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self._changed = threading.Condition()
        self._ended = False

    def watch(self) -> None:
        """Look at the GPUs once, and tell kubelet where something changed."""
        if self._gpus.look():
            with self._changed:
                self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def handlers(self) -> grpc.GenericRpcHandler:
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            f"{wire.VERSION}.DevicePlugin",
            {
                "GetDevicePluginOptions": unary(lambda _request, _context: wire.options()),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
                "GetPreferredAllocation": unary(self._prefer),
                "Allocate": unary(self._allocate),
                "PreStartContainer": unary(lambda _request, _context: b""),
            },
        )

    def _list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        told: dict[str, str] = {}
        while context.is_active() and not self._ended:
            now = dict(self._gpus.health)
            if now != told:
                told = now
                yield wire.devices(now)
            with self._changed:
                self._changed.wait(1.0)

    def _prefer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return wire.preferred(self._gpus.prefer(*each) for each in wire.read_preferred(request))
        except DriverUnusable as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise

    def _allocate(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if why := self._gpus.why_not_allocated():
            context.abort(grpc.StatusCode.UNKNOWN, why)
        wanted = wire.read_allocate(request)
        return wire.allocated({"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)} for uuids in wanted)


def serve(folder: Path, driver_root: Path, stop: threading.Event) -> None:
    """Offer the GPUs until `stop`, starting anew with each kubelet. Raises DriverUnusable, grpc.RpcError, OSError."""
    state_file = driver_root / "usr/lib/x86_64-linux-gnu/nvml.state"
    while not stop.is_set():
        gpus = Gpus(lambda: parse(state_file.read_text()))
        service = Service(gpus)
        server = grpc.server(ThreadPoolExecutor(8, thread_name_prefix="rpc"))
        server.add_generic_rpc_handlers((service.handlers(),))
        (folder / SOCKET).unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{folder / SOCKET}")
        server.start()
        try:
            kubelet = _identity(folder / KUBELET_SOCKET)
            _register(folder)
            _say(f"registered {RESOURCE} with {len(gpus.health)} GPUs")
            _watch(folder / KUBELET_SOCKET, kubelet, service, stop)
        finally:
            service.end()
            server.stop(grace=None).wait(_CALL_WITHIN_S)


def _watch(socket: Path, kubelet: tuple[int, int] | None, service: Service, stop: threading.Event) -> None:
    """Look after the GPUs until another kubelet is there. Kubelet empties the folder at its start, our socket included."""
    while not stop.wait(_LOOK_S):
        service.watch()
        now = _identity(socket)
        if now is not None and now != kubelet:
            _say("kubelet was started: starting anew")
            return


def _register(folder: Path) -> None:
    with grpc.insecure_channel(f"unix://{folder / KUBELET_SOCKET}") as channel:
        register = channel.unary_unary(f"/{wire.VERSION}.Registration/Register")
        request = wire.register_request(SOCKET, RESOURCE)
        register(request, timeout=_CALL_WITHIN_S, wait_for_ready=True)


def _identity(socket: Path) -> tuple[int, int] | None:
    try:
        state = socket.stat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_ctime_ns


def _present(state: State) -> list[str]:
    return [values["uuid"] for values in state.gpus.values() if values["present"] == "1"]


def _why_unusable(state: State) -> str | None:
    if state.settings["loaded"] != "1":
        return "Driver Not Loaded"
    lost = [
        number for number, values in state.gpus.items() if values["present"] == "1" and values["lost"] == "1"
    ]
    return f"GPU {lost[0]}: GPU is lost" if lost else None


def _say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; 1 where the driver cannot be used, as NVIDIA's ends then."""
    parser = argparse.ArgumentParser(prog="device_plugin", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--driver-root", type=Path, default=Path("/run/nvidia/driver"))
    told = parser.parse_args(arguments)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        serve(told.folder, told.driver_root, stop)
    except (DriverUnusable, grpc.RpcError, OSError) as error:
        _say(f"ends: {error}")
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # threads of grpc may hang on a kubelet that is gone
