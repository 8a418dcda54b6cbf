"""Reflectors over real sockets and over FakeApi: what a server's watch may do, and that the store ends up right."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kube import paths
from kube.answers import refusal
from kube.api import Forbidden, Gone, PatchType, Unavailable
from kube.store import Store
from kube.types import Node
from kube.watch import Reflector, pause_s
from tests.fakes import FakeApi, FakeClock, request_to, wait_until
from tests.kube.http_server import Answer, refused
from tests.kube.objects import node_json
from tests.kube.watching import NODES, event, listing, scripted, watching


def test_a_list_is_paged_and_followed_by_a_watch_from_its_version() -> None:
    """Limit, continue token, bookmarks and a bounded server-side end are asked for."""
    lists = [listing(20, node_json("a", 3), next_page="more"), listing(20, node_json("b", 4))]
    watches = [Answer(chunks=(event("MODIFIED", node_json("a", 21)),))]
    with scripted(lists, watches, page_size=1, field_selector="spec.x=y") as (running, script):
        running.reaches({"a": 21, "b": 4})
        wait_until(lambda: len(script.queries(watch=True)) == 2)
        first, second = script.queries(watch=True)[:2]
    selector = {"fieldSelector": "spec.x=y"}
    assert script.queries(watch=False) == [
        {"limit": "1", **selector},
        {"limit": "1", "continue": "more", **selector},
    ]
    assert (first["resourceVersion"], second["resourceVersion"], first["allowWatchBookmarks"]) == (
        "20",
        "21",
        "true",
    )
    assert 300 <= int(first["timeoutSeconds"]) <= 600


def test_an_expired_continue_token_begins_the_list_anew() -> None:
    """410 on a page: nothing of the half list is taken, the whole is read again."""
    lists = [
        listing(20, node_json("a", 3), next_page="more"),
        refused(410, "Expired"),
        listing(30, node_json("b", 25)),
    ]
    with scripted(lists, []) as (running, _script):
        running.reaches({"b": 25})
    assert running.pauses == []


@pytest.mark.parametrize(
    "expired",
    [
        pytest.param(refused(410, "Expired"), id="as an HTTP status"),
        pytest.param(
            Answer(
                chunks=(
                    event(
                        "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                    ),
                )
            ),
            id="as an ERROR event in the stream",
        ),
    ],
)
def test_410_in_a_watch_lists_again(expired: Answer) -> None:
    """What was missed in between is found by the new list, deletions too."""
    lists = [listing(20, node_json("a", 3), node_json("gone", 4)), listing(90, node_json("a", 80))]
    with scripted(lists, [expired]) as (running, script):
        running.reaches({"a": 80})
        wait_until(lambda: len(script.queries(watch=True)) == 2)
        assert script.queries(watch=True)[1]["resourceVersion"] == "90"


def test_another_error_in_the_stream_goes_on_from_where_it_was() -> None:
    """A server in trouble is no reason to read 1,500 nodes again."""
    error = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
    watches = [
        Answer(chunks=(event("ADDED", node_json("b", 22)), event("ERROR", error))),
        Answer(chunks=(event("ADDED", node_json("c", 23)),)),
    ]
    with scripted([listing(20)], watches) as (running, script):
        running.reaches({"b": 22, "c": 23})
        assert script.queries(watch=True)[1]["resourceVersion"] == "22"


def test_an_odd_item_is_named_and_what_was_known_of_it_stays() -> None:
    """Could not read is not is gone: neither a list nor a watch loses a node over one field of a wrong type."""
    odd = {
        "metadata": {"name": "odd", "uid": "uid-odd", "resourceVersion": "25"},
        "spec": {"unschedulable": "maybe"},
    }
    lists = [
        listing(20, node_json("odd", 3), {**odd, "metadata": {"name": "new", "resourceVersion": "4"}}),
        listing(40, odd, node_json("b", 30)),
    ]
    watches = [
        Answer(chunks=(event("MODIFIED", odd), event("ADDED", node_json("a", 26)))),
        refused(410, "Expired"),
    ]
    with scripted(lists, watches) as (running, script):
        running.reaches({"odd": 3, "b": 30})
        unreadable = dict(running.reflector.unreadable)
        assert script.queries(watch=True)[1]["resourceVersion"] == "26"
    assert (list(unreadable), "$.spec.unschedulable" in unreadable["odd"]) == (["odd"], True)


def test_an_odd_object_can_still_be_deleted_and_heal() -> None:
    """A DELETED event that cannot be decoded deletes; a later readable version is no longer unreadable."""
    odd = {"spec": {"unschedulable": "maybe"}}
    watches = [
        Answer(
            chunks=(
                event(
                    "MODIFIED", {"metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "21"}, **odd}
                ),
                event("DELETED", {"metadata": {"name": "b", "uid": "uid-b", "resourceVersion": "22"}, **odd}),
                event("MODIFIED", node_json("a", 23)),
            )
        )
    ]
    with scripted([listing(20, node_json("a", 3), node_json("b", 4))], watches) as (running, _script):
        running.reaches({"a": 23})
        assert running.reflector.unreadable == {}


def test_a_bookmark_moves_the_start_and_shows_life() -> None:
    """After a quiet hour the next watch does not start from an hour ago."""
    bookmark = {"kind": "Node", "metadata": {"resourceVersion": "70", "creationTimestamp": None}, "spec": {}}
    with scripted([listing(20, node_json("a", 3))], [Answer(chunks=(event("BOOKMARK", bookmark),))]) as (
        running,
        script,
    ):
        wait_until(lambda: len(script.queries(watch=True)) == 2)
        assert script.queries(watch=True)[1]["resourceVersion"] == "70"
        assert (running.store.heard_version, running.versions()) == (70, {"a": 3})


def test_history_that_went_back_is_listed_again() -> None:
    """After a restore from a backup, versions are small again: waiting for greater ones would be blindness."""
    lists = [listing(500, node_json("a", 400)), listing(52, node_json("a", 51))]
    with scripted(lists, [Answer(chunks=(event("MODIFIED", node_json("a", 40)),))]) as (running, _script):
        running.reaches({"a": 51})


def test_an_unknown_kind_of_event_is_no_failure() -> None:
    """A newer server may say more."""
    watches = [Answer(chunks=(event("RENAMED", node_json("x", 21)), event("ADDED", node_json("b", 22))))]
    with scripted([listing(20)], watches) as (running, _script):
        running.reaches({"b": 22})


def test_a_watch_follows_the_fake_server_through_everything() -> None:
    """Created, changed, deleted, history lost, deleted meanwhile."""
    api = FakeApi()
    api.add(NODES, {"metadata": {"name": "a"}})
    with watching(api) as running:
        wait_until(lambda: "a" in running.store.snapshot())
        api.patch(paths.node("a"), {"spec": {"unschedulable": True}}, PatchType.MERGE)
        wait_until(lambda: running.store.snapshot()["a"].spec.unschedulable)
        api.compact()
        api.create(NODES, {"metadata": {"name": "b"}})
        api.delete(paths.node("a"))
        wait_until(lambda: list(running.store.snapshot()) == ["b"])


def test_a_broken_watch_is_opened_again_without_a_list() -> None:
    """Nothing was missed, so no list."""

    class Silent(FakeApi):
        def stream(self, path: str, query: Any, read_timeout_s: float) -> Iterator[bytes]:
            lines = super().stream(path, query, read_timeout_s)
            if len(self.requests) == 2:
                raise TimeoutError("broken at once")
            return lines

    api = Silent()
    with watching(api) as running:
        wait_until(lambda: len(api.requests) == 3)
        api.create(NODES, {"metadata": {"name": "a"}})
        wait_until(lambda: "a" in running.store.snapshot())
    assert [request.method for request in api.requests] == ["LIST", "WATCH", "WATCH", "CREATE"]


def test_a_resource_that_never_changes_is_listed_before_it_counts_as_stale() -> None:
    """An API server that never saw it change sends no bookmark either, however often a watch is opened."""
    clock, stop = FakeClock(), threading.Event()

    class Quiet(FakeApi):
        def stream(self, path: str, query: Any, read_timeout_s: float) -> Iterator[bytes]:
            super().stream(path, query, read_timeout_s)
            clock.advance(read_timeout_s)
            if len(self.requests) >= 6:
                stop.set()
            raise Unavailable("nothing heard for 90 s")

    api, store = Quiet(), Store[Node]()
    Reflector(api, NODES, Node, store, clock=clock.clock, stop=stop, pause=clock.sleep).run()

    assert [request.method for request in api.requests] == ["LIST", "WATCH"] * 3
    assert store.fresh(clock.monotonic(), 120.0)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unavailable("connection refused"), id="the server is away"),
        pytest.param(Forbidden("no RBAC", code=403), id="we may not read"),
        pytest.param(Gone("for ever", code=410), id="every watch is expired at once"),
        pytest.param(refusal("LIST", 404, b""), id="the CRD is not installed"),
    ],
)
def test_pauses_grow_and_stay_bounded(error: Exception) -> None:
    """No failure is answered by a tight loop, nor by waiting longer than ten seconds."""
    api = FakeApi()
    api.fail_next(request_to("*", "/nodes"), error, times=None)
    with watching(api) as running:
        wait_until(lambda: len(running.pauses) >= 60)
    early, late = running.pauses[:2], running.pauses[20:60]
    assert (max(early) <= 0.8, max(late) > 5.0, max(running.pauses) <= 10.0) == (True, True, True)
    assert not running.store.synced


@pytest.mark.parametrize("outage_s", [20.0, 300.0])
def test_the_watches_of_a_large_fleet_come_back_spread(outage_s: float) -> None:
    """1,500 watches that broke in one instant are all back 10 s after the outage, at most 600 of them in one second."""
    back = []
    for _ in range(1500):
        at, failures = 0.0, 1
        while at < outage_s:
            at += pause_s(failures)
            failures += 1
        back.append(at - outage_s)
    assert max(back) <= 10.0
    assert max(sum(1 for at in back if second <= at < second + 1) for second in range(10)) <= 600


def test_watches_that_end_at_once_do_not_spin() -> None:
    """A proxy that closes every watch right away is failing, though it never says so."""
    with watching(FakeApi(streams_end=True)) as running:
        wait_until(lambda: len(running.pauses) >= 30)
        assert running.store.synced
    assert max(running.pauses) > 2.0


def test_the_store_is_right_again_after_the_server_was_away() -> None:
    """Staleness is seen while it lasts, and the content is kept meanwhile."""
    api = FakeApi()
    api.add(NODES, {"metadata": {"name": "a"}})
    with watching(api) as running:
        wait_until(lambda: running.store.synced)
        api.fail_next(request_to("*", "/nodes"), Unavailable("down"), times=None)
        api.compact()
        wait_until(lambda: len(running.pauses) > 3)
        heard = running.store.last_heard
        kept = (list(running.store.snapshot()), running.store.fresh(heard + 91, 90.0))
        api.stop_failing()
        api.add(NODES, {"metadata": {"name": "b"}})
        wait_until(lambda: "b" in running.store.snapshot())
    assert kept == (["a"], False)
