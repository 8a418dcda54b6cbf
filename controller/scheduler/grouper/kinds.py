"""Every kind of workload that is grouped otherwise than by the default rule, one entry each. Pure.

Source: the table in KAI Scheduler's documentation of its pod grouper (v0.17). A new kind is a new entry; `rule` is only for
what data cannot say. The version "*" stands for every version; what is not listed gets the default rule: one group for its
top owner, minimum 1, class train.
"""

from controller.scheduler.grouper.asked import Rule
from controller.scheduler.grouper.grove import grove
from controller.scheduler.grouper.jobset import jobset
from controller.scheduler.grouper.kubeflow import MPI_REPLICAS, PYTORCH_REPLICAS, mpi, pytorch
from controller.scheduler.grouper.leader_worker_set import leader_worker_set
from controller.scheduler.grouper.ray import ray_cluster, ray_job, ray_service
from controller.scheduler.grouper.single import batch_job, cron_job, knative, per_pod, pod_alone, runai_job
from controller.scheduler.values import Value

TRAIN = "train"
BUILD = "build"
INFERENCE = "inference"

ANY_VERSION = "*"

_KUBEFLOW_MINIMUM = "spec.runPolicy.schedulingPolicy.minAvailable"


class Kind(Value, frozen=True, kw_only=True):
    """How one kind is grouped.

    `minimum`: dotted paths, the first that is set is how many pods start together. `replicas`: else the sum over this object
    of replica types, of which `required` must be there. Neither = 1, or an error if `must_say`. `default_class`: the
    priority class where nobody names one. `passed_over`: the owner below it decides, and gets its labels and annotations.
    `all_owners`: labels of every owner on the way count, not only the top one's.
    """

    group: str
    version: str
    kind: str
    minimum: tuple[str, ...] = ()
    replicas: str = ""
    required: tuple[str, ...] = ()
    must_say: bool = False
    default_class: str = TRAIN
    passed_over: bool = False
    all_owners: bool = False
    rule: Rule | None = None


DEFAULT_KIND = Kind(group="", version=ANY_VERSION, kind="", all_owners=True)


def _plain(group: str, version: str, kind: str) -> Kind:
    return Kind(group=group, version=version, kind=kind, all_owners=True)


def _passed_over(group: str, version: str, kind: str) -> Kind:
    return Kind(group=group, version=version, kind=kind, passed_over=True)


def _ray(version: str) -> tuple[Kind, ...]:
    return (
        Kind(group="ray.io", version=version, kind="RayCluster", rule=ray_cluster),
        Kind(group="ray.io", version=version, kind="RayJob", rule=ray_job),
        Kind(group="ray.io", version=version, kind="RayService", rule=ray_service),
    )


def _kubeflow(
    kind: str, replicas: str, *required: str, version: str = "v1", elastic: str = "", rule: Rule | None = None
) -> Kind:
    return Kind(
        group="kubeflow.org",
        version=version,
        kind=kind,
        minimum=(_KUBEFLOW_MINIMUM, elastic) if elastic else (_KUBEFLOW_MINIMUM,),
        replicas=replicas,
        required=required,
        rule=rule,
    )


KINDS: tuple[Kind, ...] = (
    Kind(group="", version="v1", kind="Pod", rule=pod_alone),
    Kind(group="batch", version="v1", kind="Job", rule=batch_job),
    Kind(group="batch", version="v1", kind="CronJob", rule=cron_job),
    Kind(group="apps", version="v1", kind="Deployment", default_class=INFERENCE, rule=per_pod),
    _plain("apps", "v1", "StatefulSet"),
    _plain("apps", "v1", "ReplicaSet"),
    Kind(group="kubeflow.org", version="v1beta1", kind="Notebook", default_class=BUILD),
    _plain("kubeflow.org", "v1alpha1", "ScheduledWorkflow"),
    _kubeflow("TFJob", "spec.tfReplicaSpecs"),
    _kubeflow("PyTorchJob", PYTORCH_REPLICAS, elastic="spec.elasticPolicy.minReplicas", rule=pytorch),
    _kubeflow("XGBoostJob", "spec.xgbReplicaSpecs", "Master", "Worker"),
    _kubeflow("JAXJob", "spec.jaxReplicaSpecs", "Worker"),
    _kubeflow("MPIJob", MPI_REPLICAS, "Launcher", "Worker", rule=mpi),
    _kubeflow("MPIJob", MPI_REPLICAS, "Launcher", "Worker", version="v2beta1", rule=mpi),
    _passed_over("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    Kind(group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", rule=jobset),
    Kind(group="leaderworkerset.x-k8s.io", version="v1", kind="LeaderWorkerSet", rule=leader_worker_set),
    *_ray("v1"),
    *_ray("v1alpha1"),
    Kind(group="serving.knative.dev", version="v1", kind="Service", default_class=INFERENCE, rule=knative),
    _plain("machinelearning.seldon.io", "v1", "SeldonDeployment"),
    _plain("machinelearning.seldon.io", "v1alpha2", "SeldonDeployment"),
    _plain("kubevirt.io", "v1", "VirtualMachineInstance"),
    _plain("workspace.devfile.io", "v1alpha2", "DevWorkspace"),
    _plain("tekton.dev", "v1", "PipelineRun"),
    _plain("tekton.dev", "v1", "TaskRun"),
    _passed_over("argoproj.io", "v1alpha1", "Workflow"),
    _passed_over("run.ai", ANY_VERSION, "TrainingWorkload"),
    _passed_over("run.ai", ANY_VERSION, "InteractiveWorkload"),
    _passed_over("run.ai", ANY_VERSION, "DistributedWorkload"),
    _passed_over("run.ai", ANY_VERSION, "InferenceWorkload"),
    _passed_over("run.ai", ANY_VERSION, "DistributedInferenceWorkload"),
    _passed_over("run.ai", ANY_VERSION, "WorkloadRunner"),
    Kind(group="run.ai", version="v1", kind="RunaiJob", rule=runai_job),
    Kind(group="grove.io", version="v1alpha1", kind="PodGangSet", rule=grove),
    Kind(group="grove.io", version="v1alpha1", kind="PodCliqueSet", rule=grove),
    _passed_over("nvidia.com", ANY_VERSION, "DynamoGraphDeployment"),
    Kind(
        group="amlarc.azureml.com",
        version="v1alpha1",
        kind="AmlJob",
        minimum=("spec.job.options.envs.AZUREML_NODE_COUNT",),
        must_say=True,
    ),
    Kind(group="egx.nvidia.io", version="v1", kind="SPOTRequest", default_class=INFERENCE),
)

_BY_NAME = {(entry.group, entry.version, entry.kind): entry for entry in KINDS}


def find(group: str, version: str, kind: str) -> Kind | None:
    """Return a kind's entry: that of the exact version goes before that of any version. None = not listed."""
    return _BY_NAME.get((group, version, kind)) or _BY_NAME.get((group, ANY_VERSION, kind))
