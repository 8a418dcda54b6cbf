from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store import Change, Store, key_of
from kube.types import Node, ObjectMeta
from tests.kube.objects import node


def filled(*nodes: Node, version: int = 10) -> Store[Node]:
    store: Store[Node] = Store()
    store.replace(nodes, str(version), at=0.0)
    return store


def recorded(store: Store[Node]) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    store.subscribe(lambda change, obj: seen.append((change.value, obj.metadata.name if obj else "")))
    return seen


def versions(store: Store[Node]) -> dict[str, int]:
    return {key: int(obj.metadata.resource_version) for key, obj in store.snapshot().items()}


def test_it_is_synced_only_after_a_full_list() -> None:
    """An empty cluster and a list that never came must not look alike."""
    store: Store[Node] = Store()
    before = (store.synced, store.wait_synced(0.0), store.fresh(0.0, 60.0))
    store.replace([], "5", at=0.0)
    assert (before, store.synced, store.wait_synced(0.0)) == ((False, False, False), True, True)


def test_staleness_is_seen_while_it_stays_synced() -> None:
    """A store that heard nothing for longer than the limit is not fresh, though its content stands."""
    store = filled(node("a", 3))
    store.heard("12", at=100.0)
    assert (store.synced, store.fresh(190.0, 90.0), store.fresh(190.1, 90.0)) == (True, True, False)


@pytest.mark.parametrize(
    ("offered", "taken", "expected"),
    [
        pytest.param(node("a", 11), True, {"a": 11}, id="a newer answer to our own write is read at once"),
        pytest.param(node("a", 9), False, {"a": 10}, id="an answer that the watch overtook is dropped"),
        pytest.param(node("a", 10), False, {"a": 10}, id="what is held already changes nothing"),
        pytest.param(node("b", 31), True, {"a": 10, "b": 31}, id="an object created by us is there at once"),
        pytest.param(
            node("b", 30), False, {"a": 10}, id="an absent object not newer than what was heard was deleted"
        ),
        pytest.param(node("a", 100), True, {"a": 100}, id="versions compare as numbers and not as text"),
    ],
)
def test_an_offer_is_taken_only_when_newer(offered: Node, taken: bool, expected: dict[str, int]) -> None:
    """Our own write's answer never replaces something newer and never brings back the dead."""
    store = filled(node("a", 10), version=30)
    assert (taken, expected) == (store.offer(offered), versions(store))


def test_a_deleted_object_is_not_resurrected_by_a_late_answer() -> None:
    """The watch said DELETED; the answer to a patch sent before arrives after."""
    store = filled(node("a", 10), version=10)
    store.apply("DELETED", node("a", 12), at=1.0)
    assert (store.offer(node("a", 11)), versions(store)) == (False, {})


def test_an_event_older_than_our_own_write_is_dropped() -> None:
    """Between our write and its event, older events of the same object still arrive."""
    store = filled(node("a", 10))
    store.offer(node("a", 15, unschedulable=True))
    store.apply("MODIFIED", node("a", 14), at=1.0)
    assert versions(store) == {"a": 15}


def test_a_list_older_than_our_own_write_keeps_the_write() -> None:
    """A list read before our create and our patch does not undo them; what it lacks otherwise is gone."""
    store = filled(node("a", 10), node("gone", 9), version=10)
    store.offer(node("a", 15))
    store.offer(node("new", 16))
    store.replace([node("a", 10)], "12", at=1.0)
    assert versions(store) == {"a": 15, "new": 16}


def test_a_restored_backup_counts_over_everything_held() -> None:
    """Where the server's history went back, keeping higher versions would blind us for ever."""
    store = filled(node("a", 90), node("b", 91), version=95)
    store.replace([node("a", 40)], "50", at=1.0)
    store.apply("MODIFIED", node("a", 51), at=2.0)
    assert versions(store) == {"a": 51}


def test_a_list_tells_subscribers_only_what_differs() -> None:
    """A relist of 1,500 unchanged nodes wakes nobody 1,500 times."""
    store = filled(node("same", 1), node("changed", 2), node("gone", 3), version=5)
    seen = recorded(store)
    store.replace([node("same", 1), node("changed", 6), node("new", 7)], "8", at=1.0)
    expected = [("DELETED", "gone"), ("MODIFIED", "changed"), ("ADDED", "new"), ("SYNCED", "")]
    assert seen == expected


def test_a_node_recreated_under_its_name_is_a_deletion_and_an_addition() -> None:
    """Another UID is another node, even where the DELETED event was missed."""
    store = filled(node("a", 3, uid="old"))
    seen = recorded(store)
    store.replace([node("a", 7, uid="new")], "9", at=1.0)
    assert seen == [("DELETED", "a"), ("ADDED", "a"), ("SYNCED", "")]


def test_an_index_follows_every_change() -> None:
    """Objects are found under their new index key only, and empty keys are not kept."""
    store: Store[Node] = Store(index=lambda n: "out" if n.spec.unschedulable else "")
    store.replace([node("a", 1, unschedulable=True), node("b", 2)], "5", at=0.0)
    first = [n.metadata.name for n in store.by_index("out")]
    store.apply("MODIFIED", node("a", 6), at=1.0)
    store.apply("MODIFIED", node("b", 7, unschedulable=True), at=1.0)
    second = [n.metadata.name for n in store.by_index("out")]
    store.apply("DELETED", node("b", 8, unschedulable=True), at=1.0)
    assert (first, second, store.by_index("out")) == (["a"], ["b"], ())


def test_a_snapshot_never_changes_and_costs_nothing_while_nothing_changed() -> None:
    """Who plans on a snapshot sees one instant; asking again without a change gives the same one."""
    store = filled(node("a", 1))
    first = store.snapshot()
    again = store.snapshot()
    store.apply("ADDED", node("b", 11), at=1.0)
    assert (first is again, list(first), sorted(store.snapshot())) == (True, ["a"], ["a", "b"])


def test_a_subscriber_may_read_the_store_it_is_told_by() -> None:
    """Subscribers are called outside the lock."""
    store = filled()
    sizes: list[int] = []
    store.subscribe(lambda _change, _obj: sizes.append(len(store.values())))
    store.apply("ADDED", node("a", 11), at=1.0)
    assert sizes == [1]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param(ObjectMeta(name="n"), "n", id="a cluster-scoped object is named alone"),
        pytest.param(
            ObjectMeta(name="p", namespace="x"), "x/p", id="a namespaced object carries its namespace"
        ),
    ],
)
def test_keys(metadata: ObjectMeta, expected: str) -> None:
    """Keys are unique within one resource."""
    assert expected == key_of(metadata)


NAMES = st.sampled_from(["a", "b", "c"])
HISTORY = st.lists(st.tuples(NAMES, st.booleans()), min_size=1, max_size=25)


@given(history=HISTORY, early=st.lists(st.integers(0, 24), max_size=10), data=st.data())
def test_offers_in_any_order_never_change_where_the_watch_ends(
    history: list[tuple[str, bool]], early: list[int], data: st.DataObject
) -> None:
    """Whatever answers to writes come in between, after the last event the store equals the server."""
    truth: dict[str, int] = {}
    events: list[tuple[Literal["ADDED", "MODIFIED", "DELETED"], Node]] = []
    for version, (name, deleted) in enumerate(history, start=11):
        if deleted and name in truth:
            del truth[name]
            events.append(("DELETED", node(name, version)))
        else:
            events.append(("MODIFIED" if name in truth else "ADDED", node(name, version)))
            truth[name] = version
    store = filled(version=10)
    for place, (kind, obj) in enumerate(events):
        for offer in [events[i] for i in early if i < len(events)]:
            if offer[0] != "DELETED" and data.draw(st.booleans()):
                store.offer(offer[1])
        store.apply(kind, obj, at=float(place))
    assert versions(store) == truth


def test_changes_are_the_servers_own_words() -> None:
    """Subscribers may compare with plain text."""
    words: Callable[[Any], list[str]] = lambda enum: [member.value for member in enum]  # noqa: E731 - one line of a test
    assert words(Change) == ["ADDED", "MODIFIED", "DELETED", "SYNCED"]
