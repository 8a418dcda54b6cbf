"""Kinds with one deviation each: pods on their own, Spark, Knative, batch and Run:ai jobs, CronJobs. Pure.

Source: KAI Scheduler's groupers of the same kinds (v0.17).
"""

from controller.scheduler.grouper.asked import Asked
from controller.scheduler.grouper.defaults import (
    annotations_of,
    group_name,
    labels_of,
    owner_of,
    priority_class_of,
    queue_of,
)
from controller.scheduler.grouper.fields import GrouperError, Thing
from controller.scheduler.grouper.jobset import MIN_MEMBER
from controller.scheduler.grouper.spec import PodGroupSpec, changed

SPARK_APP = "spark-app-name"
SPARK_SELECTOR = "spark-app-selector"
REVISION = "serving.knative.dev/revision"
MIN_SCALE = "autoscaling.knative.dev/min-scale"
POD_GROUP = "pod-group-name"


def pod_alone(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Group a pod without owner; the pods of a Spark application share the group that their selector names."""
    labels = asked.pod.labels
    return spark(asked, spec) if SPARK_APP in labels and SPARK_SELECTOR in labels else spec


def spark(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Name the group after the Spark application."""
    return changed(spec, name=asked.pod.labels.get(SPARK_SELECTOR, spec.name))


def per_pod(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Make a group of its own for the pod: its siblings may start, and be evicted, one by one."""
    return changed(spec, owner=owner_of(asked.pod), name=group_name(asked.pod.name, asked.pod.uid))


def batch_job(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Keep the group for each pod that an older version made; else one group for the Job, with the minimum it asks for."""
    old = group_name(asked.pod.name, asked.owner.uid)
    if old != spec.name and asked.cluster.pod_group(asked.pod.namespace, old) is not None:
        return changed(spec, name=old)
    return changed(spec, min_available=asked.owner.whole_mark(asked.owner.annotations, MIN_MEMBER, 1) or 1)


def runai_job(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Name the group after the pod less its last part; keep the group that an older version made."""
    try:
        is_parallel = (asked.owner.read.whole("spec.parallelism") or 0) > 1
    except GrouperError:
        is_parallel = False
    old = group_name(asked.pod.name if is_parallel else asked.owner.name, asked.owner.uid)
    if asked.cluster.pod_group(asked.pod.namespace, old) is not None:
        return changed(spec, name=old)
    return changed(
        spec, name=group_name(asked.pod.name.rpartition("-")[0] or asked.pod.name, asked.owner.uid)
    )


def cron_job(asked: Asked, _spec: PodGroupSpec) -> PodGroupSpec:
    """Group by the Job that the CronJob made for this run."""
    for reference in asked.pod.read.parts("metadata.ownerReferences"):
        if reference.text("kind") == "Job":
            name = reference.needed_text("name")
            job = asked.cluster.get("batch", "Job", asked.pod.namespace, name)
            if job is None:
                raise reference.wrong("name", name, "the name of a Job that is there")
            return asked.by_default(job)
    raise asked.pod.read.wrong("metadata.ownerReferences", None, "a list with the CronJob's Job")


def knative(asked: Asked, _spec: PodGroupSpec) -> PodGroupSpec:
    """Group by the Revision, with its min-scale as minimum; pod by pod where that is wished, or was begun so."""
    name = asked.pod.labels.get(REVISION)
    if name is None:
        raise GrouperError(str(asked.pod), f"label {REVISION}", None, "set by Knative")
    revision = asked.cluster.get("serving.knative.dev", "Revision", asked.pod.namespace, name)
    if revision is None:
        raise GrouperError(
            str(asked.pod), f"label {REVISION}", name, "the name of a Revision that is there", missing=True
        )
    spec = PodGroupSpec(
        name=group_name(revision.name, revision.uid),
        namespace=revision.namespace,
        owner=owner_of(revision),
        queue=queue_of(asked.pod, revision, asked.cluster),
        priority_class=asked.default_class,
        labels=labels_of(asked.pod, revision),
        annotations=annotations_of(asked.pod, revision),
    )
    if not asked.cluster.terms.gang_knative or _was_begun_pod_by_pod(asked, revision):
        return changed(per_pod(asked, spec), namespace=asked.pod.namespace)
    try:
        minimum = revision.whole_mark(revision.annotations, MIN_SCALE, 0)
    except GrouperError:
        minimum = None
    named = priority_class_of(asked.pod, (revision,), asked.cluster, asked.default_class)
    return changed(spec, min_available=1 if minimum is None else minimum, priority_class=named)


def _was_begun_pod_by_pod(asked: Asked, revision: Thing) -> bool:
    """Whether pods of this Revision have groups of their own already. Two pods of one group prove the opposite."""
    groups: set[str] = set()
    for pod in asked.cluster.every("", "Pod", revision.namespace):
        group = pod.annotations.get(POD_GROUP)
        if pod.labels.get(REVISION) != revision.name or group is None:
            continue
        if group in groups:
            return False
        groups.add(group)
    if len(groups) != 1:
        return len(groups) > 1
    (name,) = groups
    existing = asked.cluster.pod_group(revision.namespace, name)
    if existing is None:
        return False
    kinds = [reference.text("kind") for reference in existing.read.parts("metadata.ownerReferences")]
    if not kinds or kinds[0] not in {"Pod", revision.kind}:
        raise existing.read.wrong("metadata.ownerReferences", kinds, f"owned by a Pod or a {revision.kind}")
    return kinds[0] == "Pod"
