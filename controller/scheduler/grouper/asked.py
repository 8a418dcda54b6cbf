"""One question to the grouper, as the small functions for single kinds get it. Pure."""

from collections.abc import Callable
from typing import TypeAlias

from controller.scheduler.grouper.defaults import default_spec
from controller.scheduler.grouper.fields import Thing
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec

MAX_SUB_GROUPS = 10_000


class Asked:
    """A pod, the owner that decides (its top owner, less those that are passed over), and what is known besides.

    `owners`: nearest first, `owner` last. `default_class`: the kind's own.
    """

    __slots__ = ("cluster", "default_class", "owner", "owners", "pod")

    def __init__(
        self, pod: Thing, owner: Thing, owners: tuple[Thing, ...], cluster: Cluster, default_class: str
    ) -> None:
        self.pod = pod
        self.owner = owner
        self.owners = owners
        self.cluster = cluster
        self.default_class = default_class

    def by_default(self, owner: Thing | None = None) -> PodGroupSpec:
        """Group by the default rule, for another owner than the one that decides if one is given."""
        owner = self.owner if owner is None else owner
        return default_spec(self.pod, owner, (owner,), self.cluster, self.default_class)

    def pods_if(self, mine: bool) -> tuple[str, ...]:
        """Return the pod's name where it belongs here."""
        return (self.pod.name,) if mine else ()


Rule: TypeAlias = Callable[[Asked, PodGroupSpec], PodGroupSpec]
"""A small function for one kind: given what data alone says, it answers the whole."""
