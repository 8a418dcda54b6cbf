"""What changes during a cycle: slotted objects, so that a million small steps stay cheap.

Only `ledger.Ledger` writes to them (and `queues` to QueueState's numbers on its behalf); everybody else reads. They refer to
each other directly; the frozen value each was made of is its `spec`.
"""

from itertools import accumulate
from typing import TypeAlias

from controller.scheduler.amounts import UNLIMITED, Amount, Amounts
from controller.scheduler.model import Job, Queue, SubGroup, Task, TaskStatus
from controller.scheduler.nodes import Gpu, Node, NumaTopology

Placement: TypeAlias = tuple[tuple[int, tuple[Amount, ...]], ...]
"""What a pod gets of each NUMA zone of its node, by the zone's place among them."""


class QueueState:
    """A queue's numbers, each a list in the order of `amounts.RESOURCES`.

    `allocated` counts ACTIVE_USED tasks of its whole subtree, `requested` those and the pending ones that are not gated.
    `path` runs from the root to itself. `quota` is `deserved`, or its part of that where capacity is short of what all
    deserve and want (rule `share_shortage`); set with `fair_share`. `by_model`: milli-GPU held of each model that it has a
    quota for, and how much of that by jobs that are not preemptible; `model_quota`: these quotas where they have a bound,
    or its part of one where the cards are fewer; `counts_models`: whether it or a queue above it has such a quota.
    """

    __slots__ = (
        "allocated",
        "allocated_np",
        "by_model",
        "children",
        "counts_models",
        "deserved",
        "fair_share",
        "limit",
        "model_quota",
        "name",
        "parent",
        "path",
        "quota",
        "requested",
        "spec",
        "usage",
        "weight",
    )

    def __init__(self, spec: Queue, parent: "QueueState | None") -> None:
        self.spec = spec
        self.name = spec.name
        self.parent = parent
        self.children: list[QueueState] = []
        self.path: tuple[QueueState, ...] = (*(parent.path if parent else ()), self)
        self.deserved = [quota.deserved for quota in spec.quotas]
        self.limit = [quota.limit for quota in spec.quotas]
        self.weight = [quota.weight for quota in spec.quotas]
        self.usage = list(spec.usage)
        self.quota = list(self.deserved)
        self.fair_share = [0, 0, 0]
        self.allocated = [0, 0, 0]
        self.allocated_np = [0, 0, 0]
        self.requested = [0, 0, 0]
        self.by_model: dict[str, list[int]] = {model: [0, 0] for model, _quota in spec.models}
        self.model_quota = {
            model: quota.deserved for model, quota in spec.models if quota.deserved != UNLIMITED
        }
        self.counts_models = any(state.by_model for state in self.path)
        if parent is not None:
            parent.children.append(self)


class DeviceState:
    """One card as pods share it. Free now: 1000 - used_milli and mib - used_mib. Free later: that + releasing - claimed.

    `used` includes what is being released; `releasing` is that part of it; `claimed` is what pipelined shared tasks want.
    `open` = a new pod may be given it (healthy and offered). `counts` = it is part of the node's capacity (not proven sick).
    """

    __slots__ = (
        "claimed_mib",
        "claimed_milli",
        "counts",
        "index",
        "mib",
        "node",
        "open",
        "releasing_mib",
        "releasing_milli",
        "spec",
        "used_mib",
        "used_milli",
        "uuid",
    )

    def __init__(self, spec: Gpu, node: "NodeState") -> None:
        self.spec = spec
        self.node = node
        self.uuid = spec.uuid
        self.index = spec.index
        self.mib = spec.memory_mib
        self.open = False
        self.counts = False
        self.used_milli = self.used_mib = 0
        self.releasing_milli = self.releasing_mib = 0
        self.claimed_milli = self.claimed_mib = 0


class NumaState:
    """A node's NUMA zones; as with the node's own numbers, `idle` is free now and `leaving` what is being released less
    what pipelined pods claim of that, each by zone and resource.

    `largest`: by resource, what the 1, 2, ... largest zones can give together. `counts_ending`: what is being released
    counts as free now. `unrecorded`: something runs there of which nobody knows the zones.
    """

    __slots__ = (
        "counts_ending",
        "idle",
        "ids",
        "largest",
        "leaving",
        "policy",
        "resources",
        "scope",
        "spec",
        "unrecorded",
    )

    def __init__(self, spec: NumaTopology, *, counts_ending: bool) -> None:
        zones = spec.zones
        self.spec = spec
        self.policy, self.scope = spec.policy, spec.scope
        self.ids = {zone.id: index for index, zone in enumerate(zones)}
        self.resources = tuple(sorted({name for zone in zones for name in zone.available}))
        self.idle = [{name: zone.allocatable.get(name, 0) for name in self.resources} for zone in zones]
        self.leaving = [dict.fromkeys(self.resources, 0) for _ in zones]
        self.largest = {
            name: tuple(accumulate(sorted((idle[name] for idle in self.idle), reverse=True)))
            for name in self.resources
        }
        self.counts_ending = counts_ending
        self.unrecorded = False

    def free(self, later: bool) -> list[dict[str, int]]:
        """Give what a new pod may have of each zone now or, with `later`, once all is gone that is being released."""
        both = zip(self.idle, self.leaving, strict=True)
        if later or self.counts_ending:
            return [{name: idle[name] + leaving[name] for name in idle} for idle, leaving in both]
        return [{name: idle[name] + min(leaving[name], 0) for name in idle} for idle, leaving in both]


class NodeState:
    """One node's free and releasing amounts.

    `idle_*` is free now; `releasing_*` is what is being released less what pipelined tasks claim of it, and may be negative
    where a claim waits for something idle. `idle_gpus`: whole cards that a new pod may be given now. `other` counters by
    extended resource name, MIG profiles among them under their full resource name. `tasks`: what is on it, by task id,
    pipelined ones included. `version` goes up with every change. `numa`: its zones, None where its kubelet aligns nothing.
    """

    __slots__ = (
        "devices",
        "idle_cpu",
        "idle_gpus",
        "idle_memory",
        "idle_other",
        "idle_pods",
        "index",
        "name",
        "numa",
        "releasing_cpu",
        "releasing_gpus",
        "releasing_memory",
        "releasing_other",
        "releasing_pods",
        "spec",
        "tasks",
        "version",
    )

    def __init__(self, spec: Node, index: int) -> None:
        self.spec = spec
        self.name = spec.name
        self.index = index
        self.devices: tuple[DeviceState, ...] = tuple([DeviceState(gpu, self) for gpu in spec.gpus])
        self.idle_cpu, self.idle_memory, self.idle_pods, self.idle_gpus = 0, 0, 0, 0
        self.releasing_cpu, self.releasing_memory, self.releasing_pods, self.releasing_gpus = 0, 0, 0, 0
        self.idle_other: dict[str, int] = {}
        self.releasing_other: dict[str, int] = {}
        self.tasks: dict[str, TaskState] = {}
        self.numa: NumaState | None = None
        self.version = 0


class TaskState:
    """One pod. `devices`: the cards it holds or, shared and pipelined, claims; `milli`, `mib` on each of them.

    `amounts` is what it counts for its queue. `evicted`: why this cycle evicts it, "" = it does not (it may be Pipelined
    elsewhere besides: it is moved). `claim_devices`: what its ResourceClaims got, (claim id, device ids).
    `zones`: what it has, or claims, of its node's NUMA zones.
    """

    __slots__ = (
        "amounts",
        "claim_devices",
        "devices",
        "evicted",
        "id",
        "job",
        "mib",
        "milli",
        "node",
        "spec",
        "status",
        "zones",
    )

    def __init__(self, spec: Task, job: "JobState | None") -> None:
        self.spec = spec
        self.id = spec.id
        self.job = job
        self.status: TaskStatus = spec.status
        self.node: NodeState | None = None
        self.devices: tuple[DeviceState, ...] = ()
        self.milli = self.mib = 0
        self.amounts: Amounts = (0, 0, 0)
        self.evicted = ""
        self.claim_devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
        self.zones: Placement = ()


class PodSetState:
    """A leaf subgroup and its pods. `held` = how many of them are ACTIVE_USED, kept by the ledger.

    `min_available` is the subgroup's own, or what is left of it beside pods that are done (`loading`).
    """

    __slots__ = ("held", "min_available", "name", "tasks")

    def __init__(self, name: str, min_available: int) -> None:
        self.name = name
        self.min_available = min_available
        self.tasks: list[TaskState] = []
        self.held = 0


class JobState:
    """A pod group. `tasks` in a stable order; `pod_sets` by name, leaves of `root`. `version` goes up with every change.

    `is_flat` = its tree is one pod set and nothing else. `lone`: that pod set, where one pod in it is all that the job has;
    of most jobs it is.
    """

    __slots__ = ("id", "is_flat", "lone", "pod_sets", "queue", "root", "spec", "tasks", "version")

    def __init__(self, spec: Job, queue: QueueState | None) -> None:
        self.spec = spec
        self.id = spec.id
        self.queue = queue
        self.root: SubGroup = spec.root
        self.is_flat = not spec.root.groups and len(spec.root.pod_sets) == 1
        self.tasks: list[TaskState] = []
        self.pod_sets: dict[str, PodSetState] = {}
        self.lone: PodSetState | None = None
        self.version = 0


class NodeSet:
    """Nodes that a job or subgroup may use, by `NodeState.index`.

    `key` stands for the content in caches: in one cycle equal keys mean equal nodes and scores. `scores`: 0 to 10 for a node
    by the domain of the preferred topology level, 10 = best; empty = no preference.
    """

    __slots__ = ("key", "nodes", "scores")

    def __init__(
        self, key: tuple[str, ...], nodes: frozenset[int], scores: dict[int, int] | None = None
    ) -> None:
        self.key = key
        self.nodes = nodes
        self.scores = scores or {}
