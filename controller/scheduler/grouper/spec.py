"""What the grouper is told and what it answers: frozen values, and the objects that it may look at. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from controller.scheduler.grouper.fields import Thing
from controller.scheduler.model import TopologyConstraint
from controller.scheduler.values import Value


class Owner(Value, frozen=True, kw_only=True):
    """Whose the pod group is: the object that its deletion follows."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class SubGroupSpec(Value, frozen=True, kw_only=True):
    """One subgroup, as PodGroup v2alpha2 lists them: flat, with the parent's name ("" = the group itself).

    A leaf has `min_available`, an inner one `min_sub_group`. `pods`: which of the pods asked about belong here, by name.
    """

    name: str
    min_available: int = 0
    min_sub_group: int | None = None
    parent: str = ""
    topology: TopologyConstraint | None = None
    pods: tuple[str, ...] = ()


class PodGroupSpec(Value, frozen=True, kw_only=True):
    """The pod group that a pod belongs to. `preemptibility` "" = derived from the priority, as KAI does.

    `preemption_delay_s` and `staleness_grace_s` None = the scheduler's own; a negative grace = never.
    """

    name: str
    namespace: str = ""
    owner: Owner = Owner()
    queue: str = ""
    priority_class: str = ""
    preemptibility: str = ""
    min_available: int = 1
    min_sub_group: int | None = None
    sub_groups: tuple[SubGroupSpec, ...] = ()
    topology: TopologyConstraint | None = None
    preemption_delay_s: int | None = None
    staleness_grace_s: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    def sub_group_of(self, pod: str) -> str:
        """Name the leaf subgroup of a pod, "" where it has none."""
        return next((group.name for group in self.sub_groups if pod in group.pods), "")


class TypeDefault(Value, frozen=True, kw_only=True):
    """A cluster's own default for one kind (KAI's ConfigMap of defaults); `group` "" stands for every group."""

    kind: str
    group: str = ""
    priority_class: str = ""
    preemptibility: str = ""


class Terms(Value, frozen=True, kw_only=True):
    """How this cluster groups. Names as KAI Scheduler has them. `gang_knative` False: a group for each Knative pod."""

    queue_label: str = "kai.scheduler/queue"
    node_pool_label: str = "kai.scheduler/node-pool"
    default_queue: str = "default-queue"
    gang_knative: bool = True
    type_defaults: tuple[TypeDefault, ...] = ()


class Cluster:
    """The objects that the grouper may look at. `priority_classes` None = every class that is named exists."""

    def __init__(
        self,
        objects: Iterable[Any] = (),
        priority_classes: frozenset[str] | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.terms = Terms() if terms is None else terms
        self.priority_classes = priority_classes
        self._things: dict[tuple[str, str, str], dict[str, Thing]] = {}
        for raw in objects:
            thing = Thing(raw)
            self._things.setdefault((thing.group, thing.kind, thing.namespace), {})[thing.name] = thing

    def get(self, group: str, kind: str, namespace: str, name: str) -> Thing | None:
        """Return one object, in any version."""
        return self._things.get((group, kind, namespace), {}).get(name)

    def every(self, group: str, kind: str, namespace: str) -> list[Thing]:
        """Return the objects of a kind in a namespace, by name."""
        return [thing for _, thing in sorted(self._things.get((group, kind, namespace), {}).items())]

    def pod_group(self, namespace: str, name: str) -> Thing | None:
        """Return a PodGroup that exists already."""
        return self.get("scheduling.run.ai", "PodGroup", namespace, name)

    def has_class(self, name: str) -> bool:
        """Whether a PriorityClass of this name exists."""
        return bool(name) and (self.priority_classes is None or name in self.priority_classes)


def changed(spec: PodGroupSpec, **fields: Any) -> PodGroupSpec:
    """Return the spec with these fields replaced."""
    return msgspec.structs.replace(spec, **fields)


def with_pods(group: SubGroupSpec, pods: tuple[str, ...]) -> SubGroupSpec:
    """Return the subgroup with these pods."""
    return msgspec.structs.replace(group, pods=pods)
