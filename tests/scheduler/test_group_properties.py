"""What holds of jobs with subgroups, topologies, gates and lost nodes, whatever the cluster."""

from random import Random

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.scheduler import explain, gangs
from controller.scheduler.model import (
    ACTIVE_USED,
    Job,
    PodSet,
    Snapshot,
    SubGroup,
    Task,
    TaskStatus,
    TopologyConstraint,
)
from controller.scheduler.nodes import Level, Topology
from controller.scheduler.requests import Request
from tests.scheduler.after import after
from tests.scheduler.words import card, cluster, decide, job, node, queue

NET = Topology(
    name="net", levels=(Level(node_label="zone"), Level(node_label="rack"), Level(node_label="host"))
)
KINDS = (
    Request(gpus=1, cpu_milli=1000),
    Request(gpus=2, cpu_milli=2000),
    Request(portion=500, cpu_milli=100),
    Request(portion=300, devices=2, cpu_milli=100),
    Request(gpu_memory_mib=30_000, cpu_milli=100),
    Request(cpu_milli=9000),
)
CONSTRAINTS = st.sampled_from(
    [
        None,
        None,
        TopologyConstraint(topology="net", required="zone"),
        TopologyConstraint(topology="net", required="rack"),
        TopologyConstraint(topology="net", preferred="rack"),
        TopologyConstraint(topology="net", required="zone", preferred="rack"),
        TopologyConstraint(topology="net", required="rack", preferred="zone"),
        TopologyConstraint(topology="gone", required="rack"),
    ]
)
STATUSES = st.sampled_from(
    [TaskStatus.PENDING] * 5
    + [TaskStatus.GATED, TaskStatus.RUNNING, TaskStatus.RELEASING, TaskStatus.SUCCEEDED, TaskStatus.FAILED]
)
WELL = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Draw nodes in racks and zones, one of them without labels, and jobs of all shapes."""
    names = draw(st.lists(st.sampled_from(["a1x", "a1y", "a2x", "b1x", "b2x"]), min_size=1, unique=True))
    nodes = [
        node(
            name,
            draw(st.sampled_from([0, 2, 4])),
            cpu_milli=10_000,
            labels={"zone": name[0], "rack": name[1], "host": name},
            sick={0: "Xid79"} if draw(st.integers(0, 5)) == 0 else {},
        )
        for name in names
    ]
    nodes.append(node("plain", 2))
    queues = [queue("q", 64), queue("r", 2, limit=4), queue("up", 8), queue("low", 8, parent="up")]
    jobs = [_job(draw, n, [*names, "plain", "lost"]) for n in range(draw(st.integers(1, 6)))]
    return msgspec.structs.replace(cluster(nodes, queues, jobs), topologies=(NET,))


def _job(draw: st.DrawFn, number: int, names: list[str]) -> Job:
    made = job(
        f"job-{number}", draw(st.sampled_from(["q", "q", "low", "r", "up", "none"])), age_s=600 - number
    )
    sets = [
        PodSet(name=name, min_available=draw(st.integers(0, 3)), topology=draw(CONSTRAINTS))
        for name in "abc"[: draw(st.integers(1, 3))]
    ]
    least = draw(st.sampled_from([None, None, 1, 2]))
    root = SubGroup(pod_sets=tuple(sets), min_sub_group=least, topology=draw(CONSTRAINTS))
    if len(sets) == 3 and draw(st.booleans()):
        inner = SubGroup(name="in", pod_sets=tuple(sets[1:]), min_sub_group=1, topology=draw(CONSTRAINTS))
        root = SubGroup(groups=(inner,), pod_sets=(sets[0],), topology=draw(CONSTRAINTS))
    pod_sets = [each.name for each in sets]
    tasks = tuple(_task(draw, made.id, n, pod_sets, names) for n in range(draw(st.integers(1, 6))))
    return msgspec.structs.replace(
        made,
        root=root,
        tasks=tasks,
        preemptible=draw(st.booleans()),
        priority=draw(st.sampled_from([40, 50, 60])),
        ready=draw(st.integers(0, 9)) > 0,
    )


def _task(draw: st.DrawFn, of: str, index: int, pod_sets: list[str], names: list[str]) -> Task:
    status = draw(STATUSES)
    on = draw(st.sampled_from(names)) if status in (TaskStatus.RUNNING, TaskStatus.RELEASING) else ""
    request = draw(st.sampled_from(KINDS))
    pod_set = draw(st.sampled_from([*pod_sets * 4, "strange"]))
    gpus = (card(on, 1),) if on and request.gpus == 1 and draw(st.booleans()) else ()
    return Task(
        id=f"{of}-{index}",
        job=of,
        index=index,
        pod_set=pod_set,
        status=status,
        node=on,
        request=request,
        gpus=gpus,
    )


@WELL
@given(clusters())
def test_every_job_that_waits_is_told_why(snapshot: Snapshot) -> None:
    """Exactly the jobs with pods that got no place wait, each once, with words and with counts that add up."""
    plan = decide(snapshot)
    bound = {one.task for one in plan.binds}
    waiting = {
        task.job
        for one in snapshot.jobs
        for task in one.tasks
        if task.status is TaskStatus.GATED or (task.status is TaskStatus.PENDING and task.id not in bound)
    }
    moved = {one.job for one in plan.evictions if one.moved_to}
    told = [wait.job for wait in plan.waits]
    assert waiting <= set(told) <= waiting | moved
    assert len(told) == len(set(told))
    for wait in plan.waits:
        assert wait.message
        assert "no action of this cycle" not in wait.message
        assert all(reason.count > 0 and reason.text for reason in wait.reasons)
        if wait.code == explain.NO_ROOM:
            assert sum(reason.count for reason in wait.reasons) == len(snapshot.nodes), wait
            assert f"0/{len(snapshot.nodes)} nodes are available: " in wait.message
        else:
            assert len(wait.reasons) == 1


@WELL
@given(clusters())
def test_groups_grow_only_to_something_whole(snapshot: Snapshot) -> None:
    """What a plan binds completes every subgroup that it begins, up to the job; who loses pods stays whole or loses all."""
    plan = decide(snapshot)
    before, now = _holders(snapshot), _holders(after(snapshot, plan))
    stays = _holders(snapshot) - {one.task for one in plan.evictions}
    for one in snapshot.jobs:
        bound = {each.task for each in plan.binds if each.job == one.id}
        assert not bound or one.ready
        if bound:
            assert _is_whole(one, one.root, now)
        for pod_set in _leaves(one.root):
            tasks = {task.id for task in one.tasks if task.pod_set == pod_set.name}
            if tasks & bound:
                assert _is_whole(one, pod_set, now)
        # Who loses pods loses all, or keeps what it needs.
        gone = {task.id for task in one.tasks} & (before - stays)
        if gone and {task.id for task in one.tasks} & stays and _is_whole(one, one.root, before):
            assert _is_whole(one, one.root, stays)


@WELL
@given(clusters())
def test_required_domains_hold_what_is_bound_together(snapshot: Snapshot) -> None:
    """All that a plan binds of a group with a required level lies in one domain of it."""
    plan = decide(snapshot)
    labels = {one.name: one.labels for one in snapshot.nodes}
    for one in snapshot.jobs:
        for names, constraint in _constraints(one.root):
            if constraint is None or not constraint.required:
                continue
            ids = {task.id for task in one.tasks if task.pod_set in names}
            on = [labels[each.node] for each in plan.binds if each.task in ids]
            assert not on or constraint.topology == "net"
            levels = ["zone"] if constraint.required == "zone" else ["zone", "rack"]
            rounds = {tuple(each[level] for level in levels) for each in on}
            assert len(rounds) <= 1


@settings(parent=WELL, max_examples=50)
@given(clusters(), st.randoms(use_true_random=False))
def test_groups_told_in_another_order_give_the_same_plan(snapshot: Snapshot, random: Random) -> None:
    """The choice among subgroups hangs on their names and sizes alone."""
    jobs = [
        msgspec.structs.replace(one, tasks=tuple(random.sample(one.tasks, len(one.tasks))))
        for one in random.sample(snapshot.jobs, len(snapshot.jobs))
    ]
    nodes = random.sample(snapshot.nodes, len(snapshot.nodes))
    shuffled = msgspec.structs.replace(snapshot, jobs=tuple(jobs), nodes=tuple(nodes))
    assert decide(shuffled) == decide(snapshot)


@settings(parent=WELL, max_examples=20)
@given(clusters())
def test_groups_left_alone_come_to_rest(snapshot: Snapshot) -> None:
    """Whatever was chosen instead of what: within fifty cycles nobody is evicted any more."""
    evictions = []
    for _ in range(50):
        plan = decide(snapshot)
        evictions.append(len(plan.evictions))
        snapshot = after(snapshot, plan)
    assert not any(evictions[25:])


def _holders(snapshot: Snapshot) -> set[str]:
    return {task.id for one in snapshot.jobs for task in one.tasks if task.status in ACTIVE_USED}


def _leaves(group: SubGroup) -> list[PodSet]:
    return [*group.pod_sets, *(leaf for below in group.groups for leaf in _leaves(below))]


def _constraints(group: SubGroup) -> list[tuple[set[str], TopologyConstraint | None]]:
    found = [({leaf.name for leaf in _leaves(group)}, group.topology)]
    found += [({leaf.name}, leaf.topology) for leaf in group.pod_sets]
    return found + [each for below in group.groups for each in _constraints(below)]


def _is_whole(one: Job, member: SubGroup | PodSet, held: set[str]) -> bool:
    """Tell whether it has its minimum, or together with what is done of it, and nothing that lives is left out."""
    if isinstance(member, PodSet):
        tasks = [task for task in one.tasks if task.pod_set == member.name]
        has = sum(task.id in held for task in tasks)
        done = sum(task.status is TaskStatus.SUCCEEDED for task in tasks)
        alive = ACTIVE_USED | {TaskStatus.PENDING, TaskStatus.GATED}
        left_out = any(task.status in alive and task.id not in held for task in tasks)
        return has >= member.min_available or (has + done >= member.min_available and not left_out)
    below = [_is_whole(one, each, held) for each in gangs.members(member)]
    return sum(below) >= (len(below) if member.min_sub_group is None else member.min_sub_group)
