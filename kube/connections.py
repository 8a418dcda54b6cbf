"""Connections to the API server: TLS, the pool, and the last question before a write's bytes leave.

Getting a connection can take seconds (resolving, TCP, TLS), and a process can be stopped for minutes between any two
instructions. So whether we may still write is asked again in `send`, for the head and for the body, when nothing but the
system call is left to do. A request whose body is withheld is no request to the server.
"""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from kube.api import Unavailable
from kube.credentials import CannotConnect, Endpoint

CHUNK = 256 * 1024
LINE_LIMIT = 32 * 1024 * 1024

_asked = threading.local()


@contextmanager
def asking(before_send: Callable[[], None] | None) -> Iterator[None]:
    """Have `before_send` called in this thread before anything is sent; what it raises stops the request."""
    _asked.before_send = before_send
    try:
        yield
    finally:
        _asked.before_send = None


def _ask() -> None:
    before_send: Callable[[], None] | None = getattr(_asked, "before_send", None)
    if before_send is not None:
        before_send()


class _AskingHTTPConnection(HTTPConnection):
    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _ask()
        super().send(data)


class _AskingHTTPSConnection(HTTPSConnection):
    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _ask()
        super().send(data)


class _AskingHTTPPool(HTTPConnectionPool):
    ConnectionCls = _AskingHTTPConnection


class _AskingHTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _AskingHTTPSConnection


def pool_to(endpoint: Endpoint, max_connections: int) -> urllib3.PoolManager:
    """Make the pool: up to `max_connections` are kept open, further ones are closed after use; nothing is retried here.

    Raises CannotConnect naming a certificate file that cannot be loaded.
    """
    options: dict[str, Any] = {"maxsize": max_connections, "block": False, "retries": False}
    if endpoint.server.startswith("https"):
        options["ssl_context"] = _tls(endpoint)
        if not endpoint.verify:
            options |= {"cert_reqs": ssl.CERT_NONE, "assert_hostname": False}
        if endpoint.tls_server_name:
            options |= {
                "server_hostname": endpoint.tls_server_name,
                "assert_hostname": endpoint.tls_server_name,
            }
    if endpoint.proxy:
        manager: urllib3.PoolManager = urllib3.ProxyManager(endpoint.proxy, num_pools=1, **options)
    else:
        manager = urllib3.PoolManager(num_pools=1, **options)
    manager.pool_classes_by_scheme = {"http": _AskingHTTPPool, "https": _AskingHTTPSPool}
    return manager


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise CannotConnect(
            f"{endpoint.ca_file}: not a usable certificate authority file: {error}"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not endpoint.verify:  # insecure-skip-tls-verify of a kubeconfig: the user's own word
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if endpoint.cert_file:
        try:
            context.load_cert_chain(endpoint.cert_file, endpoint.key_file or None)
        except (OSError, ssl.SSLError) as error:
            raise CannotConnect(
                f"{endpoint.cert_file}: not a usable client certificate and key: {error}"
            ) from error
    return context


def lines_of(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the lines of a watch as they come. Raises Unavailable for one beyond LINE_LIMIT bytes, and urllib3's errors."""
    rest = b""
    for chunk in _chunks(response):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line)
        if len(rest) > LINE_LIMIT:
            raise Unavailable(f"a watch sent a line of more than {LINE_LIMIT} bytes")


def _chunks(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    if getattr(response, "chunked", False):
        return response.read_chunked(CHUNK)  # one chunk an event, as the server flushes them
    return iter(lambda: response.read1(CHUNK), b"")
