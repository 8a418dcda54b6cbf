"""Find the objects of an installation, delete them, and wait until they are gone.

Deletions carry the UID that was found, so that what somebody makes anew under the same name meanwhile is looked at first.
"""

from collections.abc import Iterable, Sequence

import msgspec

from cli.release_nodes import Tell
from cli.release_tries import listed, tried
from cli.uninstall_plan import (
    CRD,
    NAMESPACE,
    NAMESPACES,
    PART_OF,
    Bare,
    Kind,
    Thing,
    is_our_crd,
    is_ours_inside,
)
from kube import paths
from kube.api import Api
from kube.clock import Clock

PODS_WITHIN_S = 120.0
GONE_WITHIN_S = 300.0
_LOOK_S = 1.0
_SOME = 5


class Objects:
    """What of ours is in the cluster beside Nodes. Every method raises Failure."""

    def __init__(self, api: Api, clock: Clock, tell: Tell, namespace: str) -> None:
        self._api = api
        self._clock = clock
        self._tell = tell
        self._namespace = namespace

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self._namespace, *NAMESPACES)))

    def find(self, kinds: Iterable[Kind]) -> list[Thing]:
        """Find everything of ours of these kinds: by label in the whole cluster, by name where the manifests put it."""
        found: dict[tuple[str, str, str], Thing] = {}
        for kind in kinds:
            query = {"labelSelector": kind.selector}
            labelled = self._list(kind.collection(), kind.resource, query)
            for one in [*labelled, *self._named(kind)]:
                metadata = one.metadata
                found[kind.plural, metadata.namespace, metadata.name] = Thing(kind=kind, metadata=metadata)
        return list(found.values())

    def find_namespaces(self) -> list[Thing]:
        """Find our namespaces. One that the user named is ours only where the manifests labelled it."""
        named = [self._get(paths.namespace(name), f"get namespace {name}") for name in self.namespaces]
        return [
            Thing(kind=NAMESPACE, metadata=one.metadata)
            for one in named
            if one is not None
            and (one.metadata.name in NAMESPACES or one.metadata.labels.get(PART_OF) == "nodemend")
        ]

    def find_crds(self) -> list[Thing]:
        definitions = self._list(CRD.collection(), CRD.resource)
        return [Thing(kind=CRD, metadata=one.metadata) for one in definitions if is_our_crd(one)]

    def foreign_in(self, namespace: str) -> list[str]:
        """Name pods and volume claims of others in a namespace of ours: deleting it would end their work."""
        found = []
        for plural, title in (("pods", "pod"), ("persistentvolumeclaims", "volume claim")):
            inside = self._list(paths.collection("", "v1", plural, namespace), plural)
            found += [f"{title} {one.metadata.name}" for one in inside if not is_ours_inside(one.metadata)]
        return found

    def delete(self, things: Sequence[Thing]) -> None:
        """Delete each, one by one; what is gone already is fine."""
        for thing in things:
            if thing.metadata.deletion_timestamp is None:
                self._delete(thing)
            self._tell(f"deleted {thing}")

    def wait_for_pods(self, programs: Sequence[Thing]) -> None:
        """Wait until the pods of these programs have ended; those that do not (their machine is away) are named."""
        names = {thing.metadata.name for thing in programs}
        until = self._clock.monotonic() + PODS_WITHIN_S
        while pods := [pod for name in sorted(names) for pod in self._pods_of(name)]:
            if self._clock.monotonic() >= until:
                where = few([f"{pod.metadata.name} on {pod.spec.node_name or 'no node'}" for pod in pods])
                self._tell(
                    f"these pods do not end (are their machines away?), and may write nothing any more: {where}"
                )
                return
            self._clock.sleep(_LOOK_S)

    def wait_until_gone(self, things: Sequence[Thing]) -> None:
        """Wait until none of these exists any more, at most five minutes; what is left the last check names."""
        until = self._clock.monotonic() + GONE_WITHIN_S
        waiting = list(things)
        while waiting and self._clock.monotonic() < until:
            waiting = [thing for thing in waiting if self._exists(thing)]
            if waiting:
                self._clock.sleep(_LOOK_S)

    def _delete(self, thing: Thing) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": thing.metadata.uid},
        }
        wanted = f"delete {thing.kind.resource} {thing.metadata.name}"
        tried(self._clock, wanted, lambda: self._api.delete(thing.path, body))

    def _pods_of(self, program: str) -> list[Bare]:
        query = {"labelSelector": f"app.kubernetes.io/name={program}"}
        return self._list(paths.pods(self._namespace), f"pods in {self._namespace}", query)

    def _exists(self, thing: Thing) -> bool:
        held = self._get(thing.path, f"get {thing.kind.resource} {thing.metadata.name}")
        return held is not None and held.metadata.uid == thing.metadata.uid

    def _named(self, kind: Kind) -> list[Bare]:
        collection = kind.collection(self._namespace if kind.namespaced else "")
        found = [
            self._get(paths.member(collection, name), f"get {kind.resource} {name}") for name in kind.names
        ]
        return [one for one in found if one is not None]

    def _get(self, path: str, wanted: str) -> Bare | None:
        raw = tried(self._clock, wanted, lambda: self._api.get(path))
        return None if raw is None else msgspec.json.decode(raw, type=Bare)

    def _list(self, path: str, plural: str, query: dict[str, str] | None = None) -> list[Bare]:
        return listed(self._api, self._clock, path, Bare, plural, [], query)


def few(words: Sequence[str]) -> str:
    """Name the first few, and how many more there are."""
    more = len(words) - _SOME
    return ", ".join(words[:_SOME]) + (f" and {more} more" if more > 0 else "")
