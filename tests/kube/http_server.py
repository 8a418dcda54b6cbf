"""A real HTTP server on a real socket that answers as a test tells it to."""

import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came over the wire; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What to answer. `chunks` are sent one by one, chunked, the connection then held until `hold` is set."""

    status: int = 200
    body: Any = {}
    headers: Mapping[str, str] = {}
    chunks: tuple[bytes, ...] = ()
    hold: threading.Event | None = None


def refused(
    status: int, reason: str, *, causes: tuple[str, ...] = (), headers: Mapping[str, str] = {}
) -> Answer:
    """Answer with a Status object as the API server does."""
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": status,
        "reason": reason,
        "message": f"refused: {reason}",
        "details": {"causes": [{"reason": cause, "message": "because"} for cause in causes]},
    }
    return Answer(status=status, body=body, headers=headers)


Answering = Callable[[Asked], Answer]


class HttpServer:
    """`answers` are given out one by one; after them, `otherwise` answers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.answers: deque[Answer | Answering] = deque()
        self.otherwise: Answering = lambda _: Answer()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(method=self.command, path=self.path, headers=headers, body=body)
                server.asked.append(asked)
                answer = server.answers.popleft() if server.answers else server.otherwise
                send(self, answer if isinstance(answer, Answer) else answer(asked))

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815 - http.server's names

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's names
                """Stay silent."""

        class Threads(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that go away or do not trust us are part of the tests."""

        self._http = Threads(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._http.socket = tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)


def send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    """Write one answer, whole or in chunks."""
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    chunked = bool(answer.chunks) or answer.hold is not None
    handler.send_response(answer.status)
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Type", "application/json")
    handler.send_header(
        *(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body))))
    )
    handler.end_headers()
    if not chunked:
        handler.wfile.write(body)
        return
    for chunk in answer.chunks:
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        handler.wfile.flush()
    if answer.hold is not None:
        answer.hold.wait(30)
        handler.close_connection = True
    else:
        handler.wfile.write(b"0\r\n\r\n")


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    """Run a server for the length of a `with`."""
    server = HttpServer(tls)
    try:
        yield server
    finally:
        server.close()
