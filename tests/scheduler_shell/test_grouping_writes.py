"""What the grouper writes, when, and what it leaves as it is."""

from typing import Any

import pytest

from controller.scheduler.snapshot import POD_GROUP
from kube import paths
from kube.api import Forbidden, NotLeader, TooManyRequests, Unavailable
from tests.fakes import request_to
from tests.scheduler_shell.grouping_scene import GROUPS, NAMESPACE, Raw, Scene


def _jobs(scene: Scene, **more: Any) -> Raw:
    """Put in a Job of two pods."""
    job = scene.owner("batch/v1", "Job", "train", **more)
    for index in range(2):
        scene.pod(f"train-{index}", job)
    return job


def _group_path(scene: Scene) -> str:
    (name,) = scene.written()
    return paths.member(GROUPS, name)


def test_a_group_of_one_pod_is_written_when_nothing_else_is_under_way() -> None:
    scene = Scene()
    scene.is_calm = False
    scene.pod("alone")
    scene.turn()
    assert scene.written() == {}
    assert [one.spec.queue for one in scene.grouping.view().made.values()] == ["default-queue"]
    scene.is_calm = True
    scene.turn(0.5)
    assert len(scene.written()) == 1
    assert scene.grouping.view().made == {}


def test_a_group_of_one_pod_is_written_after_half_a_minute_at_the_latest() -> None:
    scene = Scene()
    scene.is_calm = False
    scene.pod("alone")
    scene.turn()
    scene.turn(29)
    assert scene.written() == {}
    scene.turn(4)
    scene.turn(2)
    assert len(scene.written()) == 1


def test_a_group_of_several_pods_is_written_at_once() -> None:
    scene = Scene()
    scene.is_calm = False
    _jobs(scene)
    scene.turn()
    assert len(scene.written()) == 1


def test_a_pod_that_ends_before_its_group_is_written_costs_nothing() -> None:
    scene = Scene()
    scene.is_calm = False
    scene.pod("alone")
    scene.turn()
    scene.api.remove(paths.pod(NAMESPACE, "alone"))
    scene.is_calm = True
    scene.turn(10)
    assert scene.api.writes() == []
    assert not scene.grouping.view().made


def test_a_follower_decides_and_writes_nothing_until_it_leads() -> None:
    scene = Scene()
    scene.leads = False
    _jobs(scene)
    scene.turn(30)
    assert scene.api.writes() == []
    assert scene.group_of("train-0") == scene.group_of("train-1")
    scene.leads = True
    scene.turn(1)
    assert len(scene.written()) == 1


def test_a_leader_that_lost_the_lease_stops_quietly_and_goes_on_when_it_leads_again() -> None:
    scene = Scene()
    scene.api.fail_next(request_to("CREATE", "podgroups"), NotLeader("the lease passed on"))
    _jobs(scene)
    scene.turn()
    assert len(scene.writes_to("podgroups")) == 1
    scene.turn(2)
    assert len(scene.written()) == 1


def test_an_administrators_queue_pool_and_topology_stay_and_the_rest_follows_the_workload() -> None:
    scene = Scene()
    _jobs(scene, labels={"kai.scheduler/queue": "team-a", "tier": "one"})
    scene.turn()
    path = _group_path(scene)

    def by_hand(group: Raw) -> None:
        group["spec"]["queue"] = "team-b"
        group["spec"]["topologyConstraint"] = {"topology": "racks", "requiredTopologyLevel": "rack"}
        group["spec"]["minMember"] = 7
        group["metadata"]["labels"]["kai.scheduler/node-pool"] = "h200"
        group["metadata"]["annotations"]["note"] = "mine"
        del group["metadata"]["labels"]["tier"]

    scene.change(path, by_hand)
    scene.turn(70)
    group = scene.api.read(path)
    assert group["spec"]["queue"] == "team-b"
    assert group["spec"]["topologyConstraint"] == {"topology": "racks", "requiredTopologyLevel": "rack"}
    assert group["spec"]["minMember"] == 1
    assert group["metadata"]["labels"] == {
        "kai.scheduler/queue": "team-a",
        "kai.scheduler/node-pool": "h200",
        "tier": "one",
    }
    assert group["metadata"]["annotations"]["note"] == "mine"


def test_a_group_that_is_there_already_is_read_and_only_what_differs_is_written() -> None:
    scene = Scene()
    job = scene.owner("batch/v1", "Job", "train", labels={"kai.scheduler/queue": "team-a"})
    name = f"pg-train-{job['metadata']['uid']}"
    scene.api.add(GROUPS, {"metadata": {"name": name}, "spec": {"queue": "theirs", "minMember": 1}})
    scene.pod("train-0", job)
    scene.turn()
    spec = scene.only_group()["spec"]
    assert spec["queue"] == "theirs"
    assert spec["priorityClassName"] == "train"
    (patch,) = scene.writes_to("podgroups")
    assert patch.method == "PATCH"
    assert patch.body["spec"] == {"priorityClassName": "train"}


def test_a_group_that_is_there_unheard_of_is_read_and_kept() -> None:
    scene = Scene()
    job = _jobs(scene)
    name = f"pg-train-{job['metadata']['uid']}"
    scene.api.add(GROUPS, {"metadata": {"name": name}, "spec": {"queue": "theirs", "minMember": 1}})
    scene.hears_groups = False
    scene.turn()
    assert scene.only_group()["spec"]["queue"] == "theirs"
    assert [one.method for one in scene.writes_to("podgroups")] == ["CREATE", "PATCH"]


def test_a_workload_that_changes_its_minimum_changes_its_group() -> None:
    scene = Scene()
    _jobs(scene, notes={"kai.scheduler/batch-min-member": "2"})
    scene.turn()

    def change(job: Raw) -> None:
        job["metadata"]["annotations"]["kai.scheduler/batch-min-member"] = "3"

    scene.change(scene.path("batch/v1", "Job", "train"), change)
    scene.turn(70)
    scene.pod("train-2", scene.api.read(scene.path("batch/v1", "Job", "train")))
    scene.turn(1)
    assert scene.only_group()["spec"]["minMember"] == 3


def test_durations_are_written_as_go_writes_them_and_equal_ones_are_left() -> None:
    scene = Scene()
    _jobs(
        scene,
        notes={"kai.scheduler/preemption-delay": "1h30m", "kai.scheduler/staleness-grace-period": "-1s"},
    )
    scene.turn()
    spec = scene.only_group()["spec"]
    assert (spec["preemptionDelay"], spec["stalenessGracePeriod"]) == ("5400s", "-1s")

    def other_words(group: Raw) -> None:
        group["spec"]["preemptionDelay"] = "1h30m0s"

    scene.change(_group_path(scene), other_words)
    scene.turn(70)
    assert len(scene.writes_to("podgroups")) == 1


def test_a_group_that_was_deleted_while_its_pods_run_is_made_again() -> None:
    scene = Scene()
    _jobs(scene)
    scene.turn()
    scene.bind("train-0")
    scene.bind("train-1")
    scene.turn(1)
    assert not scene.grouping.view().members
    scene.api.remove(_group_path(scene))
    scene.turn(1)
    scene.turn(6)
    assert len(scene.written()) == 1


def test_a_group_of_a_pod_that_was_bound_before_a_crash_is_made_up_for() -> None:
    scene = Scene()
    pod = scene.pod("alone", nodeName="gpu-1")
    name = f"pg-alone-{pod['metadata']['uid']}"

    def bound(raw: Raw) -> None:
        raw["metadata"]["annotations"] = {POD_GROUP: name}

    scene.change(paths.pod(NAMESPACE, "alone"), bound)
    scene.turn()
    assert list(scene.written()) == [name]


@pytest.mark.parametrize("how", ["is gone", "is being deleted"])
def test_a_group_is_not_made_again_whose_owner(how: str) -> None:
    scene = Scene()
    _jobs(scene)
    scene.turn()
    scene.bind("train-0")
    scene.turn(1)
    job = scene.path("batch/v1", "Job", "train")
    if how == "is gone":
        scene.api.remove(job)
    else:
        scene.change(job, lambda raw: raw["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    scene.api.remove(_group_path(scene))
    for _ in range(10):
        scene.turn(10)
    assert scene.written() == {}, how
    assert len(scene.writes_to("podgroups")) == 1


def test_a_group_is_not_made_again_for_pods_that_are_ending() -> None:
    scene = Scene()
    scene.pod("alone")
    scene.turn()
    scene.bind("alone")

    def ending(pod: Raw) -> None:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pod["metadata"]["finalizers"] = ["held"]

    scene.change(paths.pod(NAMESPACE, "alone"), ending)
    scene.api.remove(_group_path(scene))
    for _ in range(10):
        scene.turn(10)
    assert scene.written() == {}


def test_a_pod_whose_owner_is_gone_waits_and_says_so() -> None:
    scene = Scene()
    job = _jobs(scene)
    scene.api.remove(scene.path("batch/v1", "Job", "train"))
    scene.turn()
    assert "a Job that is there" in scene.problem_of("train-0")
    scene.api.add(scene.path("batch/v1", "Job"), job)
    for _ in range(4):
        scene.turn(5)
    assert scene.problem_of("train-0") == ""
    assert len(scene.written()) == 1


def test_while_the_server_does_not_answer_pods_wait_with_the_reason_and_others_go_on() -> None:
    scene = Scene()
    scene.api.fail_next(request_to("GET", "/jobs/train"), Unavailable("no route to host"), times=None)
    _jobs(scene)
    scene.pod("alone")
    scene.turn()
    scene.turn(1)
    assert "no route to host" in scene.problem_of("train-0")
    assert scene.group_of("alone")
    asked = scene.reads_of(scene.path("batch/v1", "Job", "train"))
    for _ in range(60):
        scene.turn(1)
    assert scene.reads_of(scene.path("batch/v1", "Job", "train")) - asked <= 8
    scene.api.stop_failing()
    scene.turn(31)
    assert scene.problem_of("train-0") == ""
    assert scene.group_of("train-0") == scene.group_of("train-1")


@pytest.mark.parametrize(
    "error",
    [TooManyRequests("slow down", retry_after_s=3.0), Unavailable("gone"), Forbidden("a policy says no")],
    ids=lambda error: type(error).__name__,
)
def test_a_write_that_fails_comes_again_with_pauses_and_holds_nobody_up(error: Exception) -> None:
    scene = Scene()
    scene.api.fail_next(request_to("CREATE", "podgroups"), error, times=3)
    _jobs(scene)
    scene.turn()
    assert scene.group_of("train-0")
    for _ in range(20):
        scene.turn(1)
    tried = len(scene.writes_to("podgroups"))
    assert tried <= 4
    for _ in range(4):
        scene.turn(61)
    assert len(scene.written()) == 1


def test_an_answer_that_got_lost_makes_no_second_group() -> None:
    scene = Scene()
    scene.api.fail_next(request_to("CREATE", "podgroups"), Unavailable("cut off"), after=True)
    _jobs(scene)
    scene.turn()
    scene.turn(5)
    assert len(scene.written()) == 1
    assert scene.api.writes()[1:] == []


def test_a_pod_that_somebody_put_into_a_group_stays_there_and_waits_for_it() -> None:
    scene = Scene()
    scene.pod("mine", notes={POD_GROUP: "by-hand"})
    scene.turn()
    assert scene.written() == {}
    assert "names the PodGroup by-hand, which is not there" in scene.problem_of("mine")
    scene.api.add(GROUPS, {"metadata": {"name": "by-hand"}, "spec": {"minMember": 2}})
    scene.turn(1)
    assert scene.problem_of("mine") == ""
    assert scene.api.writes() == []


def test_a_successor_of_the_same_name_gets_a_group_of_its_own() -> None:
    scene = Scene()
    scene.pod("alone")
    scene.turn()
    first = scene.group_of("alone")
    scene.api.remove(paths.pod(NAMESPACE, "alone"))
    scene.pod("alone")
    scene.turn(1)
    assert scene.group_of("alone") != first
    assert len(scene.written()) == 2


def test_a_pod_that_nothing_happens_to_is_not_grouped_again_and_wakes_nobody() -> None:
    scene = Scene()
    _jobs(scene)
    scene.turn()
    wakes, requests, view = scene.wakes, len(scene.api.requests), scene.grouping.view()
    for _ in range(4):
        scene.turn(61)
    assert (scene.wakes, len(scene.api.requests)) == (wakes, requests)
    assert scene.grouping.view() is view


def test_the_source_of_an_owner_is_not_copied_into_its_group() -> None:
    scene = Scene()
    _jobs(scene, notes={"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"})
    scene.turn()
    annotations = scene.only_group()["metadata"]["annotations"]
    assert annotations["note"] == "kept"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations


def test_a_pod_that_goes_on_waiting_for_the_same_reason_wakes_nobody() -> None:
    scene = Scene()
    job = _jobs(scene)
    scene.pod("mine", notes={POD_GROUP: "by-hand"})
    scene.api.remove(scene.path("batch/v1", "Job", "train"))
    scene.turn()
    assert job["metadata"]["uid"] in scene.problem_of("train-0")
    wakes = scene.wakes
    for _ in range(10):
        scene.turn(31)
    assert scene.wakes == wakes


def test_a_pod_that_waited_for_a_reason_and_went_leaves_nothing_behind() -> None:
    scene = Scene()
    scene.pod("mine", notes={POD_GROUP: "by-hand"})
    scene.turn()
    scene.api.remove(paths.pod(NAMESPACE, "mine"))
    scene.turn(1)
    assert scene.problem_of("mine") == ""
