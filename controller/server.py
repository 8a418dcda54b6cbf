"""/metrics, /healthz, /readyz and a program's own pages over plain HTTP. It shows; it takes nothing and changes nothing.

/healthz asks whether the loop still turns (a stuck one is restarted), /readyz whether the stores are in, so that a replica
that could not see the cluster never counts as one that could take over.
"""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

Why = Callable[[], str | None]
Page = Callable[[], bytes]

log = structlog.get_logger(__name__)

_IDLE_S = 10.0  # a client that sends nothing does not hold a thread longer


class Server:
    """One listening socket with a thread of its own. `port` is the real one where port 0 was asked for."""

    def __init__(
        self,
        listen: str,
        registry: CollectorRegistry,
        *,
        why_not_healthy: Why,
        why_not_ready: Why,
        pages: Mapping[str, Page] = {},
    ) -> None:
        """Bind at once. `pages` are JSON, by path. Raises OSError, naming the address, where it cannot be had."""
        host, _, port = listen.rpartition(":")
        handler = _handler(registry, why_not_healthy, why_not_ready, pages)
        try:
            self._http = ThreadingHTTPServer((host.strip("[]"), int(port)), handler)
        except OSError as error:
            raise OSError(error.errno, f"listen = {listen!r}: {error.strerror}") from error
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.2,), name="http", daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def start(self) -> None:
        self._thread.start()
        log.info("server.started", port=self.port)

    def stop(self) -> None:
        """Close the socket and wait for the serving thread; requests in flight are cut off."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join(2.0)
        self._http.server_close()


def _handler(
    registry: CollectorRegistry, why_not_healthy: Why, why_not_ready: Why, pages: Mapping[str, Page]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _IDLE_S
        server_version = "nodemend"
        sys_version = ""

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
                case "/healthz":
                    self._answer_why(why_not_healthy())
                case "/readyz":
                    self._answer_why(why_not_ready())
                case path if path in pages:
                    self._answer(200, pages[path](), "application/json")
                case _:
                    known = " ".join(("/metrics", "/healthz", "/readyz", *pages))
                    self._answer(404, f"known here: {known}\n".encode(), "text/plain; charset=utf-8")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own signature
            """Say nothing: a probe each few seconds is no change of state."""

        def _answer_why(self, why: str | None) -> None:
            text = f"{why}\n" if why else "ok\n"
            self._answer(503 if why else 200, text.encode(), "text/plain; charset=utf-8")

        def _answer(self, code: int, body: bytes, content_type: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
