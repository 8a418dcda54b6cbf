"""Kinds of one group without subgroups, those that older versions began otherwise, and owners that are passed over."""

import pytest

from controller.scheduler.grouper.fields import GrouperError
from controller.scheduler.grouper.kinds import KINDS, find
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, Terms
from tests.scheduler.grouper_words import JOBSET, Raw, grouped, jobset, pod, thing, training, wants

FLAT: dict[str, tuple[Raw, int, str, str]] = {
    "a StatefulSet is one elastic group": (
        thing("apps/v1", "StatefulSet", {"replicas": 9}),
        1,
        "train",
        "pg-w-u",
    ),
    "a ReplicaSet is one elastic group": (thing("apps/v1", "ReplicaSet"), 1, "train", "pg-w-u"),
    "a Deployment's pods are a group each": (thing("apps/v1", "Deployment"), 1, "inference", "pg-p-p-uid"),
    "a Job is one group": (thing("batch/v1", "Job", {"parallelism": 4}), 1, "train", "pg-w-u"),
    "a Job may ask for a minimum": (
        thing("batch/v1", "Job", notes={"kai.scheduler/batch-min-member": "4"}),
        4,
        "train",
        "pg-w-u",
    ),
    "a notebook is built with": (thing("kubeflow.org/v1beta1", "Notebook"), 1, "build", "pg-w-u"),
    "a notebook of an unlisted version is like any kind": (
        thing("kubeflow.org/v9", "Notebook"),
        1,
        "train",
        "pg-w-u",
    ),
    "a TFJob starts with all its replicas": (
        training("TFJob", "tfReplicaSpecs", Worker=3, PS=2),
        5,
        "train",
        "pg-w-u",
    ),
    "a TFJob's policy goes before its replicas": (
        training("TFJob", "tfReplicaSpecs", wants(2), Worker=3),
        2,
        "train",
        "pg-w-u",
    ),
    "a policy stands in for replica specs": (
        thing("kubeflow.org/v1", "XGBoostJob", wants(7)),
        7,
        "train",
        "pg-w-u",
    ),
    "an XGBoostJob counts master and workers": (
        training("XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=6),
        7,
        "train",
        "pg-w-u",
    ),
    "a JAXJob has workers alone": (training("JAXJob", "jaxReplicaSpecs", Worker=8), 8, "train", "pg-w-u"),
    "an MPIJob counts its launcher": (
        training("MPIJob", "mpiReplicaSpecs", version="v2beta1", Launcher=1, Worker=4),
        5,
        "train",
        "pg-w-u",
    ),
    "an AML job says its nodes in an environment": (
        thing(
            "amlarc.azureml.com/v1alpha1",
            "AmlJob",
            {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 12}}}},
        ),
        12,
        "train",
        "pg-w-u",
    ),
    "a SPOT request serves": (thing("egx.nvidia.io/v1", "SPOTRequest"), 1, "inference", "pg-w-u"),
    "a Run:ai job is named for its pod": (thing("run.ai/v1", "RunaiJob"), 1, "train", "pg-p-u"),
    "a virtual machine is alone": (thing("kubevirt.io/v1", "VirtualMachineInstance"), 1, "train", "pg-w-u"),
    "a Seldon deployment is one group": (
        thing("machinelearning.seldon.io/v1alpha2", "SeldonDeployment"),
        1,
        "train",
        "pg-w-u",
    ),
    "a dev workspace is alone": (
        thing("workspace.devfile.io/v1alpha2", "DevWorkspace"),
        1,
        "train",
        "pg-w-u",
    ),
    "a pipeline run is one group": (thing("tekton.dev/v1", "PipelineRun"), 1, "train", "pg-w-u"),
    "a task run is one group": (thing("tekton.dev/v1", "TaskRun"), 1, "train", "pg-w-u"),
    "a scheduled workflow is one group": (
        thing("kubeflow.org/v1alpha1", "ScheduledWorkflow"),
        1,
        "train",
        "pg-w-u",
    ),
    "a kind nobody knows gets the default rule": (thing("slinky.io/v1", "NodeSet"), 1, "train", "pg-w-u"),
}


@pytest.mark.parametrize(("owner", "minimum", "cls", "name"), FLAT.values(), ids=FLAT)
def test_a_kind_without_subgroups(owner: Raw, minimum: int, cls: str, name: str) -> None:
    """Minimum, class and name of the kinds that data alone describes, or nearly so."""
    spec = grouped(pod(), owner)
    assert (spec.min_available, spec.priority_class, spec.name) == (minimum, cls, name)
    assert not spec.sub_groups


def test_every_kind_is_listed_once() -> None:
    """A second entry of the same name would never be found."""
    names = [(kind.group, kind.version, kind.kind) for kind in KINDS]
    assert len(set(names)) == len(names)


def test_the_exact_version_goes_before_any_version() -> None:
    """And a version nobody listed is no version of that kind, unless any is."""
    assert find("run.ai", "v7", "TrainingWorkload") is find("run.ai", "*", "TrainingWorkload")
    assert find("ray.io", "v2", "RayCluster") is None


def test_pods_without_owner() -> None:
    """A lone pod is its own group; the pods of one Spark application share one."""
    assert grouped(pod("solo")).name == "pg-solo-solo-uid"
    assert grouped(pod("solo")).owner.kind == "Pod"
    spark = {"spark-app-name": "etl", "spark-app-selector": "spark-77"}
    assert (
        grouped(pod("driver", labels=spark)).name == grouped(pod("exec-1", labels=spark)).name == "spark-77"
    )
    assert grouped(pod("half", labels={"spark-app-name": "etl"})).name == "pg-half-half-uid"


def test_what_older_versions_grouped_stays_grouped_so() -> None:
    """A Job's pod with a group of its own, a Run:ai job's group named for the job."""
    own = thing("scheduling.run.ai/v2alpha2", "PodGroup", name="pg-p-u")
    job = thing("batch/v1", "Job", notes={"kai.scheduler/batch-min-member": "4"})
    assert (grouped(pod(), job, around=(own,)).name, grouped(pod(), job, around=(own,)).min_available) == (
        "pg-p-u",
        1,
    )
    named = thing("scheduling.run.ai/v2alpha2", "PodGroup", name="pg-w-u")
    assert grouped(pod("w-0-1"), thing("run.ai/v1", "RunaiJob"), around=(named,)).name == "pg-w-u"
    assert grouped(pod("w-0-1"), thing("run.ai/v1", "RunaiJob")).name == "pg-w-0-u"
    assert (
        grouped(pod("w-0-1"), thing("run.ai/v1", "RunaiJob", {"parallelism": 2}), around=(named,)).name
        == "pg-w-0-u"
    )


def test_a_cron_job_is_grouped_run_by_run() -> None:
    """By the Job of this run, which must be there."""
    run = thing("batch/v1", "Job", name="nightly-1", uid="j1")
    asked = pod()
    asked["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "nightly-1"}]
    spec = grouped(asked, run, thing("batch/v1", "CronJob", name="nightly"), around=(run,))
    assert (spec.name, spec.owner.kind) == ("pg-nightly-1-j1", "Job")
    with pytest.raises(GrouperError, match="nightly-1"):
        grouped(asked, thing("batch/v1", "CronJob", name="nightly"))


REVISION = {"serving.knative.dev/revision": "r1"}


def revision(**notes: str) -> Raw:
    return thing(
        "serving.knative.dev/v1",
        "Revision",
        name="r1",
        uid="ru",
        notes={f"autoscaling.knative.dev/{key.replace('_', '-')}": text for key, text in notes.items()},
    )


def serving(*around: Raw, gang: bool = True) -> PodGroupSpec:
    cluster = Cluster(around, terms=Terms(gang_knative=gang))
    return grouped(pod(labels=REVISION), thing("serving.knative.dev/v1", "Service"), cluster=cluster)


def test_knative() -> None:
    """A group for each Revision, as large as its min-scale; a word that is no number means 1."""
    assert (serving(revision(min_scale="3")).min_available, serving(revision()).name) == (3, "pg-r1-ru")
    assert serving(revision(min_scale="many")).min_available == 1
    assert serving(revision()).priority_class == "inference"
    alone = serving(revision(min_scale="3"), gang=False)
    assert (alone.name, alone.min_available, alone.owner.kind) == ("pg-p-p-uid", 1, "Pod")


def test_a_revision_begun_pod_by_pod_goes_on_so() -> None:
    """Two groups for its pods, or one that belongs to a pod; two pods in one group are a gang."""
    a, b = (pod(name, labels=REVISION, notes={"pod-group-name": f"g-{name}"}) for name in "ab")
    shared = pod("c", labels=REVISION, notes={"pod-group-name": "g-a"})
    group = thing("scheduling.run.ai/v2alpha2", "PodGroup", name="g-a")
    group["metadata"]["ownerReferences"] = [{"kind": "Pod"}]
    assert serving(revision(), a, b).name == "pg-p-p-uid"
    assert serving(revision(), a, group).name == "pg-p-p-uid"
    assert serving(revision(), a, shared).name == "pg-r1-ru"
    assert serving(revision(), a).name == "pg-r1-ru"
    group["metadata"]["ownerReferences"] = [{"kind": "Toaster"}]
    with pytest.raises(GrouperError, match="Toaster"):
        serving(revision(), a, group)


PASSED_OVER = {
    "a TrainJob is grouped as its JobSet": ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    "a Run:ai workload by what it wraps": ("run.ai/v3", "DistributedWorkload"),
    "so is any workload runner's": ("run.ai/v1", "WorkloadRunner"),
    "a Workflow by the step below it": ("argoproj.io/v1alpha1", "Workflow"),
    "a Dynamo graph by what it made": ("nvidia.com/v1beta1", "DynamoGraphDeployment"),
}


@pytest.mark.parametrize(("api_version", "kind"), PASSED_OVER.values(), ids=PASSED_OVER)
def test_an_owner_that_is_passed_over(api_version: str, kind: str) -> None:
    """The owner below it decides, with the labels and annotations from above that it lacks."""
    top = thing(
        api_version, kind, name="top", labels={"kai.scheduler/queue": "blue", "a": "top"}, notes={"n": "top"}
    )
    inner = jobset()
    inner["metadata"]["labels"] = {"a": "inner"}
    spec = grouped(pod(labels=JOBSET), inner, top)
    assert (spec.name, spec.queue, spec.min_sub_group) == ("pg-w-u", "blue", 2)
    assert (spec.labels["a"], spec.annotations["n"]) == ("inner", "top")


def test_owners_passed_over_one_after_the_other() -> None:
    """Down to the pod itself where nothing else is left."""
    runner = thing("run.ai/v1", "WorkloadRunner", labels={"kai.scheduler/queue": "blue"})
    graph = thing("nvidia.com/v1", "DynamoGraphDeployment", labels={"x": "y"})
    spec = grouped(pod("solo"), graph, runner)
    assert (spec.name, spec.queue, spec.labels["x"]) == ("pg-solo-solo-uid", "blue", "y")
