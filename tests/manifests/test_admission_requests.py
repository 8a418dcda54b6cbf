"""Pods that ask for parts of GPUs, PodGroups and Queues before the admission policies: taken, warned of, refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from kube import paths
from kube.api import PatchType
from sandbox.cluster import Sandbox
from sandbox.install import install_scheduler
from tests.manifests.verdicts import judged, pod, pod_group, queue

QUEUES = paths.collection("scheduling.run.ai", "v2", "queues")
F, M, N, C = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name"
OPEN = {"quota": 0, "limit": -1}


def part(name: str, parent: str = "", **more: int) -> dict[str, Any]:
    return {"name": name, **({"parent": parent} if parent else {}), **more}


def parts(*subs: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return pod_group(queue="q", subGroups=list(subs), **spec)


ODD: list[tuple[dict[str, Any], str, str]] = [
    (pod({F: "0"}), 'gpu-fraction is "0"', "no part of a GPU"),
    (pod({F: "1"}), "for whole GPUs ask for nvidia.com/gpu", "a whole GPU as a part"),
    (pod({F: "50%"}), "write 0.5", "percent"),
    (pod({F: "250m"}), "write 0.25", "thousandths"),
    (pod({F: "half"}), "above 0 and below 1, as 0.5", "a part in words"),
    (pod({F: ""}), 'gpu-fraction is ""', "an empty part"),
    (pod({F: "-0.5"}), 'gpu-fraction is "-0.5"', "a negative part"),
    (pod({M: "10Gi"}), "without a unit; write 10240", "memory with a unit"),
    (pod({M: "10G"}), "write 9536", "memory with a decimal unit"),
    (pod({M: "0"}), 'gpu-memory is "0"', "no memory"),
    (pod({M: "1.5"}), "a whole number of MiB", "half a MiB"),
    (pod({M: "-1"}), 'gpu-memory is "-1"', "negative memory"),
    (pod({F: "0.5", M: "1024"}), "are both set", "a part and memory"),
    (pod({N: "2"}), "needs gpu-fraction or gpu-memory beside it", "devices of nothing"),
    (pod({F: "0.5", N: "0"}), "whole number above 0", "no device"),
    (pod({F: "0.5", N: "1.5"}), "whole number above 0", "half a device"),
    (pod({F: "0.5"}, gpus=1), "container main has a limit of nvidia.com/gpu besides", "a part and a whole"),
    (pod({F: "0.5", C: "sidecar"}), "the pod has no such container", "a container that is not there"),
    (pod_group(minMember=1), "spec.queue is empty", "a group without queue"),
    (pod_group(queue="q", schedulingBackoff=3), "must be -1", "a backoff that means nothing"),
    (pod_group(queue="q", preemptionDelay="5 min"), 'spec.preemptionDelay is "5 min"', "a delay in words"),
    (pod_group(queue="q", stalenessGracePeriod="60"), 'spec.stalenessGracePeriod is "60"', "a bare number"),
    (
        pod_group(queue="q", topologyConstraint={"requiredTopologyLevel": "rack"}),
        "names a level, but no topology",
        "a level of no topology",
    ),
    (parts(part("a", minMember=1), minSubGroup=2), "but only 1 subgroups have no parent", "too many roots"),
    (
        parts(part("a", minSubGroup=2), part("b", "a", minMember=1)),
        "a has minSubGroup 2, which is more than",
        "more parts than there are",
    ),
    (queue(resources={"gpu": {**OPEN, "quota": -2}}), "gpu.quota is -2", "a negative quota"),
    (queue(resources={"cpu": {"quota": 1, "limit": -1.5}}), "cpu.limit is -1.5", "a negative limit"),
    (queue(resources={"gpu": {"quota": 4, "limit": 2}}), "limit 2 is below the quota 4", "a limit below"),
    (queue(resources={"gpu": {"quota": 4}}), "gpu.limit is left out, which means 0", "a limit left out"),
    (queue(resources={"gpu": {**OPEN, "overQuotaWeight": -1}}), "overQuotaWeight is -1", "a negative weight"),
    (queue("own", resources={}, parentQueue="own"), "is the queue itself", "its own parent"),
    (queue(resources={}, reclaimMinRuntime="soon"), 'reclaimMinRuntime is "soon"', "a run time in words"),
]
FINE: list[tuple[dict[str, Any], str]] = [
    (pod({F: "0.5"}), "half a GPU"),
    (pod({F: ".25", N: "4"}), "a quarter of four"),
    (pod({F: "1e-1"}), "a tenth by exponent"),
    (pod({M: "10240", C: "main"}), "memory in MiB for a container"),
    (pod({"mps": "false"}, gpus=8), "whole GPUs"),
    (pod({F: "junk"}, schedulerName="other"), "another scheduler's pod, whatever it says"),
    (pod_group(queue="q", minMember=0), "a group that needs nobody"),
    (pod_group(queue="q", stalenessGracePeriod="-1s", preemptionDelay="1h30m"), "durations"),
    (
        parts(part("a", minSubGroup=1), part("b", "a", minSubGroup=1), part("c", "b", minMember=1)),
        "a chain of parts",
    ),
    (queue(resources={"gpu": {"quota": -1, "limit": 5, "overQuotaWeight": 0}}), "all, up to five"),
    (queue(resources={"gpu": {"quota": 0, "limit": 0}}, preemptMinRuntime="10m"), "shut on purpose"),
]
BROKEN: list[tuple[dict[str, Any], str, str]] = [
    (parts(part("a", minMember=1), part("a", minMember=1)), "the name a is given twice", "a name twice"),
    (parts(part("a", "x", minMember=1)), "the parent x is none of the subgroups", "a parent of nowhere"),
    (parts(part("a", "a", minMember=1)), "a is its own ancestor", "its own parent"),
    (
        parts(part("a", "c", minSubGroup=1), part("b", "a", minSubGroup=1), part("c", "b", minSubGroup=1)),
        "a is its own ancestor",
        "a circle of three",
    ),
    (parts(part("a")), "a has no subgroups of its own, so it needs minMember", "a leaf without minimum"),
    (parts(part("a", minSubGroup=1)), "a has minSubGroup, but no subgroups", "a leaf of parts"),
    (
        parts(part("a", minMember=1), part("b", "a", minMember=1)),
        "a has subgroups of its own, so it needs minSubGroup",
        "a parent of pods",
    ),
]


def rows(table: list[tuple[dict[str, Any], str, str]]) -> list[Any]:
    return [pytest.param(body, words, id=name) for body, words, name in table]


@pytest.mark.parametrize(("body", "words"), rows(ODD))
def test_what_kai_takes_is_taken_with_a_warning(scheduled: Sandbox, body: dict[str, Any], words: str) -> None:
    """Whoever comes from KAI Scheduler is stopped by nothing and told what never does what was meant."""
    verdict = judged(scheduled, body)

    assert verdict.taken
    assert words in verdict.words


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for body, name in FINE])
def test_what_is_right_is_taken_in_silence(scheduled: Sandbox, body: dict[str, Any]) -> None:
    """A warning that comes without need is soon read by nobody."""
    verdict = judged(scheduled, body)

    assert (verdict.taken, verdict.words) == (True, "")


@pytest.mark.parametrize(("body", "words"), rows(BROKEN))
def test_a_tree_that_is_none_is_refused(scheduled: Sandbox, body: dict[str, Any], words: str) -> None:
    """As KAI Scheduler's webhook does, without a webhook."""
    verdict = judged(scheduled, body)

    assert not verdict.taken
    assert f"denied request: spec.subGroups: {words}" in verdict.words


@pytest.fixture
def standing(scheduled: Sandbox) -> Iterator[str]:
    """A queue that is there while the test runs."""
    scheduled.admin.create(QUEUES, queue("standing", resources={"gpu": OPEN}))
    yield paths.member(QUEUES, "standing")
    scheduled.admin.patch(
        f"{paths.member(QUEUES, 'standing')}/status", {"status": {"childQueues": None}}, PatchType.MERGE
    )
    scheduled.admin.delete(paths.member(QUEUES, "standing"))


def test_a_queue_with_others_below_stays(scheduled: Sandbox, standing: str) -> None:
    """Those below would hang in the air."""
    body = {"status": {"childQueues": ["a", "b"]}}
    scheduled.admin.patch(f"{standing}/status", body, PatchType.MERGE)
    verdict = judged(scheduled, queue("standing"), "delete")

    assert not verdict.taken
    assert "still has queues below it: a, b; delete those first" in verdict.words


def test_a_queue_that_goes_under_running_pods_is_warned_of(scheduled: Sandbox, standing: str) -> None:
    """KAI Scheduler lets it go, so this is a warning; resources that are 0 hold nobody."""
    idle = {"status": {"allocated": {"cpu": "0", "nvidia.com/gpu": 0}}}
    busy = {"status": {"allocated": {"cpu": "0", "nvidia.com/gpu": "1500m"}}}
    scheduled.admin.patch(f"{standing}/status", idle, PatchType.MERGE)
    at_rest = judged(scheduled, queue("standing"), "delete")
    scheduled.admin.patch(f"{standing}/status", busy, PatchType.MERGE)
    at_work = judged(scheduled, queue("standing"), "delete")

    assert (at_rest.taken, "pods still run" in at_rest.words) == (True, False)
    assert at_work.taken
    assert "pods still run in queue standing (nvidia.com/gpu 1500m)" in at_work.words


def test_what_was_stored_before_may_be_changed_where_it_is_right(scheduled: Sandbox) -> None:
    """A label on a pod with an odd fraction is nobody's business: only what changes is judged."""
    api = scheduled.admin
    odd = pod({F: "2"}, name="stored")
    api.create(paths.pods("default"), odd)
    try:
        odd["metadata"]["labels"] = {"a": "b"}
        labelled = judged(scheduled, odd, "apply")
        odd["metadata"]["annotations"] = {F: "3"}
        changed = judged(scheduled, odd, "apply")
    finally:
        api.delete(paths.pod("default", "stored"), {"gracePeriodSeconds": 0})

    assert labelled.taken
    assert "gpu-fraction" not in labelled.words
    assert 'gpu-fraction is "3"' in changed.words


def test_hundreds_of_subgroups_are_judged_and_thousands_are_let_through(scheduled: Sandbox) -> None:
    """A policy that costs more than the server grants never stops a workload: the scheduler looks at its group again."""
    many = judged(
        scheduled, parts(*(part(f"p{n}", minMember=1) for n in range(300)), part("p0", minMember=1))
    )
    most = judged(scheduled, parts(*(part(f"p{n}", minMember=1) for n in range(3000))))

    assert "the name p0 is given twice" in many.words
    assert most.taken


@pytest.fixture(scope="module")
def strict(scheduled: Sandbox) -> Iterator[Sandbox]:
    """The component `strict`, while these tests run."""
    install_scheduler(scheduled, ["strict"])
    yield scheduled
    install_scheduler(scheduled)


STRICT = [ODD[2], ODD[18], ODD[27]]


@pytest.mark.parametrize(("body", "words"), rows(STRICT))
def test_the_component_strict_refuses_what_is_warned_of(
    strict: Sandbox, body: dict[str, Any], words: str
) -> None:
    """One of each sort: a pod, a group, a queue."""
    verdict = judged(strict, body)

    assert not verdict.taken
    assert words in verdict.words
