"""What `queues`, `why`, `gpus` and `simulate` read: what the scheduler looks at, page by page, by this user's rights.

Nodes, pods, queues and pod groups are required. All else makes the answer better: an API that the cluster does not have is
empty and said (`absent`), a list that may not be read is empty and said (`not_read`), since a number that was worked out
without something must not look as if it had it. Nothing here writes.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from cli.cluster import list_all
from cli.failure import Exit, Failure, failure_of
from controller.scheduler.pod_constraints import Surroundings
from controller.scheduler.snapshot import Objects
from kube import paths
from kube.api import Api, ApiError, NotFound
from kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from kube.nodehealth import NodeHealth
from kube.scheduling import NodeResourceTopology, PodGroup, PriorityClass, Queue, Topology
from kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kube.types import Lease, Node, Pod
from kube.watch import Bare

T = TypeVar("T")

POD_GROUPS: Final = paths.collection("scheduling.run.ai", "v2alpha2", "podgroups")
INSTALL: Final = "kubectl create -k manifests/crds-kai"
"""Makes what is absent and replaces nothing: definitions of KAI Scheduler stay as they are."""


class SchedulingReading(msgspec.Struct, frozen=True, kw_only=True):
    """One look. `raw_pods`: each pod as it came, by namespace/name, since the grouper reads fields that nobody else does.

    `classes_known`: priority classes could be read. `absent`: APIs that this cluster does not have, and what that means.
    """

    objects: Objects
    raw_pods: Mapping[str, msgspec.Raw] = {}
    classes_known: bool = True
    absent: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


class _Lists:
    """Lists one resource after the other, and remembers what could not be had."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.absent: list[str] = []
        self.not_read: list[str] = []

    def required(self, path: str, kind: type[T], plural: str) -> list[T]:
        """Raises Failure where it cannot be listed."""
        try:
            return list_all(self._api, path, kind, plural, self.not_read)
        except ApiError as error:
            raise failure_of(error, f"list {plural}") from error

    def of_kai(self, path: str, kind: type[T], plural: str) -> list[T]:
        """Raises Failure where it cannot be listed; where nobody installed the definition, with the command that does."""
        try:
            return list_all(self._api, path, kind, plural, self.not_read)
        except NotFound as error:
            raise Failure(
                f"this cluster has no {plural}, which the scheduler's queues are made of: {INSTALL}",
                Exit.MISSING,
            ) from error
        except ApiError as error:
            raise failure_of(error, f"list {plural}") from error

    def optional(self, path: str, kind: type[T], plural: str, without: str) -> tuple[T, ...] | None:
        """Give None where it could not be listed; `without` says what the answer then lacks."""
        try:
            return tuple(list_all(self._api, path, kind, plural, self.not_read))
        except NotFound:
            self.absent.append(f"{plural}: {without}")
        except ApiError as error:
            self.not_read.append(f"{plural}: {error} ({without})")
        return None


def read_hardware(api: Api, *, namespace: str) -> SchedulingReading:
    """Read what `gpus` shows: nodes, their health, and the pods on them. Raises Failure where nodes cannot be listed."""
    lists = _Lists(api)
    nodes = lists.required(paths.nodes(), Node, "nodes")
    raw = lists.optional(paths.pods(), msgspec.Raw, "pods", "who holds a GPU is not known, all look free")
    pods = dict(_decoded(raw or (), lists.not_read))
    objects = Objects(
        nodes=tuple(nodes),
        pods=tuple(pods.values()),
        health=_health(lists),
        leases=_leases(lists, namespace),
    )
    objects = _with_devices(lists, objects)
    return SchedulingReading(objects=objects, absent=tuple(lists.absent), not_read=tuple(lists.not_read))


def read_scheduling(api: Api, *, namespace: str) -> SchedulingReading:
    """Read everything that a cycle looks at. `namespace`: where nodemend runs.

    Raises Failure where nodes, pods, queues or pod groups cannot be listed.
    """
    lists = _Lists(api)
    queues = lists.of_kai(paths.queues(), Queue, "queues.scheduling.run.ai")
    groups = lists.of_kai(POD_GROUPS, PodGroup, "podgroups.scheduling.run.ai")
    nodes = lists.required(paths.nodes(), Node, "nodes")
    raw_pods = lists.required(paths.pods(), msgspec.Raw, "pods")
    pods = dict(_decoded(raw_pods, lists.not_read))
    classes = lists.optional(
        paths.collection("scheduling.k8s.io", "v1", "priorityclasses"),
        PriorityClass,
        "priorityclasses",
        "every job has priority 50",
    )
    objects = Objects(
        nodes=tuple(nodes),
        pods=tuple(pods.values()),
        pod_groups=tuple(groups),
        queues=tuple(queues),
        health=_health(lists),
        leases=_leases(lists, namespace),
        priority_classes=classes or (),
        topologies=lists.optional(
            paths.collection("kai.scheduler", "v1alpha1", "topologies"),
            Topology,
            "topologies.kai.scheduler",
            "jobs that ask for a topology wait",
        )
        or (),
        node_topologies=lists.optional(
            paths.collection("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies"),
            NodeResourceTopology,
            "noderesourcetopologies",
            "no NUMA zones are known",
        )
        or (),
        around=_surroundings(lists),
    )
    objects = _with_devices(lists, objects)
    return SchedulingReading(
        objects=objects,
        raw_pods={_name(raw): raw for raw in raw_pods},
        classes_known=classes is not None,
        absent=tuple(lists.absent),
        not_read=tuple(lists.not_read),
    )


def _health(lists: _Lists) -> tuple[NodeHealth, ...]:
    without = "no agent's word is known, so no GPU is known to be ill"
    return lists.optional(paths.node_healths(), NodeHealth, "nodehealths.nodemend.dev", without) or ()


def _leases(lists: _Lists, namespace: str) -> dict[str, Lease] | None:
    without = "whether an agent fell silent is not known"
    found = lists.optional(paths.leases(namespace), Lease, f"leases in {namespace}", without)
    return None if found is None else {one.metadata.name: one for one in found}


def _with_devices(lists: _Lists, objects: Objects) -> Objects:
    group, version, without = "resource.k8s.io", "v1", "what claims hold or ask for is not known"

    def listed(kind: type[T], plural: str) -> tuple[T, ...]:
        return lists.optional(paths.collection(group, version, plural), kind, plural, without) or ()

    return msgspec.structs.replace(
        objects,
        device_classes=listed(DeviceClass, "deviceclasses"),
        claims=listed(ResourceClaim, "resourceclaims"),
        slices=listed(ResourceSlice, "resourceslices"),
    )


def _surroundings(lists: _Lists) -> Surroundings:
    storage = "where volumes bind a pod to is not known"
    namespaces = lists.optional(
        paths.namespaces(), Bare, "namespaces", "affinity to namespaces holds for none"
    )
    claims = lists.optional(
        paths.collection("", "v1", "persistentvolumeclaims"),
        PersistentVolumeClaim,
        "persistentvolumeclaims",
        "pods with volume claims seem to lack them",
    )
    volumes = lists.optional(
        paths.collection("", "v1", "persistentvolumes"), PersistentVolume, "persistentvolumes", storage
    )
    classes = lists.optional(
        paths.collection("storage.k8s.io", "v1", "storageclasses"), StorageClass, "storageclasses", storage
    )
    return Surroundings(
        namespaces={one.metadata.name: one.metadata.labels for one in namespaces or ()},
        volume_claims={f"{one.metadata.namespace}/{one.metadata.name}": one for one in claims or ()},
        volumes={one.metadata.name: one for one in volumes or ()},
        storage_classes={one.metadata.name: one for one in classes or ()},
    )


def _decoded(raw: tuple[msgspec.Raw, ...] | list[msgspec.Raw], odd: list[str]) -> Iterator[tuple[str, Pod]]:
    for one in raw:
        for pod in _read(one, Pod, "pods", odd):
            yield f"{pod.metadata.namespace}/{pod.metadata.name}", pod


def _read(raw: msgspec.Raw, kind: type[T], plural: str, odd: list[str]) -> Iterator[T]:
    try:
        yield msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        odd.append(f"{plural}: {_name(raw)} cannot be read: {error}")


def _name(raw: msgspec.Raw) -> str:
    try:
        meta = msgspec.json.decode(raw, type=Bare).metadata
    except msgspec.DecodeError:
        return "an object without a name"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
