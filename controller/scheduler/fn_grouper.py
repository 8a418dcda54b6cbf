"""Runs the single-decision records of KAI's suite that are about pod groups and GPU requests. Pure.

A record names the grouper that was asked; behind each name stands an entry of our table. What the record leaves out of the
cluster comes from `recorded_cluster`.
"""

from collections.abc import Callable
from typing import Any

from controller.scheduler.gpu_request import why_not_valid
from controller.scheduler.grouper.fields import GrouperError, Thing
from controller.scheduler.grouper.grouping import KARTA_KIND, group_by, handed_down
from controller.scheduler.grouper.kinds import ANY_VERSION, DEFAULT_KIND, Kind, find
from controller.scheduler.grouper.single import spark
from controller.scheduler.grouper.spec import PodGroupSpec, SubGroupSpec
from controller.scheduler.model import TopologyConstraint
from controller.scheduler.podgroup_checks import Checked, admit, check_spec, check_sub_groups
from controller.scheduler.recorded_cluster import cluster_of
from controller.scheduler.rules import Rules


def _entry(group: str, version: str, kind: str) -> Kind:
    return find(group, version, kind) or DEFAULT_KIND


_ENTRIES: dict[str, Kind] = {
    "AmlGrouper": _entry("amlarc.azureml.com", "v1alpha1", "AmlJob"),
    "CronJobGrouper": _entry("batch", "v1", "CronJob"),
    "DefaultGrouper": DEFAULT_KIND,
    "DeploymentGrouper": _entry("apps", "v1", "Deployment"),
    "GroveGrouper": _entry("grove.io", "v1alpha1", "PodCliqueSet"),
    "JaxGrouper": _entry("kubeflow.org", "v1", "JAXJob"),
    "JobSetGrouper": _entry("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    "K8sJobGrouper": _entry("batch", "v1", "Job"),
    "KartaGrouper": KARTA_KIND,
    "KnativeGrouper": _entry("serving.knative.dev", "v1", "Service"),
    "KubeflowDistributedGrouper": Kind(
        group="",
        version=ANY_VERSION,
        kind="",
        minimum=("spec.runPolicy.schedulingPolicy.minAvailable",),
        replicas="spec.xReplicaSpecs",
    ),
    "LwsGrouper": _entry("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    "MpiGrouper": _entry("kubeflow.org", "v1", "MPIJob"),
    "NotebookGrouper": _entry("kubeflow.org", "v1beta1", "Notebook"),
    "PodJobGrouper": _entry("", "v1", "Pod"),
    "PyTorchGrouper": _entry("kubeflow.org", "v1", "PyTorchJob"),
    "RayClusterGrouper": _entry("ray.io", "v1", "RayCluster"),
    "RayJobGrouper": _entry("ray.io", "v1", "RayJob"),
    "RayServiceGrouper": _entry("ray.io", "v1", "RayService"),
    "RunaiJobGrouper": _entry("run.ai", "v1", "RunaiJob"),
    "SparkGrouper": Kind(group="", version=ANY_VERSION, kind="", rule=spark),
    "SpotRequestGrouper": _entry("egx.nvidia.io", "v1", "SPOTRequest"),
    "TensorFlowGrouper": _entry("kubeflow.org", "v1", "TFJob"),
    "XGBoostGrouper": _entry("kubeflow.org", "v1", "XGBoostJob"),
    "skipTopOwnerGrouper": Kind(group="", version=ANY_VERSION, kind="", passed_over=True),
}
"""The table's entry behind each grouper that a record may name; any other is one that has the default rule."""


def run_grouper(given: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Group the pod of one record, in a cluster where every class that is named exists."""
    return run_recorded(given, rules, None)


def run_recorded(
    given: dict[str, Any], rules: Rules, output: dict[str, Any] | None, *, untold: bool = False
) -> dict[str, Any]:
    """Group the pod of one record, in the cluster that its outcome proves was there; see `recorded_cluster`."""
    del rules
    entry = _ENTRIES.get(given["grouper"], DEFAULT_KIND)
    cluster = cluster_of(given, output, entry.default_class, untold=untold)
    pod = Thing(given["pod"])
    owners = tuple(Thing(given[key]) for key in ("owner",) if key in given)
    if entry.passed_over:
        # The suite's own table below the one passed over holds nothing but the default rule.
        below = next((Thing(raw) for raw in given.get("fetched", [])), pod)
        owners, entry = (handed_down(owners[0], below, cluster),), DEFAULT_KIND
    try:
        return _output(group_by(entry, pod, owners, cluster))
    except GrouperError:
        return {"error": True}


def _output(spec: PodGroupSpec) -> dict[str, Any]:
    output: dict[str, Any] = {
        "annotations": spec.annotations,
        "error": False,
        "labels": spec.labels,
        "min_available": spec.min_available,
        "name": spec.name,
        "namespace": spec.namespace,
        "owner": {
            "apiVersion": spec.owner.api_version,
            "kind": spec.owner.kind,
            "name": spec.owner.name,
            "uid": spec.owner.uid,
        },
        "preemptibility": spec.preemptibility,
        "priority_class": spec.priority_class,
        "queue": spec.queue,
    }
    if spec.min_sub_group is not None:
        output["min_sub_group"] = spec.min_sub_group
    if spec.sub_groups:
        output["sub_groups"] = [_sub_group(group) for group in spec.sub_groups]
    return output | _topology(spec.topology)


def _sub_group(group: SubGroupSpec) -> dict[str, Any]:
    output: dict[str, Any] = {"min_available": group.min_available, "name": group.name}
    if group.min_sub_group is not None:
        output["min_sub_group"] = group.min_sub_group
    if group.parent:
        output["parent"] = group.parent
    if group.pods:
        output["pods"] = list(group.pods)
    return output | _topology(group.topology)


def _topology(asked: TopologyConstraint | None) -> dict[str, Any]:
    if asked is None:
        return {}
    return {
        "topology": {"preferred": asked.preferred, "required": asked.required, "topology": asked.topology}
    }


def run_webhook(given: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Check one PodGroup, or admit it where the record is about its creation or update."""
    del rules
    operation, spec = given["operation"], given["spec"]
    if operation in {"create", "update"}:
        admission = admit(spec, update=operation == "update")
        return {"allowed": admission.allowed, "warnings": len(admission.warnings)}
    return _checked(check_spec(spec) if operation == "validate_spec" else check_sub_groups(spec))


def _checked(checked: Checked) -> dict[str, Any]:
    return {
        "min_definition_errors": [str(problem.finding) for problem in checked.minimums],
        "structural_error": "" if checked.structure is None else str(checked.structure.finding),
    }


def run_gpu_request(given: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Say whether a pod's GPU request is taken."""
    del rules
    return {"valid": why_not_valid(given) is None}


RUNNERS: dict[str, Callable[[dict[str, Any], Rules], Any]] = {
    "fn-pod-grouper": run_grouper,
    "fn-podgroup-webhook": run_webhook,
    "fn-gpu-request-validation": run_gpu_request,
}
"""What runs the records of a file, by the file's stem: the record's input -> the recorded kind of output."""

RECORDED: dict[str, Callable[..., Any]] = {"fn-pod-grouper": run_recorded}
"""What runs the records that leave out the cluster behind them: it is read off the outcome, see `recorded_cluster`."""
