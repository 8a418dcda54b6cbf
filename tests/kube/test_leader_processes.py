"""Two real processes, one Lease, and the signals that a machine in trouble sends.

The server is a fake behind a real socket; tests/cluster/test_leader.py does the same on the real API server.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes import FakeApi, wait_until
from tests.kube.fake_over_http import FakeOverHttp, Seen
from tests.kube.http_server import serving
from tests.kube.leader_process import LEASE_DURATION_S, RETRY_PERIOD_S, WRITE_PAUSE_S

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def world() -> Iterator[tuple[FakeOverHttp, str]]:
    """A server with the ConfigMap that leaders write to, and its address."""
    api = FakeApi()
    api.add("/api/v1/namespaces/s/configmaps", {"metadata": {"name": "target"}})
    with serving() as server:
        front = FakeOverHttp(api)
        server.otherwise = front
        yield front, server.url


@contextmanager
def candidate(url: str, identity: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one candidate; ends it, stopped or not, at the end."""
    command = [sys.executable, "-m", "tests.kube.leader_process", "--server", url]
    process = subprocess.Popen([*command, "--namespace", "s", "--identity", identity], cwd=REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def target_writes(front: FakeOverHttp, identity: str) -> list[Seen]:
    return [seen for seen in front.writes_of(identity) if seen.path.endswith("/target")]


def wait_for_writes(front: FakeOverHttp, identity: str, count: int = 3) -> None:
    """Wait until that candidate leads and its worker has written so many times."""
    wait_until(lambda: len(target_writes(front, identity)) >= count, timeout_s=30.0)


def wait_for_idle(front: FakeOverHttp, identity: str) -> None:
    """Wait until both threads of the leader are asleep: nobody can be stopped between the last question and `send`.

    That gap of some microseconds is the one that no client can close; the server's preconditions are there for it.
    """

    def idle() -> bool:
        now, writes = time.monotonic(), front.writes_of(identity)
        renewal = next(now - seen.at for seen in writes[::-1] if "/leases/" in seen.path)
        write = next(now - seen.at for seen in writes[::-1] if "/leases/" not in seen.path)
        return 0.03 < renewal < RETRY_PERIOD_S - 0.15 and 0.03 < write < WRITE_PAUSE_S - 0.1

    wait_until(idle, timeout_s=30.0)


def test_a_leader_stopped_past_its_lease_wakes_without_a_write(world: tuple[FakeOverHttp, str]) -> None:
    """SIGSTOP past expiry, another leads, SIGCONT: not one write of the old leader arrives, and it exits with 1."""
    front, url = world
    with candidate(url, "old") as old:
        wait_for_writes(front, "old")
        with candidate(url, "new") as new:
            wait_until(lambda: any(seen.user_agent == "new" for seen in front.seen), timeout_s=30.0)
            wait_for_idle(front, "old")
            old.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            wait_for_writes(front, "new")
            first = next(seen.at for seen in front.writes_of("new"))
            woken = time.monotonic()
            old.send_signal(signal.SIGCONT)
            code = old.wait(10)
            alive = new.poll() is None
    assert (code, alive) == (1, True)
    assert front.writes_of("old", since=woken) == []
    assert LEASE_DURATION_S - RETRY_PERIOD_S - 0.5 <= first - stopped <= LEASE_DURATION_S + 5


def test_a_leader_that_is_asked_to_end_hands_over_at_once(world: tuple[FakeOverHttp, str]) -> None:
    """SIGTERM: worker first, then the Lease; the next one need not wait it out, and both never write in between."""
    front, url = world
    with candidate(url, "old") as old:
        wait_for_writes(front, "old")
        with candidate(url, "new"):
            wait_until(lambda: any(seen.user_agent == "new" for seen in front.seen), timeout_s=30.0)
            old.send_signal(signal.SIGTERM)
            code = old.wait(10)
            ended = time.monotonic()
            wait_for_writes(front, "new")
    old_writes, new_writes = front.writes_of("old"), front.writes_of("new")
    assert (code, old_writes[-1].path.endswith("/leases/contested")) == (0, True)
    assert old_writes[-1].at <= new_writes[0].at <= ended + LEASE_DURATION_S - 2.0


def test_a_leader_killed_is_replaced_after_its_lease(world: tuple[FakeOverHttp, str]) -> None:
    """kill -9: nobody says anything; the next one takes over once the Lease has run out, not before."""
    front, url = world
    with candidate(url, "old") as old:
        wait_for_writes(front, "old")
        with candidate(url, "new"):
            wait_until(lambda: any(seen.user_agent == "new" for seen in front.seen), timeout_s=30.0)
            old.kill()
            wait_for_writes(front, "new", count=1)
    last_renewal = [seen.at for seen in front.writes_of("old") if "/leases" in seen.path][-1]
    assert front.writes_of("new")[0].at >= last_renewal + LEASE_DURATION_S
