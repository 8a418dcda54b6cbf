"""Kubelet's PodResources service for a machine that has no kubelet: a real gRPC server on a Unix socket.

Its messages are written by hand (k8s.io/kubelet pkg/apis/podresources/v1/api.proto): protobuf is no package of ours.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc  # type: ignore[import-untyped]  # it ships no types

SERVICE = "v1.PodResourcesLister"


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
    """Serves `allocatable` and `pods` from `start` to `stop`, or within its block; `answer_by` replaces what it says."""

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
