"""Storage as far as it binds pods to nodes: claims, volumes, storage classes. Slim views, as in `kube.types`."""

from kube.placement import NodeSelector
from kube.types import ObjectMeta, Struct

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


class VolumeClaimSpec(Struct, frozen=True, kw_only=True):
    """`storage_class_name` None = the cluster's default, "" = none."""

    volume_name: str = ""
    storage_class_name: str | None = None


class PersistentVolumeClaim(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: VolumeClaimSpec = VolumeClaimSpec()


class VolumeNodeAffinity(Struct, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct, frozen=True, kw_only=True):
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologySelectorLabel(Struct, frozen=True, kw_only=True):
    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct, frozen=True, kw_only=True):
    match_label_expressions: tuple[TopologySelectorLabel, ...] = ()


class StorageClass(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
