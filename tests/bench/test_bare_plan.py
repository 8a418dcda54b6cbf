"""The bare loop's requests are the controller's own, written for other nodes, and as many of each kind."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.audit import Asked, Kind
from bench.bare_loop import play, prepared, version_in
from bench.bare_plan import (
    CREATE,
    EVENT,
    NODE,
    STATUS,
    Bare,
    Send,
    Template,
    incident_name,
    one_quarantine,
    sequences,
)
from controller.apply import Applier, World
from controller.config import parse
from controller.plan import plan
from kube import paths
from kube.remediation import Remediation
from kube.types import Node
from tests import build
from tests.fake_api import Request
from tests.fakes import FakeApi, FakeClock

KINDS = {
    ("CREATE", "remediations"): CREATE,
    ("PATCH", "status"): STATUS,
    ("PATCH", "nodes"): NODE,
    ("CREATE", "events"): EVENT,
}


class Told:
    """One incident, told by the product: what is planned is applied to a fake server until nothing is planned."""

    def __init__(self) -> None:
        self.clock = FakeClock(now=build.NOW)
        self.api = FakeApi(self.clock)
        sick = build.node("gpu-1", conditions={build.XID: "True"})
        self.api.add(paths.nodes(), {**msgspec.to_builtins(sick), "apiVersion": "v1", "kind": "Node"})
        self.health = build.health(self.node, [build.finding()])
        self.story: list[Remediation] = []
        applier = Applier(
            World(
                api=self.api,
                clock=self.clock.clock,
                config=parse("", "test"),
                held_node=lambda _name: self.node,
                why_not_repair=lambda _seen: None,
                why_not_evict=lambda _seen: None,
                why_not_validate=lambda _seen: None,
                why_not_write=lambda: None,
            )
        )
        for _ in range(3):  # opened, quarantined, seen to be quarantined
            fleet = build.fleet(
                self.node,
                *build.idle_nodes(20),
                healths=[self.health],
                remediations=self.story[-1:],
                policies=[build.policy(sinks=())],
            )
            for step in plan(fleet, build.NOW).steps:
                if step.node == "gpu-1":
                    applier.apply(step)
                    self.look()

    @property
    def node(self) -> Node:
        return msgspec.convert(self.api.read(paths.node("gpu-1")), Node)

    def look(self) -> None:
        for name in self.api.names(paths.remediations()):
            held = msgspec.convert(self.api.read(paths.remediation(name)), Remediation)
            if not self.story:
                bare = msgspec.structs.replace(held, status=type(held.status)())
                self.story.append(bare)  # a watch shows the create before its status
            if self.story[-1] != held:
                self.story.append(held)

    def template(self) -> Template:
        event = {"reason": "NodemendQuarantined", "regarding": {"name": "gpu-1", "uid": "uid-gpu-1"}}
        return Template(node=self.node, story=tuple(self.story), event=event)


def kind_of(send: Send) -> Kind:
    """Name the kind of a request as the audit record does."""
    path = send.path.partition("?")[0]
    method = {"POST": "CREATE"}.get(send.method, send.method)
    for (verb, word), kind in KINDS.items():
        parts = path.split("/")
        if verb == method and (parts[-1] == word or (word == "nodes" and parts[-2] == "nodes")):
            return kind
    raise AssertionError(f"{send.method} {path} is none of the controller's")


def same_words(request: Request, name: str, other: str) -> Any:
    """Give a request's body with one incident's name in place of another's, and without versions."""
    raw = msgspec.json.encode(request.body).replace(name.encode(), other.encode())
    body = msgspec.json.decode(raw)
    if isinstance(body, dict) and "resourceVersion" in body.get("metadata", {}):
        body["metadata"]["resourceVersion"] = "@"
    return body


def test_the_requests_are_the_controllers_own() -> None:
    """Method, path and body of each request, but for names, UIDs and versions."""
    told = Told()
    written = [one for one in told.api.requests if one.method in ("CREATE", "PATCH")]
    fresh = build.node("gpu-1")
    (sends,) = sequences(
        told.template(), [fresh], Asked(done={CREATE: 1, STATUS: 2, NODE: 1}, refused={}), first=7
    )
    mine = told.story[0].metadata.name
    assert [kind_of(send) for send in sends] == [CREATE, STATUS, NODE, STATUS]
    for send, request in zip(sends, written, strict=True):
        body = msgspec.json.decode(send.body)
        if kind_of(send) is NODE:  # it names the version of the fresh node
            body[1]["value"] = request.body[1]["value"]
        assert same_words(request, mine, incident_name(7)) == body
        assert request.path.replace(mine, incident_name(7)) == send.path.partition("?")[0]
        assert send.path.partition("?")[2] == "fieldManager=nodemend-controller"


@given(
    st.integers(1, 6),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 9),
    st.integers(0, 3),
)
def test_as_many_of_each_kind(
    nodes: int, creates: int, statuses: int, patches: int, events: int, others: int
) -> None:
    """Whatever the audit record counted is sent; what belongs to no incident counts as a status patch."""
    wanted = {CREATE: min(creates, nodes), STATUS: statuses, NODE: patches, EVENT: events}
    asked = Asked(done={**wanted, Kind("patch", "remediationpolicies/status"): others}, refused={})
    fresh = [build.node(f"fleet-{number}") for number in range(nodes)]
    sent = [kind_of(send) for one in sequences(TEMPLATE, fresh, asked) for send in one]
    assert {kind: sent.count(kind) for kind in wanted} == {**wanted, STATUS: statuses + others}
    assert len(sent) == asked.total


def test_more_incidents_than_nodes_are_refused() -> None:
    """A second one on the same node would be another thing than what was measured."""
    with pytest.raises(ValueError, match="2 incidents on 1 fresh nodes"):
        sequences(TEMPLATE, [build.node()], Asked(done={CREATE: 2}, refused={}))


def test_names_and_uids_are_the_new_nodes() -> None:
    """No request may touch the node that the template is about."""
    fresh = build.node("fleet-9", version="4711")
    for send in one_quarantine(TEMPLATE, fresh, 3):
        assert b"gpu-1" not in send.body
        assert "gpu-1" not in send.path
        assert incident_name(3) in send.path or b"4711" in send.body or incident_name(3).encode() in send.body


def test_a_template_without_incident_is_refused() -> None:
    """Nothing is made up."""
    with pytest.raises(ValueError, match="no incident"):
        one_quarantine(Template(node=build.node(), story=()), build.node(), 0)


class Answers:
    """Stands in for a connection: gives out versions, keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def ask(self, request: bytes) -> tuple[int, bytes]:
        self.sent.append(request)
        return 200, b'{"metadata":{"name":"x","resourceVersion":"%d","uid":"y"}}' % (40 + len(self.sent))


def test_each_status_patch_names_the_version_as_last_answered() -> None:
    """Also after the Node's own patch in between, whose version is another object's."""
    sends = sequences(
        TEMPLATE, [build.node("fleet-9")], Asked(done={CREATE: 1, STATUS: 2, NODE: 1}, refused={})
    )
    bare = Bare(server="https://127.0.0.1:1", ca_file="ca", token="token", connections=1, sequences=sends)
    wire = Answers()
    assert play(wire, prepared(bare, sends[0])) == [200, 200, 200, 200]
    assert b'"metadata":{"resourceVersion":"41"}' in wire.sent[1]
    assert b'"metadata":{"resourceVersion":"42"}' in wire.sent[3]
    for request in wire.sent:
        head, _, body = request.partition(b"\r\n\r\n")
        assert int(head.rpartition(b": ")[2]) == len(body)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            b'{"metadata":{"resourceVersion":"17","uid":"a"}}', b'"resourceVersion":"17"', id="there"
        ),
        pytest.param(b'{"kind":"Status"}', b"", id="not there"),
    ],
)
def test_version_in(answer: bytes, expected: bytes) -> None:
    """Cut out whole, as a member."""
    assert expected == version_in(answer)


TEMPLATE = Told().template()
