"""From Kubernetes objects to the snapshot of one instant. Pure: equal objects give an equal snapshot, in whatever order.

An object that cannot be read is left out and said, and stops nothing else: without its Node a pod goes nowhere, without its
Queue or PodGroup a job waits. What runs holds its place all the same: a pod whose annotations or PodGroup cannot be read
counts as what its containers ask for, or else its cards would be given away a second time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

import msgspec

from controller.scheduler.claim_objects import claims_of, devices_of
from controller.scheduler.device_rules import with_rules
from controller.scheduler.gpu_holdings import holdings, is_reservation, lonely_reservations
from controller.scheduler.health import node_of, told_of
from controller.scheduler.model import Job, Queue, Settings, Snapshot, SubGroup, Task, TaskStatus
from controller.scheduler.node_cards import GPU_MEMORY, cards_of
from controller.scheduler.node_findings import Seen
from controller.scheduler.nodes import Claim, Device, Gpu, Node, NumaTopology, PartHealth
from controller.scheduler.numa_objects import topology_of
from controller.scheduler.plan import Promise
from controller.scheduler.pod_constraints import Surroundings
from controller.scheduler.pod_tasks import SUB_GROUP, Binding, leaving, name_of, status_of, task_of
from controller.scheduler.queue_objects import job_of, queues_of, topologies_of
from controller.scheduler.remembered import MadeNode, Remembered, stands_alone
from controller.scheduler.rules import DEFAULT, Rules
from controller.scheduler.unseen import Unseen, gpu_nodes, warning, without_new_gpus
from kube.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kube.nodehealth import NodeHealth
from kube.scheduling import NodeResourceTopology, PodGroup, PriorityClass, Topology
from kube.scheduling import Queue as KubeQueue
from kube.types import Lease, ObjectMeta, Pod
from kube.types import Node as KubeNode

POD_GROUP: Final = "pod-group-name"
DEFAULT_POD_SET: Final = "default"

T = TypeVar("T")


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server shows at one instant. `leases`: the agents', by node; None = nobody looked."""

    nodes: tuple[KubeNode, ...] = ()
    health: tuple[NodeHealth, ...] = ()
    leases: Mapping[str, Lease] | None = None
    pods: tuple[Pod, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    queues: tuple[KubeQueue, ...] = ()
    topologies: tuple[Topology, ...] = ()
    node_topologies: tuple[NodeResourceTopology, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    taint_rules: tuple[DeviceTaintRule, ...] = ()
    around: Surroundings = Surroundings()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Whose pods are planned, and how. `pool`: the value of `pool_label` that is planned; "" = what lacks the label.

    `stuck_after`: how long past its end a pod may go on running and still be believed to release its resources.
    `binding`: by pod, namespace/name. `usage`: what each queue used in the past, by name (`usage.decayed`), where there is
    a history. `unseen`: whether GPU nodes that no agent ever reported take new GPU pods. `suspected`: as in
    `model.Snapshot`; `reserved_for`, `promises` too, from the last plan. `protected`: why a pod cannot be evicted now;
    `evicting`: pods whose eviction was sent and does not show yet.
    """

    settings: Settings = Settings()
    scheduler_name: str = "kai-scheduler"
    pool_label: str = "kai.scheduler/node-pool"
    pool: str = ""
    stuck_after: timedelta = timedelta(minutes=2)
    binding: Mapping[str, Binding] = {}
    usage: Mapping[str, tuple[int, int, int]] = {}
    unseen: Unseen = Unseen.ADMIT
    suspected: str = ""
    reserved_for: str = ""
    promises: tuple[Promise, ...] = ()
    protected: Mapping[str, str] = {}
    evicting: frozenset[str] = frozenset()


DEFAULT_OPTIONS: Final = Options()


def build(
    objects: Objects,
    now: datetime,
    options: Options = DEFAULT_OPTIONS,
    rules: Rules = DEFAULT,
    remembered: Remembered | None = None,
) -> tuple[Snapshot, tuple[str, ...]]:
    """Give the snapshot, and what could not be read, in words that name the object.

    `remembered`: what was made for the snapshot before, under the same options and rules but for what a cycle changes.
    """
    kept = remembered or Remembered()
    kept.turn()
    builder = _Builder(objects, now, options, rules, kept)
    snapshot = builder.snapshot()
    return snapshot, tuple(builder.problems)


class _Builder:
    """One build; `problems` grows on the way."""

    def __init__(
        self, objects: Objects, now: datetime, options: Options, rules: Rules, remembered: Remembered
    ) -> None:
        self.problems: list[str] = []
        self._objects = objects
        self._now = now
        self._options = options
        self._rules = rules
        self._health = {one.metadata.name: one for one in objects.health}
        self._priorities = {one.metadata.name: one for one in objects.priority_classes}
        self._claims = {_name(one.metadata): one for one in objects.claims}
        self._aliases = {
            one.metadata.name: {level.alias: level.node_label for level in one.spec.levels if level.alias}
            for one in objects.topologies
        }
        self._cards: dict[str, tuple[Gpu, ...]] = {}
        self._told: dict[str, NodeHealth | None] = {}
        self._node_topologies = {one.metadata.name: one for one in objects.node_topologies}
        self._is_zoned = False
        self._remembered = remembered
        self._given = {
            claim: devices for one in options.binding.values() for claim, devices in one.devices if devices
        }
        self._pods = sorted(objects.pods, key=name_of)
        self._status = {
            name: leaving(status) if name in options.evicting else status
            for pod in self._pods
            for name in (name_of(pod),)
            for status in (status_of(pod, now, options.stuck_after, options.binding.get(name), rules),)
        }

    def snapshot(self) -> Snapshot:
        nodes = tuple(self._nodes())
        devices = self._devices(nodes)
        nodes = self._judge_unseen(nodes, devices)
        self._is_zoned = any(node.numa is not None for node in nodes)
        held = self._holdings(nodes)
        groups = {_name(one.metadata): one for one in self._objects.pod_groups if self._in_pool(one.metadata)}
        members: dict[str, list[Pod]] = {name: [] for name in sorted(groups)}
        others: list[Pod] = []
        for pod in self._pods:
            group = f"{pod.metadata.namespace}/{pod.metadata.annotations.get(POD_GROUP, '')}"
            is_ours = pod.spec.scheduler_name == self._options.scheduler_name
            (members[group] if is_ours and group in members else others).append(pod)
        jobs = tuple(self._jobs(groups, members, held))
        unread = members.keys() - {job.id for job in jobs}
        others += [pod for name in sorted(unread) for pod in members[name]]
        names = {node.name for node in nodes}
        classes = {one.metadata.name: one for one in self._objects.device_classes}
        return Snapshot(
            now=self._now,
            nodes=nodes,
            queues=tuple(self._queues()),
            jobs=jobs,
            others=tuple(self._others(others, names, held)),
            topologies=topologies_of(self._objects.topologies),
            devices=devices,
            claims=tuple(map(self._claimed, claims_of(self._claims, classes))),
            suspected=self._options.suspected,
            reserved_for=self._options.reserved_for,
            promises=self._options.promises,
            settings=self._options.settings,
        )

    def _claimed(self, claim: Claim) -> Claim:
        """Give a claim with the devices of a bind under way, which its status does not show yet."""
        given = () if claim.devices else self._given.get(claim.id, ())
        return msgspec.structs.replace(claim, devices=given) if given else claim

    def _in_pool(self, meta: ObjectMeta) -> bool:
        return meta.labels.get(self._options.pool_label, "") == self._options.pool

    def _read(self, kind: str, name: str, make: Callable[[], T]) -> Iterator[T]:
        try:
            yield make()
        except ValueError as error:
            self.problems.append(f"{kind} {name}: {error}")

    def _nodes(self) -> Iterator[Node]:
        leases = self._objects.leases
        for node in sorted(self._objects.nodes, key=lambda one: one.metadata.name):
            if self._in_pool(node.metadata):
                name = node.metadata.name
                self._told[name] = told_of(node, self._health.get(name))
                seen = Seen(
                    node=node,
                    health=self._told[name],
                    lease=None if leases is None else leases.get(name),
                    leases_known=leases is not None,
                )
                for made, cards in self._remembered_node(name, seen):
                    self._cards[name] = cards
                    numa = self._numa(name)
                    yield made if numa is None else msgspec.structs.replace(made, numa=numa)

    def _numa(self, name: str) -> NumaTopology | None:
        told = self._node_topologies.get(name)
        if told is None:
            return None
        return next(self._read("NodeResourceTopology", name, partial(topology_of, told)), None)

    def _judge_unseen(self, nodes: tuple[Node, ...], devices: Iterable[Device]) -> tuple[Node, ...]:
        """Keep new GPU pods off nodes that no agent ever reported, or say that they come."""
        unreported = {name for name in gpu_nodes(nodes, devices) if self._told[name] is None}
        if self._options.unseen is Unseen.REFUSE:
            return tuple(without_new_gpus(node) if node.name in unreported else node for node in nodes)
        if unreported and not any(self._told.values()):
            self.problems.append(warning(self._options.pool, unreported))
        return nodes

    def _remembered_node(self, name: str, seen: Seen) -> list[MadeNode]:
        def make() -> tuple[list[MadeNode], bool]:
            before = len(self.problems)
            return self._node(name, seen), len(self.problems) == before

        renewed = None if seen.lease is None else seen.lease.spec.renew_time
        same = (seen.node, self._health.get(name))
        return self._remembered.node(name, same, (renewed, seen.leases_known), self._now, make)

    def _node(self, name: str, seen: Seen) -> list[MadeNode]:
        """Read a node and its cards; if need be without the label of their memory, which then nobody knows."""
        found = list(self._read("Node", name, partial(self._node_and_cards, seen)))
        if not found and seen.node.metadata.labels.get(GPU_MEMORY):
            labels = {**seen.node.metadata.labels, GPU_MEMORY: ""}
            meta = msgspec.structs.replace(seen.node.metadata, labels=labels)
            plain = msgspec.structs.replace(seen.node, metadata=meta)
            with suppress(ValueError):
                found.append(self._node_and_cards(msgspec.structs.replace(seen, node=plain)))
        return found

    def _node_and_cards(self, seen: Seen) -> MadeNode:
        return node_of(seen, self._now, self._rules), cards_of(seen, self._now, self._rules)

    def _holdings(self, nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
        on_node: dict[str, list[Pod]] = {}
        for pod in self._pods:
            if pod.spec.node_name and self._lives(pod):
                on_node.setdefault(pod.spec.node_name, []).append(pod)
        found: dict[str, tuple[str, ...]] = {}
        for node in nodes:
            if node.gpus:
                cards = [gpu.uuid for gpu in sorted(node.gpus, key=_best_first)]
                found.update(holdings(on_node.get(node.name, ()), self._told.get(node.name), cards))
        return found

    def _queues(self) -> Iterator[Queue]:
        pool = [queue for queue in self._objects.queues if self._in_pool(queue.metadata)]
        try:
            yield from queues_of(pool, self._options.usage)
        except ValueError:
            readable = [
                queue
                for queue in pool
                for _ in self._read("Queue", queue.metadata.name, partial(queues_of, (queue,)))
            ]
            yield from queues_of(readable, self._options.usage)

    def _jobs(
        self,
        groups: Mapping[str, PodGroup],
        members: Mapping[str, list[Pod]],
        held: Mapping[str, tuple[str, ...]],
    ) -> Iterator[Job]:
        for name, pods in members.items():
            yield from self._read("PodGroup", name, partial(self._job, name, groups[name], pods, held))

    def _job(self, name: str, group: PodGroup, pods: list[Pod], held: Mapping[str, tuple[str, ...]]) -> Job:
        waiting = [pod for pod in pods if self._status[name_of(pod)] is TaskStatus.PENDING]
        born = [at for pod in pods if (at := pod.metadata.creation_timestamp) is not None]
        job = job_of(
            group,
            (),
            classes=self._priorities,
            aliases=self._aliases,
            pool=self._options.pool,
            pending_since=min(
                (pod.metadata.creation_timestamp for pod in waiting if pod.metadata.creation_timestamp),
                default=None,
            ),
        )
        only = DEFAULT_POD_SET if _has_pod_set(job.root, DEFAULT_POD_SET) else ""
        tasks: list[Task] = []
        for index, pod in enumerate(pods):
            pod_set = (pod.metadata.labels.get(SUB_GROUP) or only) if group.spec.sub_groups else ""
            tasks += self._tasks(pod, name, index, pod_set, held)
        started_at = max(filter(None, (job.started_at, _running_since(pods))), default=None)
        # A group that was written after its pods, as a single pod's may be, must not lose its turn by that.
        created_at = min([job.created_at, *born])
        return msgspec.structs.replace(job, tasks=tuple(tasks), started_at=started_at, created_at=created_at)

    def _others(
        self, pods: Iterable[Pod], nodes: set[str], held: Mapping[str, tuple[str, ...]]
    ) -> Iterator[Task]:
        living = [pod for pod in pods if pod.spec.node_name in nodes and self._lives(pod)]
        bound = {uuid for binding in self._options.binding.values() for uuid in binding.gpus}
        lonely = lonely_reservations((pod for pod in self._pods if self._lives(pod)), bound)
        for pod in living:
            if not is_reservation(pod) or name_of(pod) in lonely:
                yield from self._tasks(pod, "", 0, "", held)

    def _lives(self, pod: Pod) -> bool:
        return self._status[name_of(pod)] not in (TaskStatus.SUCCEEDED, TaskStatus.FAILED)

    def _tasks(
        self, pod: Pod, job: str, index: int, pod_set: str, held: Mapping[str, tuple[str, ...]]
    ) -> list[Task]:
        """Read a pod; one that is on a node if need be without its annotations."""
        found = list(self._read("Pod", name_of(pod), partial(self._task, pod, job, index, pod_set, held)))
        if not found and pod.spec.node_name:
            meta = msgspec.structs.replace(pod.metadata, annotations={})
            plain = msgspec.structs.replace(pod, metadata=meta)
            with suppress(ValueError):
                found.append(self._task(plain, job, index, pod_set, held))
        return found

    def _task(
        self, pod: Pod, job: str, index: int, pod_set: str, held: Mapping[str, tuple[str, ...]]
    ) -> Task:
        name = name_of(pod)
        status, gpus = self._status[name], held.get(name, ())
        binding, protected = self._options.binding.get(name), self._options.protected.get(name, "")

        def make() -> Task:
            made = task_of(
                pod,
                status,
                job=job,
                index=index,
                pod_set=pod_set,
                gpus=gpus,
                binding=binding,
                around=self._objects.around,
                claims=self._claims,
                zoned=self._is_zoned,
            )
            return msgspec.structs.replace(made, protected=protected) if protected else made

        if not stands_alone(pod):
            return self._remembered.shared(make())
        equal = (status, job, index, pod_set, gpus, binding, protected, self._is_zoned)
        return self._remembered.task(name, pod, equal, self._now, make)

    def _devices(self, nodes: Iterable[Node]) -> tuple[Device, ...]:
        """Give the devices of this pool's nodes as healthy as their cards: a sick one is none, an Unknown one is closed."""
        cards = {node.name: {gpu.uuid: gpu for gpu in self._cards.get(node.name, ())} for node in nodes}
        slices = with_rules(self._objects.slices, self._objects.taint_rules)
        classes, claims = self._objects.device_classes, self._objects.claims
        found = devices_of(slices, classes, claims, self._remembered.selectors)
        return tuple(
            msgspec.structs.replace(
                device, closed=_why_closed(cards[device.node].get(device.gpu)) or device.closed
            )
            for device in found
            if device.node in cards and not _is_sick(cards[device.node].get(device.gpu))
        )


def _name(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}"


def _best_first(gpu: Gpu) -> tuple[bool, bool, int]:
    return (gpu.health is PartHealth.SICK, not gpu.offered, gpu.index)


def _running_since(pods: Iterable[Pod]) -> datetime | None:
    """Give when the oldest pod that runs was started: the group's own note may be of a run before, or not written yet."""
    started = (
        pod.status.start_time
        for pod in pods
        if pod.spec.node_name and pod.status.phase in ("Pending", "Running")
    )
    return min(filter(None, started), default=None)


def _is_sick(gpu: Gpu | None) -> bool:
    return gpu is not None and gpu.health is PartHealth.SICK


def _why_closed(gpu: Gpu | None) -> str:
    return gpu.why if gpu is not None and gpu.health is PartHealth.UNKNOWN else ""


def _has_pod_set(group: SubGroup, name: str) -> bool:
    return any(leaf.name == name for leaf in group.pod_sets) or any(
        _has_pod_set(one, name) for one in group.groups
    )
