"""What the publisher promises, each promise against a fake API server: soon, bounded, put back, and never delayed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from agent.publish import patch_body
from checks.condition import Condition, Status
from kube import paths
from kube.api import PatchType, Unavailable
from kube.types import Node
from tests.agent.scene import NODE, TYPE, Scene
from tests.fakes import request_to

TO_HEALTH = request_to("*", "/nodehealths")


def test_a_raised_condition_is_sent_at_once(tmp_path: Path) -> None:
    """The round that takes the line sends the patch: no wait, and nothing else is written before it."""
    scene = Scene(tmp_path).begun()
    before = len(scene.api.writes())
    scene.line("FAULT GateStuck 0000:01:00")
    scene.agent.tick()
    sent = scene.api.writes()[before]
    assert [sent.path, sent.patch_type] == [paths.node_status(NODE), PatchType.STRATEGIC]
    assert scene.shown() == ("True", "GateStuck")


def test_conditions_are_sent_six_at_once_then_one_in_ten_seconds_and_the_newest_wins(tmp_path: Path) -> None:
    """A burst is bounded, and what stands after the wait is the last state, with nothing lost."""
    scene = Scene(tmp_path).begun()  # the first of six
    for number in range(20):
        scene.line(f"FAULT GateStuck 0000:{number:02x}:00")
        scene.agent.tick()
    assert scene.patches() == 6
    scene.wait(9)
    assert scene.patches() == 6
    scene.wait(2)
    assert scene.patches() == 7
    message = scene.condition()["message"]
    assert [f"0000:{number:02x}:00" in message for number in range(15)] == [True] * 15


@pytest.mark.parametrize(
    "jump_s",
    [
        pytest.param(-86_400, id="a day back"),
        pytest.param(86_400 * 365, id="a year on"),
    ],
)
def test_a_step_of_the_wall_clock_changes_no_interval(tmp_path: Path, jump_s: float) -> None:
    """Rates, pauses and re-assertion run on the monotonic clock; a fault is published at once all the same."""
    scene = Scene(tmp_path).begun()
    assert scene.agent.lease.renew()
    scene.clock.jump_wall(jump_s)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    assert scene.shown() == ("True", "GateStuck")
    writes = len(scene.api.writes())
    scene.wait(300)
    assert len(scene.api.writes()) - writes == 0
    assert scene.agent.lease.renew()
    scene.wait(500)
    assert len(scene.api.writes()) - writes <= 3
    assert b'nodemend_record_to_condition_seconds_bucket{le="0.01"} 1.0' in scene.agent.metrics.exposition(
        0, 0
    )


@pytest.mark.parametrize(
    ("held", "wanted_at", "sent"),
    [
        pytest.param("True", 50, "2026-01-01T00:00:10Z", id="the status stands: its time does too"),
        pytest.param("False", 50, "2026-01-01T00:00:50Z", id="the status changes: ours"),
        pytest.param("False", 5, "2026-01-01T00:01:40Z", id="another changed it since: now"),
        pytest.param("", 50, "2026-01-01T00:00:50Z", id="there is none"),
    ],
)
def test_a_transition_time_moves_as_the_node_shows_it(held: str, wanted_at: int, sent: str) -> None:
    """Whoever waits by it must see it move exactly when the status that the Node shows does."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    wanted = Condition(
        type=TYPE,
        status=Status.TRUE,
        reason="R",
        message="m",
        last_transition=start + timedelta(seconds=wanted_at),
    )
    standing = {"type": TYPE, "status": held, "lastTransitionTime": "2026-01-01T00:00:10Z"}
    node = msgspec.convert(
        {"metadata": {"name": NODE, "uid": "uid-1"}, "status": {"conditions": [standing] if held else []}},
        type=Node,
    )
    body = patch_body([wanted], [], node, start + timedelta(seconds=100))
    assert [c["lastTransitionTime"] for c in body["status"]["conditions"]] == [sent]


def test_a_condition_that_somebody_removed_is_put_back(tmp_path: Path) -> None:
    """The Node is read again every half minute; what is missing there comes back with its old transition time."""
    scene = Scene(tmp_path).begun()
    stood = scene.condition()
    scene.wait(20)
    remove = {"status": {"conditions": [{"$patch": "delete", "type": TYPE}]}}
    scene.api.patch(paths.node_status(NODE), remove, PatchType.STRATEGIC)
    scene.wait(40)
    assert scene.condition()["lastTransitionTime"] == stood["lastTransitionTime"]
    assert scene.shown() == ("False", "GateMoves")


def test_a_condition_that_somebody_changed_is_put_back(tmp_path: Path) -> None:
    """The controller's Unknown for a silent agent goes once the agent speaks; its status changed, so its time moves."""
    scene = Scene(tmp_path).begun()
    silenced = {"type": TYPE, "status": "Unknown", "reason": "AgentSilent", "message": "silent"}
    silenced["lastTransitionTime"] = "2026-01-01T00:00:10Z"
    scene.api.patch(paths.node_status(NODE), {"status": {"conditions": [silenced]}}, PatchType.STRATEGIC)
    scene.wait(40)
    assert scene.shown() == ("False", "GateMoves")
    assert scene.condition()["lastTransitionTime"] > "2026-01-01T00:00:10Z"


def test_a_quarrel_over_a_condition_is_bounded_and_leaves_room_for_news(tmp_path: Path) -> None:
    """Whoever changes our condition each second gets one answer in ten; a new fault is sent at once all the same."""
    scene = Scene(tmp_path).begun()
    taken = {"type": TYPE, "status": "Unknown", "reason": "Mine", "message": ""}
    body = {"status": {"conditions": [taken]}}
    for _ in range(120):
        scene.api.patch(paths.node_status(NODE), body, PatchType.STRATEGIC)
        scene.agent.own_node._look_at = float("-inf")  # as if the Node were read each second
        scene.agent.write()
        scene.wait(1)
    ours = sum("metadata" in w.body for w in scene.api.writes() if w.path == paths.node_status(NODE))
    assert ours <= 4 + 120 // 10 + 1
    scene.line("FAULT GateStuck 0000:01:00")
    scene.agent.tick()
    assert scene.shown() == ("True", "GateStuck")


def test_everything_is_reasserted_every_ten_minutes_and_not_more_than_twelve_times_an_hour(
    tmp_path: Path,
) -> None:
    """When nothing happens, conditions and NodeHealth are written about every ten minutes, longer by some jitter."""
    scene = Scene(tmp_path).begun()
    scene.wait(60)
    before = len(scene.api.writes())
    heartbeat = scene.condition()["lastHeartbeatTime"]
    scene.wait(3600, step=5)
    writes = [w.path for w in scene.api.writes()[before:]]
    assert 9 <= len(writes) <= 12
    assert set(writes) == {paths.node_status(NODE), paths.node_health_status(NODE)}
    assert scene.condition()["lastHeartbeatTime"] > heartbeat


def test_the_transition_time_moves_only_when_the_status_changes(tmp_path: Path) -> None:
    """More faults, a re-assertion and a restart leave it; only True to False and back move it."""
    scene = Scene(tmp_path).begun()
    scene.wait(5)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    raised = scene.condition()["lastTransitionTime"]
    scene.wait(30)
    scene.line("FAULT GateBent 0000:02:00")
    scene.go()
    assert "GateBent" in scene.condition()["message"]
    scene.start()
    scene.begun()
    scene.wait(900, step=5)
    assert scene.condition()["lastTransitionTime"] == raised


def test_a_storm_of_warnings_costs_two_writes_a_minute_and_no_condition(tmp_path: Path) -> None:
    """A hundred application errors a second touch only NodeHealth, on its own slow budget."""
    scene = Scene(tmp_path).begun()
    scene.wait(60)
    patches, writes = scene.patches(), scene.health_writes()
    for _ in range(120):
        for _ in range(100):
            scene.line("WARN GateSqueaks 0000:01:00")
        scene.wait(1)
    assert scene.patches() == patches
    assert scene.health_writes() - writes <= 2 + 120 // 30
    assert scene.health()["status"]["findings"][0]["count"] > 9000
    assert scene.shown() == ("False", "GateMoves")


def test_a_fault_in_a_storm_of_warnings_is_sent_in_the_round_that_reads_it(tmp_path: Path) -> None:
    """Neither the exhausted budget of warnings nor a NodeHealth that cannot be written delays the condition."""
    scene = Scene(tmp_path).begun()
    for _ in range(500):
        scene.line("WARN GateSqueaks 0000:01:00")
        scene.agent.tick()
    scene.agent.write()
    scene.api.fail_next(TO_HEALTH, Unavailable("no answer"), times=None)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.agent.tick()
    assert scene.shown() == ("True", "GateStuck")
    scene.api.stop_failing()
    scene.wait(31)
    assert scene.findings() == ["GateStuck", "GateSqueaks"]


def test_a_fault_is_in_nodehealth_in_the_same_breath(tmp_path: Path) -> None:
    """The controller acts only on what stands there, so a fault does not wait behind warnings."""
    scene = Scene(tmp_path).begun()
    for _ in range(5):
        scene.line("WARN GateSqueaks 0000:01:00")
        scene.go()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.agent.tick()
    scene.agent.write()
    assert scene.findings()[0] == "GateStuck"


def test_kernel_chatter_is_no_reason_to_write(tmp_path: Path) -> None:
    """Lines that mean nothing move the cursor and nothing else."""
    scene = Scene(tmp_path).begun()
    scene.wait(60)
    before = len(scene.api.writes())
    for _ in range(100):
        scene.line("eth0: link is up")
        scene.wait(1)
    assert len(scene.api.writes()) == before
    assert scene.agent.judging.cursor is not None
    assert scene.agent.judging.cursor.sequence == 100
