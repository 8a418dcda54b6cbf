"""The least that can be sent to an API server: whole requests over one kept-open TLS connection. Shell.

This is what nodemend is measured against, so it does nothing that it could leave out: no pool, no retries, no decoding, no
time-outs beyond the socket's own. Never used by the product.
"""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

CHUNK = 64 * 1024
_TIMEOUT_S = 30.0


class WireBroken(Exception):
    """The connection ended, or the answer is none of HTTP/1.1 with a length or in chunks."""


class Wire:
    """One connection. `ask` sends a request and gives its answer; for one thread."""

    def __init__(self, server: str, ca_file: Path) -> None:
        """Connect. Raises OSError."""
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port or 443
        context = ssl.create_default_context(cafile=str(ca_file))
        plain = socket.create_connection((host, port), timeout=_TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname=host)
        self._receive = lambda: self._socket.recv(CHUNK)

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send the request; give status and body. Raises OSError, WireBroken."""
        self._socket.sendall(request)
        return answer(self._receive)

    def close(self) -> None:
        self._socket.close()


def head(server: str, token: str, method: str, path: str, content_type: str) -> bytes:
    """Write a request up to the value of Content-Length, its last header."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {urlsplit(server).netloc}\r\nUser-Agent: nodemend-bench\r\n"
        f"Accept: application/json\r\nAuthorization: Bearer {token}\r\nContent-Type: {content_type}\r\n"
        "Content-Length: "
    ).encode()


def request(begun: bytes, body: bytes) -> bytes:
    """Complete what `head` began."""
    return b"%s%d\r\n\r\n%s" % (begun, len(body), body)


def answer(receive: Callable[[], bytes]) -> tuple[int, bytes]:
    """Read one answer: status and body; `receive` gives what came, and nothing at the end. Raises WireBroken."""
    data = _more(b"", receive)
    while (end := data.find(b"\r\n\r\n")) < 0:
        data = _more(data, receive)
    status = int(data[9:12])
    headers = data[:end].lower()
    body = data[end + 4 :]
    if (at := headers.find(b"\r\ncontent-length:")) >= 0:
        length = int(headers[at + 17 :].split(b"\r\n", 1)[0])
        while len(body) < length:
            body = _more(body, receive)
        return status, body
    if b"\r\ntransfer-encoding: chunked" not in headers:
        raise WireBroken(f"an answer without length: {data[:200]!r}")
    while True:
        whole = unchunked(body)
        if whole is not None:
            return status, whole
        body = _more(body, receive)


def unchunked(body: bytes) -> bytes | None:
    """Put a chunked body together; None where it has not come to its end yet. Raises WireBroken."""
    if not body.endswith(b"0\r\n\r\n"):
        return None
    parts: list[bytes] = []
    at = 0
    while True:
        line = body.find(b"\r\n", at)
        if line < 0:
            return None
        try:
            size = int(body[at:line], 16)
        except ValueError as error:
            raise WireBroken(f"a chunk without size: {body[at : at + 40]!r}") from error
        if size == 0:
            return b"".join(parts)
        parts.append(body[line + 2 : line + 2 + size])
        at = line + 2 + size + 2
        if at > len(body):
            return None


def _more(held: bytes, receive: Callable[[], bytes]) -> bytes:
    came = receive()
    if not came:
        raise WireBroken("the server closed the connection before its answer was whole")
    return held + came
