"""controller.announce: Events on the Node, best effort."""

import threading

import msgspec
import pytest

from controller.announce import Announcement, Announcer, event
from kube import paths
from kube.api import Forbidden
from kube.remediation import Phase
from tests.controller.shell.samples import INCIDENT, NODE, NOW, UID
from tests.fakes import FakeApi, request_to, wait_until

SAID = Announcement(
    node=NODE, node_uid=UID, incident=INCIDENT, phase=Phase.QUARANTINED, message="Xid79 on GPU 3", at=NOW
)


def test_an_event_is_found_by_kubectl_describe_node() -> None:
    """Regarding the Node by its UID, in the namespace of cluster-scoped objects' Events, MicroTime with six digits."""
    written = event(SAID, "pod-1")
    assert written["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": UID}
    assert (written["metadata"]["namespace"], written["eventTime"]) == (
        "default",
        "2026-01-01T12:00:00.000000Z",
    )
    assert (written["type"], written["reason"], written["action"]) == (
        "Warning",
        "NodemendQuarantined",
        "Quarantined",
    )


def test_the_same_news_has_the_same_name() -> None:
    """So that a second leader that says it again writes nothing."""
    later = msgspec.structs.replace(SAID, phase=Phase.RETURNED)
    names = [
        event(said, instance)["metadata"]["name"]
        for said, instance in ((SAID, "a"), (SAID, "b"), (later, "a"))
    ]
    assert (names[0] == names[1], names[0] == names[2]) == (True, False)


def test_a_note_is_cut_to_what_the_server_takes() -> None:
    """1,024 bytes, not characters."""
    long = msgspec.structs.replace(SAID, message="ß" * 4000)
    assert len(event(long, "i")["note"].encode()) <= 1024


@pytest.mark.parametrize("fails", [False, True], ids=["written", "refused"])
def test_what_is_said_is_written_beside_the_loop(fails: bool) -> None:
    """A refusal is counted and forgotten."""
    api = FakeApi()
    if fails:
        api.fail_next(request_to("CREATE", "/events"), Forbidden("rbac", code=403), times=None)
    announcer = Announcer(api, "pod-1")
    announcer.start()
    announcer.say(SAID)
    announcer.say(SAID)
    announcer.stop(5)
    assert (len(api.names(paths.events("default"))), announcer.lost) == ((0, 2) if fails else (1, 0))


def test_events_leave_room_and_hurry_at_the_end() -> None:
    """While the controller runs there is a pause after each; at its end none is left behind for a pause's sake."""
    api = FakeApi()
    announcer = Announcer(api, "pod-1")
    announcer.start()
    for number in range(50):
        announcer.say(msgspec.structs.replace(SAID, incident=f"inc-{number}"))
    wait_until(lambda: len(api.names(paths.events("default"))) > 0)
    written = len(api.names(paths.events("default")))
    announcer.stop(5)
    assert (written < 50, len(api.names(paths.events("default")))) == (True, 50)


def test_a_full_queue_loses_news_and_never_waits() -> None:
    """The loop goes on whatever becomes of Events."""
    hold = threading.Event()

    class Slow(FakeApi):
        def create(self, *_args: object, **_kwargs: object) -> bytes:
            hold.wait(5)
            return b"{}"

    announcer = Announcer(Slow(), "pod-1", size=2)
    announcer.start()
    announcer.say(SAID)
    wait_until(lambda: announcer._queue.empty())
    for _ in range(5):
        announcer.say(SAID)
    hold.set()
    announcer.stop(5)
    assert announcer.lost == 3
