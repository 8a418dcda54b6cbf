"""Room that is kept for the job that waits longest, so that small jobs cannot starve a large one for ever. Pure.

KAI binds whatever fits, so a gang never sees the GPUs of several nodes free at once while small jobs keep coming (KAI issues
1969, 1987). By the rule `reservation` one job at a time is the holder. It stays so from cycle to cycle
(`Snapshot.reserved_for`, `Plan.reserved_for`) until it is placed, or may be holder no more; then the first job in the order
of queues that finds no room takes over. Being first in that order it is the one whose turn it is: the oldest of the
highest priority of the queue that is served least. After the holder come jobs for which others were evicted in this cycle,
so that what was freed for them is not lost to a third.

Only a job may be holder that asks for more than one whole GPU (whoever needs one gets the next), is below its minimum, and
asks for no more than its queue's fair share; and what is kept idle for it counts, beside what its queue holds, against that
share, at every level: nobody is made to wait for surplus. It claims nodes that could take its pods if all else had gone,
those with the most room first, in one domain where a topology level is required. Others take of a claimed node only what is
free, or being released, beyond the claim: backfill never takes what the holder has gathered, so it never delays it. Pods
that run are not touched, and one that is tried for eviction may always return to its own place.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from controller.scheduler import capacity, gangs, score, topology
from controller.scheduler.amounts import GPU, WHOLE_GPU
from controller.scheduler.model import TaskStatus
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeSet, NodeState, TaskState

_WAITING: Final = frozenset({TaskStatus.PENDING, TaskStatus.PIPELINED})


class Claim:
    """What the holder keeps of one node: whole GPUs, millicores, bytes, pods."""

    __slots__ = ("cpu", "gpus", "memory", "pods")

    def __init__(self) -> None:
        self.gpus = self.cpu = self.memory = self.pods = 0

    def add(self, task: TaskState) -> None:
        """Claim for one more pod."""
        request = task.spec.request
        self.gpus += request.gpus
        self.cpu += request.cpu_milli
        self.memory += request.memory_bytes
        self.pods += 1


class Reservation:
    """The holder's claims by node index."""

    def __init__(self, holder: str, claims: dict[int, Claim], nodes: list[NodeState]) -> None:
        self.holder = holder
        self.claims = claims
        full = {index for index, claim in claims.items() if claim.gpus >= len(nodes[index].devices)}
        self._open = frozenset(range(len(nodes))) - full
        self._bounded: dict[tuple[str, ...], NodeSet] = {}

    def bound(self, only: NodeSet | None, task: TaskState) -> NodeSet | None:
        """Leave out nodes that are claimed whole, for a pod with GPUs that has no place yet."""
        if not self.claims or task.status is not TaskStatus.PENDING or not task.spec.request.asks_for_gpu:
            return only
        key = only.key if only is not None else ()
        known = self._bounded.get(key)
        if known is None:
            nodes = self._open if only is None else self._open & only.nodes
            known = NodeSet((*key, "beyond", self.holder), nodes, only.scores if only is not None else None)
            self._bounded[key] = known
        return known

    def keeps(self, task: TaskState, node: NodeState) -> bool:
        """Tell whether the pod would take of a node what is claimed."""
        claim = self.claims.get(node.index)
        if claim is None or (task.status is TaskStatus.RELEASING and task.node is node):
            return False
        request = task.spec.request
        gpus = request.gpus
        if request.is_shared and not score.has_shared_room(node, request):
            gpus = request.devices
        return (
            (gpus > 0 and node.idle_gpus + node.releasing_gpus - claim.gpus < gpus)
            or node.idle_cpu + node.releasing_cpu - claim.cpu < request.cpu_milli
            or node.idle_memory + node.releasing_memory - claim.memory < request.memory_bytes
            or node.idle_pods + node.releasing_pods - claim.pods < 1
        )


def resume(session: Session) -> None:
    """Keep room for last cycle's holder, if it may still be one."""
    job = session.ledger.jobs.get(session.snapshot.reserved_for)
    if job is not None:
        # Whoever had others evicted in the last cycle may ask for a single GPU: it was made free for it.
        hold(session, job, least_gpus=1)


def hold(session: Session, job: JobState, least_gpus: int = 2) -> bool:
    """Keep room for this job, if it may be holder and there is none. False where no nodes could take it, even if empty."""
    if not session.rules.reservation or session.reservation is not None:
        return True
    if why_not_holder(session, job, least_gpus) is not None:
        return True
    found = _claims(session, job)
    if found is None:
        return False
    if _is_in_share(session, job, found[1]):
        session.reservation = Reservation(job.id, found[0], session.ledger.nodes)
    return True


def placed(session: Session, job: JobState) -> bool:
    """Give up what was kept for a job that has its place now; True if that leaves more to others than before.

    A job that is pipelined stays the holder, but its claims are in the ledger now.
    """
    kept = session.reservation
    if kept is None or kept.holder != job.id:
        return False
    if any(task.status is TaskStatus.PIPELINED for task in job.tasks):
        kept.claims.clear()
    else:
        session.reservation = None
    return True


def search(session: Session, job: JobState, make_room: Callable[[], bool]) -> bool:
    """Let a job look for victims; the holder as if nothing were kept: others may move to where it would have gone."""
    kept = session.reservation
    if kept is None or kept.holder != job.id:
        return make_room()
    session.reservation = None
    found = make_room()
    session.reservation = kept
    if found:
        placed(session, job)
    return found


def why_not_holder(session: Session, job: JobState, least_gpus: int = 2) -> str | None:
    """Say why no room may be kept for a job; `least_gpus` is what it has to ask for at least."""
    if job.queue is None or not gangs.is_ready(job) or gangs.elastic_rank(job) != 0:
        return "waits for no minimum that it could start with"
    tasks = gangs.tasks_to_place(session, job, real=True)
    gpus = [task.spec.request.gpus for task in tasks]
    if not all(gpus) or sum(gpus) < least_gpus:
        return f"does not ask for {least_gpus} whole GPUs or more"
    asked = gangs.amounts_of(tasks)[GPU]
    for queue in job.queue.path:
        if asked > queue.fair_share[GPU]:
            return f"asks for more than the fair share of queue {queue.name}"
    return None


def _is_in_share(session: Session, job: JobState, missing: int) -> bool:
    """Whether its queues stay within their fair shares if what the claims keep idle counts as held."""
    tasks = gangs.tasks_to_place(session, job, real=True)
    kept = gangs.amounts_of(tasks)[GPU] - missing * WHOLE_GPU
    path = job.queue.path if job.queue is not None else ()
    return all(queue.allocated[GPU] + kept <= queue.fair_share[GPU] for queue in path)


def holder_after(session: Session) -> str:
    """Name the job for which room is kept in the next cycle, "" = none."""
    if not session.rules.reservation:
        return ""
    jobs = session.ledger.jobs
    held = [session.reservation.holder] if session.reservation is not None else []
    for job_id in (*held, *session.gains.values()):
        job = jobs.get(job_id)
        if job is not None and gangs.elastic_rank(job, _unplaced(job)) == 0 and _waits(job):
            return job_id
    return ""


def _unplaced(job: JobState) -> frozenset[str]:
    return frozenset(task.id for task in job.tasks if task.status is TaskStatus.PIPELINED)


def _waits(job: JobState) -> bool:
    return any(task.status in _WAITING for task in job.tasks)


# --- which nodes -----------------------------------------------------------------------------------------------------


def _claims(session: Session, job: JobState) -> tuple[dict[int, Claim], int] | None:
    """Choose nodes for all pods of the job, so that as few GPUs as possible have to come free, and count those.

    None where no nodes could take them all.
    """
    tasks = sorted(gangs.tasks_to_place(session, job, real=True), key=lambda task: -task.spec.request.gpus)
    shut = _refused_models(session, job, tasks)
    found = [_claims_on(session, tasks, _without(nodes, shut)) for nodes in _domains(session, job)]
    return min((each for each in found if each is not None), key=lambda each: each[1], default=None)


def _refused_models(session: Session, job: JobState, tasks: list[TaskState]) -> frozenset[str]:
    """Name the GPU models of which the job's queue may not take so much: what is kept there would serve nobody."""
    queue = job.queue
    if queue is None or not queue.counts_models or not session.rules.quota_per_model:
        return frozenset()
    asked, preemptible = gangs.amounts_of(tasks), job.spec.preemptible
    named = {model for state in queue.path for model in state.by_model}
    return frozenset(model for model in named if capacity.why_not(queue, asked, preemptible, model))


def _without(nodes: list[NodeState], models: frozenset[str]) -> list[NodeState]:
    if not models:
        return nodes
    return [node for node in nodes if not any(device.spec.model in models for device in node.devices)]


def _domains(session: Session, job: JobState) -> list[list[NodeState]]:
    nodes = session.ledger.nodes
    domains = topology.domains_for_all(session, job)
    if domains is None:
        return [nodes]
    return [[nodes[index] for index in sorted(domain.nodes)] for domain in domains]


def _claims_on(
    session: Session, tasks: list[TaskState], nodes: list[NodeState]
) -> tuple[dict[int, Claim], int] | None:
    """Claims on these nodes, and how many GPUs of them are neither free nor being released yet."""
    heap = [(-_free(node), node.index) for node in nodes if node.devices]
    heapify(heap)
    all_nodes = session.ledger.nodes
    claims: dict[int, Claim] = {}
    missing = 0
    for task in tasks:
        shape, _ = session.fit.of(task)
        gpus = task.spec.request.gpus
        passed = []
        while heap:
            free, index = heappop(heap)
            node = all_nodes[index]
            if _capacity(node, claims.get(index)) < gpus:
                continue
            if session.fit.refusal(shape, node) is not None or not _has_capacity(
                task, node, claims.get(index)
            ):
                passed.append((free, index))
                continue
            claims.setdefault(index, Claim()).add(task)
            missing += min(max(gpus + free, 0), gpus)
            heappush(heap, (free + gpus, index))
            break
        else:
            return None
        for entry in passed:
            heappush(heap, entry)
    return claims, missing


def _free(node: NodeState) -> int:
    return node.idle_gpus + node.releasing_gpus


def _capacity(node: NodeState, claim: Claim | None) -> int:
    """GPUs that a node could give if all that runs had ended."""
    usable = sum(1 for device in node.devices if device.open)
    return usable - (claim.gpus if claim is not None else 0)


def _has_capacity(task: TaskState, node: NodeState, claim: Claim | None) -> bool:
    spec, request = node.spec, task.spec.request
    cpu, memory, pods = (claim.cpu, claim.memory, claim.pods) if claim is not None else (0, 0, 0)
    return (
        request.cpu_milli + cpu <= spec.cpu_milli
        and request.memory_bytes + memory <= spec.memory_bytes
        and pods < spec.pods
    )
