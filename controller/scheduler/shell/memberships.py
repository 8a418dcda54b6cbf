"""Which pod is in which group, as the grouper decided it, and what is shown of that. Shell: it is shared by two threads.

The newest member speaks for its group: rules look at the pod too (a gang whose workers come after their leader has another
minimum by then), and with one voice two members can never make each other's writes undone.
"""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from controller.scheduler.grouper.spec import PodGroupSpec, changed, with_pods
from controller.scheduler.shell.group_bodies import body_of
from kube.scheduling import PodGroup
from kube.struct import Struct
from kube.types import Pod

POD_KIND: Final = "Pod"
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Grouped(Struct, frozen=True, kw_only=True):
    """The group of one pod. `group`: namespace/name. `sub_group` "" = none."""

    uid: str
    group: str
    sub_group: str = ""


class GroupView(Struct, frozen=True, kw_only=True):
    """What the grouper decided so far; all by namespace/name.

    `members`: pods that wait, and those bound lately whose PodGroup is not written; each is about the pod with its UID only.
    `made`: groups that are decided and not in the store. `problems`: why a pod that waits is in no group.
    """

    members: Mapping[str, Grouped] = MappingProxyType({})
    made: Mapping[str, PodGroup] = MappingProxyType({})
    problems: Mapping[str, str] = MappingProxyType({})


class Decision:
    """What was decided about a pod, on which state of it, and when (monotonic)."""

    __slots__ = ("at", "grouped", "pod")

    def __init__(self, pod: Pod, grouped: Grouped, at: float) -> None:
        self.pod = pod
        self.grouped = grouped
        self.at = at

    def is_about(self, pod: Pod) -> bool:
        """Whether nothing that a rule could look at changed in the pod since."""
        held, meta = self.pod.metadata, pod.metadata
        return (
            held.uid == meta.uid
            and held.labels == meta.labels
            and held.annotations == meta.annotations
            and held.owner_references == meta.owner_references
        )


class Group:
    """One group: what it should be, who said so, and its members. `since`: when the oldest of them was created.

    `compared`: of which PodGroup, by UID and version, it is known that it is as it should be. `ending`: its owner is being
    deleted, and a PodGroup that went is not made again.
    """

    __slots__ = ("compared", "ending", "members", "shown", "since", "spec", "voice")

    def __init__(self, spec: PodGroupSpec, voice: tuple[datetime, str]) -> None:
        self.spec = spec
        self.voice = voice
        self.since = voice[0]
        self.members: set[str] = set()
        self.shown: PodGroup | None = None
        self.compared = ("", "")
        self.ending = False

    @property
    def single(self) -> bool:
        """Whether it is one pod's own, so that its PodGroup is bookkeeping."""
        return self.spec.owner.kind == POD_KIND and len(self.members) == 1 and self.spec.min_available <= 1

    def say(self, spec: PodGroupSpec, voice: tuple[datetime, str]) -> None:
        """Hear one member: the newest one's word counts."""
        if voice >= self.voice or self.voice[1] not in self.members:
            self.voice = voice
            if spec != self.spec:
                self.spec, self.shown, self.compared = spec, None, ("", "")
        if voice[0] < self.since:
            self.since, self.shown = voice[0], None


class Memberships:
    """Changed by the grouper's thread alone; `view` may be called from any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions: dict[str, Decision] = {}
        self._groups: dict[str, Group] = {}
        self._members: dict[str, Grouped] = {}
        self._made: dict[str, PodGroup] = {}
        self._problems: dict[str, str] = {}
        self._view: GroupView | None = None
        self._changed = False

    def view(self) -> GroupView:
        """Give what is decided; the same value for as long as nothing changed."""
        with self._lock:
            if self._view is None:
                self._view = GroupView(
                    members=MappingProxyType(dict(self._members)),
                    made=MappingProxyType(dict(self._made)),
                    problems=MappingProxyType(dict(self._problems)),
                )
            return self._view

    def take_changed(self) -> bool:
        """Whether the view changed since this was asked last."""
        changed_since, self._changed = self._changed, False
        return changed_since

    def decision(self, pod: str) -> Decision | None:
        return self._decisions.get(pod)

    def group(self, key: str) -> Group | None:
        return self._groups.get(key)

    def pods(self) -> tuple[str, ...]:
        """Name the pods about which something is held."""
        return tuple({**self._decisions, **self._problems})

    def troubled(self) -> tuple[str, ...]:
        """Name the pods that wait for a reason of ours."""
        return tuple(self._problems)

    def decide(self, key: str, pod: Pod, spec: PodGroupSpec, at: float) -> Group:
        """Put a pod into its group. One that is in another group must have been forgotten first."""
        group_key = f"{spec.namespace}/{spec.name}"
        grouped = Grouped(
            uid=pod.metadata.uid, group=group_key, sub_group=spec.sub_group_of(pod.metadata.name)
        )
        self._decisions[key] = Decision(pod, grouped, at)
        voice = (pod.metadata.creation_timestamp or _LONG_AGO, key)
        if spec.sub_groups:
            spec = changed(spec, sub_groups=tuple(with_pods(one, ()) for one in spec.sub_groups))
        group = self._groups.get(group_key)
        if group is None:
            group = self._groups[group_key] = Group(spec, voice)
        else:
            group.say(spec, voice)
        group.members.add(key)
        with self._lock:
            if self._members.get(key) != grouped:
                self._members[key] = grouped
                self._touch()
            if self._problems.pop(key, None) is not None:
                self._touch()
        return group

    def show_made(self, key: str, in_store: bool) -> None:
        """Show a group in the view as long as the store does not have it."""
        group = self._groups.get(key)
        if group is None or in_store:
            with self._lock:
                if self._made.pop(key, None) is not None:
                    self._touch()
            return
        if group.shown is None:
            made = msgspec.convert(body_of(group.spec), PodGroup)
            meta = msgspec.structs.replace(made.metadata, creation_timestamp=group.since)
            group.shown = msgspec.structs.replace(made, metadata=meta)
        with self._lock:
            if self._made.get(key) is not group.shown:
                self._made[key] = group.shown
                self._touch()

    def trouble(self, key: str, why: str) -> None:
        """Say why a pod is in no group; "" = no longer."""
        with self._lock:
            if why and self._problems.get(key) != why:
                self._problems[key] = why
                self._touch()
            elif not why and self._problems.pop(key, None) is not None:
                self._touch()

    def forget(self, key: str) -> str:
        """Let a pod be in no group; name the group that has no member any more, "" where there is none such."""
        held = self._decisions.pop(key, None)
        with self._lock:
            if self._members.pop(key, None) is not None:
                self._touch()
        if held is None:
            return ""
        group_key = held.grouped.group
        group = self._groups[group_key]
        group.members.discard(key)
        if group.members:
            return ""
        del self._groups[group_key]
        with self._lock:
            if self._made.pop(group_key, None) is not None:
                self._touch()
        return group_key

    def _touch(self) -> None:
        self._view = None
        self._changed = True
