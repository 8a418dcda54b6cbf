"""`drill`: one finding on purpose, written into the spec of one NodeHealth under the version that was read, or refused."""

from typing import Any

import pytest

from checks.check import discover
from checks.drill import MOST
from kube import paths
from kube.api import Conflict, Forbidden, PatchType
from tests.cli.objects import Cluster, health, node
from tests.fakes import FakeApi, request_to

PARTS = [
    {"kind": "gpu", "pci": "0000:3b:00", "uuid": "GPU-3", "index": 3},
    {"kind": "gpu", "pci": "0000:18:00", "uuid": "GPU-0", "index": 0},
]


def _asked(number: int, until: str = "2026-11-29T03:05:00Z") -> dict[str, Any]:
    return {
        "id": f"d{number}",
        "reason": "Xid79FallenOffBus",
        "part": {"kind": "gpu", "uuid": f"GPU-{number}"},
        "since": "2026-11-29T02:55:00Z",
        "until": until,
    }


def _cluster(*drills: dict[str, Any]) -> Cluster:
    made = health("gpu-1", parts=PARTS)
    made["spec"] = {"drills": list(drills)} if drills else {}
    return Cluster().add(nodes=[node("gpu-1"), node("gpu-2")], healths=[made])


def test_a_drill_is_written() -> None:
    """One merge patch of the spec, under the resourceVersion that was read; it ends by itself."""
    cluster = _cluster()
    version = cluster.api.read(paths.node_health("gpu-1"))["metadata"]["resourceVersion"]
    answer = cluster.run("drill", "gpu-1", "xid79", "--part", "3", "--for", "30m")
    assert (answer.code, answer.err) == (0, "")
    assert "GpuXidError turns True with reason Xid79FallenOffBus, on GPU 3 GPU-3 at 0000:3b:00" in answer.out
    (patch,) = cluster.api.writes()
    assert (patch.path, patch.patch_type) == (paths.node_health("gpu-1"), PatchType.MERGE)
    assert patch.body == {
        "metadata": {"resourceVersion": version},
        "spec": {
            "drills": [
                {
                    "id": "030000-1",
                    "reason": "Xid79FallenOffBus",
                    "part": {"kind": "gpu", "pci": "0000:3b:00", "uuid": "GPU-3"},
                    "since": "2026-11-29T03:00:00.000000Z",
                    "until": "2026-11-29T03:30:00.000000Z",
                }
            ]
        },
    }


def test_drills_under_way_stay_and_old_ones_go() -> None:
    """What is over is swept with the next one."""
    cluster = _cluster(_asked(1), _asked(2, until="2026-11-29T02:59:00Z"))
    cluster.run("drill", "gpu-1", "xid79", "--part", "GPU-0")
    spec = cluster.api.read(paths.node_health("gpu-1"))["spec"]
    assert [drill["part"]["uuid"] for drill in spec["drills"]] == ["GPU-1", "GPU-0"]


def test_without_a_part_it_is_the_first_of_its_kind() -> None:
    """By the order of `checks.finding.Part`."""
    answer = _cluster().run("drill", "gpu-1", "Xid79FallenOffBus", "-o", "json")
    assert answer.json()["part"] == "GPU 0 GPU-0 at 0000:18:00"


def test_all_drills_of_a_node_are_ended() -> None:
    """Where there is none, nothing is written."""
    cluster = _cluster(_asked(1))
    answer = cluster.run("drill", "gpu-1", "--end", "-o", "json")
    assert answer.json()["ended"] == ["d1"]
    assert cluster.api.read(paths.node_health("gpu-1"))["spec"] == {}
    assert cluster.run("drill", "gpu-1", "--end").out == "gpu-1: no drill to end\n"
    assert len(cluster.api.writes()) == 1


REFUSED = [
    pytest.param(["gpu-1"], 2, "name a FAULT, or say --end", id="neither a fault nor an end"),
    pytest.param(["gpu-1", "xid79", "--end"], 2, "name a FAULT, or say --end", id="a fault and an end"),
    pytest.param(["gpu-1", "nonsense"], 2, "no reason or condition is like 'nonsense'", id="no such fault"),
    pytest.param(["gpu-1", "GpuXidError"], 2, "is no single fault; name one of", id="a whole class"),
    pytest.param(["gpu-1", "KernelLogUnreadable"], 2, "it is a reason of Unknown", id="a reason of Unknown"),
    pytest.param(["gpu-1", "xid79", "--for", "2h"], 2, "at most an hour", id="longer than an hour"),
    pytest.param(["gpu-1", "xid79", "--for", "0s"], 2, "--for", id="for no time"),
    pytest.param(["gpu-1", "xid79", "--for", "soon"], 2, "--for 'soon'", id="for no duration"),
    pytest.param(
        ["gpu-1", "xid79", "--part", "7"], 2, "--part '7' is none of this node's: 3, 0", id="no such part"
    ),
    pytest.param(["gpu-2", "xid79"], 1, "no agent has ever reported there", id="a node without an agent"),
    pytest.param(["gpu-11", "xid79"], 2, "no node is named gpu-11 (is it gpu-1", id="no such node"),
]


@pytest.mark.parametrize(("words", "code", "said"), REFUSED)
def test_what_cannot_be_drilled_is_refused_with_the_reason(words: list[str], code: int, said: str) -> None:
    """And nothing is written."""
    cluster = _cluster()
    answer = cluster.run("drill", *words)
    assert answer.code == code
    assert said in answer.err
    assert cluster.api.writes() == []


def test_more_than_eight_at_once_are_refused() -> None:
    """The way out is named."""
    cluster = _cluster(*(_asked(number) for number in range(MOST)))
    answer = cluster.run("drill", "gpu-1", "xid79")
    assert (answer.code, cluster.api.writes()) == (1, [])
    assert "drill gpu-1 --end" in answer.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(Conflict("conflict"), 1, id="somebody else wrote in between"),
        pytest.param(Forbidden("forbidden"), 3, id="without the right"),
    ],
)
def test_a_write_that_is_refused_is_said(error: Exception, code: int) -> None:
    """In one line."""
    cluster = _cluster()
    api: FakeApi = cluster.api
    api.fail_next(request_to("PATCH", paths.node_health("gpu-1")), error, times=None)
    answer = cluster.run("drill", "gpu-1", "xid79")
    assert answer.code == code
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("check", discover(), ids=lambda check: str(check.name))
def test_any_class_can_be_drilled(check: Any) -> None:
    """Its first reason, by name."""
    answer = _cluster().run("drill", "gpu-1", check.reasons[0].name, "-o", "json")
    assert (answer.code, answer.json()["condition"]) == (0, check.condition)


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        pytest.param("PortDown", {"kind": "port", "name": "drill"}, id="a port"),
        pytest.param("MountHung", {"kind": "mount", "name": "drill"}, id="a mount"),
        pytest.param("NvmeCritical", {"kind": "disk", "name": "drill"}, id="a disk"),
        pytest.param("ContainerRuntimeDown", {"kind": "node"}, id="the node"),
    ],
)
def test_a_drill_is_about_what_its_class_is_about(reason: str, part: dict[str, str]) -> None:
    """A mount that hangs is no GPU."""
    cluster = _cluster()
    assert cluster.run("drill", "gpu-1", reason).code == 0
    (patch,) = cluster.api.writes()
    body: Any = patch.body
    assert body["spec"]["drills"][0]["part"] == part


def test_a_warning_can_be_drilled_and_turns_nothing_true() -> None:
    """The host has no condition: what is drilled there is seen in NodeHealth and Events."""
    answer = _cluster().run("drill", "gpu-1", "KubeletDown")
    assert answer.code == 0
    assert "KubeletDown is shown as a warning and turns no condition True, on node." in answer.out


def test_a_clock_that_is_behind_the_nodes_still_drills() -> None:
    """The node judges by its own: a drill that were over there before it began would be shown nowhere."""
    made = health("gpu-1", parts=PARTS, observedAt="2026-11-29T05:00:00Z")
    cluster = Cluster().add(nodes=[node("gpu-1")], healths=[made])
    assert cluster.run("drill", "gpu-1", "xid79", "--for", "30m").code == 0
    (patch,) = cluster.api.writes()
    body: Any = patch.body
    asked = body["spec"]["drills"][0]
    assert (asked["since"], asked["until"]) == ("2026-11-29T05:00:00.000000Z", "2026-11-29T05:30:00.000000Z")


@pytest.mark.parametrize("words", [("gpu-1", "xid79"), ("gpu-1", "--end")])
def test_the_agents_own_writes_do_not_hinder_it(words: tuple[str, ...]) -> None:
    """The agent writes the status of the same object, most of all when a drill has just begun."""
    cluster = _cluster(_asked(1))
    api: FakeApi = cluster.api
    api.fail_next(request_to("PATCH", paths.node_health("gpu-1")), Conflict("conflict"), times=3)
    assert cluster.run("drill", *words).code == 0
