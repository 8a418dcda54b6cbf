"""A gate between a program and the API server: each request passes, waits, is turned away, or never hears its answer.

It speaks plain HTTP to the program, which takes that from this machine alone, and TLS to the server; the program's token
goes through. Watches can be stalled, so that the program sees nothing new while everything else goes on.
"""

import http.client
import ssl
import threading
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_CHUNK = 65536
_WAIT_S = 120.0
_UPSTREAM_S = 400.0  # a watch may be silent for long
_BUSY = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}'
_OWN_HEADERS = ("connection", "transfer-encoding", "content-length", "host", "keep-alive")


class Word(StrEnum):
    """What becomes of a request. KEEP: the server carries it out, and its answer waits."""

    PASS = "pass"
    HOLD = "hold"
    KEEP = "keep the answer"
    BUSY = "429"


class Asked(NamedTuple):
    """One request, as a rule sees it."""

    method: str
    path: str
    query: str

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.query


class Waiting:
    """A request, or its answer, that stands at the gate."""

    def __init__(self, asked: Asked, word: Word) -> None:
        self.asked, self.word = asked, word
        self.goes_on = False
        self.decided = threading.Event()


Rule = Callable[[Asked], Word]


def passing(_asked: Asked) -> Word:
    """Let everything through."""
    return Word.PASS


class Gate:
    """Listens on a free port of 127.0.0.1 until `close`. `rule` may be changed at any time; it is asked for new requests."""

    def __init__(self, server: str, ca_file: Path) -> None:
        target = urlsplit(server)
        self.target = (target.hostname or "", target.port or 443)
        self.tls = ssl.create_default_context(cafile=str(ca_file))
        self.rule: Rule = passing
        self.flowing = threading.Event()
        self.flowing.set()
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        gate = self

        class Handler(_Handler):
            def __init__(self, *arguments: Any) -> None:
                self.gate = gate
                super().__init__(*arguments)

        self._listener = _Listener(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._listener.serve_forever, name="gate", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.server_address[1]}"

    def waiting(self, part: str, word: Word) -> int:
        """Count what stands at the gate, by a piece of its path."""
        with self._lock:
            return sum(1 for one in self._waiting if one.word is word and part in one.asked.path)

    def decide(self, *, goes_on: bool, part: str = "", word: Word | None = None) -> int:
        """Let what waits go on, or lose it with its connection; gives how many. Nobody who waits is asked for twice."""
        with self._lock:
            chosen = [one for one in self._waiting if part in one.asked.path and word in (None, one.word)]
            self._waiting = [one for one in self._waiting if one not in chosen]
        for one in chosen:
            one.goes_on = goes_on
            one.decided.set()
        return len(chosen)

    def wait(self, asked: Asked, word: Word) -> bool:
        """Stand at the gate; says whether it goes on. After two minutes everything is lost."""
        one = Waiting(asked, word)
        with self._lock:
            self._waiting.append(one)
        one.decided.wait(_WAIT_S)
        return one.goes_on

    def close(self) -> None:
        self.flowing.set()
        self.decide(goes_on=False)
        self._listener.shutdown()
        self._listener.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A program that was killed breaks its connections: that is what it was killed for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = _CHUNK
    disable_nagle_algorithm = True
    gate: Gate
    far: http.client.HTTPSConnection | None = None

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing: the server keeps its own record."""

    def finish(self) -> None:
        if self.far is not None:
            self.far.close()
        super().finish()

    def do_GET(self) -> None:
        self._carry()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

    def _carry(self) -> None:
        path, _, query = self.path.partition("?")
        asked = Asked(self.command, path, query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        word = self.gate.rule(asked)
        if word is Word.BUSY:
            self._answer_busy()
        elif word is Word.HOLD and not self.gate.wait(asked, word):
            self.close_connection = True
        else:
            self._forward(asked, word, body)

    def _answer_busy(self) -> None:
        self.send_response(429)
        self.send_header("Retry-After", "1")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_BUSY)))
        self.end_headers()
        self.wfile.write(_BUSY)
        self.wfile.flush()

    def _forward(self, asked: Asked, word: Word, body: bytes) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS}
        try:
            if self.far is None:
                host, port = self.gate.target
                self.far = http.client.HTTPSConnection(host, port, timeout=_UPSTREAM_S, context=self.gate.tls)
            self.far.request(asked.method, self.path, body or None, headers)
            answer = self.far.getresponse()
            if word is Word.KEEP:
                whole = answer.read()
                if self.gate.wait(asked, word):
                    self._head(answer, len(whole))
                    self.wfile.write(whole)
                    self.wfile.flush()
                else:
                    self.close_connection = True
                return
            self._relay(asked, answer)
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # the server is not there, or the program: its other side sees that

    def _head(self, answer: http.client.HTTPResponse, length: int | None) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _relay(self, asked: Asked, answer: http.client.HTTPResponse) -> None:
        if answer.length is not None:
            whole = answer.read()
            self._head(answer, len(whole))
            self.wfile.write(whole)
            self.wfile.flush()
            return
        self._head(answer, None)
        self.wfile.flush()
        while chunk := answer.read1(_CHUNK):
            if asked.is_watch:
                self.gate.flowing.wait(_WAIT_S)
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
