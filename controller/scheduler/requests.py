"""What pods ask for, and where they may go: frozen values, equal ones are one signature. Pure.

Units: milli-GPU (1000 = a whole one), MiB for GPU memory, millicores, bytes. Names follow Kubernetes and KAI Scheduler.
"""

from controller.scheduler.amounts import Amount
from controller.scheduler.values import Value


class Alignment(Value, frozen=True, kw_only=True):
    """What of a pod's request its kubelet aligns to NUMA zones, each sorted by name: what the pod holds for itself alone.

    That is whole CPUs, memory and huge pages where it is `guaranteed` (QoS class Guaranteed), and devices always. `pod` is
    all of it in one (scope pod); `containers` run beside each other, sidecars first; `init` containers end before those.
    """

    guaranteed: bool = False
    pod: tuple[Amount, ...] = ()
    containers: tuple[tuple[Amount, ...], ...] = ()
    init: tuple[tuple[Amount, ...], ...] = ()


class Request(Value, frozen=True, kw_only=True):
    """What one pod asks for. Exactly one way to ask for GPUs is used:

    `gpus` whole ones; `portion` milli-GPU on each of `devices` cards; `gpu_memory_mib` on each of `devices` cards; `mig`
    profile -> count (without the "nvidia.com/mig-" prefix, e.g. "1g.10gb"); `claims` ResourceClaims by name.
    `other`: extended resources by name (RDMA devices among them). `rdma`: asks for RDMA, so a node with a slow port is out.
    `dra_gpus`: devices of GPU classes that its claims ask for, as quota counts them. `legacy_mig`: asks for a MIG instance
    by KAI's old annotations; it goes nowhere any more. `alignment`: None = nothing, or no node of the cluster has zones.
    """

    gpus: int = 0
    portion: int = 0
    gpu_memory_mib: int = 0
    devices: int = 1
    mig: tuple[tuple[str, int], ...] = ()
    claims: tuple[str, ...] = ()
    dra_gpus: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    other: tuple[tuple[str, int], ...] = ()
    rdma: bool = False
    best_effort: bool = False
    legacy_mig: bool = False
    alignment: Alignment | None = None

    @property
    def is_shared(self) -> bool:
        """Whether it asks for part of a card."""
        return self.portion > 0 or self.gpu_memory_mib > 0

    @property
    def asks_for_gpu(self) -> bool:
        """Whether it asks for a GPU, or a part of one, in any way."""
        return bool(self.gpus or self.portion or self.gpu_memory_mib or self.mig or self.dra_gpus)


class Toleration(Value, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(Value, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class Expression(Value, frozen=True, kw_only=True):
    """One requirement of a label selector or node selector: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(Value, frozen=True, kw_only=True):
    """All of these must hold; `fields` match metadata.name."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


class PreferredNodeTerm(Value, frozen=True, kw_only=True):
    weight: int
    term: NodeTerm


class PodTerm(Value, frozen=True, kw_only=True):
    """A term of pod affinity or anti-affinity: pods that match `selector` in these namespaces, by `topology_key`.

    `namespaces` empty = the pod's own; `all_namespaces` = an empty namespace selector. `weight` 0 = required.
    """

    selector: tuple[Expression, ...] = ()
    topology_key: str
    namespaces: tuple[str, ...] = ()
    all_namespaces: bool = False
    weight: int = 0


class Spread(Value, frozen=True, kw_only=True):
    """One PodTopologySpread constraint; `hard` = whenUnsatisfiable DoNotSchedule."""

    max_skew: int
    topology_key: str
    hard: bool
    selector: tuple[Expression, ...] = ()
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Constraints(Value, frozen=True, kw_only=True):
    """Where a pod may go. Equal constraints are one signature: fits are worked out once for all pods that share them.

    `required` are alternatives (OR) as in nodeAffinity; `volumes` is a conjunction: one tuple of alternatives for each bound
    PersistentVolume or storage class topology. `missing` names what the pod needs and the cluster lacks (ConfigMap, PVC):
    it goes nowhere until that is there.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """Whether what other pods do decides where it may go."""
        return bool(self.pod_affinity or self.pod_anti_affinity or self.spread or self.ports)


ANYWHERE = Constraints()
