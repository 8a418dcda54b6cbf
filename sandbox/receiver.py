"""A local receiver of pages: an HTTP server that judges signatures as a stranger would, and keeps every message.

It knows the specification (Standard Webhooks 1.0.0: HMAC-SHA256 over `id.timestamp.body`, base64, `v1,`) and nothing of the
sender's code. A test tells it to answer otherwise than 204, or not at all.
"""

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

_TOLERANCE_S = 300  # the specification's own advice against replay
_LARGEST_BODY = 1_000_000
_MOST_KEPT = 10_000


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the receiver says: after `after_s` seconds `status`, with `Retry-After` where given. 0 = no word at all."""

    status: int = 204
    retry_after_s: int | None = None
    after_s: float = 0.0


HANGS = Answer(status=0, after_s=3600.0)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived. `refused` says what is wrong with it, empty for nothing; `answered` is our status."""

    id: str
    received_at: datetime
    received_monotonic: float
    headers: dict[str, str]
    body: bytes
    event: dict[str, Any]
    refused: str
    answered: int

    @property
    def type(self) -> str:
        """The CloudEvents type, such as `dev.nodemend.remediation.open`."""
        return str(self.event.get("type", ""))


class Receiver:
    """Listens on 127.0.0.1 while the block lasts. `secret_file` is what the sender's configuration names."""

    def __init__(self, folder: Path) -> None:
        self.key = secrets.token_bytes(32)
        folder.mkdir(parents=True, exist_ok=True)
        self.secret_file = folder / "webhook-secret"
        self.secret_file.touch(mode=0o600)
        self.secret_file.write_text(f"whsec_{base64.b64encode(self.key).decode()}\n")
        self._messages: deque[Message] = deque(maxlen=_MOST_KEPT)
        self._arrived = threading.Condition()
        self._closing = threading.Event()
        self._scripted: deque[Answer] = deque()
        self._usual = Answer()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="receiver", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/nodemend"

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything that arrived so far, oldest first, refused messages included (the last 10,000)."""
        with self._arrived:
            return tuple(self._messages)

    @property
    def accepted(self) -> tuple[Message, ...]:
        """What arrived and was answered with success."""
        return tuple(message for message in self.messages if 200 <= message.answered < 300)

    def answer(self, *answers: Answer, then: Answer | None = None) -> None:
        """Give these answers to the next messages, one each, and `then` (by default 204) to all after them."""
        with self._arrived:
            self._scripted = deque(answers)
            self._usual = then or Answer()

    def wait_for(self, wanted: Callable[[Message], bool], timeout_s: float) -> Message:
        """Return the first message, past or coming, that `wanted` takes. Raises TimeoutError, naming what came instead."""
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while True:
                found = next((message for message in self._messages if wanted(message)), None)
                if found is not None:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    came = ", ".join(f"{m.type} ({m.refused or m.answered})" for m in self._messages)
                    raise TimeoutError(
                        f"no such message within {timeout_s:g} s; there came: {came or 'nothing'}"
                    )
                self._arrived.wait(left)

    def close(self) -> None:
        """Stop listening; answers that hang are given up. Safe to call twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def take(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Keep a message and return what to answer; it is waited out here."""
        now = time.time()
        given = {key.lower(): value for key, value in headers.items()}
        refused = why_not_genuine(self.key, given, body, now) or ""
        event, broken = _event(body)
        refused = refused or broken
        with self._arrived:
            answer = self._scripted.popleft() if self._scripted else self._usual
            if refused and 200 <= answer.status < 300:
                answer = Answer(status=HTTPStatus.BAD_REQUEST)
            self._messages.append(
                Message(
                    id=given.get("webhook-id", ""),
                    received_at=datetime.fromtimestamp(now, UTC),
                    received_monotonic=time.monotonic(),
                    headers=given,
                    body=body,
                    event=event,
                    refused=refused,
                    answered=answer.status,
                )
            )
            self._arrived.notify_all()
        if answer.after_s:
            self._closing.wait(answer.after_s)
        return answer


def why_not_genuine(key: bytes, headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    """Say what is wrong with a message's signature at `now` (seconds since 1970), None for nothing."""
    missing = [
        name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not headers.get(name)
    ]
    if missing:
        return f"header {', '.join(missing)} is missing"
    timestamp = headers["webhook-timestamp"]
    if not timestamp.isdigit() or abs(now - int(timestamp)) > _TOLERANCE_S:
        return f"webhook-timestamp {timestamp} is not within {_TOLERANCE_S} s of now"
    signed = f"{headers['webhook-id']}.{timestamp}.".encode() + body
    right = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = headers["webhook-signature"].split(" ")
    if not any(hmac.compare_digest(f"v1,{right}", one) for one in given):
        return "no signature is right"
    return None


def _event(body: bytes) -> tuple[dict[str, Any], str]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any]), ""
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {}, f"the body is no JSON object: {error}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)  # noqa: S101 - tells mypy what __init__ gave it
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        answer = server.receiver.take(dict(self.headers), self.rfile.read(int(length)))
        if answer.status == 0:
            self.close_connection = True
            return
        self.send_response(answer.status)
        if answer.retry_after_s is not None:
            self.send_header("Retry-After", str(answer.retry_after_s))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's signature
        """Say nothing: what arrived is in `messages`."""
