"""The election's shell: with a fake server and a fake clock, and where threads must race, with real ones."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kube import paths
from kube.api import PatchType, Unavailable
from kube.leader import LeaderElection, unique_identity
from tests.fakes import FakeApi, FakeClock, request_to, wait_until

LEASE = paths.lease("s", "l")
Script = Callable[[int], None]


class Running:
    """An election whose pauses move the fake clock; `script(n)` acts after the n-th pause and ends it by `stop`."""

    def __init__(
        self, api: FakeApi, clock: FakeClock, script: Script | None = None, identity: str = "me"
    ) -> None:
        self.api = api
        self.clock = clock
        self.started: list[float] = []
        self.lost: list[str] = []
        self.pauses = 0
        self.script = script or (lambda _: self.election.stop())
        self.election: LeaderElection = LeaderElection(api, "s", "l", identity, clock.clock, pause=self.pause)

    def pause(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.pauses += 1
        if self.pauses > 200:
            self.election.stop()
        self.script(self.pauses)

    def run(self) -> "Running":
        self.election.run(lambda: self.started.append(self.clock.monotonic()), self.lost.append)
        return self


def lease_of(api: FakeApi) -> dict[str, Any]:
    spec: dict[str, Any] = api.read(LEASE)["spec"]
    return spec


def seed(api: FakeApi, holder: str, **metadata: Any) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 7, "renewTime": None}
    api.add(paths.leases("s"), {"metadata": {"name": "l", **metadata}, "spec": spec})


def test_the_first_one_creates_the_lease_and_leads() -> None:
    """Without a Lease nobody leads, and the first to create it does."""
    clock = FakeClock()
    running = Running(FakeApi(clock), clock).run()
    spec = lease_of(running.api)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["renewTime"]) == (
        "me",
        15,
        "2026-01-01T00:00:00.000000Z",
    )
    assert (len(running.started), running.lost) == (1, [])


def test_a_dead_holder_is_waited_out_by_our_own_clock() -> None:
    """The record's times say nothing: fifteen of our seconds without a change do."""
    clock = FakeClock()
    api = FakeApi(clock)
    seed(api, "dead", labels={"kept": "yes"})
    start = clock.monotonic()

    def script(_: int) -> None:
        clock.jump_wall(-86_400.0)
        if running.started:
            running.election.stop()

    running = Running(api, clock, script)
    running.run()
    held = api.read(LEASE)
    assert (
        held["spec"]["holderIdentity"],
        held["spec"]["leaseTransitions"],
        held["metadata"]["labels"],
    ) == ("me", 8, {"kept": "yes"})
    assert 15.0 <= running.started[0] - start <= 18.0


def test_a_living_holder_is_followed_for_ever() -> None:
    """Every renewal starts the wait anew; nothing is written meanwhile."""
    clock = FakeClock()
    api = FakeApi(clock)
    seed(api, "alive")

    def renewed(n: int) -> None:
        held = api.read(LEASE)
        held["spec"]["renewTime"] = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        api.remove(LEASE)
        api.add(paths.leases("s"), held)
        if n == 100:
            running.election.stop()

    running = Running(api, clock, renewed)
    running.run()
    assert (running.started, running.election.holder, api.writes()) == ([], "alive", [])


def test_losing_the_server_loses_leadership_at_the_deadline() -> None:
    """Renewals fail: at ten seconds after the last good one it is over, five before anybody else may begin."""
    clock = FakeClock()
    api = FakeApi(clock)

    def script(n: int) -> None:
        if n == 3:
            api.fail_next(request_to("*", "/leases"), Unavailable("down"), times=None)

    running = Running(api, clock, script)
    running.run()
    assert (
        len(running.lost),
        running.lost[0].startswith("not renewed for 1"),
        running.election.write_budget(),
    ) == (1, True, 0.0)


def test_a_renewal_whose_answer_got_lost_is_found_out() -> None:
    """It happened; the next one conflicts, the Lease is read, it is ours, and nothing is lost."""
    clock = FakeClock()
    api = FakeApi(clock)

    def script(n: int) -> None:
        if n in (2, 4):
            api.fail_next(request_to("PATCH", "/leases"), Unavailable("reset"), after=True)
        if n == 12:
            running.election.stop()

    running = Running(api, clock, script)
    running.run()
    assert (len(running.started), running.lost, running.election.write_budget() > 5.0) == (1, [], True)


def test_a_lease_deleted_under_us_is_created_again() -> None:
    """kubectl delete lease is no reason to restart."""
    clock = FakeClock()
    api = FakeApi(clock)

    def script(n: int) -> None:
        if n == 2:
            api.remove(LEASE)
        if n == 6:
            running.election.stop()

    running = Running(api, clock, script)
    running.run()
    assert (len(running.started), running.lost, lease_of(api)["holderIdentity"]) == (1, [], "me")


def test_a_lease_taken_by_force_ends_leadership_at_the_next_renewal() -> None:
    """Somebody edits the holder: the renewal conflicts, the Lease is read, and we are gone."""
    clock = FakeClock()
    api = FakeApi(clock)

    def script(n: int) -> None:
        if n == 2:
            api.patch(LEASE, {"spec": {"holderIdentity": "usurper"}}, PatchType.MERGE)

    running = Running(api, clock, script)
    running.run()
    assert (running.lost, running.election.write_budget()) == (["usurper holds the lease now"], 0.0)


def test_a_lease_that_cannot_be_read_is_no_end() -> None:
    """A field of a wrong type is an outage, not a crash."""
    clock = FakeClock()
    api = FakeApi(clock)
    api.add(paths.leases("s"), {"metadata": {"name": "l"}, "spec": {"holderIdentity": 7}})

    def script(n: int) -> None:
        if n == 3:
            api.remove(LEASE)
        if n == 6:
            running.election.stop()

    running = Running(api, clock, script)
    running.run()
    assert len(running.started) == 1


def test_release_hands_over_at_once_and_refuses_every_later_write() -> None:
    """The next candidate need not wait out the lease; our own workers, should one be left, get nothing more."""
    clock = FakeClock()
    api = FakeApi(clock)
    first = Running(api, clock).run()
    before = first.election.write_budget()
    first.election.release()
    at = clock.monotonic()
    second = Running(api, clock, identity="next").run()
    assert (
        before > 0.0,
        first.election.write_budget(),
        lease_of(api)["holderIdentity"],
        lease_of(api)["leaseTransitions"],
    ) == (True, 0.0, "next", 1)
    assert second.started == [at]


def test_release_of_a_follower_writes_nothing() -> None:
    """Only who leads has something to hand over."""
    clock = FakeClock()
    api = FakeApi(clock)
    seed(api, "other")
    Running(api, clock).run().election.release()
    assert api.writes() == []


class Hanging(FakeApi):
    """Renewals are never answered once `hang` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hang = threading.Event()
        self.release = threading.Event()

    def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        if self.hang.is_set():
            self.release.wait(20)
        return super().patch(path, body, patch_type, query)


def test_the_watchdog_ends_leadership_while_a_renewal_hangs() -> None:
    """The renewing thread is stuck in a call; leadership ends at the deadline all the same."""
    api = Hanging()
    election = LeaderElection(
        api, "s", "l", unique_identity(), lease_duration=3, renew_deadline=1.8, retry_period=0.1
    )
    lost: list[float] = []
    thread = threading.Thread(
        target=election.run, args=(lambda: None, lambda _: lost.append(time.monotonic()))
    )
    thread.start()
    wait_until(lambda: election.is_leader)
    api.hang.set()
    began = time.monotonic()
    wait_until(lambda: bool(lost))
    api.release.set()
    thread.join(5)
    assert (1.0 < lost[0] - began < 2.8, election.write_budget(), len(lost)) == (True, 0.0, 1)


def test_identities_are_unique_to_a_start() -> None:
    """A container that restarts under the same host name is another candidate."""
    assert unique_identity() != unique_identity()
