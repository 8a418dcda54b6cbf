"""Bounds of queues in whole cycles: at every level of random trees, by GPU model, and what is said where they refuse."""

from collections import defaultdict

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.scheduler.amounts import RESOURCES, UNLIMITED
from controller.scheduler.model import Job, Queue, Quota, Snapshot, TaskStatus
from controller.scheduler.nodes import Node
from controller.scheduler.plan import Share
from controller.scheduler.requests import Request
from tests.scheduler.after import after
from tests.scheduler.words import FREE, bound, cluster, decide, job, node, queue

GIB = 1 << 30
ASKED = (
    Request(gpus=1, cpu_milli=2000, memory_bytes=GIB),
    Request(gpus=2, cpu_milli=1000, memory_bytes=3 * GIB),
    Request(portion=400, cpu_milli=500, memory_bytes=GIB),
    Request(gpu_memory_mib=30_000, cpu_milli=500, memory_bytes=GIB),
    Request(cpu_milli=3000, memory_bytes=2 * GIB),
)
MODELS = ("A100", "H200")


def modelled(name: str, *models: str, mib: int = 80_000) -> Node:
    """Give a node with one card of each of these models, in this order."""
    made = node(name, len(models), mib=mib)
    cards = (msgspec.structs.replace(gpu, model=model) for gpu, model in zip(made.gpus, models, strict=True))
    return msgspec.structs.replace(made, gpus=tuple(cards))


# --- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "said"),
    [
        pytest.param("nobody", "queue nobody does not exist", id="a queue that is not there"),
        pytest.param("orphan", 'queue "orphan" is left out: there is no parent queue "gone"', id="no parent"),
        pytest.param("below", 'queue "below" is left out: there is no parent queue "gone"', id="below such"),
        pytest.param(
            "one", 'queue "one" is left out: its parents run in a circle at queue "one"', id="a circle"
        ),
        pytest.param("top", "queue top has queues below it and takes no jobs", id="no leaf"),
    ],
)
def test_a_job_is_told_what_is_wrong_with_its_queue(of: str, said: str) -> None:
    """And the other queues go on."""
    queues = [
        queue("orphan", parent="gone"),
        queue("below", parent="orphan"),
        queue("one", parent="two"),
        queue("two", parent="one"),
        queue("top"),
        queue("leaf", 1, parent="top"),
    ]
    plan = decide(cluster([node("n")], queues, [job("lost", of), job("fine", "leaf")]))
    assert bound(plan) == {"fine-0": "n"}
    assert [(wait.code, wait.message) for wait in plan.waits] == [("QueueDoesNotExist", said)]


def test_no_room_is_kept_for_a_job_that_its_models_quota_keeps_out() -> None:
    """Else it would starve the others for ever."""
    queues = [queue("a", 4, models=(("H200", Quota(limit=1000)),), created=0), queue("b", 4, created=1)]
    jobs = [job("barred", "a", gpus=2), job("other", "b", gpus=2, age_s=1)]
    snapshot = cluster([modelled("n", "H200", "H200")], queues, jobs)
    plan = decide(snapshot)
    assert plan.reserved_for == ""
    assert bound(plan) == {"other-0": "n"}


def test_free_gpus_of_a_model_that_is_used_up_are_no_riddle() -> None:
    """The queue, its limit and what it holds are named."""
    one = queue("a", 8, models=(("H200", Quota(limit=1000)),))
    plan = decide(cluster([modelled("n", "H200", "H200")], [one], [job("first", "a"), job("second", "a")]))
    assert [wait.message for wait in plan.waits] == [
        "0/1 nodes are available: 1 node(s) where queue a has a GPU H200 limit of 1, holds 1 and would need 1 more."
    ]


@pytest.mark.parametrize(
    ("models", "placed"),
    [
        pytest.param(("A100", "A100", "H200", "H200"), 3, id="the other model first"),
        pytest.param(("H200", "H200", "A100", "A100"), 1, id="fail closed: any card might be given"),
    ],
)
def test_a_node_with_cards_of_two_models_counts_each_card_as_what_it_is(
    models: tuple[str, ...], placed: int
) -> None:
    """No card more of a model than the limit says, whatever the node's first card is."""
    one = queue("a", 8, models=(("H200", Quota(limit=1000)),))
    snapshot = cluster([modelled("n", *models)], [one], [job(f"j{n}", "a") for n in range(4)])
    plan = decide(snapshot)
    assert len(plan.binds) == placed
    later = after(snapshot, plan)
    assert decide(later).binds == ()
    held = [models[int(uuid[-1])] for bind in plan.binds for uuid in bind.gpus]
    assert held.count("H200") <= 1


# --- random trees ----------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> Snapshot:
    """Draw a tree of any depth with bounds on all resources and models, nodes of two models, and waiting jobs."""
    nodes = [
        modelled(f"n{at}", *draw(st.lists(st.sampled_from(MODELS), max_size=5)), mib=mib)
        for at, mib in enumerate(draw(st.lists(st.sampled_from((40_000, 80_000)), min_size=1, max_size=3)))
    ]
    nodes = [msgspec.structs.replace(one, cpu_milli=12_000, memory_bytes=12 * GIB) for one in nodes]
    parents = draw(st.lists(st.integers(0, 6), min_size=1, max_size=7))
    queues = [
        _queue(draw, f"q{at}", f"q{min(above, at - 1)}" if above and at > 1 else "", at)
        for at, above in enumerate(parents, 1)
    ]
    leaves = sorted({one.name for one in queues} - {one.parent for one in queues})
    jobs = [_job(draw, at, leaves) for at in range(draw(st.integers(0, 12)))]
    return cluster(nodes, queues, jobs)


def _queue(draw: st.DrawFn, name: str, parent: str, created: int) -> Queue:
    def quota(unit: int) -> Quota:
        some = st.sampled_from((UNLIMITED, 0, unit, 2 * unit, 5 * unit))
        limit = st.sampled_from((UNLIMITED, UNLIMITED, UNLIMITED, 3 * unit, 7 * unit // 2))
        return Quota(deserved=draw(some), limit=draw(limit), weight=draw(st.sampled_from((0, 1000, 3000))))

    models = tuple((model, quota(1000)) for model in draw(st.sets(st.sampled_from(MODELS))))
    return Queue(
        name=name,
        parent=parent,
        priority=draw(st.sampled_from((100, 100, 200))),
        created=created,
        quotas=(quota(1000), draw(st.just(FREE)) if draw(st.booleans()) else quota(2000), quota(2 * GIB)),
        usage=(draw(st.sampled_from((0, 0, 500_000, 1_500_000))), 0, 0),
        models=models,
    )


def _job(draw: st.DrawFn, number: int, leaves: list[str]) -> Job:
    pods = draw(st.integers(1, 4))
    return job(
        f"j{number:02}",
        draw(st.sampled_from(leaves)),
        pods=pods,
        least=draw(st.integers(1, pods)),
        request=draw(st.sampled_from(ASKED)),
        priority=draw(st.sampled_from((40, 50, 60))),
        preemptible=draw(st.booleans()),
        age_s=600 - number,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees())
def test_no_bound_of_any_queue_is_broken_at_any_level(snapshot: Snapshot) -> None:
    """Limits, quotas for what may not be preempted, both by GPU model too; and sums fit together."""
    queues = {one.name: one for one in snapshot.queues}
    for _ in range(4):
        plan = decide(snapshot)
        shares = {share.queue: share for share in plan.shares}
        for name, share in shares.items():
            for resource in RESOURCES:
                quota = queues[name].quotas[resource]
                assert quota.limit == UNLIMITED or share.allocated[resource] <= quota.limit
                held = share.allocated_non_preemptible[resource]
                assert quota.deserved == UNLIMITED or held <= quota.deserved
        _check_sums(plan.total, shares, queues)
        snapshot = after(snapshot, plan)
        _check_models(snapshot, queues)


def _check_sums(total: tuple[int, int, int], shares: dict[str, Share], queues: dict[str, Queue]) -> None:
    """Check that what is below a queue holds and asks for what it does, and that nobody divides more than there is."""
    below: dict[str, list[Share]] = defaultdict(list)
    for share in shares.values():
        below[queues[share.queue].parent].append(share)
    for name, children in below.items():
        for resource in RESOURCES:
            capacity = shares[name].fair_share[resource] if name else total[resource]
            assert sum(share.fair_share[resource] for share in children) <= capacity
            assert all(0 <= share.fair_share[resource] <= share.requested[resource] for share in children)
            if name:
                assert (
                    sum(share.allocated[resource] for share in children) == shares[name].allocated[resource]
                )
                assert (
                    sum(share.requested[resource] for share in children) == shares[name].requested[resource]
                )


def _check_models(snapshot: Snapshot, queues: dict[str, Queue]) -> None:
    """Check what runs against quotas by GPU model, counted from the cards themselves."""
    models = {gpu.uuid: (gpu.model, gpu.memory_mib) for one in snapshot.nodes for gpu in one.gpus}
    held: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for one in snapshot.jobs:
        for task in one.tasks:
            if task.status is not TaskStatus.RUNNING:
                continue
            for uuid in task.gpus:
                model, mib = models[uuid]
                request = task.request
                milli = request.portion or (-(-request.gpu_memory_mib * 100 // mib) * 10) or 1000
                name = one.queue
                while name:
                    held[name, model][0] += milli
                    held[name, model][1] += 0 if one.preemptible else milli
                    name = queues[name].parent
    for name, spec in queues.items():
        for model, quota in spec.models:
            every, safe = held[name, model]
            assert quota.limit == UNLIMITED or every <= quota.limit
            assert quota.deserved == UNLIMITED or safe <= quota.deserved
