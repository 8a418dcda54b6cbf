"""LeaderWorkerSet: one group for each replica, with a leader and workers, or with segments that lie close together. Pure.

Source: KAI Scheduler's LWS grouper (v0.17), LeaderWorkerSet v1 (subGroupPolicy).
"""

from controller.scheduler.grouper.asked import MAX_SUB_GROUPS, Asked
from controller.scheduler.grouper.fields import GrouperError, whole_text
from controller.scheduler.grouper.kubeflow import SEGMENT_SIZE, segment_topology
from controller.scheduler.grouper.spec import PodGroupSpec, SubGroupSpec, changed, with_pods

SIZE = "leaderworkerset.sigs.k8s.io/size"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"

_TEMPLATE = "spec.leaderWorkerTemplate"


def leader_worker_set(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Group one replica. With LeaderReady only the leader is needed until it has its node: workers come after it."""
    size = asked.owner.read.needed_whole(f"{_TEMPLATE}.size", 1)
    index = asked.pod.whole_mark(asked.pod.labels, WORKER_INDEX, 0)
    policy = asked.owner.read.text("spec.startupPolicy") or "LeaderCreated"
    if policy not in {"LeaderCreated", "LeaderReady"}:
        raise asked.owner.read.wrong("spec.startupPolicy", policy, "LeaderCreated or LeaderReady")
    leader_first = False
    if policy == "LeaderReady":
        size = _said_size(asked, size)
        leader_first = index == 0 and not asked.pod.read.text("spec.nodeName")
    minimum = 1 if leader_first else size
    segment = None if leader_first else _segment_size(asked, size)
    groups = _plain(asked, minimum, index) if segment is None else _segments(asked, size, segment, index)
    name = spec.name
    if GROUP_INDEX in asked.pod.labels:
        name = f"{name}-group-{whole_text(str(asked.pod), GROUP_INDEX, asked.pod.labels[GROUP_INDEX], 0)}"
    return changed(spec, name=name, min_available=minimum, sub_groups=tuple(groups))


def _said_size(asked: Asked, size: int) -> int:
    try:
        return asked.pod.whole_mark(asked.pod.annotations, SIZE, 1) or size
    except GrouperError:
        return size


def _plain(asked: Asked, size: int, index: int | None) -> list[SubGroupSpec]:
    groups = [SubGroupSpec(name="leader", min_available=1, pods=asked.pods_if(index == 0))]
    if size > 1:
        groups.append(SubGroupSpec(name="workers", min_available=size - 1, pods=asked.pods_if(index != 0)))
    return groups


def _segment_size(asked: Asked, size: int) -> int | None:
    owner = asked.owner
    field = f"{_TEMPLATE}.subGroupPolicy.subGroupSize"
    segment = owner.read.whole(field)
    if segment is None:
        field = f"annotation {SEGMENT_SIZE}"
        segment = owner.whole_mark(owner.annotations, SEGMENT_SIZE, 0)
    if segment is None:
        said = owner.read.annotation(f"{_TEMPLATE}.workerTemplate.metadata", SEGMENT_SIZE)
        segment = whole_text(str(owner), SEGMENT_SIZE, said, 0) if said else None
    if segment is not None and not 1 < segment <= size:
        raise owner.read.wrong(field, segment, f"from 2 to the group's size of {size}")
    return segment


def _segments(asked: Asked, size: int, segment: int, index: int | None) -> list[SubGroupSpec]:
    """Cut a replica into segments. Where the workers alone come out even, the leader is one more, in or before the first."""
    read = asked.owner.read
    policy = read.text(f"{_TEMPLATE}.subGroupPolicy.subGroupPolicyType") or "LeaderWorker"
    if policy not in {"LeaderWorker", "LeaderExcluded"}:
        raise read.wrong(
            f"{_TEMPLATE}.subGroupPolicy.subGroupPolicyType", policy, "LeaderWorker or LeaderExcluded"
        )
    even = (size - 1) % segment == 0
    if policy == "LeaderExcluded" and not even:
        raise read.wrong(
            f"{_TEMPLATE}.size", size, f"one more than a multiple of {segment}, as the leader is left out"
        )
    if index is None or index >= size:
        raise GrouperError(str(asked.pod), WORKER_INDEX, index, f"a number below the group's size of {size}")
    count = (size - 1) // segment if even else -(-size // segment)
    if count > MAX_SUB_GROUPS:
        raise read.wrong(f"{_TEMPLATE}.size", size, f"at most {MAX_SUB_GROUPS} segments of {segment}")
    template = read.part(f"{_TEMPLATE}.workerTemplate")
    topology = segment_topology(asked, template, "metadata")
    groups = [
        SubGroupSpec(
            name=f"segment-{at}",
            min_available=segment if even else min(segment, size - at * segment),
            topology=topology,
        )
        for at in range(count)
    ]
    mine = f"segment-{max(0, index - even) // segment}"
    if policy == "LeaderExcluded":
        groups.insert(0, SubGroupSpec(name="leader", min_available=1))
        mine = mine if index else "leader"
    else:
        first = groups[0]
        workers = first.min_available - (0 if even else 1)
        groups[0] = SubGroupSpec(name=first.name, min_sub_group=2, topology=topology)
        groups.append(SubGroupSpec(name="leader", min_available=1, parent=first.name))
        groups.append(SubGroupSpec(name="workers", min_available=workers, parent=first.name))
        if mine == first.name:
            mine = "workers" if index else "leader"
    return [with_pods(group, (asked.pod.name,)) if group.name == mine else group for group in groups]
