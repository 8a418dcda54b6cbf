"""Writes under a guard: none begins, goes on or is repeated when the lease may pass on before its answer."""

import threading
import time

import pytest

from kube.api import (
    NotLeader,
    PatchType,
    Unavailable,
)
from tests.kube.http_server import Answer, Asked, HttpServer
from tests.kube.objects import Opening

POD = "/api/v1/namespaces/x/pods/p"


class Budget:
    """Seconds that a write may take, told by the test, one after the other."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)

    def __call__(self) -> float:
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]


def test_a_write_without_budget_is_not_sent_and_a_read_is(server: HttpServer, opening: Opening) -> None:
    """Half a second before the lease may pass on, nothing that changes anything leaves any more."""
    session = opening(write_guard=Budget(0.5))
    with pytest.raises(NotLeader, match="not sent"):
        session.create(POD, {})
    session.get(POD)
    assert [asked.method for asked in server.asked] == ["GET"]


def test_a_write_is_stopped_even_after_its_connection_was_made(server: HttpServer, opening: Opening) -> None:
    """A process that was stopped while connecting wakes up to a lease that passed on: the question is asked again."""
    with pytest.raises(NotLeader):
        opening(write_guard=Budget(9.0, 0.0)).patch(POD, {}, PatchType.MERGE)
    assert server.asked == []


def test_a_body_is_withheld_when_the_lease_passed_on_after_the_head(
    server: HttpServer, opening: Opening
) -> None:
    """Head and body are two system calls; a request without its body is none."""
    with pytest.raises(NotLeader):
        opening(write_guard=Budget(9.0, 9.0, 0.0)).patch(POD, {"spec": {}}, PatchType.MERGE)
    assert server.asked == []


def test_a_write_ends_with_its_budget_here_and_at_the_server(server: HttpServer, opening: Opening) -> None:
    """The budget is the timeout, and the server is told it too."""
    release = threading.Event()

    def hang(_: Asked) -> Answer:
        release.wait(10)
        return Answer()

    server.otherwise = hang
    before = time.monotonic()
    with pytest.raises(Unavailable):
        opening(write_guard=Budget(0.7)).patch(POD, {}, PatchType.MERGE)
    took = time.monotonic() - before
    release.set()
    assert (True, f"{POD}?timeout=700ms") == (took < 2.0, server.asked[0].path)
