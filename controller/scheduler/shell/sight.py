"""What a cycle sees: one snapshot made of the stores at one instant, with what this process knows besides. Shell.

Besides are: which group each pod belongs to before the API says so (`grouping`), binds and evictions that were sent and do
not show yet (`assumed`), who goes back after failures, and what the last plan promised. Where the stores cannot be trusted
(not in, or not heard about for too long) it refuses to look, and says why.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Protocol

import msgspec

from controller.renewals import Renewals
from controller.scheduler.model import Job, Snapshot, TaskStatus
from controller.scheduler.plan import Promise
from controller.scheduler.pod_constraints import Surroundings
from controller.scheduler.pod_tasks import SUB_GROUP, Binding
from controller.scheduler.remembered import Remembered
from controller.scheduler.shell.config import Config
from controller.scheduler.shell.grouping import GroupView
from controller.scheduler.shell.health_watch import Verdict, narrowed, why_held_back
from controller.scheduler.shell.nominations import Beginning, shown
from controller.scheduler.shell.orders import needs_more
from controller.scheduler.shell.stores import Stores
from controller.scheduler.snapshot import POD_GROUP, Objects, Options, build
from kube.clock import Clock
from kube.nodehealth import NodeHealth
from kube.scheduling import PodGroup
from kube.store import key_of
from kube.types import Lease, Namespace, Node, Pod

FRACTIONS_ARE_OFF = (
    "GPU fractions are switched off (enable_fractions): nothing would keep a pod within its share of a card"
)
WOULD_NOT_COME_BACK = "GPU fractions are switched off (enable_fractions): it would find no place again"
QUEUES = "nodemend.dev/queues"
"""Annotation of a Namespace: the queues that its pods may use, separated by commas."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What this process knows besides the stores. `held_back`: why a job must wait, by job; `held_pods`:
    why a pod must that stands by itself in its job.

    `promises` None = it planned nothing yet: what pods show counts (`nominations`).
    """

    binding: Mapping[str, Binding] = {}
    evicting: frozenset[str] = frozenset()
    protected: Mapping[str, str] = {}
    held_back: Mapping[str, str] = {}
    held_pods: Mapping[str, str] = {}
    reserved_for: str = ""
    promises: tuple[Promise, ...] | None = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One instant. `nodes` and `healths`: the objects that it was made of; `extra`: why a job waits, of the shell's own."""

    snapshot: Snapshot
    problems: tuple[str, ...]
    group_problems: Mapping[str, str]
    extra: Mapping[str, str]
    pods: Mapping[str, Pod]
    nodes: Mapping[str, Node]
    healths: Mapping[str, NodeHealth]


class Groups(Protocol):
    """Who belongs to which pod group; see `grouping.Grouping`."""

    def view(self) -> GroupView: ...


class Sight:
    """The loop's thread looks. `why_not`: why nothing may be planned, whatever the stores say; None = all is well."""

    def __init__(
        self,
        stores: Stores,
        groups: Groups,
        config: Config,
        clock: Clock,
        *,
        why_not: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._why_not = why_not
        self._stores = stores
        self._groups = groups
        self._config = config
        self._clock = clock
        self._renewals = Renewals(clock)
        stores.leases.subscribe(self._renewals.see)
        self._members = Members()
        self._remembered = Remembered()
        self._beginning = Beginning(config.scheduler_name)

    def why_not_look(self) -> str | None:
        """Say why the stores cannot be trusted now, or nothing may be planned."""
        return (
            self._stores.why_not_synced()
            or self._stores.why_not_fresh(self._clock.monotonic())
            or self._why_not()
            or self._beginning.why_not(
                self._stores.pods.snapshot(), self._groups.view(), self._clock.monotonic()
            )
        )

    def look(self, now: datetime, known: Known, verdict: Verdict) -> Look:
        """Take one instant, with what is known of health besides."""
        stores, config = self._stores, self._config
        view = self._groups.view()
        pods = stores.pods.snapshot()
        nodes, healths = stores.nodes.snapshot(), stores.healths.snapshot()
        objects = Objects(
            nodes=tuple(nodes.values()),
            health=tuple(healths.values()),
            leases=self.leases(),
            pods=self._members.grouped(pods, view, config.scheduler_name),
            pod_groups=tuple(_all_groups(stores.pod_groups.snapshot(), view.made)),
            queues=stores.queues.values(),
            topologies=stores.topologies.values(),
            node_topologies=stores.node_topologies.values(),
            priority_classes=stores.priority_classes.values(),
            device_classes=stores.device_classes.values(),
            claims=stores.claims.values(),
            slices=stores.slices.values(),
            taint_rules=stores.taint_rules.values(),
            around=Surroundings(
                namespaces={name: one.metadata.labels for name, one in stores.namespaces.snapshot().items()},
                volume_claims=stores.volume_claims.snapshot(),
                volumes=stores.volumes.snapshot(),
                storage_classes=stores.storage_classes.snapshot(),
            ),
        )
        snapshot, problems = build(
            objects, now, self._options(known, verdict, objects.pods), config.rules, self._remembered
        )
        snapshot = narrowed(snapshot, verdict)
        held_back = {
            **_turned_away(snapshot, pods, verdict),
            **known.held_back,
            **not_their_queues(snapshot.jobs, stores.namespaces.snapshot()),
        }
        snapshot, extra = hold_back(snapshot, held_back, known.held_pods, fractions=config.enable_fractions)
        return Look(
            snapshot=snapshot,
            problems=problems,
            group_problems=view.problems,
            extra=extra,
            pods=pods,
            nodes=nodes,
            healths=healths,
        )

    def leases(self) -> Mapping[str, Lease]:
        """Give the agents' Leases by node, dated by our own clock."""
        return {
            name.rpartition("/")[2]: self._renewals.dated(lease)
            for name, lease in self._stores.leases.snapshot().items()
        }

    def _options(self, known: Known, verdict: Verdict, pods: tuple[Pod, ...]) -> Options:
        config, promises = self._config, known.promises
        return Options(
            settings=config.settings(),
            scheduler_name=config.scheduler_name,
            pool_label=config.pool_label,
            pool=config.pool,
            binding=known.binding,
            evicting=known.evicting,
            protected=known.protected,
            unseen=verdict.unseen,
            suspected=verdict.suspected,
            reserved_for=known.reserved_for,
            promises=shown(pods, config.scheduler_name) if promises is None else promises,
        )


class Members:
    """Pods with the name of their group on them, before the API has it: made once for each version of a pod."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Pod, str, str, Pod]] = {}

    def grouped(self, pods: Mapping[str, Pod], view: GroupView, scheduler_name: str) -> tuple[Pod, ...]:
        """Give all pods, those of ours with their group's annotation and their subgroup's label."""
        made: dict[str, tuple[Pod, str, str, Pod]] = {}
        found = [
            self._of(key, pod, view, made) if _is_ours(pod, scheduler_name) else pod
            for key, pod in pods.items()
        ]
        self._made = made
        return tuple(found)

    def _of(self, key: str, pod: Pod, view: GroupView, made: dict[str, tuple[Pod, str, str, Pod]]) -> Pod:
        told = view.members.get(key)
        if told is None or told.uid != pod.metadata.uid:
            return pod
        held = self._made.get(key)
        if held is None or held[0] is not pod or held[1:3] != (told.group, told.sub_group):
            held = (pod, told.group, told.sub_group, _with_group(pod, told.group, told.sub_group))
        made[key] = held
        return held[3]


def _is_ours(pod: Pod, scheduler_name: str) -> bool:
    return pod.spec.scheduler_name == scheduler_name


def _with_group(pod: Pod, group: str, sub_group: str) -> Pod:
    meta = pod.metadata
    annotations, labels = meta.annotations, meta.labels
    if POD_GROUP not in annotations:
        annotations = {**annotations, POD_GROUP: group.rpartition("/")[2]}
    if sub_group and SUB_GROUP not in labels:
        labels = {**labels, SUB_GROUP: sub_group}
    if annotations is meta.annotations and labels is meta.labels:
        return pod
    meta = msgspec.structs.replace(meta, annotations=annotations, labels=labels)
    return msgspec.structs.replace(pod, metadata=meta)


def _all_groups(stored: Mapping[str, PodGroup], made: Mapping[str, PodGroup]) -> Iterator[PodGroup]:
    yield from stored.values()
    yield from (group for key, group in made.items() if key not in stored)


def _turned_away(snapshot: Snapshot, pods: Mapping[str, Pod], verdict: Verdict) -> Mapping[str, str]:
    """Say which jobs wait since kubelet turned their like away again and again."""
    if not verdict.held_back:
        return {}
    found = {}
    for job in snapshot.jobs:
        waiting = [pods[task.id] for task in job.tasks if not task.node and task.id in pods]
        if why := why_held_back(job.id, waiting, verdict):
            found[job.id] = f"kubelet turned its pods away before, and it waits before the next try: {why}"
    return found


def not_their_queues(jobs: Iterable[Job], namespaces: Mapping[str, Namespace]) -> Mapping[str, str]:
    """Say which jobs name a queue that their namespace may not use, where its annotation says which it may.

    The admission policy of that name refuses the PodGroup; a pod is placed before that is written, so it is judged here too.
    """
    allowed = {
        name: tuple(word.strip() for word in one.metadata.annotations[QUEUES].split(",") if word.strip())
        for name, one in namespaces.items()
        if QUEUES in one.metadata.annotations
    }
    if not allowed:
        return {}
    return {
        job.id: f"namespace {job.namespace} may not use queue {job.queue}: its annotation {QUEUES} names "
        f"{', '.join(allowed[job.namespace]) or 'none'}"
        for job in jobs
        if job.namespace in allowed and job.queue not in allowed[job.namespace]
    }


def hold_back(
    snapshot: Snapshot, held_back: Mapping[str, str], held_pods: Mapping[str, str], *, fractions: bool
) -> tuple[Snapshot, Mapping[str, str]]:
    """Give the snapshot in which some jobs are not ready, and why: failures before, or fractions that are off.

    A pod that must wait by itself is as if gated, and its siblings go on; where nobody else of its job waits, the job does.

    With fractions off, whoever shares a card already is nobody's victim: no consolidation could keep its promise to them.
    """
    extra: dict[str, str] = {}
    jobs: list[Job] = []
    every = snapshot.jobs if fractions else tuple(map(_keeping_shares, snapshot.jobs))
    for job in every:
        why = held_back.get(job.id, "")
        if not why and not fractions and _asks_for_a_fraction(job):
            why = FRACTIONS_ARE_OFF
        if not why and held_pods:
            job, why = _without_held(job, held_pods)
        if why and any(task.status is TaskStatus.PENDING for task in job.tasks):
            extra[job.id] = why
            jobs.append(msgspec.structs.replace(job, ready=False))
        else:
            jobs.append(job)
    changed = any(one is not held for one, held in zip(jobs, snapshot.jobs, strict=True))
    return (msgspec.structs.replace(snapshot, jobs=tuple(jobs)) if changed else snapshot), extra


def _without_held(job: Job, held: Mapping[str, str]) -> tuple[Job, str]:
    """Give a job with the pods gated that must wait; or as it is, and why, where nobody else waits."""
    waiting = [task.id for task in job.tasks if task.status is TaskStatus.PENDING]
    whys = [held[task] for task in waiting if task in held]
    if not whys or needs_more(job):
        return job, ""
    if len(whys) == len(waiting):
        return job, whys[0]
    tasks = (
        msgspec.structs.replace(task, status=TaskStatus.GATED)
        if task.status is TaskStatus.PENDING and task.id in held
        else task
        for task in job.tasks
    )
    return msgspec.structs.replace(job, tasks=tuple(tasks)), ""


def _keeping_shares(job: Job) -> Job:
    if not any(task.node and task.request.is_shared for task in job.tasks):
        return job
    tasks = (
        msgspec.structs.replace(task, protected=task.protected or WOULD_NOT_COME_BACK)
        if task.node and task.request.is_shared
        else task
        for task in job.tasks
    )
    return msgspec.structs.replace(job, tasks=tuple(tasks))


def _asks_for_a_fraction(job: Job) -> bool:
    return any(task.request.is_shared for task in job.tasks if task.status is TaskStatus.PENDING)


def group_of(pod: Pod, view: GroupView) -> str:
    """Name the pod group that a pod belongs to, without its namespace; "" = none yet."""
    if told := pod.metadata.annotations.get(POD_GROUP):
        return told
    member = view.members.get(key_of(pod.metadata))
    return member.group.rpartition("/")[2] if member is not None and member.uid == pod.metadata.uid else ""
