"""A server on a real socket, a token file, and sessions to it that are closed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.session import Session, connect
from tests.fakes import FakeClock
from tests.kube.http_server import HttpServer, serving
from tests.kube.objects import Opening

POD = "/api/v1/namespaces/x/pods/p"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with serving() as running:
        yield running


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


@pytest.fixture
def opening(server: HttpServer, token_file: Path) -> Iterator[Opening]:
    """Open sessions to `server` that are closed at the end; the clock is a fake unless said otherwise."""
    opened: list[Session] = []

    def open_session(**options: object) -> Session:
        clock = options.pop("clock", FakeClock().clock)
        session = connect(
            server=server.url,
            token_file=token_file,
            user_agent="nodemend-agent/0.1.0",
            clock=clock,  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        opened.append(session)
        return session

    yield open_session
    for session in opened:
        session.close()
