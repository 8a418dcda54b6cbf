"""A cluster for Prebind in unit tests: FakeApi, stores that hear of each write at once unless told not to, and objects."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from controller.scheduler.plan import Bind
from controller.scheduler.shell.claim_allocation import node_of_claim, node_of_slice
from controller.scheduler.shell.prebind import Prebind
from controller.scheduler.shell.prebind_words import Settings
from kube import paths
from kube.api import PatchType
from kube.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kube.store import Store
from kube.types import Node, Pod
from tests.fake_api import FakeApi
from tests.fakes import FakeClock

NAME = "nodemend-scheduler"
DRIVER = "gpu.example.com"
RULES = paths.collection("resource.k8s.io", "v1", "devicetaintrules")
SLICES = paths.collection("resource.k8s.io", "v1", "resourceslices")
CLASSES = paths.collection("resource.k8s.io", "v1", "deviceclasses")
CLAIMS = paths.collection("resource.k8s.io", "v1", "resourceclaims")
CLAIM = paths.resource_claim("team", "c1")
VOLUME_CLAIMS = paths.collection("", "v1", "persistentvolumeclaims")
VOLUMES = paths.collection("", "v1", "persistentvolumes")
STORAGE_CLASSES = paths.collection("storage.k8s.io", "v1", "storageclasses")


class Cluster:
    """One API server, and what one scheduler knows of it; `share` it to have a second scheduler beside the first."""

    def __init__(self, share: "Cluster | None" = None, **settings: float) -> None:
        self.clock: FakeClock = share.clock if share is not None else FakeClock()
        self.api: FakeApi = share.api if share is not None else FakeApi(self.clock, streams_end=True)
        self.hears = True
        self.before_patch: Callable[[str], None] = lambda _path: None
        self.pods: Store[Pod] = Store()
        self.nodes: Store[Node] = Store()
        self.claims: Store[ResourceClaim] = Store(index=node_of_claim)
        self.slices: Store[ResourceSlice] = Store(index=node_of_slice)
        self.rules: Store[DeviceTaintRule] = Store()
        self.classes: Store[DeviceClass] = Store()
        self.volume_claims: Store[PersistentVolumeClaim] = Store()
        self.volumes: Store[PersistentVolume] = Store()
        self.storage_classes: Store[StorageClass] = Store()
        self._types: Mapping[str, tuple[Store[Any], type[Any]]] = {
            paths.pods(): (self.pods, Pod),
            paths.nodes(): (self.nodes, Node),
            CLAIMS: (self.claims, ResourceClaim),
            RULES: (self.rules, DeviceTaintRule),
            SLICES: (self.slices, ResourceSlice),
            CLASSES: (self.classes, DeviceClass),
            VOLUME_CLAIMS: (self.volume_claims, PersistentVolumeClaim),
            VOLUMES: (self.volumes, PersistentVolume),
            STORAGE_CLASSES: (self.storage_classes, StorageClass),
        }
        self.prebind = Prebind(
            api=_Echoing(self),
            pods=self.pods,
            nodes=self.nodes,
            claims=self.claims,
            slices=self.slices,
            taint_rules=self.rules,
            device_classes=self.classes,
            volume_claims=self.volume_claims,
            volumes=self.volumes,
            storage_classes=self.storage_classes,
            clock=self.clock.clock,
            scheduler_name=NAME,
            settings=Settings(**settings),
        )

    def hear(self) -> None:
        """Let the stores take all that happened since."""
        for path, (store, type_) in self._types.items():
            for line in self.api.stream(path, {"resourceVersion": str(store.heard_version or 100)}, 1.0):
                event = msgspec.json.decode(line)
                store.apply(event["type"], msgspec.convert(event["object"], type_), 0.0)

    def add(self, path: str, obj: Mapping[str, Any]) -> None:
        self.api.add(path, obj)
        self.hear()

    def change(self, path: str, body: Mapping[str, Any]) -> None:
        """Change an object as somebody else would."""
        self.api.patch(path, dict(body), PatchType.MERGE)
        if self.hears:
            self.hear()

    def remove(self, path: str) -> None:
        self.api.remove(path)
        self.hear()

    def wrote(self) -> list[str]:
        """Name what Prebind and others wrote since the last time, in order."""
        found = [request.path.rpartition("/namespaces/")[2] for request in self.api.writes()]
        self.api.requests.clear()
        return found

    # Objects

    def node(self, name: str = "n1", gpus: int = 2, **taints: Mapping[str, str]) -> None:
        self.add(paths.nodes(), {"metadata": {"name": name, "labels": {"zone": name}}})
        devices = [
            {
                "name": f"gpu-{index}",
                **({"taints": [taints[f"gpu{index}"]]} if f"gpu{index}" in taints else {}),
            }
            for index in range(gpus)
        ]
        spec = {"driver": DRIVER, "nodeName": name, "pool": {"name": name}, "devices": devices}
        self.add(SLICES, {"metadata": {"name": f"s-{name}"}, "spec": spec})

    def pod(
        self,
        name: str = "p1",
        *,
        uid: str = "",
        claims: tuple[str, ...] = (),
        volumes: tuple[str, ...] = (),
        scheduler: str = NAME,
    ) -> Pod:
        spec = {
            "schedulerName": scheduler,
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
            "volumes": [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in volumes],
        }
        self.add(paths.pods("team"), {"metadata": {"name": name, "uid": uid or f"uid-{name}"}, "spec": spec})
        found = self.pods.get(f"team/{name}")
        assert found is not None
        return found

    def claim(self, name: str = "c1", **parts: Any) -> None:
        """Add a claim for one GPU; `spec`, `status` and metadata by their names."""
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        spec = parts.pop("spec", {"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
        status = parts.pop("status", {})
        body = {"metadata": {"name": name, "uid": f"uid-{name}", **parts}, "spec": spec, "status": status}
        self.add(f"{CLAIMS.rpartition('/')[0]}/namespaces/team/resourceclaims", body)

    def held(self, name: str = "c1") -> dict[str, Any]:
        status: dict[str, Any] = self.api.read(paths.resource_claim("team", name)).get("status") or {}
        return status

    def users(self, name: str = "c1") -> list[str]:
        return [one["name"] for one in self.held(name).get("reservedFor") or ()]

    def devices(self, name: str = "c1") -> list[str]:
        allocation = self.held(name).get("allocation") or {"devices": {"results": []}}
        return [one["device"] for one in allocation["devices"]["results"]]

    def storage(self, provisioner: str = "disk.example.com", name: str = "late") -> None:
        body = {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        self.add(STORAGE_CLASSES, body)

    def volume_claim(self, name: str = "data", size: str = "1Gi", **spec: Any) -> None:
        whole = {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        }
        body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": whole}
        self.add("/api/v1/namespaces/team/persistentvolumeclaims", body)

    def volume(self, name: str, node: str = "n1", size: str = "1Gi", **spec: Any) -> None:
        here = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [node]}]}
        whole = {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
            **spec,
        }
        status = {"phase": "Available"}
        self.add(VOLUMES, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": whole, "status": status})

    def bind_volume(self, claim: str = "data", volume: str = "v1") -> None:
        """Do what the volume controller does in the end."""
        meta = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        self.change(paths.volume_claim("team", claim), {"metadata": meta, "spec": {"volumeName": volume}})

    def selected(self, claim: str = "data") -> str | None:
        annotations = self.api.read(paths.volume_claim("team", claim))["metadata"].get("annotations") or {}
        found: str | None = annotations.get("volume.kubernetes.io/selected-node")
        return found


class _Echoing:
    """The API as one scheduler uses it: its watches show its writes before the answer is in."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        return self._cluster.api.get(path, query)

    def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> bytes:
        return self._cluster.api.create(path, body, query)

    def replace(self, path: str, body: Mapping[str, Any]) -> bytes:
        return self._cluster.api.replace(path, body)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        return self._cluster.api.delete(path, body)

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> Any:
        return self._cluster.api.stream(path, query, read_timeout_s)

    def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        self._cluster.before_patch(path)
        answer = self._cluster.api.patch(path, body, patch_type, query)
        if self._cluster.hears:
            self._cluster.hear()
        return answer


def to_bind(node: str = "n1", task: str = "team/p1", **devices: str) -> Bind:
    """Give a bind; `c1="0"` gives claim team/c1 the node's device gpu-0, `c1="0,1"` two of them."""
    given = tuple(
        (f"team/{name}", tuple(f"{DRIVER}/{node}/gpu-{index}" for index in numbers.split(",")))
        for name, numbers in devices.items()
    )
    return Bind(task=task, job="team/job", node=node, devices=given)


def allocated(device: str = "gpu-0", node: str = "n1", users: tuple[str, ...] = (), **result: Any) -> Any:
    """Give the status of an allocated claim."""
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": device, **result}]
    return {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        },
        "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users],
    }
