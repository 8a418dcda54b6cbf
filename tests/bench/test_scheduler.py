"""What `nodemend-bench scheduler` sends, sees and works out."""

import json
from typing import Any

import pytest

from bench.__main__ import main
from bench.audit import Asked, Kind
from bench.outcome import NotMeasured
from bench.scheduler import order
from bench.scheduler_figures import BARE, GANG, OURS, THEIRS, Turn, Whole, figures
from bench.scheduler_requests import account, bind, create, pod, pod_group, their_config
from bench.scheduler_sights import Landing
from tests import build_pods


def sent(**kinds: int) -> Asked:
    """Give what was asked, by words such as `create_events`."""
    done = {Kind(*name.split("_", 1)): count for name, count in kinds.items()}
    return Asked(done=done, refused={})


def turn(
    who: str,
    seconds: float,
    *,
    pods: int = 100,
    spent_s: float = 0.0,
    settled_s: float = 0.0,
    asked: Asked | None = None,
) -> Turn:
    """Build a turn of one of the three."""
    return Turn(who=who, pods=pods, seconds=seconds, spent_s=spent_s, settled_s=settled_s, asked=asked)


WHOLE = Whole(gangs=16, seconds=4.0, widest_s=0.5)
TURNS = [
    turn(OURS, 1.0, spent_s=0.2, settled_s=0.8, asked=sent(create_pods=100, create_events=100)),
    turn(OURS, 3.0, spent_s=0.4, settled_s=1.0, asked=sent(create_pods=100, patch_queues=10)),
    turn(THEIRS, 4.0, spent_s=0.1),
    turn(BARE, 1.0),
]
FIGURES: dict[str, tuple[str, float, str]] = {
    "all turns of one count together, not the mean of their rates": ("bind_rate", 50.0, ""),
    "ours beside kube-scheduler": (
        "bind_rate_vs_kube_scheduler",
        2.0,
        "50 pods/s against 25 of kube-scheduler",
    ),
    "ours beside the bare client": ("bind_rate_vs_bare", 0.5, "50 pods/s against 100 of a client"),
    "kube-scheduler's own": ("kube_scheduler_rate", 25.0, ""),
    "the bare client's own": ("bare_rate", 100.0, ""),
    "requests of all our turns, the kinds in words": (
        "requests_per_pod",
        1.55,
        "200 create pods, 100 create events, 10",
    ),
    "processor time by pod": ("processor_ms_per_pod", 3.0, "kube-scheduler 1.00 ms"),
    "processor time with what follows the binds": (
        "settled_processor_ms_per_pod",
        9.0,
        "with what it writes after the binds",
    ),
    "gangs": ("gang_start_s", 4.0, "16 gangs of 64, 256 pods/s"),
    "the widest gang": ("gang_spread_s", 0.5, "the widest of 16 gangs of 64"),
}


@pytest.mark.parametrize(("name", "value", "words"), FIGURES.values(), ids=FIGURES.keys())
def test_figures(name: str, value: float, words: str) -> None:
    """Each is there once, with what was run beside it."""
    (found,) = [one for one in figures(TURNS, WHOLE) if one.name == name]
    assert found.value == pytest.approx(value)
    assert words in found.beside


@pytest.mark.parametrize(
    ("name", "ours_s", "met"),
    [
        pytest.param("bind_rate_vs_kube_scheduler", 4.0, True, id="as fast as kube-scheduler"),
        pytest.param("bind_rate_vs_kube_scheduler", 4.1, False, id="slower than kube-scheduler"),
        pytest.param("bind_rate_vs_bare", 1.0, True, id="as fast as the bare client"),
        pytest.param("bind_rate_vs_bare", 1.5, False, id="two thirds of the bare client"),
        pytest.param("requests_per_pod", 1.0, True, id="three requests"),
        pytest.param("gang_start_s", 1.0, None, id="no aim for gangs"),
    ],
)
def test_aims(name: str, ours_s: float, met: bool | None) -> None:
    """The aims themselves are met."""
    turns = [turn(OURS, ours_s, asked=sent(create_pods=300)), turn(THEIRS, 4.0), turn(BARE, 1.0)]
    (found,) = [one for one in figures(turns, WHOLE) if one.name == name]
    assert found.met is met


def test_each_has_each_place_in_turn() -> None:
    """After three rounds each was first, second and last once."""
    rounds = [order(number) for number in range(3)]
    assert rounds[0] == order(3)
    for place in range(3):
        assert {one[place] for one in rounds} == {OURS, THEIRS, BARE}


def test_a_pod_is_the_same_for_every_scheduler() -> None:
    """Only the names differ."""

    def nameless(of: str, scheduler: str) -> str:
        return json.dumps(pod(of, scheduler)).replace(of, "NAME").replace(scheduler, "SCHEDULER")

    assert nameless("first-of-all", OURS) == nameless("second-of-all", "another-scheduler")


def test_requests_are_written_beforehand() -> None:
    """One request a pod and phase; the gang's name travels with its members, its size with the group."""
    (created,) = create("pod-1", OURS, "gang-1")
    (bound,) = bind("pod-1", "gpu-1")
    body = json.loads(created.body)
    assert (created.method, created.path) == ("POST", "/api/v1/namespaces/bench/pods")
    assert body["metadata"]["annotations"] == {"pod-group-name": "gang-1"}
    assert body["spec"]["schedulerName"] == OURS
    assert bound.path == "/api/v1/namespaces/bench/pods/pod-1/binding"
    assert json.loads(bound.body)["target"]["name"] == "gpu-1"
    assert pod_group("gang-1", GANG)["spec"]["minMember"] == GANG


def test_the_creator_may_create_and_bind_alone() -> None:
    """Its rights are those two."""
    bodies: dict[str, Any] = {body["kind"]: body for _, body in account()}
    assert bodies["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods", "pods/binding"], "verbs": ["create"]}
    ]
    assert bodies["ClusterRoleBinding"]["subjects"][0]["name"] == bodies["ServiceAccount"]["metadata"]["name"]


def test_kube_scheduler_runs_without_its_brakes() -> None:
    """What is measured is the scheduler, not its client's limit; and it takes pods of its own name alone."""
    config = their_config("somewhere.json")
    assert (config["clientConnection"]["qps"], config["clientConnection"]["burst"]) == (5000, 5000)
    assert [one["schedulerName"] for one in config["profiles"]] == ["bench-kube-scheduler"]


def test_the_first_sight_on_a_node_counts() -> None:
    """Later sights, pods on no node, and pods that are nobody's change nothing."""
    landing = Landing()
    landing.follow(["a", "b"])
    landing.see(build_pods.pod("a", ""), 1.0)
    landing.see(build_pods.pod("a", "gpu-1"), 2.0)
    landing.see(build_pods.pod("other", "gpu-1"), 9.0)
    landing.see(build_pods.pod("b", "gpu-1"), 3.5)
    landing.see(build_pods.pod("a", "gpu-1"), 8.0)
    assert landing.wait(0.0) == 3.5
    assert landing.spread(["a", "b"]) == 1.5
    assert landing.spread(["b"]) == 0.0


def test_what_is_on_no_node_is_named() -> None:
    """How many, of how many, and which."""
    landing = Landing()
    landing.follow(["a", "b", "c"])
    landing.see(build_pods.pod("b", "gpu-1"), 1.0)
    with pytest.raises(NotMeasured, match="2 of 3 pods were on no node after 0 s: a, c"):
        landing.wait(0.0)


def test_another_turn_forgets_the_last() -> None:
    """Pods of the turn before count no more."""
    landing = Landing()
    landing.follow(["a"])
    landing.follow(["b"])
    landing.see(build_pods.pod("a", "gpu-1"), 1.0)
    landing.see(build_pods.pod("b", "gpu-1"), 2.0)
    assert landing.wait(0.0) == 2.0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["--nodes", "10", "--pods", "81"], "10 nodes have 80 GPUs; 81 are needed", id="pods"),
        pytest.param(["--nodes", "7", "--pods", "1"], "7 nodes have 56 GPUs; 64 are needed", id="one gang"),
    ],
)
def test_too_few_nodes_are_not_measured(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, before anything is started."""
    assert main(["scheduler", *argv]) == 1
    assert f"not measured: {words}" in capsys.readouterr().out
