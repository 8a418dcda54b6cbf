"""controller.webhook: one signed POST over a real socket, judged by the public verifier; every failure is an Answer."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from controller.config import SinkSection
from controller.webhook import Answer, Webhook, retry_after
from sandbox.certificates import write_all
from tests.controller.shell.samples import NOW, SECRET, secret_file

Reply = Callable[[BaseHTTPRequestHandler], None]


class Heard(msgspec.Struct):
    """One request as the receiver saw it."""

    path: str
    headers: dict[str, str]
    body: bytes


@contextmanager
def receiver(reply: Reply, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[Heard]]]:
    """Run a receiver on this host that answers by `reply`; gives its address and what it heard."""
    heard: list[Heard] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append(Heard(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            reply(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own signature
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a refused handshake is what is tested
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}/hook?a=1", heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def answering(code: int, **headers: str) -> Reply:
    """Answer with a code and headers (underscores become dashes) and an empty body."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return reply


def sink(url: str, folder: Path, timeout_s: float = 5.0) -> Webhook:
    """Make the sender under test."""
    section = SinkSection(url=url, secret_file=str(secret_file(folder)), timeout=timedelta(seconds=timeout_s))
    return Webhook(section, user_agent="nodemend-controller/test")


def test_the_receiver_can_verify_what_arrives(tmp_path: Path) -> None:
    """Signature, id and content type as the two specifications say; path and query as configured."""
    with receiver(answering(204)) as (url, heard):
        answer = sink(url, tmp_path).send(
            "m1", b'{"x": 1}', "application/cloudevents+json", datetime.now(UTC)
        )
    (request,) = heard
    assert answer == Answer(status=204)
    assert Verifier(SECRET).verify(request.body, request.headers) == {"x": 1}
    assert (request.path, request.headers["webhook-id"]) == ("/hook?a=1", "m1")
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert request.headers["user-agent"] == "nodemend-controller/test"


def test_a_rotated_secret_counts_from_the_next_try_on(tmp_path: Path) -> None:
    """The file is read each time; no restart is needed."""
    with receiver(answering(200)) as (url, heard):
        sender = sink(url, tmp_path)
        sender.send("m1", b"{}", "application/json", datetime.now(UTC))
        other = "whsec_" + "bm9kZW1lbmQtaXMtcm90YXRpbmctaXRzLWtleXM="
        secret_file(tmp_path, other)
        sender.send("m1", b"{}", "application/json", datetime.now(UTC))
    assert Verifier(other).verify(heard[1].body, heard[1].headers) == {}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(answering(200), Answer(status=200), id="200 is taken"),
        pytest.param(
            answering(302, Location="http://127.0.0.1:1/x"),
            Answer(status=302, error="the receiver answered 302, a redirect, which is never followed"),
            id="a redirect is not followed",
        ),
        pytest.param(
            answering(400), Answer(status=400, error="the receiver answered 400"), id="400 is refused"
        ),
        pytest.param(
            answering(410),
            Answer(status=410, error="the receiver answered 410, gone", gone=True),
            id="410 is final",
        ),
        pytest.param(
            answering(429, Retry_After="7"),
            Answer(status=429, error="the receiver answered 429", wait=timedelta(seconds=7)),
            id="429 says when to come back",
        ),
        pytest.param(
            answering(503, Retry_After="120"),
            Answer(status=503, error="the receiver answered 503", wait=timedelta(seconds=120)),
            id="503 says when to come back",
        ),
        pytest.param(
            answering(500), Answer(status=500, error="the receiver answered 500"), id="500 is refused"
        ),
    ],
)
def test_what_the_receiver_says_is_understood(reply: Reply, expected: Answer, tmp_path: Path) -> None:
    """One table of answers; exactly one request each."""
    with receiver(reply) as (url, heard):
        assert sink(url, tmp_path).send("m1", b"{}", "application/json", datetime.now(UTC)) == expected
    assert len(heard) == 1


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Answer a byte at a time, for ever."""
    try:
        while True:
            handler.wfile.write(b"H")
            handler.wfile.flush()
            time.sleep(0.02)
    except OSError:
        return


def test_a_receiver_that_never_ends_its_answer_ends_with_the_timeout(tmp_path: Path) -> None:
    """A socket's own timeout would start anew with every byte."""
    began = time.monotonic()
    with receiver(drip) as (url, _):
        answer = sink(url, tmp_path, timeout_s=0.3).send("m1", b"{}", "application/json", datetime.now(UTC))
    assert answer.error == "no answer within 0.3 s"
    assert time.monotonic() - began < 5


def test_a_receiver_that_is_not_there_is_an_answer_too(tmp_path: Path) -> None:
    """Connection refused is a failed try, with its cause and without the secret part of the address."""
    answer = sink("http://127.0.0.1:9/hush", tmp_path).send("m1", b"{}", "application/json", NOW)
    assert answer.error.startswith("no answer: ")
    assert "hush" not in answer.error


def test_a_secret_that_vanished_is_an_answer_too(tmp_path: Path) -> None:
    """Nothing is sent unsigned."""
    with receiver(answering(200)) as (url, heard):
        sender = sink(url, tmp_path)
        (tmp_path / "secret").unlink()
        answer = sender.send("m1", b"{}", "application/json", NOW)
    assert "cannot be read" in answer.error
    assert heard == []


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        pytest.param(False, 0, id="an unknown authority is refused and nothing is sent"),
        pytest.param(True, 1, id="the authority that ca_file names is believed"),
    ],
)
def test_tls_is_verified(trusted: bool, expected: int, tmp_path: Path) -> None:
    """A page must not be readable by whoever stands in between."""
    certificates = tmp_path / "pki"
    write_all(certificates, datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    with receiver(answering(200), context) as (url, heard):
        section = SinkSection(
            url=url,
            secret_file=str(secret_file(tmp_path)),
            ca_file=str(certificates / "ca.crt") if trusted else "",
        )
        answer = Webhook(section, user_agent="t").send("m1", b"{}", "application/json", datetime.now(UTC))
    assert (len(heard), "CERTIFICATE_VERIFY_FAILED" in answer.error) == (expected, not trusted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("30", timedelta(seconds=30), id="seconds"),
        pytest.param("Thu, 01 Jan 2026 12:01:00 GMT", timedelta(minutes=1), id="a date to come"),
        pytest.param("Thu, 01 Jan 2026 11:00:00 GMT", timedelta(0), id="a date gone by"),
        pytest.param("999999999999999", timedelta(hours=2), id="longer than we would wait"),
        pytest.param("soon", None, id="nothing that can be read"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_retry_after_is_read_and_bounded(text: str, expected: timedelta | None) -> None:
    """A receiver may slow us down, but not for ever."""
    assert retry_after(text, NOW) == expected
