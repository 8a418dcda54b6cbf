"""The group of one pod, from what its walk finds: the pure rules, and what a living cluster adds. Shell: it reads."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from controller.scheduler.grouper.fields import GrouperError, Thing
from controller.scheduler.grouper.grouping import group_of
from controller.scheduler.grouper.karta import definition_of
from controller.scheduler.grouper.kinds import find
from controller.scheduler.grouper.owners import owner_chain
from controller.scheduler.grouper.single import per_pod
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, changed
from controller.scheduler.grouper.workload_api import short
from controller.scheduler.shell.live_cluster import Surroundings, Walk, raw_of
from controller.scheduler.shell.memberships import POD_KIND
from kube.types import Pod

_VIEWED: Final = (".metadata.labels", ".metadata.annotations", ".metadata.name")
"""Where our view of a pod is as good as the pod."""


class Ungroupable(Exception):
    """A pod cannot be grouped for want of an object that nobody lets us read. Says which and why."""


class Decided(NamedTuple):
    """`ending`: the top owner is being deleted."""

    spec: PodGroupSpec
    ending: bool


def decide(pod: Pod, around: Surroundings, max_age_s: float) -> Decided:
    """Group a pod.

    Raises: NotRead where something is still to be read, GrouperError, Ungroupable.
    """
    walk = Walk(pod, around, max_age_s)
    try:
        raw = raw_of(pod)
        chain = owner_chain(raw, walk)
        if walk.stub is not None and _needs_the_object(walk.stub):
            raise Ungroupable(f"{walk.stub} decides how many of its pods start together, and {walk.unread}")
        if _looks_into_pods(chain, walk):
            raw = walk.raw_pod(pod)
        spec = group_of(raw, chain, walk)
    except GrouperError as error:
        if walk.unread:
            raise Ungroupable(f"{error} ({walk.unread})") from error
        raise
    return Decided(_as_written(spec, pod, around.terms.node_pool_label), _is_ending(chain))


def _needs_the_object(owner: Thing) -> bool:
    """Whether the rule of its kind reads more than the reference says: a gang must not start in part for want of a right."""
    entry = find(owner.group, owner.version, owner.kind)
    if entry is None:
        return False
    return bool(entry.minimum or entry.replicas) or entry.rule not in (None, per_pod)


def _looks_into_pods(chain: list[dict[str, Any]], cluster: Cluster) -> bool:
    """Whether the cluster's own definition of an owner's kind reads what our view of pods leaves out."""
    for raw in chain:
        owner = Thing(raw)
        if find(owner.group, owner.version, owner.kind) is None:
            definition = definition_of(owner, cluster)
            if definition is not None and any(
                not path.startswith(_VIEWED) for path in _pod_paths(definition.raw)
            ):
                return True
    return False


def _pod_paths(value: Any) -> Iterator[str]:
    """Yield every path of a definition that is about pods."""
    if isinstance(value, list):
        for one in value:
            yield from _pod_paths(one)
    if isinstance(value, dict):
        for key, found in value.items():
            if key == "keyPath" and isinstance(found, str):
                yield found
            elif key == "groupByKeyPaths" and isinstance(found, list):
                yield from (path for path in found if isinstance(path, str))
            else:
                yield from _pod_paths(found)


def _as_written(spec: PodGroupSpec, pod: Pod, pool_label: str) -> PodGroupSpec:
    """Add what a PodGroup has beyond the rules: a name that the server takes, and the pod's node pool."""
    pool = pod.metadata.labels.get(pool_label)
    if pool is not None and pool_label not in spec.labels:
        spec = changed(spec, labels={**spec.labels, pool_label: pool})
    name = short(spec.name)
    return spec if name == spec.name else changed(spec, name=name)


def _is_ending(chain: list[dict[str, Any]]) -> bool:
    if not chain or chain[-1].get("kind") == POD_KIND:
        return False
    return bool(chain[-1].get("metadata", {}).get("deletionTimestamp"))
