"""Karta: a cluster's own definitions of kinds, read as data: components, their scale, and how they form a group. Pure.

Source: KAI Scheduler's karta grouper (v0.17), Karta (run.ai/v1alpha1). Of its jq paths the plain ones are read:
`.spec.worker.replicas`, `.metadata.labels["job-name"]`.
"""

import re

from controller.scheduler.grouper.asked import Asked
from controller.scheduler.grouper.defaults import topology_of
from controller.scheduler.grouper.fields import GrouperError, Reader, Thing
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, SubGroupSpec, changed
from controller.scheduler.model import TopologyConstraint

_TOKEN = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*)|\.?\[\"([^\"]+)\"\]")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_GANG = "spec.instructions.gangScheduling"
_STRUCTURE = "spec.structureDefinition"


class Component:
    """One component of a workload: where its replica count stands, how its pods are told, and its children."""

    __slots__ = ("children", "name", "read")

    def __init__(self, read: Reader) -> None:
        self.read = read
        self.name = read.needed_text("name")
        self.children: list[Component] = []

    def scale(self, workload: Thing) -> int:
        """Return how many pods this component has in all."""
        path = self.read.text("scaleDefinition.replicasPath")
        own = 1
        if path is not None:
            found = value_at(workload.raw, path)
            if isinstance(found, bool) or not isinstance(found, int) or found < 0:
                raise GrouperError(str(workload), path, found, f"the replica count of {self.name}")
            own = found
        return own * (sum(child.scale(workload) for child in self.children) if self.children else 1)

    def is_own(self, pod: Thing) -> bool:
        """Whether the pod is one of this component's, or of one below it."""
        selector = self.read.part("podSelector.componentTypeSelector")
        path = selector.text("keyPath")
        if path is not None:
            found, wanted = value_at(pod.raw, path), selector.text("value")
            if found is not None and (wanted is None or found == wanted):
                return True
        return any(child.is_own(pod) for child in self.children)


def value_at(raw: object, path: str) -> object:
    """Follow a plain jq path; None where it leads nowhere, or is none of the plain ones."""
    found, at = raw, 0
    while at < len(path):
        token = _TOKEN.match(path, at)
        if token is None or not isinstance(found, dict):
            return None
        found = found.get(token[1] or token[2])
        at = token.end()
    return found


def definition_of(owner: Thing, cluster: Cluster) -> Thing | None:
    """Return the Karta that defines the owner's kind and says how to group it."""
    for karta in cluster.every("run.ai", "Karta", ""):
        root = karta.read.part(f"{_STRUCTURE}.rootComponent.kind")
        if (root.text("group") or "", root.text("version"), root.text("kind")) == (
            owner.group,
            owner.version,
            owner.kind,
        ):
            return karta if karta.read.mapping(_GANG) is not None else None
    return None


def karta(asked: Asked, spec: PodGroupSpec) -> PodGroupSpec:
    """Group by the cluster's own definition of the kind."""
    definition = definition_of(asked.owner, asked.cluster)
    if definition is None:
        return spec
    components = _components(definition)
    if definition.read.mapping(f"{_GANG}.podGroup") is not None:
        return _one_group(asked, spec, definition.read.part(f"{_GANG}.podGroup"), components)
    return _by_member(asked, spec, definition, components)


def _components(definition: Thing) -> dict[str, Component]:
    """Read the components, the root first. A component whose owner is unknown hangs below nothing."""
    root = Component(definition.read.part(f"{_STRUCTURE}.rootComponent"))
    found = {root.name: root}
    for part in definition.read.parts(f"{_STRUCTURE}.childComponents"):
        component = Component(part)
        above = found.get(part.text("ownerRef") or root.name)
        if component.name in found or above is None:
            raise part.wrong("name", component.name, "a name of its own, after its owner in the list")
        above.children.append(component)
        found[component.name] = component
    return found


def _one_group(
    asked: Asked, spec: PodGroupSpec, wanted: Reader, components: dict[str, Component]
) -> PodGroupSpec:
    groups = []
    for part in wanted.parts("subGroups"):
        component = _named(part, components)
        members = component.scale(asked.owner)
        if not members:
            raise part.wrong("componentName", component.name, "a component with at least one replica")
        groups.append(
            SubGroupSpec(
                name=component.name,
                min_available=members,
                topology=_topology(part),
                pods=asked.pods_if(component.is_own(asked.pod)),
            )
        )
    root = next(iter(components.values()))
    return changed(
        spec,
        name=f"pg-{asked.owner.uid}-{wanted.needed_text('name')}",
        min_available=0 if groups else root.scale(asked.owner),
        min_sub_group=len(groups) or None,
        sub_groups=tuple(groups),
        topology=_topology(wanted) or topology_of(asked.owner.annotations),
    )


def _by_member(
    asked: Asked, spec: PodGroupSpec, definition: Thing, components: dict[str, Component]
) -> PodGroupSpec:
    for group in definition.read.parts(f"{_GANG}.podGroups"):
        for member in group.parts("members"):
            component = _named(member, components)
            if component.is_own(asked.pod):
                keys = [_key(asked, path) for path in member.texts("groupByKeyPaths")]
                name = "-".join((f"pg-{asked.owner.uid}", *keys))
                if not _DNS_NAME.fullmatch(name):
                    raise GrouperError(str(asked.pod), "the group's name", name, "a DNS subdomain name")
                return changed(spec, name=name, min_available=component.scale(asked.owner))
    raise GrouperError(str(asked.pod), "its component", None, f"one of those that {definition} groups")


def _named(part: Reader, components: dict[str, Component]) -> Component:
    name = part.needed_text("componentName")
    if name not in components:
        raise part.wrong("componentName", name, f"one of {', '.join(components)}")
    return components[name]


def _key(asked: Asked, path: str) -> str:
    found = value_at(asked.pod.raw, path)
    if not isinstance(found, str) or not found:
        raise GrouperError(str(asked.pod), path, found, "a string to group by")
    return found


def _topology(part: Reader) -> TopologyConstraint | None:
    wanted = part.part("topology")
    if not wanted.raw:
        return None
    required, preferred = (
        wanted.text("requiredTopologyLevel") or "",
        wanted.text("preferredTopologyLevel") or "",
    )
    if not (required or preferred):
        raise wanted.wrong("requiredTopologyLevel", None, "set, or preferredTopologyLevel is")
    return TopologyConstraint(
        topology=wanted.needed_text("topologyName"), required=required, preferred=preferred
    )
