"""Token files are asked for once, renewed before they expire, and keep their last token while the API server is down."""

import json
from pathlib import Path
from typing import Any

import pytest

from kube.api import ApiError, Forbidden, Unavailable
from sandbox import tokens
from sandbox.tokens import PodRef, TokenFiles
from tests.fakes import FakeApi, wait_until


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

    token = tokens.request(issuer, "ns", "agent", pod=PodRef(name="agent-x", uid="u1"), seconds=600)

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
