"""Storage as far as it binds pods to nodes: claims, volumes, storage classes. Slim views, as in `kube.types`."""

from kube.placement import LabelSelector, NodeSelector
from kube.types import ObjectMeta, ResourceRequirements, Struct

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: where the scheduler wants its volume; the provisioner takes it away where it failed."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class VolumeClaimSpec(Struct, frozen=True, kw_only=True):
    """`storage_class_name` None = the cluster's default, "" = none."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: VolumeClaimSpec = VolumeClaimSpec()


class VolumeNodeAffinity(Struct, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class VolumeClaimReference(Struct, frozen=True, kw_only=True):
    """`uid` "" = whoever has this name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Struct, frozen=True, kw_only=True):
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()
    capacity: dict[str, str] = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: VolumeClaimReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""


class PersistentVolume(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabel(Struct, frozen=True, kw_only=True):
    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct, frozen=True, kw_only=True):
    match_label_expressions: tuple[TopologySelectorLabel, ...] = ()


class StorageClass(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
