"""What the grouper's rules may look at, on a living cluster: owners by reads, pods and pod groups from the stores. Shell.

A `Walk` is one pod's look around: it knows by which version the references name a kind, and where it had to end.
"""

from bisect import insort
from typing import Any, Final

import msgspec

from controller.scheduler.grouper.fields import Thing
from controller.scheduler.grouper.kubeflow import JOB_ROLE
from controller.scheduler.grouper.single import REVISION
from controller.scheduler.grouper.spec import Cluster, Terms
from controller.scheduler.shell.owner_reads import OWNER_AGE_S, NotReadable, OwnerReads
from kube.scheduling import PodGroup
from kube.types import OwnerReference, Pod

GROUP_API: Final = "scheduling.run.ai"
GROUP_VERSION: Final = "scheduling.run.ai/v2alpha2"
ASKED_LABELS: Final = (JOB_ROLE, REVISION)
"""A rule asks for the other pods of a namespace only to find those that have one of these."""


class Things:
    """Objects by namespace, in order of name."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Thing]] = {}
        self._names: dict[str, list[str]] = {}

    def put(self, namespace: str, name: str, thing: Thing | None) -> None:
        """Take an object, or with None let it go."""
        held = self._held.setdefault(namespace, {})
        names = self._names.setdefault(namespace, [])
        if thing is None:
            if held.pop(name, None) is not None:
                names.remove(name)
        else:
            if name not in held:
                insort(names, name)
            held[name] = thing
        if not held:
            del self._held[namespace], self._names[namespace]

    def get(self, namespace: str, name: str) -> Thing | None:
        return self._held.get(namespace, {}).get(name)

    def every(self, namespace: str) -> list[Thing]:
        held = self._held.get(namespace, {})
        return [held[name] for name in self._names.get(namespace, ())]

    def __len__(self) -> int:
        return sum(len(held) for held in self._held.values())


class Surroundings:
    """What all walks share."""

    def __init__(self, owners: OwnerReads, terms: Terms) -> None:
        self.owners = owners
        self.terms = terms
        self.classes: frozenset[str] = frozenset()
        self.pods = Things()
        self.groups = Things()

    def take_pod(self, namespace: str, name: str, pod: Pod | None) -> None:
        """Keep the pod for the rules, if one of them asks for such."""
        asked = pod is not None and any(label in pod.metadata.labels for label in ASKED_LABELS)
        if asked or self.pods.get(namespace, name) is not None:
            self.pods.put(namespace, name, Thing(raw_of(pod)) if asked and pod is not None else None)

    def take_group(self, namespace: str, name: str, group: PodGroup | None) -> None:
        """Keep a PodGroup, or let it go."""
        if group is None:
            self.groups.put(namespace, name, None)
            return
        raw = msgspec.json.decode(msgspec.json.encode(group))  # lists, where `to_builtins` leaves tuples
        self.groups.put(namespace, name, Thing({"apiVersion": GROUP_VERSION, "kind": "PodGroup"} | raw))


class Walk(Cluster):
    """One pod's look around. `max_age_s`: how old what is read of owners may be. `stub`: the owner at which it had to end,
    and `unread` what could not be read.

    All methods raise `NotRead` where something is still to be read.
    """

    def __init__(self, pod: Pod, around: Surroundings, max_age_s: float = OWNER_AGE_S) -> None:
        super().__init__((), around.classes, around.terms)
        self._around = around
        self._max_age_s = max_age_s
        self._named: dict[tuple[str, str, str], tuple[str, str]] = {}
        self.stub: Thing | None = None
        self.unread = ""
        for one in pod.metadata.owner_references:
            self._name(one.api_version, one.kind, one.name, one.uid)

    def get(self, group: str, kind: str, namespace: str, name: str) -> Thing | None:
        if group == GROUP_API and kind == "PodGroup":
            return self._around.groups.get(namespace, name)
        api_version, uid = self._named.get((group, kind, name)) or (self._version(group, kind), "")
        if not api_version:
            return None
        try:
            thing = self._around.owners.thing(
                api_version, kind, namespace, name, uid, max_age_s=self._max_age_s
            )
        except NotReadable as error:
            self.unread = str(error)
            return self._end_at(api_version, kind, namespace, name, uid) if uid else None
        if thing is not None:
            for part in thing.read.parts("metadata.ownerReferences"):
                found = (part.text(key) or "" for key in ("apiVersion", "kind", "name", "uid"))
                self._name(*found)
        return thing

    def every(self, group: str, kind: str, namespace: str) -> list[Thing]:
        if group == GROUP_API and kind == "PodGroup":
            return self._around.groups.every(namespace)
        if not group and kind == "Pod":
            return self._around.pods.every(namespace)
        return self._around.owners.listed(group, kind)

    def raw_pod(self, pod: Pod) -> dict[str, Any]:
        """Read the whole pod, where our view of it will not do."""
        meta = pod.metadata
        found = self._around.owners.thing("v1", "Pod", meta.namespace, meta.name, meta.uid)
        return raw_of(pod) if found is None or found.uid != meta.uid else found.raw

    def _name(self, api_version: str, kind: str, name: str, uid: str) -> None:
        group, slash, _ = api_version.partition("/")
        self._named[(group if slash else "", kind, name)] = (api_version, uid)

    def _version(self, group: str, kind: str) -> str:
        """A kind that belongs to an owner's API is asked for in the owner's version."""
        for (named, _, _), (api_version, _) in self._named.items():
            if named == group and self._around.owners.serves(api_version, kind):
                return api_version
        return self._around.owners.version_with(group, kind) if group else "v1"

    def _end_at(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> Thing:
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        self.stub = Thing({"apiVersion": api_version, "kind": kind, "metadata": metadata})
        return self.stub


def raw_of(pod: Pod) -> dict[str, Any]:
    """Give what the rules read of a pod, as the API has it, without the rest: that is most of what a pod is."""
    meta, spec = pod.metadata, pod.spec
    metadata: dict[str, Any] = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "labels": meta.labels,
        "annotations": meta.annotations,
    }
    if meta.owner_references:
        metadata["ownerReferences"] = [_reference(one) for one in meta.owner_references]
    if meta.deletion_timestamp is not None:
        metadata["deletionTimestamp"] = meta.deletion_timestamp.isoformat()
    raw_spec: dict[str, Any] = {"priorityClassName": spec.priority_class_name, "nodeName": spec.node_name}
    if spec.workload_ref is not None:
        raw_spec["workloadRef"] = msgspec.to_builtins(spec.workload_ref)
    if spec.scheduling_group is not None:
        raw_spec["schedulingGroup"] = msgspec.to_builtins(spec.scheduling_group)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": raw_spec}


def _reference(one: OwnerReference) -> dict[str, str]:
    return {"apiVersion": one.api_version, "kind": one.kind, "name": one.name, "uid": one.uid}
