"""Workloads that cannot be grouped: one error says which object, field and value, and what would be right."""

from collections.abc import Callable

import pytest

from controller.scheduler.grouper.fields import GrouperError
from controller.scheduler.grouper.spec import PodGroupSpec
from tests.scheduler.grouper_words import (
    JOBSET,
    WORKER,
    clique,
    cut,
    grouped,
    grove,
    jobset,
    lws,
    member,
    pack,
    pod,
    ray_parts,
    template,
    thing,
    training,
)

Refused = tuple[Callable[[], PodGroupSpec], tuple[str, ...]]
REFUSED: dict[str, Refused] = {
    "a job without replicas": (
        lambda: grouped(pod(), training("TFJob", "tfReplicaSpecs", Worker=0)),
        ("TFJob team/w", "spec.tfReplicaSpecs.Worker.replicas", "0", "at least 1"),
    ),
    "a job without replica specs": (
        lambda: grouped(pod(), thing("kubeflow.org/v1", "TFJob")),
        ("spec.tfReplicaSpecs", "not set"),
    ),
    "a replica type that is needed": (
        lambda: grouped(pod(), training("MPIJob", "mpiReplicaSpecs", Worker=2)),
        ("spec.mpiReplicaSpecs.Launcher", "Launcher and Worker"),
    ),
    "a count in letters": (
        lambda: grouped(
            pod(), thing("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": {"Worker": {"replicas": "two"}}})
        ),
        ("'two'", "whole number"),
    ),
    "specs that are a list": (
        lambda: grouped(pod(), thing("kubeflow.org/v1", "JAXJob", {"jaxReplicaSpecs": []})),
        ("spec.jaxReplicaSpecs", "[]", "an object"),
    ),
    "a segment size of 0": (
        lambda: grouped(
            pod(labels=WORKER, notes={"kai.scheduler/segment-size": "0"}),
            training("PyTorchJob", "pytorchReplicaSpecs", Worker=2),
        ),
        ("kai.scheduler/segment-size", "'0'", "at least 1"),
    ),
    "too many segments": (
        lambda: grouped(
            pod(labels=WORKER, notes={"kai.scheduler/segment-size": "1"}),
            training("PyTorchJob", "pytorchReplicaSpecs", Worker=10_001),
        ),
        ("10001", "at most 10000"),
    ),
    "a worker without its number": (
        lambda: grouped(
            pod(
                labels={"training.kubeflow.org/replica-type": "worker"},
                notes={"kai.scheduler/segment-size": "1"},
            ),
            training("PyTorchJob", "pytorchReplicaSpecs", Worker=2),
        ),
        ("Pod team/p", "replica-index"),
    ),
    "a JobSet of nothing": (
        lambda: grouped(pod(), thing("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": []})),
        ("spec.replicatedJobs", "at least one"),
    ),
    "a replica that the JobSet has not": (
        lambda: grouped(pod(labels=JOBSET | {"jobset.sigs.k8s.io/job-index": "7"}), jobset()),
        ("sim-replica-7",),
    ),
    "a minimum of 0": (
        lambda: grouped(pod(), thing("batch/v1", "Job", notes={"kai.scheduler/batch-min-member": "0"})),
        ("kai.scheduler/batch-min-member", "'0'", "at least 1"),
    ),
    "a set of unknown policy": (
        lambda: grouped(pod(), lws(2, "WhenReady")),
        ("spec.startupPolicy", "'WhenReady'", "LeaderCreated or LeaderReady"),
    ),
    "a worker below 0": (lambda: grouped(pod(labels=member(-1)), lws(2)), ("worker-index", "'-1'")),
    "a worker that the set has not": (
        lambda: grouped(pod(labels=member(9)), lws(5, subGroupPolicy=cut(2))),
        ("worker-index", "9", "below the group's size of 5"),
    ),
    "segments that leave the leader out and do not come out even": (
        lambda: grouped(pod(labels=member(1)), lws(4, subGroupPolicy=cut(2, "LeaderExcluded"))),
        ("size", "4", "multiple of 2"),
    ),
    "a segment larger than the group": (
        lambda: grouped(pod(labels=member(1)), lws(4, subGroupPolicy=cut(5))),
        ("subGroupSize", "5", "from 2 to"),
    ),
    "fewer Ray workers than their minimum": (
        lambda: ray_parts({"replicas": 1, "minReplicas": 2}),
        ("spec.workerGroupSpecs[0].minReplicas", "at most replicas (1)"),
    ),
    "a Ray level without its topology": (
        lambda: ray_parts(head={"template": template(topology_required_placement="rack")}),
        ("spec.headGroupSpec.", "kai.scheduler/topology"),
    ),
    "an AML job that does not count": (
        lambda: grouped(pod(), thing("amlarc.azureml.com/v1alpha1", "AmlJob")),
        ("AZUREML_NODE_COUNT", "not set"),
    ),
    "a Grove level without its topology": (
        lambda: grove({"podgroups": [clique("a", 1, **pack(required="rack"))]}),
        ("grove.io/topology-name", "not set"),
    ),
    "a clique of another namespace": (
        lambda: grove({"podgroups": [clique("a", 1, podReferences=[{"namespace": "them", "name": "x"}])]}),
        ("spec.podgroups[0].podReferences[0].namespace", "'them'", "team"),
    ),
    "a pod whose gang is not named": (
        lambda: grouped(pod(), thing("grove.io/v1alpha1", "PodCliqueSet")),
        ("grove.io/podgang",),
    ),
    "a Knative pod of no revision": (
        lambda: grouped(pod(), thing("serving.knative.dev/v1", "Service")),
        ("serving.knative.dev/revision",),
    ),
}


@pytest.mark.parametrize(("asked", "said"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_named(asked: Callable[[], PodGroupSpec], said: tuple[str, ...]) -> None:
    """One error that says which object, which field, which value, and what would be right."""
    with pytest.raises(GrouperError) as caught:
        asked()
    for part in (*said, "must be"):
        assert part in str(caught.value)
