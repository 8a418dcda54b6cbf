"""What survives a restart of the agent, what ends with a boot or a clearing, and what is taken away at start."""

from pathlib import Path

import msgspec
import pytest

from agent.config import CheckSection, Config, RootsSection
from kube import paths
from kube.api import PatchType, Unavailable
from kube.nodehealth import NodeHealth
from kube.store import Change
from tests.agent.scene import BOOT, GATE, NODE, TYPE, Scene, inventory
from tests.fakes import request_to


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


def test_a_warning_survives_the_loss_of_the_state_file(tmp_path: Path) -> None:
    """The log is read on where NodeHealth says, so what stands before that is nowhere else."""
    scene = Scene(tmp_path).begun()
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.wait(60)
    assert scene.counts() == {"GateSqueaks": 2}
    (scene.config.state_dir / "state.json").unlink()
    scene.start()
    scene.begun()
    assert scene.counts() == {"GateSqueaks": 2}
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.wait(60)
    assert scene.counts() == {"GateSqueaks": 3}


def test_an_old_state_file_beside_a_newer_nodehealth_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The disk was full for a while: the file tells of less than NodeHealth, and the log goes on behind NodeHealth."""
    scene = Scene(tmp_path).begun()
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.wait(60)
    old = (scene.config.state_dir / "state.json").read_bytes()
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.line("FAULT GateStuck 0000:01:00")
    scene.wait(60)
    (scene.config.state_dir / "state.json").write_bytes(old)
    scene.start()
    scene.begun()
    assert scene.shown() == ("True", "GateStuck")
    assert scene.counts() == {"GateStuck": 1, "GateSqueaks": 2}
    assert scene.feed.began[0][1] is not None
    assert scene.feed.began[0][1].sequence == 3


def test_a_fault_that_ended_while_the_disk_was_full_stays_ended(tmp_path: Path) -> None:
    """The file still holds it, NodeHealth was written later and does not: a restart never shows it again."""
    scene = Scene(tmp_path).begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.wait(60)
    old = (scene.config.state_dir / "state.json").read_bytes()
    scene.line("OVER GateStuck 0000:01:00")
    scene.wait(60)
    assert scene.shown() == ("False", "GateMoves")
    (scene.config.state_dir / "state.json").write_bytes(old)
    before = scene.patches()
    scene.start()
    scene.begun()
    scene.wait(30)
    statuses = {
        condition["status"]
        for write in scene.api.writes()
        if write.path == paths.node_status(NODE)
        for condition in write.body["status"]["conditions"]
    }
    assert (scene.shown(), scene.counts()) == (("False", "GateMoves"), {"GateSqueaks": 1})
    assert scene.patches() - before <= 1
    assert statuses == {"True", "False"}


def test_a_fault_that_never_reached_nodehealth_stands_though_the_clock_went_back(tmp_path: Path) -> None:
    """By their dates NodeHealth is the newer account; how far each had read the log tells that it is not."""
    scene = Scene(tmp_path).begun()
    scene.line("WARN GateSqueaks 0000:01:00")
    scene.wait(60)
    scene.clock.jump_wall(-3600)
    scene.api.fail_next(request_to("*", "/"), Unavailable("connection refused"), times=None)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.wait(10)
    scene.api.stop_failing()
    scene.start()
    scene.begun()
    assert scene.shown() == ("True", "GateStuck")


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


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"", id="an empty file"),
        pytest.param(b"{", id="half a file"),
        pytest.param(b"\xff\xfe\x00" * 100, id="bytes that are no text"),
        pytest.param(b"[" * 2_000_000, id="a file beyond the bound"),
        pytest.param(
            b'{"format":1,"boot_id":"boot-1","saved_at":"2026-01-01T00:00:00Z","memories":{"gate":'
            + b"[" * 500_000,
            id="lists in lists without end",
        ),
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
