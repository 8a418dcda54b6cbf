"""The clusters on which `nodemend-bench cycle` measures: snapshots made of numbers, the same at every run. Pure.

Each has the shape of one of KAI Scheduler's own benchmarks or of its published scale run, so that its figures may stand
beside.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.model import Job, PodSet, Queue, Quota, Snapshot, SubGroup, Task, TaskStatus
from controller.scheduler.nodes import Gpu, Node
from controller.scheduler.requests import Request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPUS_PER_NODE = 8
_CARD_MIB = 81_559
_UNBOUND = Quota(deserved=UNLIMITED, limit=UNLIMITED, weight=WHOLE_GPU)


def allocate(nodes: int, pods: int) -> Snapshot:
    """Give an empty cluster and so many single-GPU jobs, spread over 20 queues of four departments."""
    queues, leaves = departments(4, 5, gpus=nodes * GPUS_PER_NODE)
    jobs = [pending(f"jobs/single-{n:05}", leaves[n % len(leaves)], n) for n in range(pods)]
    return _snapshot(nodes, queues, jobs)


def unschedulable_gang(nodes: int = 100) -> Snapshot:
    """Give a full cluster, and a gang of whole nodes that is entitled to them and cannot be placed by any eviction.

    It needs one node more than can be emptied: on two further nodes one pod each may not be evicted. So neither quota nor
    the sum of GPUs tells that the search is in vain.
    """
    queues = [_queue("lender", GPUS_PER_NODE), _queue("owner", (nodes + 1) * GPUS_PER_NODE)]
    kept = {_uuid(n, 0) for n in range(nodes, nodes + 2)}
    gang = pending("jobs/gang", "owner", 0, pods=nodes + 1, gpus=GPUS_PER_NODE)
    return _snapshot(nodes + 2, queues, [*_full(nodes + 2, "lender", kept=kept), gang])


def reclaim_many(nodes: int = 200) -> Snapshot:
    """Give a cluster full of one queue's single-GPU jobs, and as many pending ones as the other half is entitled to."""
    half = nodes * GPUS_PER_NODE // 2
    queues = [_queue("lender", half), _queue("owner", half)]
    waiting = [pending(f"jobs/owner-{n:05}", "owner", n) for n in range(half)]
    return _snapshot(nodes, queues, [*_full(nodes, "lender"), *waiting])


def departments(count: int, each: int, *, gpus: int) -> tuple[list[Queue], list[str]]:
    """Give a tree of two levels whose quotas add up to so many GPUs at most, and the names of its leaves."""
    queues: list[Queue] = []
    leaves: list[str] = []
    for d in range(count):
        queues.append(_queue(f"department-{d:03}", gpus // count, created=len(queues)))
        for q in range(each):
            leaves.append(f"department-{d:03}-team-{q:03}")
            quota = gpus // count // each
            queues.append(_queue(leaves[-1], quota, parent=f"department-{d:03}", created=len(queues)))
    return queues, leaves


def pending(job: str, queue: str, age_rank: int, *, pods: int = 1, gpus: int = 1, priority: int = 50) -> Job:
    """Give a waiting job of equal pods; a lower rank is older."""
    return _job(job, queue, age_rank, [_task(job, n, gpus) for n in range(pods)], priority=priority)


def _full(nodes: int, queue: str, kept: Container[str] = ()) -> Iterable[Job]:
    for n in range(nodes):
        for g in range(GPUS_PER_NODE):
            name, gpu = f"jobs/running-{n:04}-{g}", _uuid(n, g)
            task = _task(name, 0, 1, node=_node_name(n), gpu=gpu)
            job = _job(name, queue, n * GPUS_PER_NODE + g, [task], started=True)
            yield msgspec.structs.replace(job, preemptible=False) if gpu in kept else job


def _job(
    name: str, queue: str, age_rank: int, tasks: Sequence[Task], *, started: bool = False, priority: int = 50
) -> Job:
    created = NOW - timedelta(hours=10) + timedelta(seconds=age_rank)
    return Job(
        id=name,
        namespace="jobs",
        queue=queue,
        priority=priority,
        created_at=created,
        pending_since=None if started else created,
        started_at=created if started else None,
        root=SubGroup(pod_sets=(PodSet(min_available=len(tasks)),)),
        tasks=tuple(tasks),
    )


def _task(job: str, index: int, gpus: int, *, node: str = "", gpu: str = "") -> Task:
    return Task(
        id=f"{job}-{index}",
        job=job,
        namespace="jobs",
        index=index,
        status=TaskStatus.RUNNING if node else TaskStatus.PENDING,
        node=node,
        gpus=(gpu,) if gpu else (),
        request=Request(gpus=gpus, cpu_milli=1000, memory_bytes=1 << 30),
    )


def _queue(name: str, gpus: int, *, parent: str = "", created: int = 0) -> Queue:
    quota = Quota(deserved=gpus * WHOLE_GPU, limit=UNLIMITED, weight=WHOLE_GPU)
    return Queue(name=name, parent=parent, created=created, quotas=(quota, _UNBOUND, _UNBOUND))


def _snapshot(nodes: int, queues: Sequence[Queue], jobs: Iterable[Job]) -> Snapshot:
    return Snapshot(
        now=NOW,
        nodes=tuple(_node(n) for n in range(nodes)),
        queues=tuple(sorted(queues, key=lambda queue: queue.name)),
        jobs=tuple(sorted(jobs, key=lambda job: job.id)),
    )


def _node(number: int) -> Node:
    gpus = tuple(Gpu(uuid=_uuid(number, g), index=g, memory_mib=_CARD_MIB) for g in range(GPUS_PER_NODE))
    return Node(name=_node_name(number), cpu_milli=128_000, memory_bytes=1 << 40, gpus=gpus)


def _node_name(number: int) -> str:
    return f"node-{number:05}"


def _uuid(node: int, gpu: int) -> str:
    return f"GPU-{node:05}-{gpu}"


SCENES: dict[str, Callable[[], Snapshot]] = {
    "allocate_500": lambda: allocate(100, 500),
    "cycle_500": lambda: allocate(500, 10_000),
    "cycle_2000": lambda: allocate(2_000, 10_000),
    "cycle_5000": lambda: allocate(5_000, 10_000),
    "unschedulable_gang": unschedulable_gang,
    "reclaim_many": reclaim_many,
}
