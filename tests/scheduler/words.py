"""Small words for clusters in scheduler tests: nodes, queues, jobs, and what a cycle decides."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import (
    Job,
    PodSet,
    Queue,
    Quota,
    Settings,
    Snapshot,
    SubGroup,
    Task,
    TaskStatus,
)
from controller.scheduler.nodes import Gpu, Node, PartHealth
from controller.scheduler.plan import Plan
from controller.scheduler.requests import Constraints, Request
from controller.scheduler.rules import DEFAULT, Rules

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CARD_MIB = 80_000
FREE = Quota(deserved=UNLIMITED, limit=UNLIMITED, weight=WHOLE_GPU)


def card(node_name: str, index: int) -> str:
    """Give the UUID of a node's GPU."""
    return f"GPU-{node_name}-{index}"


def node(
    name: str,
    gpus: int = 8,
    *,
    sick: Mapping[int, str] = {},
    unknown: Mapping[int, str] = {},
    mib: int = CARD_MIB,
    **changes: object,
) -> Node:
    """Give a node; `sick` and `unknown` name a condition's reason for a GPU's index. `changes` are fields of Node."""
    parts = tuple(
        Gpu(
            uuid=card(name, index),
            index=index,
            memory_mib=mib,
            health=(
                PartHealth.SICK
                if index in sick
                else PartHealth.UNKNOWN
                if index in unknown
                else PartHealth.HEALTHY
            ),
            why=sick.get(index) or unknown.get(index) or "",
            offered=index not in sick,
        )
        for index in range(gpus)
    )
    made = Node(name=name, cpu_milli=200_000, memory_bytes=1 << 40, gpus=parts)
    return msgspec.structs.replace(made, **changes)


def queue(
    name: str,
    gpus: float = 0,
    *,
    parent: str = "",
    limit: float = UNLIMITED,
    weight: float = 1,
    priority: int = 100,
    created: int = 0,
    **changes: object,
) -> Queue:
    """Give a queue by its quota and limit in whole GPUs; CPU and memory are free."""
    quota = Quota(deserved=_milli(gpus), limit=_milli(limit), weight=round(weight * 1000))
    made = Queue(name=name, parent=parent, priority=priority, created=created, quotas=(quota, FREE, FREE))
    return msgspec.structs.replace(made, **changes)


def job(
    name: str,
    of: str,
    *,
    pods: int = 1,
    gpus: int = 1,
    least: int | None = None,
    on: Sequence[tuple[str, Sequence[int]]] = (),
    priority: int = 50,
    preemptible: bool = True,
    age_s: int = 600,
    request: Request | None = None,
    constraints: Constraints | None = None,
    **changes: object,
) -> Job:
    """Give a job of equal pods. `on`: node and GPU indexes where its first pods run, others wait; `least`: its minimum."""
    asked = request or Request(gpus=gpus, cpu_milli=1000, memory_bytes=1 << 30)
    tasks = tuple(
        Task(
            id=f"{name}-{index}",
            job=name,
            index=index,
            status=TaskStatus.RUNNING if index < len(on) else TaskStatus.PENDING,
            node=on[index][0] if index < len(on) else "",
            gpus=tuple(card(on[index][0], gpu) for gpu in on[index][1]) if index < len(on) else (),
            request=asked,
            constraints=constraints or Constraints(),
        )
        for index in range(max(pods, len(on)))
    )
    created = NOW - timedelta(seconds=age_s)
    made = Job(
        id=name,
        queue=of,
        priority=priority,
        preemptible=preemptible,
        created_at=created,
        pending_since=created if len(tasks) > len(on) else None,
        started_at=created if on else None,
        root=SubGroup(pod_sets=(PodSet(min_available=len(tasks) if least is None else least),)),
        tasks=tasks,
    )
    return msgspec.structs.replace(made, **changes)


def cluster(
    nodes: Iterable[Node], queues: Iterable[Queue], jobs: Iterable[Job], *, settings: Settings | None = None
) -> Snapshot:
    """Give the snapshot of these, sorted as the builder sorts."""
    return Snapshot(
        now=NOW,
        nodes=tuple(sorted(nodes, key=lambda one: one.name)),
        queues=tuple(sorted(queues, key=lambda one: one.name)),
        jobs=tuple(sorted(jobs, key=lambda one: one.id)),
        settings=settings or Settings(),
    )


def decide(snapshot: Snapshot, rules: Rules = DEFAULT) -> Plan:
    """Run one cycle on a clock that stands still."""
    return run_cycle(snapshot, rules, ms=lambda: 0)


def bound(plan: Plan) -> dict[str, str]:
    """Say which pod was bound to which node."""
    return {one.task: one.node for one in plan.binds}


def evicted(plan: Plan) -> list[str]:
    """Name the pods that are evicted and go nowhere else, sorted."""
    return sorted(one.task for one in plan.evictions if not one.moved_to)


def _milli(gpus: float) -> int:
    return UNLIMITED if gpus == UNLIMITED else round(gpus * WHOLE_GPU)
