"""What there is: nodes, their cards and zones, domains, devices and claims; frozen values. Pure.

Units: MiB for GPU memory, millicores, bytes.
"""

from enum import StrEnum

from controller.scheduler.requests import Taint, Toleration
from controller.scheduler.values import Value


class PartHealth(StrEnum):
    """What is known of a part. Not evaluated is HEALTHY here: what hardware cannot show never blocks."""

    HEALTHY = "Healthy"
    UNKNOWN = "Unknown"
    SICK = "Sick"


class Gpu(Value, frozen=True, kw_only=True):
    """One card. `memory_mib` is what pods may use: the card less the driver's reserve.

    SICK: out of the total, and what runs on it out of `allocated`. UNKNOWN: stays in both, takes nothing new. `why` is the
    finding's reason, or which condition is Unknown and why. `offered` False: kubelet gives it to nobody any more, so it is
    fenced. `avoid`: a finding with effect prefer-not stands on it: taken last.
    """

    uuid: str
    index: int = 0
    memory_mib: int = 0
    model: str = ""
    health: PartHealth = PartHealth.HEALTHY
    why: str = ""
    offered: bool = True
    avoid: str = ""


class TopologyPolicy(StrEnum):
    """kubelet's Topology Manager policies."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


class TopologyScope(StrEnum):
    """Whether kubelet aligns each container by itself or the pod as a whole."""

    CONTAINER = "container"
    POD = "pod"


class NumaZone(Value, frozen=True, kw_only=True):
    """One NUMA node by resource: what it can give, and what was free of it when the node reported last."""

    id: str
    allocatable: dict[str, int] = {}
    available: dict[str, int] = {}


class NumaTopology(Value, frozen=True, kw_only=True):
    """A node's NUMA zones, in order of their numbers, and how its kubelet aligns pods to them."""

    policy: TopologyPolicy = TopologyPolicy.NONE
    scope: TopologyScope = TopologyScope.CONTAINER
    zones: tuple[NumaZone, ...] = ()


class Node(Value, frozen=True, kw_only=True):
    """One node as the cycle sees it.

    `closed`: why it takes no new pod at all (cordoned, NotReady, quarantined), "" = open; `out`: besides, it is no
    capacity. `no_new_gpu`: why it takes no new pod with a GPU while others stay (an unfenced sick card, say).
    `no_multi_gpu`, `no_multi_node`, `avoid`: why pods of several GPUs, pods with RDMA and gangs over several nodes, or
    any pod where another node would do, are kept off; "" = they are not. `probe`: why it takes no more than
    `probe_pods` new pods now, "" = as many as fit. `unseen`: which of these fields are set only because something is
    Unknown. `whole_gpus`: how many GPUs kubelet gives in all, None = as many as `gpus` has (`believe_device_count`).
    `mig`: instances by profile in all; `no_new_mig`: why it takes no new pod with a MIG instance (a pod of KAI's old
    MIG annotations runs there, whose instances nobody counts). `cordoned` and `taints` are Kubernetes' own. `numa`
    None = nobody tells of its zones.
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    closed: str = ""
    out: bool = False
    no_new_gpu: str = ""
    no_multi_gpu: str = ""
    no_multi_node: str = ""
    avoid: str = ""
    probe: str = ""
    probe_pods: int = 1
    unseen: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 110
    other: dict[str, int] = {}
    gpus: tuple[Gpu, ...] = ()
    whole_gpus: int | None = None
    mig: dict[str, int] = {}
    mig_strategy: str = ""
    no_new_mig: str = ""
    gpu_memory_known: bool = True
    numa: NumaTopology | None = None


class Level(Value, frozen=True, kw_only=True):
    node_label: str
    alias: str = ""


class Topology(Value, frozen=True, kw_only=True):
    """Levels of domains, widest first."""

    name: str
    levels: tuple[Level, ...]


class DeviceTaint(Value, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class Device(Value, frozen=True, kw_only=True):
    """A device of a ResourceSlice; `id` is driver/pool/name; `gpu` the UUID where it is known.

    `device_class`: what it counts as; `kinds`: all that requests call it by: its classes, and classes with selectors of
    requests. `unanswered`: kinds of which nobody knows whether it is one, and why. `attributes`: those that constraints of
    claims are about, by qualified name. `closed`: why it takes nothing new though it is capacity (Unknown to its agent),
    "" = it does.
    """

    id: str
    device_class: str
    node: str
    taints: tuple[DeviceTaint, ...] = ()
    gpu: str = ""
    kinds: tuple[str, ...] = ()
    unanswered: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    closed: str = ""
    shared: bool = False


class DeviceRequest(Value, frozen=True, kw_only=True):
    """`count` devices of a kind; `all` = every one of the node (allocationMode All).

    `kind`: the class and the request's own selectors, "" = the class alone. `alternatives`: the first of them that can be
    had is what is given, and the rest here is empty; each is called request/alternative.
    """

    device_class: str = ""
    count: int = 1
    all: bool = False
    tolerations: tuple[Toleration, ...] = ()
    name: str = ""
    kind: str = ""
    alternatives: tuple["DeviceRequest", ...] = ()


class DeviceConstraint(Value, frozen=True, kw_only=True):
    """What is given to these requests (none = to all of the claim) has one value of an attribute, or each its own."""

    attribute: str
    requests: tuple[str, ...] = ()
    distinct: bool = False


class Claim(Value, frozen=True, kw_only=True):
    """A ResourceClaim. `id` namespace/name. `devices`: what it was allocated already. `reserved_for`: task ids.

    `why_not`: why it can be served by nobody ("" = it can): class unknown, allocation mode that is not supported.
    `from_template`: made for one pod, ends with it. `queue`: its kai.scheduler/queue label.
    """

    id: str
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    devices: tuple[str, ...] = ()
    reserved_for: tuple[str, ...] = ()
    reserved_places: int = 0
    from_template: bool = False
    queue: str = ""
    why_not: str = ""
