"""Kubelet's PodResources service as a real gRPC server on a Unix socket, and its messages, written by hand."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc  # type: ignore[import-untyped]  # it ships no types; only this file uses it

SERVICE = "v1.PodResourcesLister"

# What k8s.io/kubelet 0.37.2's own generated Go code writes (proto.Marshal of the same values as in the tests below).
GO_ALLOCATABLE = bytes.fromhex(
    "0a3e0a0e6e76696469612e636f6d2f67707512284750552d31313131313131312d323232322d333333332d343434342d3535"
    "353535353535353535351a020a000a400a0e6e76696469612e636f6d2f67707512284750552d31313131313131312d323232"
    "322d333333332d343434342d3535353535353535353535351a040a0208010a420a166e76696469612e636f6d2f6d69672d31"
    "672e3130676212284d49472d61616161616161612d323232322d333333332d343434342d3535353535353535353535350a0d"
    "0a0872646d612f6863611201301205000102ac021a130a066d656d6f7279108080808080201a020a00"
)
GO_LIST = bytes.fromhex(
    "0aa7010a09747261696e65722d3012067465616d2d611a7a0a046d61696e126e0a0e6e76696469612e636f6d2f677075122b"
    "4750552d31313131313131312d323232322d333333332d343434342d3535353535353535353535353a3a33122b4750552d32"
    "323232323232322d323232322d333333332d343434342d3535353535353535353535353a3a301a020a001a0201021a060a04"
    "73696465220204052a0a0a066d656d6f727910070a750a06636c61696d7312067465616d2d621a630a046d61696e2a5b1207"
    "6f6e652d6770751a067465616d2d6222480a220a206b38732e6770752e6e76696469612e636f6d2f636c61696d3d312d6770"
    "752d33120e6770752e6e76696469612e636f6d1a056770752d3122056770752d332a04663165320a190a05706c61696e120b"
    "6b7562652d73797374656d1a030a0163"
)


def field(number: int, *values: bytes | str) -> bytes:
    """Write a field that has a length, once for each value."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    return b"".join(varint(number << 3 | 2) + varint(len(value)) + value for value in raw)


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def devices(resource: str, *ids: str) -> bytes:
    """Write a ContainerDevices."""
    return field(1, resource) + field(2, *ids)


def allocatable(resource: str, *ids: str) -> bytes:
    """Write an AllocatableResourcesResponse, one entry a device as kubelet does."""
    return field(1, *(devices(resource, one) for one in ids))


def pod(namespace: str, name: str, resource: str, *ids: str) -> bytes:
    """Write the one entry of a ListPodResourcesResponse."""
    container = field(1, "main") + field(2, devices(resource, *ids))
    return field(1, field(1, name) + field(2, namespace) + field(3, container))


class PodResourcesServer:
    """Serves `allocatable` and `pods` until it is stopped; `answer` may be replaced. A context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.allocatable = b""
        self.pods = b""
        self.calls: list[str] = []
        self._answer: Callable[[str, Any], bytes] = self.plainly
        self._server: Any = None

    def plainly(self, method: str, _context: Any) -> bytes:
        return self.pods if method == "List" else self.allocatable

    def answer_by(self, answer: Callable[[str, Any], bytes]) -> None:
        """Answer otherwise: `answer` is given the method and gRPC's context."""
        self._answer = answer

    def start(self) -> "PodResourcesServer":
        self._server = grpc.server(ThreadPoolExecutor(2))
        handlers = {name: self._handler(name) for name in ("List", "GetAllocatableResources")}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()
        return self

    def _handler(self, method: str) -> Any:
        def handle(_request: bytes, context: Any) -> bytes:
            self.calls.append(method)
            return self._answer(method, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    def stop(self) -> None:
        self._server.stop(grace=None).wait(5)

    def __enter__(self) -> "PodResourcesServer":
        return self.start()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()


@contextmanager
def socket_path() -> Iterator[Path]:
    """Give a path short enough for a Unix socket (107 bytes), which pytest's own folders are not always."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder) / "kubelet.sock"


def serve_raw(listener: Any, speak: Callable[[Any], None]) -> threading.Thread:
    """Take one connection on a listening socket and let `speak` do with it what it will."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            speak(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread
