"""Send one signed page to one receiver and say what came of it. Shell: one POST, no retry, no redirect, bounded in time.

Success is 200, 201, 202 or 204 (CloudEvents HTTP webhooks 1.0.1, section 2.3; any 2xx is taken). 410 means that the
receiver is gone for good. 429 and 503 may say when to come back. A redirect is a failure: a page goes where the
configuration says and nowhere else. When to try again, and for how long, is `controller.deliver`'s.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from controller.config import SinkSection
from controller.signature import SecretProblem, headers, read_secrets

_LONGEST_WAIT = timedelta(hours=2)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one try came to. `error` is empty on success; `gone` = never again; `wait` = the receiver's own wish."""

    error: str = ""
    status: int = 0
    gone: bool = False
    wait: timedelta | None = None


class Sender(Protocol):
    """Sends a body under an id: `Webhook` is the real one."""

    def send(self, message_id: str, body: bytes, content_type: str, now: datetime, /) -> Answer: ...


class Webhook:
    """One receiver. Its secret file is read at every try, so that a rotated secret counts from the next try on."""

    def __init__(self, sink: SinkSection, *, user_agent: str) -> None:
        """Raises OSError or ssl.SSLError where the sink's CA file holds no certificate."""
        self._sink = sink
        self._user_agent = user_agent
        self._url = urlsplit(sink.url)
        self._tls = ssl.create_default_context(cafile=sink.ca_file or None)

    def send(self, message_id: str, body: bytes, content_type: str, now: datetime) -> Answer:
        """Try once; the whole exchange ends with the sink's timeout. Every failure is an Answer."""
        try:
            keys = read_secrets(Path(self._sink.secret_file))
        except SecretProblem as error:
            return Answer(error=str(error))
        told = {
            **headers(keys, message_id=message_id, at=now, body=body),
            "content-type": content_type,
            "user-agent": self._user_agent,
            "connection": "close",
        }
        connection = self._connection()
        # A socket's timeout starts anew with each byte: a receiver that answers a byte a second would never end.
        deadline = _Deadline(connection, self._sink.timeout.total_seconds())
        try:
            deadline.start()
            target = self._url.path or "/"
            connection.request(
                "POST", f"{target}?{self._url.query}" if self._url.query else target, body, told
            )
            response = connection.getresponse()
            return _judge(response.status, response.headers, now)
        except (OSError, HTTPError, HTTPException, ValueError) as error:
            if deadline.passed:
                return Answer(error=f"no answer within {self._sink.timeout.total_seconds():g} s")
            return Answer(error=f"no answer: {_cause(error)}")
        finally:
            deadline.cancel()
            connection.close()

    def _connection(self) -> HTTPConnection:
        """Make a connection for one try: pages are rare, and an idle connection is one more thing that can be half open.

        Used directly and not through a PoolManager, so that no redirect, proxy or retry can happen at all.
        """
        host, timeout_s = str(self._url.hostname), self._sink.timeout.total_seconds()
        if self._url.scheme == "http":
            return HTTPConnection(host, self._url.port or 80, timeout=timeout_s)
        return HTTPSConnection(
            host, self._url.port or 443, timeout=timeout_s, ssl_context=self._tls, cert_reqs="CERT_REQUIRED"
        )


class _Deadline:
    """Ends a connection's exchange when the time is up, whatever it waits for."""

    def __init__(self, connection: HTTPConnection, seconds: float) -> None:
        self.passed = False
        self._connection = connection
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.passed = True
        held = self._connection.sock
        if held is not None:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)


def _judge(status: int, answered: Mapping[str, str], now: datetime) -> Answer:
    if 200 <= status < 300:
        return Answer(status=status)
    error = f"the receiver answered {status}"
    if 300 <= status < 400:
        return Answer(status=status, error=f"{error}, a redirect, which is never followed")
    if status == 410:
        return Answer(status=status, error=f"{error}, gone", gone=True)
    if status in (429, 503):
        return Answer(status=status, error=error, wait=retry_after(answered.get("retry-after", ""), now))
    return Answer(status=status, error=error)


def retry_after(text: str, now: datetime) -> timedelta | None:
    """Read a Retry-After header, seconds or a date; None where it says nothing. Bounded to two hours."""
    if text.strip().isascii() and text.strip().isdigit():
        return min(timedelta(seconds=int(text.strip()[:9])), _LONGEST_WAIT)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return min(max(at - now, timedelta(0)), _LONGEST_WAIT)


def _cause(error: Exception) -> str:
    """Name the cause without the connection's own description, which holds the address."""
    return f"{type(error).__name__}: {str(error).rsplit('>: ', 1)[-1]}"[:300]
