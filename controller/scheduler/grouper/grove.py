"""Grove: the PodGang that Grove made for the pod says all: a leaf for each pod clique, parents from topology groups. Pure.

Source: KAI Scheduler's grove grouper (v0.17), Grove scheduler API v1alpha1.
"""

from controller.scheduler.grouper.asked import Asked
from controller.scheduler.grouper.defaults import (
    PREEMPTIBILITIES,
    PREEMPTIBILITY_LABEL,
    PRIORITY_LABEL,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from controller.scheduler.grouper.fields import GrouperError, Reader, Thing
from controller.scheduler.grouper.spec import PodGroupSpec, SubGroupSpec, changed
from controller.scheduler.model import TopologyConstraint

POD_GANG = "grove.io/podgang"
GROVE_TOPOLOGY = "grove.io/topology-name"


def grove(asked: Asked, _spec: PodGroupSpec) -> PodGroupSpec:
    """Group by the PodGang that the pod's label names; the top owner's labels and annotations fill what it lacks."""
    gang = _gang(asked)
    spec = asked.by_default(gang)
    topology = gang.annotations.get(GROVE_TOPOLOGY, gang.annotations.get(TOPOLOGY, ""))
    above = asked.owners[-1] if asked.owners else gang
    labels = above.labels | spec.labels
    annotations = above.annotations | spec.annotations
    groups, parents = _topology_groups(gang.read, topology)
    leaves = [_clique(part, gang, topology, parents) for part in gang.read.parts("spec.podgroups")]
    return changed(
        spec,
        labels=labels,
        annotations=annotations,
        priority_class=labels.get(PRIORITY_LABEL)
        or gang.read.text("spec.priorityClassName")
        or spec.priority_class,
        preemptibility=_preemptibility(gang, labels) or spec.preemptibility,
        topology=_whole_topology(gang.read, topology, spec.topology, annotations),
        min_available=sum(leaf.min_available for leaf in leaves),
        sub_groups=(*groups, *leaves),
    )


def _gang(asked: Asked) -> Thing:
    name = asked.pod.labels.get(POD_GANG)
    if name is None:
        raise GrouperError(str(asked.pod), f"label {POD_GANG}", None, "set by Grove")
    gang = asked.cluster.get("scheduler.grove.io", "PodGang", asked.pod.namespace, name)
    if gang is None:
        raise GrouperError(
            str(asked.pod), f"label {POD_GANG}", name, "the name of a PodGang that is there", missing=True
        )
    return gang


def _preemptibility(gang: Thing, labels: dict[str, str]) -> str:
    said = labels.get(PREEMPTIBILITY_LABEL)
    if said is not None and said not in PREEMPTIBILITIES:
        raise GrouperError(str(gang), PREEMPTIBILITY_LABEL, said, " or ".join(PREEMPTIBILITIES))
    return said or ""


def _whole_topology(
    gang: Reader, topology: str, by_default: TopologyConstraint | None, annotations: dict[str, str]
) -> TopologyConstraint | None:
    found = _pack(gang.part("spec"), topology) or by_default or TopologyConstraint(topology="")
    filled = TopologyConstraint(
        topology=found.topology or annotations.get(TOPOLOGY, ""),
        required=found.required or annotations.get(TOPOLOGY_REQUIRED, ""),
        preferred=found.preferred or annotations.get(TOPOLOGY_PREFERRED, ""),
    )
    return filled if filled.topology or filled.required or filled.preferred else None


def _pack(part: Reader, topology: str) -> TopologyConstraint | None:
    """Return the constraint that a part of the PodGang has. Raises `GrouperError` where no topology is named for it."""
    required = part.text("topologyConstraint.packConstraint.required")
    preferred = part.text("topologyConstraint.packConstraint.preferred")
    if required is None and preferred is None:
        return None
    if not topology:
        raise GrouperError(
            part.where,
            f"annotation {GROVE_TOPOLOGY}",
            None,
            "the Topology that its topology constraints are about",
        )
    return TopologyConstraint(topology=topology, required=required or "", preferred=preferred or "")


def _topology_groups(gang: Reader, topology: str) -> tuple[list[SubGroupSpec], dict[str, str]]:
    groups: list[SubGroupSpec] = []
    parents: dict[str, str] = {}
    for config in gang.parts("spec.topologyConstraintGroupConfigs"):
        if config.text("name") is None:
            raise config.wrong("name", None, "a string")
        name, members = config.text("name") or "", config.texts("podGroupNames")
        if members:
            parents |= dict.fromkeys(members, name)
            groups.append(
                SubGroupSpec(name=name, min_sub_group=len(members), topology=_pack(config, topology))
            )
    return groups, parents


def _clique(part: Reader, gang: Thing, topology: str, parents: dict[str, str]) -> SubGroupSpec:
    name = part.needed_text("name")
    minimum = part.needed_whole("minReplicas", 1)
    if part.items("podReferences") is None:
        raise part.wrong("podReferences", None, "a list of pods")
    pods = []
    for reference in part.parts("podReferences"):
        namespace = reference.text("namespace")
        if namespace != gang.namespace:
            raise reference.wrong("namespace", namespace, f"the PodGang's own, {gang.namespace}")
        pods.append(reference.needed_text("name"))
    return SubGroupSpec(
        name=name,
        min_available=minimum,
        parent=parents.get(name, ""),
        topology=_pack(part, topology),
        pods=tuple(pods),
    )
