"""Events for warnings: one for each, counted in its series, and never more than the server can bear."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from agent.events import AGAIN_S, BURST, LONGEST_RETRY_S, MOST_TOLD, RETRY_S, EventWriter, event
from agent.metrics import Metrics
from checks.finding import Action, Effect, Finding, Part, PartKind, Urgency
from checks.reason_rows import fault, warning
from kube import paths
from kube.api import Forbidden, Invalid, PatchType
from tests.fakes import FakeApi, FakeClock, request_to

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
ODD = warning("ThingOdd", "It is odd.", "Look.")
SICK = fault("ThingSick", Effect.NODE_OUT, Urgency.NOW, Action.REBOOT, "It is sick.", "Look.")
GPU = Part(kind=PartKind.GPU, pci="0000:3b:00", index=3)
EVENTS = paths.events("default")


def finding(part: Part = GPU, count: int = 1, *, drill: bool = False) -> Finding:
    return ODD.found_on(
        part, "boot-1", first_seen=NOON, last_seen=NOON, count=count, drill=drill, detail="odd"
    )


class Scene:
    """An EventWriter over a fake API server."""

    def __init__(self) -> None:
        self.clock = FakeClock(now=NOON)
        self.api = FakeApi(self.clock)
        self.writer = EventWriter(self.api, "gpu-1", self.clock.clock, Metrics("test"))

    def tell(self, *findings: Finding, uid: str = "uid-1") -> float:
        self.writer.offer([("ThingFault", one) for one in findings], uid)
        return self.writer.step()

    def kinds(self) -> list[str]:
        return [write.method for write in self.api.writes()]


def test_a_warning_is_told_once() -> None:
    """In the namespace and form in which kubelet tells of Nodes."""
    scene = Scene()
    scene.tell(finding())
    scene.tell(finding())
    (write,) = scene.api.writes()
    body: Any = write.body
    assert (write.method, write.path) == ("CREATE", EVENTS)
    assert (body["type"], body["reason"], body["note"]) == (
        "Warning",
        "ThingOdd",
        "GPU 3 at 0000:3b:00: ThingOdd (odd)",
    )
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "uid-1"}


def test_a_fault_has_its_condition() -> None:
    """And no Event."""
    scene = Scene()
    scene.tell(SICK.found_on(GPU, "boot-1", first_seen=NOON, last_seen=NOON))
    assert scene.kinds() == []


def test_nothing_is_told_before_the_node_is_known() -> None:
    """There is nothing that it could regard."""
    scene = Scene()
    assert scene.tell(finding(), uid="") == float("inf")
    assert scene.kinds() == []


def test_a_drill_says_that_it_is_one() -> None:
    """In the note."""
    assert event(finding(drill=True), "gpu-1", "uid-1", NOON)["note"].startswith("drill: GPU 3")


def test_later_sights_count_in_the_series_every_ten_minutes() -> None:
    """The object stays one."""
    scene = Scene()
    scene.tell(finding())
    scene.clock.advance(AGAIN_S - 1)
    scene.tell(finding(count=5))
    assert scene.kinds() == ["CREATE"]
    scene.clock.advance(1)
    scene.tell(finding(count=7))
    assert scene.kinds() == ["CREATE", "PATCH"]
    patch = scene.api.writes()[-1]
    assert patch.patch_type is PatchType.MERGE
    assert msgspec.to_builtins(patch.body)["series"]["count"] == 7


@pytest.mark.parametrize(
    ("pause_s", "kinds"),
    [
        pytest.param(60.0, ["CREATE"], id="soon: nothing"),
        pytest.param(AGAIN_S, ["CREATE", "CREATE", "PATCH"], id="later: the one that stands counts it"),
    ],
)
def test_a_warning_that_comes_back(pause_s: float, kinds: list[str]) -> None:
    """It is the same Event, as long as the server keeps it."""
    scene = Scene()
    scene.tell(finding())
    scene.tell()
    scene.clock.advance(pause_s)
    scene.tell()
    scene.tell(finding(count=1))
    assert scene.kinds() == kinds


def test_an_event_that_the_server_let_go_is_made_anew() -> None:
    """It keeps them for an hour."""
    scene = Scene()
    scene.tell(finding())
    name = str(msgspec.to_builtins(scene.api.writes()[0].body)["metadata"]["name"])
    scene.api.delete(paths.member(EVENTS, name))
    scene.clock.advance(AGAIN_S)
    scene.tell(finding(count=9))
    assert scene.kinds()[-2:] == ["PATCH", "CREATE"]


def test_a_storm_of_warnings_costs_a_few_writes() -> None:
    """Ten at once, and then one a minute."""
    scene = Scene()
    parts = [Part(kind=PartKind.PORT, name=f"p{number}/1") for number in range(40)]
    wait_s = scene.tell(*(finding(part) for part in parts))
    assert len(scene.kinds()) == BURST
    scene.clock.advance(wait_s)
    scene.writer.step()
    assert len(scene.kinds()) == BURST + 1


def test_what_is_refused_is_tried_again_after_a_while() -> None:
    """And stands in nobody's way."""
    scene = Scene()
    scene.api.fail_next(request_to("CREATE", "/events"), Forbidden("no"))
    assert scene.tell(finding()) == RETRY_S
    assert scene.tell(finding()) == RETRY_S
    scene.clock.advance(RETRY_S)
    scene.tell(finding())
    assert scene.kinds() == ["CREATE", "CREATE"]


def test_an_agent_that_may_not_write_events_asks_hardly_ever() -> None:
    """A cluster of thousands of nodes without that right must not feel it; once it is there, all is told."""
    scene = Scene()
    scene.api.fail_next(request_to("CREATE", "/events"), Forbidden("no"), times=None)
    both = (finding(), finding(Part(kind=PartKind.NODE)))
    for _ in range(24 * 60):
        scene.tell(*both)
        scene.clock.advance(60)
    assert len(scene.kinds()) <= 24 + 6
    scene.api.stop_failing()
    scene.clock.advance(LONGEST_RETRY_S)
    before = len(scene.kinds())
    assert scene.tell(*both) == AGAIN_S
    assert len(scene.kinds()) == before + 2


def test_one_that_the_server_will_never_take_holds_up_no_other() -> None:
    """It is said in the log, and passed over."""
    scene = Scene()
    scene.api.fail_next(request_to("CREATE", "/events"), Invalid("bad"))
    scene.tell(finding(), finding(Part(kind=PartKind.NODE)))
    assert scene.kinds() == ["CREATE", "CREATE"]


def test_a_warning_after_a_drill_of_it_is_news() -> None:
    """The drill's Event says that it is one; the real warning must not count in its series."""
    scene = Scene()
    scene.tell(finding(drill=True))
    scene.tell(finding())
    drill, real = (msgspec.to_builtins(write.body) for write in scene.api.writes())
    assert drill["metadata"]["name"] != real["metadata"]["name"]
    assert (drill["note"].startswith("drill: "), real["note"].startswith("drill: ")) == (True, False)


def test_what_is_remembered_is_bounded() -> None:
    """However many parts come and go."""
    scene = Scene()
    random = Random(1)
    for number in range(MOST_TOLD + 100):
        scene.tell(finding(Part(kind=PartKind.PORT, name=f"p{number}/{random.randrange(9)}")))
        scene.clock.advance(61)
    assert len(scene.writer._told) <= MOST_TOLD + 1


def test_another_node_object_is_told_anew() -> None:
    """Its Events are another object's."""
    scene = Scene()
    scene.tell(finding())
    scene.tell(finding(), uid="uid-2")
    names = {str(msgspec.to_builtins(write.body)["metadata"]["name"]) for write in scene.api.writes()}
    assert len(names) == 2


def test_a_note_is_cut_where_the_server_would_refuse_it() -> None:
    """At a thousand bytes."""
    long = msgspec.structs.replace(finding(), detail="ü" * 900, last_seen=NOON + timedelta(seconds=1))
    assert len(event(long, "gpu-1", "uid-1", NOON)["note"].encode()) <= 1000
