"""Which job each pod belongs to, for pods on which nobody has written it yet. Reads owners, writes nothing.

A pod that waits carries no group: the scheduler writes it with the bind. So the pure grouper is asked here as it is asked
there, over the owners that this user may read. Where one may not be read, a PodGroup that the same owner owns stands in.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from cli.cluster import list_all
from cli.scheduling_objects import SchedulingReading
from controller.scheduler.grouper.fields import GrouperError, Thing
from controller.scheduler.grouper.grouping import group_of
from controller.scheduler.grouper.kinds import find
from controller.scheduler.grouper.owners import is_left_alone, owner_chain
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec, Terms
from controller.scheduler.pod_tasks import SUB_GROUP
from controller.scheduler.queue_objects import OLDEST
from controller.scheduler.shell.group_bodies import body_of
from controller.scheduler.snapshot import POD_GROUP, Objects
from kube import paths
from kube.api import Api, ApiError
from kube.scheduling import PodGroup
from kube.types import Pod

MOST_READS: Final = 1000
"""Owners that are asked for one by one; what is beyond is said, not guessed."""
LIST_FROM: Final = 25
"""So many owners of one kind cost less as one list than one by one."""
DEEPEST: Final = 10


class Reference(NamedTuple):
    """One owner, as an object names it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """The objects with every pod in its group. `made`: groups that nobody has created yet; `problems`: pods without one."""

    objects: Objects
    made: frozenset[str] = frozenset()
    problems: Mapping[str, str] = {}


def group_pods(
    api: Api,
    reading: SchedulingReading,
    *,
    scheduler_name: str,
    terms: Terms,
    known: Iterable[dict[str, Any]] = (),
) -> Grouped:
    """Put each pod of this scheduler into its group. `known`: owners that are not on the API server."""
    objects = reading.objects
    asked = sorted(
        (
            pod
            for pod in objects.pods
            if pod.spec.scheduler_name == scheduler_name and not pod.metadata.annotations.get(POD_GROUP)
        ),
        key=_age,  # a group is as old as its first pod
    )
    if not asked:
        return Grouped(objects=objects)
    raws = {_key(pod): msgspec.json.decode(reading.raw_pods[_key(pod)]) for pod in asked}
    owners = _Owners(api, known)
    owners.collect(raws.values())
    cluster = Cluster(
        [*owners.found.values(), *(_raw_group(group) for group in objects.pod_groups)],
        frozenset(one.metadata.name for one in objects.priority_classes) if reading.classes_known else None,
        terms,
    )
    existing = {_key(group): group for group in objects.pod_groups}
    groups = dict(existing)
    joined: dict[str, Pod] = {}
    problems: dict[str, str] = {}
    for pod in asked:
        raw = raws[_key(pod)]
        try:
            if is_left_alone(raw):
                raise GrouperError(
                    str(_key(pod)), POD_GROUP, None, "written by its owner, which groups it itself"
                )
            spec = group_of(raw, owner_chain(raw, cluster), cluster)
        except GrouperError as error:
            standing = _owned_by_same(pod, objects.pod_groups)
            if standing is None:
                problems[_key(pod)] = f"{error}{owners.why_missing(raw)}"
            else:
                joined[_key(pod)] = _joining(pod, standing.metadata.name, "")
            continue
        groups.setdefault(f"{pod.metadata.namespace}/{spec.name}", made_group(spec, pod))
        joined[_key(pod)] = _joining(pod, spec.name, spec.sub_group_of(pod.metadata.name))
    return Grouped(
        objects=msgspec.structs.replace(
            objects,
            pods=tuple(joined.get(_key(pod), pod) for pod in objects.pods),
            pod_groups=tuple(groups.values()),
        ),
        made=frozenset(groups.keys() - existing.keys()),
        problems=problems,
    )


def made_group(spec: PodGroupSpec, pod: Pod) -> PodGroup:
    """Give the PodGroup that the scheduler would create for this pod, as old as the pod."""
    group = msgspec.convert(body_of(spec), PodGroup)
    meta = msgspec.structs.replace(
        group.metadata,
        namespace=pod.metadata.namespace,
        creation_timestamp=pod.metadata.creation_timestamp,
    )
    return msgspec.structs.replace(group, metadata=meta)


def _joining(pod: Pod, group: str, sub_group: str) -> Pod:
    meta = pod.metadata
    labels = {**meta.labels, SUB_GROUP: sub_group} if sub_group else meta.labels
    meta = msgspec.structs.replace(meta, annotations={**meta.annotations, POD_GROUP: group}, labels=labels)
    return msgspec.structs.replace(pod, metadata=meta)


def _owned_by_same(pod: Pod, groups: Iterable[PodGroup]) -> PodGroup | None:
    """Give the one PodGroup that the pod's own owner owns; of several nobody can tell which."""
    uids = {owner.uid for owner in pod.metadata.owner_references if owner.uid}
    found = [
        group
        for group in groups
        if group.metadata.namespace == pod.metadata.namespace
        and any(owner.uid in uids for owner in group.metadata.owner_references)
    ]
    return found[0] if len(found) == 1 else None


class _Owners:
    """Reads the owners of pods, level by level upward. `found`: each as it came; an owner that cannot be had is absent."""

    def __init__(self, api: Api, known: Iterable[dict[str, Any]]) -> None:
        self._api = api
        self.found: dict[Reference, dict[str, Any]] = {}
        for raw in known:
            self._put(str(raw.get("apiVersion", "")), str(raw.get("kind", "")), raw)
        self._failed: dict[Reference, str] = {}
        self._reads = 0

    def collect(self, pods: Iterable[dict[str, Any]]) -> None:
        """Read what these pods' owners are, and theirs."""
        level = list(pods)
        for _ in range(DEEPEST):
            wanted = dict.fromkeys(ref for raw in level for ref in _references(raw))
            new = [ref for ref in wanted if ref not in self.found and ref not in self._failed]
            self._read(new)
            level = [self.found[ref] for ref in wanted if ref in self.found]
            if not level:
                return

    def why_missing(self, pod: dict[str, Any]) -> str:
        """Say what kept the pod's owners from being read, nothing where they were."""
        reasons = [self._failed[ref] for ref in _references(pod) if ref in self._failed]
        return f" ({reasons[0]})" if reasons else ""

    def _read(self, wanted: list[Reference]) -> None:
        kinds: dict[tuple[str, str], list[Reference]] = {}
        for ref in wanted:
            kinds.setdefault((ref.api_version, ref.kind), []).append(ref)
        for (api_version, kind), refs in kinds.items():
            if len(refs) >= LIST_FROM:
                self._list(api_version, kind)
            for ref in refs:
                if ref not in self.found:
                    self._get(ref)

    def _list(self, api_version: str, kind: str) -> None:
        """Read all of a kind in one go; where that is not allowed they are asked for one by one."""
        path = paths.collection(*_group_version(api_version), plural_of(kind))
        odd: list[str] = []
        try:
            items = list_all(self._api, path, dict[str, Any], kind, odd)
        except ApiError:
            return
        for raw in items:
            self._put(api_version, kind, raw)

    def _put(self, api_version: str, kind: str, raw: dict[str, Any]) -> None:
        """Remember an object; lists leave its type out."""
        thing = Thing(raw)
        ref = Reference(api_version, kind, thing.namespace, thing.name, thing.uid)
        self.found[ref] = {**raw, "apiVersion": api_version, "kind": kind}

    def _get(self, ref: Reference) -> None:
        path = paths.collection(*_group_version(ref.api_version), plural_of(ref.kind), ref.namespace)
        try:
            if self._reads >= MOST_READS:
                raise ApiError(f"{MOST_READS} owners were read already")
            self._reads += 1
            raw = msgspec.json.decode(self._api.get(paths.member(path, ref.name)), type=dict[str, Any])
            self.found[ref] = {**raw, "apiVersion": ref.api_version, "kind": ref.kind}
        except (ApiError, msgspec.DecodeError) as error:
            self._failed[ref] = f"{ref.kind} {ref.namespace}/{ref.name} could not be read: {error}"
            if find(*_group_version(ref.api_version), ref.kind) is None:
                # The default rule asks for no more than the reference has.
                meta = {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid}
                self.found[ref] = {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": meta}


def _references(raw: dict[str, Any]) -> Iterator[Reference]:
    """Give the owners that an object names, as far as they can be read."""
    meta = raw.get("metadata")
    listed = meta.get("ownerReferences") if isinstance(meta, dict) else None
    for owner in listed if isinstance(listed, list) else ():
        if isinstance(owner, dict) and owner.get("kind") and owner.get("name"):
            yield Reference(
                str(owner.get("apiVersion", "")),
                str(owner["kind"]),
                str((meta or {}).get("namespace", "")),
                str(owner["name"]),
                str(owner.get("uid", "")),
            )


def _group_version(api_version: str) -> tuple[str, str]:
    group, slash, version = api_version.partition("/")
    return (group, version) if slash else ("", group)


def plural_of(kind: str) -> str:
    """Give the plural of a kind as Kubernetes' own guess has it (apimachinery, UnsafeGuessKindToResource)."""
    word = kind.lower()
    if word.endswith("s"):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _raw_group(group: PodGroup) -> dict[str, Any]:
    raw: dict[str, Any] = msgspec.to_builtins(group)
    return {**raw, "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup"}


def _key(one: Pod | PodGroup) -> str:
    return f"{one.metadata.namespace}/{one.metadata.name}"


def _age(pod: Pod) -> tuple[datetime, str]:
    return (pod.metadata.creation_timestamp or OLDEST, _key(pod))
