"""Kubeflow's training jobs: members counted from replica specs, PyTorch's segments, MPI's late launcher. Pure.

Source: KAI Scheduler's kubeflow groupers (v0.17), Kubeflow training-operator v1.
"""

from collections.abc import Sequence

from controller.scheduler.grouper.asked import MAX_SUB_GROUPS, Asked
from controller.scheduler.grouper.defaults import TOPOLOGY
from controller.scheduler.grouper.fields import GrouperError, Reader, whole_text
from controller.scheduler.grouper.spec import PodGroupSpec, SubGroupSpec, changed
from controller.scheduler.model import TopologyConstraint

REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
SEGMENT_SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
SEGMENT_PREFERRED = "kai.scheduler/segment-topology-preferred-placement"

PYTORCH_REPLICAS = "spec.pytorchReplicaSpecs"
MPI_REPLICAS = "spec.mpiReplicaSpecs"


def count_replicas(read: Reader, path: str, required: Sequence[str]) -> int:
    """Sum the replicas of every replica type. Raises `GrouperError` for a missing type, and for a type of no replicas."""
    types = read.mapping(path)
    if types is None:
        raise read.wrong(path, None, "an object with the replica types")
    for name in required:
        if name not in types:
            raise read.wrong(
                f"{path}.{name}", None, f"a replica type: this kind needs {' and '.join(required)}"
            )
    if not types:
        raise read.wrong(path, types, "an object with at least one replica type")
    return sum(read.part(path).part(name).needed_whole("replicas", 1) for name in types)


def pytorch(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Give a PyTorchJob its subgroups: master, and workers in one piece or in segments that lie close together."""
    replicas = asked.owner.read.part(PYTORCH_REPLICAS)
    role = asked.pod.labels.get(REPLICA_TYPE)
    masters = replicas.whole("Master.replicas") or 0
    groups: list[SubGroupSpec] = []
    if masters:
        groups.append(
            SubGroupSpec(name="master", min_available=masters, pods=asked.pods_if(role == "master"))
        )
    if replicas.mapping("Worker") is not None:
        groups += _workers(asked, replicas.part("Worker"), max(0, spec.min_available - masters))
    return changed(spec, sub_groups=tuple(groups))


def _workers(asked: Asked, worker: Reader, minimum: int) -> list[SubGroupSpec]:
    is_worker = asked.pod.labels.get(REPLICA_TYPE) == "worker"
    size = _segment_size(asked, worker)
    if size is None:
        return [SubGroupSpec(name="worker", min_available=minimum, pods=asked.pods_if(is_worker))]
    count = worker.whole("replicas")
    count = 1 if count is None else count
    segments = -(-count // size)
    if segments > MAX_SUB_GROUPS:
        raise worker.wrong("replicas", count, f"at most {MAX_SUB_GROUPS} segments of {size}")
    mine = _index(asked) // size if is_worker else -1
    topology = segment_topology(asked, worker, "template.metadata")
    groups = [SubGroupSpec(name="worker", min_sub_group=segments)]
    for segment in range(segments):
        first = segment * size
        groups.append(
            SubGroupSpec(
                name=f"worker-{segment}",
                min_available=max(0, min(size, count - first, minimum - first)),
                parent="worker",
                topology=topology,
                pods=asked.pods_if(segment == mine),
            )
        )
    return groups


def _segment_size(asked: Asked, worker: Reader) -> int | None:
    on_pod = asked.pod.annotations.get(SEGMENT_SIZE)
    if on_pod:
        return whole_text(str(asked.pod), SEGMENT_SIZE, on_pod, 1)
    in_template = worker.annotation("template.metadata", SEGMENT_SIZE)
    return whole_text(worker.where, SEGMENT_SIZE, in_template, 1) if in_template else None


def _index(asked: Asked) -> int:
    index = asked.pod.whole_mark(asked.pod.labels, REPLICA_INDEX, 0)
    if index is None:
        raise GrouperError(str(asked.pod), REPLICA_INDEX, None, "the number of this worker")
    return index


def segment_topology(asked: Asked, template: Reader, metadata: str) -> TopologyConstraint | None:
    """Return where each segment must lie: the pod's word, else its template's; the topology may be named by the owner."""

    def said(key: str) -> str:
        return asked.pod.annotations.get(key) or template.annotation(metadata, key)

    required, preferred = said(SEGMENT_REQUIRED), said(SEGMENT_PREFERRED)
    topology = said(TOPOLOGY) or asked.owner.annotations.get(TOPOLOGY, "")
    if not topology or not (required or preferred):
        return None
    return TopologyConstraint(topology=topology, required=required, preferred=preferred)


def mpi(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Leave the launcher out of an MPIJob's minimum for as long as the job waits for its workers first."""
    if asked.owner.read.text("spec.launcherCreationPolicy") != "WaitForWorkersReady":
        return spec
    for pod in asked.cluster.every("", "Pod", asked.owner.namespace):
        is_launcher = pod.labels.get(JOB_ROLE) == "launcher" and pod.labels.get(JOB_NAME) == asked.owner.name
        if is_launcher and pod.read.value("metadata.deletionTimestamp") is None:
            return spec
    launchers = asked.owner.read.needed_whole(f"{MPI_REPLICAS}.Launcher.replicas", 1)
    return changed(spec, min_available=max(0, spec.min_available - launchers))
