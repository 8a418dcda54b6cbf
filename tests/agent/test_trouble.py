"""The agent in trouble: a server that is away or says no, a Node that is another one, sources that cannot be read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.host.inventory import InventoryFailed
from checks.check import Context, Judgement
from checks.observation import Observation
from kube import paths
from kube.api import Forbidden, Invalid, NotFound, TooManyRequests, Unavailable
from kube.nodehealth import NodeHealth
from kube.store import Change
from kube.types import ObjectMeta
from tests.agent.scene import BOOT, GATE, NODE, Scene
from tests.fakes import request_to

TO_NODE = request_to("PATCH", f"/nodes/{NODE}/status")
TO_HEALTH = request_to("*", "/nodehealths")


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
    assert 12 <= tried <= 30


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
        pytest.param(Invalid("denied by a policy", code=422), id="denied by an admission policy"),
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
    assert scene.agent.publisher.trouble.startswith(type(error).__name__)
    scene.api.stop_failing()
    scene.wait(30)
    assert scene.shown() == ("True", "GateStuck")


def test_whoever_cannot_publish_does_not_vouch_for_the_node(tmp_path: Path) -> None:
    """A False that nobody may change is worth nothing: the Lease goes stale, and the controller turns it to Unknown."""
    scene = Scene(tmp_path).begun()
    scene.api.fail_next(TO_NODE, Forbidden("no such right", code=403), times=None)
    scene.line("FAULT GateStuck 0000:01:00")
    scene.wait(30)
    assert scene.agent.lease.renew()  # a short trouble is no reason to fall silent
    scene.wait(40)
    assert scene.shown() == ("False", "GateMoves")
    assert not scene.agent.lease.renew()
    scene.api.stop_failing()
    scene.wait(30)
    assert scene.shown() == ("True", "GateStuck")
    assert scene.agent.lease.renew()


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


def test_a_nodehealth_that_was_deleted_while_no_watch_stood_is_made_again_with_the_next_list(
    tmp_path: Path,
) -> None:
    """No event tells of it; a list that does not hold it does, and one before it was ever made asks for nothing."""
    scene = Scene(tmp_path)
    scene.agent.health_changed(Change.SYNCED, None)
    scene.begun()
    reads = [request.path for request in scene.api.requests if request.method == "GET"]
    assert reads.count(paths.node_health(NODE)) == 1
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    scene.api.remove(paths.node_health(NODE))
    scene.agent.health_changed(Change.SYNCED, None)
    scene.go()
    assert scene.findings() == ["GateStuck"]


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


def test_only_what_an_agent_has_watched_counts_for_a_wait(tmp_path: Path) -> None:
    """Neither a clock that is set, forward or back, nor the time that it was away: each check is told what it watched."""
    told: list[int | None] = []

    def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
        told.append(context.watched_ms)
        return GATE.judge(observations, memory, context)

    scene = Scene(tmp_path, checks=(msgspec.structs.replace(GATE, judge=judge),)).begun()
    told.clear()
    scene.wait(120)
    for step in (3600, -7200, 86400):
        scene.clock.jump_wall(step)
        scene.line("a line")
        scene.go()
    assert sum(watched or 0 for watched in told) == 120_000
    scene.clock.advance(600)
    scene.start()
    told.clear()
    scene.begun()
    assert set(told) == {0}


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
