"""A drill in the agent as a whole: from NodeHealth.spec to the Node, over restarts, beside real faults."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kube import paths
from kube.api import PatchType
from kube.timestamps import micro_time
from tests.agent.scene import NODE, Scene


def drill(scene: Scene, *, for_s: int = 600, since_s: int = 0) -> None:
    """Ask for one, as the command line does; the agent's watch brings it."""
    since = scene.clock.now() + timedelta(seconds=since_s)
    row: dict[str, object] = {
        "id": "d1",
        "reason": "GateStuck",
        "part": {"kind": "gpu", "pci": "0000:01:00"},
        "since": micro_time(since),
        "until": micro_time(since + timedelta(seconds=for_s)),
    }
    write(scene, [row])


def write(scene: Scene, rows: list[dict[str, object]] | None) -> None:
    scene.api.patch(paths.node_health(NODE), {"spec": {"drills": rows}}, PatchType.MERGE)


def test_a_drill_stands_over_a_restart_of_the_agent_and_ends_in_its_time(tmp_path: Path) -> None:
    """A restart neither ends it nor makes it a fault of its own."""
    scene = Scene(tmp_path).begun()
    drill(scene)
    scene.start()
    scene.begun()
    assert scene.shown() == ("True", "GateStuck")
    scene.start()
    scene.begun()
    assert scene.shown() == ("True", "GateStuck")
    scene.wait(601)
    assert (scene.shown(), scene.findings()) == (("False", "GateMoves"), [])


@pytest.mark.parametrize("reads", [True, False])
def test_a_drill_that_ended_while_no_agent_was_there(tmp_path: Path, reads: bool) -> None:
    """Nothing of it is taken up again; a class that cannot be judged meanwhile does not keep its word for ever."""
    scene = Scene(tmp_path).begun()
    drill(scene, for_s=60)
    scene.start()
    scene.begun()
    assert scene.shown() == ("True", "GateStuck")
    scene.clock.advance(120)
    scene.start()
    if reads:
        scene.begun()
    else:
        scene.go()
        scene.fail()
        scene.go()
    assert scene.shown() == (("False", "GateMoves") if reads else ("Unknown", "GateUnreadable"))
    assert scene.findings() == []


def test_a_real_fault_outlives_the_drill_beside_it(tmp_path: Path) -> None:
    """It takes the drill's place, and neither its beginning nor its end touches it."""
    scene = Scene(tmp_path).begun()
    drill(scene, for_s=60)
    scene.start()
    scene.begun()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    assert [row.get("drill", False) for row in scene.health()["status"]["findings"]] == [False]
    scene.wait(120)
    assert scene.shown() == ("True", "GateStuck")
    assert not scene.condition()["message"].startswith("drill")


@pytest.mark.parametrize(
    ("since_s", "stands"),
    [
        pytest.param(240, True, id="a clock that is four minutes ahead"),
        pytest.param(360, False, id="one that is six minutes ahead: not yet"),
        pytest.param(-660, False, id="one that is behind by more than it lasts: over"),
    ],
)
def test_a_persons_clock_may_be_off(tmp_path: Path, since_s: int, stands: bool) -> None:
    """By five minutes; no finding is dated in the future."""
    scene = Scene(tmp_path).begun()
    drill(scene, since_s=since_s)
    scene.start()
    scene.begun()
    assert (scene.shown()[0] == "True") == stands
    assert all(
        datetime.fromisoformat(row["firstSeen"]) <= scene.clock.now()
        for row in scene.health()["status"]["findings"]
    )
