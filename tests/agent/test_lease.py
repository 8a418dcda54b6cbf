"""The agent's Lease: a proof that the judging loop lives, renewed without a word of its own."""

import threading
from random import Random

import pytest

from agent.config import LeaseSection
from agent.lease import LeaseKeeper
from agent.metrics import Metrics
from kube import paths
from kube.api import AlreadyExists, ApiError, Forbidden, Unavailable
from tests.agent.scene import NODE
from tests.fakes import FakeApi, FakeClock, request_to

LEASE = paths.lease("nodemend-system", NODE)


class Keeping:
    """A LeaseKeeper whose loop a test can stop."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.uid = "uid-1"
        self.why_not: str | None = None
        self.keeper = LeaseKeeper(
            self.api,
            NODE,
            LeaseSection(),
            self.clock.clock,
            Random(1),
            Metrics("1"),
            node_uid=lambda: self.uid,
            why_not=lambda: self.why_not,
        )


def test_a_lease_is_made_as_the_nodes_own() -> None:
    """Named as the Node, owned by it, held for three intervals, its times with exactly six digits."""
    keeping = Keeping()
    assert keeping.keeper.renew()
    lease = keeping.api.read(LEASE)
    assert lease["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-1"}
    ]
    assert lease["spec"] == {
        "holderIdentity": NODE,
        "leaseDurationSeconds": 90,
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "acquireTime": "2026-01-01T00:00:00.000000Z",
    }


def test_a_renewal_is_one_request_and_moves_the_time() -> None:
    """It costs one patch, and `acquireTime` stays."""
    keeping = Keeping()
    keeping.keeper.renew()
    keeping.clock.advance(30.25)
    before = len(keeping.api.requests)
    assert keeping.keeper.renew()
    assert len(keeping.api.requests) == before + 1
    spec = keeping.api.read(LEASE)["spec"]
    assert spec["renewTime"] == "2026-01-01T00:00:30.250000Z"
    assert spec["acquireTime"] == "2026-01-01T00:00:00.000000Z"


def test_a_lease_of_an_earlier_node_object_is_taken_over() -> None:
    """Otherwise the garbage collector would take it away with the old Node."""
    keeping = Keeping()
    keeping.keeper.renew()
    keeping.uid = "uid-2"
    keeping.keeper.renew()
    owners = keeping.api.read(LEASE)["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["uid-2"]


def test_a_stuck_loop_is_not_vouched_for() -> None:
    """The Lease goes stale although this thread lives."""
    keeping = Keeping()
    keeping.keeper.renew()
    keeping.why_not = "the judging loop last went round 61 s ago, 60 s is the most"
    keeping.clock.advance(30)
    assert not keeping.keeper.renew()
    assert keeping.api.read(LEASE)["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unavailable("no answer"), id="the server is down"),
        pytest.param(Forbidden("no right", code=403), id="RBAC refuses"),
        pytest.param(AlreadyExists("made meanwhile", code=409), id="somebody made it in between"),
    ],
)
def test_a_failed_renewal_is_no_end(error: ApiError) -> None:
    """The next one is tried as ever."""
    keeping = Keeping()
    keeping.api.fail_next(request_to("*", "/leases"), error)
    assert not keeping.keeper.renew()
    assert keeping.keeper.renew()


def test_nothing_is_renewed_before_the_node_is_known_and_the_thread_ends_when_told() -> None:
    """Without the Node's UID there would be no owner."""
    keeping = Keeping()
    keeping.uid = ""
    stop = threading.Event()
    thread = threading.Thread(target=keeping.keeper.run, args=(stop,))
    thread.start()
    stop.set()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert keeping.api.requests == []
