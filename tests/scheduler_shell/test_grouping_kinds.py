"""Which group each kind of workload gets on a cluster, and what that costs in requests."""

import time

import pytest

from kube import paths
from kube.api import Forbidden, PatchType
from tests.fakes import request_to
from tests.scheduler_shell.grouping_scene import GROUPS, NAMESPACE, Raw, Scene

LIMIT_MS = 0.5
"""A loose bound, for machines that are slow or busy; about 0.05 ms is what it takes."""


def test_a_pod_on_its_own_gets_a_group_of_its_own_and_no_owner_is_read() -> None:
    scene = Scene()
    pod = scene.pod("alone", labels={"kai.scheduler/queue": "team-a"})
    scene.turn()
    group = scene.only_group()
    assert scene.group_of("alone") == f"{NAMESPACE}/pg-alone-{pod['metadata']['uid']}"
    assert group["spec"]["queue"] == "team-a"
    assert group["spec"]["minMember"] == 1
    assert group["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert [one.method for one in scene.api.requests] == ["CREATE"]


def test_a_job_of_a_thousand_pods_is_one_group_and_is_read_once() -> None:
    scene = Scene()
    job = scene.owner("batch/v1", "Job", "train", notes={"kai.scheduler/batch-min-member": "64"})
    for index in range(1000):
        scene.pod(f"train-{index}", job)
    scene.turn()
    assert scene.only_group()["spec"]["minMember"] == 64
    assert len(scene.grouping.view().members) == 1000
    assert scene.reads_of(scene.path("batch/v1", "Job", "train")) == 1
    assert sorted(one.path for one in scene.api.requests) == sorted(
        ["/apis/batch/v1", scene.path("batch/v1", "Job", "train"), GROUPS]
    )


def test_pods_of_a_deployment_are_groups_one_by_one_under_its_queue() -> None:
    scene = Scene()
    deployment = scene.owner("apps/v1", "Deployment", "web", labels={"kai.scheduler/queue": "serving"})
    replicas = scene.owner("apps/v1", "ReplicaSet", "web-1", deployment)
    for index in range(3):
        scene.pod(f"web-1-{index}", replicas)
    scene.turn()
    groups = scene.written().values()
    assert {group["spec"]["queue"] for group in groups} == {"serving"}
    assert {group["spec"]["priorityClassName"] for group in groups} == {"inference"}
    assert len({scene.group_of(f"web-1-{index}") for index in range(3)}) == 3
    assert scene.reads_of(scene.path("apps/v1", "Deployment", "web")) == 1


def test_pods_of_a_stateful_set_are_one_group_that_grows() -> None:
    scene = Scene()
    owner = scene.owner("apps/v1", "StatefulSet", "db")
    for index in range(3):
        scene.pod(f"db-{index}", owner)
    scene.turn()
    assert scene.only_group()["spec"]["minMember"] == 1
    assert len({scene.group_of(f"db-{index}") for index in range(3)}) == 1


def test_pods_of_a_job_set_are_told_their_subgroup_by_a_label() -> None:
    scene = Scene()
    jobs = [{"name": "sim", "replicas": 2, "template": {"spec": {"parallelism": 4}}}]
    owner = scene.owner("jobset.x-k8s.io/v1alpha2", "JobSet", "physics", replicatedJobs=jobs)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "sim", "jobset.sigs.k8s.io/job-index": "1"}
    scene.pod("sim-1-0", owner, labels=labels)
    scene.turn()
    group = scene.only_group()
    assert group["spec"]["minSubGroup"] == 1
    assert "minMember" not in group["spec"]
    assert [(one["name"], one.get("minMember"), one.get("parent")) for one in group["spec"]["subGroups"]] == [
        ("sim", None, None),
        ("sim-replica-0", 4, "sim"),
        ("sim-replica-1", 4, "sim"),
    ]
    assert scene.sub_group_of("sim-1-0") == "sim-replica-1"
    (labelled,) = scene.writes_to("/pods/")
    assert labelled.patch_type is PatchType.MERGE
    pod = scene.api.read(paths.pod(NAMESPACE, "sim-1-0"))
    assert pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] == "sim-replica-1"
    scene.turn(100)
    assert len(scene.writes_to("/pods/")) == 1


def test_a_ray_job_waits_until_its_cluster_has_a_name_and_then_has_its_size() -> None:
    scene = Scene()
    job = scene.owner("ray.io/v1", "RayJob", "tune")
    scene.pod("head", job, labels={"ray.io/group": "headgroup"})
    scene.turn()
    assert "rayClusterName" in scene.problem_of("head")
    scene.owner("ray.io/v1", "RayCluster", "tune-x", workerGroupSpecs=[{"groupName": "gpu", "replicas": 3}])
    path = scene.path("ray.io/v1", "RayJob", "tune")
    scene.api.patch(f"{path}/status", {"status": {"rayClusterName": "tune-x"}}, PatchType.MERGE)
    for _ in range(5):
        scene.turn(10)
    assert scene.problem_of("head") == ""
    assert scene.only_group()["spec"]["minMember"] == 4
    assert scene.sub_group_of("head") == "headgroup"


def test_an_owner_of_a_kind_that_may_not_be_read_groups_by_its_reference_and_costs_one_request() -> None:
    scene = Scene()
    scene.api.fail_next(request_to("GET", "/widgets/"), Forbidden("no right to get widgets"), times=None)
    for index in range(200):
        owner = scene.owner("example.com/v1", "Widget", f"w-{index}")
        scene.pod(f"of-{index}", owner)
    scene.turn()
    assert len(scene.written()) == 200
    assert scene.problem_of("of-0") == ""
    assert sum(1 for one in scene.api.requests if "/widgets/" in one.path) <= 8


def test_a_kind_that_is_not_served_any_more_groups_by_its_reference() -> None:
    scene = Scene()
    owner = scene.owner("example.com/v1", "Widget", "w")
    del scene.api.kinds["example.com/v1"]
    scene.pod("of-w", owner)
    scene.turn()
    assert scene.only_group()["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]


def test_a_gang_whose_owner_may_not_be_read_waits_and_says_what_is_missing() -> None:
    scene = Scene()
    scene.api.fail_next(request_to("GET", "/jobsets/"), Forbidden("no right to get jobsets"), times=None)
    owner = scene.owner("jobset.x-k8s.io/v1alpha2", "JobSet", "physics")
    scene.pod("sim-1-0", owner)
    scene.pod("other")
    scene.turn()
    assert "JobSet jobs/physics" in scene.problem_of("sim-1-0")
    assert "no right to get jobsets" in scene.problem_of("sim-1-0")
    assert list(scene.grouping.view().members) == [f"{NAMESPACE}/other"]


def test_an_owner_that_is_broken_stops_only_its_own_pods_and_is_seen_when_it_is_mended() -> None:
    scene = Scene()
    owner = scene.owner("batch/v1", "Job", "train", notes={"kai.scheduler/batch-min-member": "many"})
    scene.pod("train-0", owner)
    scene.pod("other")
    scene.turn()
    assert "batch-min-member is 'many'" in scene.problem_of("train-0")
    assert scene.group_of("other")

    def mend(job: Raw) -> None:
        job["metadata"]["annotations"]["kai.scheduler/batch-min-member"] = "2"

    scene.change(scene.path("batch/v1", "Job", "train"), mend)
    scene.turn(5)
    assert scene.problem_of("train-0") == ""
    assert scene.group_of("train-0").startswith(f"{NAMESPACE}/pg-train-")


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ("says that it is grouped by its owner", {"notes": {"kai.scheduler/skip-podgrouper": "true"}}),
        ("is another scheduler's", {"schedulerName": "default-scheduler"}),
        ("is done", {"status": {"phase": "Succeeded"}}),
        ("was put on its node by hand", {"nodeName": "gpu-1"}),
    ],
)
def test_a_pod_is_left_alone_that(what: str, left: Raw) -> None:
    scene = Scene()
    scene.pod("left", **left)
    scene.turn()
    assert scene.api.requests == [], what
    assert not scene.grouping.view().members


@pytest.mark.parametrize("owned", [False, True], ids=["bare pods", "pods of one Job"])
def test_grouping_a_pod_costs_little(owned: bool) -> None:
    scene = Scene()
    scene.is_calm = False
    owner = scene.owner("batch/v1", "Job", "train") if owned else None
    scene.turn()
    for index in range(2000):
        scene.pod(f"p-{index}", owner)
    scene.hear()
    began = time.process_time()
    while scene.grouping.turn():
        pass
    scene.grouping.turn()
    spent_ms = (time.process_time() - began) * 1000 / 2000
    assert len(scene.grouping.view().members) == 2000
    assert spent_ms < LIMIT_MS
