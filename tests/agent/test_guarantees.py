"""What the publisher promises, each promise against a fake API server: see the module docstrings of agent.publish and
agent.record for the words."""

from pathlib import Path

import msgspec
import pytest

from agent.config import CheckSection, Config, RootsSection
from agent.host.inventory import InventoryFailed
from kube import paths
from kube.api import Forbidden, NotFound, PatchType, TooManyRequests, Unavailable
from kube.nodehealth import NodeHealth
from kube.store import Change
from kube.types import ObjectMeta
from tests.agent.scene import BOOT, GATE, NODE, TYPE, Scene, inventory
from tests.fakes import request_to

TO_NODE = request_to("PATCH", f"/nodes/{NODE}/status")
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


@pytest.mark.parametrize(
    "keep_state",
    [
        pytest.param(True, id="with its state file"),
        pytest.param(False, id="with an empty state folder, from NodeHealth alone"),
    ],
)
def test_a_standing_fault_survives_a_restart_of_the_agent(tmp_path: Path, keep_state: bool) -> None:
    """A restart never shows the fault as gone, not even for one write."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.go()
    first_seen = scene.health()["status"]["findings"][0]["firstSeen"]
    if not keep_state:
        (scene.config.state_dir / "state.json").unlink()
    scene.wait(60)
    before = len(scene.api.writes())
    scene.start()
    scene.begun()
    statuses = [
        condition["status"]
        for write in scene.api.writes()[before:]
        if write.path == paths.node_status(NODE)
        for condition in write.body["status"]["conditions"]
    ]
    assert statuses == ["True"]
    assert scene.health()["status"]["findings"][0]["firstSeen"] == first_seen
    assert scene.feed.began == [(BOOT, scene.feed.began[0][1])]
    assert scene.feed.began[0][1] is not None
    assert scene.feed.began[0][1].sequence == 2


def test_a_fault_of_an_earlier_boot_is_gone_after_the_reboot(tmp_path: Path) -> None:
    """A new boot id voids what was latched, in the state file and in NodeHealth alike."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    scene.set_boot("boot-2")
    scene.start()
    scene.begun()
    assert scene.shown() == ("False", "GateMoves")
    assert scene.findings() == []
    assert scene.health()["status"]["bootID"] == "boot-2"
    assert scene.feed.began == [("boot-2", None)]


def test_a_reboot_under_the_running_agent_is_noticed(tmp_path: Path) -> None:
    """The boot id is looked at every few seconds; the log is then read anew from its beginning."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    scene.set_boot("boot-2")
    scene.wait(6)
    assert scene.shown() == ("True", "GateStuck")  # nothing of the new boot was read so far
    scene.read()
    scene.go()
    assert scene.shown() == ("False", "GateMoves")
    assert scene.feed.began == [(BOOT, None), ("boot-2", None)]


def test_before_the_log_was_read_the_condition_is_left_as_it_stands(tmp_path: Path) -> None:
    """Reading nothing is never False: an agent that could not look yet changes nothing, and is not ready."""
    scene = Scene(tmp_path)
    scene.go()
    assert (scene.shown(), scene.patches()) == (("", ""), 0)
    assert scene.agent.why_not_ready() == "no condition has been published yet"
    scene.read()
    scene.go()
    assert scene.shown() == ("False", "GateMoves")
    assert scene.agent.why_not_ready() is None


def test_a_clearing_ends_a_latched_fault(tmp_path: Path) -> None:
    """clearedBefore of NodeHealth, once it is past the fault's last line, makes the condition False."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    scene.wait(5)
    body = {"spec": {"clearedBefore": "2026-01-01T00:00:04Z", "clearedBy": "a person"}}
    changed = scene.api.patch(paths.node_health(NODE), body, PatchType.MERGE)
    scene.agent.health_changed(Change.MODIFIED, _decode(changed))
    scene.go()
    assert scene.shown() == ("False", "GateMoves")
    scene.start()
    scene.begun()
    assert scene.shown() == ("False", "GateMoves")


def _decode(raw: bytes) -> NodeHealth:
    return msgspec.json.decode(raw, type=NodeHealth)


@pytest.mark.parametrize(
    "why",
    [
        pytest.param("disabled", id="the check was switched off"),
        pytest.param("removed", id="the check is not part of this version"),
        pytest.param("no part", id="the machine has no such part any more"),
    ],
)
def test_a_type_that_no_longer_applies_is_removed_at_start(tmp_path: Path, why: str) -> None:
    """What an earlier run published and nobody keeps up is taken off the Node and out of NodeHealth."""
    scene = Scene(tmp_path).begun()
    if why == "disabled":
        off = {"gate": CheckSection(enabled=False)}
        scene.config = msgspec.structs.replace(scene.config, checks=off)
    elif why == "removed":
        scene.checks = ()
    else:
        scene.set_boot("boot-2")  # what was there in this boot stays
        scene.inventory = inventory(0)
    scene.start()
    scene.begun()
    assert scene.condition() == {}
    assert scene.health()["status"]["publishedConditions"] == []
    assert scene.agent.why_not_ready() is None


def test_a_type_that_another_writer_owns_is_never_removed(tmp_path: Path) -> None:
    """Only what NodeHealth records as ours goes, even where a type has the name of a check of ours."""
    scene = Scene(tmp_path, gpus=0)
    foreign = {"type": TYPE, "status": "True", "reason": "Theirs", "message": "", "lastTransitionTime": None}
    other = {"type": "KernelDeadlock", "status": "False", "reason": "Fine", "message": ""}
    body = {"status": {"conditions": [foreign, other]}}
    scene.api.patch(paths.node_status(NODE), body, PatchType.STRATEGIC)
    scene.begun()
    scene.wait(60)
    assert scene.shown() == ("True", "Theirs")
    assert scene.shown("KernelDeadlock") == ("False", "Fine")
    assert scene.patches() == 1  # the one of this test


def test_a_class_without_a_part_on_the_node_is_not_published(tmp_path: Path) -> None:
    """No GPU, no condition; the agent is ready all the same."""
    scene = Scene(tmp_path, gpus=0).begun()
    assert scene.condition() == {}
    assert scene.agent.why_not_ready() is None
    assert scene.health()["status"]["publishedConditions"] == []


def test_a_class_stays_when_its_last_part_is_lost(tmp_path: Path) -> None:
    """A GPU that leaves the bus does not take the condition along that says so, nor after a restart."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    scene.inventory = inventory(0)
    scene.wait(120)
    assert scene.shown() == ("True", "GateStuck")
    scene.start()
    scene.begun()
    assert scene.shown() == ("True", "GateStuck")


def test_with_the_server_down_judging_goes_on_and_the_newest_state_is_published_when_it_is_back(
    tmp_path: Path,
) -> None:
    """Faults that come during an outage are all there after it; the wait between tries is bounded."""
    scene = Scene(tmp_path).begun()
    scene.api.fail_next(request_to("*", "/"), Unavailable("connection refused"), times=None)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.wait(60)
    tried = scene.patches() - 1
    scene.line("FAULT GateBent 0000:02:00")
    scene.wait(5)
    scene.api.stop_failing()
    scene.wait(16)
    assert scene.shown()[0] == "True"
    assert [reason in scene.condition()["message"] for reason in ("GateStuck", "GateBent")] == [True, True]
    assert scene.findings() == ["GateBent", "GateStuck"]
    assert 4 <= tried <= 15


def test_a_lost_answer_is_sent_again_and_changes_nothing(tmp_path: Path) -> None:
    """The patch arrived and only its answer was lost: the second one is the same."""
    scene = Scene(tmp_path).begun()
    scene.api.fail_next(TO_NODE, Unavailable("timed out"), after=True)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    first = scene.condition()
    scene.wait(3)
    assert scene.condition()["lastTransitionTime"] == first["lastTransitionTime"]
    assert scene.patches() == 3


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Forbidden("no such right", code=403), id="refused by RBAC or an admission policy"),
        pytest.param(TooManyRequests("slow down", code=429, retry_after_s=20.0), id="throttled"),
    ],
)
def test_a_refusal_is_tried_again_with_pauses(tmp_path: Path, error: Exception) -> None:
    """403 and 429 end once the cause is gone, and are no storm of requests meanwhile."""
    scene = Scene(tmp_path).begun()
    scene.api.fail_next(TO_NODE, error, times=None)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.wait(120)
    assert scene.patches() <= 1 + 6 + 12
    scene.api.stop_failing()
    scene.wait(30)
    assert scene.shown() == ("True", "GateStuck")


def test_a_node_of_the_same_name_and_another_uid_starts_afresh(tmp_path: Path) -> None:
    """Publishing begins anew on the new object; the fault stands, since the machine and its boot are the same."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    before = scene.condition()["lastTransitionTime"]
    scene.api.remove(paths.node(NODE))
    scene.api.remove(paths.node_health(NODE))
    scene.wait(60)
    assert scene.agent.why_not_ready() == f"the Node {NODE} has not been read yet"
    scene.add_node(uid="uid-2")
    scene.wait(20)
    assert scene.shown() == ("True", "GateStuck")
    assert scene.condition()["lastTransitionTime"] > before
    owners = scene.health()["metadata"]["ownerReferences"]
    assert owners == [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-2"}]
    assert scene.health()["status"]["nodeUID"] == "uid-2"


def test_a_patch_never_reaches_another_node_object_of_the_same_name(tmp_path: Path) -> None:
    """Between two reads the Node was replaced: the UID in the patch makes the server refuse it."""
    scene = Scene(tmp_path).begun()
    scene.api.remove(paths.node(NODE))
    scene.add_node(uid="uid-2")
    scene.line("FAULT GateStuck 0000:01:00")
    scene.agent.tick()
    assert scene.condition() == {}
    scene.wait(5)
    assert scene.shown() == ("True", "GateStuck")


def test_without_the_crd_conditions_are_published_all_the_same(tmp_path: Path) -> None:
    """NodeHealth cannot be written; that is tried again, bounded, and holds nothing up."""
    scene = Scene(tmp_path)
    scene.api.fail_next(TO_HEALTH, NotFound("the server could not find the requested resource"), times=None)
    scene.begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    assert scene.shown() == ("True", "GateStuck")
    before = len(scene.api.requests)
    scene.wait(300)
    assert len(scene.api.requests) - before < 60
    scene.api.stop_failing()
    scene.wait(40)
    assert scene.findings() == ["GateStuck"]


def test_while_nodehealth_cannot_be_read_back_nothing_is_published(tmp_path: Path) -> None:
    """Without knowing what an earlier run latched, a False could hide a standing fault."""
    scene = Scene(tmp_path)
    scene.api.fail_next(request_to("GET", "/nodehealths"), Unavailable("no answer"), times=None)
    scene.begun()
    scene.wait(30)
    assert (scene.patches(), scene.agent.why_not_ready()) == (0, f"the Node {NODE} has not been read yet")
    scene.api.stop_failing()
    scene.wait(20)
    assert scene.shown() == ("False", "GateMoves")


def test_a_deleted_nodehealth_is_made_again(tmp_path: Path) -> None:
    """Whoever deletes it gets it back, whole, with the event of the watch."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    scene.api.remove(paths.node_health(NODE))
    gone = NodeHealth(metadata=ObjectMeta(name=NODE))
    scene.agent.health_changed(Change.DELETED, gone)
    scene.go()
    assert scene.findings() == ["GateStuck"]


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


def test_an_unreadable_source_is_unknown_and_names_the_cause(tmp_path: Path) -> None:
    """After its tries the class is Unknown, in the condition and in NodeHealth; a standing fault stays True."""
    scene = Scene(tmp_path)
    scene.go()
    scene.fail("/dev/kmsg: Operation not permitted")
    scene.go()
    assert scene.shown() == ("Unknown", "GateUnreadable")
    assert "Operation not permitted" in scene.condition()["message"]
    source = scene.health()["status"]["sources"][0]
    assert (source["readable"], source["error"]) == (False, "/dev/kmsg: Operation not permitted")
    scene.read()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.fail()
    scene.go()
    assert scene.shown() == ("True", "GateStuck")


def test_a_check_that_breaks_is_unknown_and_loses_no_other_line(tmp_path: Path) -> None:
    """A line that the check cannot bear is a finding about the check; the lines around it are judged."""
    scene = Scene(tmp_path).begun()
    scene.line("CRASH")
    scene.go()
    assert scene.shown() == ("Unknown", "CheckFailed")
    scene.line("CRASH")
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    assert scene.shown() == ("True", "GateStuck")
    assert b'nodemend_check_failures_total{check="gate"} 2.0' in scene.agent.metrics.exposition(0, 0)


def test_an_unreadable_boot_id_is_unknown_after_three_tries(tmp_path: Path) -> None:
    """Evidence cannot be dated without it, so nothing is judged until it can be read."""
    scene = Scene(tmp_path)
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.unlink()
    scene.wait(1.5)
    assert scene.shown() == ("", "")
    scene.wait(2)
    assert scene.shown() == ("Unknown", "BootIdUnreadable")
    assert str(boot_id) in scene.condition()["message"]
    scene.set_boot(BOOT)
    scene.wait(2)
    scene.read()
    scene.go()
    assert scene.shown() == ("False", "GateMoves")


def test_an_unreadable_inventory_rules_nothing_out(tmp_path: Path) -> None:
    """Where parts cannot be counted the class is taken to exist, and NodeHealth names the cause."""
    scene = Scene(tmp_path)
    scene.inventory = InventoryFailed(error="sys/bus/pci/devices: Input/output error")
    scene.begun()
    assert scene.shown() == ("False", "GateMoves")
    assert [s["error"] for s in scene.health()["status"]["sources"] if not s["readable"]] == [
        "sys/bus/pci/devices: Input/output error"
    ]


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"", id="an empty file"),
        pytest.param(b"{", id="half a file"),
        pytest.param(b"\xff\xfe\x00" * 100, id="bytes that are no text"),
        pytest.param(b"[" * 2_000_000, id="a file beyond the bound"),
        pytest.param(
            b'{"format":99,"boot_id":"boot-1","saved_at":"2026-01-01T00:00:00Z"}', id="a newer format"
        ),
        pytest.param(
            b'{"format":1,"boot_id":"boot-1","saved_at":"2026-01-01T00:00:00Z",'
            b'"cursor":{"boot_id":"boot-1","sequence":9999},"memories":{"gate":{"findings":3}}}',
            id="a memory that the check does not know",
        ),
    ],
)
def test_garbage_in_the_state_file_is_said_and_left_out(tmp_path: Path, garbage: bytes) -> None:
    """The agent goes on with what NodeHealth holds: the fault, and how far the log was read."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    (scene.config.state_dir / "state.json").write_bytes(garbage)
    scene.start()
    scene.begun()
    assert scene.shown() == ("True", "GateStuck")
    assert b"nodemend_state_file_errors_total 1.0" in scene.agent.metrics.exposition(0, 0)
    assert scene.feed.began[0][1] is not None
    assert scene.feed.began[0][1].sequence == 1


def test_a_state_folder_that_cannot_be_written_is_counted_and_nothing_stops(tmp_path: Path) -> None:
    """A full or read-only disk costs the memory over a restart, not the condition."""
    (tmp_path / "file").write_text("in the way")
    config = Config(
        node_name=NODE,
        listen="",
        state_dir=tmp_path / "file" / "state",
        roots=RootsSection(proc=tmp_path / "proc", sys=tmp_path / "sys"),
    )
    scene = Scene(tmp_path, config=config).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    assert scene.shown() == ("True", "GateStuck")
    assert scene.findings() == ["GateStuck"]
    assert b"nodemend_state_file_errors_total 0.0" not in scene.agent.metrics.exposition(0, 0)
    assert GATE.name in scene.agent.judging.states


def test_without_any_memory_the_log_is_opened_from_its_beginning_after_a_short_wait(tmp_path: Path) -> None:
    """With the server down and no state file, judging begins after ten seconds all the same."""
    scene = Scene(tmp_path)
    scene.api.fail_next(request_to("*", "/"), Unavailable("connection refused"), times=None)
    scene.wait(5)
    assert scene.feed.began == []
    scene.wait(6)
    assert scene.feed.began == [(BOOT, None)]
