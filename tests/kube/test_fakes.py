"""The fake must refuse what the server refuses, else tests on it prove nothing."""

import threading
from typing import Any

import msgspec
import pytest

from kube import paths
from kube.api import AlreadyExists, ApiError, Conflict, Gone, Invalid, NotFound, PatchType, Unavailable
from tests.fakes import FakeApi, FakeClock, request_to, wait_until


def decoded(raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(raw, type=dict[str, Any])


def with_node(**fields: Any) -> FakeApi:
    api = FakeApi(FakeClock())
    api.add(paths.nodes(), {"metadata": {"name": "n", "uid": "u"}, **fields})
    return api


def test_conditions_merge_by_type_and_taints_are_replaced_whole() -> None:
    """Only conditions have a merge key on a Node; taints are atomic (k8s.io/api, core/v1 NodeSpec)."""
    api = with_node(
        spec={"taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]},
    )
    change = {"status": {"conditions": [{"type": "X", "status": "True"}]}}
    api.patch(paths.node_status("n"), change, PatchType.STRATEGIC)
    api.patch(
        paths.node("n"), {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}, PatchType.STRATEGIC
    )
    node = api.read(paths.node("n"))
    assert (
        [(c["type"], c["status"]) for c in node["status"]["conditions"]],
        [t["key"] for t in node["spec"]["taints"]],
    ) == ([("Ready", "True"), ("X", "True")], ["b"])


def test_status_and_spec_are_separate_doors() -> None:
    """What goes through one door cannot change what is behind the other."""
    api = with_node(spec={"unschedulable": True}, status={"phase": "old"})
    both = {"spec": {"unschedulable": False}, "status": {"phase": "new"}}
    api.patch(paths.node_status("n"), both, PatchType.MERGE)
    after_status = api.read(paths.node("n"))
    api.patch(paths.node("n"), {"spec": {"unschedulable": False}, "status": {"phase": "x"}}, PatchType.MERGE)
    after_main = api.read(paths.node("n"))
    assert (
        after_status["spec"]["unschedulable"],
        after_status["status"]["phase"],
        after_main["spec"]["unschedulable"],
        after_main["status"]["phase"],
    ) == (True, "new", False, "new")


@pytest.mark.parametrize(
    ("body", "patch_type", "error"),
    [
        pytest.param(
            {"metadata": {"resourceVersion": "1"}}, PatchType.MERGE, Conflict, id="an old version conflicts"
        ),
        pytest.param(
            {"metadata": {"uid": "other"}},
            PatchType.STRATEGIC,
            Invalid,
            id="another UID is 422: it never changes",
        ),
        pytest.param(
            [{"op": "test", "path": "/metadata/uid", "value": "other"}],
            PatchType.JSON,
            Invalid,
            id="a failed test is 422",
        ),
        pytest.param(
            [{"op": "remove", "path": "/spec/x"}], PatchType.JSON, Invalid, id="removing nothing is 422"
        ),
    ],
)
def test_preconditions_are_enforced(body: Any, patch_type: PatchType, error: type[ApiError]) -> None:
    """A write that was meant for another state of the object is refused."""
    api = with_node()
    with pytest.raises(error):
        api.patch(paths.node("n"), body, patch_type)


def test_a_json_patch_does_what_it_says() -> None:
    """Escaped keys, appending and removing by place."""
    api = with_node(spec={"taints": [{"key": "a"}, {"key": "b"}]})
    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/nodemend.dev~1quarantine", "value": "{}"},
        {"op": "remove", "path": "/spec/taints/0"},
        {"op": "add", "path": "/spec/taints/-", "value": {"key": "c"}},
    ]
    api.patch(paths.node("n"), operations, PatchType.JSON)
    node = api.read(paths.node("n"))
    assert (
        node["metadata"]["annotations"],
        [t["key"] for t in node["spec"]["taints"]],
    ) == ({"nodemend.dev/quarantine": "{}"}, ["b", "c"])


def test_a_patch_that_changes_nothing_keeps_the_version_and_sends_no_event() -> None:
    """As the server: no write, no event."""
    api = with_node(spec={"unschedulable": True})
    before = api.read(paths.node("n"))
    api.patch(paths.node("n"), {"spec": {"unschedulable": True}}, PatchType.MERGE)
    assert before == api.read(paths.node("n"))


def test_custom_resources_take_no_strategic_merge() -> None:
    """415, as from the server."""
    api = FakeApi(FakeClock())
    api.create(paths.remediations(), {"metadata": {"name": "r"}, "status": {"phase": "x"}})
    with pytest.raises(ApiError) as caught:
        api.patch(paths.remediation_status("r"), {"status": {}}, PatchType.STRATEGIC)
    assert (caught.value.code, api.read(paths.remediation("r")).get("status")) == (415, None)


def test_a_second_create_is_refused_and_an_eviction_minds_the_uid() -> None:
    """Names are taken once; a pod of another UID is not evicted."""
    api = FakeApi(FakeClock())
    pod = {"metadata": {"name": "p", "uid": "u"}}
    api.create(paths.pods("x"), pod)
    with pytest.raises(AlreadyExists):
        api.create(paths.pods("x"), pod)
    with pytest.raises(Conflict):
        api.create(paths.eviction("x", "p"), {"deleteOptions": {"preconditions": {"uid": "other"}}})
    api.create(paths.eviction("x", "p"), {"deleteOptions": {"preconditions": {"uid": "u"}}})
    with pytest.raises(NotFound):
        api.read(paths.pod("x", "p"))


def test_lists_come_in_pages_of_one_instant() -> None:
    """A page token shows the moment of the first page, and expires."""
    api = FakeApi(FakeClock())
    for name in "abc":
        api.add(paths.nodes(), {"metadata": {"name": name}})
    first = decoded(api.get(paths.nodes(), {"limit": "2"}))
    api.add(paths.nodes(), {"metadata": {"name": "d"}})
    second = decoded(api.get(paths.nodes(), {"limit": "2", "continue": first["metadata"]["continue"]}))
    names = [item["metadata"]["name"] for page in (first, second) for item in page["items"]]
    again = decoded(api.get(paths.nodes(), {"limit": "2"}))["metadata"]["continue"]
    api.compact()
    with pytest.raises(Gone):
        api.get(paths.nodes(), {"limit": "2", "continue": again})
    assert names == ["a", "b", "c"]


def test_selectors_choose() -> None:
    """Label and field selectors by equality."""
    api = FakeApi(FakeClock())
    api.add(paths.pods("x"), {"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": {"nodeName": "n1"}})
    api.add(paths.pods("y"), {"metadata": {"name": "q", "labels": {"app": "b"}}, "spec": {"nodeName": "n1"}})
    query = {"fieldSelector": "spec.nodeName=n1", "labelSelector": "app!=b"}
    assert [item["metadata"]["name"] for item in decoded(api.get(paths.pods(), query))["items"]] == ["p"]


def test_a_watch_waits_for_what_comes_and_ends_with_410_after_compaction() -> None:
    """History first, then live events and bookmarks, then the ERROR of an expired watch."""
    api = with_node()
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        for line in api.stream(paths.nodes(), {"resourceVersion": "100"}, read_timeout_s=5.0):
            event = decoded(line)
            obj = event["object"]
            seen.append((event["type"], obj.get("metadata", {}).get("name", str(obj.get("code", "")))))

    reader = threading.Thread(target=follow)
    reader.start()
    for step, action in enumerate(
        [
            lambda: None,
            lambda: api.patch(paths.node("n"), {"spec": {"unschedulable": True}}, PatchType.MERGE),
            lambda: api.delete(paths.node("n")),
            api.bookmark,
            api.compact,
        ],
        start=1,
    ):
        action()
        wait_until(lambda step=step: len(seen) == step)  # type: ignore[misc]
    reader.join(5)
    expected = [("ADDED", "n"), ("MODIFIED", "n"), ("DELETED", "n"), ("BOOKMARK", ""), ("ERROR", "410")]
    assert [(kind, name) for kind, name in expected] == seen


def test_a_lost_answer_leaves_the_write_done() -> None:
    """The hardest failure: it happened, and nobody said so."""
    api = with_node()
    api.fail_next(request_to("PATCH", "/nodes/n"), Unavailable("connection reset"), after=True)
    with pytest.raises(Unavailable):
        api.patch(paths.node("n"), {"spec": {"unschedulable": True}}, PatchType.MERGE)
    assert (api.read(paths.node("n"))["spec"]["unschedulable"], len(api.writes())) == (True, 1)


def test_the_clock_moves_only_when_told() -> None:
    """Sleeping moves both clocks; a time server's step moves the wall clock alone."""
    time = FakeClock()
    start = (time.now(), time.monotonic())
    time.sleep(2.0)
    time.jump_wall(-3600.0)
    assert (
        (time.now() - start[0]).total_seconds(),
        time.monotonic() - start[1],
        time.slept,
    ) == (-3598.0, 2.0, [2.0])
