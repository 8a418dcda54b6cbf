"""What the tests of Prebind on a real API server stand on: a scheduler's stores and watches, and a node with devices."""

import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from controller.scheduler.plan import Bind
from controller.scheduler.shell.claim_allocation import node_of_claim, node_of_slice
from controller.scheduler.shell.prebind import Prebind
from controller.scheduler.shell.prebind_words import Settings
from kube import paths
from kube.api import Api
from kube.clock import SYSTEM
from kube.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kube.session import Session
from kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kube.store import Store
from kube.types import Node, Pod
from kube.watch import Reflector
from tests.fakes import wait_until

NAME = "prebind-test"
DRIVER = "gpu.example.com"
RESOURCE = "/apis/resource.k8s.io/v1"
SELECTED = "volume.kubernetes.io/selected-node"


class Scheduler:
    """One Prebind with stores and watches of its own."""

    def __init__(self, api: Session, **settings: float) -> None:
        self.api = api
        self.pods: Store[Pod] = Store()
        self.nodes: Store[Node] = Store()
        self.claims: Store[ResourceClaim] = Store(index=node_of_claim)
        self.slices: Store[ResourceSlice] = Store(index=node_of_slice)
        self.rules: Store[DeviceTaintRule] = Store()
        self.classes: Store[DeviceClass] = Store()
        self.volume_claims: Store[PersistentVolumeClaim] = Store()
        self.volumes: Store[PersistentVolume] = Store()
        self.storage_classes: Store[StorageClass] = Store()
        self.prebind = Prebind(
            api=api,
            pods=self.pods,
            nodes=self.nodes,
            claims=self.claims,
            slices=self.slices,
            taint_rules=self.rules,
            device_classes=self.classes,
            volume_claims=self.volume_claims,
            volumes=self.volumes,
            storage_classes=self.storage_classes,
            clock=SYSTEM,
            scheduler_name=NAME,
            settings=Settings(**settings),
        )
        self._stop = threading.Event()
        kept: Mapping[str, tuple[Store[Any], type[Any]]] = {
            paths.pods(): (self.pods, Pod),
            paths.nodes(): (self.nodes, Node),
            f"{RESOURCE}/resourceclaims": (self.claims, ResourceClaim),
            f"{RESOURCE}/resourceslices": (self.slices, ResourceSlice),
            f"{RESOURCE}/devicetaintrules": (self.rules, DeviceTaintRule),
            f"{RESOURCE}/deviceclasses": (self.classes, DeviceClass),
            "/api/v1/persistentvolumeclaims": (self.volume_claims, PersistentVolumeClaim),
            "/api/v1/persistentvolumes": (self.volumes, PersistentVolume),
            "/apis/storage.k8s.io/v1/storageclasses": (self.storage_classes, StorageClass),
        }
        self._threads = [
            threading.Thread(target=Reflector(api, path, type_, store, clock=SYSTEM, stop=self._stop).run)
            for path, (store, type_) in kept.items()
        ]
        for thread in self._threads:
            thread.start()
        wait_until(lambda: all(store.synced for store, _ in kept.values()), timeout_s=60.0)

    def pod(self, namespace: str, name: str) -> Pod:
        wait_until(lambda: self.pods.get(f"{namespace}/{name}") is not None, timeout_s=20.0)
        found = self.pods.get(f"{namespace}/{name}")
        assert found is not None
        return found

    def knows(self, namespace: str, *claims: str) -> None:
        wait_until(lambda: all(self.claims.get(f"{namespace}/{one}") for one in claims), timeout_s=20.0)

    def close(self) -> None:
        self._stop.set()
        self.api.close()
        for thread in self._threads:
            thread.join(20)


class Place:
    """A node with two devices, in a namespace."""

    def __init__(self, admin: Api, namespace: str, node: str) -> None:
        self.admin = admin
        self.namespace = namespace
        self.node = node

    def clear(self) -> None:
        """End all pods, and wait until Kubernetes has freed the devices that the next test wants."""
        for one in self._items(paths.pods(self.namespace)):
            path = paths.pod(self.namespace, one["metadata"]["name"])
            self.admin.delete(path, {"gracePeriodSeconds": 0})
        claims = f"{RESOURCE}/namespaces/{self.namespace}/resourceclaims"
        wait_until(
            lambda: not any("allocation" in one.get("status", {}) for one in self._items(claims)),
            timeout_s=60.0,
        )

    def _items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.json.decode(self.admin.get(path))["items"]
        return found

    def claim_path(self, name: str) -> str:
        return paths.resource_claim(self.namespace, name)

    def add_claim(self, name: str) -> None:
        exactly = {"deviceClassName": NAME, "allocationMode": "ExactCount", "count": 1}
        body = {
            "metadata": {"name": name},
            "spec": {
                "devices": {
                    "requests": [{"name": "gpu", "exactly": exactly}],
                    "config": [{"opaque": {"driver": DRIVER, "parameters": {"mode": "plain"}}}],
                }
            },
        }
        self.admin.create(f"{RESOURCE}/namespaces/{self.namespace}/resourceclaims", body)

    def add_pod(
        self, name: str, *, claims: tuple[str, ...] = (), volumes: tuple[str, ...] = (), template: str = ""
    ) -> None:
        wanted = [{"name": one, "resourceClaimName": one} for one in claims]
        wanted += [{"name": "made", "resourceClaimTemplateName": template}] if template else []
        spec = {
            "schedulerName": NAME,
            "resourceClaims": wanted,
            "volumes": [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in volumes],
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "c",
                    "image": "example.invalid/work:1",
                    "resources": {"claims": [{"name": one["name"]} for one in wanted]},
                }
            ],
        }
        self.admin.create(paths.pods(self.namespace), {"metadata": {"name": name}, "spec": spec})

    def to_bind(self, pod: str, **devices: int) -> Bind:
        given = tuple(
            (f"{self.namespace}/{claim}", (f"{DRIVER}/{self.node}/gpu-{index}",))
            for claim, index in devices.items()
        )
        return Bind(task=f"{self.namespace}/{pod}", job="job", node=self.node, devices=given)

    def send(self, pod: Pod) -> None:
        """Bind, as the scheduler's next step does."""
        body = {
            "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        self.admin.create(f"{paths.pod(self.namespace, pod.metadata.name)}/binding", body)

    def claim(self, name: str) -> ResourceClaim:
        return msgspec.json.decode(self.admin.get(self.claim_path(name)), type=ResourceClaim)

    def held(self, name: str) -> tuple[list[str], list[str]]:
        """Give the devices that a claim has, and the names of who is reserved."""
        status = self.claim(name).status
        devices = (
            [] if status.allocation is None else [one.device for one in status.allocation.devices.results]
        )
        return devices, [one.name for one in status.reserved_for]

    def is_running(self, pod: str) -> bool:
        found = msgspec.json.decode(self.admin.get(paths.pod(self.namespace, pod)), type=Pod)
        return found.status.phase == "Running"

    def volume_claim(self, name: str = "data") -> PersistentVolumeClaim:
        answer = self.admin.get(paths.volume_claim(self.namespace, name))
        return msgspec.json.decode(answer, type=PersistentVolumeClaim)

    def volume_body(self, name: str, storage_class: str) -> dict[str, Any]:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]}
        return {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": storage_class,
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/mnt/disk"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }

    def add_volume_claim(self, storage_class: str, name: str = "data") -> None:
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        self.admin.create(path, {"metadata": {"name": name}, "spec": spec})
