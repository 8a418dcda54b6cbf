"""What holds of every plan, whatever the cluster: random clusters, and a few cycles of each."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.model import Job, Snapshot, Task, TaskStatus
from controller.scheduler.nodes import Node, PartHealth
from controller.scheduler.plan import Plan
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE
from tests.scheduler.after import CYCLE, after
from tests.scheduler.words import NOW, cluster, decide, job, node, queue

T = TypeVar("T")
MIB = 1 << 30
KINDS = (
    Request(gpus=1, cpu_milli=1000, memory_bytes=MIB),
    Request(gpus=2, cpu_milli=1000, memory_bytes=MIB),
    Request(gpus=4, cpu_milli=1000, memory_bytes=MIB),
    Request(portion=500, cpu_milli=1000, memory_bytes=MIB),
    Request(portion=300, cpu_milli=1000, memory_bytes=MIB),
    Request(gpu_memory_mib=30_000, cpu_milli=1000, memory_bytes=MIB),
    Request(portion=400, devices=2, cpu_milli=1000, memory_bytes=MIB),
    Request(cpu_milli=4000, memory_bytes=MIB),
)
WELL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def clusters(draw: st.DrawFn, *, ill: bool = True) -> Snapshot:
    """Draw a small cluster: nodes, some with sick or unknown cards, a tree of queues, and waiting jobs."""
    nodes = [_node(draw, n, ill) for n in range(draw(st.integers(1, 4)))]
    queues = [
        queue("left", draw(st.integers(0, 8)), created=0),
        queue("right", draw(st.integers(0, 8)), created=1),
    ]
    leaves = []
    for n, parent in enumerate(("left", "left", "right", "right")):
        leaves.append(f"{parent}-{n}")
        limit = draw(st.sampled_from([UNLIMITED, UNLIMITED, 3]))
        quota = draw(st.integers(0, 4))
        priority = draw(st.sampled_from([100, 100, 200]))
        queues.append(queue(leaves[-1], quota, parent=parent, limit=limit, priority=priority, created=2 + n))
    jobs = [_job(draw, n, leaves) for n in range(draw(st.integers(0, 10)))]
    return cluster(nodes, queues, jobs)


def _node(draw: st.DrawFn, number: int, ill: bool) -> Node:
    gpus = draw(st.sampled_from([0, 2, 4, 8]))
    cards = st.dictionaries(st.integers(0, 7), st.just("Xid79FallenOffBus"), max_size=2)
    sick = draw(cards) if ill else {}
    unknown = {n: "ProbeHung" for n in draw(cards) if n not in sick} if ill else {}
    return node(
        f"node-{number}", gpus, sick=sick, unknown=unknown, mib=draw(st.sampled_from([40_000, 80_000]))
    )


def _job(draw: st.DrawFn, number: int, leaves: list[str]) -> Job:
    pods = draw(st.integers(1, 4))
    made = job(
        f"job-{number:02}",
        draw(st.sampled_from(leaves)),
        pods=pods,
        least=draw(st.integers(1, pods)),
        request=draw(st.sampled_from(KINDS)),
        priority=draw(st.sampled_from([40, 50, 50, 60])),
        preemptible=draw(st.sampled_from([True, True, False])),
        age_s=600 - number,
    )
    if not draw(st.booleans()):
        return made
    # Comes when the others run: only then is there anybody to evict.
    comes = NOW + 2 * CYCLE + timedelta(seconds=number)
    return msgspec.structs.replace(made, ready=False, created_at=comes, pending_since=comes)


def run(snapshot: Snapshot, cycles: int) -> Iterable[tuple[Snapshot, Plan]]:
    """Let cycles follow one another, and give each with what it was given."""
    for _ in range(cycles):
        plan = decide(snapshot)
        yield snapshot, plan
        snapshot = after(snapshot, plan)


@WELL
@given(clusters())
def test_no_card_is_given_away_beyond_what_it_has(snapshot: Snapshot) -> None:
    """After any cycle no GPU carries more than 1,000 milli or more MiB than it has."""
    for given_, plan in run(snapshot, 6):
        milli, mib = _loads(after(given_, plan))
        cards = {gpu.uuid: gpu for one in given_.nodes for gpu in one.gpus}
        assert all(load <= WHOLE_GPU for load in milli.values())
        assert all(load <= cards[uuid].memory_mib for uuid, load in mib.items())


def _loads(snapshot: Snapshot) -> tuple[dict[str, int], dict[str, int]]:
    milli: dict[str, int] = defaultdict(int)
    mib: dict[str, int] = defaultdict(int)
    cards = {gpu.uuid: gpu for one in snapshot.nodes for gpu in one.gpus}
    for task in _tasks(snapshot):
        for uuid in task.gpus:
            if task.request.gpus:
                milli[uuid] += WHOLE_GPU
                mib[uuid] += cards[uuid].memory_mib
            elif task.request.portion:
                milli[uuid] += task.request.portion
                mib[uuid] += task.request.portion * cards[uuid].memory_mib // WHOLE_GPU
            else:
                milli[uuid] += task.request.gpu_memory_mib * WHOLE_GPU // cards[uuid].memory_mib
                mib[uuid] += task.request.gpu_memory_mib
    return milli, mib


def _tasks(snapshot: Snapshot) -> Iterable[Task]:
    return (task for one in snapshot.jobs for task in one.tasks if task.status is TaskStatus.RUNNING)


@WELL
@given(clusters())
def test_nothing_is_placed_on_a_part_that_is_not_known_to_be_well(snapshot: Snapshot) -> None:
    """No bind names a sick or Unknown card, and each names as many different cards as the pod asked for."""
    asked = {task.id: task.request for one in snapshot.jobs for task in one.tasks}
    for given_, plan in run(snapshot, 3):
        well = {
            gpu.uuid: one.name for one in given_.nodes for gpu in one.gpus if gpu.health is PartHealth.HEALTHY
        }
        for bind in plan.binds:
            request = asked[bind.task]
            assert all(well.get(uuid) == bind.node for uuid in bind.gpus)
            wanted = request.gpus or (request.devices if request.is_shared else 0)
            assert len(set(bind.gpus)) == len(bind.gpus) == wanted


@WELL
@given(clusters())
def test_a_gang_starts_whole_or_not_at_all(snapshot: Snapshot) -> None:
    """Where a job has less than its minimum running, a plan brings it to its minimum or leaves it alone."""
    for given_, plan in run(snapshot, 6):
        later = {one.id: one for one in after(given_, plan).jobs}
        for one in given_.jobs:
            running = sum(task.status is TaskStatus.RUNNING for task in later[one.id].tasks)
            assert running == 0 or running >= one.root.pod_sets[0].min_available


@WELL
@given(clusters())
def test_limits_hold_everywhere_and_quota_holds_what_may_not_be_preempted(snapshot: Snapshot) -> None:
    """At every level: no queue above its limit, and non-preemptible work within what the queue deserves."""
    queues = {one.name: one for one in snapshot.queues}
    for _, plan in run(snapshot, 6):
        for share in plan.shares:
            bounds = queues[share.queue].quotas[0]
            assert bounds.limit == UNLIMITED or share.allocated[0] <= bounds.limit
            assert share.allocated_non_preemptible[0] <= bounds.deserved


@WELL
@given(clusters(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_what_is_given(snapshot: Snapshot, random: object) -> None:
    """The same cluster told in another order gives the same plan, and so does the same cluster told twice."""
    shuffled = msgspec.structs.replace(
        snapshot,
        nodes=_shuffled(snapshot.nodes, random),
        queues=_shuffled(snapshot.queues, random),
        jobs=_shuffled(
            tuple(msgspec.structs.replace(one, tasks=_shuffled(one.tasks, random)) for one in snapshot.jobs),
            random,
        ),
    )
    assert decide(snapshot) == decide(shuffled) == decide(snapshot)
    assert decide(snapshot, COMPATIBLE) == decide(shuffled, COMPATIBLE)


def _shuffled(things: tuple[T, ...], random: object) -> tuple[T, ...]:
    order = list(things)
    random.shuffle(order)  # type: ignore[attr-defined]
    return tuple(order)


@WELL
@given(clusters(ill=False), st.data())
def test_a_change_to_unknown_evicts_nobody(snapshot: Snapshot, data: st.DataObject) -> None:
    """A settled cluster stays as it is when any of its cards are no longer known to be well."""
    settled = _settled(snapshot)
    if settled is None:
        return
    uuids = [gpu.uuid for one in settled.nodes for gpu in one.gpus]
    dark = set(data.draw(st.lists(st.sampled_from(uuids)))) if uuids else set()
    nodes = tuple(_darkened(one, dark) for one in settled.nodes)
    plan = decide(msgspec.structs.replace(settled, nodes=nodes))
    assert plan.evictions == ()


def _darkened(one: Node, dark: set[str]) -> Node:
    gpus = tuple(
        msgspec.structs.replace(gpu, health=PartHealth.UNKNOWN, why="ProbeHung") if gpu.uuid in dark else gpu
        for gpu in one.gpus
    )
    return msgspec.structs.replace(one, gpus=gpus)


def _settled(snapshot: Snapshot, cycles: int = 20) -> Snapshot | None:
    """Let cycles run until one decides nothing; None where none of so many does."""
    for _ in range(cycles):
        plan = decide(snapshot)
        if not plan.binds and not plan.evictions:
            return snapshot
        snapshot = after(snapshot, plan)
    return None


@WELL
@given(clusters())
def test_work_of_equal_priority_never_preempts_its_own_kind(snapshot: Snapshot) -> None:
    """Inside one queue a pod is evicted only for a job of higher priority, and never one that may not be preempted."""
    jobs = {one.id: one for one in snapshot.jobs}
    for _, plan in run(snapshot, 6):
        for one in plan.evictions:
            victim = jobs[one.job]
            assert victim.preemptible
            if one.gains in jobs and one.action == "preempt":
                assert jobs[one.gains].queue == victim.queue
                assert jobs[one.gains].priority > victim.priority


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(ill=False))
def test_a_cluster_left_alone_comes_to_rest(snapshot: Snapshot) -> None:
    """Nobody evicts and is evicted for ever: in fifty cycles every random cluster settles, and stays so."""
    evictions = []
    for _, plan in run(snapshot, 50):
        evictions.append(len(plan.evictions))
    assert not any(evictions[25:])
