"""/healthz, /readyz and /metrics over plain HTTP, for kubelet and Prometheus.

Bounded: eight requests at a time, five seconds each; one more is answered by closing the connection.
"""

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any

import structlog

from agent.metrics import CONTENT_TYPE

MOST_AT_ONCE = 8
REQUEST_TIMEOUT_S = 5


class Pages:
    """What is served. The two probes give why not, or None where all is well."""

    def __init__(
        self,
        *,
        why_not_healthy: Callable[[], str | None],
        why_not_ready: Callable[[], str | None],
        metrics: Callable[[], bytes],
    ) -> None:
        self._probes = {"/healthz": why_not_healthy, "/readyz": why_not_ready}
        self._metrics = metrics

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Give status, content type and body of one GET."""
        bare = path.partition("?")[0]
        if bare == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, self._metrics()
        if probe := self._probes.get(bare):
            why = probe()
            status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
            return status, "text/plain; charset=utf-8", f"{why or 'ok'}\n".encode()
        known = b"known are /healthz, /readyz and /metrics\n"
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", known


class Server:
    """Owns the listening socket and its thread."""

    def __init__(self, listen: str, pages: Pages) -> None:
        """Listen on HOST:PORT; port 0 picks a free one. Raises OSError where that cannot be had."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        self._server = _BoundedServer((host, int(port)), _handler(pages))
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT as it really is."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=REQUEST_TIMEOUT_S)

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.5)


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up early is not our event."""


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            status, content_type, body = pages.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's own signature
            """Say nothing: probes come every few seconds."""

    return Handler


def serve(listen: str, pages: Pages, address_file: Path) -> Server | None:
    """Listen and leave the real address in `address_file`, which is a help and may fail; None for an empty `listen`.

    Raises OSError where the address cannot be had.
    """
    if not listen:
        return None
    server = Server(listen, pages)
    server.start()
    log = structlog.get_logger()
    try:
        address_file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        address_file.write_text(server.address + "\n", encoding="utf-8")
    except OSError as error:
        log.error("address.unsaved", error=str(error))
    log.info("server.started", address=server.address)
    return server
