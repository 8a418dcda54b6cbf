"""controller.apply: what each answer of the Eviction API means."""

import pytest

from controller.fresh import Glance
from controller.outcome import Result
from kube import paths
from kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    TooManyRequests,
    Unavailable,
)
from tests.controller.shell.one_of_each import (
    EVICT,
    POD_UID,
)
from tests.controller.shell.samples import INCIDENT, NODE
from tests.controller.shell.world import Bench
from tests.fakes import request_to


@pytest.mark.parametrize(
    ("error", "expected", "why"),
    [
        pytest.param(
            TooManyRequests(
                "The disruption budget pdb-1 needs 1 healthy pods and has 1 currently",
                code=429,
                causes=("DisruptionBudget",),
                retry_after_s=10,
            ),
            Result.BLOCKED,
            "PodDisruptionBudget pdb-1 allows no eviction now",
            id="429 with a budget as cause: held by it",
        ),
        pytest.param(
            TooManyRequests("slow down", code=429, retry_after_s=2),
            Result.THROTTLED,
            "slow down",
            id="429 without: the server is busy",
        ),
        pytest.param(
            Unavailable(
                "POST x: 500 This pod has more than one PodDisruptionBudget, which the eviction subresource does "
                "not support.",
                code=500,
            ),
            Result.MISCONFIGURED,
            "more than one PodDisruptionBudget",
            id="500 with several budgets: needs a person",
        ),
        pytest.param(
            Unavailable("etcd", code=500), Result.UNAVAILABLE, "etcd", id="any other 500: try again"
        ),
        pytest.param(
            Forbidden("no", code=403, causes=("NamespaceTerminating",)),
            Result.BLOCKED,
            "being deleted",
            id="403 with a namespace that is going",
        ),
        pytest.param(Forbidden("rbac", code=403), Result.FORBIDDEN, "rbac", id="403 otherwise"),
        pytest.param(
            Conflict(
                "Operation cannot be fulfilled: the UID in the precondition (a) does not match", code=409
            ),
            Result.ABSENT,
            "another pod",
            id="409 for the UID: this pod is gone",
        ),
        pytest.param(Conflict("try again", code=409), Result.CONFLICT, "try again", id="409 otherwise"),
    ],
)
def test_the_eviction_apis_answers(error: ApiError, expected: Result, why: str) -> None:
    """One code stands for several things there; each is told apart."""
    bench = Bench()
    bench.draining()
    bench.api.fail_next(request_to("CREATE", "/eviction"), error)
    outcome = bench.applier.apply(EVICT)
    assert (outcome.result, why in outcome.why) == (expected, True)


def test_an_eviction_names_the_pod_by_its_uid() -> None:
    """A StatefulSet's pod of the same name on another node is not ours to evict (kubernetes/kubernetes#138229)."""
    bench = Bench()
    bench.draining()
    pod = {"metadata": {"name": "train-0", "namespace": "ml", "uid": POD_UID}}
    bench.api.add(paths.pods("ml"), pod)
    assert bench.applier.apply(EVICT).result is Result.DONE
    bench.api.add(paths.pods("ml"), {"metadata": {"name": "train-0", "namespace": "ml", "uid": "new"}})
    assert bench.applier.apply(EVICT).result is Result.ABSENT
    assert bench.api.names(paths.pods("ml")) == ["train-0"]
    assert bench.api.writes()[0].body["deleteOptions"] == {"preconditions": {"uid": POD_UID}}


def test_a_pod_that_is_gone_is_evicted() -> None:
    """404 is success."""
    bench = Bench()
    bench.draining()
    assert bench.applier.apply(EVICT).result is Result.ABSENT


def test_the_guard_is_asked_on_what_the_server_says_now() -> None:
    """A person uncordoned while this eviction waited behind slow ones: the pod stays (NVIDIA/NVSentinel#141)."""
    asked: list[Glance] = []

    def guard(seen: Glance) -> str | None:
        asked.append(seen)
        return None if seen.node.spec.unschedulable else "a person uncordoned the node"

    bench = Bench(eviction_guard=guard)
    bench.draining()
    outcome = bench.applier.apply(EVICT)
    assert (outcome.result, outcome.why) == (Result.REFUSED, "a person uncordoned the node")
    assert bench.api.writes() == []
    assert [seen.remediation.metadata.name for seen in asked] == [INCIDENT]
    assert [obj.metadata.name for obj in outcome.objects] == [NODE, INCIDENT]


@pytest.mark.parametrize(
    ("path", "result"),
    [
        pytest.param(paths.node(NODE), Result.UNAVAILABLE, id="the Node"),
        pytest.param(paths.remediation(INCIDENT), Result.UNAVAILABLE, id="the incident"),
    ],
)
def test_what_cannot_be_read_stops_an_eviction(path: str, result: Result) -> None:
    """Could not read is unknown, and unknown evicts nobody."""
    bench = Bench()
    bench.draining()
    bench.api.fail_next(lambda request: request.path == path, Unavailable("503", code=503))
    assert bench.applier.apply(EVICT).result is result
    assert bench.api.writes() == []


def test_leadership_lost_while_reading_stops_an_eviction() -> None:
    """Asked once more after the reads, which take their time."""
    bench = Bench(why_not_write=iter([None, "the Lease may pass on"]).__next__)
    bench.draining()
    assert bench.applier.apply(EVICT).result is Result.NOT_LEADER
    assert bench.api.writes() == []
