"""From a pod up to its top owner, what a group that is there already keeps, and which pods are left alone. Pure."""

from typing import Any

from controller.scheduler.grouper.fields import GrouperError, Reader, Thing
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, changed
from controller.scheduler.model import TopologyConstraint

SKIP = "kai.scheduler/skip-podgrouper"


def is_left_alone(pod: dict[str, Any]) -> bool:
    """Whether the pod's owner groups it by itself, and says so."""
    return SKIP in Thing(pod).annotations


def owner_chain(pod: dict[str, Any], cluster: Cluster) -> list[dict[str, Any]]:
    """Return a pod's owners, nearest first, as `group_of` takes them. Of a pod's own references the first one counts.

    Raises `GrouperError` for an owner that is not there (`missing`) or is another object of that name, for an owner with
    several owners, and for owners in a circle.
    """
    chain: list[dict[str, Any]] = []
    at = Thing(pod)
    namespace = at.namespace
    seen: set[str] = set()
    while references := list(at.read.parts("metadata.ownerReferences")):
        if chain and len(references) > 1:
            raise at.read.wrong("metadata.ownerReferences", len(references), "one owner at most")
        at = _owner(references[0], namespace, cluster)
        if at.uid in seen:
            raise at.read.wrong("metadata.ownerReferences", at.uid, "without a circle")
        seen.add(at.uid)
        chain.append(at.raw)
    return chain


def _owner(reference: Reader, namespace: str, cluster: Cluster) -> Thing:
    group, slash, _ = (reference.text("apiVersion") or "").partition("/")
    kind, name, uid = (
        reference.needed_text("kind"),
        reference.needed_text("name"),
        reference.text("uid") or "",
    )
    for place in (namespace, ""):
        owner = cluster.get(group if slash else "", kind, place, name)
        if owner is not None and owner.uid == uid:
            return owner
    raise GrouperError(
        reference.where,
        f"{reference.prefix}name",
        name,
        f"a {kind} that is there, with UID {uid}",
        missing=True,
    )


def kept(spec: PodGroupSpec, existing: dict[str, Any]) -> PodGroupSpec:
    """Return what a group becomes that is there already: an administrator's word on queue and topology stays.

    As KAI Scheduler updates: its queue is kept, and its topology where the workload asks for none.
    """
    read = Thing(existing).read
    asked = TopologyConstraint(
        topology=read.text("spec.topologyConstraint.topology") or "",
        required=read.text("spec.topologyConstraint.requiredTopologyLevel") or "",
        preferred=read.text("spec.topologyConstraint.preferredTopologyLevel") or "",
    )
    topology = asked if asked.topology or asked.required or asked.preferred else None
    return changed(spec, queue=read.text("spec.queue") or spec.queue, topology=spec.topology or topology)
