"""The scheduler on a real control plane, and what people get wrong: each is told what and where, and nobody waits for it."""

import pytest

from kube import paths
from kube.api import ApiError
from tests.cluster.scheduler_stage import POOL_LABEL, SchedulerStage

WRONG_FRACTIONS = {
    "a-word": ({"gpu-fraction": "half"}, "annotation gpu-fraction is 'half', but must be a decimal number"),
    "a-unit": ({"gpu-memory": "10Gi"}, "must be a whole number of MiB above 0, without a unit; write 10240"),
    "both": ({"gpu-fraction": "0.5", "gpu-memory": "1000"}, "gpu-fraction and gpu-memory are both set"),
}


def test_whoever_asks_for_something_impossible_is_told_and_the_others_go_on(stage: SchedulerStage) -> None:
    """Pod and queue say what is wrong with them, in words that name the field and its value. Policies only warn of it."""
    stage.add_nodes(1)
    good = stage.queue("good", quota=8)
    first, second = f"{stage.pool}-first", f"{stage.pool}-second"
    stage.queue("first", parent=second)
    stage.queue("second", parent=first)
    orphan = stage.queue("orphan", parent=f"{stage.pool}-nowhere")
    negative = stage.queue("negative", quota=-5)
    told = {name: words for name, (_, words) in WRONG_FRACTIONS.items()}
    for name, (annotations, _) in WRONG_FRACTIONS.items():
        stage.create_pod(name, good, 0, annotations=annotations)
    for name, queue, words in (
        ("lost", "no-such-queue", "queue no-such-queue does not exist"),
        ("in-a-loop", first, f'queue "{first}" is left out: its parents run in a circle'),
        ("below-nothing", orphan, f'there is no parent queue "{stage.pool}-nowhere"'),
        ("below-zero", negative, "spec.resources.gpu.quota is -5: must be 0 or more, or -1 for no bound"),
    ):
        stage.create_pod(name, queue)
        told[name] = words
    stage.start()
    for number in range(4):
        stage.create_pod(f"good-{number}", good)
    stage.until(lambda: len(stage.running("good")) == 4, "those that are right to run")
    stage.until(lambda: all(words in stage.why(name) for name, words in told.items()), f"them to say: {told}")
    queues = {
        (first, "ParentLoop"): f"{first} -> {second} -> {first} is a loop",
        (orphan, "Orphan"): f'spec.parentQueue is "{stage.pool}-nowhere", and there is no such Queue',
        (negative, "Invalid"): "spec.resources.gpu.quota is -5",
    }
    stage.until(
        lambda: all(words in stage.queue_condition(*key) for key, words in queues.items()),
        f"queues to say: {queues}",
    )
    stage.create_pod("good-late", good)
    stage.until(lambda: len(stage.running("good")) == 5, "somebody who comes later to run")
    assert sorted(stage.waiting("")) == sorted(told)
    stage.check_books()


def test_the_server_refuses_what_cannot_be_meant(stage: SchedulerStage) -> None:
    """Before anything is stored, and with the field's name."""
    with pytest.raises(ApiError, match=r"spec\.resources\.memory\.quota"):
        stage.queue("unit", resources={"memory": {"quota": "10Gi", "limit": -1}})
    parts = [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]
    metadata = {"name": "loop", "labels": {POOL_LABEL: stage.pool}}
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"queue": "any", "subGroups": parts},
    }
    with pytest.raises(ApiError, match=r"spec\.subGroups: a is its own ancestor"):
        stage.admin.create(paths.pod_groups(stage.namespace), group)


def test_a_fraction_waits_with_the_reason_while_fractions_are_off(stage: SchedulerStage) -> None:
    """A part of a card is given to nobody while nothing would keep a pod within it; whole cards go on."""
    stage.add_nodes(1)
    queue = stage.queue("team", quota=8)
    stage.start()
    stage.create_pod("part", queue, 0, annotations={"gpu-fraction": "0.5"})
    stage.create_pod("whole", queue, 1)
    stage.until(lambda: bool(stage.running("whole")), "the whole card to be given")
    stage.until(lambda: "enable_fractions" in stage.why("part"), "the reason to be told")
    stage.until(lambda: "Pod/part" in stage.notes("FailedScheduling"), "an Event to tell it")
    assert stage.running("part") == {}
    stage.check_books()
