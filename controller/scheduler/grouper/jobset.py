"""JobSet: a subgroup for each replicated job, and in it one for each replica. Pure.

Source: KAI Scheduler's jobset grouper (v0.17), JobSet v1alpha2. Groups made flat by older versions stay as they are.
"""

from controller.scheduler.grouper.asked import MAX_SUB_GROUPS, Asked
from controller.scheduler.grouper.defaults import group_name, template_topology
from controller.scheduler.grouper.fields import GrouperError, Reader, whole_text
from controller.scheduler.grouper.spec import PodGroupSpec, SubGroupSpec, changed, with_pods

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
MIN_MEMBER = "kai.scheduler/batch-min-member"


def jobset(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Group a JobSet. In order: one replicated job is enough to start, as the next one is only created then."""
    owner = asked.owner
    if not owner.name or not owner.uid:
        raise GrouperError(str(owner), "metadata.uid", owner.uid, "set, together with metadata.name")
    jobs = list(owner.read.parts("spec.replicatedJobs"))
    if not jobs:
        raise owner.read.wrong("spec.replicatedJobs", [], "a list with at least one replicated job")
    in_order = owner.read.text("spec.startupPolicy.startupPolicyOrder") == "InOrder"
    minimum = owner.whole_mark(owner.annotations, MIN_MEMBER, 1)
    if _is_flat_already(asked):
        name = f"{spec.name}-{_label(asked, REPLICATED_JOB)}" if in_order else spec.name
        return changed(spec, name=name, min_available=minimum or 1)
    groups: list[SubGroupSpec] = []
    for job in jobs:
        groups += _replicated_job(job)
        if len(groups) > MAX_SUB_GROUPS:
            raise job.wrong(
                "replicas", job.value("replicas"), f"at most {MAX_SUB_GROUPS} replicas in a JobSet"
            )
    leaf = f"{_label(asked, REPLICATED_JOB)}-replica-{_label(asked, JOB_INDEX)}"
    if all(group.name != leaf for group in groups):
        raise GrouperError(str(asked.pod), JOB_INDEX, leaf, "one of the replicas that the JobSet has")
    return changed(
        spec,
        min_available=0,
        min_sub_group=min(minimum or len(jobs), len(jobs)) if minimum or not in_order else 1,
        sub_groups=tuple(
            with_pods(group, (asked.pod.name,)) if group.name == leaf else group for group in groups
        ),
    )


def _is_flat_already(asked: Asked) -> bool:
    """Whether an older version made this JobSet's group without subgroups: what runs must not change its group."""
    name = group_name(asked.owner.name, asked.owner.uid)
    return any(
        (group.name == name or group.name.startswith(f"{name}-")) and not group.read.items("spec.subGroups")
        for group in asked.cluster.every("scheduling.run.ai", "PodGroup", asked.owner.namespace)
    )


def _replicated_job(job: Reader) -> list[SubGroupSpec]:
    name = job.needed_text("name")
    replicas = job.whole("replicas")
    replicas = 1 if replicas is None else replicas
    if replicas > MAX_SUB_GROUPS:
        raise job.wrong("replicas", replicas, f"at most {MAX_SUB_GROUPS}")
    said = job.annotation("template.metadata", MIN_MEMBER)
    if said:
        members = whole_text(job.where, f"{job.prefix}template.metadata.annotations[{MIN_MEMBER}]", said, 1)
    else:
        parallelism = job.whole("template.spec.parallelism")
        members = 1 if parallelism is None else parallelism
    topology = template_topology(job)
    leaves = [
        SubGroupSpec(name=f"{name}-replica-{index}", min_available=members, parent=name, topology=topology)
        for index in range(replicas)
    ]
    return [SubGroupSpec(name=name, min_sub_group=replicas), *leaves]


def _label(asked: Asked, key: str) -> str:
    found = asked.pod.labels.get(key, "")
    if not found:
        raise GrouperError(str(asked.pod), f"label {key}", None, "set by the JobSet controller")
    return found
