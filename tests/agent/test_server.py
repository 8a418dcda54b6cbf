"""What is served over HTTP, and that no client can hold the server up."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.server import MOST_AT_ONCE, Pages, Server, serve


def pages(*, healthy: str | None = None, ready: str | None = None) -> Pages:
    """Build pages with these answers."""
    return Pages(why_not_healthy=lambda: healthy, why_not_ready=lambda: ready, metrics=lambda: b"up 1\n")


@contextmanager
def serving(answers: Pages) -> Iterator[Server]:
    server = Server("127.0.0.1:0", answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def get(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("answers", "path", "wanted"),
    [
        pytest.param(pages(), "/healthz", (200, "ok\n"), id="healthy"),
        pytest.param(pages(healthy="stuck"), "/healthz", (503, "stuck\n"), id="a stuck loop"),
        pytest.param(pages(), "/readyz?verbose", (200, "ok\n"), id="ready, with a query"),
        pytest.param(pages(ready="not yet"), "/readyz", (503, "not yet\n"), id="nothing published yet"),
        pytest.param(pages(), "/metrics", (200, "up 1\n"), id="metrics"),
        pytest.param(pages(), "/", (404, "known are /healthz, /readyz and /metrics\n"), id="another path"),
    ],
)
def test_each_page_says_what_it_is_for(answers: Pages, path: str, wanted: tuple[int, str]) -> None:
    """200 or 503 with the reason; all else is 404."""
    with serving(answers) as server:
        assert get(server, path) == wanted


def test_silent_clients_are_bounded_and_closed() -> None:
    """Of many that connect and say nothing, no more than eight are held; the rest are closed at once."""
    with serving(pages()) as server:
        host, port = server.address.split(":")
        clients = [socket.create_connection((host, int(port)), timeout=5) for _ in range(MOST_AT_ONCE + 3)]
        try:
            closed = sum(_is_closed(client) for client in clients[MOST_AT_ONCE:])
            assert closed == 3
        finally:
            for client in clients:
                client.close()


def _is_closed(client: socket.socket) -> bool:
    client.settimeout(3)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_a_free_port_is_written_where_it_can_be_found(tmp_path: Path) -> None:
    """`127.0.0.1:0` picks one; the file names it."""
    server = serve("127.0.0.1:0", pages(), tmp_path / "state" / "listen")
    assert server is not None
    try:
        assert (tmp_path / "state" / "listen").read_text() == server.address + "\n"
        assert get(server, "/healthz") == (200, "ok\n")
    finally:
        server.stop()


def test_an_empty_address_serves_nothing(tmp_path: Path) -> None:
    """So many agents can live in one process without a port each."""
    threads = threading.active_count()
    assert serve("", pages(), tmp_path / "listen") is None
    assert threading.active_count() == threads


def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    """Nobody would notice an agent that serves elsewhere."""
    with serving(pages()) as server, pytest.raises(OSError, match="in use"):
        serve(server.address, pages(), tmp_path / "listen")
