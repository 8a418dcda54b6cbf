"""The scheduler on a real control plane: a thousand pods at once, and what is left of them when everything was killed."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from controller.scheduler.shell.report import MOST_BOUND
from sandbox.actors import SCHEDULER
from tests.cluster.scheduler_stage import QUICK_LEASE, SchedulerStage

FAN, BARE = 500, 150
WRITES_A_POD = 3


def test_a_fan_out_of_500_single_gpu_pods_is_bound_each_exactly_once(stage: SchedulerStage) -> None:
    """As pods of one Job and as bare pods, at once; each bare pod gets its PodGroup; no pod costs more than 3 writes."""
    stage.add_nodes((FAN + BARE) // 8 + 1)
    queue = stage.queue("batch", quota=-1)
    stage.start()
    stage.create_job("fan", queue, pods=FAN)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: stage.create_pod(f"bare-{number:03}", queue), range(BARE)))
    stage.until(lambda: len(stage.bound_to) == (FAN + BARE), "all of them to be bound", timeout_s=120)
    stage.check_books()

    stage.until(
        lambda: len(stage.groups()) == BARE + 1, "a PodGroup for each bare pod and one for the Job", every_s=1
    )
    owners = Counter(one["metadata"]["ownerReferences"][0]["kind"] for one in stage.groups())
    assert owners == {"Pod": BARE, "Job": 1}
    # Of a burst so many are told of; what failed is never left out for them.
    stage.until(lambda: len(stage.notes("Scheduled")) >= MOST_BOUND, "Events", every_s=1)
    stage.until(lambda: stage.gpus_of(queue) == ((FAN + BARE), (FAN + BARE)), "the queue's status to settle")
    binds = Counter(one["name"] for one in stage.audit("create", "pods", "binding"))
    assert set(binds.values()) == {1}
    assert len(binds) == (FAN + BARE)
    written = stage.audit("create") + stage.audit("patch")
    events = [one for one in stage.events() if one.get("reportingController") == SCHEDULER]
    assert len(written) + len(events) <= WRITES_A_POD * (FAN + BARE)
    about = Counter(one["name"] for one in written if one["resource"] == "pods")
    about.update(one["regarding"]["name"] for one in events if one["regarding"]["kind"] == "Pod")
    of_groups = Counter(one.get("name", "") for one in written if one["resource"] == "podgroups")
    for group in stage.groups():
        owner = group["metadata"]["ownerReferences"][0]
        if owner["kind"] == "Pod":
            about[owner["name"]] += of_groups[group["metadata"]["name"]]
    assert max(about.values()) <= WRITES_A_POD, about.most_common(3)


def test_after_everything_was_killed_in_a_burst_each_pod_is_bound_once(stage: SchedulerStage) -> None:
    """Both replicas by kill -9 while they bind, the API server too; what was bound stays, what waited is bound."""
    stage.add_nodes(16)
    queue = stage.queue("batch", quota=-1)
    stage.start(replicas=2, leader=QUICK_LEASE)
    stage.create_job("gangs", queue, pods=4, gpus=8, least=4)
    stage.until(lambda: len(stage.running("gangs")) == 4, "a gang to run")
    before = stage.running("gangs")
    with ThreadPoolExecutor(4) as threads:
        creating = [threads.submit(stage.create_pod, f"bare-{number:02}", queue) for number in range(80)]
        stage.until(lambda: len(stage.running("bare")) >= 20, "a part of them to be bound")
        for actor in stage.actors:
            actor.kill()
        for one in creating:
            one.result()
    time.sleep(0.5)
    bound = stage.running("bare")
    assert len(bound) < 80
    stage.sandbox.stop_apiserver()
    stage.sandbox.start_apiserver()
    stage.create_pod("late", queue, 8)
    for actor in stage.actors:
        actor.start()
    stage.until(
        lambda: len(stage.running("bare")) == 80 and "late" in stage.running("late"), "the rest to be bound"
    )
    assert {name: node for name, node in stage.running("bare").items() if name in bound} == bound
    assert stage.running("gangs") == before
    assert stage.disrupted == {}
    stage.check_books()
    names = Counter(one["name"] for one in stage.audit("create", "pods", "binding"))
    assert {name: count for name, count in names.items() if count != 1} == {}
