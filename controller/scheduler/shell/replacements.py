"""Warm re-gang: room for the member that a gang is about to lose is found before the drain takes it. Pure.

A gang of which one member goes is of no use until another takes its place, and the place has to be near the others. So
while a node is being drained, or is about to be, every member there that its gang needs gets a phantom: a pending pod like
it, of the same pod set, which the cycle places like any other (inside the domain where the siblings are; the member itself
counts as leaving). Nobody else gets that room, and a promise carries it into the next cycle, until the real pod, made by
the workload's controller after the eviction, stands in the phantom's stead. Phantoms are never bound, nobody is evicted for
one, and none reaches beyond what its gang needs to stay whole; `replacement_plans` says what becomes of a plan with them.

Nothing of this while the observer is suspected, and nothing by mere silence: a held drain counts as none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from controller.assess import needs_person
from controller.incident import holds, is_open
from controller.scheduler.model import HOLDING, Job, PodSet, Snapshot, SubGroup, Task, TaskStatus
from controller.scheduler.nodes import Claim, PartHealth
from controller.scheduler.values import Value
from kube.remediation import Phase, Remediation
from kube.types import Node as KubeNode

HELD_FOR: Final = timedelta(minutes=2)
"""How long room is kept for a pod whose predecessor is gone and that its controller has not made yet."""

_URGENT: Final = "now"
MARK: Final = "#replacement"
_NO_EVICTION_S: Final = 24 * 3600
_WAITING: Final = frozenset({TaskStatus.PENDING, TaskStatus.GATED})
THERE: Final = frozenset({TaskStatus.BOUND, TaskStatus.RUNNING, TaskStatus.RELEASING, TaskStatus.STUCK})


class Leaving(Value, frozen=True, kw_only=True):
    """Why the pods of a node are evicted. `parts`: only those that have one of these GPUs (UUIDs, else PCI addresses)."""

    why: str
    parts: tuple[str, ...] = ()


class Phantom(Value, frozen=True, kw_only=True):
    """A pod that is not there yet, in the place of `member` (its id), which leaves `node` because of `why`.

    `seen`: when the member was there at last. `alone`: no real pod of its job waits.
    """

    task: Task
    member: str
    node: str
    why: str
    seen: datetime
    alone: bool


def leaving(remediations: Iterable[Remediation], nodes: Iterable[KubeNode]) -> Mapping[str, Leaving]:
    """Give the nodes whose pods are evicted now or in a moment: by an open incident of ours that cannot wait.

    A drain that waits for running work takes nobody, and neither does one that something holds. An incident that quarantined
    a node drains it in a moment if its evidence is urgent and needs no person; it counts once the Node carries its mark.
    """
    by_name = {node.metadata.name: node for node in nodes}
    found: dict[str, Leaving] = {}
    for one in sorted(remediations, key=lambda each: (each.spec.opened_at, each.metadata.name)):
        node = by_name.get(one.spec.node_name)
        if node is None or node.metadata.uid != one.spec.node_uid or not is_open(one) or one.status.held_by:
            continue
        drain = one.status.drain
        is_drained = (
            one.status.phase in (Phase.DRAINING, Phase.WAITING)
            and drain is not None
            and drain.urgency == _URGENT
            and drain.finished_at is None
        )
        if is_drained or _is_next(one, node):
            why = f"{one.metadata.name}: {one.status.message or one.spec.evidence[0].reason}"
            parts = drain.parts if drain is not None else ()
            found.setdefault(node.metadata.name, Leaving(why=why, parts=parts))
    return found


def _is_next(one: Remediation, node: KubeNode) -> bool:
    """Tell whether a quarantined node is drained next."""
    if one.status.phase is not Phase.QUARANTINED or not holds(node, one.metadata.name):
        return False
    evidence = one.status.evidence or one.spec.evidence
    return any(finding.urgency == _URGENT for finding in evidence) and not any(map(needs_person, evidence))


def with_replacements(
    snapshot: Snapshot, leaving: Mapping[str, Leaving], before: Collection[Phantom] = ()
) -> tuple[Snapshot, tuple[Phantom, ...]]:
    """Give the snapshot with a phantom for each member that its gang needs and loses, and the phantoms.

    `before`: the phantoms of the last cycle, so that room is kept while the member is gone and its successor not made yet.
    Members that leave count as such (Releasing) in what is returned.
    """
    if snapshot.suspected or not (leaving or before):
        return snapshot, ()
    sick = {
        node.name: frozenset(gpu.uuid for gpu in node.gpus if gpu.health is PartHealth.SICK)
        for node in snapshot.nodes
        if node.name in leaving
    }
    remembered: dict[str, list[Phantom]] = {}
    for phantom in before:
        if abs(snapshot.now - phantom.seen) <= HELD_FOR:  # the wall clock may step back
            remembered.setdefault(phantom.task.job, []).append(phantom)
    jobs: list[Job] = []
    made: list[Phantom] = []
    for job in snapshot.jobs:
        phantoms: list[Phantom] = []
        if job.id in remembered or any(task.node in leaving for task in job.tasks):
            job, phantoms = _with_phantoms(job, leaving, sick, remembered.get(job.id, ()), snapshot)
        jobs.append(job)
        made += phantoms
    claims = tuple(claims_for(snapshot.claims, [phantom.task for phantom in made]))
    if not made and all(new is old for new, old in zip(jobs, snapshot.jobs, strict=True)):
        return snapshot, ()
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs), claims=claims), tuple(made)


def _with_phantoms(
    job: Job,
    leaving: Mapping[str, Leaving],
    sick: Mapping[str, frozenset[str]],
    remembered: Collection[Phantom],
    snapshot: Snapshot,
) -> tuple[Job, list[Phantom]]:
    leaves = list(_leaves(job.root))
    if sum(leaf.min_available for leaf in leaves) < 2:
        return job, []
    goes = {task.id for task in job.tasks if _goes(task, leaving, sick)}
    ids = {task.id for task in job.tasks if task.status is not TaskStatus.FAILED}
    alone = not any(task.status in _WAITING for task in job.tasks)
    lost: set[str] = set()
    made: list[Phantom] = []
    for leaf in leaves:
        tasks = [task for task in job.tasks if task.pod_set == leaf.name]
        stay = sum(task.status in HOLDING and task.id not in goes for task in tasks)
        lacking = leaf.min_available - stay
        if lacking <= 0:
            continue
        lost |= {task.id for task in tasks if task.id in goes}
        owed = [
            Phantom(
                task=phantom_of(task),
                member=task.id,
                node=task.node,
                why=leaving[task.node].why,
                seen=snapshot.now,
                alone=alone,
            )
            for task in tasks
            if task.id in goes
        ]
        owed += [
            msgspec.structs.replace(one, alone=alone)
            for one in remembered
            if one.task.pod_set == leaf.name and one.member not in ids
        ]
        waiting = sum(task.status in _WAITING for task in tasks)
        made += owed[: max(0, lacking - waiting)]
    if not made and not lost:
        return job, []
    return _changed(job, lost, made, snapshot.now), made


def _changed(job: Job, lost: Collection[str], made: Iterable[Phantom], now: datetime) -> Job:
    tasks = tuple(
        msgspec.structs.replace(task, status=TaskStatus.RELEASING)
        if task.id in lost and task.status in HOLDING
        else task
        for task in job.tasks
    )
    phantoms = tuple(phantom.task for phantom in made)
    if not phantoms and not any(task.id in lost and task.status in HOLDING for task in job.tasks):
        return msgspec.structs.replace(job, tasks=tasks)
    since = job.pending_since or now
    return msgspec.structs.replace(
        job,
        tasks=tasks + phantoms,
        pending_since=since,
        # The member still runs, and a phantom is no pod: neither is a reason to evict anybody.
        preemption_delay_s=(now - since) // timedelta(seconds=1) + _NO_EVICTION_S,
    )


def _goes(task: Task, leaving: Mapping[str, Leaving], sick: Mapping[str, frozenset[str]]) -> bool:
    """Tell whether a drain takes this pod; of a drain by parts those that have one."""
    found = leaving.get(task.node)
    if found is None or task.node not in sick or task.status not in THERE:
        return False
    return not found.parts or not sick[task.node].union(found.parts).isdisjoint(task.gpus)


def _leaves(group: SubGroup) -> Iterator[PodSet]:
    yield from group.pod_sets
    for below in group.groups:
        yield from _leaves(below)


def phantom_of(task: Task) -> Task:
    """Give a pending pod like this one, with claims of its own."""
    claims = tuple(f"{claim}{MARK}" for claim in task.request.claims)
    request = msgspec.structs.replace(task.request, claims=claims) if claims else task.request
    return msgspec.structs.replace(
        task,
        id=f"{task.id}{MARK}",
        status=TaskStatus.PENDING,
        node="",
        nominated_node="",
        gpus=(),
        zones=(),
        protected="",
        stand_in=True,
        request=request,
    )


def claims_for(claims: Collection[Claim], phantoms: Iterable[Task]) -> Iterator[Claim]:
    """Give the claims, with a copy of each that a phantom needs: one made from a template is made anew for the next pod."""
    yield from claims
    known = {claim.id: claim for claim in claims}
    for phantom in phantoms:
        for name in phantom.request.claims:
            claim = known.get(name.removesuffix(MARK))
            if claim is not None and name not in known:
                fresh = claim.from_template
                yield msgspec.structs.replace(
                    claim,
                    id=name,
                    devices=() if fresh else claim.devices,
                    reserved_for=() if fresh else claim.reserved_for,
                    reserved_places=0 if fresh else claim.reserved_places,
                )
