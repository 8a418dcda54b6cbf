"""The one real way to the API server: kube.api.Api over urllib3, with a bound on everything.

Every request has a connect and a read timeout and an end. This module owns the retries of its call path: reads are tried
three times; writes are repeated only where the server said that it did nothing (throttling, 401), since any other failure
leaves their outcome unknown and only the caller can look. A PodDisruptionBudget's 429 is an answer and is never repeated.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3

from kube import retries
from kube.answers import refusal
from kube.api import NotLeader, PatchType, Unauthorized, Unavailable
from kube.clock import SYSTEM, Clock
from kube.connections import CHUNK, asking, lines_of, pool_to
from kube.credentials import SERVICE_ACCOUNT, Endpoint, TokenSource, choose
from kube.lease import LEAST_WRITE_S

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 30.0

WriteGuard = Callable[[], float]


def user_agent(program: str) -> str:
    """Name ourselves as `nodemend-agent/0.1.0`; the server takes the part before the slash as field manager."""
    try:
        return f"{program}/{version('nodemend')}"
    except PackageNotFoundError:  # run from a source tree that was never installed
        return f"{program}/0"


def connect(
    *,
    user_agent: str,
    kubeconfig: Path | None = None,
    context: str = "",
    server: str | None = None,
    token_file: Path | None = None,
    ca_file: Path | None = None,
    clock: Clock = SYSTEM,
    write_guard: WriteGuard | None = None,
    max_connections: int = 16,
    timeout_s: float = READ_TIMEOUT_S,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> "Session":
    """Open a session by the first way that is there: `server`, `kubeconfig`, the pod's service account, kubectl's default.

    `context` is one of the kubeconfig's, empty for its current one. `write_guard` gives the seconds that a write may still
    take, 0 for none (LeaderElection.write_budget). `timeout_s` is how long an answer may take; lists get at least 30 s.
    Raises CannotConnect.
    """
    endpoint, token = choose(
        kubeconfig, context, server, token_file, ca_file, clock, environ, service_account
    )
    return Session(
        endpoint,
        token,
        user_agent=user_agent,
        clock=clock,
        write_guard=write_guard,
        max_connections=max_connections,
        timeout_s=timeout_s,
    )


class Session:
    """kube.api.Api for one server and one identity; may be used from any thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        token: TokenSource,
        *,
        user_agent: str,
        clock: Clock = SYSTEM,
        write_guard: WriteGuard | None = None,
        max_connections: int = 16,
        timeout_s: float = READ_TIMEOUT_S,
        pool: urllib3.PoolManager | None = None,
    ) -> None:
        """`pool` is somebody else's, who closes it; without one the session makes and closes its own."""
        self.server = endpoint.server
        self.user_agent = user_agent
        self._endpoint = endpoint
        self._token = token
        self._clock = clock
        self._write_guard = write_guard
        self._timeout_s = timeout_s
        self._pool = pool or pool_to(endpoint, max_connections)
        self._owns_pool = pool is None
        self._lock = threading.Lock()
        self._streams: set[urllib3.BaseHTTPResponse] = set()
        self._closed = False
        self._reads = retries.of(clock, retries.may_repeat_read)
        self._writes = retries.of(clock, retries.may_repeat_write)

    def with_token(self, token: TokenSource) -> "Session":
        """Give a session of another identity over the same connections, which end with this one.

        Raises ValueError where a client certificate is the connections' identity: the server would believe that one.
        """
        if self._endpoint.cert_file:
            raise ValueError(
                f"{self.server}: these connections carry the client certificate {self._endpoint.cert_file}, "
                "no token on them would count"
            )
        return Session(
            self._endpoint,
            token,
            user_agent=self.user_agent,
            clock=self._clock,
            write_guard=self._write_guard,
            timeout_s=self._timeout_s,
            pool=self._pool,
        )

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        limit_s = max(LIST_TIMEOUT_S, self._timeout_s) if query and "limit" in query else self._timeout_s
        return self._reads(lambda: self._whole("GET", path, query, limit_s=limit_s))

    def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> bytes:
        return self._write("POST", path, body, query=query)

    def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        return self._write("PATCH", path, body, query=query, content_type=patch_type.value)

    def replace(self, path: str, body: Mapping[str, Any]) -> bytes:
        return self._write("PUT", path, body)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        return self._write("DELETE", path, body)

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> Iterator[bytes]:
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        response = self._open("GET", path, query, timeout=timeout)
        with self._lock:
            self._streams.add(response)
            closed = self._closed
        try:
            if not closed:
                yield from lines_of(response)
        except urllib3.exceptions.ReadTimeoutError:
            raise TimeoutError(f"GET {path}: nothing heard for {read_timeout_s:g} s") from None
        except urllib3.exceptions.HTTPError as error:
            if not self._closed:
                raise self._unavailable(f"GET {path}", error) from error
        finally:
            with self._lock:
                self._streams.discard(response)
            response.close()

    def close(self) -> None:
        """End open streams, from whatever thread, and let the connections go. Later streams end at once."""
        with self._lock:
            self._closed = True
            for response in self._streams:
                try:
                    response.shutdown()
                except (OSError, ValueError, RuntimeError):  # it ended by itself in this moment
                    continue
        if self._owns_pool:
            self._pool.clear()

    def _write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | list[Any] | None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        raw = msgspec.json.encode(body) if body is not None else None

        def ask() -> None:
            self._budget(method, path)

        def attempt() -> bytes:
            if self._write_guard is None:
                return self._whole(method, path, query, raw, content_type)
            limit_s = min(self._timeout_s, self._budget(method, path))
            # The server, too, gives up then: a write it has not carried out by that time, it never will.
            bounded = {**(query or {}), "timeout": f"{int(limit_s * 1000)}ms"}
            with asking(ask):
                return self._whole(method, path, bounded, raw, content_type, limit_s=limit_s, total_s=limit_s)

        return self._writes(attempt)

    def _budget(self, method: str, path: str) -> float:
        seconds = self._write_guard() if self._write_guard is not None else READ_TIMEOUT_S
        if seconds <= LEAST_WRITE_S:
            raise NotLeader(
                f"{method} {path}: not sent, the lease may pass on before an answer ({seconds:.1f} s left)"
            )
        return seconds

    def _whole(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None = None,
        content_type: str = "application/json",
        *,
        limit_s: float | None = None,
        total_s: float | None = None,
    ) -> bytes:
        limit_s = self._timeout_s if limit_s is None else limit_s
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, limit_s), read=limit_s, total=total_s)
        end = self._clock.monotonic() + (total_s or CONNECT_TIMEOUT_S + limit_s)
        response = self._open(method, path, query, body, content_type, timeout=timeout)
        return self._read(response, f"{method} {path}", end)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None = None,
        content_type: str = "application/json",
        *,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        asked = f"{method} {path}"
        url = f"{self.server}{path}?{urlencode(query)}" if query else f"{self.server}{path}"
        header = self._token.header()
        try:
            return self._send(asked, method, url, header, body, content_type, timeout)
        except Unauthorized:
            if not self._token.renew(header):
                raise
        return self._send(asked, method, url, self._token.header(), body, content_type, timeout)

    def _send(
        self,
        asked: str,
        method: str,
        url: str,
        authorization: str,
        body: bytes | None,
        content_type: str,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"User-Agent": self.user_agent, "Accept": "application/json"}
        if authorization:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            response = self._pool.urlopen(
                method,
                url,
                body=body,
                headers=headers,
                timeout=timeout,
                preload_content=False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._unavailable(asked, error) from error
        if 200 <= response.status < 300:
            return response
        end = self._clock.monotonic() + READ_TIMEOUT_S
        raise refusal(
            asked, response.status, self._read(response, asked, end), response.headers.get("Retry-After")
        )

    def _read(self, response: urllib3.BaseHTTPResponse, asked: str, end: float) -> bytes:
        """Read a body to its end, however slowly it drips, but not beyond `end` on the monotonic clock."""
        body = bytearray()
        try:
            while chunk := response.read1(CHUNK):
                body += chunk
                if self._clock.monotonic() > end:
                    response.close()
                    raise Unavailable(f"{asked}: the answer did not end in time")
        except urllib3.exceptions.HTTPError as error:
            response.close()
            raise self._unavailable(asked, error) from error
        response.release_conn()
        return bytes(body)

    def _unavailable(self, asked: str, error: urllib3.exceptions.HTTPError) -> Unavailable:
        if isinstance(error, urllib3.exceptions.SSLError):
            ca = self._endpoint.ca_file or "the system's authorities"
            return Unavailable(f"{asked}: TLS to {self.server} failed, judged by {ca}: {error}", reason="TLS")
        return Unavailable(f"{asked}: no answer from {self.server}: {error}")
