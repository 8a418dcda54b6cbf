"""What the grouper looks at besides a pod and its owners: other pods, definitions of kinds, classes, gangs of Kubernetes."""

import threading
from typing import Any

from controller.scheduler.grouper.spec import Terms
from controller.scheduler.shell.grouping import Grouping
from kube import paths
from kube.api import Unavailable
from kube.clock import SYSTEM
from kube.scheduling import PodGroup, PriorityClass
from kube.store import Store
from kube.types import ObjectMeta, Pod
from kube.watch import Reflector
from tests.fakes import request_to, wait_until
from tests.scheduler_shell.grouping_scene import GROUPS, NAME, NAMESPACE, Raw, Scene, reference_to

KARTA = {
    "structureDefinition": {
        "rootComponent": {
            "name": "root",
            "kind": {"group": "example.com", "version": "v1", "kind": "Widget"},
            "podSelector": {"componentTypeSelector": {"keyPath": ".spec.hostname"}},
            "scaleDefinition": {"replicasPath": ".spec.replicas"},
        }
    },
    "instructions": {
        "gangScheduling": {
            "podGroups": [{"members": [{"componentName": "root", "groupByKeyPaths": [".spec.hostname"]}]}]
        }
    },
}


def _karta(scene: Scene) -> None:
    scene.api.kinds["run.ai/v1alpha1"] = {"Karta": "kartas"}
    path = paths.collection("run.ai", "v1alpha1", "kartas")
    scene.api.add(
        path,
        {"apiVersion": "run.ai/v1alpha1", "kind": "Karta", "metadata": {"name": "widgets"}, "spec": KARTA},
    )


def test_a_kind_that_the_cluster_defines_is_grouped_by_what_stands_in_the_whole_pod() -> None:
    scene = Scene()
    _karta(scene)
    owner = scene.owner("example.com/v1", "Widget", "w", replicas=5)
    scene.pod("w-0", owner, hostname="east")
    scene.turn()
    (name,) = scene.written()
    assert name == f"pg-{owner['metadata']['uid']}-east"
    assert scene.only_group()["spec"]["minMember"] == 5
    assert scene.reads_of(paths.pod(NAMESPACE, "w-0")) == 1


def test_a_kind_that_nobody_defines_asks_for_definitions_once_a_minute() -> None:
    scene = Scene()
    for index in range(50):
        owner = scene.owner("example.com/v1", "Widget", f"w-{index}")
        scene.pod(f"w-{index}-0", owner)
    scene.turn()
    assert len(scene.written()) == 50
    assert scene.reads_of("/apis/run.ai") == 1


def test_a_pod_of_a_cron_job_is_grouped_by_the_job_of_this_run() -> None:
    scene = Scene()
    cron = scene.owner("batch/v1", "CronJob", "nightly", labels={"kai.scheduler/queue": "night"})
    job = scene.owner("batch/v1", "Job", "nightly-1", cron, labels={"kai.scheduler/queue": "of-the-run"})
    scene.pod("nightly-1-0", job)
    scene.turn()
    assert scene.only_group()["metadata"]["ownerReferences"][0]["name"] == "nightly-1"
    assert scene.only_group()["spec"]["queue"] == "of-the-run"
    assert scene.reads_of(scene.path("batch/v1", "Job", "nightly-1")) == 1


def test_a_gang_of_kubernetes_own_decides_before_the_owners() -> None:
    scene = Scene()
    scene.api.kinds["scheduling.k8s.io/v1alpha1"] = {"Workload": "workloads"}
    gangs = [{"name": "workers", "policy": {"gang": {"minCount": 4}}}]
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "big", "labels": {"kai.scheduler/queue": "team-w"}},
        "spec": {"podGroups": gangs},
    }
    scene.api.add(paths.collection("scheduling.k8s.io", "v1alpha1", "workloads", NAMESPACE), body)
    for index in range(4):
        scene.pod(f"p-{index}", workloadRef={"name": "big", "podGroup": "workers"})
    scene.turn()
    assert list(scene.written()) == ["big-workers"]
    assert scene.only_group()["spec"] | {"minMember": 4, "queue": "team-w"} == scene.only_group()["spec"]


def test_a_pod_whose_gang_of_kubernetes_is_not_there_waits_for_it() -> None:
    scene = Scene()
    scene.pod("p", schedulingGroup={"podGroupName": "late"})
    scene.turn()
    assert "spec.schedulingGroup.podGroupName is 'late'" in scene.problem_of("p")


def test_an_mpi_job_counts_its_launcher_as_soon_as_there_is_one() -> None:
    scene = Scene()
    owner = scene.owner(
        "kubeflow.org/v1",
        "MPIJob",
        "sim",
        launcherCreationPolicy="WaitForWorkersReady",
        mpiReplicaSpecs={"Launcher": {"replicas": 1}, "Worker": {"replicas": 3}},
    )
    scene.pod("sim-worker-0", owner)
    scene.turn()
    assert scene.only_group()["spec"]["minMember"] == 3
    scene.clock.advance(1)
    marks = {"training.kubeflow.org/job-role": "launcher", "training.kubeflow.org/job-name": "sim"}
    scene.pod("sim-launcher", owner, labels=marks)
    scene.turn()
    assert scene.only_group()["spec"]["minMember"] == 4


def test_the_newest_member_speaks_for_its_group_however_often_older_ones_are_looked_at() -> None:
    scene = Scene()
    job = scene.owner("batch/v1", "Job", "train")
    scene.pod("train-0", job, labels={"user": "ann"})
    scene.turn()
    scene.clock.advance(1)
    scene.pod("train-1", job, labels={"user": "bob"})
    for _ in range(12):
        scene.turn(61)
    assert scene.only_group()["metadata"]["labels"]["user"] == "bob"
    assert [one.method for one in scene.writes_to("podgroups")] == ["CREATE", "PATCH"]


def test_a_group_takes_the_pool_of_its_pod() -> None:
    scene = Scene(Terms(node_pool_label="pool"))
    scene.pod("alone", labels={"pool": "h200"})
    scene.turn()
    assert scene.only_group()["metadata"]["labels"] == {"pool": "h200"}


def test_a_name_that_the_server_would_not_take_is_shortened_and_stays_distinct() -> None:
    scene = Scene()
    name = "a" * 250
    scene.pod(name)
    scene.turn()
    (made,) = scene.written()
    assert len(made) <= 253
    assert scene.group_of(name) == f"{NAMESPACE}/{made}"


def test_a_priority_class_counts_as_soon_as_it_exists() -> None:
    scene = Scene()
    scene.pod("alone", priorityClassName="build")
    scene.turn()
    assert scene.only_group()["spec"]["priorityClassName"] == "train"
    build = PriorityClass(metadata=ObjectMeta(name="build", resource_version="2"), value=100)
    scene.classes.apply("ADDED", build, 0.0)
    scene.turn()
    assert scene.only_group()["spec"]["priorityClassName"] == "build"


def test_a_reference_that_would_lead_to_another_path_leads_nowhere() -> None:
    scene = Scene()
    for index, version in enumerate(("../../api/v1", "batch/../v1", "v1/x/y", "")):
        owner = {"apiVersion": version, "kind": "Secret", "metadata": {"name": "s", "uid": "u"}}
        scene.pod(f"p-{index}", owner)
    scene.turn()
    assert {one.path for one in scene.api.requests if one.method != "CREATE"} <= {"/apis/run.ai"}


def test_while_definitions_of_kinds_cannot_be_read_pods_of_unknown_kinds_wait() -> None:
    scene = Scene()
    scene.api.fail_next(request_to("GET", "/apis/run.ai"), Unavailable("down"), times=None)
    owner = scene.owner("example.com/v1", "Widget", "w")
    scene.pod("w-0", owner)
    scene.turn()
    scene.turn(1)
    assert "down" in scene.problem_of("w-0")
    scene.api.stop_failing()
    scene.turn(31)
    assert len(scene.written()) == 1


def test_it_runs_in_a_thread_of_its_own_and_ends_when_told() -> None:
    scene = Scene()
    scene.owner("batch/v1", "Job", "train")
    job = scene.api.read(scene.path("batch/v1", "Job", "train"))
    stop = threading.Event()
    pods: Store[Pod] = Store()
    groups: Store[PodGroup] = Store()
    classes: Store[PriorityClass] = Store()
    woken = threading.Event()
    grouping = Grouping(
        pods=pods,
        pod_groups=groups,
        priority_classes=classes,
        reads=scene.api,
        writes=scene.api,
        terms=Terms(),
        scheduler_name=NAME,
        clock=SYSTEM,
        wake=woken.set,
        may_write=lambda: True,
        calm=lambda: True,
    )
    watched: tuple[tuple[str, type[Any], Store[Any]], ...] = (
        (paths.pods(), Pod, pods),
        (GROUPS, PodGroup, groups),
        (paths.collection("scheduling.k8s.io", "v1", "priorityclasses"), PriorityClass, classes),
    )
    threads = [
        threading.Thread(target=Reflector(scene.api, path, type_, store, clock=SYSTEM, stop=stop).run)
        for path, type_, store in watched
    ]
    for thread in threads:
        thread.start()
    grouping.start()
    for index in range(20):
        _later(scene, f"train-{index}", job)
    wait_until(lambda: len(grouping.view().members) == 20)
    wait_until(lambda: len(scene.written()) == 1 and not grouping.view().made)
    assert (woken.is_set(), grouping.alive) == (True, True)
    grouping.stop(5.0)
    assert not grouping.alive
    stop.set()
    scene.api.close()
    for thread in threads:
        thread.join(5.0)
    assert not any(thread.name == "grouping" for thread in threading.enumerate())


def _later(scene: Scene, name: str, owner: Raw) -> None:
    metadata = {"name": name, "ownerReferences": [reference_to(owner)]}
    scene.api.add(paths.pods(NAMESPACE), {"metadata": metadata, "spec": {"schedulerName": NAME}})
