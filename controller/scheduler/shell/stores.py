"""The scheduler's local copies of the cluster: one store and one reflector for each resource that a cycle looks at. Shell.

Kept warm on every replica, so that a new leader decides at once. Some resources belong to APIs that a cluster need not have
(dynamic resource allocation, NUMA zones, nodemend's own kinds): where the server answers that there is no such resource
the copy counts as empty, and it is asked again now and then, since what is installed later must not stay unseen.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from controller.scheduler.shell.claim_allocation import node_of_claim, node_of_slice
from controller.scheduler.shell.meaning import meaning_of_node, meaning_of_pod, meaning_of_spec
from kube import paths
from kube.api import Api, ApiError, NotFound
from kube.clock import Clock
from kube.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.scheduling import NodeResourceTopology, PodGroup, PriorityClass, Queue, Topology
from kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kube.store import Change, Store, key_of
from kube.types import Lease, Namespace, Node, Pod
from kube.watch import Reflector

log = structlog.get_logger(__name__)

STALE_AFTER_S: Final = 120.0
"""Bookmarks come about once a minute, and a silent watch is given up after 90 s: beyond that the copy may be any age."""
LOOK_AGAIN_S: Final = 30.0
"""How often an API that was not there is looked for."""
FIRST_LOOK_AGAIN_S: Final = 1.0
CRDS: Final = "manifests/crds-kai"
_POD_GROUP: Final = "podgroup"


class Stores:
    """`wake` is called, in a reflector's thread, after a change that a decision may depend on; `wake_soon` after one of a
    PodGroup, most of which are our own.
    """

    def __init__(
        self, wake: Callable[[], None], scheduler_name: str, wake_soon: Callable[[], None] | None = None
    ) -> None:
        self.nodes: Store[Node] = Store()
        self.pods: Store[Pod] = Store(index=lambda pod: pod.spec.node_name)
        self.namespaces: Store[Namespace] = Store()
        self.queues: Store[Queue] = Store()
        self.pod_groups: Store[PodGroup] = Store()
        self.priority_classes: Store[PriorityClass] = Store()
        self.volume_claims: Store[PersistentVolumeClaim] = Store()
        self.volumes: Store[PersistentVolume] = Store()
        self.storage_classes: Store[StorageClass] = Store()
        self.leases: Store[Lease] = Store()
        self.topologies: Store[Topology] = Store()
        self.healths: Store[NodeHealth] = Store()
        self.policies: Store[RemediationPolicy] = Store()
        self.remediations: Store[Remediation] = Store(index=lambda one: one.spec.node_name)
        self.device_classes: Store[DeviceClass] = Store()
        self.claims: Store[ResourceClaim] = Store(index=node_of_claim)
        self.slices: Store[ResourceSlice] = Store(index=node_of_slice)
        self.taint_rules: Store[DeviceTaintRule] = Store()
        self.node_topologies: Store[NodeResourceTopology] = Store()
        self._wake = wake
        self._wake_soon = wake_soon or wake
        self._scheduler_name = scheduler_name
        self._meanings: dict[str, object] = {}
        self._absent: frozenset[str] = frozenset()
        self._lacking: frozenset[str] = frozenset()
        self.nodes.subscribe(partial(self._changed, "node", meaning_of_node))
        self.queues.subscribe(partial(self._changed, "queue", meaning_of_spec))
        self.pod_groups.subscribe(partial(self._changed, _POD_GROUP, meaning_of_spec))
        self.pods.subscribe(self._pod_changed)
        told = (self.nodes, self.queues, self.pod_groups, self.pods, self.leases)
        for store in self.all().values():
            if store not in told:
                store.subscribe(lambda _change, _obj: wake())

    def all(self) -> Mapping[str, Store[Any]]:
        """Name every store, for metrics and for saying which one is not in."""
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "namespaces": self.namespaces,
            "queues": self.queues,
            "podgroups": self.pod_groups,
            "priorityclasses": self.priority_classes,
            "persistentvolumeclaims": self.volume_claims,
            "persistentvolumes": self.volumes,
            "storageclasses": self.storage_classes,
            "leases": self.leases,
            "topologies": self.topologies,
            "nodehealths": self.healths,
            "remediationpolicies": self.policies,
            "remediations": self.remediations,
            "deviceclasses": self.device_classes,
            "resourceclaims": self.claims,
            "resourceslices": self.slices,
            "devicetaintrules": self.taint_rules,
            "noderesourcetopologies": self.node_topologies,
        }

    def present(self) -> Mapping[str, Store[Any]]:
        """Name the stores of those resources that the server has."""
        return {name: store for name, store in self.all().items() if name not in self._absent}

    def mark_absent(self, names: frozenset[str]) -> None:
        """Say which resources the server does not have now."""
        self._absent = names

    def mark_lacking(self, names: frozenset[str]) -> None:
        """Say which resources, without which nothing can be planned, the server does not have."""
        self._lacking = names

    def why_not_synced(self) -> str | None:
        missing = [name for name, store in self.present().items() if not store.synced]
        if lacking := [name for name in missing if name in self._lacking]:
            return f"the server has no {', '.join(lacking)}: apply {CRDS}"
        return f"not read yet: {', '.join(missing)}" if missing else None

    def why_not_fresh(self, now: float) -> str | None:
        """Say which resources the server was not heard about lately; `now` is on the monotonic clock."""
        stale = [name for name, store in self.present().items() if not store.fresh(now, STALE_AFTER_S)]
        return (
            f"the API server was not heard for {STALE_AFTER_S:g} s about {', '.join(stale)}"
            if stale
            else None
        )

    def _changed(self, kind: str, meaning: Callable[[Any], object], change: Change, obj: Any) -> None:
        """Wake where what decides changed: neither heartbeats nor our own status writes do."""
        wake = self._wake_soon if kind == _POD_GROUP else self._wake
        if obj is None:
            wake()
            return
        key = f"{kind} {key_of(obj.metadata)}"
        if change is Change.DELETED:
            self._meanings.pop(key, None)
            wake()
            return
        now = meaning(obj)
        if self._meanings.get(key) != now:
            self._meanings[key] = now
            wake()

    def _pod_changed(self, change: Change, pod: Pod | None) -> None:
        """Wake for pods that wait for us and for whatever frees room; one that merely starts changes nothing."""
        if pod is None or change is Change.DELETED or meaning_of_pod(pod, self._scheduler_name) is not None:
            self._changed("pod", lambda one: meaning_of_pod(one, self._scheduler_name), change, pod)
        else:
            self._meanings.pop(f"pod {key_of(pod.metadata)}", None)


class Watches:
    """The reflectors, a thread for each; those of APIs that a cluster need not have start once they are there."""

    def __init__(
        self, stores: Stores, api: Api, *, agents_namespace: str, clock: Clock, stop: threading.Event
    ) -> None:
        self._stores = stores
        self._api = api
        self._clock = clock
        self._stop = stop
        self._agents_namespace = agents_namespace
        self._running: set[str] = set()
        self._absent: frozenset[str] = frozenset()
        self._lacking: set[str] = set()
        self.reflectors: list[Reflector[Any]] = []

    def start(self) -> None:
        """Start them all; a thread looks for what is missing until `stop` is set."""
        for name, (path, type_) in _required(self._agents_namespace).items():
            self._run(name, path, type_)
        self._stores.mark_absent(frozenset())
        threading.Thread(target=self._look_for_all, name="apis", daemon=True).start()

    def unreadable(self) -> Mapping[str, str]:
        """Name the objects that could not be decoded, and why."""
        return {name: why for one in self.reflectors for name, why in one.unreadable.items()}

    def _look_for_all(self) -> None:
        """Look every half minute; sooner while nothing is planned, since the server did not say what it has.

        One that has just started refuses everybody for a second or two: it has not read yet who may do what.
        """
        pause_s = FIRST_LOOK_AGAIN_S
        while not self._stop.is_set():
            try:
                self.look_for_lacking()
                self.look_for_optional()
            except Exception:  # the edge of this thread: without it an API would never be found again
                log.exception("api.look_failed")
            if all(name in self._running or name in self._absent for name in _optional()):
                pause_s = LOOK_AGAIN_S
            self._stop.wait(pause_s)
            pause_s = min(pause_s * 2, LOOK_AGAIN_S)

    def look_for_lacking(self) -> None:
        """Name the resources without which nothing can be planned, until their definitions are applied."""
        lacking = {
            name
            for name, (path, _) in _required(self._agents_namespace).items()
            if path.startswith(_OURS)
            and not self._stores.all()[name].synced
            and self._is_there(path) is False
        }
        if lacking - self._lacking:
            log.error("api.lacking", resources=sorted(lacking), apply=CRDS)
        self._lacking = lacking
        self._stores.mark_lacking(frozenset(lacking))

    def look_for_optional(self) -> None:
        """Follow what is there by now, and empty the copy of what is there no longer. No answer changes nothing."""
        absent = set(self._absent)
        for name, (path, type_) in _optional().items():
            store, is_running = self._stores.all()[name], name in self._running
            if is_running and store.fresh(self._clock.monotonic(), STALE_AFTER_S / 2):
                absent.discard(name)
                continue
            there = self._is_there(path)
            if there is False:
                if store.synced and name not in absent:
                    log.warning("api.gone", resource=name)
                    store.replace((), "", self._clock.monotonic())
                absent.add(name)
            elif there:
                absent.discard(name)
                if not is_running:
                    log.info("api.found", resource=name)
                    self._run(name, path, type_)
        self._absent = frozenset(absent)
        self._stores.mark_absent(self._absent)

    def _is_there(self, path: str) -> bool | None:
        """Tell whether the server has a resource; None = it did not say, and then the resource counts as not read."""
        try:
            self._api.get(path, {"limit": "1"})
        except NotFound:
            return False
        except ApiError as error:
            log.warning("api.unknown", path=path, error=str(error))
            return None
        return True

    def _run(self, name: str, path: str, type_: type[Any]) -> None:
        store = self._stores.all()[name]
        reflector: Reflector[Any] = Reflector(
            self._api, path, type_, store, clock=self._clock, stop=self._stop
        )
        self.reflectors.append(reflector)
        self._running.add(name)
        threading.Thread(target=reflector.run, name=f"watch-{name}", daemon=True).start()


_OURS: Final = "/apis/scheduling.run.ai/"


def _required(agents_namespace: str) -> Mapping[str, tuple[str, type[Any]]]:
    collection = paths.collection
    return {
        "nodes": (paths.nodes(), Node),
        "pods": (paths.pods(), Pod),
        "namespaces": (paths.namespaces(), Namespace),
        "queues": (collection("scheduling.run.ai", "v2", "queues"), Queue),
        "podgroups": (collection("scheduling.run.ai", "v2alpha2", "podgroups"), PodGroup),
        "priorityclasses": (collection("scheduling.k8s.io", "v1", "priorityclasses"), PriorityClass),
        "persistentvolumeclaims": (collection("", "v1", "persistentvolumeclaims"), PersistentVolumeClaim),
        "persistentvolumes": (collection("", "v1", "persistentvolumes"), PersistentVolume),
        "storageclasses": (collection("storage.k8s.io", "v1", "storageclasses"), StorageClass),
        "leases": (paths.leases(agents_namespace), Lease),
    }


def _optional() -> Mapping[str, tuple[str, type[Any]]]:
    collection = paths.collection
    return {
        "topologies": (collection("kai.scheduler", "v1alpha1", "topologies"), Topology),
        "nodehealths": (paths.node_healths(), NodeHealth),
        "remediationpolicies": (paths.policies(), RemediationPolicy),
        "remediations": (paths.remediations(), Remediation),
        "deviceclasses": (collection("resource.k8s.io", "v1", "deviceclasses"), DeviceClass),
        "resourceclaims": (collection("resource.k8s.io", "v1", "resourceclaims"), ResourceClaim),
        "resourceslices": (collection("resource.k8s.io", "v1", "resourceslices"), ResourceSlice),
        "devicetaintrules": (collection("resource.k8s.io", "v1", "devicetaintrules"), DeviceTaintRule),
        "noderesourcetopologies": (
            collection("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies"),
            NodeResourceTopology,
        ),
    }
