"""Token files are asked for once, renewed before they expire, and keep their last token while the API server is down."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kube.api import ApiError, Forbidden, NotFound, Unavailable
from sandbox import tokens
from sandbox.tokens import NodeRef, NodeToken, PodRef, TokenFiles
from tests.fakes import FakeApi, FakeClock, wait_until


class Issuer(FakeApi):
    """Answers each TokenRequest with another token; raises `error` instead while it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []
        self.error: ApiError | None = None

    def create(self, path: str, body: Any, query: Any = None) -> bytes:  # noqa: ARG002 - the Protocol's
        self.asked.append((path, body["spec"]))
        if self.error is not None:
            raise self.error
        return json.dumps({"status": {"token": f"token-{len(self.asked)}"}}).encode()


def test_a_request_names_lifetime_and_pod() -> None:
    """A token bound to a pod carries the pod's node, which the admission policy for agents compares."""
    issuer = Issuer()

    token = tokens.request(issuer, "ns", "agent", bound=PodRef(name="agent-x", uid="u1"), seconds=600)

    assert token == "token-1"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "agent-x", "uid": "u1"}
    assert issuer.asked == [
        (
            "/api/v1/namespaces/ns/serviceaccounts/agent/token",
            {"expirationSeconds": 600, "boundObjectRef": bound},
        )
    ]


def test_the_same_file_is_given_again(tmp_path: Path) -> None:
    """Asking twice costs one request; another pod's token is another file. Only the owner can read them."""
    issuer = Issuer()
    files = TokenFiles(tmp_path, lambda: issuer)

    first = files.path("ns", "agent")
    again = files.path("ns", "agent")
    bound = files.path("ns", "agent", pod=PodRef(name="agent-x", uid="u1"))
    files.close()

    assert first == again != bound
    assert (first.read_text(), bound.read_text()) == ("token-1", "token-2")
    assert first.stat().st_mode & 0o077 == 0


def test_a_file_is_renewed(tmp_path: Path) -> None:
    """A token is replaced before it ends, in the same file."""
    issuer = Issuer()
    files = TokenFiles(tmp_path, lambda: issuer)

    path = files.path("ns", "agent", seconds=0)

    wait_until(lambda: path.read_text() == "token-3")
    files.close()


def test_the_last_token_stays_while_renewal_fails(tmp_path: Path) -> None:
    """An API server that is down on purpose costs no token that still holds, and no thread."""
    issuer = Issuer()
    files = TokenFiles(tmp_path, lambda: issuer)
    path = files.path("ns", "agent", seconds=0)
    issuer.error = Unavailable("down")

    wait_until(lambda: len(issuer.asked) >= 2)
    assert path.read_text().startswith("token-")
    files.close()


def test_a_refused_first_request_is_the_caller_s_error(tmp_path: Path) -> None:
    """Nothing is promised for a token that was never given."""
    issuer = Issuer()
    issuer.error = Forbidden("no")
    files = TokenFiles(tmp_path, lambda: issuer)

    with pytest.raises(Forbidden):
        files.path("ns", "agent")

    files.close()
    assert list(tmp_path.iterdir()) == []


class NodeTokens:
    """A NodeToken with its issuer and its clock."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.time = FakeClock()
        self.token = NodeToken(
            lambda: self.issuer,
            "ns",
            "agent",
            NodeRef(name="gpu-1"),
            clock=self.time.clock,
            at_once=threading.Semaphore(1),
            seconds=1000,
        )


def test_a_nodes_token_is_asked_for_when_it_is_first_needed() -> None:
    """A fleet of a thousand asks for nothing at once; the request names the Node, and one is enough for a while."""
    it = NodeTokens()
    before = list(it.issuer.asked)
    headers = [it.token.header(), it.token.header()]

    assert before == []
    assert headers == ["Bearer token-1"] * 2
    assert [spec["boundObjectRef"] for _, spec in it.issuer.asked] == [
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-1"}
    ]


def test_a_nodes_token_is_renewed_after_four_fifths_of_its_life() -> None:
    """The old one still holds then, so a server that is away for a moment costs nothing: it is asked again soon."""
    it = NodeTokens()
    it.token.header()
    it.time.advance(801)
    it.issuer.error = Unavailable("down")
    while_down = [it.token.header(), it.token.header()]
    asked_while_down = len(it.issuer.asked)
    it.issuer.error = None
    it.time.advance(6)

    assert while_down == ["Bearer token-1"] * 2
    assert asked_while_down == 2
    assert it.token.header() == "Bearer token-3"


def test_a_nodes_token_that_is_refused_is_asked_for_anew() -> None:
    """It died with its Node object; where there is none of that name any more, that is what its bearer hears."""
    it = NodeTokens()
    refused = it.token.header()
    renewed = it.token.renew(refused)
    again = it.token.renew(refused)
    it.issuer.error = NotFound("no such node")

    assert (renewed, again, len(it.issuer.asked)) == (True, True, 2)
    with pytest.raises(NotFound):
        it.token.renew(it.token.header())
    with pytest.raises(NotFound):
        it.token.header()
