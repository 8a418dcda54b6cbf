"""Queues as people write them: numbers that mean something, quotas by GPU model, and what was used in the past."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controller.scheduler.model import Queue as Spec
from controller.scheduler.model import Quota, Task, TaskStatus
from controller.scheduler.queue_objects import MODELS, queues_of
from controller.scheduler.replay import problems
from controller.scheduler.requests import Request
from controller.scheduler.snapshot import Objects, Options, build
from kube.scheduling import Queue
from tests.scheduler.words import FREE, cluster, decide, job, node
from tests.scheduler.words import queue as spec

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def queue(name: str = "research", models: str = "", **gpu: Any) -> Queue:
    """Give a Queue by what it says of GPUs."""
    free = {"quota": -1, "limit": -1}
    annotations = {MODELS: models} if models else {}
    resources = {"gpu": {"limit": -1, **gpu}, "cpu": free, "memory": free}
    raw = {"metadata": {"name": name, "annotations": annotations}, "spec": {"resources": resources}}
    return msgspec.convert(raw, Queue)


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        pytest.param({"quota": -5}, "gpu.quota is -5", id="a quota below nothing"),
        pytest.param({"quota": -0.001}, "gpu.quota is -0.001", id="which is not no bound"),
        pytest.param({"limit": -2}, "gpu.limit is -2", id="a limit below nothing"),
        pytest.param({"limit": "Infinity"}, "gpu.limit is Infinity", id="a limit that is no number"),
        pytest.param({"overQuotaWeight": -1}, "gpu.overQuotaWeight is -1", id="a weight below nothing"),
        pytest.param(
            {"models": '{"H200": {"limit": -3}}'}, "limit of H200 is -3", id="a model's limit below nothing"
        ),
        pytest.param({"models": '{"H200": 4}'}, "Expected `object`, got `int`", id="a model without words"),
        pytest.param({"models": '{"H200": {"max": 4}}'}, "unknown field `max`", id="a word that is none"),
        pytest.param({"models": "H200=4"}, "would be right", id="no JSON"),
    ],
)
def test_a_queue_that_means_nothing_is_left_out_and_said(gpu: dict[str, Any], said: str) -> None:
    """The others are there."""
    snapshot, problems = build(Objects(queues=(queue("odd", **gpu), queue("fine"))), NOW)
    assert [one.name for one in snapshot.queues] == ["fine"]
    assert len(problems) == 1
    assert problems[0].startswith("Queue odd: ")
    assert said in problems[0]


def test_quotas_by_model_stand_in_an_annotation() -> None:
    """In whole GPUs; what is not set is no bound, for the queue's own quota and limit hold besides."""
    models = '{"H200": {"quota": 1.5, "limit": 4}, "A100": {"limit": 0}}'
    (made,) = queues_of((queue(models=models),))
    assert made.models == (
        ("A100", Quota(deserved=-1, limit=0)),
        ("H200", Quota(deserved=1500, limit=4000)),
    )


def test_past_use_of_the_surplus_is_made_up_for() -> None:
    """From a history by name to shares: of two alike, the one that had much gets less."""
    used = {"greedy": (600_000, 0, 0)}
    specs = (queue("greedy", overQuotaWeight=1), queue("modest", overQuotaWeight=1))
    snapshot, problems = build(Objects(queues=specs), NOW, Options(usage=used))
    assert problems == ()
    jobs = [job("g", "greedy", pods=8, least=1), job("m", "modest", pods=8, least=1)]
    plan = decide(cluster([node("n")], snapshot.queues, jobs))
    assert {share.queue: share.fair_share[0] for share in plan.shares} == {"greedy": 2000, "modest": 6000}


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        pytest.param(
            Spec(name="q", quotas=(Quota(deserved=-500), FREE, FREE)),
            "deserved of GPU is -500: must be 0 or more, or -1 for no bound",
            id="a quota",
        ),
        pytest.param(
            Spec(name="q", quotas=(FREE, Quota(weight=-1), FREE)),
            "weight of CPU is -1: must be 0 or more",
            id="a weight",
        ),
        pytest.param(
            spec("q", models=(("H200", Quota(limit=-2)),)),
            "limit of H200 is -2: must be",
            id="a model's limit",
        ),
    ],
)
def test_a_saved_snapshot_with_amounts_below_nothing_is_refused(odd: Spec, said: str) -> None:
    """As shares worked out from them would be below nothing too."""
    (problem,) = problems(cluster([node("n")], [odd], []))
    assert problem.startswith(f"queue q: {said}")


def test_no_total_is_below_nothing() -> None:
    """Where a node lost what pods of other schedulers hold on it."""
    asked = Request(gpus=8, cpu_milli=900_000, memory_bytes=1 << 50)
    other = Task(id="o", job="", status=TaskStatus.RUNNING, node="n", request=asked)
    snapshot = msgspec.structs.replace(cluster([node("n", 2)], [spec("q", 1)], []), others=(other,))
    assert decide(snapshot).total == (0, 0, 0)
