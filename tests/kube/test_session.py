"""The session over real sockets: what a server may do to us, and what we make of it."""

import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest

from kube.api import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    PatchType,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kube.clock import SYSTEM
from kube.credentials import CannotConnect, Endpoint, NoToken
from kube.session import Session, connect, user_agent
from tests.fakes import FakeClock
from tests.kube.authority import Authority
from tests.kube.http_server import Answer, Asked, HttpServer, refused, serving
from tests.kube.objects import Opening

POD = "/api/v1/namespaces/x/pods/p"


def test_a_request_says_who_we_are_and_what_we_send(server: HttpServer, opening: Opening) -> None:
    """User agent, token, content type and body arrive as the API server expects them."""
    opening().patch("/api/v1/nodes/n", {"spec": {}}, PatchType.STRATEGIC, {"dryRun": "All"})
    asked = server.asked[0]
    expected = ("PATCH", "/api/v1/nodes/n?dryRun=All", "nodemend-agent/0.1.0", "Bearer first", b'{"spec":{}}')
    got = (asked.method, asked.path, asked.headers["user-agent"], asked.headers["authorization"], asked.body)
    assert (expected, PatchType.STRATEGIC.value) == (got, asked.headers["content-type"])


def test_our_user_agent_carries_the_version() -> None:
    """The server takes the part before the slash as field manager."""
    assert user_agent("nodemend-agent").startswith("nodemend-agent/0.")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(refused(404, "NotFound"), NotFound, id="404 is NotFound"),
        pytest.param(refused(409, "Conflict"), Conflict, id="409 on update is Conflict"),
        pytest.param(refused(409, "AlreadyExists"), AlreadyExists, id="409 on create is AlreadyExists"),
        pytest.param(refused(410, "Expired"), Gone, id="410 is Gone"),
        pytest.param(refused(422, "Invalid"), Invalid, id="422 is Invalid"),
        pytest.param(refused(400, "BadRequest"), Invalid, id="400 is Invalid"),
        pytest.param(refused(403, "Forbidden"), Forbidden, id="403 is Forbidden"),
        pytest.param(refused(500, "InternalError"), Unavailable, id="500 is Unavailable"),
        pytest.param(
            Answer(status=503, body=b"<html>proxy</html>"), Unavailable, id="a proxy's page is Unavailable"
        ),
        pytest.param(
            Answer(status=301, headers={"Location": "/x"}), ApiError, id="a redirect is not followed"
        ),
        pytest.param(Answer(status=415, body=b""), ApiError, id="an answer without a body is still an error"),
    ],
)
def test_refusals_become_our_errors(
    server: HttpServer, opening: Opening, answer: Answer, expected: type[ApiError]
) -> None:
    """The caller sees one of our errors with the code, and a write was sent once."""
    server.otherwise = lambda _: answer
    with pytest.raises(ApiError) as caught:
        opening().delete(POD)
    assert (expected, answer.status, 1) == (type(caught.value), caught.value.code, len(server.asked))


def test_a_disruption_budgets_429_is_an_answer(server: HttpServer, opening: Opening) -> None:
    """It is told apart from throttling by its cause and never repeated here."""
    budget = refused(429, "TooManyRequests", causes=("DisruptionBudget",), headers={"Retry-After": "10"})
    server.otherwise = lambda _: budget
    with pytest.raises(TooManyRequests) as caught:
        opening().create(f"{POD}/eviction", {})
    assert (caught.value.disruption_budget, caught.value.retry_after_s, len(server.asked)) == (True, 10.0, 1)


@pytest.mark.parametrize(
    ("seconds", "least", "most"),
    [
        pytest.param("4", 4.0, 4.3, id="the server's seconds are waited"),
        pytest.param("3600", 10.0, 10.3, id="but never more than ten"),
        pytest.param("soon", 0.2, 0.5, id="what is no number is our own back-off"),
    ],
)
def test_throttling_is_waited_out_even_for_a_write(
    server: HttpServer, opening: Opening, seconds: str, least: float, most: float
) -> None:
    """A 429 without a budget's cause means that nothing was done: the write is sent again after Retry-After."""
    clock = FakeClock()
    server.answers.append(refused(429, "TooManyRequests", headers={"Retry-After": seconds}))
    opening(clock=clock.clock).create(f"{POD}/eviction", {})
    assert (len(server.asked), least <= clock.slept[0] <= most) == (2, True)


def test_reads_are_tried_three_times_and_writes_once(server: HttpServer, opening: Opening) -> None:
    """Only the caller can know whether a write whose answer was a 500 happened."""
    server.otherwise = lambda _: refused(500, "InternalError")
    session = opening()
    with pytest.raises(Unavailable):
        session.get(POD)
    with pytest.raises(Unavailable):
        session.replace(POD, {})
    assert [asked.method for asked in server.asked] == ["GET", "GET", "GET", "PUT"]


def test_a_read_succeeds_after_the_server_came_back(server: HttpServer, opening: Opening) -> None:
    """One bad answer is not the end of a read."""
    server.answers.extend([refused(503, "ServiceUnavailable"), Answer(body={"ok": 1})])
    assert opening().get(POD) == b'{"ok":1}'


def test_a_rotated_token_is_read_again_after_a_minute(
    server: HttpServer, opening: Opening, token_file: Path
) -> None:
    """Projected tokens change on disk; a minute is how old ours may be."""
    clock = FakeClock()
    session = opening(clock=clock.clock)
    session.get(POD)
    token_file.write_text("second")
    clock.advance(59)
    session.get(POD)
    clock.advance(2)
    session.get(POD)
    assert [a.headers["authorization"] for a in server.asked] == [
        "Bearer first",
        "Bearer first",
        "Bearer second",
    ]


class Named:
    """A TokenSource of one word."""

    def __init__(self, word: str) -> None:
        self._word = word

    def header(self) -> str:
        return f"Bearer {self._word}"

    def renew(self, refused: str) -> bool:
        return refused != self.header()


def test_sessions_of_several_identities_share_their_connections(server: HttpServer, opening: Opening) -> None:
    """Each request bears its own session's token, and all go over one connection, which outlives those who borrowed it."""
    first = opening()
    second, third = first.with_token(Named("second")), first.with_token(Named("third"))
    for session in (first, second, third):
        session.get(POD)
    third.close()
    second.get(POD)

    said = [asked.headers["authorization"].removeprefix("Bearer ") for asked in server.asked]
    assert said == ["first", "second", "third", "second"]
    assert server.connections == 1


def test_a_client_certificates_connections_are_not_lent(tmp_path: Path) -> None:
    """The server would believe the certificate, so a token on them would silently act as somebody else."""
    endpoint = Endpoint(server="http://127.0.0.1:1", cert_file=str(tmp_path / "admin.crt"))
    session = Session(endpoint, NoToken(), user_agent="test")

    with pytest.raises(ValueError, match=r"client certificate .*admin\.crt"):
        session.with_token(Named("second"))


def test_a_refused_token_is_read_again_at_once(
    server: HttpServer, opening: Opening, token_file: Path
) -> None:
    """401: the file is read and the request, also a write, sent once more."""
    session = opening()
    token_file.write_text("second")
    server.answers.append(refused(401, "Unauthorized"))
    session.create("/api/v1/nodes", {})
    assert [a.headers["authorization"] for a in server.asked] == ["Bearer first", "Bearer second"]


def test_a_token_refused_for_good_is_an_error(server: HttpServer, opening: Opening) -> None:
    """The same token is not sent again and again."""
    server.otherwise = lambda _: refused(401, "Unauthorized")
    with pytest.raises(Unauthorized):
        opening().get(POD)
    assert len(server.asked) == 1


def test_a_token_file_that_vanishes_keeps_what_works(
    server: HttpServer, opening: Opening, token_file: Path
) -> None:
    """Between two rotations the file may be gone for a moment."""
    clock = FakeClock()
    session = opening(clock=clock.clock)
    token_file.unlink()
    clock.advance(61)
    session.get(POD)
    assert server.asked[0].headers["authorization"] == "Bearer first"


def test_a_hung_server_is_unavailable_in_bounded_time(server: HttpServer, opening: Opening) -> None:
    """It takes the request and never answers: the read timeout ends it, and the write was not repeated."""
    release = threading.Event()

    def hang(_: Asked) -> Answer:
        release.wait(10)
        return Answer()

    server.otherwise = hang
    before = time.monotonic()
    with pytest.raises(Unavailable, match="no answer from"):
        opening(timeout_s=0.2).replace(POD, {})
    took = time.monotonic() - before
    release.set()
    assert (0.2 <= took < 2.0, len(server.asked)) == (True, 1)


def test_an_answer_that_drips_for_ever_ends(server: HttpServer, opening: Opening) -> None:
    """Each byte comes in time, the whole does not: socket timeouts alone would never end this."""
    clock = FakeClock()
    server.otherwise = lambda _: Answer(chunks=(b"{",) * 50)

    def ticking() -> float:
        clock.advance(1.0)
        return clock.monotonic()

    with pytest.raises(Unavailable, match="did not end in time"):
        opening(clock=msgspec.structs.replace(SYSTEM, monotonic=ticking)).delete(POD)
    assert len(server.asked) == 1


def test_nobody_listening_is_unavailable() -> None:
    """A refused connection is an outage and names the server."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    clock = FakeClock()
    session = connect(server=f"http://127.0.0.1:{port}", user_agent="t/0", clock=clock.clock)
    with pytest.raises(Unavailable, match=f"no answer from http://127.0.0.1:{port}"):
        session.get(POD)
    assert len(clock.slept) == 2


def test_a_connection_the_server_closed_is_opened_again(server: HttpServer, opening: Opening) -> None:
    """A kept connection that died while idle must not cost a write."""
    session = opening()
    server.answers.append(Answer(headers={"Connection": "close"}))
    session.replace(POD, {})
    session.replace(POD, {})
    assert len(server.asked) == 2


def test_the_right_authority_is_trusted_and_a_wrong_one_is_named(tmp_path: Path, token_file: Path) -> None:
    """TLS is verified against the CA file alone; the error says which file judged."""
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    with serving(ours.server_context()) as server:
        clock = FakeClock()
        good = connect(
            server=server.url,
            token_file=token_file,
            ca_file=ours.ca_file,
            user_agent="t/0",
            clock=clock.clock,
        )
        bad = connect(
            server=server.url,
            token_file=token_file,
            ca_file=other.ca_file,
            user_agent="t/0",
            clock=clock.clock,
        )
        good.get(POD)
        with pytest.raises(Unavailable, match=r"TLS to .* failed, judged by .*other\.crt") as caught:
            bad.get(POD)
        good.close()
        bad.close()
        assert (len(server.asked), caught.value.reason, clock.slept) == (1, "TLS", [])


def test_many_threads_share_one_session(server: HttpServer, opening: Opening) -> None:
    """More threads than kept connections: all are served."""
    session = opening(max_connections=2)
    threads = [threading.Thread(target=session.get, args=(POD,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(server.asked) == 12


def test_no_way_to_a_server_names_all_four(tmp_path: Path) -> None:
    """The message tells a newcomer everything that was looked for."""
    with pytest.raises(CannotConnect) as caught:
        connect(user_agent="t/0", environ={"HOME": str(tmp_path)}, service_account=tmp_path)
    words = (
        "server",
        "token_file",
        "ca_file",
        "kubeconfig",
        "KUBERNETES_SERVICE_HOST",
        "KUBECONFIG",
        "~/.kube/config",
    )
    assert [word for word in words if word not in str(caught.value)] == []
