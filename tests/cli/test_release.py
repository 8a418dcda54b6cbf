"""`release`: nodes put back from their annotation alone, refused beside a live controller, others' cordons never touched."""

import copy
from typing import Any

import pytest

from kube import paths
from kube.api import ApiError, Conflict, Forbidden, Invalid, Unavailable
from kube.remediation import QUARANTINE
from tests.cli.installed import LEASE, Installation
from tests.cli.objects import AGENT, Cluster, mark, node, quarantined
from tests.fakes import request_to


def wiped(*nodes: dict[str, Any]) -> Cluster:
    """Make a cluster whose namespace and CRDs were simply deleted."""
    return Cluster().add(nodes=nodes)


def with_books(raw: dict[str, Any]) -> dict[str, Any]:
    """Let the Node's books say that the agent wrote its condition."""
    raw["metadata"]["managedFields"] = [AGENT]
    return raw


def test_a_wiped_cluster_is_put_back() -> None:
    """Cordon, taint, annotation and conditions go; a person's cordon and everything of others stay."""
    human = node("gpu-2", unschedulable=True)
    human["status"]["conditions"] = human["status"]["conditions"][:1]
    before = copy.deepcopy(human)
    cluster = wiped(with_books(quarantined()), human)
    answer = cluster.run("release", "--all", "--yes")
    assert (answer.code, answer.err) == (0, "")
    assert "gpu-1: put back as it was found: no cordon, no taint" in answer.out
    assert "nothing of nodemend's is left (1 nodes were put back or cleaned)" in answer.out
    after = cluster.api.read(paths.node("gpu-1"))
    assert "unschedulable" not in after["spec"]
    assert [one["type"] for one in after["status"]["conditions"]] == ["Ready"]
    assert [one for one in cluster.api.writes() if "gpu-2" in one.path] == []
    assert cluster.api.read(paths.node("gpu-2"))["spec"] == before["spec"]


def test_one_node_is_released_by_name() -> None:
    """Others are neither read nor written."""
    other = quarantined(mark(nodeUID="uid-gpu-2"))
    other["metadata"].update(name="gpu-2", uid="uid-gpu-2")
    cluster = wiped(with_books(quarantined()), with_books(other))
    assert cluster.run("release", "gpu-1", "--yes").code == 0
    assert QUARANTINE in cluster.api.read(paths.node("gpu-2"))["metadata"]["annotations"]
    assert not [one for one in cluster.api.requests if one.method == "LIST" and one.path == paths.nodes()]


def test_a_second_run_finds_nothing() -> None:
    """What is done is done: nothing is asked, nothing written."""
    cluster = wiped(with_books(quarantined()))
    cluster.run("release", "--all", "--yes")
    written = len(cluster.api.writes())
    answer = cluster.run("release", "--all")
    assert (answer.code, len(cluster.api.writes())) == (0, written)
    assert "nothing of nodemend's is left (0 nodes" in answer.out


def test_dry_run_writes_nothing() -> None:
    """It tells what would be done and asks nobody."""
    cluster = wiped(with_books(quarantined()))
    answer = cluster.run("release", "--all", "--dry-run")
    assert (answer.code, cluster.api.writes()) == (0, [])
    assert "gpu-1: cordon, taint, annotation of inc-0123456789ab removed" in answer.out


BAD_USE = [
    pytest.param((), "name one NODE, or say --all", id="neither a node nor all"),
    pytest.param(("gpu-1", "--all"), "name one NODE, or say --all", id="both"),
    pytest.param(("--all",), "nobody can be asked here: give --yes", id="no terminal and no --yes"),
    pytest.param(("gpu-9", "--yes"), "no node is named gpu-9 (is it gpu-1?)", id="no such node"),
]


@pytest.mark.parametrize(("argv", "words"), BAD_USE)
def test_bad_use_writes_nothing(argv: tuple[str, ...], words: str) -> None:
    """Each is one sentence and exit code 2."""
    cluster = wiped(with_books(quarantined()))
    answer = cluster.run("release", *argv)
    assert (answer.code, cluster.api.writes()) == (2, [])
    assert words in answer.err


def test_a_live_controller_refuses_it() -> None:
    """It would put its cordon back; the person is told the words that it listens to, and nothing is written."""
    cluster = Installation()
    cluster.add(nodes=[quarantined()])
    cluster.lead()
    cluster.leader.closes = False
    answer = cluster.run("release", "--all", "--yes")
    assert (answer.code, cluster.api.writes()) == (1, [])
    assert "a controller leads (controller-a)" in answer.err
    assert sum(cluster.clock.slept) < 5  # its renewal is seen soon
    assert cluster.run("release", "--all", "--yes", "--force").code == 0
    assert "unschedulable" not in cluster.node("gpu-1")["spec"]


def test_a_dead_controllers_lease_is_waited_out() -> None:
    """A Lease that nobody renewed for as long as it lasts, by our own clock, is nobody's."""
    cluster = Installation()
    cluster.add(nodes=[quarantined()])
    cluster.lead().alive = False
    assert cluster.run("release", "--all", "--yes").code == 0
    assert 15 <= sum(cluster.clock.slept) <= 20


def test_a_released_lease_is_nobodys() -> None:
    """A controller that ended well emptied its Lease: nothing is waited for."""
    cluster = Installation()
    cluster.add(nodes=[quarantined()])
    cluster.lead().alive = False
    held = cluster.api.read(LEASE)
    held["spec"]["holderIdentity"] = ""
    cluster.api.replace(LEASE, held)
    assert cluster.run("release", "--all", "--yes").code == 0
    assert sum(cluster.clock.slept) == 0


def test_conditions_stay_while_agents_publish_them() -> None:
    """With the DaemonSet there they would be back at once, and they say what is so."""
    cluster = Installation()
    cluster.add(nodes=[with_books(quarantined())])
    answer = cluster.run("release", "--all", "--yes")
    assert answer.code == 0
    assert "conditions stay: DaemonSet nodemend-agent is there" in answer.out
    assert [c["type"] for c in cluster.node("gpu-1")["status"]["conditions"]] == ["Ready", "GpuXidError"]


def test_doubtful_conditions_are_left_and_named() -> None:
    """What only has a name of ours stays, and the exit code says that somebody has to decide."""
    cluster = wiped(quarantined())
    answer = cluster.run("release", "--all", "--yes")
    assert answer.code == 1
    assert "LEFT: conditions stay, since nothing says who wrote them: GpuXidError on 1" in answer.out
    assert cluster.run("release", "--all", "--yes", "--conditions-by-name").code == 0


def test_a_node_in_other_hands_is_named() -> None:
    """It is left for now; the same command, later or with --force, finishes it."""
    raw = with_books(quarantined())
    raw["metadata"]["labels"] = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
    cluster = wiped(raw)
    answer = cluster.run("release", "--all", "--yes")
    assert answer.code == 1
    assert "driver upgrade (drain-required))" in answer.row("LEFT:")
    assert cluster.api.read(paths.node("gpu-1"))["spec"]["unschedulable"] is True
    assert cluster.run("release", "gpu-1", "--yes", "--force").code == 0


TROUBLE = [
    pytest.param(Conflict("changed", code=409), 3, False, id="a conflict"),
    pytest.param(Invalid("the path does not exist", code=422), 3, False, id="a list that moved"),
    pytest.param(Unavailable("refused"), 3, False, id="a server that is away for a moment"),
    pytest.param(Unavailable("the answer got lost"), 1, True, id="an answer that got lost"),
]


@pytest.mark.parametrize(("error", "times", "after"), TROUBLE)
@pytest.mark.parametrize("path", ["/nodes/gpu-1", "/status"])
def test_trouble_is_tried_again(path: str, error: ApiError, times: int, after: bool) -> None:
    """The Node is read anew before each further try, and the outcome is the same."""
    cluster = wiped(with_books(quarantined()))
    cluster.api.fail_next(request_to("PATCH", path), error, times=times, after=after)
    answer = cluster.run("release", "--all", "--yes")
    assert (answer.code, answer.err) == (0, "")


def test_trouble_that_does_not_end_ends_the_command() -> None:
    """After some seconds of growing pauses it gives up, with one sentence."""
    cluster = wiped(with_books(quarantined()))
    cluster.api.fail_next(request_to("PATCH", "/nodes/"), Unavailable("refused"), times=None)
    answer = cluster.run("release", "--all", "--yes")
    assert (answer.code, answer.err.count("\n"), len(cluster.api.writes())) == (3, 1, 8)
    assert "no answer from the cluster while trying to patch node gpu-1" in answer.err
    assert sum(cluster.clock.slept) < 30


def test_who_may_not_is_told_what() -> None:
    """Verb and resource are named, exit code 3."""
    cluster = wiped(with_books(quarantined()))
    cluster.api.fail_next(request_to("PATCH", "/nodes/"), Forbidden("cannot patch", code=403))
    answer = cluster.run("release", "--all", "--yes")
    assert (answer.code, answer.err.count("\n")) == (3, 1)
    assert "not allowed to patch node gpu-1" in answer.err
    assert "cluster administrator" in answer.err


def test_a_node_that_is_made_anew_meanwhile_is_not_touched() -> None:
    """The patch is bound to the Node object that was looked at."""
    cluster = wiped(with_books(quarantined()))
    reborn = node("gpu-1", unschedulable=True)
    reborn["metadata"]["uid"] = "uid-anew"
    reborn["status"]["conditions"] = []

    cluster.api.fail_next(request_to("PATCH", "/nodes/gpu-1"), Unavailable("refused"))
    sleep = cluster.clock.sleep

    def replaced(seconds: float) -> None:
        sleep(seconds)
        cluster.api.remove(paths.node("gpu-1"))
        cluster.api.add(paths.nodes(), reborn)

    cluster.clock.clock = type(cluster.clock.clock)(
        now=cluster.clock.now, monotonic=cluster.clock.monotonic, sleep=replaced
    )
    assert cluster.run("release", "--all", "--yes").code == 0
    assert len(cluster.api.writes()) == 1
    assert cluster.api.read(paths.node("gpu-1"))["spec"]["unschedulable"] is True


def test_json_is_one_document() -> None:
    """Steps go to standard error, so that standard output can be read by a program."""
    answer = wiped(with_books(quarantined())).run("release", "--all", "--yes", "-o", "json")
    told = answer.json()
    assert (told["released"], told["left"]) == (1, [])
    assert "gpu-1: put back" in answer.err


def test_a_large_fleet_is_read_in_pages() -> None:
    """1,200 nodes are three requests; each that has something is two at most."""
    nodes = [with_books(node(f"gpu-{number}")) for number in range(1200)]
    cluster = wiped(*nodes)
    assert cluster.run("release", "--all", "--yes").code == 0
    lists = [one for one in cluster.api.requests if one.method == "LIST" and one.path == paths.nodes()]
    assert (len(lists), len(cluster.api.writes())) == (6, 1200)
