"""What pod groups note of a job between cycles: since when it runs, that it lost members, that a pool was tried in vain."""

from datetime import timedelta

import msgspec
import pytest

from controller.scheduler.model import Job
from kube.scheduling import LAST_START, PodGroup
from kube.types import Pod
from tests.scheduler.kube_words import NOW, pod
from tests.scheduler.object_words import GROUP, built, group, only
from tests.scheduler.words import cluster, decide, job, node, queue


def noted(group: PodGroup, minutes_ago: int) -> PodGroup:
    """Give a group that says so of its last start."""
    at = (NOW - timedelta(minutes=minutes_ago)).isoformat()
    meta = msgspec.structs.replace(group.metadata, annotations={LAST_START: at})
    return msgspec.structs.replace(group, metadata=meta)


def running(name: str, minutes: int | None, phase: str = "Running") -> Pod:
    """Give a pod of the group on a node; None = its kubelet has not seen it yet."""
    at = None if minutes is None else (NOW - timedelta(minutes=minutes)).isoformat()
    return pod(name, meta=GROUP, spec={"nodeName": "n1"}, status={"phase": phase, "startTime": at})


@pytest.mark.parametrize(
    ("made", "pods", "minutes"),
    [
        pytest.param(group(), (running("a", 5), running("b", 9)), 9, id="its oldest pod tells"),
        pytest.param(
            noted(group(), 10), (running("a", 9), running("b", 2)), 9, id="a replaced member changes nothing"
        ),
        pytest.param(noted(group(), 90), (running("a", 5),), 5, id="a note of a run before is too old"),
        pytest.param(
            noted(group(), 1), (running("a", None),), 1, id="the note stands before kubelet has seen a pod"
        ),
        pytest.param(group(), (running("a", None),), None, id="nobody knows"),
        pytest.param(group(), (running("a", 5, "Failed"),), None, id="what ended does not run"),
    ],
)
def test_since_when_a_job_runs(made: PodGroup, pods: tuple[Pod, ...], minutes: int | None) -> None:
    """The newer of the group's note and its oldest pod that runs."""
    expected = None if minutes is None else NOW - timedelta(minutes=minutes)
    assert only(built(*pods, pod_groups=(made,))).started_at == expected


@pytest.mark.parametrize(
    ("pool", "ready"),
    [
        pytest.param("default", False, id="KAI's name for the pool without a label"),
        pytest.param("h100", True, id="another pool"),
    ],
)
def test_one_try_was_asked_for(pool: str, ready: bool) -> None:
    """With a backoff of 1, a pool that was tried in vain is not tried again."""
    condition = {"type": "UnschedulableOnNodePool", "status": "True", "nodePool": pool}
    raw = {"schedulingConditions": [condition]}
    made = msgspec.structs.replace(
        group(schedulingBackoff=1), status=msgspec.convert(raw, type(group().status))
    )
    assert only(built(pod(meta=GROUP), pod_groups=(made,))).ready is ready


@pytest.mark.parametrize(
    ("given", "stale"),
    [
        pytest.param(
            job("gang", "q", pods=1, least=2, on=[("n1", [0])]), ("gang",), id="it lost a member for good"
        ),
        pytest.param(
            job("gang", "q", pods=3, least=2, on=[("n1", [0]), ("n1", [1])]), (), id="it has its minimum"
        ),
        pytest.param(
            job("gang", "q", pods=2, on=[("n1", [0])]), (), id="its new member is bound in this very cycle"
        ),
        pytest.param(
            job("gang", "q", pods=2, on=[("n1", [0])], gpus=1), ("gang",), id="its new member finds no room"
        ),
    ],
)
def test_the_plan_names_gangs_below_their_minimum(
    given: Job, stale: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """So that the group can note since when."""
    gpus = 1 if "no room" in request.node.name else 4
    assert decide(cluster([node("n1", gpus)], [queue("q", 4)], [given])).stale == stale
