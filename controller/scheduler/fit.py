"""May this pod go to this node? Everything that can refuse, and in which words. Pure.

What depends on the pod's own words and on the node alone (closed, cordon, taints, affinity, volumes, findings, kind of node)
is worked out once for all pods that are alike and kept for the cycle; room and what other pods do are asked anew.
Sources: kube-scheduler's filters for the phrases; kai.md 6.3 and 7.1 and KAI's PredicateByNodeResourcesType for MIG nodes.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from controller.scheduler import health_limits, node_terms
from controller.scheduler.claims import Claims
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import Snapshot, TaskStatus
from controller.scheduler.nodes import Node
from controller.scheduler.pod_affinity import PodAffinity
from controller.scheduler.requests import Constraints, Request
from controller.scheduler.rules import Rules
from controller.scheduler.spread import TopologySpread
from controller.scheduler.state import NodeState, TaskState

if TYPE_CHECKING:
    from controller.scheduler.session import Session

MIG_LABEL = "node-role.kubernetes.io/mig-enabled"
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
GPU_WORKER_LABEL = "node-role.kubernetes.io/gpu-worker"
CPU_WORKER_LABEL = "node-role.kubernetes.io/cpu-worker"
PORTS_REFUSED = "node(s) didn't have free ports for the requested pod ports"
EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - a pod's hostIP, nothing that is listened on
TRUE_WORDS = frozenset({"1", "t", "T", "true", "TRUE", "True"})
NOT_ASKED: Final = ""
MOST_MODELS: Final = 64
"""For how many shapes of pods every node is looked at for `only_model` in one cycle."""

Kind: TypeAlias = tuple[bool, ...]


class Shape:
    """Pods alike in what a node's own properties decide. `refusals` by node index: why not, None = fits, "" = not asked."""

    __slots__ = ("constraints", "counted", "key", "model", "refusals", "request")

    def __init__(self, key: int, request: Request, constraints: Constraints, nodes: int) -> None:
        self.key = key
        self.request = request
        self.constraints = constraints
        self.refusals: list[str | None] = [NOT_ASKED] * nodes
        self.counted: Counter[str] | None = None
        self.model: str | None = None


class Fit:
    """Answers for one cycle."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, rules: Rules) -> None:
        self.ledger = ledger
        self._settings = snapshot.settings
        self._rules = rules
        tasks = [*ledger.tasks.values(), *ledger.others]
        self.affinity = PodAffinity(ledger, tasks, not rules.terminating_frees_affinity)
        self.spread = TopologySpread(ledger, self.affinity)
        self.claims = Claims(snapshot, ledger, tasks, rules)
        self._shapes: dict[tuple[Constraints, Kind], Shape] = {}
        self._alike: dict[tuple[Constraints, Request, bool], tuple[Shape, bool]] = {}
        self._of_task: dict[str, tuple[Shape, bool]] = {}
        self.narrow = health_limits.NarrowGangs(ledger)
        self._asked_models = 0

    def of(self, task: TaskState) -> tuple[Shape, bool]:
        """Give a pod's shape, and whether other pods (or claims) decide about it besides."""
        found = self._of_task.get(task.id)
        if found is None:
            constraints, request, is_dynamic = (
                task.spec.constraints,
                task.spec.request,
                self._is_dynamic(task),
            )
            alike = (constraints, request, is_dynamic)
            found = self._alike.get(alike)
            if found is None:
                found = self._alike[alike] = (self._shape(constraints, request), is_dynamic)
            self._of_task[task.id] = found
        return found

    def _shape(self, constraints: Constraints, request: Request) -> Shape:
        if constraints.is_dynamic:
            constraints = structs.replace(
                constraints, pod_affinity=(), pod_anti_affinity=(), spread=(), ports=()
            )
        key = (constraints, _kind(request))
        shape = self._shapes.get(key)
        if shape is None:
            shape = Shape(len(self._shapes), request, constraints, len(self.ledger.nodes))
            self._shapes[key] = shape
        return shape

    def _is_dynamic(self, task: TaskState) -> bool:
        if task.spec.request.claims:
            return True
        if self.narrow.is_needed and task.job is not None and health_limits.is_gang(task.job):
            return True
        if not self._settings.predicates:
            return False
        constraints = task.spec.constraints
        return bool(constraints.ports or constraints.spread or self.affinity.concerns(task))

    def refusal(self, shape: Shape, node: NodeState) -> str | None:
        """Say why no pod of this shape goes to a node, whatever else runs there."""
        why = shape.refusals[node.index]
        if why == NOT_ASKED:
            why = shape.refusals[node.index] = self._why_not_ever(shape, node)
        return why

    def only_model(self, task: TaskState) -> str:
        """Name the model of all GPUs that a pod may get, "" where there are several, or none, or too many shapes to ask."""
        shape, _ = self.of(task)
        if shape.model is None:
            shape.model = ""
            self._asked_models += 1
            if self._asked_models <= MOST_MODELS:
                shape.model = self._only_model(shape)
        return shape.model

    def _only_model(self, shape: Shape) -> str:
        found: set[str] = set()
        for node in self.ledger.nodes:
            models = {device.spec.model for device in node.devices}
            if not models <= found and self.refusal(shape, node) is None:
                found |= models
                if len(found) > 1:
                    return ""
        return found.pop() if found else ""

    def _why_not_ever(self, shape: Shape, state: NodeState) -> str | None:
        node, request, constraints = state.spec, shape.request, shape.constraints
        if constraints.missing:
            return f"{constraints.missing[0]} not found"
        tolerations = constraints.tolerations
        why = health_limits.why_not_health(node, request) or node_terms.why_not_cordon(
            tolerations, node, self._rules.tolerate_cordon
        )
        if why is None and self._settings.predicates:
            why = (
                node_terms.why_not_taints(tolerations, node.taints)
                or node_terms.why_not_affinity(constraints, node)
                or node_terms.why_not_volumes(constraints, node)
            )
        return why or self._why_not_kind(state, request)

    def _why_not_kind(self, state: NodeState, request: Request) -> str | None:
        """Say why this kind of request and this kind of node do not go together."""
        node = state.spec
        if request.legacy_mig:
            return "node(s) give MIG instances by resource name only, not by annotation"
        if self._settings.restrict_node_scheduling:
            label = GPU_WORKER_LABEL if request.asks_for_gpu else CPU_WORKER_LABEL
            if label not in node.labels:
                return f"node(s) didn't have the label {label}"
        if not request.asks_for_gpu:
            return None
        if request.is_shared and self.claims.has_gpus(state):
            return "node(s) offer GPUs as claims only, which cannot be shared by portion"
        if request.gpu_memory_mib and not node.gpu_memory_known:
            return "node(s) had unknown GPU memory"
        return _why_not_mig(node, request)

    def why_not_others(self, task: TaskState, node: NodeState, later: bool) -> str | None:
        """Say why the pods that are on a node or in its domain, or a pod's claims, keep it off."""
        if self._settings.predicates:
            constraints = task.spec.constraints
            if constraints.ports and _ports_conflict(task, node, later):
                return PORTS_REFUSED
            why = self.affinity.why_not(task, node)
            if why is None and constraints.spread and self._rules.topology_spread:
                why = self.spread.why_not(task, node)
            if why is not None:
                return why
        if self.narrow.is_needed:
            why = self.narrow.why_not(task, node, later)
            if why is not None:
                return why
        return self.claims.why_not(task, node, later) if task.spec.request.claims else None

    def why_not(self, task: TaskState, node: NodeState, later: bool) -> str | None:
        """Say why a pod cannot go to a node now or, with `later`, when what is being released there is gone."""
        shape, is_dynamic = self.of(task)
        why = self.refusal(shape, node) or self.ledger.why_not_room(task, node, later)
        if why is None and is_dynamic:
            why = self.why_not_others(task, node, later)
        return why


def why_not(session: "Session", task: TaskState, node: NodeState, later: bool) -> str | None:
    """Say why a pod cannot go to a node; None = it can. See `Fit.why_not`."""
    return session.fit.why_not(task, node, later)


def _kind(request: Request) -> Kind:
    """Give all of a request that a node's own properties decide by."""
    return (
        request.asks_for_gpu,
        health_limits.gpu_devices(request) > 1,
        request.rdma,
        bool(request.mig),
        request.is_shared,
        request.gpu_memory_mib > 0,
        request.gpus > 0,
        request.legacy_mig,
    )


def is_mig(node: Node) -> bool:
    """Tell whether a node's GPUs are cut into MIG instances: by KAI's label or, without one, by what it offers."""
    label = node.labels.get(MIG_LABEL)
    if label is not None:
        return label in TRUE_WORDS
    return node.mig_strategy == "single" or any(node.mig.values())


def _why_not_mig(node: Node, request: Request) -> str | None:
    if not is_mig(node):
        return "node(s) had no MIG instances" if request.mig else None
    strategy = node.mig_strategy or node.labels.get(MIG_STRATEGY_LABEL, "")
    if strategy == "single" and not (request.gpus or request.dra_gpus):
        return "node(s) had MIG strategy single, which gives whole instances only"
    if strategy == "mixed" and not request.mig:
        return "node(s) had MIG strategy mixed, which gives instances by profile only"
    if request.is_shared:
        return "node(s) had GPUs cut by MIG, which cannot be shared by portion"
    return None


def _ports_conflict(task: TaskState, node: NodeState, later: bool) -> bool:
    """Tell whether a host port is taken. A pod that ends keeps its ports until it is gone."""
    wanted = task.spec.constraints.ports
    for other in node.tasks.values():
        ports = other.spec.constraints.ports
        if not ports or other is task or (other.status is TaskStatus.RELEASING and (later or other.evicted)):
            continue
        if any(_same_port(one, two) for one in wanted for two in ports):
            return True
    return False


def _same_port(one: tuple[str, str, int], two: tuple[str, str, int]) -> bool:
    if one[2] != two[2] or (one[0] or "TCP") != (two[0] or "TCP"):
        return False
    return one[1] == two[1] or one[1] in EVERY_ADDRESS or two[1] in EVERY_ADDRESS
