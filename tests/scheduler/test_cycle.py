"""Tests of a whole cycle: what the plan says of binds, claims, evictions and waits."""

from datetime import timedelta

import msgspec
import pytest

from controller.scheduler import rules
from controller.scheduler.actions import allocate, stale
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Job, Queue, Settings, Snapshot, TaskStatus
from controller.scheduler.plan import Plan
from controller.scheduler.requests import Request
from tests.scheduler.words import NOW, bound, card, cluster, evicted, job, node, queue


def _plan(snapshot: Snapshot) -> Plan:
    return run_cycle(snapshot, actions=(allocate.run,))


def _ending(name: str, on: str, gpus: list[int]) -> Job:
    """A job whose only pod is being deleted."""
    made = job(name, "q", gpus=len(gpus), on=[(on, gpus)])
    return msgspec.structs.replace(
        made, tasks=tuple(msgspec.structs.replace(task, status=TaskStatus.RELEASING) for task in made.tasks)
    )


def test_a_bind_names_node_and_cards() -> None:
    """Whole GPUs are bound by UUID."""
    plan = _plan(cluster([node("n0", 2)], [queue("q", 8)], [job("one", "q", gpus=2)]))
    assert [(bind.task, bind.job, bind.node, bind.gpus, bind.milli) for bind in plan.binds] == [
        ("one-0", "one", "n0", (card("n0", 0), card("n0", 1)), 1000)
    ]
    assert plan.started == ("one",)


def test_a_gang_of_which_one_pod_has_to_wait_waits_as_a_whole() -> None:
    """One GPU is free, one is being released: both pods are pipelined, and nobody else gets the free one."""
    gang = job("gang", "q", pods=2, age_s=900)
    plan = _plan(
        cluster(
            [node("n0", 2)], [queue("q", 8)], [gang, _ending("old", "n0", [0]), job("late", "q", age_s=5)]
        )
    )
    assert not plan.binds
    assert [each.task for each in plan.pipelined] == ["gang-0", "gang-1"]
    assert {wait.job: wait.code for wait in plan.waits} == {
        "gang": "Pipelined",
        "late": "PodSchedulingErrors",
    }
    assert not plan.started


def test_an_elastic_job_takes_its_minimum_and_then_pod_by_pod() -> None:
    """What does not fit any more waits, and the job runs."""
    plan = _plan(cluster([node("n0", 3)], [queue("q", 8)], [job("grows", "q", pods=5, least=2)]))
    assert sorted(bound(plan)) == ["grows-0", "grows-1", "grows-2"]
    assert plan.started == ("grows",)


ONE_GPU = [node("n0", 1)]
QUEUES = [queue("q", 1, limit=2), queue("dept", 8), queue("leaf", 8, parent="dept")]


def _with(made: Job, index: int, status: TaskStatus) -> Job:
    changed = msgspec.structs.replace(made.tasks[index], status=status)
    return msgspec.structs.replace(made, tasks=(*made.tasks[:index], changed, *made.tasks[index + 1 :]))


WAITS = [
    ("a queue at its limit", [job("one", "q", gpus=3)], QUEUES, "OverLimit", "queue q"),
    (
        "what is not preemptible beyond the quota",
        [job("one", "q", gpus=2, preemptible=False)],
        QUEUES,
        "NonPreemptibleOverQuota",
        "queue q",
    ),
    (
        "a queue that is not there",
        [job("one", "nowhere")],
        QUEUES,
        "QueueDoesNotExist",
        "queue nowhere does not exist",
    ),
    (
        "a queue with queues below it",
        [job("one", "dept")],
        QUEUES,
        "QueueDoesNotExist",
        "has queues below it",
    ),
    (
        "too few GPUs",
        [job("one", "leaf", gpus=2)],
        QUEUES,
        "PodSchedulingErrors",
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    ),
    (
        "a gang that fits in part",
        [job("one", "leaf", pods=2)],
        QUEUES,
        "PodSchedulingErrors",
        "1 pods found a node where the group needs 2 together; the next one: 0/1 nodes",
    ),
    (
        "a group that is not complete",
        [job("one", "leaf", least=2)],
        QUEUES,
        "NotReady",
        "has 1 pods and needs 2 together",
    ),
    (
        "a member that still ends",
        [_with(job("one", "leaf", pods=3, on=[("n0", [0]), ("n0", [])]), 1, TaskStatus.RELEASING)],
        QUEUES,
        "NotReady",
        "has 2 pods and needs 3 together",
    ),
    (
        "surplus pods that are gated",
        [_with(job("one", "leaf", pods=2, least=1, on=[("n0", [0])]), 1, TaskStatus.GATED)],
        QUEUES,
        "NotReady",
        "1 of 2 pods have scheduling gates",
    ),
]


@pytest.mark.parametrize(
    ("jobs", "queues", "code", "words"), [case[1:] for case in WAITS], ids=[case[0] for case in WAITS]
)
def test_why_a_job_waits(jobs: list[Job], queues: list[Queue], code: str, words: str) -> None:
    """Every job that waits is told why, with KAI's code and kube-scheduler's words."""
    plan = _plan(cluster(ONE_GPU, queues, jobs))
    assert not plan.binds
    assert [(wait.job, wait.code) for wait in plan.waits] == [("one", code)]
    assert words in plan.waits[0].message


def test_jobs_alike_are_told_the_same_without_being_tried() -> None:
    """Skipping jobs that are like one that failed changes nothing for them."""
    jobs = [job(f"job-{n}", "leaf", gpus=2, age_s=900 - n) for n in range(4)]
    plan = _plan(cluster(ONE_GPU, QUEUES, [*jobs, job("small", "leaf", age_s=1)]))
    assert bound(plan) == {"small-0": "n0"}
    assert len({wait.message.partition(" 1 nodes keep")[0] for wait in plan.waits}) == 1
    assert [wait.task for wait in plan.waits] == [f"job-{n}-0" for n in range(4)]


STALE = [
    ("a gang that lost a member for longer than the grace", 61, None, ["gang-0"]),
    ("for less than the grace", 59, None, []),
    ("its own grace goes before the cycle's", 59, 30, ["gang-0"]),
    ("a negative grace is for ever", 100_000, -1, []),
    ("nobody noted yet since when", None, None, []),
]


@pytest.mark.parametrize(
    ("since", "grace", "gone"), [case[1:] for case in STALE], ids=[case[0] for case in STALE]
)
def test_stale_gangs_are_evicted_after_their_grace(
    since: int | None, grace: int | None, gone: list[str]
) -> None:
    """What is left of a gang is of no use."""
    gang = msgspec.structs.replace(
        job("gang", "q", pods=2, on=[("n0", [0])]),
        stale_since=NOW - timedelta(seconds=since) if since is not None else None,
        staleness_grace_s=grace,
    )
    snapshot = cluster([node("n0")], [queue("q", 8)], [gang], settings=Settings(staleness_grace_s=60))
    plan = run_cycle(snapshot, actions=(stale.run,))
    assert evicted(plan) == gone
    assert [(each.action, "stale gang: 1 pods of gang" in each.why) for each in plan.evictions] == [
        ("stalegangeviction", True) for _ in gone
    ]


def test_shares_tell_what_a_queue_is_short_of() -> None:
    """The plan carries every queue's numbers after the cycle."""
    plan = _plan(
        cluster(
            [node("n0", 2)], [queue("q", 8)], [job("runs", "q", on=[("n0", [0])]), job("big", "q", gpus=2)]
        )
    )
    share = plan.shares[0]
    assert (share.queue, share.allocated[0], share.requested[0], share.shortage[0]) == ("q", 1000, 3000, 1000)
    assert plan.total[0] == 2000


@pytest.mark.parametrize("which", [rules.DEFAULT, rules.COMPATIBLE], ids=["ours", "KAI's"])
def test_shuffled_pods_and_cpu_only_jobs_give_the_same_plan(which: rules.Rules) -> None:
    """The order in which a snapshot lists things decides nothing."""
    jobs = [
        job(f"job-{n}", "q", gpus=n % 3, request=None if n % 3 else Request(cpu_milli=500)) for n in range(9)
    ]
    snapshot = cluster([node(f"n{n}", 4) for n in range(3)], [queue("q", 8)], jobs)
    turned = msgspec.structs.replace(snapshot, jobs=snapshot.jobs[::-1], nodes=snapshot.nodes[::-1])
    assert run_cycle(turned, which) == run_cycle(snapshot, which)


def test_jobs_alike_of_other_queues_are_tried_where_the_node_sets_the_price() -> None:
    """Memory is a larger share of the only card than of the largest: too much for one queue's limit, not for the other's."""
    asked = Request(gpu_memory_mib=30_000, cpu_milli=100)
    jobs = [job("tight", "small", request=asked, age_s=900), job("roomy", "large", request=asked, age_s=60)]
    nodes = [node("n0", 1, mib=40_000), node("n1", 1, mib=80_000, cordoned=True)]
    queues = [queue("small", 0.5, limit=0.5), queue("large", 4)]
    assert bound(_plan(cluster(nodes, queues, jobs))) == {"roomy-0": "n0"}
