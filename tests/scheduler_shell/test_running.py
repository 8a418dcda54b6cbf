"""A whole replica: from a pod that waits to one that is bound, what it says, and what it leaves alone."""

import time

import msgspec
import pytest

from controller.scheduler.shell.stores import STALE_AFTER_S
from kube import paths
from kube.api import Forbidden, TooManyRequests, Unavailable
from kube.clock import SYSTEM
from tests.fakes import request_to, wait_until
from tests.scheduler_shell.running_scheduler import GROUPS, NS, annotations_of, running

A_WHILE_S = 1.0
TIME_S = 20.0


def test_a_pod_that_fits_is_bound_in_one_request_with_its_group_on_it() -> None:
    """The PodGroup itself is bookkeeping, and follows."""
    with running() as it:
        it.node("a")
        it.queue("q", 8)
        it.pod("p")
        wait_until(it.bound("p"), TIME_S)
        assert it.on_node("p") == "a"
        group = annotations_of(it.api, "p")["pod-group-name"]
        assert annotations_of(it.api, "p")["received-resource-type"] == "Regular"
        wait_until(lambda: group in it.api.names(GROUPS), TIME_S)
        assert it.binds() == ["p"]
        assert it.page("plan")["shares"][0]["queue"] == "q"
        assert [node["name"] for node in it.page("snapshot")["nodes"]] == ["a"]
        wait_until(lambda: 'nodemend_scheduler_binds_total{result="done"} 1.0' in it.page("metrics"), TIME_S)


def test_a_gang_waits_whole_and_starts_whole() -> None:
    """Until there is room for the last of it, nobody of it is bound."""
    with running() as it:
        it.queue("q", 16)
        it.node("a")
        it.group("gang", 3)
        for number in range(3):
            it.pod(f"g{number}", 4, group="gang")
        it.pod("single", 1)
        wait_until(it.bound("single"), TIME_S)
        time.sleep(A_WHILE_S)
        assert it.binds() == ["single"]
        it.node("b")
        wait_until(it.bound("g0", "g1", "g2"), TIME_S)
        assert sorted(it.binds()) == ["g0", "g1", "g2", "single"]


def test_a_pod_whose_bind_is_refused_goes_back_and_others_go_on() -> None:
    """It does not win the same GPU in every cycle (KAI issue 2074)."""
    with running() as it:
        it.queue("q", 8)
        it.api.fail_next(
            request_to("CREATE", "refused/binding"), Forbidden("a policy says no", code=403), times=None
        )
        it.pod("refused", 1)
        it.node("a", 1)
        wait_until(lambda: "refused" in it.binds(), TIME_S)
        it.pod("other", 1)
        wait_until(it.bound("other"), TIME_S)
        assert it.binds().count("refused") <= 4


@pytest.mark.parametrize(
    ("error", "after"),
    [
        (Unavailable("connection lost"), False),
        (Unavailable("connection lost"), True),
        (TooManyRequests("busy", code=429, retry_after_s=1.0), False),
    ],
    ids=["no answer, and not bound", "no answer, though bound", "a server that is busy"],
)
def test_a_bind_that_failed_on_the_way_ends_well(error: Exception, after: bool) -> None:
    """The pod is read where nobody knows; it is bound once, and its room is not given away meanwhile."""
    with running() as it:
        it.queue("q", 8)
        it.api.fail_next(request_to("CREATE", "/binding"), error, after=after)
        it.node("a", 1)
        it.pod("p", 1)
        wait_until(it.bound("p"), TIME_S)
        it.pod("late", 1)
        time.sleep(A_WHILE_S)
        assert it.on_node("late") == ""
        assert it.binds().count("p") == (1 if after else 2)


def test_nothing_is_bound_onto_a_node_that_was_cordoned() -> None:
    """Nor onto one that is not Ready."""
    with running() as it:
        it.queue("q", 8)
        it.node("closed", unschedulable=True)
        it.pod("p")
        time.sleep(A_WHILE_S)
        assert it.binds() == []
        it.node("open")
        wait_until(it.bound("p"), TIME_S)
        assert it.on_node("p") == "open"


def test_a_queue_gets_its_quota_back_through_the_eviction_api() -> None:
    """Asked first, then evicted; nothing is deleted."""
    with running() as it:
        it.queue("q", 0)
        it.queue("owner", 1)
        it.node("a", 1)
        it.pod("lent", queue="q")
        wait_until(it.bound("lent"), TIME_S)
        it.pod("owed", queue="owner")
        wait_until(it.bound("owed"), TIME_S)
        evictions = [one for one in it.api.writes() if one.path.endswith("/eviction")]
        assert [bool(one.query) for one in evictions] == [True, False]
        assert not [one for one in it.api.writes() if one.method == "DELETE"]
        assert "lent" not in it.api.names(paths.pods(NS))


def test_a_pod_that_asks_for_a_fraction_waits_while_fractions_are_off() -> None:
    """And says so; others are bound."""
    with running() as it:
        it.queue("q", 8)
        it.node("a")
        it.pod("part", 0, annotations={"gpu-fraction": "0.5"})
        it.pod("whole", 1)
        wait_until(it.bound("whole"), TIME_S)

        def said() -> bool:
            conditions = it.api.read(paths.pod(NS, "part"))["status"].get("conditions", [])
            return any("fractions are switched off" in one.get("message", "") for one in conditions)

        wait_until(said, TIME_S)
        assert it.binds() == ["whole"]


def test_a_follower_reads_and_writes_nothing() -> None:
    """Another one leads."""
    with running(leads=False) as it:
        it.queue("q", 8)
        it.node("a")
        it.pod("p")
        time.sleep(A_WHILE_S)
        assert it.api.writes() == []


@pytest.mark.parametrize("another_leads", [True, False], ids=["another one leads", "nobody leads"])
def test_a_dry_run_decides_and_writes_nothing(another_leads: bool) -> None:
    """Not even a Lease: who leads keeps it, and who comes to lead need not wait. What it would do is on its page."""
    with running(leads=False, another_leads=another_leads, dry_run=True) as it:
        it.queue("q", 8)
        it.node("a")
        it.pod("p")
        wait_until(lambda: [one["task"] for one in it.page("plan")["binds"]] == [f"{NS}/p"], TIME_S)
        time.sleep(A_WHILE_S)
        assert it.api.writes() == []
        assert "nodemend_leader 0.0" in it.page("metrics")
        assert "nodemend_scheduler_foreign_binds_total 0.0" in it.page("metrics")


def test_a_replica_that_hears_nothing_is_not_ready_and_is_not_restarted() -> None:
    """After two minutes, as the loop stops deciding; ready again as soon as it hears. A restart would mend nothing."""
    ahead_s = 0.0
    clock = msgspec.structs.replace(SYSTEM, monotonic=lambda: time.monotonic() + ahead_s)
    with running(leads=False, clock=clock) as it:
        wait_until(lambda: it.probe("readyz") == (200, "ok\n"), TIME_S)
        it.api.fail_next(lambda request: request.method in ("LIST", "WATCH"), Unavailable("deaf"), times=None)
        ahead_s = STALE_AFTER_S - 5
        assert it.probe("readyz") == (200, "ok\n")
        ahead_s = STALE_AFTER_S + 1
        status, why = it.probe("readyz")
        assert (status, "the API server was not heard for 120 s about" in why) == (503, True)
        assert it.probe("healthz") == (200, "ok\n")
        it.api.bookmark()
        wait_until(lambda: it.probe("readyz") == (200, "ok\n"), TIME_S)


def test_a_pod_that_somebody_else_bound_is_counted_and_our_own_are_not() -> None:
    """As a second scheduler under another Lease would do it."""
    with running() as it:
        it.queue("q", 8)
        it.node("a", 1)
        it.pod("ours")
        wait_until(it.bound("ours"), TIME_S)
        it.pod("theirs")
        wait_until(lambda: it.page("plan")["waits"] != [], TIME_S)
        it.api.create(paths.binding(NS, "theirs"), {"metadata": {}, "target": {"name": "a"}})
        wait_until(lambda: "nodemend_scheduler_foreign_binds_total 1.0" in it.page("metrics"), TIME_S)
        time.sleep(A_WHILE_S)
        assert "nodemend_scheduler_foreign_binds_total 1.0" in it.page("metrics")
        assert it.binds() == ["ours", "theirs"]
