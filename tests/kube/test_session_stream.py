"""The session's watches over real sockets: lines, silence, cuts and ends."""

import threading
import time

import pytest

from kube.api import (
    Gone,
    Unavailable,
)
from tests.kube.http_server import Answer, HttpServer, refused
from tests.kube.objects import Opening

POD = "/api/v1/namespaces/x/pods/p"


def test_a_watch_gives_whole_lines_however_they_are_cut(server: HttpServer, opening: Opening) -> None:
    """One event over two chunks, two events in one, an empty line between."""
    server.otherwise = lambda _: Answer(
        chunks=(
            b'{"a"',
            b':1}\n\n{"b":2}\n{"c":3}\n',
        )
    )
    lines = list(opening().stream("/api/v1/nodes", {"watch": "true"}, read_timeout_s=5.0))
    assert (lines, "/api/v1/nodes?watch=true") == ([b'{"a":1}', b'{"b":2}', b'{"c":3}'], server.asked[0].path)


def test_a_half_open_watch_times_out(server: HttpServer, opening: Opening) -> None:
    """No event and no bookmark: the caller learns it in `read_timeout_s`."""
    hold = threading.Event()
    server.otherwise = lambda _: Answer(chunks=(b'{"a":1}\n',), hold=hold)
    lines = opening().stream("/api/v1/nodes", {}, read_timeout_s=0.2)
    first = next(lines)
    before = time.monotonic()
    with pytest.raises(TimeoutError, match=r"nothing heard for 0\.2 s"):
        next(lines)
    took = time.monotonic() - before
    hold.set()
    assert (first, 0.2 <= took < 2.0) == (b'{"a":1}', True)


def test_a_watch_cut_in_the_middle_is_unavailable(server: HttpServer, opening: Opening) -> None:
    """The connection breaks without the last chunk: that is no regular end."""
    hold = threading.Event()
    hold.set()
    server.otherwise = lambda _: Answer(chunks=(b'{"a":1}\n',), hold=hold)
    with pytest.raises(Unavailable):
        list(opening().stream("/api/v1/nodes", {}, read_timeout_s=5.0))


def test_a_refused_watch_is_the_refusal(server: HttpServer, opening: Opening) -> None:
    """410 as an HTTP status."""
    server.otherwise = lambda _: refused(410, "Expired")
    with pytest.raises(Gone):
        next(opening().stream("/api/v1/nodes", {}, read_timeout_s=5.0))


def test_closing_the_session_ends_its_watches(server: HttpServer, opening: Opening) -> None:
    """A thread that waits in a watch is let go at once, and quietly."""
    hold = threading.Event()
    server.otherwise = lambda _: Answer(chunks=(b'{"a":1}\n',), hold=hold)
    session = opening()
    seen: list[bytes] = []
    first = threading.Event()

    def follow() -> None:
        for line in session.stream("/api/v1/nodes", {}, read_timeout_s=20.0):
            seen.append(line)
            first.set()
        seen.append(b"end")

    reader = threading.Thread(target=follow)
    reader.start()
    first.wait(5)
    session.close()
    reader.join(5)
    hold.set()
    assert (reader.is_alive(), seen) == (False, [b'{"a":1}', b"end"])
